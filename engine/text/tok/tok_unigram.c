/* Unigram (T5, XLM-R): of all ways to cut a text into tokens, the one whose scores (log probabilities) add up to
 * most, by dynamic programming over its bytes. A character that no token covers costs the lowest score minus 10;
 * neighbours of that kind are one unknown token, or fall back to their bytes where the vocabulary has those.
 * source: Kudo 2018 (subword regularization); SentencePiece's unigram_model.cc (penalty, unknown runs). */
#include "text/tok/tok_impl.h"
#include <float.h>
#include <math.h>

enum { PIECE_MAX = 1024 }; /* bytes of a token that text can become; bounds the work at each character */

static unsigned prefix_slot(const char *s, size_t n) { /* the first two bytes */
    return (unsigned char)s[0] << 8 | (n > 1 ? (unsigned char)s[1] : 0);
}

enum infer_status tok_unigram_init(struct tok *t, const struct meta *scores) {
    if (!scores) return err_set(INFER_E_INPUT, "a Unigram vocabulary without tokenizer.ggml.scores");
    tok_find_words_apart(t);
    if (tok_map_find(t, TOK_SPACE, 3) < 0) t->words_apart = false; /* runs of unknown text cross words */
    t->score = arena_alloc(&t->arena, (size_t)t->n * sizeof *t->score);
    t->lengths = arena_alloc(&t->arena, 65536 * sizeof *t->lengths);
    if (!t->score || !t->lengths)
        return err_set(INFER_E_MEMORY, "out of memory: a vocabulary of %d tokens", t->n);
    double lowest = DBL_MAX;
    for (int32_t id = 0; id < t->n; id++) {
        struct str s = t->text[id];
        double score = meta_elem_f64(scores, (size_t)id);
        if (!isfinite(score)) return err_set(INFER_E_INPUT, "tokenizer.ggml.scores[%d] is not finite", id);
        t->score[id] = (float)score;
        t->order[id] = UINT32_MAX;
        if (t->attr[id] == TOK_ATTR_BYTE) TRY(tok_byte_token(t, id));
        if (t->attr[id] != TOK_ATTR_NORMAL || !s.len || s.len > PIECE_MAX) continue;
        t->order[id] = 0; /* a piece of text */
        if (score < lowest) lowest = score;
        /* which lengths start this way: bit k for k bytes, bit 63 for 63 and more */
        t->lengths[prefix_slot(s.data, s.len)] |= 1ull << (s.len < 63 ? s.len : 63);
        if (s.len == 1) /* whatever follows */
            for (unsigned b = 0; b < 256; b++) t->lengths[(unsigned char)s.data[0] << 8 | b] |= 2;
    }
    t->unknown_score = lowest == DBL_MAX ? -10 : lowest - 10;
    return INFER_OK;
}

struct viterbi_step { /* best way to reach a byte of the word */
    double score;
    uint32_t from, to; /* to: where the piece that starts here ends, once the best path is known */
    int32_t id;        /* -1: unknown character */
};

static int32_t piece_at(const struct tok *t, const char *s, size_t n) {
    int32_t id = tok_map_find(t, s, n);
    return id >= 0 && t->order[id] == 0 ? id : -1;
}

static void reach(struct viterbi_step *to, double score, size_t from, int32_t id) {
    if (score > to->score) *to = (struct viterbi_step){score, (uint32_t)from, 0, id};
}

/* best[0..n] of s[n] */
static void search(const struct tok *t, const char *s, size_t n, struct viterbi_step *best) {
    for (size_t i = 0; i <= n; i++) best[i].score = -DBL_MAX;
    best[0].score = 0;
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        len = text_utf8_len(s + i, n - i);
        if (!len) len = 1;
        bool single = false;
        uint64_t lengths = t->lengths[prefix_slot(s + i, n - i)];
        for (uint64_t bits = lengths; bits; bits &= bits - 1) {
            size_t k = (size_t)__builtin_ctzll(bits), last = k < 63                   ? k
                                                             : t->longest < PIECE_MAX ? t->longest
                                                                                      : PIECE_MAX;
            for (; k <= last && k <= n - i; k++) {
                int32_t id = piece_at(t, s + i, k);
                if (id < 0) continue;
                single |= k == len;
                reach(&best[i + k], best[i].score + t->score[id], i, id);
            }
        }
        if (!single) reach(&best[i + len], best[i].score + t->unknown_score, i, -1);
    }
}

static enum infer_status put_path(struct tok_work *w, const char *s, size_t n, struct viterbi_step *best) {
    for (size_t at = n; at > 0; at = best[at].from) best[best[at].from].to = (uint32_t)at;
    bool was_unknown = false;
    for (size_t i = 0, end; i < n; i = end) {
        end = best[i].to;
        int32_t id = best[end].id;
        bool bytes = id < 0 && w->t->byte_id[(unsigned char)s[i]] >= 0;
        if (id >= 0) {
            tok_put(&w->out, id);
        } else if (bytes) {
            for (size_t k = i; k < end; k++) tok_put_byte(w, (unsigned char)s[k]);
        } else if (!was_unknown) {
            tok_put_byte(w, (unsigned char)s[i]);
        }
        was_unknown = id < 0 && !bytes;
    }
    return INFER_OK;
}

static enum infer_status unigram_word(struct tok_work *w, const char *s, size_t n) {
    struct viterbi_step few[64], *best = few;
    if (n >= 64) {
        size_t bytes;
        if (!size_mul(n + 1, sizeof *best, &bytes)) return err_set(INFER_E_MEMORY, "a word of %zu bytes", n);
        TRY(mem_new(&best, bytes, "a long word"));
    }
    search(w->t, s, n, best);
    enum infer_status st = put_path(w, s, n, best);
    if (best != few) mem_free(best);
    return st;
}

enum infer_status tok_unigram_encode(struct tok_work *w, const char *s, size_t n, bool prefix) {
    char *normal;
    TRY(tok_normalize(w->t, &normal, &n, s, n, prefix));
    enum infer_status st = n ? tok_encode_words(w, normal, n, unigram_word) : INFER_OK;
    mem_free(normal);
    return st;
}

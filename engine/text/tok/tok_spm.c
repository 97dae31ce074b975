/* SentencePiece BPE: spaces become U+2581, text starts as its characters, and the neighbours whose joint text
 * is the token of highest score are joined first. What is no token falls back to its bytes, "<0xNN>". source:
 * Kudo, Richardson 2018; the SentencePiece model format. */
#include "text/tok/tok_merge.h"
#include <math.h>

enum infer_status tok_escape_space(char **out, size_t *n_out, const char *s, size_t n, bool prefix) {
    size_t spaces = prefix, room;
    for (size_t i = 0; i < n; i++) spaces += s[i] == ' ';
    *out = NULL;
    if (!size_mul(spaces, 3, &room) || !size_add(room, n, &room))
        return err_set(INFER_E_MEMORY, "out of memory: a text of %zu bytes", n);
    TRY(mem_new(out, room, "text with its spaces marked"));
    char *d = *out;
    size_t o = 0;
    if (prefix) memcpy(d, TOK_SPACE, 3), o = 3;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ') {
            memcpy(d + o, TOK_SPACE, 3);
            o += 3;
        } else {
            d[o++] = s[i];
        }
    }
    *n_out = o;
    return INFER_OK;
}

/* ---- loading ---- */
static bool is_mark(const char *s) { return memcmp(s, TOK_SPACE, 3) == 0; }

/* Whether a space mark stands behind another character. */
static bool holds_inner_space(struct str s) {
    for (size_t i = 1; i + 3 <= s.len; i++)
        if (is_mark(s.data + i) && !(i >= 3 && is_mark(s.data + i - 3))) return true;
    return false;
}

void tok_find_words_apart(struct tok *t) {
    t->words_apart = true;
    for (int32_t id = 0; id < t->n && t->words_apart; id++)
        if (t->attr[id] == TOK_ATTR_NORMAL || t->attr[id] == TOK_ATTR_UNUSED)
            t->words_apart = !holds_inner_space(t->text[id]);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

enum infer_status tok_byte_token(struct tok *t, int32_t id) {
    struct str s = t->text[id];
    bool form = s.len == 6 && memcmp(s.data, "<0x", 3) == 0 && s.data[5] == '>';
    int high = form ? hex_digit(s.data[3]) : -1, low = form ? hex_digit(s.data[4]) : -1;
    if (high < 0 || low < 0)
        return err_set(INFER_E_INPUT, "token %d is of type byte, but not written <0xNN>", id);
    t->byte_id[high * 16 + low] = id;
    return INFER_OK;
}

/* The token whose text is s[n]; -1: none, or one that is no text (control, byte, unknown). */
static int32_t text_token(const struct tok *t, const char *s, size_t n) {
    int32_t id = tok_map_find(t, s, n);
    return id >= 0 && t->order[id] == UINT32_MAX ? -1 : id;
}

enum infer_status tok_spm_init(struct tok *t, const struct meta *scores) {
    if (!scores && tok_is_joined(t))
        return err_set(INFER_E_INPUT,
                       "a SentencePiece vocabulary without tokenizer.ggml.scores: its ids would not be the "
                       "model's");
    tok_find_words_apart(t);
    for (int32_t id = 0; id < t->n; id++) {
        bool joins =
            t->attr[id] == TOK_ATTR_NORMAL || t->attr[id] == TOK_ATTR_USER || t->attr[id] == TOK_ATTR_UNUSED;
        struct str s = t->text[id];
        t->order[id] = UINT32_MAX;
        if (t->attr[id] == TOK_ATTR_BYTE) TRY(tok_byte_token(t, id));
        if (!joins || !s.len) continue;
        double score = scores ? meta_elem_f64(scores, (size_t)id) : 0;
        if (!isfinite(score)) return err_set(INFER_E_INPUT, "tokenizer.ggml.scores[%d] is not finite", id);
        /* order of floats as order of integers, the highest first */
        float f = (float)score + 0.0f;
        uint32_t u;
        memcpy(&u, &f, 4);
        t->order[id] = u & 0x80000000u ? u : ~u & 0x7fffffffu;
    }
    for (int c = 0; c < 128; c++) t->ascii[c] = text_token(t, &(char){(char)c}, 1);
    return INFER_OK;
}

/* ---- encoding ---- */
static uint32_t spm_pair(struct tok_work *w, const char *s, const struct tok_sym *a, const struct tok_sym *b,
                         int32_t *id) {
    const struct tok *t = w->t;
    if (a->len + b->len > t->longest) return UINT32_MAX;
    struct tok_joined *known = NULL;
    if (w->joined && a->id >= 0 && b->id >= 0) {
        uint64_t h = tok_mix((uint64_t)(uint32_t)a->id << 32 | (uint32_t)b->id, 0x9e3779b97f4a7c15u);
        known = &w->joined[h % TOK_JOINED];
        *id = known->id;
        if (known->left == a->id + 1 && known->right == b->id) return known->order;
    }
    *id = tok_map_find(t, s + a->pos, a->len + b->len);
    uint32_t order = *id < 0 ? UINT32_MAX : t->order[*id];
    if (known) *known = (struct tok_joined){a->id + 1, b->id, *id, order};
    return order;
}

static size_t first_symbols(const struct tok *t, const char *s, size_t n, struct tok_sym *sym, size_t cap) {
    size_t k = 0;
    for (size_t i = 0; i < n && k < cap; k++) {
        size_t len = text_utf8_len(s + i, n - i);
        if (!len) len = 1;
        int32_t id = (s[i] & 0x80) == 0 ? t->ascii[(int)s[i]] : text_token(t, s + i, len);
        sym[k] = (struct tok_sym){(uint32_t)i, (uint32_t)len, id};
        i += len;
    }
    return k;
}

static void put_symbols(struct tok_work *w, const char *s, const struct tok_sym *sym, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) {
            tok_put(&w->out, sym[i].id);
            continue;
        }
        for (size_t k = 0; k < sym[i].len; k++) tok_put_byte(w, (unsigned char)s[sym[i].pos + k]);
    }
}

static enum infer_status spm_word(struct tok_work *w, const char *s, size_t n) {
    const struct tok *t = w->t;
    struct tok_sym few[TOK_MERGE_SHORT], *sym;
    if (n <= TOK_MERGE_SHORT) {
        int k = (int)first_symbols(t, s, n, few, TOK_MERGE_SHORT);
        put_symbols(w, s, few, (size_t)tok_merge_short(w, s, few, k, spm_pair));
        return INFER_OK;
    }
    TRY(mem_new(&sym, n * sizeof *sym, "a long word"));
    size_t k = first_symbols(t, s, n, sym, n);
    enum infer_status st = tok_merge_long(w, s, sym, &k, spm_pair);
    if (st == INFER_OK) put_symbols(w, s, sym, k);
    mem_free(sym);
    return st;
}

enum infer_status tok_encode_words(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode) {
    if (!w->t->words_apart) return encode(w, s, n);
    size_t start = 0;
    for (size_t i = 0; i + 3 <= n;) {
        if (!is_mark(s + i)) {
            const char *next = memchr(s + i + 1, TOK_SPACE[0], n - i - 1);
            i = next ? (size_t)(next - s) : n;
            continue;
        }
        if (i > start) TRY(tok_word_cached(w, s + start, i - start, encode));
        start = i;
        while (i + 3 <= n && is_mark(s + i)) i += 3;
    }
    return n > start ? tok_word_cached(w, s + start, n - start, encode) : INFER_OK;
}

enum infer_status tok_spm_encode(struct tok_work *w, const char *s, size_t n, bool prefix) {
    char *escaped;
    size_t len;
    if (w->t->charsmap.n_unit || w->t->collapse_space) {
        TRY(tok_normalize(w->t, &escaped, &len, s, n, prefix));
    } else {
        TRY(tok_escape_space(&escaped, &len, s, n, prefix));
    }
    enum infer_status st = tok_encode_words(w, escaped, len, spm_word);
    mem_free(escaped);
    return st;
}

/* The tokens of a vocabulary as two tries, written flat: the children of a place lie together. */
#include "text/grammar/grammar_mask.h"

#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

struct piece {
    const char *p;
    uint32_t n;
    int32_t id;
    bool other; /* of the second trie */
};

static int by_bytes(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    if (x->other != y->other) return x->other ? 1 : -1;
    int c = memcmp(x->p, y->p, n);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* What a byte of UTF-8 leaves open: need is how many bytes 80..BF must still come, -1: broken. lo and hi bound the next. */
struct utf8_place {
    int8_t need;
    uint8_t lo, hi;
};

static struct utf8_place utf8_next(struct utf8_place p, uint8_t c) {
    if (p.need > 0)
        return c >= p.lo && c <= p.hi ? (struct utf8_place){(int8_t)(p.need - 1), 0x80, 0xbf}
                                      : (struct utf8_place){-1, 0, 0};
    if (p.need < 0) return p;
    if (c < 0x80) return (struct utf8_place){0, 0, 0};
    if (c >= 0xc2 && c <= 0xdf) return (struct utf8_place){1, 0x80, 0xbf};
    if (c >= 0xe0 && c <= 0xef)
        return (struct utf8_place){2, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf};
    if (c >= 0xf0 && c <= 0xf4)
        return (struct utf8_place){3, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf};
    return (struct utf8_place){-1, 0, 0};
}

static bool is_plain(const char *s, size_t n) {
    struct utf8_place at = {0};
    for (size_t i = 0; i < n && at.need >= 0; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c < 0x80 && !grammar_plain(c)) return false;
        at = utf8_next(at, c);
    }
    return at.need == 0;
}

/* Tokens of equal bytes become one: the number of those that are left. */
static uint32_t join_equal(struct infer_grammar_vocab *v, struct piece *p, size_t n) {
    uint32_t left = 0;
    for (size_t i = 0; i < n; i++) {
        bool equal = left && p[left - 1].n == p[i].n && memcmp(p[left - 1].p, p[i].p, p[i].n) == 0;
        v->same[p[i].id] = equal ? v->token[left - 1] : -1;
        if (equal)
            v->token[left - 1] = p[i].id;
        else
            v->token[left] = p[i].id, p[left++] = p[i];
    }
    return left;
}

/* Writes the places below node i, whose tokens have depth bytes in common, behind all others. */
static void write_kids(struct infer_grammar_vocab *v, const struct piece *p, uint32_t i, uint32_t depth) {
    struct trie_node *t = &v->node[i];
    t->first = v->n_node;
    t->ends = t->lo < t->hi && p[t->lo].n == depth;
    for (uint32_t k = t->lo + t->ends, end; k < t->hi; k = end) {
        char c = p[k].p[depth];
        for (end = k + 1; end < t->hi && p[end].p[depth] == c;) end++;
        v->byte[v->n_node] = (uint8_t)c;
        v->node[v->n_node++] = (struct trie_node){.lo = k, .hi = end};
    }
    t->n_kid = v->n_node - t->first;
}

/* Fills in what each subtree holds, from the last place to the first: children come behind their parent. at[i]: where the
 * character stands behind the place. */
static bool summarize(struct infer_grammar_vocab *v, const struct utf8_place *at, struct arena *scratch) {
    bool *good = arena_alloc(scratch, v->n_node); /* every token here and below ends with a whole character */
    for (uint32_t i = v->n_node; good && i-- > 0;) {
        struct trie_node *t = &v->node[i];
        bool kids_good = true;
        for (uint32_t k = t->first; k < t->first + t->n_kid; k++) {
            uint8_t c = v->byte[k];
            t->low |= v->node[k].low | (c < 64 ? 1ull << c : 0);
            t->high |= v->node[k].high | (c >= 64 && c < 128 ? 1ull << (c - 64) : 0);
            t->wide |= v->node[k].wide || c >= 128;
            t->kids |= 1ull << (c & 63);
            kids_good &= good[k];
        }
        t->whole = kids_good && at[i].need == 0;
        good[i] = kids_good && at[i].need >= 0 && (!t->ends || at[i].need == 0);
    }
    return good != NULL;
}

static bool find_commas(struct infer_grammar_vocab *v, const struct piece *p, uint32_t n_plain) {
    v->comma = arena_alloc(&v->arena, v->n_rank * sizeof *v->comma + 1);
    for (uint32_t r = 0; v->comma && r < v->n_rank; r++) {
        if (!memchr(p[r].p, ',', p[r].n)) continue;
        v->n_comma_plain += r < n_plain;
        v->comma[v->n_comma++] = r;
    }
    return v->comma != NULL;
}

/* Pieces p[n], sorted, become the tries. */
static enum infer_status build(struct infer_grammar_vocab *v, struct piece *p, size_t n, size_t bytes,
                               struct arena *scratch) {
    size_t room = bytes + TRIE_COUNT + 1;
    v->node = arena_alloc(&v->arena, room * sizeof *v->node);
    v->byte = arena_alloc(&v->arena, room);
    uint32_t *depth = arena_alloc(scratch, room * sizeof *depth);
    struct utf8_place *at = arena_alloc(scratch, room * sizeof *at);
    if (!v->node || !v->byte || !depth || !at)
        return err_set(INFER_E_MEMORY, "out of memory: a trie of %zu bytes of tokens", bytes);
    v->n_rank = join_equal(v, p, n);
    uint32_t plain = 0;
    while (plain < v->n_rank && !p[plain].other) plain++;
    v->n_char = arena_alloc(&v->arena, plain * sizeof *v->n_char + 1);
    if (!v->n_char || !find_commas(v, p, plain))
        return err_set(INFER_E_MEMORY, "out of memory: a trie of tokens");
    for (uint32_t r = 0; r < plain; r++) {
        for (uint32_t i = 0; i < p[r].n; i++) v->n_char[r] += ((uint8_t)p[r].p[i] & 0xc0) != 0x80;
        if (v->n_char[r] > v->most_char) v->most_char = v->n_char[r];
    }
    v->node[TRIE_PLAIN] = (struct trie_node){.lo = 0, .hi = plain};
    v->node[TRIE_OTHER] = (struct trie_node){.lo = plain, .hi = v->n_rank};
    v->n_node = TRIE_COUNT;
    for (uint32_t i = 0; i < v->n_node; i++) {
        write_kids(v, p, i, depth[i]);
        for (uint32_t k = v->node[i].first; k < v->n_node; k++) {
            depth[k] = depth[i] + 1;
            at[k] = utf8_next(at[i], v->byte[k]);
        }
    }
    return summarize(v, at, scratch) ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a trie of tokens");
}

static enum infer_status collect(const struct grammar_tokens *t, struct infer_grammar_vocab *v,
                                 struct piece *p, size_t *n, size_t *bytes) {
    *n = *bytes = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t len = 0;
        if (t->ends && t->ends(t->user, id)) {
            v->ends[id >> 6] |= 1ull << (id & 63);
            continue;
        }
        const char *s = t->piece(t->user, id, &len);
        if (len == 0 || len > TRIE_MAX_DEPTH) continue; /* never shown, or no token of a text */
        p[(*n)++] = (struct piece){s, (uint32_t)len, id, !is_plain(s, len)};
        *bytes += len;
        v->text[id] = s;
        v->text_len[id] = (uint32_t)len;
        v->all[id >> 6] |= 1ull << (id & 63);
    }
    return INFER_OK;
}

static enum infer_status fill(struct infer_grammar_vocab *v, const struct grammar_tokens *t,
                              struct arena *scratch) {
    size_t count = (size_t)t->n_vocab, n, bytes;
    v->n_vocab = t->n_vocab;
    v->n_word = (t->n_vocab + 63) / 64;
    v->same = arena_alloc(&v->arena, count * sizeof *v->same + 1);
    v->text = arena_alloc(&v->arena, count * sizeof *v->text + 1);
    v->text_len = arena_alloc(&v->arena, count * sizeof *v->text_len + 1);
    v->all = arena_alloc(&v->arena, (size_t)v->n_word * 8 + 1);
    v->ends = arena_alloc(&v->arena, (size_t)v->n_word * 8 + 1);
    v->token = arena_alloc(&v->arena, count * sizeof *v->token + 1);
    struct piece *p = arena_alloc(scratch, count * sizeof *p + 1);
    if (!v->same || !v->text || !v->text_len || !v->all || !v->ends || !v->token || !p)
        return err_set(INFER_E_MEMORY, "out of memory: a trie of %d tokens", t->n_vocab);
    TRY(collect(t, v, p, &n, &bytes));
    qsort(p, n, sizeof *p, by_bytes);
    return build(v, p, n, bytes, scratch);
}

enum infer_status grammar_vocab_open(struct infer_grammar_vocab **out, const struct grammar_tokens *t) {
    struct infer_grammar_vocab *v;
    struct arena scratch = {0};
    *out = NULL;
    TRY(mem_new(&v, sizeof *v, "a token trie"));
    enum infer_status st = fill(v, t, &scratch);
    arena_free(&scratch);
    if (st) {
        infer_grammar_vocab_close(v);
        return st;
    }
    *out = v;
    return INFER_OK;
}

void infer_grammar_vocab_close(struct infer_grammar_vocab *v) {
    if (!v) return;
    arena_free(&v->arena);
    mem_free(v);
}

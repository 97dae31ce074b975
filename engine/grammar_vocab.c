/* The tokens of a vocabulary as a trie, written flat in the order of a walk: children follow their parent, `skip` leads
 * behind them. */
#include "grammar_mask.h"

#include <stdlib.h>
#include <string.h>
#include "mem.h"

struct piece {
    const char *p;
    uint32_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int c = memcmp(x->p, y->p, n);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t common_prefix(const struct piece *a, const struct piece *b) {
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->p[n] == b->p[n]) n++;
    return n;
}

/* Writes the nodes of sorted pieces p[n]; open[depth] is the node last opened at each depth. */
static void write_nodes(struct grammar_vocab *v, const struct piece *p, size_t n, uint32_t *open) {
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t keep = i ? common_prefix(&p[i - 1], &p[i]) : 0;
        for (; depth > keep; depth--) v->node[open[depth - 1]].skip = v->n_node;
        for (; depth < p[i].n; depth++) {
            open[depth] = v->n_node;
            v->node[v->n_node++] =
                (struct trie_node){.token = -1, .depth = (uint16_t)depth, .byte = (uint8_t)p[i].p[depth]};
        }
        struct trie_node *leaf = &v->node[open[depth - 1]];
        v->same[p[i].id] = leaf->token;
        leaf->token = p[i].id;
    }
    for (; depth > 0; depth--) v->node[open[depth - 1]].skip = v->n_node;
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

/* Fills in what each subtree holds: first down (where the characters stand), then up (a walk backwards meets children
 * before their parent). */
static void summarize(struct grammar_vocab *v, struct utf8_place *place) {
    for (uint32_t i = 0; i < v->n_node; i++) { /* place[depth]: before the byte at that depth */
        struct trie_node *t = &v->node[i];
        struct utf8_place after = utf8_next(place[t->depth], t->byte);
        place[t->depth + 1] = after;
        t->starts = place[t->depth].need == 0;
        t->whole = after.need >= 0 && (t->token < 0 || after.need == 0);
    }
    for (uint32_t i = v->n_node; i-- > 0;) {
        struct trie_node *t = &v->node[i];
        if (t->byte < 64)
            t->low = 1ull << t->byte;
        else if (t->byte < 128)
            t->high = 1ull << (t->byte - 64);
        else
            t->wide = true;
        for (uint32_t k = i + 1; k < t->skip; k = v->node[k].skip) {
            t->low |= v->node[k].low;
            t->high |= v->node[k].high;
            t->wide |= v->node[k].wide;
            t->whole &= v->node[k].whole;
        }
    }
    for (uint32_t i = 0; i < v->n_node; i++) v->node[i].whole &= v->node[i].starts;
}

static enum infer_status collect(const struct grammar_tokens *t, struct grammar_vocab *v, struct piece *p,
                                 size_t *n, size_t *bytes) {
    *n = *bytes = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t len = 0;
        if (t->ends && t->ends(t->user, id)) {
            v->ends[id >> 6] |= 1ull << (id & 63);
            continue;
        }
        const char *s = t->piece(t->user, id, &len);
        if (len == 0 || len > TRIE_MAX_DEPTH) continue; /* never shown, or no token of a text */
        p[(*n)++] = (struct piece){s, (uint32_t)len, id};
        *bytes += len;
        v->text[id] = s;
        v->text_len[id] = (uint32_t)len;
        v->all[id >> 6] |= 1ull << (id & 63);
    }
    return INFER_OK;
}

static enum infer_status fill(struct grammar_vocab *v, const struct grammar_tokens *t,
                              struct arena *scratch) {
    size_t count = (size_t)t->n_vocab, n, bytes;
    v->n_vocab = t->n_vocab;
    v->n_word = (t->n_vocab + 63) / 64;
    v->same = arena_alloc(&v->arena, count * sizeof *v->same + 1);
    v->text = arena_alloc(&v->arena, count * sizeof *v->text + 1);
    v->text_len = arena_alloc(&v->arena, count * sizeof *v->text_len + 1);
    v->all = arena_alloc(&v->arena, (size_t)v->n_word * 8 + 1);
    v->ends = arena_alloc(&v->arena, (size_t)v->n_word * 8 + 1);
    struct piece *p = arena_alloc(scratch, count * sizeof *p + 1);
    uint32_t *open = arena_alloc(scratch, (TRIE_MAX_DEPTH + 1) * sizeof *open);
    struct utf8_place *place = arena_alloc(scratch, (TRIE_MAX_DEPTH + 1) * sizeof *place);
    if (!place || !v->same || !v->text || !v->text_len || !v->all || !v->ends || !p || !open)
        return err_set(INFER_E_MEMORY, "out of memory: a trie of %d tokens", t->n_vocab);
    TRY(collect(t, v, p, &n, &bytes));
    qsort(p, n, sizeof *p, by_bytes);
    v->node = arena_alloc(&v->arena, (bytes + 1) * sizeof *v->node);
    if (!v->node) return err_set(INFER_E_MEMORY, "out of memory: a trie of %zu bytes of tokens", bytes);
    write_nodes(v, p, n, open);
    summarize(v, place);
    return INFER_OK;
}

enum infer_status grammar_vocab_open(struct grammar_vocab **out, const struct grammar_tokens *t) {
    struct grammar_vocab *v;
    struct arena scratch = {0};
    *out = NULL;
    TRY(mem_new(&v, sizeof *v, "a token trie"));
    enum infer_status st = fill(v, t, &scratch);
    arena_free(&scratch);
    if (st) {
        grammar_vocab_close(v);
        return st;
    }
    *out = v;
    return INFER_OK;
}

void grammar_vocab_close(struct grammar_vocab *v) {
    if (!v) return;
    arena_free(&v->arena);
    mem_free(v);
}

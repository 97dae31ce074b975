/* SentencePiece's normalizer: a table of replacements ("charsmap", longest match first), white space collapsed
 * where the model says so, a space in front, and every space written U+2581.
 *
 * charsmap: [u32 bytes of the trie][trie: u32 units of a double array][replacements, each ended by 0]. A unit holds
 * the label of the edge that leads to it in bits 0-7 (bit 31 set: the unit is a value, an offset into the
 * replacements), whether a value hangs on it in bit 8, and the offset to its children in bits 10-30, shifted left
 * by 8 when bit 9 is set. source: SentencePiece's normalizer.cc and the darts-clone double array. */
#include "text/tok/tok_impl.h"

enum infer_status tok_charsmap_init(struct tok *t, const unsigned char *data, size_t n) {
    uint32_t bytes;
    if (n < 4) return err_set(INFER_E_INPUT, "the charsmap has %zu bytes", n);
    memcpy(&bytes, data, 4);
    if (bytes % 4 || bytes > n - 4)
        return err_set(INFER_E_INPUT, "the charsmap has %zu bytes and says that its trie has %u", n, bytes);
    t->charsmap.unit = arena_alloc(&t->arena, bytes);
    if (!t->charsmap.unit) return err_set(INFER_E_MEMORY, "out of memory: %u bytes for the charsmap", bytes);
    memcpy(t->charsmap.unit, data + 4, bytes);
    t->charsmap.n_unit = bytes / 4;
    t->charsmap.text = (const char *)data + 4 + bytes;
    t->charsmap.n_text = n - 4 - bytes;
    /* a replacement ends with 0 inside the table, so it can be read without looking for the end each time */
    if (t->charsmap.n_text && t->charsmap.text[t->charsmap.n_text - 1])
        return err_set(INFER_E_INPUT, "the charsmap's last replacement has no end");
    return INFER_OK;
}

static uint32_t children_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

/* The longest replacement for a start of s[n]: its text, and in *len how many bytes it replaces; NULL: none. */
static const char *replacement(const struct tok *t, const char *s, size_t n, size_t *len) {
    const uint32_t *unit = t->charsmap.unit;
    uint32_t n_unit = t->charsmap.n_unit, at = 0;
    const char *best = NULL;
    if (!n_unit) return NULL;
    at = children_of(unit[0]);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (!c) break;
        at ^= c;
        if (at >= n_unit || (unit[at] & 0x800000ffu) != c) break;
        bool value = unit[at] & 1u << 8;
        at ^= children_of(unit[at]);
        if (at >= n_unit) break;
        uint32_t offset = unit[at] & 0x7fffffffu;
        if (value && offset < t->charsmap.n_text) {
            best = t->charsmap.text + offset;
            *len = i + 1;
        }
    }
    return best;
}

struct buf {
    char *s; /* s[n], room for cap */
    size_t n, cap;
};
static enum infer_status buf_add(struct buf *b, const char *s, size_t n) {
    if (b->cap - b->n < n) {
        size_t cap;
        char *grown = NULL;
        if (size_add(b->cap + n, b->cap, &cap)) grown = mem_realloc(b->s, cap);
        if (!grown) return err_set(INFER_E_MEMORY, "out of memory: normalizing a text");
        b->s = grown;
        b->cap = cap;
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
    return INFER_OK;
}

static bool ends_with_mark(const struct buf *b) {
    return b->n >= 3 && memcmp(b->s + b->n - 3, TOK_SPACE, 3) == 0;
}

/* Adds s[n] with its spaces as marks. */
static enum infer_status add_marked(struct buf *b, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        const char *space = memchr(s + i, ' ', n - i);
        size_t run = space ? (size_t)(space - s) - i : n - i;
        if (run) TRY(buf_add(b, s + i, run));
        if (space) TRY(buf_add(b, TOK_SPACE, 3));
        i += run + (space != NULL);
    }
    return INFER_OK;
}

/* The next replacement or character of s[n]; returns how many bytes of s it stands for. */
static size_t next_piece(const struct tok *t, const char *s, size_t n, struct str *piece) {
    size_t len = 0;
    const char *with = replacement(t, s, n, &len);
    if (!with) {
        len = text_utf8_len(s, n);
        if (!len) len = 1; /* broken: the byte itself, which falls back to its token */
    }
    *piece = (struct str){with ? with : s, with ? strlen(with) : len};
    return len;
}

static enum infer_status normalize(const struct tok *t, struct buf *b, const char *s, size_t n, bool prefix) {
    struct str p;
    size_t i = 0;
    if (t->collapse_space) { /* spaces at the start do not count */
        for (size_t len; i < n; i += len) {
            len = next_piece(t, s + i, n - i, &p);
            if (p.len != 1 || p.data[0] != ' ') break;
        }
    }
    if (i == n) return INFER_OK;
    if (prefix) TRY(buf_add(b, TOK_SPACE, 3));
    for (bool after_space = t->collapse_space; i < n;) {
        i += next_piece(t, s + i, n - i, &p);
        while (after_space && p.len && p.data[0] == ' ') p.data++, p.len--;
        if (!p.len) continue;
        TRY(add_marked(b, p.data, p.len));
        after_space = t->collapse_space && p.data[p.len - 1] == ' ';
    }
    while (t->collapse_space && ends_with_mark(b)) b->n -= 3;
    return INFER_OK;
}

enum infer_status tok_normalize(const struct tok *t, char **out, size_t *n_out, const char *s, size_t n,
                                bool prefix) {
    struct buf b = {.cap = n + n / 2 + 16};
    *out = NULL;
    TRY(mem_new(&b.s, b.cap, "normalizing a text"));
    enum infer_status st = normalize(t, &b, s, n, prefix);
    if (st != INFER_OK) {
        mem_free(b.s);
        return st;
    }
    *out = b.s;
    *n_out = b.n;
    return INFER_OK;
}

/* Tokenizer: opening and checking a vocabulary, special tokens, and the dispatch to the families. */
#include "text/tok/tok_impl.h"
#include <stdatomic.h>
#include <utf8proc.h>

/* ---- maps ---- */
static enum infer_status table_size(size_t n, size_t slot, uint32_t *mask, size_t *bytes) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    *mask = (uint32_t)(slots - 1);
    if (n > INT32_MAX / 2 || !size_mul(slots, slot, bytes))
        return err_set(INFER_E_INPUT, "a tokenizer table of %zu entries is too large", n);
    return INFER_OK;
}

static enum infer_status map_alloc(struct tok *t) {
    size_t bytes = 0;
    TRY(table_size((size_t)t->n, sizeof *t->map.slot, &t->map.mask, &bytes));
    t->map.slot = arena_alloc(&t->arena, bytes);
    if (!t->map.slot) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for the vocabulary", bytes);
    memset(t->map.slot, 0xff, bytes);
    return INFER_OK;
}

/* The slot of s: its id, or -1 and free. */
static struct tok_slot *map_slot(const struct tok *t, uint64_t h, const char *s, size_t n) {
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint32_t i = (uint32_t)h & t->map.mask;; i = (i + 1) & t->map.mask) {
        struct tok_slot *slot = &t->map.slot[i];
        if (slot->id < 0) return slot;
        if (slot->tag == tag && t->text[slot->id].len == n && tok_same(t->text[slot->id].data, s, n))
            return slot;
    }
}

enum { AHEAD = 16 }; /* slots are asked for this many tokens before they are needed */

enum infer_status tok_map_init(struct tok *t, char *pieces) {
    uint64_t hash[AHEAD];
    TRY(map_alloc(t));
    for (int32_t k = 0; k < t->n + AHEAD; k++) {
        int32_t id = k - AHEAD;
        if (id >= 0 && t->text[id].len) {
            struct str s = t->text[id];
            if (s.len > t->longest) t->longest = s.len;
            struct tok_slot *slot = map_slot(t, hash[k % AHEAD], s.data, s.len);
            if (slot->id < 0) *slot = (struct tok_slot){(uint32_t)(hash[k % AHEAD] >> 32), id};
        }
        if (k >= t->n) continue;
        hash[k % AHEAD] = tok_hash(t, t->text[k].data, t->text[k].len);
        __builtin_prefetch(&t->map.slot[hash[k % AHEAD] & t->map.mask], 1);
        pieces += tok_piece_make(t, k, pieces); /* while its text is in the cache */
    }
    return INFER_OK;
}

int32_t tok_map_find_hashed(const struct tok *t, uint64_t hash, const char *s, size_t n) {
    return map_slot(t, hash, s, n)->id;
}

int32_t tok_map_find(const struct tok *t, const char *s, size_t n) {
    return map_slot(t, tok_hash(t, s, n), s, n)->id;
}

enum infer_status tok_pairs_init(struct tok *t, struct tok_pairs *p, size_t n) {
    size_t bytes = 0;
    TRY(table_size(n, sizeof *p->slot, &p->mask, &bytes));
    p->slot = arena_alloc(&t->arena, bytes);
    if (!p->slot) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for the merges", bytes);
    memset(p->slot, 0xff, bytes);
    return INFER_OK;
}

static uint32_t pair_hash(const struct tok *t, int32_t a, int32_t b) {
    return (uint32_t)tok_mix(((uint64_t)(uint32_t)a << 32 | (uint32_t)b) ^ t->seed, 0x9e3779b97f4a7c15u);
}

static struct tok_pair *pair_slot(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b) {
    for (uint32_t i = pair_hash(t, a, b) & p->mask;; i = (i + 1) & p->mask) {
        struct tok_pair *s = &p->slot[i];
        if (s->a < 0 || (s->a == a && s->b == b)) return s;
    }
}

void tok_pair_ask(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b) {
    __builtin_prefetch(&p->slot[pair_hash(t, a, b) & p->mask], 1);
}

const struct tok_pair *tok_pair_find(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b) {
    const struct tok_pair *s = pair_slot(t, p, a, b);
    return s->a < 0 ? NULL : s;
}

struct tok_pair *tok_pair_add(const struct tok *t, struct tok_pairs *p, int32_t a, int32_t b, uint32_t rank,
                              int32_t id) {
    struct tok_pair *s = pair_slot(t, p, a, b);
    if (s->a < 0) *s = (struct tok_pair){a, b, rank, id};
    return s;
}

/* ---- special tokens: a trie of those that are parsed in text ---- */
static bool is_special(const struct tok *t, int32_t id) {
    return t->attr[id] == TOK_ATTR_CONTROL || t->attr[id] == TOK_ATTR_USER || t->attr[id] == TOK_ATTR_UNKNOWN;
}

/* User-defined tokens without a sign of markup (runs of spaces, words) are plain text too. */
static bool is_plain(struct str s) {
    static const char bar[3] = "\xef\xbd\x9c"; /* U+FF5C, the bar of DeepSeek's marks */
    for (size_t i = 0; i < s.len; i++) {
        if (memchr("<>[]|{}", s.data[i], 7)) return false;
        if (i + 3 <= s.len && memcmp(s.data + i, bar, 3) == 0) return false;
    }
    return true;
}

enum { SPECIAL_MAX = 1024 }; /* bytes; bounds the work at each byte of a text */

enum infer_status tok_trie_init(struct tok *t) {
    size_t n_edge = 0;
    for (int32_t id = 0; id < t->n; id++)
        if (is_special(t, id)) n_edge += t->text[id].len;
    TRY(tok_pairs_init(t, &t->edges, n_edge));
    size_t bytes = (n_edge + 1) * sizeof *t->leaf;
    t->leaf = arena_alloc(&t->arena, bytes);
    if (!t->leaf) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for the special tokens", bytes);
    memset(t->leaf, 0xff, bytes);
    int32_t n_node = 1;
    for (int32_t id = 0; id < t->n; id++) {
        struct str s = t->text[id];
        if (!is_special(t, id) || !s.len) continue;
        if (s.len > SPECIAL_MAX) {
            log_line(LOG_WARN, "special token %d has %zu bytes and is not looked for in text", id, s.len);
            continue;
        }
        int32_t node = 0;
        for (size_t i = 0; i < s.len; i++) {
            struct tok_pair *e = tok_pair_add(t, &t->edges, node, (unsigned char)s.data[i], 0, n_node);
            if (e->id == n_node) n_node++;
            node = e->id;
        }
        if (t->leaf[node] < 0) t->leaf[node] = id;
        t->special_first[(unsigned char)s.data[0]] = true;
        if (t->attr[id] == TOK_ATTR_USER && is_plain(s)) t->flag[id] |= TOK_F_PLAIN;
    }
    return INFER_OK;
}

/* The longest special token at s[0] that may be parsed there; -1. marks may be NULL. */
static int32_t special_at(const struct tok *t, const char *s, const uint8_t *marks, size_t n,
                          unsigned flags) {
    int32_t best = -1, node = 0;
    bool marked = false;
    for (size_t i = 0; i < n; i++) {
        const struct tok_pair *e = tok_pair_find(t, &t->edges, node, (unsigned char)s[i]);
        if (!e) break;
        node = e->id;
        marked |= marks && marks[i];
        int32_t id = t->leaf[node];
        if (id < 0) continue;
        bool user = t->attr[id] == TOK_ATTR_USER;
        if (marked ? (t->flag[id] & TOK_F_PLAIN) != 0 : user || (flags & TOK_SPECIAL)) best = id;
    }
    return best;
}

/* ---- words through the cache ---- */
enum infer_status tok_word_cached(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode) {
    if (!w->cache || n > TOK_CACHE_KEY) return encode(w, s, n);
    uint64_t h = tok_hash(w->t, s, n);
    struct tok_cached *c = &w->cache[(uint32_t)h & w->cache_mask];
    uint32_t tag = (uint32_t)(h >> 32);
    if (c->tag == tag && c->len == n && memcmp(c->key, s, n) == 0) {
        for (int i = 0; i < c->n_ids; i++) tok_put(&w->out, c->ids[i]);
        return INFER_OK;
    }
    size_t before = w->out.n;
    TRY(encode(w, s, n));
    size_t made = w->out.n - before;
    if (made <= TOK_CACHE_IDS && w->out.n <= w->out.cap) {
        c->tag = tag;
        c->len = (uint8_t)n;
        c->n_ids = (uint8_t)made;
        memcpy(c->key, s, n);
        memcpy(c->ids, w->out.ids + before, made * sizeof *c->ids);
    }
    return INFER_OK;
}

void tok_put_byte(struct tok_work *w, unsigned char byte) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int32_t id = w->t->byte_id[byte];
    if (id < 0 && !w->t->drops_unknown) id = w->t->unk;
    if (id >= 0)
        tok_put(&w->out, id);
    else if (!atomic_flag_test_and_set(&said))
        log_line(LOG_WARN, "the vocabulary has no token for byte 0x%02x: such bytes are left out of the text",
                 byte);
}

/* ---- encoding ---- */
/* Bytes of the white space character at s[n]; 0: none. */
static size_t white_len(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (n && (u[0] == ' ' || (u[0] >= '\t' && u[0] <= '\r'))) return 1;
    if (n >= 2 && u[0] == 0xc2) return u[1] == 0x85 || u[1] == 0xa0 ? 2 : 0;
    if (n < 3 || u[0] < 0xe1 || u[0] > 0xe3) return 0;
    unsigned c = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    bool white = c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                 c == 0x205f || c == 0x3000;
    return white ? 3 : 0;
}

/* s[n] without the white space at its end. */
static size_t strip_end(const char *s, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++)
        if (white_len(s + n - k, k) == k) {
            n -= k;
            k = 0;
        }
    return n;
}

/* A letter, mark, digit or joining punctuation: \w of Unicode's regular expressions. */
static bool in_word(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
           c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9);
}

static bool starts_with_word(const char *s, size_t n) {
    utf8proc_int32_t c;
    return n && utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &c) > 0 && in_word(c);
}

static bool ends_in_word(const char *s, size_t n) {
    for (size_t k = 1; k <= 4 && k <= n; k++)
        if (text_utf8_len(s + n - k, k) == k) return starts_with_word(s + n - k, k);
    return false;
}

/* A stretch between special tokens; first: it starts the text. */
static enum infer_status encode_plain(struct tok_work *w, const char *s, size_t n, bool first) {
    const struct tok *t = w->t;
    if (!n) return INFER_OK;
    bool prefix = t->space_prefix && (first || !t->prefix_first);
    if (t->prefix_unless && !t->collapse_space)
        prefix = prefix && s[0] != ' ' && !(t->escape_space && n >= 3 && memcmp(s, TOK_SPACE, 3) == 0);
    switch (t->family) {
    case TOK_BPE:
        return tok_bpe_encode(w, s, n, prefix);
    case TOK_SPM:
        return tok_spm_encode(w, s, n, prefix);
    case TOK_UNIGRAM:
        return tok_unigram_encode(w, s, n, prefix);
    case TOK_WORDPIECE:
        return tok_wordpiece_encode(w, s, n);
    }
    infer_bug("tokenizer family %d", (int)t->family);
}

static enum infer_status encode_all(struct tok_work *w, const char *s, const uint8_t *marks, size_t n,
                                    unsigned flags) {
    const struct tok *t = w->t;
    size_t start = 0;
    for (size_t i = 0; i < n;) {
        int32_t id = -1;
        if (t->special_first[(unsigned char)s[i]])
            id = special_at(t, s + i, marks ? marks + i : NULL, n - i, flags);
        if (id < 0) {
            i++;
            continue;
        }
        size_t end = i, next = i + t->text[id].len;
        if ((t->flag[id] & TOK_F_WORD) && (ends_in_word(s, i) || starts_with_word(s + next, n - next))) {
            i = next; /* as in tokenizers: no shorter one is looked for within it */
            continue;
        }
        if (t->flag[id] & TOK_F_LSTRIP) end = start + strip_end(s + start, end - start);
        if (t->flag[id] & TOK_F_RSTRIP)
            for (size_t k; (k = white_len(s + next, n - next));) next += k;
        TRY(encode_plain(w, s + start, end - start, start == 0));
        tok_put(&w->out, id);
        i = start = next;
    }
    return encode_plain(w, s + start, n - start, start == 0);
}

static void put_all(struct tok_out *out, const struct tok_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) tok_put(out, ids->id[i]);
}

enum { CACHE_FROM = 256, CACHE_MAX = 8192, JOINED_FROM = 32 << 10 };

enum infer_status tok_encode(const struct tok *t, const char *text, const uint8_t *marks, size_t n,
                             unsigned flags, int32_t *ids, size_t cap, size_t *n_out) {
    struct tok_work w = {.t = t, .out = {ids, cap, 0}};
    *n_out = 0;
    if (n > INT32_MAX) return err_set(INFER_E_INPUT, "a text of %zu bytes is too long to tokenize", n);
    if (n >= CACHE_FROM) {
        size_t slots = CACHE_FROM / 4;
        while (slots < CACHE_MAX && slots < n / 16) slots *= 2;
        TRY(mem_new(&w.cache, slots * sizeof *w.cache, "the tokenizer's word cache"));
        w.cache_mask = (uint32_t)slots - 1;
    }
    if (flags & TOK_ADD) put_all(&w.out, &t->around[TOK_FRONT]);
    enum infer_status st = INFER_OK;
    if (n >= JOINED_FROM && t->family == TOK_SPM)
        st = mem_new(&w.joined, TOK_JOINED * sizeof *w.joined, "the tokenizer's pair cache");
    if (st == INFER_OK) st = encode_all(&w, text, marks, n, flags);
    if (st == INFER_OK && (flags & TOK_ADD)) put_all(&w.out, &t->around[TOK_BEHIND]);
    pcre2_match_data_free(w.match);
    mem_free(w.cache);
    mem_free(w.joined);
    *n_out = st == INFER_OK ? w.out.n : 0;
    return st;
}

/* ---- reading ---- */
struct str tok_piece(const struct tok *t, int32_t id, bool special, bool first) {
    struct str none = {"", 0};
    if (id < 0 || id >= t->n) return none;
    if (!special && (t->attr[id] == TOK_ATTR_CONTROL || t->attr[id] == TOK_ATTR_UNKNOWN)) return none;
    struct str s = t->piece[id];
    if (first && t->space_prefix && s.len && s.data[0] == ' ' && t->attr[id] != TOK_ATTR_BYTE)
        return (struct str){s.data + 1, s.len - 1};
    return s;
}

int32_t tok_size(const struct tok *t) { return t->n; }
const char *tok_model_name(const struct tok *t) { return t->model_name; }
const char *tok_pre_name(const struct tok *t) { return t->pre_name; }
int32_t tok_bos(const struct tok *t) { return t->bos; }
int32_t tok_eos(const struct tok *t) { return t->eos; }
bool tok_adds_bos(const struct tok *t) { return t->add_bos; }
size_t tok_adds(const struct tok *t, bool behind) { return t->around[behind ? TOK_BEHIND : TOK_FRONT].n; }
bool tok_is_stop(const struct tok *t, int32_t id) {
    return id >= 0 && id < t->n && (t->flag[id] & TOK_F_STOP);
}
enum tok_attr tok_attr(const struct tok *t, int32_t id) {
    return id >= 0 && id < t->n ? (enum tok_attr)t->attr[id] : TOK_ATTR_UNUSED;
}
int32_t tok_find(const struct tok *t, const char *s, size_t n) { return tok_map_find(t, s, n); }

void tok_close(struct tok *t) {
    if (!t) return;
    tok_pre_free(&t->pre);
    arena_free(&t->arena);
    mem_free(t);
}

/* Byte-level BPE: text is cut by the pre-tokenizer, each piece starts as its bytes, and pairs are joined in
 * the order of the merge list. Tokens are written in an alphabet of 256 printable characters, one a byte.
 *
 * Some families (Gemma 4) merge characters instead: a space is written U+2581, text is not mapped to the
 * alphabet, and a character that is no token falls back to its bytes, "<0xNN>".
 * source: Radford et al. 2019 (GPT-2) and its encoder.py (the alphabet). */
#include "text/tok/tok_merge.h"
#include <stdio.h>

/* ---- the byte alphabet: printable bytes stand for themselves, the others for U+0100.. in order ---- */
static bool stands_for_itself(unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

void tok_bpe_alphabet(struct tok_alphabet *a) {
    unsigned next = 0x100;
    memset(a->byte_of, 0xff, sizeof a->byte_of);
    for (unsigned b = 0; b < 256; b++) {
        unsigned c = stands_for_itself(b) ? b : next++;
        a->char_of[b] = (uint16_t)c;
        a->byte_of[c] = (int16_t)b;
    }
}

static size_t put_char(char *dst, unsigned c) { /* c < 0x800; dst has room for 2 */
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    dst[0] = (char)(0xc0 | c >> 6);
    dst[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* The byte that the character at s[n], n > 0, stands for, -1: none; *len: its bytes, 1 where it is no character of two. */
static inline int next_byte(const struct tok *t, const char *s, size_t n, size_t *len) {
    unsigned c = (unsigned char)s[0], two = c - 0xc2u < 4u && n > 1, more = n > 1 ? s[1] & 0x3f : 0;
    unsigned at = two ? (c & 0x1f) << 6 | more : c;
    *len = 1 + two;
    return (two || c < 0x80) && at < TOK_ALPHABET_END ? t->alphabet.byte_of[at] : -1;
}

size_t tok_bpe_unmap(const struct tok *t, char *dst, const char *s, size_t n) {
    size_t o = 0, len;
    for (size_t i = 0; i < n; i += len) {
        int b = next_byte(t, s + i, n - i, &len);
        if (b >= 0) {
            dst[o++] = (char)b;
        } else { /* a character outside the alphabet stands for itself */
            memcpy(dst + o, s + i, len);
            o += len;
        }
    }
    return o;
}

size_t tok_bpe_map(const struct tok *t, char *dst, const char *s, size_t n) {
    size_t o = 0;
    for (size_t i = 0; i < n; i++) o += put_char(dst + o, t->alphabet.char_of[(unsigned char)s[i]]);
    return o;
}

/* ---- loading ---- */
/* A merge on its way into the table. Nearly all the time of loading is waiting for memory (texts and table slots lie
 * at random places), so merges are taken in batches and each place is asked for one stage before it is read. */
enum { BATCH = 64 };
struct merge {
    struct str left, right;
    uint64_t left_hash, right_hash;
    int32_t left_id, right_id, id;
};

/* "left right", cut at the first space that is not the first byte; right is empty when there is none. */
static void cut_merge(const struct tok *t, struct merge *m, struct str line) {
    const char *cut = line.len > 2 ? memchr(line.data + 1, ' ', line.len - 1) : NULL;
    size_t n = cut ? (size_t)(cut - line.data) : line.len;
    m->left = (struct str){line.data, n};
    m->right = cut ? (struct str){cut + 1, line.len - n - 1} : (struct str){"", 0};
    m->left_hash = tok_hash(t, m->left.data, m->left.len);
    m->right_hash = tok_hash(t, m->right.data, m->right.len);
    __builtin_prefetch(&t->map.slot[m->left_hash & t->map.mask]);
    __builtin_prefetch(&t->map.slot[m->right_hash & t->map.mask]);
}

/* Asks for the text behind the first slot of a hash: first its address, then the text itself. */
static void ask_text(const struct tok *t, uint64_t hash, bool address) {
    int32_t id = t->map.slot[hash & t->map.mask].id;
    if (id < 0) return;
    __builtin_prefetch(address ? (const void *)&t->text[id] : t->text[id].data);
}

/* The three ids. The result is nearly always the token behind that of the merge before: try it before the map. */
static void find_merge(const struct tok *t, struct merge *m, int32_t *last, char *joined) {
    m->id = -1;
    m->left_id = tok_map_find_hashed(t, m->left_hash, m->left.data, m->left.len);
    m->right_id = tok_map_find_hashed(t, m->right_hash, m->right.data, m->right.len);
    if (m->left_id < 0 || m->right_id < 0 || !m->right.len) return;
    size_t n = m->left.len + m->right.len;
    int32_t id = *last + 1;
    struct str next = id < t->n ? t->text[id] : (struct str){"", 0};
    if (next.len != n || !tok_same(next.data, m->left.data, m->left.len) ||
        !tok_same(next.data + m->left.len, m->right.data, m->right.len)) {
        memcpy(joined, m->left.data, m->left.len);
        memcpy(joined + m->left.len, m->right.data, m->right.len);
        id = tok_map_find(t, joined, n);
    }
    m->id = id;
    if (id < 0) return;
    *last = id;
    tok_pair_ask(t, &t->merges, m->left_id, m->right_id);
}

static enum infer_status add_merges(struct tok *t, const struct meta *merges) {
    size_t n = merges ? merges->n : 0, longest = 1, lost = 0;
    int32_t last = -1;
    char *joined;
    struct merge m[BATCH];
    TRY(tok_pairs_init(t, &t->merges, n));
    for (size_t i = 0; i < n; i++)
        if (merges->strings[i].len > longest) longest = merges->strings[i].len;
    TRY(mem_new(&joined, longest, "the merges"));
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < BATCH ? n - at : BATCH;
        for (size_t i = 0; i < k; i++) {
            cut_merge(t, &m[i], merges->strings[at + i]);
            if (m[i].right.len) continue;
            mem_free(joined);
            return err_set(INFER_E_INPUT,
                           "tokenizer.ggml.merges[%zu] '%.*s' is not two texts with a space between", at + i,
                           (int)(m[i].left.len < 64 ? m[i].left.len : 64), m[i].left.data);
        }
        for (int address = 1; address >= 0; address--)
            for (size_t i = 0; i < k; i++) {
                ask_text(t, m[i].left_hash, address);
                ask_text(t, m[i].right_hash, address);
            }
        for (size_t i = 0; i < k; i++) find_merge(t, &m[i], &last, joined);
        for (size_t i = 0; i < k; i++) {
            lost += m[i].id < 0;
            if (m[i].id >= 0)
                tok_pair_add(t, &t->merges, m[i].left_id, m[i].right_id, (uint32_t)(at + i), m[i].id);
        }
    }
    mem_free(joined);
    if (lost) log_line(LOG_WARN, "%zu of %zu merges name tokens that the vocabulary does not have", lost, n);
    return INFER_OK;
}

bool tok_is_joined(const struct tok *t) {
    for (int32_t id = 0; id < t->n; id++) {
        struct str s = t->text[id];
        if (t->attr[id] == TOK_ATTR_NORMAL && id != t->unk && s.len > text_utf8_len(s.data, s.len))
            return true;
    }
    return false;
}

enum infer_status tok_bpe_init(struct tok *t, const struct meta *merges) {
    for (unsigned b = 0; b < 256; b++) {
        char s[8];
        size_t n = put_char(s, t->alphabet.char_of[b]);
        if (t->characters) n = (size_t)snprintf(s, sizeof s, "<0x%02X>", b);
        t->byte_id[b] = tok_map_find(t, s, n);
        /* characters fall back to bytes only where the file says that these tokens are bytes */
        if (t->characters && t->byte_id[b] >= 0 && t->attr[t->byte_id[b]] != TOK_ATTR_BYTE)
            t->byte_id[b] = -1;
    }
    for (int c = 0; c < 128; c++) t->ascii[c] = tok_map_find(t, &(char){(char)c}, 1);
    if (t->escape_space) tok_find_words_apart(t);
    /* also with ignore_merges, which only takes whole pieces out of the merging: the others would fall apart into bytes */
    if ((!merges || merges->n == 0) && tok_is_joined(t))
        return err_set(INFER_E_INPUT,
                       "a BPE vocabulary of %d tokens without merges (tokenizer.ggml.merges; in a "
                       "tokenizer.json model.merges): its ids would not be the model's",
                       t->n);
    return add_merges(t, merges);
}

/* ---- encoding ---- */
static uint32_t bpe_pair(struct tok_work *w, const char *s, const struct tok_sym *a, const struct tok_sym *b,
                         int32_t *id) {
    (void)s;
    if (a->id < 0 || b->id < 0) return UINT32_MAX;
    const struct tok_pair *p = tok_pair_find(w->t, &w->t->merges, a->id, b->id);
    if (!p) return UINT32_MAX;
    *id = p->id;
    return p->rank;
}

static void put_symbols(struct tok_work *w, const char *s, const struct tok_sym *sym, size_t n) {
    bool was_unknown = false;
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) {
            tok_put(&w->out, sym[i].id);
            was_unknown = false;
            continue;
        }
        if (w->t->characters && w->t->unk >= 0 && w->t->byte_id[(unsigned char)s[sym[i].pos]] < 0) {
            if (!was_unknown || !w->t->fuse_unknown) tok_put(&w->out, w->t->unk);
            was_unknown = true;
            continue;
        }
        for (size_t k = 0; k < sym[i].len; k++) tok_put_byte(w, (unsigned char)s[sym[i].pos + k]);
    }
}

/* sym[] of s[n]: bytes, or characters where the family merges those. Returns how many. A byte that is left out is none of them,
 * so that what stands beside it joins, as in tokenizers. */
static size_t first_symbols(struct tok_work *w, const char *s, size_t n, struct tok_sym *sym) {
    const struct tok *t = w->t;
    bool drops = !t->characters && (t->drops_unknown || t->unk < 0);
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        size_t len = 1;
        if (t->characters && !(len = text_utf8_len(s + i, n - i))) len = 1;
        unsigned char c = (unsigned char)s[i];
        int32_t id = !t->characters ? t->byte_id[c] : c < 128 ? t->ascii[c] : tok_map_find(t, s + i, len);
        if (id < 0 && drops)
            tok_put_byte(w, c);
        else
            sym[k++] = (struct tok_sym){(uint32_t)i, (uint32_t)len, id};
        i += len;
    }
    return k;
}

static int32_t whole_token(const struct tok *t, const char *s, size_t n) {
    char mapped[512];
    if (t->characters) return tok_map_find(t, s, n);
    if (n > sizeof mapped / 2) return -1;
    return tok_map_find(t, mapped, tok_bpe_map(t, mapped, s, n));
}

static enum infer_status bpe_word(struct tok_work *w, const char *s, size_t n) {
    const struct tok *t = w->t;
    int32_t whole;
    if (t->ignore_merges && (whole = whole_token(t, s, n)) >= 0) {
        tok_put(&w->out, whole);
        return INFER_OK;
    }
    if (n <= TOK_MERGE_SHORT) {
        struct tok_sym sym[TOK_MERGE_SHORT];
        int k = (int)first_symbols(w, s, n, sym);
        put_symbols(w, s, sym, (size_t)tok_merge_short(w, s, sym, k, bpe_pair));
        return INFER_OK;
    }
    struct tok_sym *sym;
    TRY(mem_new(&sym, n * sizeof *sym, "a long word"));
    size_t k = first_symbols(w, s, n, sym);
    enum infer_status st = tok_merge_long(w, s, sym, &k, bpe_pair);
    if (st == INFER_OK) put_symbols(w, s, sym, k);
    mem_free(sym);
    return st;
}

static enum infer_status bpe_words(struct tok_work *w, const char *s, size_t n) {
    return tok_encode_words(w, s, n, bpe_word);
}

static enum infer_status encode_valid(struct tok_work *w, const char *s, size_t n) {
    tok_word_fn *word = w->t->escape_space ? bpe_words : bpe_word;
    char *normal = NULL;
    TRY(tok_reform(w->t, &normal, &n, s, n));
    enum infer_status st = tok_pre_split(w, normal ? normal : s, n, word);
    mem_free(normal);
    return st;
}

/* Valid UTF-8 goes through the pre-tokenizer; a byte that is not part of any is a piece of its own. */
static enum infer_status encode_text(struct tok_work *w, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t good = tok_utf8_span(s + i, n - i);
        if (good) {
            TRY(encode_valid(w, s + i, good));
            i += good;
        } else {
            tok_put_byte(w, (unsigned char)s[i++]);
        }
    }
    return INFER_OK;
}

enum infer_status tok_bpe_encode(struct tok_work *w, const char *s, size_t n, bool prefix) {
    char *copy;
    size_t len = n + 1;
    if (!w->t->escape_space && !prefix) return encode_text(w, s, n);
    if (w->t->escape_space) {
        TRY(tok_escape_space(&copy, &len, s, n, prefix));
    } else {
        TRY(mem_new(&copy, len, "a text with a space in front"));
        copy[0] = ' ';
        memcpy(copy + 1, s, n);
    }
    enum infer_status st = encode_text(w, copy, len);
    mem_free(copy);
    return st;
}

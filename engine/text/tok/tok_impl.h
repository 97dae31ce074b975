/* Inside of the tokenizer: what tok.c, tok_pre.c and the families (tok_bpe.c, tok_spm.c, ...) share. */
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "text/tok/tok.h"
#include "files/vocab_added.h"
#include "files/vocab_json.h"

enum tok_family { TOK_BPE, TOK_SPM, TOK_UNIGRAM, TOK_WORDPIECE };

/* ---- text -> id: open addressing, linear probing ---- */
struct tok_slot {
    uint32_t tag; /* high half of the hash */
    int32_t id;   /* -1: free */
};
struct tok_map {
    struct tok_slot *slot; /* slot[mask + 1], at most half full */
    uint32_t mask;
};

/* ---- (a, b) -> value: merges of BPE, edges of the trie of special tokens ---- */
struct tok_pair {
    int32_t a, b; /* a < 0: free */
    uint32_t rank;
    int32_t id;
};
struct tok_pairs {
    struct tok_pair *slot; /* slot[mask + 1], at most half full */
    uint32_t mask;
};

/* ---- pre-tokenizer ---- */
struct tok_pre_row {   /* one row of the table in tok_pre.c */
    const char *names; /* names in GGUF files, each ended by a space */
    const char *pattern[TOK_PRE_MAX];
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    bool group3;        /* what the first pattern matches is cut in groups of three characters from its end */
    /* the last n_mapped patterns read the byte alphabet, not the text, see struct tok_pre */
    uint8_t n_mapped;
    bool add_bos, add_eos; /* when the file does not say */
    bool nfc;              /* text is brought to normal form C first */
    bool escape_space; /* characters, not bytes: a space is written U+2581, unknown ones fall back to bytes */
};
/* Patterns behind tokenizers' ByteLevel see what it made of the text: a character for each byte of it, so that the bytes 0xBC to
 * 0xBE are the numbers that they are written as (Falcon cuts them out of the middle of a character). */
struct tok_pre {
    pcre2_code *code[TOK_PRE_MAX];
    uint8_t mode[TOK_PRE_MAX]; /* enum tok_split_mode */
    int n, n_mapped;           /* of the n, the last n_mapped read the byte alphabet */
};

/* The byte alphabet of GPT-2: one printable character for each byte. */
enum { TOK_ALPHABET_END = 0x144 }; /* 256 + the 68 bytes that are not printable */
struct tok_alphabet {
    int16_t byte_of[TOK_ALPHABET_END]; /* -1: no character of the alphabet */
    uint16_t char_of[256];
};

/* SentencePiece's table of replacements, see tok_norm.c. */
struct tok_charsmap {
    uint32_t *unit; /* unit[n_unit]: the trie */
    uint32_t n_unit;
    const char *text; /* text[n_text]: replacements, each ended by 0 */
    size_t n_text;
};

struct tok {
    struct arena arena;
    enum tok_family family;
    char *model_name, *pre_name;
    int32_t n;
    struct str *text;  /* text[n] as the file writes it; views into the file or the arena */
    struct str *piece; /* piece[n]: the bytes that a token stands for */
    uint8_t *attr;     /* attr[n]: enum tok_attr */
    uint8_t *flag;     /* flag[n]: enum tok_flag */
    uint32_t *order;   /* order[n]: merges of SentencePiece are done in rising order, UINT32_MAX never */
    struct tok_alphabet alphabet; /* BPE */
    int32_t byte_id[256];         /* token of a byte, -1 */
    int32_t ascii[128];           /* token of a character, -1: SentencePiece, and BPE of characters */
    int32_t bos, eos, unk;
    bool add_bos, add_eos;
    struct tok_ids around[2]; /* enum tok_side: what TOK_ADD puts in front and behind */
    bool space_prefix;        /* a space in front of the text and behind special tokens */
    bool words_apart;         /* no token holds a space behind another character */
    bool ignore_merges;       /* see tok_pre_row */
    bool characters;          /* BPE merges characters, not bytes */
    bool escape_space, group3;
    bool prefix_first, prefix_unless; /* see tokenizer.infer.prefix in vocab_json.h */
    bool fuse_unknown;
    /* a byte without a token is left out even where there is an unknown token, and what was beside it joins */
    bool drops_unknown;
    enum tok_form { TOK_AS_IS, TOK_NFC, TOK_NFD, TOK_NFKC, TOK_NFKD } form;
    bool collapse_space;           /* SentencePiece: runs of white space are one space, none at the ends */
    bool lowercase, strip_accents; /* BPE and WordPiece; WordPiece */
    size_t longest;                /* bytes of the longest token */
    float *score;                  /* Unigram: score[n] */
    uint64_t *lengths;             /* Unigram: lengths[65536], see tok_unigram.c */
    double unknown_score;
    struct tok_charsmap charsmap;
    uint64_t seed; /* of the hashes */
    struct tok_map map;
    struct tok_pairs merges;
    struct tok_pairs edges;  /* trie of special tokens: (node, byte) -> node */
    int32_t *leaf;           /* leaf[n_node]: id, -1 */
    bool special_first[256]; /* bytes with which a special token starts */
    struct tok_pre pre;
};

/* Ids on their way out: counts all, stores the first cap. */
struct tok_out {
    int32_t *ids;
    size_t cap, n;
};
static inline void tok_put(struct tok_out *o, int32_t id) {
    if (o->n < o->cap) o->ids[o->n] = id;
    o->n++;
}

/* One recently seen word with its ids; a slot is overwritten by the next word that falls on it. */
enum { TOK_CACHE_KEY = 25, TOK_CACHE_IDS = 8 };
struct tok_cached {
    uint32_t tag;
    uint8_t len, n_ids; /* len 0: free */
    char key[TOK_CACHE_KEY + 1];
    int32_t ids[TOK_CACHE_IDS];
};
static_assert(sizeof(struct tok_cached) == 64, "one cache line a word");

/* What one call of tok_encode works with. */
enum { TOK_JOINED = 1 << 14 };
struct tok_joined {
    int32_t left, right; /* left: id + 1, 0 when empty */
    int32_t id;          /* -1: no token */
    uint32_t order;
};
struct tok_work {
    const struct tok *t;
    struct tok_out out;
    pcre2_match_data *match; /* made when first needed */
    struct tok_cached *cache;
    uint32_t cache_mask;
    /* SentencePiece: joined[TOK_JOINED], what pairs of tokens become; NULL for short texts */
    struct tok_joined *joined;
};

/* ---- hashes ---- */
static inline uint64_t tok_mix(uint64_t a, uint64_t b) {
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}
static inline uint64_t tok_hash(const struct tok *t, const char *s, size_t n) {
    uint64_t h = t->seed ^ n, v = 0;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&v, s, 8);
        h = tok_mix(h ^ v, 0x9e3779b97f4a7c15u);
    }
    v = 0;
    if (n >= 4) {
        uint32_t lo, hi;
        memcpy(&lo, s, 4);
        memcpy(&hi, s + n - 4, 4);
        v = (uint64_t)hi << 32 | lo;
    } else if (n) {
        v = (uint64_t)(unsigned char)s[0] << 16 | (unsigned)(unsigned char)s[n / 2] << 8 |
            (unsigned char)s[n - 1];
    }
    return tok_mix(h ^ v, 0xd6e8feb86659fd93u);
}

/* memcmp(a, b, n) == 0 for texts of a few bytes, without a call. */
static inline bool tok_same(const char *a, const char *b, size_t n) {
    uint64_t x, y, p, q;
    if (n < 4) {
        for (size_t i = 0; i < n; i++)
            if (a[i] != b[i]) return false;
        return true;
    }
    if (n < 8) {
        uint32_t u[4];
        memcpy(&u[0], a, 4);
        memcpy(&u[1], b, 4);
        memcpy(&u[2], a + n - 4, 4);
        memcpy(&u[3], b + n - 4, 4);
        return ((u[0] ^ u[1]) | (u[2] ^ u[3])) == 0;
    }
    for (size_t i = 0; i + 8 < n; i += 8) {
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y) return false;
    }
    memcpy(&p, a + n - 8, 8);
    memcpy(&q, b + n - 8, 8);
    return p == q;
}

/* ---- tok.c ---- */
/* Map of t->text; of tokens with equal text the first counts. Makes the pieces too: pieces has room for all texts. */
enum infer_status tok_map_init(struct tok *t, char *pieces);
/* Sets piece[id]: a view of text[id] where they are the same, else written at d. Returns the bytes written. */
size_t tok_piece_make(struct tok *t, int32_t id, char *d);
/* Trie of the special tokens among them. */
enum infer_status tok_trie_init(struct tok *t);
int32_t tok_map_find(const struct tok *t, const char *s, size_t n);
int32_t tok_map_find_hashed(const struct tok *t, uint64_t hash, const char *s, size_t n);
/* Asks the memory for the slot of (a, b), which will be needed soon. */
void tok_pair_ask(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b);
const struct tok_pair *tok_pair_find(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b);
/* Room for n pairs. */
enum infer_status tok_pairs_init(struct tok *t, struct tok_pairs *p, size_t n);
/* Adds unless (a, b) is there; returns the pair. */
struct tok_pair *tok_pair_add(const struct tok *t, struct tok_pairs *p, int32_t a, int32_t b, uint32_t rank,
                              int32_t id);
/* Ids of one word through the cache, or from the family's encoder. */
typedef enum infer_status tok_word_fn(struct tok_work *w, const char *s, size_t n);
enum infer_status tok_word_cached(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode);
/* Puts the byte's token, else the unknown token, else nothing, which is said once: as tokenizers and llama.cpp do. */
void tok_put_byte(struct tok_work *w, unsigned char byte);

/* Length of the longest valid UTF-8 text at the start of s[n]. */
size_t tok_utf8_span(const char *s, size_t n);

/* s[n] in the tokenizer's normal form, lower-cased where it says so; *out NULL: it is already. Free with mem_free. */
enum infer_status tok_reform(const struct tok *t, char **out, size_t *n_out, const char *s, size_t n);

/* ---- tok_pre.c ---- */
/* Row for a name of tokenizer.ggml.pre; NULL when unknown. */
const struct tok_pre_row *tok_pre_find(const char *name, size_t n);
enum infer_status tok_pre_compile(struct tok_pre *pre, const char *const *pattern);
/* The same from the keys of vocab_json.h; the file may hold any pattern. */
enum infer_status tok_pre_compile_keys(struct tok_pre *pre, const struct meta *patterns,
                                       const struct meta *modes, size_t n_mapped);
void tok_pre_free(struct tok_pre *pre);
/* Cuts valid UTF-8 into pieces and calls encode for each. */
enum infer_status tok_pre_split(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode);

/* ---- families ---- */
/* Whether text can become a token of several symbols: then a file whose merges (or scores, SentencePiece) are gone has lost
 * something. A vocabulary of single bytes or characters beside special tokens needs none; WordPiece never does. */
bool tok_is_joined(const struct tok *t);
enum infer_status tok_bpe_init(struct tok *t, const struct meta *merges);
enum infer_status tok_bpe_encode(struct tok_work *w, const char *s, size_t n, bool prefix);
/* Bytes of a token's text written in the byte alphabet of GPT-2; dst has room for n. Returns the length. */
size_t tok_bpe_unmap(const struct tok *t, char *dst, const char *s, size_t n);
/* Bytes s[n] written in it; dst has room for 2 n. Returns the length. */
size_t tok_bpe_map(const struct tok *t, char *dst, const char *s, size_t n);
void tok_bpe_alphabet(struct tok_alphabet *a);
/* prefix: a space goes in front */
enum infer_status tok_spm_encode(struct tok_work *w, const char *s, size_t n, bool prefix);
enum infer_status tok_spm_init(struct tok *t, const struct meta *scores);
/* s[n] with each space as U+2581, one more in front when prefix; *out is the caller's to mem_free. */
/* The byte that token id, written <0xNN>, stands for goes to byte_id. */
enum infer_status tok_byte_token(struct tok *t, int32_t id);
enum infer_status tok_unigram_init(struct tok *t, const struct meta *scores);
enum infer_status tok_unigram_encode(struct tok_work *w, const char *s, size_t n, bool prefix);
enum infer_status tok_wordpiece_encode(struct tok_work *w, const char *s, size_t n);
/* charsmap of n bytes, checked; the trie is copied, the replacements stay where they are. */
enum infer_status tok_charsmap_init(struct tok *t, const unsigned char *data, size_t n);
/* s[n] as SentencePiece's normalizer leaves it; *out is the caller's to mem_free. */
enum infer_status tok_normalize(const struct tok *t, char **out, size_t *n_out, const char *s, size_t n,
                                bool prefix);
/* Sets words_apart: whether no token that text can become holds a space mark behind another character. Then
 * nothing joins across such a place, and words are encoded one by one, through the cache. */
void tok_find_words_apart(struct tok *t);
enum infer_status tok_encode_words(struct tok_work *w, const char *s, size_t n, tok_word_fn *encode);
enum infer_status tok_escape_space(char **out, size_t *n_out, const char *s, size_t n, bool prefix);

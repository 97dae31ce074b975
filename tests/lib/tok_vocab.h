/* Small vocabularies written as GGUF files, so that the tokenizer's tests mean something without outside data.
 * Layout: magic, version, counts, then (key, type, value) with all integers little endian. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files/tensorfile.h"

struct vocab_file {
    unsigned char *data; /* data[n] */
    size_t n, cap;
    uint64_t n_key;
};

static inline void vf_bytes(struct vocab_file *v, const void *p, size_t n) {
    if (v->n + n > v->cap) {
        v->cap = 2 * (v->n + n);
        v->data = realloc(v->data, v->cap);
        if (!v->data) abort();
    }
    memcpy(v->data + v->n, p, n);
    v->n += n;
}
static inline void vf_u32(struct vocab_file *v, uint32_t x) { vf_bytes(v, &x, 4); }
static inline void vf_u64(struct vocab_file *v, uint64_t x) { vf_bytes(v, &x, 8); }
static inline void vf_str(struct vocab_file *v, const char *s) {
    vf_u64(v, strlen(s));
    vf_bytes(v, s, strlen(s));
}
static inline void vf_begin(struct vocab_file *v) {
    *v = (struct vocab_file){0};
    vf_bytes(v, "GGUF", 4);
    vf_u32(v, 3);
    vf_u64(v, 0); /* tensors */
    vf_u64(v, 0); /* keys: filled in by vf_end */
}
static inline void vf_key(struct vocab_file *v, const char *key, uint32_t type) {
    vf_str(v, key);
    vf_u32(v, type);
    v->n_key++;
}
static inline void vf_key_str(struct vocab_file *v, const char *key, const char *value) {
    vf_key(v, key, META_STRING);
    vf_str(v, value);
}
static inline void vf_key_u32(struct vocab_file *v, const char *key, uint32_t value) {
    vf_key(v, key, META_U32);
    vf_u32(v, value);
}
static inline void vf_key_bool(struct vocab_file *v, const char *key, bool value) {
    unsigned char b = value;
    vf_key(v, key, META_BOOL);
    vf_bytes(v, &b, 1);
}
static inline void vf_key_array(struct vocab_file *v, const char *key, uint32_t elem, uint64_t n) {
    vf_key(v, key, META_ARRAY);
    vf_u32(v, elem);
    vf_u64(v, n);
}
/* Writes the file to path, a mkstemp template; frees v. */
static inline void vf_write(struct vocab_file *v, char *path) {
    int fd = mkstemp(path);
    if (fd < 0) abort();
    memcpy(v->data + 16, &v->n_key, 8);
    if (write(fd, v->data, v->n) != (ssize_t)v->n) abort();
    close(fd);
    free(v->data);
}
/* Opens it from a temporary file. */
static inline enum infer_status vf_open(struct vocab_file *v, struct tensorfile **out) {
    char path[] = "/tmp/infer-vocab-XXXXXX";
    vf_write(v, path);
    struct tensorfile_options o = {.vocab_only = true};
    enum infer_status s = tensorfile_open(out, path, &o);
    unlink(path);
    return s;
}

/* ---- vocabulary 1: byte-level BPE ---- */
/* The character that stands for a byte: printable ones for themselves, the others from U+0100 on. */
static inline void vf_alphabet(char dst[4], unsigned byte) {
    unsigned c = byte, extra = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        int self = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte) {
            c = self ? b : extra;
            break;
        }
        extra += !self;
    }
    memset(dst, 0, 4);
    if (c < 0x80) {
        dst[0] = (char)c;
    } else {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3f));
    }
}

enum {               /* ids behind the 256 bytes, whose id is the byte */
       BPE_AA = 256, /* a a */
       BPE_AAAA,     /* aa aa */
       BPE_HE,       /* h e */
       BPE_LL,       /* l l */
       BPE_HELL,     /* he ll */
       BPE_HELLO,    /* hell o */
       BPE__HELLO,   /* space hello */
       BPE_EURO2,    /* the first two bytes of U+20AC */
       BPE_ORPHAN,   /* "zq": a token that no merge makes */
       BPE_START,    /* <|im_start|> */
       BPE_END,      /* <|im_end|> */
       BPE_TOOL,     /* <tool>, user-defined */
       BPE_SPACES,   /* three spaces, user-defined */
       BPE_N
};
static inline void vf_bpe(struct vocab_file *v, const char *pre) {
    static const char *const more[] = {
        "aa", "aaaa",         "he",         "ll",     "hell", "hello", "\xc4\xa0hello", "\xc3\xa2\xc4\xa4",
        "zq", "<|im_start|>", "<|im_end|>", "<tool>", "   "};
    static const char *const merges[] = {
        "a a", "aa aa", "h e", "l l", "he ll", "hell o", "\xc4\xa0 hello", "\xc3\xa2 \xc4\xa4"};
    vf_begin(v);
    vf_key_str(v, "general.architecture", "llama");
    vf_key_str(v, "tokenizer.ggml.model", "gpt2");
    if (pre) vf_key_str(v, "tokenizer.ggml.pre", pre);
    vf_key_array(v, "tokenizer.ggml.tokens", META_STRING, BPE_N);
    for (unsigned b = 0; b < 256; b++) {
        char s[4];
        vf_alphabet(s, b);
        vf_str(v, s);
    }
    for (int i = 256; i < BPE_N; i++) vf_str(v, more[i - 256]);
    vf_key_array(v, "tokenizer.ggml.token_type", META_I32, BPE_N);
    for (int i = 0; i < BPE_N; i++) vf_u32(v, i < BPE_START ? 1 : i < BPE_TOOL ? 3 : 4);
    vf_key_array(v, "tokenizer.ggml.merges", META_STRING, sizeof merges / sizeof *merges);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) vf_str(v, merges[i]);
    vf_key_u32(v, "tokenizer.ggml.bos_token_id", BPE_START);
    vf_key_u32(v, "tokenizer.ggml.eos_token_id", BPE_END);
}

/* ---- vocabulary 2: SentencePiece with byte fallback ---- */
enum {                  /* <unk> <s> </s> are 0 1 2, byte b is 3 + b */
       SPM_SPACE = 259, /* U+2581 */
       SPM_A,
       SPM_B,
       SPM_AB,   /* score -1 */
       SPM_BA,   /* score -2 */
       SPM__A,   /* space a, score -3 */
       SPM_ABAB, /* score -4 */
       SPM_UE,   /* U+00FC */
       SPM_LT,   /* '<' */
       SPM_LTS,  /* "<s": with '>' it would spell the control token <s> */
       SPM_GT,
       SPM_S,
       SPM_SPACES, /* two spaces */
       SPM_N
};
static inline void vf_spm(struct vocab_file *v) {
    static const char *const more[] = {"\xe2\x96\x81",
                                       "a",
                                       "b",
                                       "ab",
                                       "ba",
                                       (("\xe2\x96\x81"
                                         "a")),
                                       "abab",
                                       "\xc3\xbc",
                                       "<",
                                       "<s",
                                       ">",
                                       "s",
                                       "\xe2\x96\x81\xe2\x96\x81"};
    static const float scores[] = {-9, -10, -11, -1, -2, -3, -4, -12, -13, -5, -14, -15, -6};
    vf_begin(v);
    vf_key_str(v, "general.architecture", "llama");
    vf_key_str(v, "tokenizer.ggml.model", "llama");
    vf_key_array(v, "tokenizer.ggml.tokens", META_STRING, SPM_N);
    vf_str(v, "<unk>");
    vf_str(v, "<s>");
    vf_str(v, "</s>");
    for (int b = 0; b < 256; b++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", b);
        vf_str(v, s);
    }
    for (int i = 259; i < SPM_N; i++) vf_str(v, more[i - 259]);
    vf_key_array(v, "tokenizer.ggml.scores", META_F32, SPM_N);
    for (int i = 0; i < SPM_N; i++) {
        float f = i < 259 ? 0 : scores[i - 259];
        vf_bytes(v, &f, 4);
    }
    vf_key_array(v, "tokenizer.ggml.token_type", META_I32, SPM_N);
    for (int i = 0; i < SPM_N; i++) vf_u32(v, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
}

/* ---- vocabulary 3: Unigram, with a table that writes 'A' as "a" and U+00BD as "1/2" ---- */
enum { /* <pad> </s> <unk> are 0 1 2 */
       UNI_SPACE = 3,
       UNI_A,
       UNI_B,
       UNI_AB,   /* -2 */
       UNI_ABC,  /* -9 */
       UNI_C,    /* -3: ab c (-5) beats abc (-9) */
       UNI__A,   /* space a */
       UNI_LONG, /* "aaaaaaaaaa" */
       UNI_N
};
/* units[n] of the double array and the replacements; see engine/text/tok/tok_norm.c for the layout */
static inline size_t vf_charsmap(unsigned char *dst) {
    static uint32_t unit[0x200];
    static const char text[] = "a\0"
                               "1/2";
    memset(unit, 0, sizeof unit);
    unit[0] = 0x100u << 10;
    unit[0x100 ^ 'A'] = 0x10u << 10 | 1u << 8 | 'A'; /* has a value, whose unit is 0x10 away */
    unit[0x100 ^ 'A' ^ 0x10] = 0x80000000u | 0;
    unit[0x100 ^ 0xc2] = 0x20u << 10 | 0xc2;
    unit[0x100 ^ 0xc2 ^ 0x20 ^ 0xbd] = 0x40u << 10 | 1u << 8 | 0xbd;
    unit[0x100 ^ 0xc2 ^ 0x20 ^ 0xbd ^ 0x40] = 0x80000000u | 2;
    uint32_t bytes = sizeof unit;
    memcpy(dst, &bytes, 4);
    memcpy(dst + 4, unit, bytes);
    memcpy(dst + 4 + bytes, text, sizeof text);
    return 4 + bytes + sizeof text;
}
static inline void vf_unigram(struct vocab_file *v, const unsigned char *charsmap, size_t n_charsmap) {
    static const char *const tokens[] = {"<pad>",
                                         "</s>",
                                         "<unk>",
                                         "\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "abc",
                                         "c",
                                         ("\xe2\x96\x81"
                                          "a"),
                                         "aaaaaaaaaa"};
    static const float scores[] = {0, 0, 0, -4, -5, -6, -2, -9, -3, -7, -8};
    vf_begin(v);
    vf_key_str(v, "general.architecture", "t5");
    vf_key_str(v, "tokenizer.ggml.model", "t5");
    vf_key_array(v, "tokenizer.ggml.tokens", META_STRING, UNI_N);
    for (int i = 0; i < UNI_N; i++) vf_str(v, tokens[i]);
    vf_key_array(v, "tokenizer.ggml.scores", META_F32, UNI_N);
    vf_bytes(v, scores, sizeof scores);
    vf_key_array(v, "tokenizer.ggml.token_type", META_I32, UNI_N);
    for (int i = 0; i < UNI_N; i++) vf_u32(v, i < 2 ? 3 : i == 2 ? 2 : 1);
    vf_key_bool(v, "tokenizer.ggml.add_space_prefix", true);
    vf_key_bool(v, "tokenizer.ggml.remove_extra_whitespaces", true);
    vf_key_array(v, "tokenizer.ggml.precompiled_charsmap", META_U8, n_charsmap);
    vf_bytes(v, charsmap, n_charsmap);
}

/* ---- vocabulary 4: WordPiece ---- */
enum { WP_UNK = 1, WP_CLS, WP_SEP, WP_HELLO, WP_HELL, WP_S, WP_COMMA, WP_E, WP_HAN, WP_N };
static inline void vf_wordpiece(struct vocab_file *v) {
    static const char *const tokens[] = {"[PAD]",
                                         "[UNK]",
                                         "[CLS]",
                                         "[SEP]",
                                         "\xe2\x96\x81hello",
                                         "\xe2\x96\x81hell",
                                         "s",
                                         "\xe2\x96\x81,",
                                         ("\xe2\x96\x81"
                                          "e"),
                                         "\xe2\x96\x81\xe4\xb8\xad"};
    vf_begin(v);
    vf_key_str(v, "general.architecture", "bert");
    vf_key_str(v, "tokenizer.ggml.model", "bert");
    vf_key_array(v, "tokenizer.ggml.tokens", META_STRING, WP_N);
    for (int i = 0; i < WP_N; i++) vf_str(v, tokens[i]);
    vf_key_array(v, "tokenizer.ggml.token_type", META_I32, WP_N);
    for (int i = 0; i < WP_N; i++) vf_u32(v, i < 4 ? 3 : 1);
    vf_key_u32(v, "tokenizer.ggml.unknown_token_id", WP_UNK);
    vf_key_u32(v, "tokenizer.ggml.cls_token_id", WP_CLS);
    vf_key_u32(v, "tokenizer.ggml.seperator_token_id", WP_SEP);
}

/* GGUF files from one line of text, for tests of readers: a case of a table is a line, odd or broken in one place.
 *
 *     head V T K        "GGUF", version V, T tensors, K keys
 *     key NAME TYPE     the key's name and the number of its type; its value follows
 *     u8 u16 u32 u64 N  a number, little endian (f32 and f64 take a decimal)
 *     str TEXT          length and bytes; "" is the empty string, \HH a byte in hexadecimal
 *     long N            a string of N letters x
 *     arr TYPE N        element type and count of an array; the elements follow
 *     tensor NAME TYPE OFFSET DIM ...   one entry; its dimensions end at the next word that is no number
 *     raw TEXT          bytes without a length
 *     pad N             zero bytes up to a multiple of N
 *     zero N            zero bytes
 *     ones N            bytes of value 1 */
#pragma once
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gguf_text {
    unsigned char *data; /* data[n], from malloc */
    size_t n, room;
    const char *at; /* what is left of the line */
    char word[512];
};

static inline void gguf_text_put(struct gguf_text *g, const void *p, size_t n) {
    if (g->n + n >= g->room) {
        g->room = 2 * (g->n + n) + 64;
        g->data = realloc(g->data, g->room);
        if (!g->data) abort();
    }
    if (n) memcpy(g->data + g->n, p, n);
    g->n += n;
}
static inline void gguf_text_int(struct gguf_text *g, uint64_t v, size_t bytes) {
    gguf_text_put(g, &v, bytes);
}
static inline void gguf_text_fill(struct gguf_text *g, int byte, size_t n) {
    char *p = malloc(n + 1);
    if (!p) abort();
    memset(p, byte, n);
    gguf_text_put(g, p, n);
    free(p);
}
/* The next word, "" at the end. */
static inline const char *gguf_text_word(struct gguf_text *g) {
    size_t n = 0;
    while (*g->at == ' ') g->at++;
    while (*g->at && *g->at != ' ' && n + 1 < sizeof g->word) g->word[n++] = *g->at++;
    g->word[n] = 0;
    return g->word;
}
static inline uint64_t gguf_text_number(struct gguf_text *g) {
    char *end;
    uint64_t v = strtoull(gguf_text_word(g), &end, 0);
    if (*end || !*g->word) {
        fprintf(stderr, "gguf_text: '%s' is no number\n", g->word);
        abort();
    }
    return v;
}
/* The word's bytes, with \HH decoded; length is written before them on demand. */
static inline void gguf_text_bytes(struct gguf_text *g, int with_length) {
    char out[512];
    size_t n = 0;
    const char *w = gguf_text_word(g);
    for (; strcmp(g->word, "\"\"") != 0 && *w; w++) {
        if (*w == '\\') {
            char hex[3] = {w[1], w[2], 0};
            out[n++] = (char)strtoul(hex, NULL, 16);
            w += 2;
        } else {
            out[n++] = *w;
        }
    }
    if (with_length) gguf_text_int(g, n, 8);
    gguf_text_put(g, out, n);
}
static inline void gguf_text_tensor(struct gguf_text *g) {
    uint64_t dim[16], type, offset;
    uint32_t n = 0;
    gguf_text_bytes(g, 1);
    type = gguf_text_number(g);
    offset = gguf_text_number(g);
    for (;;) {
        const char *rest = g->at;
        const char *w = gguf_text_word(g);
        if (!isdigit((unsigned char)*w) || n == 16) {
            g->at = rest;
            break;
        }
        dim[n++] = strtoull(w, NULL, 0);
    }
    gguf_text_int(g, n, 4);
    for (uint32_t i = 0; i < n; i++) gguf_text_int(g, dim[i], 8);
    gguf_text_int(g, type, 4);
    gguf_text_int(g, offset, 8);
}
static inline void gguf_text_float(struct gguf_text *g, int bytes) {
    double d = strtod(gguf_text_word(g), NULL);
    float f = (float)d;
    gguf_text_put(g, bytes == 4 ? (void *)&f : (void *)&d, (size_t)bytes);
}

/* The file that line describes; free g->data. */
static inline void gguf_text(struct gguf_text *g, const char *line) {
    *g = (struct gguf_text){.at = line};
    for (;;) {
        char w[sizeof g->word];
        snprintf(w, sizeof w, "%s", gguf_text_word(g));
        if (!*w) return;
        if (strcmp(w, "head") == 0) {
            gguf_text_put(g, "GGUF", 4);
            gguf_text_int(g, gguf_text_number(g), 4);
            gguf_text_int(g, gguf_text_number(g), 8);
            gguf_text_int(g, gguf_text_number(g), 8);
        } else if (strcmp(w, "key") == 0) {
            gguf_text_bytes(g, 1);
            gguf_text_int(g, gguf_text_number(g), 4);
        } else if (strcmp(w, "str") == 0) {
            gguf_text_bytes(g, 1);
        } else if (strcmp(w, "raw") == 0) {
            gguf_text_bytes(g, 0);
        } else if (strcmp(w, "arr") == 0) {
            gguf_text_int(g, gguf_text_number(g), 4);
            gguf_text_int(g, gguf_text_number(g), 8);
        } else if (strcmp(w, "tensor") == 0) {
            gguf_text_tensor(g);
        } else if (strcmp(w, "long") == 0) {
            uint64_t n = gguf_text_number(g);
            gguf_text_int(g, n, 8);
            gguf_text_fill(g, 'x', n);
        } else if (strcmp(w, "pad") == 0) {
            uint64_t n = gguf_text_number(g);
            gguf_text_fill(g, 0, (size_t)((n - g->n % n) % n));
        } else if (strcmp(w, "zero") == 0) {
            gguf_text_fill(g, 0, gguf_text_number(g));
        } else if (strcmp(w, "ones") == 0) {
            gguf_text_fill(g, 1, gguf_text_number(g));
        } else if (*w == 'u') {
            gguf_text_int(g, gguf_text_number(g), strtoul(w + 1, NULL, 10) / 8);
        } else if (*w == 'f') {
            gguf_text_float(g, atoi(w + 1) / 8);
        } else {
            fprintf(stderr, "gguf_text: unknown word '%s'\n", w);
            abort();
        }
    }
}

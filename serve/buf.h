/* Bytes that grow: where answers are written, as JSON and as server-sent events. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Once memory is short nothing more is added and failed stays set: whoever hands the bytes on looks at it once. */
struct buf {
    char *p; /* p[n], ended by 0 when n > 0 */
    size_t n, cap;
    bool failed;
};
void buf_free(struct buf *b);
void buf_add(struct buf *b, const char *p, size_t n);
/* Room for cap bytes with the 0 behind them. */
void buf_room(struct buf *b, size_t cap);
void buf_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes; what is no UTF-8 becomes U+FFFD. */
void buf_json(struct buf *b, const char *p, size_t n);
/* The same without quotes: for strings that come in parts. */
void buf_json_part(struct buf *b, const char *p, size_t n);
/* text as a JSON string, NULL as null. */
void buf_json_text(struct buf *b, const char *text);
/* The shortest JSON number that is read as this float; what is not finite becomes null. */
void buf_json_float(struct buf *b, float x);

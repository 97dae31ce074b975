#include "serve/buf.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

void buf_free(struct buf *b) {
    mem_free(b->p);
    *b = (struct buf){0};
}

void buf_room(struct buf *b, size_t cap) {
    if (b->failed || cap <= b->cap) return;
    char *p = mem_realloc(b->p, cap);
    b->failed = !p;
    if (!p) return;
    b->p = p;
    b->cap = cap;
}

static bool reserve(struct buf *b, size_t more) {
    size_t need;
    if (b->failed || !size_add(b->n, more, &need) || !size_add(need, 1, &need)) return !(b->failed = true);
    if (need > b->cap) buf_room(b, b->cap * 2 > need ? b->cap * 2 : need + 64);
    return !b->failed;
}

void buf_add(struct buf *b, const char *p, size_t n) {
    if (!reserve(b, n)) return;
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_text(struct buf *b, const char *text) { buf_add(b, text, strlen(text)); }

void buf_printf(struct buf *b, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) return;
    va_start(ap, format);
    vsnprintf(b->p + b->n, (size_t)n + 1, format, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void buf_json_part(struct buf *b, const char *p, size_t n) {
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)p[i];
        size_t len = c < 0x80 ? 1 : text_utf8_len(p + i, n - i);
        if (len && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += len;
            continue;
        }
        char escape[8] = "\\ufffd";
        const char *two = c == '"'    ? "\\\""
                          : c == '\\' ? "\\\\"
                          : c == '\n' ? "\\n"
                          : c == '\t' ? "\\t"
                          : c == '\r' ? "\\r"
                                      : NULL;
        if (two)
            memcpy(escape, two, 3);
        else if (len)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        buf_add(b, p + from, i - from);
        buf_text(b, escape);
        from = ++i;
    }
    buf_add(b, p + from, n - from);
}

void buf_json(struct buf *b, const char *p, size_t n) {
    buf_add(b, "\"", 1);
    buf_json_part(b, p, n);
    buf_add(b, "\"", 1);
}

void buf_json_text(struct buf *b, const char *text) {
    if (text)
        buf_json(b, text, strlen(text));
    else
        buf_text(b, "null");
}

void buf_json_float(struct buf *b, float x) {
    char text[32];
    int digits = 6;
    if (!isfinite(x)) {
        buf_text(b, "null");
        return;
    }
    do snprintf(text, sizeof text, "%.*g", digits, (double)x);
    while (strtof(text, NULL) != x && ++digits <= 9);
    buf_text(b, text);
}

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[512];

static void (*log_callback)(void *user, enum log_level level, const char *line);
static void *log_user;

size_t text_utf8_len(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    unsigned c = n ? s[0] : 0xff;
    if (c < 0x80) return 1;
    if (c < 0xc2 || n < 2 || (s[1] & 0xc0) != 0x80) return 0;
    if (c < 0xe0) return 2;
    if (n < 3 || (s[2] & 0xc0) != 0x80) return 0;
    if (c < 0xf0) { /* no overlong form, no surrogate */
        if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f)) return 0;
        return 3;
    }
    if (n < 4 || (s[3] & 0xc0) != 0x80 || c > 0xf4) return 0;
    if ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f)) return 0;
    return 4;
}

size_t text_valid_utf8(const char *s, size_t n) {
    size_t i = 0;
    for (size_t len; (len = text_utf8_len(s + i, n - i)) > 0;) i += len;
    return i;
}

void text_escape(char *dst, size_t dst_size, const char *src, size_t src_len) {
    const unsigned char *s = (const unsigned char *)src;
    size_t o = 0;
    if (dst_size == 0) return;
    for (size_t i = 0; i < src_len;) {
        size_t len = text_utf8_len(src + i, src_len - i);
        /* C0, DEL and C1 controls can drive a terminal */
        int control = len == 1 ? s[i] < 0x20 || s[i] == 0x7f : len == 2 && s[i] == 0xc2 && s[i + 1] < 0xa0;
        if (len == 0 || control) {
            if (o + 5 > dst_size) break;
            o += (size_t)snprintf(dst + o, dst_size - o, "\\x%02x", s[i]);
            i++;
            continue;
        }
        if (o + len + 1 > dst_size) break;
        memcpy(dst + o, s + i, len);
        o += len;
        i += len;
    }
    dst[o] = 0;
}

enum infer_status err_set(enum infer_status code, const char *format, ...) {
    char raw[sizeof message];
    va_list ap;
    va_start(ap, format);
    vsnprintf(raw, sizeof raw, format, ap);
    va_end(ap);
    text_escape(message, sizeof message, raw, strlen(raw));
    return code;
}

enum infer_status err_prefix(enum infer_status code, const char *format, ...) {
    char raw[2 * sizeof message];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(raw, sizeof message, format, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof message) n = sizeof message - 1;
    snprintf(raw + n, sizeof raw - (size_t)n, ": %s", message);
    text_escape(message, sizeof message, raw, strlen(raw));
    return code;
}

const char *err_message(void) { return message; }

void infer_bug_at(const char *file, int line, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "infer: internal error at %s:%d: ", file, line);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

void log_set(void (*callback)(void *user, enum log_level level, const char *line), void *user) {
    log_callback = callback;
    log_user = user;
}

void log_line(enum log_level level, const char *format, ...) {
    char raw[1024], line[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(raw, sizeof raw, format, ap);
    va_end(ap);
    text_escape(line, sizeof line, raw, strlen(raw));
    if (log_callback) {
        log_callback(log_user, level, line);
    } else if (level >= LOG_WARN) {
        fprintf(stderr, "infer: %s\n", line);
    }
}

#include "term.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

double term_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Length of the UTF-8 sequence at s[n], 0 when it is none (overlong, surrogate, above U+10FFFF, cut). */
static int utf8_length(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    int len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || (size_t)len > n) return 0;
    for (int i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
    if (s[0] == 0xed && s[1] > 0x9f) return 0;
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return len;
}

size_t term_valid_utf8(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    for (int len; i < n && (len = utf8_length(s + i, n - i)) > 0;) i += (size_t)len;
    return i;
}

void term_write_safe(FILE *out, const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        int len = utf8_length(s + i, n - i);
        bool control = len == 1 && ((s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7f);
        if (len == 2 && s[i] == 0xc2 && s[i + 1] < 0xa0) control = true; /* C1: U+0080..U+009F */
        if (len == 0 || control) {
            for (int k = 0; k < (len ? len : 1); k++) fprintf(out, "\\x%02x", s[i + (size_t)k]);
        } else {
            fwrite(s + i, 1, (size_t)len, out);
        }
        i += len ? (size_t)len : 1;
    }
}

void progress_start(struct progress *p, bool quiet) {
    *p = (struct progress){.on = !quiet && isatty(STDERR_FILENO)};
}

static void amount(char *buf, size_t n, double x, const char *unit) {
    if (strcmp(unit, "B") == 0)
        snprintf(buf, n, x >= 1e9 ? "%.2f GB" : "%.0f MB", x >= 1e9 ? x * 1e-9 : x * 1e-6);
    else
        snprintf(buf, n, "%.0f", x);
}

void progress_show(struct progress *p, const char *what, double done, double total, const char *unit) {
    if (!p->on) return;
    double now = term_seconds();
    if (!p->what || strcmp(p->what, what) != 0) {
        p->what = what;
        p->start = p->last = now;
        return;
    }
    bool end = done >= total;
    if (now - p->start < 0.3 || (!end && p->shown && now - p->last < 0.1)) return;
    char have[32], all[32], speed[32];
    double rate = done / (now - p->start), left = rate > 0 ? (total - done) / rate : 0;
    amount(have, sizeof have, done, unit);
    amount(all, sizeof all, total, unit);
    amount(speed, sizeof speed, rate, unit);
    bool bytes = strcmp(unit, "B") == 0;
    fprintf(stderr, "\r%s %s of %s%s%s, %s%s%s/s, %.0f s left\033[K", what, have, all, bytes ? "" : " ",
            bytes ? "" : unit, speed, bytes ? "" : " ", bytes ? "" : unit, left);
    fflush(stderr);
    p->last = now;
    p->shown = true;
}

void progress_clear(struct progress *p) {
    if (p->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    p->shown = false;
    p->what = NULL;
}

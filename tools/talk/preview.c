#include "tools/talk/preview.h"
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/host.h"
#include "vision/image_decode.h"
#include "vision/image_resize.h"

/* ---- asking ---- */

enum { ANSWER = 256 };
static const double PATIENCE = 0.3; /* seconds */

/* What the terminal says until it has said what it is ("\033[?62;4c"), 0 behind it; false: it has not. */
static bool listen(int fd, char answer[ANSWER]) {
    const double end = host_seconds() + PATIENCE;
    size_t n = 0;
    for (double left; n < ANSWER - 1 && (left = end - host_seconds()) > 0;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)(left * 1000) + 1) <= 0) continue;
        const ssize_t got = read(fd, answer + n, ANSWER - 1 - n);
        if (got <= 0) return false;
        n += (size_t)got;
        answer[n] = 0;
        const char *is = strstr(answer, "\033[?");
        if (is && strchr(is, 'c')) return true;
    }
    return false;
}

/* Attribute 4 of "\033[?62;4;22c", whose first number is a class. */
static bool has_sixel(const char *answer) {
    const char *at = strstr(answer, "\033[?");
    while (at && (at = strpbrk(at + 1, ";c")) && *at == ';')
        if (strtol(at + 1, NULL, 10) == 4) return true;
    return false;
}

/* A picture of one pixel that is not to be shown, then the question what it is, which all terminals answer: in this order. */
static enum preview ask(void) {
    static const char question[] = "\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\\033[c";
    struct termios was, raw;
    char answer[ANSWER] = "";
    int typed = 0;
    enum preview kind = PREVIEW_NONE;
    const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return PREVIEW_NONE;
    if (!tcgetattr(fd, &was)) {
        raw = was;
        raw.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON);
        raw.c_cc[VMIN] = 0, raw.c_cc[VTIME] = 0;
        tcsetattr(fd, TCSANOW, &raw);
        if (!ioctl(fd, FIONREAD, &typed) && !typed &&
            write(fd, question, sizeof question - 1) == (ssize_t)sizeof question - 1 && listen(fd, answer))
            kind = strstr(answer, "\033_Gi=31;OK") ? PREVIEW_KITTY
                   : has_sixel(answer)             ? PREVIEW_SIXEL
                                                   : PREVIEW_NONE;
        tcsetattr(fd, TCSANOW, &was);
    }
    close(fd);
    return kind;
}

enum preview preview_kind(const char *word) {
    const char *term = getenv("TERM");
    if (!isatty(STDERR_FILENO) || (term && strcmp(term, "dumb") == 0)) return PREVIEW_NONE;
    if (strcmp(word, "kitty") == 0) return PREVIEW_KITTY;
    if (strcmp(word, "sixel") == 0) return PREVIEW_SIXEL;
    return strcmp(word, "auto") == 0 ? ask() : PREVIEW_NONE;
}

/* ---- kitty: RGB as base64, in parts ---- */

static void put_kitty(const struct image *p, FILE *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { PART = 3072 }; /* bytes: 4,096 letters */
    const size_t n = (size_t)p->width * (size_t)p->height * 3;
    for (size_t at = 0; at < n; at += PART) {
        const size_t end = n - at > PART ? at + PART : n;
        if (at)
            fprintf(out, "\033_Gm=%d;", end < n);
        else
            fprintf(out, "\033_Ga=T,f=24,s=%d,v=%d,q=2,m=%d;", p->width, p->height, end < n);
        for (size_t i = at; i < end; i += 3) { /* a pixel: four letters */
            const unsigned v = (unsigned)p->rgb[i] << 16 | (unsigned)p->rgb[i + 1] << 8 | p->rgb[i + 2];
            for (int k = 18; k >= 0; k -= 6) fputc(digits[v >> k & 63], out);
        }
        fputs("\033\\", out);
    }
}

/* ---- sixels: six lines at a time, colour by colour, in 216 colours with the rest spread over 4 x 4 pixels ---- */

enum { LEVELS = 6, COLOURS = LEVELS * LEVELS * LEVELS };

static int colour_at(const struct image *p, int x, int y) {
    static const int spread[4][4] = {{0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}};
    const unsigned char *c = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;
    int all = 0;
    for (int i = 0; i < 3; i++) { /* so many 255ths of five steps, and what is left of one by the place */
        const int v = c[i] * (LEVELS - 1);
        all = all * LEVELS + v / 255 + (v % 255 * 16 > (2 * spread[y & 3][x & 3] + 1) * 255 / 2);
    }
    return all;
}

/* The same letter several times. */
static void put_run(FILE *out, int letter, int n) {
    if (n > 3) fprintf(out, "!%d%c", n, letter);
    for (; n > 0 && n <= 3; n--) fputc(letter, out);
}

static void put_band(const struct image *p, int y0, const uint8_t *band, FILE *out) {
    bool used[COLOURS] = {false}, first = true;
    const int lines = p->height - y0 < 6 ? p->height - y0 : 6, w = p->width;
    for (int i = 0; i < lines * w; i++) used[band[i]] = true;
    for (int c = 0; c < COLOURS; c++) {
        int before = 0, n = 0;
        if (!used[c]) continue;
        fprintf(out, "%s#%d", first ? "" : "$", c);
        first = false;
        for (int x = 0; x < w; x++) {
            int bits = 0;
            for (int y = 0; y < lines; y++) bits |= (band[y * w + x] == c) << y;
            if (n && bits != before) put_run(out, '?' + before, n), n = 0;
            before = bits, n++;
        }
        if (before) put_run(out, '?' + before, n);
    }
    fputc('-', out);
}

static void put_sixel(const struct image *p, FILE *out) {
    uint8_t *band = mem_alloc((size_t)p->width * 6);
    if (!band) return;
    fprintf(out, "\033Pq\"1;1;%d;%d", p->width, p->height);
    for (int c = 0; c < COLOURS; c++)
        fprintf(out, "#%d;2;%d;%d;%d", c, c / LEVELS / LEVELS * 20, c / LEVELS % LEVELS * 20,
                c % LEVELS * 20);
    for (int y0 = 0; y0 < p->height; y0 += 6) {
        for (int i = 0; i < 6 * p->width && y0 + i / p->width < p->height; i++)
            band[i] = (uint8_t)colour_at(p, i % p->width, y0 + i / p->width);
        put_band(p, y0, band, out);
    }
    fputs("\033\\", out);
    mem_free(band);
}

/* ---- showing ---- */

/* At most half of the window's width and a third of its height where it says its pixels, and 800 x 600. */
static void bounds(int *width, int *height) {
    struct winsize s;
    *width = 320, *height = 200;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &s) || !s.ws_xpixel || !s.ws_ypixel) return;
    *width = s.ws_xpixel / 2 < 800 ? s.ws_xpixel / 2 + 1 : 800;
    *height = s.ws_ypixel / 3 < 600 ? s.ws_ypixel / 3 + 1 : 600;
}

static enum infer_status make_small(struct image *p) {
    struct image small;
    int w, h;
    bounds(&w, &h);
    if (p->width <= w && p->height <= h) return INFER_OK;
    if ((int64_t)p->width * h > (int64_t)p->height * w)
        h = (int)((int64_t)p->height * w / p->width);
    else
        w = (int)((int64_t)p->width * h / p->height);
    TRY(image_resize(p, w < 1 ? 1 : w, h < 1 ? 1 : h, IMAGE_BILINEAR, &small));
    image_free(p);
    *p = small;
    return INFER_OK;
}

void preview_show(enum preview kind, const void *bytes, size_t n) {
    struct image p = {0};
    if (kind == PREVIEW_NONE || image_decode(&p, bytes, n, &IMAGE_LIMITS)) return;
    if (!make_small(&p)) {
        (kind == PREVIEW_KITTY ? put_kitty : put_sixel)(&p, stderr);
        fputc('\n', stderr);
        fflush(stderr);
    }
    image_free(&p);
}

#include "tools/term.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>
#include "base/status.h"
#include "base/host.h"

static struct termios shown; /* how the terminal was before the echo went off */
static volatile sig_atomic_t hidden;

/* Whether the terminal puts marks around a pasted text. */
static void mark_pastes(bool on) {
    static const char marks[] = "\033[?2004h", none[] = "\033[?2004l";
    if (isatty(STDERR_FILENO) && write(STDERR_FILENO, on ? marks : none, sizeof marks - 1) < 0)
        return; /* then it does not */
}

void term_echo(bool on) {
    struct termios t;
    if (on && hidden) {
        tcsetattr(STDIN_FILENO, TCSANOW, &shown);
        mark_pastes(false);
        hidden = 0;
    }
    if (on || hidden || tcgetattr(STDIN_FILENO, &shown)) return;
    t = shown;
    t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    hidden = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
    mark_pastes(true);
}

void term_write_safe(FILE *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        size_t len = text_utf8_len(text + i, n - i), step = len ? len : 1;
        bool control = len == 1 && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f);
        if (len == 2 && c == 0xc2 && (unsigned char)text[i + 1] < 0xa0)
            control = true; /* C1: U+0080..U+009F */
        if (len == 0 || control) {
            for (size_t k = 0; k < step; k++) fprintf(out, "\\x%02x", (unsigned char)text[i + k]);
        } else {
            fwrite(text + i, 1, len, out);
        }
        i += step;
    }
}

bool term_colour(FILE *out) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
}

/* The window may have another width than before. */
static void measure(struct term_wrap *w) {
    struct winsize size;
    if (ioctl(fileno(w->out), TIOCGWINSZ, &size) != 0 || size.ws_col == w->width) return;
    w->width = size.ws_col >= 20 ? size.ws_col : 0;
    if (w->width) w->column %= w->width;
}

void term_wrap_start(struct term_wrap *w, FILE *out) {
    *w = (struct term_wrap){.out = out};
    measure(w);
}

void term_wrap_flush(struct term_wrap *w) {
    if (!w->joined && w->column && w->width && w->column + w->word_width > w->width) {
        fputc('\n', w->out);
        w->column = 0;
    }
    term_write_safe(w->out, w->word, w->n);
    w->column += w->word_width;
    if (w->width && w->column > w->width) w->column %= w->width;
    w->n = 0;
    w->word_width = 0;
}

/* Columns of one UTF-8 sequence. */
static int columns(const char *s, size_t len) {
    utf8proc_int32_t c;
    if (utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)len, &c) < 0) return 4; /* \xHH */
    int n = utf8proc_charwidth(c);
    return c < 0x20 ? 4 : n;
}

int term_width(const char *text, size_t n) {
    int width = 0;
    for (size_t i = 0, len; i < n; i += len) {
        len = text_utf8_len(text + i, n - i);
        len = len ? len : 1;
        width += columns(text + i, len);
    }
    return width;
}

void term_wrap_write(struct term_wrap *w, const char *text, size_t n) {
    measure(w);
    for (size_t i = 0; i < n;) {
        size_t len = text_utf8_len(text + i, n - i), step = len ? len : 1;
        if (text[i] == '\n' || text[i] == ' ' || text[i] == '\t') {
            term_wrap_flush(w);
            w->joined = false;
            bool fits = !w->width || w->column + 1 < w->width;
            if (text[i] == '\n')
                w->column = 0;
            else
                w->column += text[i] == ' ' ? 1 : 8 - w->column % 8;
            if (text[i] == '\n' || fits) fputc(text[i], w->out);
        } else {
            int width = columns(text + i, step);
            bool wide = width == 2; /* scripts without spaces break anywhere */
            bool long_word = w->n + step > sizeof w->word || w->word_width + width >= w->width;
            if (wide || (long_word && w->n)) {
                term_wrap_flush(w);
                w->joined = !wide;
            }
            memcpy(w->word + w->n, text + i, step);
            w->n += step;
            w->word_width += width;
        }
        i += step;
    }
}

void term_line(FILE *out, const char *text) {
    char *lines = NULL; /* in one write: other programs say things, too */
    size_t n;
    struct term_wrap w;
    term_wrap_start(&w, out);
    w.out = open_memstream(&lines, &n);
    if (w.out) {
        term_wrap_write(&w, text, strlen(text));
        term_wrap_flush(&w);
        fclose(w.out);
    }
    fprintf(out, "%s\n", lines ? lines : text);
    free(lines); /* open_memstream's own */
}

int term_columns(FILE *out) {
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
}

void term_hang(FILE *out, const char *text, int indent, int width) {
    int column = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column && column + 1 + n > width - indent) {
            fprintf(out, "\n%*s", indent, "");
            column = 0;
        } else if (column) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", n, text);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
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
    double now = host_seconds();
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

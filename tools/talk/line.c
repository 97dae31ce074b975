#include "tools/talk/line.h"
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/interrupt.h"
#include "tools/term.h"
#include "tools/tool.h"

/* Inside a pasted text, newline and tab stand in the edit buffer as these symbols. */
enum { PASTED_NEWLINE = 0x2424, PASTED_TAB = 0x2409 };

struct line {
    bool terminal, colour, more; /* more: the next line continues an input */
    EditLine *edit;
    History *history;
    char history_path[4096];
    int (*complete)(void *user, const char *before, size_t *from, char **out, int cap);
    void *user;
    unsigned char queue[16]; /* bytes read ahead of a character */
    int n_queue;
    bool pasting;
    char *preset; /* preset[at_preset ..]: what stands in the line before the user types */
    size_t at_preset;
    char *text; /* text[n]: the input so far */
    size_t n, cap;
    char piped[4096]; /* piped[at_piped .. n_piped): read from what is no terminal, and not given yet */
    size_t at_piped, n_piped;
};

static struct line *current; /* for libedit's callbacks */

/* ---- characters ---- */

/* ---- Ctrl-Z, and windows that change ---- */
static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l"; /* marks around what is pasted */
static volatile sig_atomic_t stopped; /* the terminal has had other settings since the line was shown */
static volatile sig_atomic_t resized; /* it is as wide as it was no more */

/* Stops as SIGTSTP does by default, but leaves no marks to the shell; goes on here after fg. */
static void on_stop(int number) {
    struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
    int e = errno;
    ssize_t written = write(STDERR_FILENO, paste_off, sizeof paste_off - 1);
    (void)written;
    sigaction(number, &usual, &ours);
    raise(number);
    sigaction(number, &ours, NULL);
    stopped = 1;
    errno = e;
}

static void on_resize(int number) {
    (void)number;
    resized = 1;
}

/* While a line is edited only: elsewhere nothing need be put right. */
static void catch_signals(bool on) {
    struct sigaction stop = {.sa_handler = on ? on_stop : SIG_DFL, .sa_flags = SA_NODEFER}, before,
                     resize = {.sa_handler = on ? on_resize : SIG_DFL};
    sigaction(SIGTSTP, NULL, &before);
    if (before.sa_handler != SIG_IGN) sigaction(SIGTSTP, &stop, NULL); /* without job control it is ignored */
    sigaction(SIGWINCH, &resize, NULL);
}

/* The terminal as the editor wants it, and the line again. */
static void show_again(struct line *l) {
    if (stopped) {
        el_set(l->edit, EL_PREP_TERM, 0);
        el_set(l->edit, EL_PREP_TERM, 1);
        fputs(paste_on, stderr);
    }
    fputs("\r\033[J", stderr);
    fflush(stderr);
    stopped = resized = 0;
    el_resize(l->edit);
    el_set(l->edit, EL_REFRESH);
}

/* One byte of the preset or of stdin; -1 at the end or when a signal came. */
static int next_byte(struct line *l) {
    if (l->preset && l->preset[l->at_preset]) return (unsigned char)l->preset[l->at_preset++];
    if (l->n_queue) {
        int c = l->queue[0];
        memmove(l->queue, l->queue + 1, (size_t)--l->n_queue);
        return c;
    }
    unsigned char c;
    ssize_t n;
    do {
        n = interrupt_wait_for(STDIN_FILENO) ? read(STDIN_FILENO, &c, 1) : -1;
        if (n < 0 && errno == EINTR && (stopped || resized)) show_again(l), errno = EINTR;
    } while (n < 0 && errno == EINTR && !interrupted());
    return n == 1 ? c : -1;
}

/* True, and consumed, when the bytes that follow at once are those of s; else they are kept for later. */
static bool follows(struct line *l, const char *s) {
    int len = (int)strlen(s);
    while (l->n_queue < len) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        unsigned char c;
        if (poll(&p, 1, 20) <= 0 || read(STDIN_FILENO, &c, 1) != 1) return false;
        l->queue[l->n_queue++] = c;
        if (c != (unsigned char)s[l->n_queue - 1]) return false;
    }
    if (memcmp(l->queue, s, (size_t)len) != 0) return false;
    l->n_queue -= len;
    memmove(l->queue, l->queue + len, (size_t)l->n_queue);
    return true;
}

/* The rest of a UTF-8 character that begins with c; U+FFFD when it is broken, and then the byte that breaks it comes next. */
static wchar_t utf8_rest(struct line *l, int c) {
    int more = c > 0xf4 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc2 ? 1 : 0;
    if (c < 0x80) return (wchar_t)c;
    char s[4] = {(char)c};
    for (int i = 1; i <= more; i++) {
        int next = next_byte(l);
        s[i] = (char)next;
        if (next >= 0 && (next & 0xc0) == 0x80) continue;
        if (next >= 0 && l->n_queue < (int)sizeof l->queue) {
            memmove(l->queue + 1, l->queue, (size_t)l->n_queue++);
            l->queue[0] = (unsigned char)next;
        }
        return 0xfffd;
    }
    if (text_utf8_len(s, (size_t)more + 1) != (size_t)more + 1) return 0xfffd;
    wchar_t w = c & (0x3f >> more);
    for (int i = 1; i <= more; i++) w = w << 6 | (s[i] & 0x3f);
    return w;
}

/* libedit's source of characters: knows the marks that terminals put around a pasted text. */
static int get_character(EditLine *edit, wchar_t *out) {
    (void)edit;
    struct line *l = current;
    for (;;) {
        bool given = l->pasting || (l->preset && l->preset[l->at_preset]);
        int c = next_byte(l);
        if (c < 0) return -1;
        if (c == 0x1b && follows(l, l->pasting ? "[201~" : "[200~")) {
            l->pasting = !l->pasting;
            continue;
        }
        if (given && (c == '\r' || c == '\n')) {
            *out = PASTED_NEWLINE;
        } else if (given && c == '\t') {
            *out = PASTED_TAB;
        } else if (given && (c < 0x20 || c == 0x7f)) {
            continue; /* nothing that is pasted or preset steers the editor */
        } else {
            *out = utf8_rest(l, c);
        }
        return 1;
    }
}

/* ---- prompt and completion ---- */

static char *prompt(EditLine *edit) {
    (void)edit;
    static char plain[] = "> ", plain_more[] = ". ", colour[] = "\1\033[1;32m\1>\1\033[0m\1 ",
                colour_more[] = "\1\033[1;32m\1.\1\033[0m\1 "; /* libedit loses a colour at the end */
    if (current->colour) return current->more ? colour_more : colour;
    return current->more ? plain_more : plain;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Candidates in columns, sorted, below the line that is being edited. */
static void list(FILE *out, char **found, int n) {
    int wide = 0, columns = term_columns(out);
    for (int i = 0; i < n; i++) {
        int len = term_width(found[i], strlen(found[i])) + 2;
        wide = len > wide ? len : wide;
    }
    int across = columns / wide > 0 ? columns / wide : 1, down = (n + across - 1) / across;
    fputc('\n', out);
    for (int row = 0; row < down; row++) {
        for (int i = row; i < n; i += down) {
            term_write_safe(out, found[i], strlen(found[i]));
            if (i + down < n) fprintf(out, "%*s", wide - term_width(found[i], strlen(found[i])), "");
        }
        fputc('\n', out);
    }
}

/* Tab: one candidate is put in, several are listed, their common beginning is put in. */
static unsigned char complete(EditLine *edit, wint_t key) {
    (void)key;
    enum { MAX = 256 };
    const LineInfo *info = el_line(edit);
    char *found[MAX], before[4096];
    int len = (int)(info->cursor - info->buffer);
    if (!current->complete || len >= (int)sizeof before) return CC_ERROR;
    memcpy(before, info->buffer, (size_t)len);
    before[len] = 0;
    size_t from = 0;
    int n = current->complete(current->user, before, &from, found, MAX);
    if (n == 0) return CC_ERROR;
    qsort(found, (size_t)n, sizeof *found, by_name);
    size_t have = (size_t)len - from, same = strlen(found[0]);
    for (int i = 1; i < n; i++) {
        size_t k = 0;
        while (k < same && found[i][k] == found[0][k]) k++;
        same = k;
    }
    unsigned char result = CC_ERROR;
    if (same > have) {
        char *more = strndup(found[0] + have, same - have);
        if (more && el_insertstr(edit, more) == 0) result = CC_REFRESH;
        free(more);
    } else if (n > 1) {
        list(isatty(STDOUT_FILENO) ? stdout : stderr, found, n);
        result = CC_REDISPLAY;
    }
    for (int i = 0; i < n; i++) free(found[i]);
    return result;
}

/* ---- history ---- */

/* ${XDG_STATE_HOME:-~/.local/state}/infer/chat_history, its folders made; "" when there is no home. */
static void find_history(struct line *l) {
    const char *state = getenv("XDG_STATE_HOME"), *home = tool_home();
    bool xdg = state && *state;
    if (!xdg && !*home) return;
    int n = snprintf(l->history_path, sizeof l->history_path, "%s%s/infer/chat_history", xdg ? state : home,
                     xdg ? "" : "/.local/state");
    if (n < 0 || (size_t)n >= sizeof l->history_path) {
        l->history_path[0] = 0;
        return;
    }
    for (char *p = l->history_path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(l->history_path,
              0700); /* one that cannot be made shows when the history is saved: not at all */
        *p = '/';
    }
}

/* Into the history, newlines and tabs as the symbols that a pasted text shows. */
static void remember(struct line *l) {
    HistEvent event;
    size_t n = 0;
    char *text = mem_alloc(3 * l->n + 1);
    if (!text) return;
    for (const char *s = l->text; *s; s++) {
        bool symbol = *s == '\n' || *s == '\t';
        memcpy(text + n, *s == '\n' ? "\xe2\x90\xa4" : *s == '\t' ? "\xe2\x90\x89" : s, symbol ? 3 : 1);
        n += symbol ? 3 : 1;
    }
    text[n] = 0;
    history(l->history, &event, H_ENTER, text);
    mem_free(text);
    if (!l->history_path[0]) return;
    mode_t old = umask(077);
    history(l->history, &event, H_SAVE, l->history_path);
    umask(old);
}

/* ---- opening ---- */

static void bind_keys(EditLine *edit) {
    el_set(edit, EL_EDITOR, "emacs");
    el_wset(edit, EL_ADDFN, L"infer-complete", L"complete commands and paths",
            complete); /* el_set loses its copies */
    el_set(edit, EL_BIND, "^I", "infer-complete", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(edit, EL_BIND, "^W", "ed-delete-prev-word", NULL);
    el_set(edit, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
    el_set(edit, EL_BIND, "\\e[1;5C", "em-next-word", NULL);
    el_set(edit, EL_BIND, "\\e[1;5D", "ed-prev-word", NULL);
    el_source(edit, NULL); /* ~/.editrc */
}

static enum infer_status open_editor(struct line *l) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    l->edit = el_init("infer", stdin, isatty(STDOUT_FILENO) ? stdout : stderr, stderr);
    l->history = history_init();
    if (!l->edit || !l->history) return err_set(INFER_E_MEMORY, "line editor");
    history(l->history, &event, H_SETSIZE, 1000);
    history(l->history, &event, H_SETUNIQUE, 1);
    find_history(l);
    if (l->history_path[0]) history(l->history, &event, H_LOAD, l->history_path);
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_PROMPT_ESC, prompt, '\1');
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_GETCFN, get_character);
    bind_keys(l->edit);
    return INFER_OK;
}

enum infer_status line_open(struct line **out, bool terminal, bool colour,
                            int (*complete_word)(void *user, const char *before, size_t *from, char **out,
                                                 int cap),
                            void *user) {
    struct line *l;
    TRY(mem_new(&l, sizeof *l, "line editor"));
    l->terminal = terminal;
    l->colour = colour;
    l->complete = complete_word;
    l->user = user;
    current = l;
    enum infer_status st = terminal ? open_editor(l) : INFER_OK;
    if (st) {
        line_close(l);
        return st;
    }
    *out = l;
    return INFER_OK;
}

void line_close(struct line *l) {
    if (!l) return;
    term_echo(true);
    if (l->edit) el_end(l->edit);
    if (l->history) history_end(l->history);
    mem_free(l->text);
    mem_free(l->preset);
    mem_free(l);
    current = NULL;
}

/* ---- reading ---- */

static bool append(struct line *l, const char *s, size_t n) {
    if (l->n + n + 1 > l->cap) {
        size_t cap = 2 * (l->n + n + 1) + 256;
        char *p = mem_realloc(l->text, cap);
        if (!p) return false;
        l->text = p;
        l->cap = cap;
    }
    memcpy(l->text + l->n, s, n);
    l->text[l->n += n] = 0;
    return true;
}

/* Appends one edited line; the symbols that stood for a pasted newline or tab become those again. */
static bool append_edited(struct line *l, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        bool newline = n - i >= 3 && memcmp(s + i, "\xe2\x90\xa4", 3) == 0;
        bool tab = n - i >= 3 && memcmp(s + i, "\xe2\x90\x89", 3) == 0;
        if (!append(l, newline ? "\n" : tab ? "\t" : s + i, 1)) return false;
        i += newline || tab ? 3 : 1;
    }
    return true;
}

/* The same of what is no terminal; the last line may lack its newline. */
static enum line_result read_piped(struct line *l) {
    bool begun = false;
    for (;;) {
        if (l->at_piped == l->n_piped) {
            ssize_t n = interrupt_wait_for(STDIN_FILENO) ? read(STDIN_FILENO, l->piped, sizeof l->piped) : -1;
            if (n < 0 && errno == EINTR && !interrupted()) continue;
            if (n <= 0) return n < 0 && interrupted() ? LINE_INTERRUPT : begun ? LINE_TEXT : LINE_END;
            l->at_piped = 0, l->n_piped = (size_t)n;
        }
        const char *from = l->piped + l->at_piped;
        const char *newline = memchr(from, '\n', l->n_piped - l->at_piped);
        size_t n = newline ? (size_t)(newline - from) : l->n_piped - l->at_piped;
        l->at_piped += n + (newline != NULL);
        if (!append(l, from, n)) return LINE_END;
        if (newline) return LINE_TEXT;
        begun = true;
    }
}

/* One line behind l->text, without its newline. */
static enum line_result read_one(struct line *l) {
    if (!l->terminal) return read_piped(l);
    int n = 0;
    term_echo(true);
    fputs(paste_on, stderr);
    el_resize(l->edit); /* it does not look by itself */
    catch_signals(true);
    const char *s = el_gets(l->edit, &n);
    catch_signals(false);
    fputs(paste_off, stderr);
    fflush(stderr);
    term_echo(false);
    l->pasting = false;
    if (!s || n <= 0) {
        fputc('\n', stderr);
        return interrupted() ? LINE_INTERRUPT : LINE_END;
    }
    if (s[n - 1] == '\n') n--;
    return append_edited(l, s, (size_t)n) ? LINE_TEXT : LINE_END;
}

void line_preset(struct line *l, const char *text) {
    mem_free(l->preset);
    l->preset = l->terminal ? mem_strdup(text) : NULL; /* without memory the line is empty */
    l->at_preset = 0;
}

enum line_result line_read(struct line *l, const char **text, size_t *n) {
    l->n = 0;
    l->more = false;
    enum line_result r = read_one(l);
    bool block = r == LINE_TEXT && l->n >= 3 && memcmp(l->text, "\"\"\"", 3) == 0;
    bool closed = block && l->n >= 6 && memcmp(l->text + l->n - 3, "\"\"\"", 3) == 0;
    while (r == LINE_TEXT && !closed && (block || (l->n && l->text[l->n - 1] == '\\'))) {
        if (!block) l->n--; /* the backslash */
        l->more = true;
        size_t before = l->n;
        if (!append(l, "\n", 1)) return LINE_END;
        r = read_one(l);
        closed = block && l->n >= before + 4 && memcmp(l->text + l->n - 3, "\"\"\"", 3) == 0;
        if (r == LINE_END && l->n) { /* the end of the input ends the block too */
            r = LINE_TEXT;
            break;
        }
    }
    if (r != LINE_TEXT) return r;
    if (l->terminal && l->n) remember(l);
    *text = l->text ? l->text : "";
    *n = l->n;
    if (block) {
        *text += 3;
        *n -= closed ? 6 : 3;
        if (*n && **text == '\n') ++*text, --*n;
        if (closed && *n && (*text)[*n - 1] == '\n') --*n;
        l->text[*text - l->text + (ptrdiff_t)*n] = 0;
    }
    return LINE_TEXT;
}

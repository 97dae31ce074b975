#include "cuda/plan/tune.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"
#include "files/outfile.h"

enum { TUNE_MAX_BYTES = 256 << 10, TUNE_LINE = 320 };

/* Lines "device|driver|build <tab> what <tab> value", the newest last; in a file of its own "device <tab> what <tab> value". */
struct tune {
    char key[160], folder[3800], path[3840];
    char *text; /* all lines, each with its '\n' */
    size_t n;
    bool changed;
    bool named; /* no cache */
};

/* Two builds differ in size or time of the program's file. */
static void build_name(char *buf, size_t n) {
    struct stat s;
    if (stat("/proc/self/exe", &s) != 0) s = (struct stat){0};
    snprintf(buf, n, "%lld.%lld", (long long)s.st_size, (long long)s.st_mtime);
}

static void read_file(struct tune *t) {
    FILE *f = fopen(t->path, "r");
    if (!f) return;
    t->n = fread(t->text, 1, TUNE_MAX_BYTES, f);
    fclose(f);
    while (t->n && t->text[t->n - 1] != '\n') t->n--; /* a torn last line */
}

static enum infer_status make(struct tune **out) {
    TRY(mem_new(out, sizeof **out, "the tuner's table"));
    const enum infer_status st = mem_new(&(*out)->text, TUNE_MAX_BYTES + TUNE_LINE, "the tuner's table");
    if (!st) return INFER_OK;
    tune_close(*out);
    *out = NULL;
    return st;
}

enum infer_status tune_open(struct tune **out, const char *device, int driver) {
    struct tune *t;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char build[48];
    *out = NULL;
    TRY(make(&t));
    *out = t;
    build_name(build, sizeof build);
    snprintf(t->key, sizeof t->key, "%.60s|%d|%s\t", device, driver, build);
    if (cache && *cache)
        snprintf(t->folder, sizeof t->folder, "%s/infer", cache);
    else
        snprintf(t->folder, sizeof t->folder, "%s/.cache/infer", home ? home : "");
    snprintf(t->path, sizeof t->path, "%s/routes", t->folder);
    read_file(t);
    return INFER_OK;
}

/* What a file of its own has is all of one form; the first line that is not is named. */
static enum infer_status check_lines(const struct tune *t) {
    int line = 1;
    for (const char *p = t->text, *end = p + t->n; p < end; line++) {
        const char *next = memchr(p, '\n', (size_t)(end - p)), *what, *value;
        what = next ? memchr(p, '\t', (size_t)(next - p)) : NULL;
        value = what ? memchr(what + 1, '\t', (size_t)(next - what - 1)) : NULL;
        if (!value || value + 1 == next || strspn(value + 1, "0123456789") != (size_t)(next - value - 1))
            return err_set(INFER_E_INPUT, "%s: line %d is no choice of .autotune full", t->path, line);
        p = next + 1;
    }
    return INFER_OK;
}

static enum infer_status read_named(struct tune *t, bool to_write) {
    struct outfile *probe;
    FILE *f = fopen(t->path, "re");
    if (!f && !(to_write && errno == ENOENT)) return err_set(INFER_E_IO, "%s: %s", t->path, strerror(errno));
    if (f) {
        t->n = fread(t->text, 1, TUNE_MAX_BYTES + 1, f);
        const bool failed = ferror(f);
        fclose(f);
        if (failed || t->n > TUNE_MAX_BYTES)
            return err_set(INFER_E_INPUT, "%s: no table of .autotune full", t->path);
        TRY(check_lines(t));
    }
    if (!to_write) return INFER_OK;
    TRY(outfile_open(&probe, t->path, OUTFILE_DEFAULT)); /* before anything is measured */
    outfile_abort(probe);
    return INFER_OK;
}

enum infer_status tune_open_file(struct tune **out, const char *device, const char *path, bool to_write) {
    struct tune *t;
    *out = NULL;
    if (strlen(path) >= sizeof t->path) return err_set(INFER_E_INPUT, "%.100s..: too long a name", path);
    TRY(make(&t));
    t->named = true;
    snprintf(t->key, sizeof t->key, "%.60s\t", device);
    snprintf(t->path, sizeof t->path, "%s", path);
    const enum infer_status st = read_named(t, to_write);
    if (st)
        tune_close(t);
    else
        *out = t;
    return st;
}

int tune_count(const struct tune *t) {
    const size_t n = strlen(t->key);
    int count = 0;
    for (const char *p = t->text, *end = p + t->n; p < end; p = memchr(p, '\n', (size_t)(end - p)), p++)
        count += (size_t)(end - p) > n && memcmp(p, t->key, n) == 0;
    return count;
}

/* The line of an entry, NULL: none. *after: behind its '\n'. */
static char *find(const struct tune *t, const char *what, char **after) {
    char start[TUNE_LINE];
    size_t n = (size_t)snprintf(start, sizeof start, "%s%s\t", t->key, what);
    for (char *p = t->text, *end = p + t->n; p < end;) {
        char *next = memchr(p, '\n', (size_t)(end - p));
        next = next ? next + 1 : end;
        if ((size_t)(next - p) > n && memcmp(p, start, n) == 0) {
            *after = next;
            return p + n;
        }
        p = next;
    }
    return NULL;
}

int tune_get(const struct tune *t, const char *what, int none) {
    char *after, *end, *p = t ? find(t, what, &after) : NULL;
    if (!p) return none;
    errno = 0;
    long v = strtol(p, &end, 10);
    return errno || end == p || *end != '\n' || v != (int)v ? none : (int)v;
}

void tune_set(struct tune *t, const char *what, int value) {
    char line[TUNE_LINE], *after, *p = find(t, what, &after);
    if (p) {
        p -= strlen(t->key) + strlen(what) + 1;
        memmove(p, after, (size_t)(t->text + t->n - after));
        t->n -= (size_t)(after - p);
    }
    size_t n = (size_t)snprintf(line, sizeof line, "%s%s\t%d\n", t->key, what, value), drop = 0;
    while (t->n - drop + n > TUNE_MAX_BYTES)
        drop += (size_t)((char *)memchr(t->text + drop, '\n', t->n - drop) + 1 - (t->text + drop));
    memmove(t->text, t->text + drop, t->n - drop);
    t->n -= drop;
    memcpy(t->text + t->n, line, n);
    t->n += n;
    t->changed = true;
}

enum infer_status tune_save(struct tune *t) {
    if (!t->changed) return INFER_OK;
    for (char *p = t->folder + 1; !t->named && *p; p++) /* the folders on the way */
        if (*p == '/') {
            *p = 0;
            (void)mkdir(t->folder, 0777);
            *p = '/';
        }
    if (!t->named) (void)mkdir(t->folder, 0777);
    TRY(outfile_put(t->path, OUTFILE_DEFAULT, t->text, t->n));
    t->changed = false;
    return INFER_OK;
}

void tune_close(struct tune *t) {
    if (!t) return;
    mem_free(t->text);
    mem_free(t);
}

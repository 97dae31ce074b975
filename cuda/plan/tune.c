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

/* Lines "device|driver|build <tab> what <tab> value", the newest last. */
struct tune {
    char key[160], folder[3800], path[3840];
    char *text; /* all lines, each with its '\n' */
    size_t n;
    bool changed;
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

enum infer_status tune_open(struct tune **out, const char *device, int driver) {
    struct tune *t;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char build[48];
    *out = NULL;
    TRY(mem_new(&t, sizeof *t, "the tuner's table"));
    enum infer_status st = mem_new(&t->text, TUNE_MAX_BYTES + TUNE_LINE, "the tuner's table");
    if (st) {
        tune_close(t);
        return st;
    }
    build_name(build, sizeof build);
    snprintf(t->key, sizeof t->key, "%.60s|%d|%s\t", device, driver, build);
    if (cache && *cache)
        snprintf(t->folder, sizeof t->folder, "%s/infer", cache);
    else
        snprintf(t->folder, sizeof t->folder, "%s/.cache/infer", home ? home : "");
    snprintf(t->path, sizeof t->path, "%s/routes", t->folder);
    read_file(t);
    *out = t;
    return INFER_OK;
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
    for (char *p = t->folder + 1; *p; p++) /* the folders on the way */
        if (*p == '/') {
            *p = 0;
            (void)mkdir(t->folder, 0777);
            *p = '/';
        }
    (void)mkdir(t->folder, 0777);
    TRY(outfile_put(t->path, OUTFILE_DEFAULT, t->text, t->n));
    t->changed = false;
    return INFER_OK;
}

void tune_close(struct tune *t) {
    if (!t) return;
    mem_free(t->text);
    mem_free(t);
}

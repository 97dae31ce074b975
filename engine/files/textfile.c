#include "files/textfile.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t limit;
} kinds[] = {
#define TEXT(kind, name, limit) {name, limit},
#include "files/textfile.def"
#undef TEXT
};

static enum infer_status too_long(const char *path, enum text_kind kind) {
    bool mega = kinds[kind].limit % (1 << 30) != 0;
    return err_set(INFER_E_INPUT, "%s: it is longer than %zu %s, the most that %s may have", path,
                   kinds[kind].limit >> (mega ? 20 : 30), mega ? "MiB" : "GiB", kinds[kind].name);
}

static enum infer_status read_stream(FILE *in, const char *path, enum text_kind kind, char **text,
                                     size_t *n) {
    enum { STEP = 64 << 10 };
    size_t cap = 0, len = 0, got;
    char *buf = NULL;
    enum infer_status st = INFER_OK;
    do {
        if (cap - len < STEP + 1) {
            char *grown = mem_realloc(buf, cap = cap * 2 + 2 * STEP);
            if (!grown) {
                mem_free(buf);
                return err_set(INFER_E_MEMORY, "%s: out of memory: %zu bytes", path, cap);
            }
            buf = grown;
        }
        errno = 0;
        len += got = fread(buf + len, 1, STEP, in);
    } while (got && len <= kinds[kind].limit);
    if (ferror(in))
        st = err_set(INFER_E_IO, "%s: %s", path, strerror(errno));
    else if (len > kinds[kind].limit)
        st = too_long(path, kind);
    if (st) {
        mem_free(buf);
        return st;
    }
    buf[len] = 0;
    *text = buf;
    *n = len;
    return INFER_OK;
}

enum infer_status text_read(char **text, size_t *n, const char *path, enum text_kind kind) {
    if (strcmp(path, "-") == 0) return read_stream(stdin, "stdin", kind, text, n);
    FILE *in = fopen(path, "rbe");
    if (!in) return err_set(INFER_E_IO, "%s: %s", path, strerror(errno));
    enum infer_status st = read_stream(in, path, kind, text, n);
    fclose(in);
    return st;
}

enum infer_status text_map(struct mapfile *out, const char *path, enum text_kind kind, bool *there) {
    *out = (struct mapfile){0};
    if (there) *there = !mapfile_absent(path);
    if (there && !*there) return INFER_OK;
    TRY(mapfile_open(out, path, false));
    if (out->size <= kinds[kind].limit) return INFER_OK;
    enum infer_status s = too_long(path, kind);
    mapfile_close(out);
    return s;
}

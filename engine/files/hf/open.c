/* A model file or folder, by what it begins with: this room knows all kinds. */
#include "files/hf/hf.h"
#include "files/gguf.h"
#include "files/vocab_json.h"

#include <string.h>
#include <sys/stat.h>

/* What the first bytes look like, for the message about a file that is no model. */
static const char *describe_start(const struct mapfile *m) {
    static const struct {
        const char *start, *what;
    } known[] = {
        {"version https://git-lfs", "it is a git-lfs pointer; the file itself was not downloaded"},
        {"<", "it looks like a web page"},
        {"{", "it looks like JSON"},
        {"PK", "it looks like a zip or PyTorch file"},
        {"FUGG", "it is GGUF of a big-endian machine, which is not supported"},
        {"lmgg", "it is the old GGML format; convert the model again"},
        {"fmgg", "it is the old GGMF format; convert the model again"},
        {"tjgg", "it is the old GGJT format; convert the model again"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].start);
        if (m->size >= n && memcmp(m->data, known[i].start, n) == 0) return known[i].what;
    }
    return NULL;
}

static enum infer_status read_container(struct tensorfile *f, const struct tensorfile_options *options) {
    const struct mapfile *m = &f->part[0];
    if (m->size == 0) return err_set(INFER_E_INPUT, "%s: the file is empty", f->path);
    if (m->size >= 4 && memcmp(m->data, "GGUF", 4) == 0) {
        if (options->task)
            return err_set(INFER_E_INPUT, "%s: .task is '%.60s', and a GGUF file has no adapters for tasks",
                           f->path, options->task);
        return gguf_read(f, options);
    }
    if (options->vocab_only && (m->data[0] == '{' || m->data[0] == '\n')) return tok_vocab_read(f);
    const char *end = strrchr(f->path, '.');
    if (end && strcmp(end, ".safetensors") == 0)
        return err_set(INFER_E_INPUT,
                       "%s: weights alone are no model: name the folder that has them and config.json",
                       f->path);
    const char *what = describe_start(m);
    if (what) return err_set(INFER_E_INPUT, "%s: not a model file: %s", f->path, what);
    char start[32];
    text_escape(start, sizeof start, (const char *)m->data, m->size < 4 ? m->size : 4);
    return err_set(INFER_E_INPUT, "%s: not a model file: it begins with '%s', not with 'GGUF'", f->path,
                   start);
}

static enum infer_status open_parts(struct tensorfile *f, const char *path,
                                    const struct tensorfile_options *options) {
    f->path = arena_strndup(&f->arena, path, strlen(path));
    f->part = arena_alloc(&f->arena, sizeof *f->part);
    if (!f->path || !f->part) return err_set(INFER_E_MEMORY, "%s: out of memory", path);
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (!there && strstr(path, "://"))
        return err_set(INFER_E_INPUT,
                       "%s: nothing is downloaded here: fetch the file (curl -LO ...), then name it", path);
    if (there && S_ISDIR(st.st_mode)) {
        TRY(hf_read(f, options));
    } else {
        TRY(mapfile_open(&f->part[0], path, options->no_mmap));
        f->n_part = 1;
        TRY(read_container(f, options));
    }
    if (!options->vocab_only)
        for (int i = 0; i < f->n_part; i++) mapfile_will_read(&f->part[i]);
    return INFER_OK;
}

enum infer_status tensorfile_open(struct tensorfile **out, const char *path,
                                  const struct tensorfile_options *options) {
    static const struct tensorfile_options defaults;
    struct tensorfile *f;
    *out = NULL;
    TRY(mem_new(&f, sizeof *f, path));
    enum infer_status s = open_parts(f, path, options ? options : &defaults);
    if (s == INFER_OK) {
        *out = f;
    } else {
        tensorfile_close(f);
    }
    return s;
}

/* MODEL.kv.json: what `infer kvtune` measured of a model. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cache/snapshot.h"
#include "files/json.h"
#include "files/outfile.h"
#include "files/textfile.h"
#include "plan/kv_types.h"

enum { FORMAT = 1, HASH = 20 };

const char *kv_tuned_path(char out[KV_TUNED_PATH], const struct model *m) {
    size_t n = strlen(m->file->path);
    while (n > 1 && m->file->path[n - 1] == '/') n--;
    snprintf(out, KV_TUNED_PATH, "%.*s.kv.json", (int)n, m->file->path);
    return out;
}

static void hash_of(char out[HASH], const struct model *m) {
    snprintf(out, HASH, "%016llx", (unsigned long long)snapshot_fingerprint(m->file));
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

enum infer_status kv_tuned_write(const struct model *m, const char *path, const struct kv_tuned *t) {
    char beside[KV_TUNED_PATH], hash[HASH], *text;
    struct outfile *f;
    if (!path) path = kv_tuned_path(beside, m);
    hash_of(hash, m);
    const uint64_t failed = mem_failed();
    json_t *choices = json_array();
    for (int i = 0; i < t->n_choice; i++) {
        const struct kv_choice *c = &t->choice[i];
        json_array_append_new(choices, json_pack("{s:f, s:I, s:s}", "kl", c->kl, "bytes",
                                                 (json_int_t)c->bytes, "kv_type", c->kv_type));
    }
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:f, s:o}", "format", FORMAT, "hash", hash, "model",
                          name_of(m->file->path), "text", t->text, "depth", t->depth, "counted", t->counted,
                          "kl", t->kl, "choices", choices);
    enum infer_status st = json_whole(j, failed, "a table of cache types");
    if (!st) st = json_line(&text, j, "a table of cache types");
    json_decref(j);
    TRY(st);
    st = outfile_open(&f, path, OUTFILE_DEFAULT);
    if (!st) {
        st = outfile_write(f, text, strlen(text));
        if (!st) st = outfile_write(f, "\n", 1);
        if (st)
            outfile_abort(f);
        else
            st = outfile_close(f);
    }
    mem_free(text);
    return st;
}

/* The cheapest choice, out of j, which is the file path. */
static enum infer_status choose(const char **out, struct arena *arena, const struct model *m, const json_t *j,
                                const char *path, double kl) {
    char hash[HASH];
    const json_t *best = NULL, *c, *choices = json_object_get(j, "choices");
    double least = 0, nearest = -1;
    size_t i;
    if (json_integer_value(json_object_get(j, "format")) != FORMAT || !json_is_array(choices))
        return err_set(INFER_E_INPUT, "%s is no table of cache types that this version reads", path);
    hash_of(hash, m);
    if (strcmp(json_text_of(j, "hash"), hash) != 0)
        return err_set(INFER_E_INPUT,
                       "%s is of another file than %s (%.20s, not %s): infer kvtune makes it anew", path,
                       m->file->path, json_text_of(j, "hash"), hash);
    if (kl < 0) kl = json_number_value(json_object_get(j, "kl"));
    json_array_foreach(choices, i, c) {
        const double far = json_number_value(json_object_get(c, "kl")),
                     bytes = json_number_value(json_object_get(c, "bytes"));
        if (!*json_text_of(c, "kv_type"))
            return err_set(INFER_E_INPUT, "%s: choice %zu has no types", path, i);
        if (nearest < 0 || far < nearest) nearest = far;
        if (far <= kl && (!best || bytes < least)) best = c, least = bytes;
    }
    if (!best)
        return err_set(INFER_E_INPUT, "%s has no choice with a divergence of %g or less, the nearest has %g",
                       path, kl, nearest);
    const char *text = json_text_of(best, "kv_type");
    *out = arena_strndup(arena, text, strlen(text));
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for the plan");
}

enum infer_status kv_tuned_read(const char **out, struct arena *arena, const struct model *m, double kl) {
    char path[KV_TUNED_PATH], *text;
    size_t n;
    json_t *j;
    kv_tuned_path(path, m);
    if (access(path, F_OK) != 0)
        return err_set(INFER_E_IO, ".kv_type auto: there is no %s; 'infer kvtune -m %s -f TEXT' makes it",
                       path, m->file->path);
    TRY(text_read(&text, &n, path, TEXT_SETTINGS));
    enum infer_status st = json_read(&j, path, text, n, 0);
    mem_free(text);
    TRY(st);
    st = choose(out, arena, m, j, path, kl);
    json_decref(j);
    return st;
}

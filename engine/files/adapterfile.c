/* GGUF files of adapters, and what both kinds have in common. */
#include "files/adapterfile.h"
#include "base/stbds.h"
#include "files/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static enum infer_status no_memory(const struct adapterfile *f) {
    return err_set(INFER_E_MEMORY, "%s: out of memory", f->path);
}

enum infer_status adapterfile_put(struct adapterfile *f, struct strmap *index, const char *name, int expert,
                                  bool is_b, const struct tensor *t, struct adapter_pair **out) {
    char key[400];
    int64_t old;
    const int n = snprintf(key, sizeof key, "%s|%d", name, expert);
    TRY(strmap_put(index, key, (size_t)n, (int64_t)f->n_pair, &old));
    if (old < 0) {
        const char *own = arena_strndup(&f->arena, name, strlen(name));
        if (!own) return no_memory(f);
        f->pair[old = (int64_t)f->n_pair++] = (struct adapter_pair){.name = own, .expert = expert};
    }
    const struct tensor **half = is_b ? &f->pair[old].b : &f->pair[old].a;
    if (*half)
        return err_set(INFER_E_INPUT, "%s: tensors %.100s and %.100s stand for the same", f->path,
                       (*half)->name, t->name);
    *half = t;
    *out = &f->pair[old];
    return INFER_OK;
}

/* ---- GGUF ---- */

static enum infer_status word_of(const struct tensorfile *g, const char *key, const char *want,
                                 const char *otherwise) {
    struct str s = {"", 0};
    bool there;
    TRY(meta_str(g, key, &s, &there));
    if (there && str_is(s, want)) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: %s is '%.*s', not '%s': %s", g->path, key,
                   (int)(s.len < 64 ? s.len : 64), s.data, want, otherwise);
}

static enum infer_status read_pairs(struct adapterfile *f, const struct arch *a) {
    const struct tensorfile *g = f->gguf;
    struct strmap *index;
    float alpha;
    TRY(word_of(g, "general.type", "adapter", "it is no adapter"));
    TRY(word_of(g, "general.architecture", a->name, "it is of another model"));
    TRY(word_of(g, "adapter.type", "lora", "other adapters are not applied"));
    if (tensorfile_meta(g, "adapter.alora.invocation_tokens"))
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: adapter.alora.invocation_tokens: it holds from some tokens on alone, which is not done here",
            g->path);
    TRY(meta_f32(g, "adapter.lora.alpha", &alpha, NULL));
    if (!isfinite(alpha))
        return err_set(INFER_E_INPUT, "%s: adapter.lora.alpha is %g", g->path, (double)alpha);
    TRY(strmap_new(&index, &f->arena));
    for (size_t i = 0; i < g->n_tensor; i++) {
        const struct tensor *t = &g->tensor[i];
        const size_t n = strlen(t->name), m = strlen(".lora_a");
        const char *end = t->name + (n > m ? n - m : 0);
        const bool is_b = strcmp(end, ".lora_b") == 0;
        char name[GGUF_MAX_NAME + 1];
        struct adapter_pair *pair;
        if (!is_b && strcmp(end, ".lora_a") != 0)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: tensor %s is neither NAME.lora_a nor NAME.lora_b: only pairs are applied",
                           g->path, t->name);
        snprintf(name, sizeof name, "%.*s", (int)(n - m), t->name);
        TRY(adapterfile_put(f, index, name, -1, is_b, t, &pair));
        /* alpha 0: as llama.cpp takes it; r: A's rows, B's columns */
        pair->scale = alpha != 0 ? alpha / (float)t->shape[is_b ? 3 : 2] : 1;
    }
    return INFER_OK;
}

static enum infer_status read_vectors(struct adapterfile *f, int n_layer) {
    const struct tensorfile *g = f->gguf;
    f->vector = arena_alloc(&f->arena, (g->n_tensor + 1) * sizeof *f->vector);
    if (!f->vector) return no_memory(f);
    for (size_t i = 0; i < g->n_tensor; i++) {
        const struct tensor *t = &g->tensor[i];
        int layer, used = 0;
        if (sscanf(t->name, "direction.%6d%n", &layer, &used) != 1 || t->name[used])
            return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s is not direction.N", g->path, t->name);
        if (layer < 1 || layer >= n_layer)
            return err_set(INFER_E_INPUT,
                           "%s: tensor %s: the model has layers 0 to %d, and directions are from 1 on",
                           g->path, t->name, n_layer - 1);
        f->vector[f->n_vector++] = (struct adapter_vector){layer, t};
    }
    return INFER_OK;
}

static enum infer_status gguf_adapter(struct adapterfile *f, const struct arch *a, int n_layer) {
    struct str arch = {"", 0};
    bool there;
    TRY(tensorfile_open(&f->gguf, f->path, NULL));
    f->pair = arena_alloc(&f->arena, (f->gguf->n_tensor + 1) * sizeof *f->pair);
    if (!f->pair) return no_memory(f);
    TRY(meta_str(f->gguf, "general.architecture", &arch, &there));
    if (there && str_is(arch, "controlvector")) return read_vectors(f, n_layer);
    return read_pairs(f, a);
}

/* ---- the call ---- */

static enum infer_status whole(const struct adapterfile *f) {
    for (size_t i = 0; i < f->n_pair; i++) {
        const struct adapter_pair *p = &f->pair[i];
        if (!p->a || !p->b)
            return err_set(INFER_E_INPUT, "%s: %s has no %s beside it", f->path, (p->a ? p->a : p->b)->name,
                           p->a ? "B" : "A");
    }
    if (!f->n_pair && !f->n_vector) return err_set(INFER_E_INPUT, "%s: the adapter has no matrix", f->path);
    return INFER_OK;
}

static enum infer_status read_kind(struct adapterfile *f, const char *path, const struct arch *a,
                                   int n_layer) {
    struct stat st;
    f->path = arena_strndup(&f->arena, path, strlen(path));
    if (!f->path) return err_set(INFER_E_MEMORY, "%s: out of memory", path);
    f->folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    TRY(f->folder ? peft_read(f, a, n_layer) : gguf_adapter(f, a, n_layer));
    return whole(f);
}

enum infer_status adapterfile_open(struct adapterfile **out, const char *path, const struct arch *a,
                                   int n_layer) {
    struct adapterfile *f;
    *out = NULL;
    TRY(mem_new(&f, sizeof *f, "an adapter"));
    enum infer_status s = read_kind(f, path, a, n_layer);
    if (s == INFER_OK)
        *out = f;
    else
        adapterfile_close(f);
    return s;
}

void adapterfile_close(struct adapterfile *f) {
    if (!f) return;
    tensorfile_close(f->gguf);
    mapfile_close(&f->map);
    arena_free(&f->arena);
    mem_free(f);
}

/* Adapters of an engine: which there are, and by how much each sequence has them. */
#include "engine_impl.h"

#include <math.h>

enum infer_status infer_adapter_open(struct infer_adapter **out, const struct infer_model *m,
                                     const char *path, const struct infer_adapter_options *o) {
    struct infer_adapter *a;
    const bool some = o && (o->first_layer || o->last_layer);
    *out = NULL;
    if (!m->m->layer)
        return err_set(INFER_E_INPUT, "%s was opened for its vocabulary only", m->m->file->path);
    TRY(mem_new(&a, sizeof *a, "an adapter"));
    a->of = m;
    enum infer_status s =
        adapter_open(&a->a, m->m, path, some ? o->first_layer : 0, some ? o->last_layer : m->m->n_layer);
    if (s)
        infer_adapter_close(a);
    else
        *out = a;
    return s;
}

void infer_adapter_close(struct infer_adapter *a) {
    if (!a) return;
    adapter_close(a->a);
    mem_free(a);
}

void infer_adapter_info(const struct infer_adapter *a, struct infer_adapter_info *out) {
    *out = (struct infer_adapter_info){a->a->path, a->a->n_part, a->a->part[0].group < 0, a->a->bytes};
}

enum infer_status engine_adapters_read(struct adapters *out, struct arena *arena, const struct infer_model *m,
                                       const struct infer_engine_options *o) {
    const int n = o ? o->n_adapter : 0;
    *out = (struct adapters){0};
    if (!n) return INFER_OK;
    if (o->group || model_drafts(m->m))
        return err_set(INFER_E_UNSUPPORTED, o->group ? "ranks have no adapters yet; one process has"
                                                     : "a model that drafts has no adapters");
    const struct adapter **list = arena_alloc(arena, (size_t)n * sizeof *list);
    if (!list) return err_set(INFER_E_MEMORY, "out of memory for adapters");
    for (int i = 0; i < n; i++) {
        const struct adapter *a = list[i] = o->adapter[i]->a;
        if (o->adapter[i]->of != m) return err_set(INFER_E_INPUT, "%s was opened for another model", a->path);
        if (o->adapter_scale && !isfinite(o->adapter_scale[i]))
            return err_set(INFER_E_INPUT, "%s: its scale is %g", a->path, (double)o->adapter_scale[i]);
    }
    *out = (struct adapters){list, n};
    return INFER_OK;
}

enum infer_status engine_adapters_open(struct infer_engine *e, const struct infer_engine_options *o) {
    const size_t n = (size_t)e->adapters.n, n_slot = (size_t)e->plan.set.n_slot;
    if (!n) return INFER_OK;
    e->default_scale = arena_alloc(&e->arena, n * sizeof *e->default_scale);
    e->scale = arena_alloc(&e->arena, n * n_slot * sizeof *e->scale);
    e->scale_of = arena_alloc(&e->arena, n_slot * sizeof *e->scale_of);
    if (!e->default_scale || !e->scale || !e->scale_of)
        return err_set(INFER_E_MEMORY, "out of memory for adapters");
    for (size_t i = 0; i < n; i++) e->default_scale[i] = o->adapter_scale ? o->adapter_scale[i] : 1;
    return INFER_OK;
}

uint64_t engine_adapter_key(const struct infer_engine *e, const float *scale) {
    uint64_t key = 0;
    if (!scale) scale = e->default_scale;
    for (int i = 0; i < e->adapters.n; i++) {
        uint32_t bits;
        if (scale[i] == 0) continue;
        memcpy(&bits, &scale[i], sizeof bits);
        key = (key ^ e->adapters.adapter[i]->hash) * UINT64_C(0x100000001b3);
        key = (key ^ key >> 32 ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        if (!key) key = 1;
    }
    return key;
}

void engine_adapt(struct infer_engine *e, int seq, const float *scale) {
    const size_t n = (size_t)e->adapters.n;
    bool some = false;
    if (!n) return;
    memcpy(e->scale + n * (size_t)seq, scale ? scale : e->default_scale, n * sizeof *scale);
    for (size_t i = 0; i < n; i++) some |= e->scale[n * (size_t)seq + i] != 0;
    e->scale_of[seq] = some ? e->scale + n * (size_t)seq : NULL;
}

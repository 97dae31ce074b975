/* Adapters of an engine: which there are, and by how much each sequence has them. */
#include "engine_impl.h"

#include <math.h>

enum { ROOM_MOST = 64 };

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
    const int own = o ? o->n_adapter : 0, room = o ? o->adapter_room : 0, n = own + room;
    *out = (struct adapters){0};
    if (room < 0 || room > ROOM_MOST || (room && (o->adapter_rank < 1 || o->adapter_rank > LOWRANK_MAX)))
        return err_set(INFER_E_INPUT,
                       ".adapter_room is %d with .adapter_rank %d, must be 0 to %d with 1 to %d", room,
                       o->adapter_rank, ROOM_MOST, LOWRANK_MAX);
    if (!n) return INFER_OK;
    if (model_drafts(m->m)) return err_set(INFER_E_UNSUPPORTED, "a model that drafts has no adapters");
    if (room && o->group)
        return err_set(INFER_E_UNSUPPORTED,
                       ".adapter_room: ranks that are processes have the adapters that they begin with");
    const struct adapter **list = arena_alloc(arena, (size_t)n * sizeof *list);
    if (!list) return err_set(INFER_E_MEMORY, "out of memory for adapters");
    for (int i = 0; i < room; i++) list[own + i] = NULL;
    for (int i = 0; i < own; i++) {
        const struct adapter *a = list[i] = o->adapter[i]->a;
        if (o->adapter[i]->of != m) return err_set(INFER_E_INPUT, "%s was opened for another model", a->path);
        if (o->adapter_scale && !isfinite(o->adapter_scale[i]))
            return err_set(INFER_E_INPUT, "%s: its scale is %g", a->path, (double)o->adapter_scale[i]);
    }
    *out = (struct adapters){.adapter = list, .n = n, .n_room = room, .rank = room ? o->adapter_rank : 0};
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
    for (int i = 0; i < e->adapters.n - e->adapters.n_room; i++)
        e->default_scale[i] = o->adapter_scale ? o->adapter_scale[i] : 1;
    return INFER_OK;
}

uint64_t engine_adapter_key(const struct infer_engine *e, const float *scale) {
    uint64_t key = 0;
    if (!scale) scale = e->default_scale;
    for (int i = 0; i < e->adapters.n; i++) {
        uint32_t bits;
        if (scale[i] == 0 || !e->adapters.adapter[i]) continue;
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
    for (size_t i = 0; i < n; i++) {
        if (!e->adapters.adapter[i]) e->scale[n * (size_t)seq + i] = 0;
        some |= e->scale[n * (size_t)seq + i] != 0;
    }
    e->scale_of[seq] = some ? e->scale + n * (size_t)seq : NULL;
}

/* ---- ranks ---- */

enum infer_status engine_adapters_share(struct adapters *out, struct arena *arena,
                                        const struct adapters *whole, const struct model *share) {
    *out = *whole;
    out->shared = true;
    if (!whole->n) return INFER_OK;
    out->adapter = arena_alloc(arena, (size_t)whole->n * sizeof *out->adapter);
    if (!out->adapter) return err_set(INFER_E_MEMORY, "out of memory for adapters");
    for (int i = 0; i < whole->n; i++) out->adapter[i] = NULL;
    for (int i = 0; i < whole->n; i++) {
        struct adapter *a = NULL;
        if (whole->adapter[i]) TRY(adapter_share(&a, whole->adapter[i], share));
        out->adapter[i] = a;
    }
    return INFER_OK;
}

void engine_adapters_unshare(struct adapters *a) {
    for (int i = 0; a->shared && a->adapter && i < a->n; i++) adapter_close((struct adapter *)a->adapter[i]);
    *a = (struct adapters){0};
}

enum infer_status engine_ranks_adapters(struct infer_engine *e) {
    if (!e->n_rank || !e->adapters.n) return INFER_OK;
    const int n = e->group ? 1 : e->n_rank; /* processes make theirs themselves */
    e->rank_adapters = arena_alloc(&e->arena, (size_t)n * sizeof *e->rank_adapters);
    if (!e->rank_adapters) return err_set(INFER_E_MEMORY, "out of memory for adapters");
    for (int i = 0; i < n; i++) e->rank_adapters[i] = (struct adapters){0};
    for (int i = 0; i < n; i++)
        TRY(engine_adapters_share(&e->rank_adapters[i], &e->arena, &e->adapters, e->ranks[i].model));
    return INFER_OK;
}

const struct adapters *engine_adapters_of(const struct infer_engine *e, int rank) {
    return !e->adapters.n ? NULL : e->rank_adapters ? &e->rank_adapters[rank] : &e->adapters;
}

void engine_ranks_adapters_free(struct infer_engine *e) {
    for (int i = 0; e->rank_adapters && i < (e->group ? 1 : e->n_rank); i++)
        engine_adapters_unshare(&e->rank_adapters[i]);
}

/* ---- adapters that come and go ---- */

/* Every list of every part: what the place's adapter adds, or no longer. */
static void fill_lists(const struct adapters *a, const struct plan *p) {
    for (int k = 0; k < p->n_part; k++)
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            const struct op_list *l = &p->part[k].list[c];
            for (int i = 0; i < l->n_op; i++)
                if (l->op[i].kind == OP_LOWRANK) /* of its site (emit.c) the first member */
                    adapters_fill(a, (struct adapter_site *)(void *)l->op[i].lowrank.w);
        }
}

/* What every rank adds of it (a NULL: nothing), in the place; all of them or none. */
static enum infer_status put_shares(struct infer_engine *e, int place, const struct adapter *a) {
    struct adapter *own[RANKS_MAX] = {0};
    enum infer_status s = INFER_OK;
    for (int i = 0; !s && a && i < e->n_rank; i++) s = adapter_share(&own[i], a, e->ranks[i].model);
    for (int i = 0; i < e->n_rank; i++) {
        const struct adapter **at = &e->rank_adapters[i].adapter[place];
        adapter_close(s ? own[i] : (struct adapter *)*at);
        if (!s) *at = own[i];
    }
    return s;
}

enum infer_status infer_engine_adapter(struct infer_engine *e, int place, const struct infer_adapter *a) {
    const int n = e->adapters.n, first = n - e->adapters.n_room;
    if (place < first || place >= n)
        return err_set(INFER_E_INPUT, "place %d: those for adapters that come are %d to %d", place, first,
                       n - 1);
    if (e->n_submit != e->n_wait)
        return err_set(INFER_E_INPUT, "an adapter comes between steps, and one is queued");
    for (int seq = 0; seq < e->plan.set.n_slot; seq++)
        if (e->kv.seq[seq].open && e->scale_of[seq] && e->scale_of[seq][place] != 0)
            return err_set(INFER_E_INPUT, "place %d: sequence %d has its adapter", place, seq);
    if (a && a->of != e->model) return err_set(INFER_E_INPUT, "%s was opened for another model", a->a->path);
    if (a) TRY(adapter_fits(a->a, e->adapters.rank));
    if (e->rank_adapters) TRY(put_shares(e, place, a ? a->a : NULL));
    e->adapters.adapter[place] = a ? a->a : NULL;
    if (!e->rank_adapters) fill_lists(&e->adapters, &e->plan);
    for (int i = 0; e->rank_adapters && i < e->n_rank; i++)
        fill_lists(&e->rank_adapters[i], e->ranks[i].plan);
    return INFER_OK;
}

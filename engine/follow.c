/* Engines whose ranks are processes: what rank 0 tells the others to open, and what they make of it. */
#include "base/host.h"
#include "cache/snapshot.h"
#include "engine_impl.h"
#include "engine_options.h"
#include "wire/group.h"

#include <stdio.h>
#include <string.h>

enum {
#define COUNT_FLAG(field)
#define COUNT_SWITCH(field)
#define COUNT_INT(field)
#define COUNT_NUMBER(field)
#define COUNT_BYTES(field)
#define COUNT_TEXT(field)                      TEXT_##field,
#define INFER_OPTION(reader, type, field, ...) COUNT_##type(field)
#define INFER_FIELD(reader, type, field)       COUNT_##type(field)
#include "infer_options.def"
    N_TEXT,
    ORDER_STORES = 1024, /* of a model with types of its own in each */
    ORDER_ADAPTERS = 256
};
struct model_file {
    uint64_t bytes;
    unsigned char hash[WIRE_MAC];
    char path[256];
};
/* Ranks have one program, so a struct is the same to all. */
struct order {
    struct infer_engine_options options; /* without pointers */
    char text[N_TEXT][64];               /* its texts, "=" in front; "": NULL */
    struct plan_settings set;            /* without pointers */
    int n_kv;                            /* kv[n_kv]: types of the stores, 0: set.kv_type is that of all */
    struct kv_types kv[ORDER_STORES];
    struct model_file file;
    uint64_t adapter[ORDER_ADAPTERS]; /* what they add (adapter.hash): options.n_adapter of them */
};

/* ---- the file ---- */

static void identify(const struct tensorfile *f, unsigned char out[WIRE_MAC]) {
    const uint64_t words = snapshot_fingerprint(f);
    wire_hash(&words, sizeof words, out);
    for (int i = 0; i < f->n_part; i++) wire_sample(f->part[i].data, f->part[i].size, out, out);
}
static void say_file(const struct model_file *o, char *out, size_t n) {
    snprintf(out, n, "%s (%llu bytes, hash %02x%02x%02x%02x%02x%02x)", o->path, (unsigned long long)o->bytes,
             o->hash[0], o->hash[1], o->hash[2], o->hash[3], o->hash[4], o->hash[5]);
}
static void describe(struct model_file *o, const struct model *m) {
    o->bytes = m->file->file_bytes;
    identify(m->file, o->hash);
    snprintf(o->path, sizeof o->path, "%s", m->file->path);
}

/* ---- rank 0 ---- */

int engine_group_threads(const struct infer_group *g, int wanted) {
    const int sharing = group_who(g, group_rank(g))->sharing;
    const int threads = wanted ? wanted : host_threads_pick(0) / (sharing > 0 ? sharing : 1);
    return threads ? threads : 1;
}

enum infer_status engine_place(struct plan_options *po, const struct infer_group *g) {
    int share = 0;
    if (g)
        TRY(device_pick_process(&po->wish, group_rank(g), group_world(g), group_who(g, group_rank(g))->local,
                                &share));
    TRY(device_pick(&po->wish, &po->place));
    if (share > 1) po->place.n_share = share;
    return INFER_OK;
}

enum infer_status engine_group_take(struct infer_engine *e, const struct infer_engine_options *options) {
    if (!options || !options->group || model_drafts(e->model->m)) return INFER_OK;
    TRY(group_take(options->group));
    e->group = options->group;
    return INFER_OK;
}

static enum infer_status tell_adapters(struct order *o, const struct adapters *a) {
    o->options.adapter = NULL, o->options.adapter_scale = NULL;
    o->options.n_adapter = a->n;
    if (a->n > ORDER_ADAPTERS)
        return err_set(INFER_E_UNSUPPORTED, "ranks that are processes have at most %d adapters",
                       ORDER_ADAPTERS);
    for (int i = 0; i < a->n; i++) o->adapter[i] = a->adapter[i]->hash;
    return INFER_OK;
}

enum infer_status engine_group_order(struct infer_engine *e, const struct infer_engine_options *options) {
    if (!e->group || !e->n_rank) return INFER_OK;
    struct order *o = arena_alloc(&e->arena, sizeof *o);
    e->order = arena_alloc(&e->arena, sizeof *e->order);
    if (!o || !e->order) return err_set(INFER_E_MEMORY, "out of memory for what ranks are told");
    o->options = *options;
    o->options.tap = NULL, o->options.tap_user = NULL, o->options.watch = NULL, o->options.watch_user = NULL,
    o->options.before_step = NULL, o->options.before_user = NULL, o->options.profile = NULL,
    o->options.progress = NULL, o->options.user = NULL;
    o->options.group = NULL;
#define TELL_FLAG(field)
#define TELL_SWITCH(field)
#define TELL_INT(field)
#define TELL_NUMBER(field)
#define TELL_BYTES(field)
#define TELL_TEXT(field)                                                                                     \
    if (options->field) snprintf(o->text[TEXT_##field], sizeof o->text[0], "=%s", options->field);           \
    o->options.field = NULL;
#define INFER_OPTION(reader, type, field, ...) TELL_##type(field)
#define INFER_FIELD(reader, type, field)       TELL_##type(field)
#include "infer_options.def"
    o->set = e->plan.set;
    if (o->set.kv) o->n_kv = e->model->m->n_store;
    if (o->n_kv > ORDER_STORES)
        return err_set(INFER_E_UNSUPPORTED,
                       ".kv_type: ranks that are processes have at most %d layers with types", ORDER_STORES);
    if (o->n_kv) memcpy(o->kv, o->set.kv, (size_t)o->n_kv * sizeof *o->kv);
    o->set.kv = NULL;
    describe(&o->file, e->model->m);
    TRY(tell_adapters(o, &e->adapters));
    *e->order = (struct rank_order){e->group, o, sizeof *o};
    return INFER_OK;
}

/* ---- the others ---- */

/* The options as this rank has them. */
static void take_options(struct order *o, const struct infer_group *g, int threads) {
    for (int i = 0; i < N_TEXT; i++) o->text[i][sizeof o->text[0] - 1] = 0;
#define TAKE_FLAG(field)
#define TAKE_SWITCH(field)
#define TAKE_INT(field)
#define TAKE_NUMBER(field)
#define TAKE_BYTES(field)
#define TAKE_TEXT(field)                       o->options.field = o->text[TEXT_##field][0] ? o->text[TEXT_##field] + 1 : NULL;
#define INFER_OPTION(reader, type, field, ...) TAKE_##type(field)
#define INFER_FIELD(reader, type, field)       TAKE_##type(field)
#include "infer_options.def"
    o->options.ranks = group_world(g);
    o->options.threads = engine_group_threads(g, threads);
}

static enum infer_status same_file(const struct order *o, const struct model *m) {
    struct model_file own;
    char here[360], there[360];
    describe(&own, m);
    if (own.bytes == o->file.bytes && !memcmp(own.hash, o->file.hash, sizeof own.hash)) return INFER_OK;
    say_file(&own, here, sizeof here);
    say_file(&o->file, there, sizeof there);
    return err_set(INFER_E_INPUT, "another model: %.200s, rank 0 has %.200s", here, there);
}

/* The adapters of this rank, which are rank 0's. */
static enum infer_status same_adapters(struct order *o, const struct infer_follow_options *own) {
    if (o->options.n_adapter != own->n_adapter || own->n_adapter > ORDER_ADAPTERS)
        return err_set(INFER_E_INPUT, "%d adapters, rank 0 has %d", own->n_adapter, o->options.n_adapter);
    for (int i = 0; i < own->n_adapter; i++) {
        const struct adapter *a = own->adapter[i]->a;
        if (a->hash != o->adapter[i])
            return err_set(INFER_E_INPUT, "another adapter: %.200s (hash %016llx), rank 0 has %016llx",
                           a->path, (unsigned long long)a->hash, (unsigned long long)o->adapter[i]);
    }
    o->options.adapter = own->adapter, o->options.adapter_scale = NULL;
    return INFER_OK;
}

struct share {
    struct model *model;
    struct adapters adapters;
    struct plan plan;
    struct arena arena;
};
/* What it adds of these. */
static enum infer_status take_adapters(struct share *s, const struct order *o, const struct infer_model *m,
                                       struct plan_options *po) {
    struct adapters whole;
    TRY(engine_adapters_read(&whole, &s->arena, m, &o->options));
    if (!whole.n) return INFER_OK;
    po->adapters = &s->adapters;
    return engine_adapters_share(&s->adapters, &s->arena, &whole, s->model);
}
/* The stores' types as rank 0 has them; they lie in the order. */
static enum infer_status take_types(struct order *o, const struct model *m) {
    o->set.kv = NULL;
    bool fine = o->n_kv == 0 ? o->set.kv_type < KV_TYPES : o->n_kv == m->n_store && o->n_kv <= ORDER_STORES;
    for (int i = 0; fine && i < o->n_kv; i++) fine = o->kv[i].k < KV_TYPES && o->kv[i].v < KV_TYPES;
    if (!fine) return err_set(INFER_E_DEVICE, "rank 0 says types of the cache that there are not");
    if (o->n_kv) o->set.kv = o->kv;
    return INFER_OK;
}

static enum infer_status lay_out(struct share *s, struct order *o, const struct infer_group *g,
                                 const struct infer_model *m, const struct infer_follow_options *own) {
    struct plan_options po;
    o->file.path[sizeof o->file.path - 1] = 0;
    TRY(same_file(o, m->m));
    TRY(take_types(o, m->m));
    TRY(same_adapters(o, own));
    take_options(o, g, own->threads);
    TRY(engine_options_read(&po, &o->options));
    TRY(engine_place(&po, g));
    TRY(engine_rank_share(&s->model, m->m, &po, group_rank(g)));
    TRY(take_adapters(s, o, m, &po));
    TRY(plan_lay_out(&s->plan, &s->arena, s->model, &po, &o->set));
    const struct plan_part *last = &s->plan.part[s->plan.n_part - 1];
    if (last->total_bytes > last->limit_bytes)
        return err_set(INFER_E_MEMORY, "does not fit: %.1f GiB wanted, %.1f GiB available",
                       (double)last->total_bytes / (1 << 30), (double)last->limit_bytes / (1 << 30));
    return INFER_OK;
}

static enum infer_status follow_one(struct infer_group *g, struct order *o, const struct infer_model *m,
                                    const struct infer_follow_options *own, bool *closed) {
    struct share *s;
    TRY(mem_new(&s, sizeof *s, "a rank's share"));
    enum infer_status st = m ? lay_out(s, o, g, m, own) : err_set(INFER_E_INPUT, "%s", err_message());
    st = st ? join_refuse(g, st) : join_follow(g, &s->plan, m->m, closed);
    engine_adapters_unshare(&s->adapters);
    model_close(s->model);
    arena_free(&s->arena);
    mem_free(s);
    return st;
}

enum infer_status infer_group_follow(struct infer_group *g, const struct infer_model *m,
                                     const struct infer_follow_options *options) {
    const struct infer_follow_options defaults = {.threads = 0}, *own = options ? options : &defaults;
    struct order *o;
    bool closed = false;
    char why[512]; /* of no model */
    snprintf(why, sizeof why, "%s", err_message());
    TRY(mem_new(&o, sizeof *o, "what rank 0 says"));
    enum infer_status st = INFER_OK;
    while (st == INFER_OK && !closed) {
        struct wire_head head;
        st = group_receive(g, 0, &head, o, sizeof *o, &closed);
        if (st || closed) break;
        if (head.n != sizeof *o) st = err_set(INFER_E_DEVICE, "rank 0 says what is no turn of it");
        if (!m) err_set(INFER_E_INPUT, "%s", why);
        if (!st) st = follow_one(g, o, m, own, &closed);
    }
    mem_free(o);
    return st;
}

enum infer_status infer_group_open(struct infer_group **out, const struct infer_group_options *o) {
    return group_open(out, o, infer_version());
}

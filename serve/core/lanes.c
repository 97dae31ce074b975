#include "serve/core/lanes.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/host.h"
#include "base/mem.h"

struct lanes {
    struct infer_engine *engine;
    uint64_t clock;
    int n, n_adapter;
    struct lane {
        int32_t *ids; /* ids[n] */
        int n;
        uint64_t salt, noted; /* when */
        float *adapter;       /* adapter[n_adapter]; NULL: the engine's own scales */
    } of[];
};

enum infer_status lanes_open(struct lanes **out, struct infer_engine *e, int n_lane) {
    TRY(mem_new(out, sizeof **out + (size_t)n_lane * sizeof(*out)->of[0], "lanes"));
    struct infer_engine_info info;
    infer_engine_info(e, &info);
    (*out)->engine = e;
    (*out)->n = n_lane, (*out)->n_adapter = info.n_adapter;
    return INFER_OK;
}

void lanes_close(struct lanes *l) {
    for (int i = 0; l && i < l->n; i++) mem_free(l->of[i].ids), mem_free(l->of[i].adapter);
    mem_free(l);
}

/* Whether the lane is of these. */
static bool is_of(const struct lanes *l, const struct lane *a, uint64_t salt, const float *adapter) {
    return a->salt == salt && !a->adapter == !adapter &&
           (!adapter || !memcmp(a->adapter, adapter, (size_t)l->n_adapter * sizeof *adapter));
}
/* The lane whose whole text is the longest beginning of ids[n], else the one noted longest ago. */
static int pick(const struct lanes *l, uint64_t salt, const float *adapter, const int32_t *ids, int n) {
    int oldest = 0, best = -1;
    for (int i = 0; i < l->n; i++) {
        const struct lane *a = &l->of[i];
        if (a->noted < l->of[oldest].noted) oldest = i;
        if (a->n && is_of(l, a, salt, adapter) && a->n <= n && (best < 0 || a->n > l->of[best].n) &&
            memcmp(a->ids, ids, (size_t)a->n * sizeof *ids) == 0)
            best = i;
    }
    return best >= 0 ? best : oldest;
}

static enum infer_status set(struct lanes *l, int lane, uint64_t salt, const float *adapter,
                             const int32_t *ids, int n, const int32_t *more, int n_more) {
    const size_t scales = (size_t)l->n_adapter * sizeof *adapter;
    float *own = NULL;
    int32_t *all;
    if (adapter) TRY(mem_new(&own, scales + 1, "a lane"));
    if (adapter) memcpy(own, adapter, scales);
    const enum infer_status s = mem_new(&all, ((size_t)n + (size_t)n_more + 1) * sizeof *all, "a lane");
    if (s) mem_free(own);
    TRY(s);
    if (n) memcpy(all, ids, (size_t)n * sizeof *all);
    if (n_more) memcpy(all + n, more, (size_t)n_more * sizeof *all);
    mem_free(l->of[lane].ids);
    mem_free(l->of[lane].adapter);
    l->of[lane] = (struct lane){all, n + n_more, salt, ++l->clock, own};
    return INFER_OK;
}

int lanes_note(struct lanes *l, int lane, uint64_t salt, const float *adapter, const int32_t *ids, int n,
               const int32_t *more, int n_more) {
    if (lane < 0 || lane >= l->n) lane = pick(l, salt, adapter, ids, n);
    return set(l, lane, salt, adapter, ids, n, more, n_more) ? -1 : lane;
}

/* What there is still of the lane, in the sequence. */
static enum infer_status take(struct lanes *l, const struct lane_order *o, int seq) {
    const struct lane *a = &l->of[o->lane];
    const struct infer_prefix among = {.salt = o->salt, .adapter = a->adapter};
    int n = 0;
    bool done = a->salt != o->salt || a->n < 1;
    if (done) return INFER_OK;
    TRY(infer_seq_prefix(l->engine, seq, a->ids, a->n, &among, &n));
    while (!done) TRY(infer_seq_kept(l->engine, seq, a->ids, a->n, &among, 1, &n, &done));
    return INFER_OK;
}

static enum infer_status save(struct lanes *l, struct lane_order *o, int seq) {
    TRY(take(l, o, seq));
    o->n = infer_seq_length(l->engine, seq);
    return infer_seq_save(l->engine, seq, o->file);
}

static enum infer_status restore(struct lanes *l, struct lane_order *o, int seq) {
    const struct infer_prefix among = {.salt = o->salt, .adapter = o->adapter};
    TRY(infer_seq_prefix(l->engine, seq, NULL, 0, &among, &o->n)); /* whose it is */
    TRY(infer_seq_load(l->engine, seq, o->file));
    o->n = infer_seq_length(l->engine, seq);
    return set(l, o->lane, o->salt, o->adapter, infer_seq_ids(l->engine, seq), o->n, NULL, 0);
}

static enum infer_status erase(struct lanes *l, struct lane_order *o, int seq) {
    struct lane *a = &l->of[o->lane];
    TRY(take(l, o, seq));
    TRY(infer_seq_forget(l->engine, seq));
    if (a->salt != o->salt) return INFER_OK;
    o->n = a->n;
    mem_free(a->ids), mem_free(a->adapter);
    *a = (struct lane){0};
    return INFER_OK;
}

bool lanes_do(struct lanes *l, struct lane_order *o) {
    static enum infer_status (*const of[])(struct lanes *, struct lane_order *, int) = {save, restore, erase};
    const double begin = host_seconds();
    struct stat st;
    int seq;
    o->n = 0;
    o->status = o->lane < 0 || o->lane >= l->n
                    ? err_set(INFER_E_INPUT, "there are %d slots, 0 to %d", l->n, l->n - 1)
                    : infer_seq_open(l->engine, &seq);
    if (o->status == INFER_E_FULL) return false;
    if (!o->status) {
        o->status = of[o->action](l, o, seq);
        infer_seq_close(l->engine, seq);
    }
    if (!o->status && o->action != LANE_ERASE && stat(o->file, &st) == 0) o->bytes = (uint64_t)st.st_size;
    o->ms = 1e3 * (host_seconds() - begin);
    if (o->status) snprintf(o->message, sizeof o->message, "%s", err_message());
    return true;
}

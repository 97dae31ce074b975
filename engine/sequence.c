/* Sequences: open and close, rewind, shared prefixes, snapshots. */
#include "engine_impl.h"
#include "cache/snapshot.h"

struct kv_find engine_find(const struct infer_engine *e, const struct infer_prefix *among) {
    const uint64_t adapter = engine_adapter_key(e, among ? among->adapter : NULL);
    return among ? (struct kv_find){among->salt, among->exact, adapter, among->alone}
                 : (struct kv_find){.adapter = adapter};
}

enum infer_status infer_seq_open(struct infer_engine *e, int *seq) {
    struct kv_moves none;
    TRY(kv_open(&e->kv, seq));
    e->last[*seq] = -1;
    if (!e->adapters.n) return INFER_OK;
    const struct kv_find find = engine_find(e, NULL);
    engine_adapt(e, *seq, NULL);
    kv_match(&e->kv, *seq, NULL, 0, &find, &none); /* what it computes is known by that */
    return INFER_OK;
}

bool engine_in_flight(const struct infer_engine *e, int seq) {
    for (unsigned k = e->n_wait; k != e->n_submit; k++)
        if (e->flight[k % PLAN_FLIGHTS].length_before[seq] >= 0) return true;
    return false;
}

static void put_off(struct infer_engine *e, int seq, int32_t what) {
    if (e->after[seq] == AFTER_NOTHING) e->n_after++;
    e->after[seq] = what;
}

void infer_seq_close(struct infer_engine *e, int seq) {
    if (!seq_is_open(e, seq)) infer_bug("sequence %d is not open", seq);
    engine_kept_leave(e, seq);
    if (engine_in_flight(e, seq))
        put_off(e, seq, AFTER_CLOSE); /* the step writes its pages, and has an answer for it */
    else
        kv_close(&e->kv, seq);
}

int infer_kv_free(const struct infer_engine *e) { return kv_free(&e->kv) * KV_PAGE; }

enum infer_status engine_copy_state(struct infer_engine *e, int from, int to) {
    const struct backend_type *type = e->backend->type;
    const struct backend_config *c = &e->whole;
    const struct state *s = &e->kv.state;
    const int first = s->n_slot, copies = e->host_state ? s->n_keep : 0;
    const bool out = copies && to >= first && to < first + copies,
               in = copies && from >= first && from < first + copies;
    if (to >= first + copies) to -= copies;
    if (from >= first + copies) from -= copies;
    if (!out && !in) return type->state_copy(e->backend, from, to);
    size_t all = 0;
    for (int i = 0; i < c->n_state; i++) all += (size_t)c->state[i].n_elem;
    float *x = e->host_state + all * (size_t)((out ? to : from) - first);
    for (int i = 0; i < c->n_state; x += c->state[i++].n_elem)
        TRY(out ? type->state_read(e->backend, i, from, x) : type->state_write(e->backend, i, to, x));
    return INFER_OK;
}

enum infer_status engine_read_state(struct infer_engine *e, int slot, float *out) {
    const struct backend_config *c = &e->whole;
    const struct state *s = &e->kv.state;
    size_t all = 0;
    for (int i = 0; i < c->n_state; i++) all += (size_t)c->state[i].n_elem;
    if (e->host_state && slot >= s->n_slot && slot < s->n_slot + s->n_keep) {
        memcpy(out, e->host_state + all * (size_t)(slot - s->n_slot), all * sizeof *out);
        return INFER_OK;
    }
    for (int i = 0; i < c->n_state; out += c->state[i++].n_elem)
        TRY(e->backend->type->state_read(e->backend, i, slot, out));
    return INFER_OK;
}

enum infer_status engine_move(struct infer_engine *e, const struct kv_moves *m) {
    const struct backend_type *type = e->backend->type;
    for (int i = 0; i < m->n_page; i++)
        TRY(type->kv_copy(e->backend, m->page[i].group, m->page[i].from, m->page[i].to));
    return m->state_from < 0 ? INFER_OK : engine_copy_state(e, m->state_from, m->state_to);
}

/* errors: INFER_E_DEVICE */
static enum infer_status go_back(struct infer_engine *e, int seq, int n) {
    struct kv_moves moves;
    const struct kv_seq *s = &e->kv.seq[seq];
    const int known = n < s->n_known ? n : s->n_known;
    enum infer_status st = kv_rewind(&e->kv, seq, n, KV_COMPUTED, &moves);
    if (st == INFER_E_FULL) /* no page for a copy of one that is shared: it is left */
        st = kv_rewind(&e->kv, seq, n / KV_PAGE * KV_PAGE, KV_COMPUTED, &moves);
    TRY(st);
    e->last[seq] = -1;
    /* what it let go of may still be known as a prefix */
    if (!s->length && known) kv_match(&e->kv, seq, s->ids, known + 1, NULL, &moves);
    return engine_move(e, &moves);
}

enum infer_status infer_seq_rewind(struct infer_engine *e, int seq, int n) {
    if (!seq_is_open(e, seq) || n < 0 || n > e->kv.seq[seq].length)
        return err_set(INFER_E_INPUT, "cannot rewind sequence %d to %d", seq, n);
    engine_kept_leave(e, seq);
    if (engine_in_flight(e, seq)) {
        if (e->after[seq] == AFTER_NOTHING || n < e->after[seq]) put_off(e, seq, n);
        return INFER_OK;
    }
    TRY(go_back(e, seq, n));
    return engine_goes_on(e, seq);
}

void engine_settle(struct infer_engine *e) {
    for (int i = 0; e->n_after && i < e->kv.n_slot; i++) {
        const int32_t what = e->after[i];
        if (what == AFTER_NOTHING || engine_in_flight(e, i)) continue;
        e->after[i] = AFTER_NOTHING;
        e->n_after--;
        if (what == AFTER_CLOSE)
            kv_close(&e->kv, i);
        else
            engine_poison(e, go_back(e, i, what)); /* its rows that are computed again: with the next step */
    }
}

enum infer_status infer_seq_prefix(struct infer_engine *e, int seq, const int32_t *ids, int n,
                                   const struct infer_prefix *among, int *n_shared) {
    if (!seq_is_open(e, seq) || e->kv.seq[seq].length)
        return err_set(INFER_E_INPUT, "sequence %d is not open and empty", seq);
    struct kv_moves moves;
    const struct kv_find find = engine_find(e, among);
    engine_adapt(e, seq, among ? among->adapter : NULL);
    *n_shared = kv_match(&e->kv, seq, ids, n < e->kv.n_ctx ? n : e->kv.n_ctx, &find, &moves);
    if (e->kept) engine_kept_used(e, seq);
    return engine_move(e, &moves);
}

int infer_prefix_probe(struct infer_engine *e, const int32_t *ids, int n, const struct infer_prefix *among,
                       int *n_free) {
    const struct kv_find find = engine_find(e, among);
    int pages;
    const int shared = kv_probe(&e->kv, ids, n < e->kv.n_ctx ? n : e->kv.n_ctx, &find, &pages);
    if (n_free) *n_free = pages * KV_PAGE;
    return shared;
}

uint64_t infer_replayed(const struct infer_engine *e) { return e->n_replayed; }

int32_t infer_embed_id(const struct infer_engine *e, const float *embed) {
    return kv_embed_id(&e->kv, embed, e->model->m->n_embd * (1 + e->model->m->n_deepstack));
}

int infer_seq_length(const struct infer_engine *e, int seq) {
    return seq_is_open(e, seq) ? e->kv.seq[seq].length : -1;
}

const int32_t *infer_seq_ids(const struct infer_engine *e, int seq) {
    return seq_is_open(e, seq) ? e->kv.seq[seq].ids : NULL;
}

/* What a snapshot of seq is taken from. */
static enum infer_status snapshot_place(struct infer_engine *e, int seq, struct snapshot_place *out) {
    if (!seq_is_open(e, seq)) return err_set(INFER_E_INPUT, "sequence %d is not open", seq);
    if (e->n_submit != e->n_wait) return err_set(INFER_E_INPUT, "a step is in flight");
    if (e->poisoned) return err_set(INFER_E_DEVICE, "the engine failed before: %s", e->poison);
    TRY(engine_replay(e, seq));
    const uint64_t adapter =
        e->adapters.n ? engine_adapter_key(e, e->scale + (size_t)e->adapters.n * (size_t)seq) : 0;
    *out =
        (struct snapshot_place){e->backend, &e->whole, e->model->m->file, &e->kv, &e->fingerprint, adapter};
    return INFER_OK;
}

enum infer_status infer_seq_save(struct infer_engine *e, int seq, const char *path) {
    struct snapshot_place p;
    TRY(snapshot_place(e, seq, &p));
    return snapshot_save(&p, seq, path);
}

enum infer_status infer_seq_load(struct infer_engine *e, int seq, const char *path) {
    struct snapshot_place p;
    TRY(snapshot_place(e, seq, &p));
    if (e->kv.seq[seq].length) return err_set(INFER_E_INPUT, "sequence %d is not empty", seq);
    e->last[seq] = -1;
    TRY(snapshot_load(&p, seq, path));
    const int to = kv_keep_state(&e->kv, seq, true);
    return to < 0 ? INFER_OK : engine_copy_state(e, seq, to);
}

enum infer_status infer_seq_forget(struct infer_engine *e, int seq) {
    struct kv_moves moves;
    if (!seq_is_open(e, seq) || e->n_submit != e->n_wait)
        return err_set(INFER_E_INPUT, "sequence %d is not open, or a step is in flight", seq);
    if (e->kept) engine_kept_forget(e, seq);
    engine_kept_leave(e, seq);
    e->last[seq] = -1;
    return kv_rewind(&e->kv, seq, 0, KV_LOST, &moves);
}

/* States that stand behind the end of their sequence, since they cannot be undone: the rows between are computed again, of the classes and
 * in the runs that they once came in, so that their bits are the same. */
#include "engine_impl.h"

/* The next rows of a replay: how many, of one class, as they once came. */
static int replay_run(const struct infer_engine *e, const struct kv_seq *s, int from, enum row_class *cls) {
    *cls = s->how[from] & KV_DECODED ? ROW_DECODE : ROW_PROMPT;
    const int most = last_part(e)->list[*cls].max_rows;
    int n = 1;
    while (n < most && from + n < s->length &&
           (s->how[from + n] & KV_DECODED) == (s->how[from] & KV_DECODED) &&
           !(*cls == ROW_PROMPT && e->grid && s->how[from + n] & KV_BEGINS && (from + n) % e->grid))
        n++;
    if (*cls == ROW_PROMPT && e->grid && n == most && n > (from + n) % e->grid) n -= (from + n) % e->grid;
    return n;
}

void engine_put_again(struct infer_engine *e, struct flight *f, enum row_class c, int at, int seq, int from,
                      int n) {
    for (int i = 0; i < n; i++) {
        f->id[c][at + i] = e->kv.seq[seq].ids[from + i];
        f->pos[c][at + i] = from + i;
        f->slot[c][at + i] = seq;
        f->input[c][at + i] = NULL;
        f->until[c][at + i] = from + i;
        for (int a = 0; a < 3; a++) f->axis[c][a][at + i] = from + i - e->kv.seq[seq].shift[from + i];
    }
    e->n_replayed += (uint64_t)n;
}

enum infer_status engine_replay(struct infer_engine *e, int seq) {
    struct kv_seq *s = &e->kv.seq[seq];
    struct flight *f = &e->flight[e->n_submit % PLAN_FLIGHTS];
    struct step_result result;
    struct kv_moves moves;
    enum row_class c;
    while (e->kv.state.n_keep && s->n_state < s->length) {
        int n = replay_run(e, s, s->n_state, &c);
        engine_put_again(e, f, c, 0, seq, s->n_state, n);
        f->step[c] = (struct step){.n_row = n,
                                   .id = f->id[c],
                                   .pos = f->pos[c],
                                   .slot = f->slot[c],
                                   .pages = e->kv.tables,
                                   .pages_version = e->kv.version,
                                   .axis = {f->axis[c][0], f->axis[c][1], f->axis[c][2]}};
        enum infer_status st = e->backend->type->run(e->backend, c, &f->step[c]);
        if (!st) st = e->backend->type->wait(e->backend, &result);
        s->n_state += n;
        if (!st) continue;
        kv_state_lost(&e->kv, seq, &moves);
        (void)engine_move(e, &moves);
        return st;
    }
    return INFER_OK;
}

/* Rows that a sequence's state lacks and that can be the first decode rows of a step that has others of it; -1: they cannot. */
static int joins_step(const struct infer_engine *e, int seq, int room) {
    const struct kv_seq *s = &e->kv.seq[seq];
    if (s->length - s->n_state > room) return -1;
    for (int i = s->n_state; i < s->length; i++)
        if (!(s->how[i] & KV_DECODED)) return -1;
    return s->length - s->n_state;
}

enum infer_status engine_goes_on(struct infer_engine *e, int seq) {
    if (!e->kv.state.n_keep || e->n_submit != e->n_wait || e->hidden)
        return INFER_OK; /* which may still be read */
    return joins_step(e, seq, last_part(e)->list[ROW_DECODE].max_rows - 1) < 0 ? engine_replay(e, seq)
                                                                               : INFER_OK;
}

enum infer_status engine_catch_up(struct infer_engine *e, const struct infer_row *rows, int n) {
    int room = last_part(e)->list[ROW_DECODE].max_rows;
    for (int i = 0; i < n; i++) room -= rows[i].decode;
    for (int i = 0; e->kv.state.n_keep && i < n; i++) {
        int seq = rows[i].seq;
        if (rows[i].pos != e->kv.seq[seq].length || e->kv.seq[seq].n_state == rows[i].pos) continue;
        int joined = joins_step(e, seq, room);
        if (joined > 0) room -= joined;
        if (joined >= 0) continue;
        if (e->n_submit != e->n_wait)
            return err_set(INFER_E_INPUT, "row %d: sequence %d computes rows again, but a step is in flight",
                           i, seq);
        TRY(engine_replay(e, seq));
    }
    return INFER_OK;
}

enum infer_status engine_mark(struct infer_engine *e, const struct infer_row *rows, int n) {
    for (int i = 0; e->kv.state.n_mark && i + 1 < n; i++) {
        const struct infer_row *r = &rows[i];
        if (!r->decode || !r[1].decode || r[1].seq != r->seq || r->pos != e->kv.seq[r->seq].length) continue;
        int to = kv_mark(&e->kv, r->seq);
        if (to >= 0) TRY(engine_copy_state(e, r->seq, to));
    }
    return INFER_OK;
}

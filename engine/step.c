/* Steps: rows checked, placed and queued; results handed back in the order that they were asked for. */
#include "engine_impl.h"

#include <float.h>
#include <stdio.h>
#include "base/host.h"

static_assert((int)INFER_LAST == STEP_LAST && (int)INFER_WANT_TOKEN == WANT_TOKEN &&
                  (int)INFER_WANT_LOGITS == WANT_LOGITS && (int)INFER_WANT_TOP == WANT_TOP,
              "rows of infer.h go into a step as they are");

/* Whether a queued step will sample a token for this sequence. */
static bool samples_in_flight(const struct infer_engine *e, int seq) {
    for (unsigned k = e->n_wait; k != e->n_submit; k++) {
        const struct flight *f = &e->flight[k % PLAN_FLIGHTS];
        for (int i = 0; i < f->n_out; i++)
            if (f->out_slot[i] == seq && f->want[f->out_cls[i]][f->out_index[i]] & INFER_WANT_TOKEN)
                return true;
    }
    return false;
}

/* A draw is what infer_draw.h says. */
static enum infer_status check_draw(const struct infer_engine *e, const struct infer_draw *d, int i) {
    bool ok = d->u >= 0 && d->u < 1 && d->n_edit >= 0 && d->n_edit <= INFER_EDITS_MAX;
    unsigned seen = 0;
    for (int k = 0; ok && (k == 0 || d->order[k - 1]); k++) {
        ok = k < (int)sizeof d->order && d->order[k] < INFER_DRAW_STEPS && !(seen >> d->order[k] & 1);
        if (ok && d->order[k]) seen |= 1u << d->order[k];
    }
    if (ok && seen >> INFER_DRAW_TOP_K & 1) ok = d->top_k >= 1;
    if (ok && seen >> INFER_DRAW_TOP_P & 1) ok = d->top_p >= 0 && d->top_p <= 1;
    if (ok && seen >> INFER_DRAW_MIN_P & 1) ok = d->min_p >= 0 && d->min_p <= 1;
    if (ok && seen >> INFER_DRAW_TEMP & 1) ok = d->temp >= 1e-6f && d->temp <= FLT_MAX;
    for (int k = 0; ok && k < d->n_edit; k++) ok = d->edit[k].id >= 0 && d->edit[k].id < e->model->m->n_vocab;
    return ok ? INFER_OK : err_set(INFER_E_INPUT, "row %d: the draw is out of range (infer_draw.h)", i);
}

/* A row that is no token. */
static enum infer_status check_embed(const struct infer_engine *e, const struct infer_row *r, int i) {
    if (e->rows) return err_set(INFER_E_UNSUPPORTED, "row %d: this model takes tokens alone (it drafts)", i);
    if (r->decode) return err_set(INFER_E_INPUT, "row %d: a row that is no token is one of a prompt", i);
    for (int k = 0; k < e->plan.n_part; k++) { /* the parts of its row do not cross */
        const int first = e->plan.part[k].range.first;
        if (first && first < e->model->m->n_deepstack)
            return err_set(
                INFER_E_UNSUPPORTED,
                "row %d: the first %d layers take parts of a picture's row, and lie on two devices", i,
                e->model->m->n_deepstack);
    }
    return INFER_OK;
}

/* A row of an encoder: texts are whole, in one step. */
static enum infer_status check_text_row(const struct infer_engine *e, const struct infer_row *r, int i) {
    const struct model *m = e->model->m;
    if (r->type < 0 || r->type >= (m->encoder ? m->n_type : 1))
        return err_set(INFER_E_INPUT, "row %d: token type %d of %d", i, r->type, m->encoder ? m->n_type : 1);
    if (m->no_head && r->want)
        return err_set(INFER_E_INPUT, "row %d: the model's files have no head: it chooses no tokens", i);
    if (!m->encoder) return INFER_OK;
    if (r->decode || r->want)
        return err_set(INFER_E_INPUT, "row %d: an encoder makes vectors of texts and chooses no tokens", i);
    if (e->kv.seq[r->seq].length)
        return err_set(INFER_E_INPUT, "row %d: a text of an encoder is one step; sequence %d holds %d tokens",
                       i, r->seq, e->kv.seq[r->seq].length);
    return INFER_OK;
}

/* What the rows of a class that were looked at so far come to. */
struct count {
    int rows, outs, logits;
};
/* Checks row i and counts it; length: where its sequence stands. */
static enum infer_status check_row(const struct infer_engine *e, const struct infer_row *r, int i, int length,
                                   struct count *n) {
    if (r->embed) TRY(check_embed(e, r, i));
    TRY(check_text_row(e, r, i));
    if (!r->embed && r->id != INFER_LAST && (r->id < 0 || r->id >= model_ids(e->model->m)))
        return err_set(INFER_E_INPUT, "row %d: token %d is outside of the vocabulary of %d", i, r->id,
                       model_ids(e->model->m));
    if (e->rows && (!e->given || r->id == INFER_LAST))
        return err_set(INFER_E_INPUT,
                       "row %d: a model that drafts takes a token and what a model made of the one before",
                       i);
    if (!r->embed && r->id == INFER_LAST && e->last[r->seq] < 0 && !samples_in_flight(e, r->seq))
        return err_set(INFER_E_INPUT, "row %d: sequence %d has sampled no token", i, r->seq);
    if (r->pos != length)
        return err_set(INFER_E_INPUT, "row %d: position %d does not continue sequence %d, which holds %d", i,
                       r->pos, r->seq, length);
    const struct op_list *l = &last_part(e)->list[r->decode ? ROW_DECODE : ROW_PROMPT];
    int n_logits = last_part(e)->config.n_logits;
    if (++n->rows > l->max_rows)
        return err_set(INFER_E_INPUT, "row %d: more than %d %s rows in a step", i, l->max_rows,
                       r->decode ? "decode" : "prompt");
    if (r->want && ++n->outs > l->max_out)
        return err_set(INFER_E_INPUT, "row %d: more than %d outputs of %s rows", i, l->max_out,
                       r->decode ? "decode" : "prompt");
    if (r->want & INFER_WANT_LOGITS && ++n->logits > n_logits)
        return err_set(INFER_E_INPUT,
                       "row %d: more than %d rows of logits in a step; all_logits has room for all", i,
                       n_logits);
    return r->want && r->draw ? check_draw(e, r->draw, i) : INFER_OK;
}

/* Puts the checked rows into the flight's arrays, by class. */
static void fill_flight(struct infer_engine *e, struct flight *f, const struct infer_row *rows, int n) {
    int n_row[ROW_CLASS_COUNT] = {0}, n_out[ROW_CLASS_COUNT] = {0}, n_given[ROW_CLASS_COUNT] = {0};
    bool embeds = false, turns = false, ahead = false;
    f->n_out = f->n_joined = 0;
    for (int i = 0; i < n; i++) {
        struct kv_seq *s = &e->kv.seq[rows[i].seq];
        if (e->kv.state.n_keep && s->n_state < rows[i].pos) { /* what joins the step comes first */
            engine_put_again(e, f, ROW_DECODE, n_row[ROW_DECODE], rows[i].seq, s->n_state,
                             rows[i].pos - s->n_state);
            turns |= s->shift[rows[i].pos - 1] != 0;
            n_row[ROW_DECODE] += rows[i].pos - s->n_state;
            f->n_joined += rows[i].pos - s->n_state;
        }
        kv_state_runs(&e->kv, rows[i].seq);
        int c = rows[i].decode ? ROW_DECODE : ROW_PROMPT, t = n_row[c]++;
        f->place[c][n_given[c]++] = t;
        f->id[c][t] = rows[i].embed ? 0 : e->kv.seq[rows[i].seq].ids[rows[i].pos];
        f->pos[c][t] = rows[i].pos + rows[i].type * e->model->m->n_ctx_train; /* model.position */
        f->slot[c][t] = rows[i].seq;
        f->input[c][t] = rows[i].embed;
        for (int k = 0; k < 3; k++) f->axis[c][k][t] = rows[i].axis ? rows[i].axis[k] : rows[i].pos;
        f->until[c][t] = rows[i].until > rows[i].pos ? rows[i].until : rows[i].pos;
        ahead |= rows[i].until > rows[i].pos;
        embeds |= rows[i].embed != NULL;
        turns |= rows[i].axis != NULL;
        if (!rows[i].want) continue;
        f->out_cls[f->n_out] = (uint8_t)c;
        f->out_index[f->n_out] = n_out[c];
        f->out_slot[f->n_out++] = rows[i].seq;
        f->out_row[c][n_out[c]] = t;
        f->draw[c][n_out[c]] = rows[i].draw;
        f->want[c][n_out[c]++] = rows[i].want;
    }
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        f->step[c] = (struct step){.n_row = n_row[c],
                                   .n_out = n_out[c],
                                   .id = f->id[c],
                                   .pos = f->pos[c],
                                   .slot = f->slot[c],
                                   .out_row = f->out_row[c],
                                   .want = f->want[c],
                                   .pages = e->kv.tables,
                                   .pages_version = e->kv.version,
                                   .draw = f->draw[c],
                                   .input = embeds ? f->input[c] : NULL,
                                   .axis = {turns ? f->axis[c][0] : NULL, turns ? f->axis[c][1] : NULL,
                                            turns ? f->axis[c][2] : NULL},
                                   .until = ahead ? f->until[c] : NULL,
                                   .adapter = e->adapters.n ? e->scale_of : NULL};
}

/* The first position that a queued step computes of a sequence, or from. */
static int oldest(const struct infer_engine *e, int seq, int from) {
    for (unsigned k = e->n_wait; k != e->n_submit; k++) {
        int before = e->flight[k % PLAN_FLIGHTS].length_before[seq];
        if (before >= 0 && before < from) from = before;
    }
    return from;
}

/* ---- queueing -------------------------------------------------------------------------------------------------- */

/* Whether all sequences find pages for their rows; end[n_slot]: where each stands then. Nothing but what no row sees is let go of. */
static enum infer_status find_room(struct infer_engine *e, const int32_t *end) {
    int wanted[KV_GROUPS] = {0};
    for (int i = 0; i < e->kv.n_slot; i++) {
        const int length = e->kv.seq[i].length;
        if (end[i] > length) TRY(kv_room(&e->kv, i, end[i], oldest(e, i, length), wanted));
    }
    return INFER_OK;
}

static int32_t shift_of(const struct infer_row *r) {
    if (r->embed) return KV_GIVEN;
    if (!r->axis) return 0;
    return r->axis[0] == r->axis[1] && r->axis[0] == r->axis[2] ? r->pos - r->axis[0] : KV_GIVEN;
}

/* Takes pages for the rows and moves the lengths on. */
static enum infer_status place_rows(struct infer_engine *e, struct flight *f, const struct infer_row *rows,
                                    int n) {
    for (int i = 0; i < e->kv.n_slot; i++) f->length_before[i] = -1;
    for (int i = 0; i < n; i++) {
        int seq = rows[i].seq;
        if (f->length_before[seq] < 0) f->length_before[seq] = e->kv.seq[seq].length;
        int32_t id = rows[i].embed ? rows[i].id < -1 ? rows[i].id : infer_embed_id(e, rows[i].embed)
                     : rows[i].id == INFER_LAST ? e->last[seq]
                                                : rows[i].id;
        bool begins = i == 0 || rows[i - 1].seq != seq || rows[i - 1].decode != rows[i].decode;
        uint8_t how = (uint8_t)((rows[i].decode ? KV_DECODED : 0) | (begins ? KV_BEGINS : 0));
        TRY(kv_reserve(&e->kv, seq, rows[i].pos + 1, oldest(e, seq, f->length_before[seq])));
        kv_append(&e->kv, seq, &id, &how, 1);
        e->kv.seq[seq].shift[rows[i].pos] = shift_of(&rows[i]);
        e->last[seq] = -1;
    }
    return INFER_OK;
}

/* Lengths back to those before the step, as far as every layer can. */
static void restore_lengths(struct infer_engine *e, const struct flight *f, enum kv_beyond beyond) {
    struct kv_moves moves;
    for (int i = 0; i < e->kv.n_slot; i++)
        if (f->length_before[i] >= 0 && e->kv.seq[i].open && e->kv.seq[i].length > f->length_before[i] &&
            kv_rewind(&e->kv, i, f->length_before[i], beyond, &moves) == INFER_OK)
            (void)engine_move(e, &moves);
}

/* Whether row i comes behind rows of other sequences that came behind earlier ones of its own. */
static bool stands_apart(const struct infer_row *rows, int i) {
    int k = i - 1;
    while (k >= 0 && rows[k].decode != rows[i].decode) k--;
    if (k < 0 || rows[k].seq == rows[i].seq) return false;
    for (; k >= 0; k--)
        if (rows[k].seq == rows[i].seq && rows[k].decode == rows[i].decode) return true;
    return false;
}

static enum infer_status check_rows(struct infer_engine *e, const struct infer_row *rows, int n) {
    struct count count[2] = {{0}};
    if (e->poisoned) return err_set(INFER_E_DEVICE, "the engine failed before: %s", e->poison);
    if (e->n_submit - e->n_wait >= PLAN_FLIGHTS)
        return err_set(INFER_E_INPUT, "%d steps are in flight already", PLAN_FLIGHTS);
    if (n < 1) return err_set(INFER_E_INPUT, "a step of %d rows", n);
    if (e->rows && e->n_submit != e->n_wait)
        return err_set(INFER_E_INPUT, "a step of a model that drafts is in flight");
    struct flight *f = &e->flight[e->n_submit % PLAN_FLIGHTS];
    for (int i = 0; i < e->kv.n_slot; i++)
        f->length_before[i] = e->kv.seq[i].length; /* as scratch: where each stands */
    for (int i = 0; i < n; i++) {
        if (!seq_is_open(e, rows[i].seq))
            return err_set(INFER_E_INPUT, "row %d: sequence %d is not open", i, rows[i].seq);
        if (e->after[rows[i].seq] != AFTER_NOTHING)
            return err_set(INFER_E_INPUT,
                           "row %d: sequence %d goes back to %d once the steps in flight are read", i,
                           rows[i].seq, e->after[rows[i].seq]);
        if (e->rows && rows[i].decode != rows[0].decode)
            return err_set(INFER_E_INPUT, "row %d: a step of a model that drafts has rows of one class", i);
        if ((e->kv.state.n_keep || e->model->m->encoder) && stands_apart(rows, i))
            return err_set(INFER_E_INPUT, "row %d: the rows of sequence %d do not stand together", i,
                           rows[i].seq);
        TRY(check_row(e, &rows[i], i, f->length_before[rows[i].seq]++, &count[rows[i].decode]));
    }
    for (int i = 0; i < n; i++)
        if (rows[i].until >= f->length_before[rows[i].seq] || (rows[i].until > rows[i].pos && rows[i].decode))
            return err_set(INFER_E_INPUT,
                           "row %d: it sees position %d, and sequence %d ends at %d in this step", i,
                           rows[i].until, rows[i].seq, f->length_before[rows[i].seq]);
    return find_room(e, f->length_before);
}

/* Keeps copies of the states behind a step with prompt rows: the next prefix or rewind starts from there. */
static enum infer_status keep_states(struct infer_engine *e, const struct flight *f) {
    const struct step *s = &f->step[ROW_PROMPT];
    for (int t = 0, first = 0; e->kv.state.n_keep && t < s->n_row; t++) {
        if (t + 1 < s->n_row && s->slot[t + 1] == s->slot[t]) continue;
        bool filled = t + 1 - first == last_part(e)->list[ROW_PROMPT].max_rows;
        first = t + 1;
        bool wanted = false;
        for (int k = 0; k < s->n_out; k++) wanted |= s->out_row[k] == t;
        int to =
            kv_keep_state(&e->kv, s->slot[t], !filled || wanted || (s->pos[t] + 1) % INFER_STATE_STEP == 0);
        if (to >= 0) TRY(engine_copy_state(e, s->slot[t], to));
    }
    return INFER_OK;
}

/* A step of a class that is over: of a backend that queues, others were before it on the device. */
static void tell_step(struct infer_engine *e, const struct flight *f, enum row_class cls) {
    const int64_t begin = f->begin[cls] > e->told ? f->begin[cls] : e->told;
    profile_step(e->profile, cls, f->step[cls].n_row, begin);
    if (e->queues) e->told = profile_now();
}

/* The decode list, then the prompt list. */
static enum infer_status run_flight(struct infer_engine *e, struct flight *f) {
    static const enum row_class order[] = {ROW_DECODE, ROW_PROMPT};
    for (int i = 0; i < ROW_CLASS_COUNT; i++) {
        if (!f->step[order[i]].n_row) continue;
        if (e->profile) f->begin[order[i]] = profile_now();
        TRY(e->backend->type->run(e->backend, order[i], &f->step[order[i]]));
        if (e->profile && !e->queues) tell_step(e, f, order[i]);
    }
    return INFER_OK;
}

void engine_poison(struct infer_engine *e, enum infer_status s) {
    if (s != INFER_E_DEVICE) return;
    e->poisoned = true;
    snprintf(e->poison, sizeof e->poison, "%s", err_message());
}

enum infer_status infer_submit(struct infer_engine *e, const struct infer_row *rows, int n) {
    TRY(check_rows(e, rows, n));
    if (e->before_step) e->before_step(e->before_user);
    mem_forbid(true);
    enum infer_status caught = engine_catch_up(e, rows, n);
    if (!caught) caught = engine_mark(e, rows, n);
    mem_forbid(false);
    if (caught) engine_poison(e, caught);
    TRY(caught);
    struct flight *f = &e->flight[e->n_submit % PLAN_FLIGHTS];
    f->queued = host_seconds();
    mem_forbid(true);
    enum infer_status s = place_rows(e, f, rows, n);
    enum kv_beyond beyond = s == INFER_OK ? KV_LOST : KV_NOT_RUN;
    if (s == INFER_OK) {
        fill_flight(e, f, rows, n);
        if (e->rows) engine_hidden_fill(e, f, rows, n);
        s = run_flight(e, f);
        if (s == INFER_OK) s = keep_states(e, f);
    }
    mem_forbid(false);
    if (s == INFER_OK) {
        e->n_submit++;
    } else {
        restore_lengths(e, f, beyond);
        engine_poison(e, s);
    }
    return s;
}

/* A sequence's newest token is the id of the row that was queued as INFER_LAST behind this step, or of the next one. */
static void learn_tokens(struct infer_engine *e, const struct flight *f) {
    for (int i = 0; i < f->n_out; i++) {
        int slot = f->out_slot[i];
        if (f->token[i] < 0 || e->last_out[slot] != i || !e->kv.seq[slot].open) continue;
        if (e->kv.seq[slot].n_known < e->kv.seq[slot].length)
            kv_learn(&e->kv, slot, f->token[i]);
        else
            e->last[slot] = f->token[i];
    }
}

/* Result i of a head with ids of its own, in those of its target. */
static void in_target(const struct model *m, struct flight *f, int i) {
    if (f->token[i] >= 0) f->token[i] = m->target_id[f->token[i]];
    if (!f->top[i]) return;
    f->top_ids[i] = *f->top[i];
    for (int k = 0; k < f->top_ids[i].n; k++) f->top_ids[i].id[k] = m->target_id[f->top_ids[i].id[k]];
    f->top[i] = &f->top_ids[i];
}

/* Collects the results of every class of a flight; the first fault counts, but every run is waited for. */
static enum infer_status collect(struct infer_engine *e, struct flight *f) {
    static const enum row_class order[] = {ROW_DECODE, ROW_PROMPT};
    struct step_result r[ROW_CLASS_COUNT] = {{0}};
    size_t n_logits[ROW_CLASS_COUNT] = {0}, n_vocab = (size_t)e->model->m->n_vocab;
    enum infer_status first = INFER_OK;
    for (int i = 0; i < ROW_CLASS_COUNT; i++) {
        if (!f->step[order[i]].n_row) continue;
        enum infer_status s = e->backend->type->wait(e->backend, &r[order[i]]);
        if (e->profile && e->queues) tell_step(e, f, order[i]);
        if (first == INFER_OK) first = s;
    }
    if (first != INFER_OK) return first;
    for (int i = 0; i < f->n_out; i++) {
        const struct step_result *from = &r[f->out_cls[i]];
        int j = f->out_index[i];
        uint8_t want = f->want[f->out_cls[i]][j];
        f->token[i] = from->token[j];
        f->logits[i] = want & INFER_WANT_LOGITS ? from->logits + n_logits[f->out_cls[i]]++ * n_vocab : NULL;
        f->top[i] = want & INFER_WANT_TOP ? &from->top[j] : NULL;
        if (e->model->m->target_id) in_target(e->model->m, f, i);
        if (f->token[i] >= 0) e->last_out[f->out_slot[i]] = i;
    }
    learn_tokens(e, f);
    for (int i = 0; i < e->kv.n_slot; i++) /* what the step saw and no row will any more */
        if (f->length_before[i] >= 0) kv_settle(&e->kv, i, oldest(e, i, e->kv.seq[i].length));
    return INFER_OK;
}

/* How long prompts take, by which pages in files are worth their reading or not. */
static void measure(struct infer_engine *e, const struct flight *f) {
    enum { LEAST = 64, FADES = 8192 }; /* rows */
    const int n = f->step[ROW_PROMPT].n_row;
    const double now = host_seconds(), from = f->queued > e->ended ? f->queued : e->ended;
    e->ended = now;
    if (n < LEAST || f->step[ROW_DECODE].n_row) return;
    e->prompt_rows += n, e->prompt_seconds += now - from;
    if (e->prompt_rows > FADES) e->prompt_rows /= 2, e->prompt_seconds /= 2;
}

enum infer_status infer_wait(struct infer_engine *e, struct infer_output *out) {
    if (e->n_submit == e->n_wait) return err_set(INFER_E_INPUT, "no step is in flight");
    struct flight *f = &e->flight[e->n_wait++ % PLAN_FLIGHTS];
    mem_forbid(true);
    enum infer_status s = collect(e, f);
    mem_forbid(false);
    if (!s) measure(e, f);
    *out = (struct infer_output){f->n_out, f->token, f->logits, f->top};
    if (s != INFER_OK) {
        restore_lengths(e, f, KV_LOST);
        engine_poison(e, s);
        out->n = 0;
    }
    mem_forbid(true);
    engine_settle(e);
    mem_forbid(false);
    return s;
}

enum infer_status infer_step(struct infer_engine *e, const struct infer_row *rows, int n,
                             struct infer_output *out) {
    TRY(infer_submit(e, rows, n));
    return infer_wait(e, out);
}

void infer_cancel(struct infer_engine *e) { e->backend->type->cancel(e->backend); }

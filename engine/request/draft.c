/* Guesses of what follows: from the text so far, or by a model that is quicker than the one that answers. How many, by how many were
 * right. source: Saxena 2023 (prompt lookup); Leviathan et al. 2023 (arXiv 2211.17192) */
#include "base/mem.h"
#include "request/request_impl.h"

enum { REST = 16 };                   /* steps without guesses where few are right */
static const float rate_least = 0.2f; /* below: they cost more than they bring */
static const float rate_begin = 0.5f; /* nothing is known yet */
static const int plain_steps = 2;     /* at the beginning of an answer, to compare with */

/* ---- how many ---- */

static int cap(const struct request *r) {
    return r->p.n_draft > 0 && r->p.n_draft < REQUEST_DRAFT ? r->p.n_draft : REQUEST_DRAFT;
}

/* Of the next step, one of which r is a part. */
static int pace(struct request *r) {
    struct draft_pace *p = &r->pace;
    if (!p->most)
        *p = (struct draft_pace){r->p.drafter == DRAFT_LOOKUP ? cap(r) : (cap(r) + 1) / 2, 0, rate_begin};
    if (r->p.drafter == DRAFT_MODEL && r->figures.n_step < plain_steps) return 0;
    if (p->rest) return p->rest--, 0;
    return p->most;
}

void request_guessed(struct request *r, int n, int right) {
    struct draft_pace *p = &r->pace;
    r->figures.n_guessed += n;
    r->figures.n_right += right;
    if (!n) return;
    p->rate += ((float)right / (float)n - p->rate) / 8;
    p->most = right == n ? p->most + 1 : (p->most + right + 1) / 2;
    if (p->most > cap(r)) p->most = cap(r);
    if (p->rate < rate_least) p->rest = REST, p->rate = rate_begin;
}

/* ---- by the text so far ---- */

/* The tokens behind the last place where the three tokens at the end stood before. */
static int look_up(struct request *r, int most) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const int n = r->figures.n_held;
    int at = n - 2, count = 0;
    if (n < 3) return 0;
    while (at >= 2 && (ids[at] != r->last || ids[at - 1] != ids[n - 1] || ids[at - 2] != ids[n - 2])) at--;
    if (at < 2) return 0;
    for (; count < most && at + 1 + count < n; count++) {
        r->draft[count] = ids[at + 1 + count];
        r->guess[count].n = 1; /* nothing else could have been guessed */
    }
    return count;
}

/* ---- by a model ---- */

enum infer_status sched_draft_with(struct sched *s, struct infer_engine *e, const struct infer_model *m) {
    struct infer_engine_info place;
    struct infer_model_info info;
    struct drafter *d;
    infer_engine_info(e, &place);
    infer_model_info(m, &info);
    TRY(mem_new(&d, sizeof *d, "guesses"));
    s->drafter = d;
    *d = (struct drafter){.engine = e,
                          .n_ctx = place.n_ctx,
                          .n_batch = place.n_batch,
                          .n_decode_rows = place.n_decode_rows,
                          .same_ids = info.n_vocab == s->n_vocab};
    TRY(mem_new(&d->seq, (size_t)s->n_slot * sizeof *d->seq, "sequences that guess"));
    for (int i = 0; i < s->n_slot; i++) d->seq[i] = -1;
    return mem_new(&d->rows, (size_t)(d->n_batch + d->n_decode_rows) * sizeof *d->rows,
                   "rows of a step that guesses");
}

void drafter_close(struct drafter *d, int n_slot) {
    if (!d) return;
    for (int i = 0; d->seq && i < n_slot; i++)
        if (d->seq[i] >= 0) infer_seq_close(d->engine, d->seq[i]);
    mem_free(d->seq);
    mem_free(d->rows);
    mem_free(d);
}

/* Token i of what r has now. */
static int32_t token_at(const struct request *r, const int32_t *ids, int i) {
    return i < r->figures.n_held ? ids[i] : r->last;
}

/* What is wanted of a row that guesses: a token, or the greatest logits under biases, penalties and, where first, the grammar. */
static struct infer_row wanted(struct request *r, bool first) {
    struct infer_row row = {.want = sample_is_greedy(&r->p.sample) ? INFER_WANT_TOKEN : INFER_WANT_TOP};
    if (row.want == INFER_WANT_TOKEN || !r->sched->drafter->same_ids) return row;
    if (sample_draw(r->sampler, 0, &r->draw) == SAMPLE_BY_ROW) return row;
    if (r->p.constraint && first) r->draw.mask = constrain_mask(r->p.constraint);
    row.draw = &r->draw;
    return row;
}

/* Its sequence gets what r has, which it may hold a part of, and other tokens behind that; what it makes of r->last into out. */
static enum infer_status catch_up(struct drafter *d, struct request *r, int seq, struct infer_output *out) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq), *own = infer_seq_ids(d->engine, seq);
    const int n = r->figures.n_held + 1, length = infer_seq_length(d->engine, seq);
    const struct infer_row last = wanted(r, true), none = {0};
    int k = 0;
    while (k < length && k < n - 1 && own[k] == ids[k]) k++;
    TRY(infer_seq_rewind(d->engine, seq, k));
    for (k = infer_seq_length(d->engine, seq); k < n;) {
        const bool decode = n - k <= d->n_decode_rows;
        const int m = n - k < d->n_batch ? n - k : d->n_batch;
        if (atomic_load(&r->cancelled)) return INFER_E_CANCEL;
        for (int i = 0; i < m; i++, k++) {
            struct infer_row *row = &d->rows[i];
            *row = k + 1 < n ? none : last;
            row->id = token_at(r, ids, k), row->pos = k, row->seq = seq, row->decode = decode;
        }
        TRY(infer_step(d->engine, d->rows, m, out));
    }
    return INFER_OK;
}

/* Guess i, of output 0 of a step. */
static int32_t guess_of(struct request *r, const struct infer_output *out, int i) {
    if (out->top[0]) return sample_guess(r->sampler, out->top[0], i, &r->guess[i]);
    r->guess[i].n = 1;
    return out->token[0];
}

/* One after the other, each fed back, until it would end the answer. */
static enum infer_status ask_model(struct request *r, int most, int *n) {
    struct drafter *d = r->sched->drafter;
    const int held = r->figures.n_held;
    int *seq = &d->seq[r->p.seq];
    struct infer_output out;
    if (most > d->n_ctx - held) most = d->n_ctx - held;
    if (most < 1) return INFER_OK;
    if (*seq < 0) TRY(infer_seq_open(d->engine, seq));
    enum infer_status st = catch_up(d, r, *seq, &out);
    while (!st) {
        int32_t id = guess_of(r, &out, *n);
        if (id < 0 || id >= r->sched->n_vocab) break; /* of tokens that only fill its vocabulary */
        r->draft[(*n)++] = id;
        if (*n == most || infer_is_stop(r->sched->model, id)) break;
        struct infer_row row = wanted(r, false);
        row.id = id, row.pos = held + *n, row.seq = *seq, row.decode = true;
        st = infer_step(d->engine, &row, 1, &out);
    }
    return st == INFER_E_CANCEL ? INFER_OK : st ? err_prefix(st, "the model that drafts") : INFER_OK;
}

/* ---- */

enum infer_status request_guess(struct request *r, int most, int *n) {
    const int room = r->sched->n_ctx - r->figures.n_held - 1, wanted = pace(r);
    *n = 0;
    if (most > wanted) most = wanted;
    if (most > room) most = room;
    if (r->p.n_predict >= 0 && most > r->p.n_predict - r->figures.n_answer - 1)
        most = r->p.n_predict - r->figures.n_answer - 1;
    if (most < 1) return INFER_OK;
    if (r->p.drafter == DRAFT_MODEL && r->sched->drafter) return ask_model(r, most, n);
    if (r->p.drafter == DRAFT_LOOKUP) *n = look_up(r, most);
    return INFER_OK;
}

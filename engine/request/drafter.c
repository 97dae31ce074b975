/* Guesses by an engine: of a smaller model, which reads the text, or of layers that draft, which read what the model made of each token
 * as well. A sequence of its own follows the one that answers; what it holds beyond the text, or other than it, is rewound. */
#include <string.h>
#include "base/mem.h"
#include "base/host.h"
#include "request/request_impl.h"

enum { WAITING = INFER_REQUEST_DRAFT + 1 }; /* hidden rows that wait for a step */

enum infer_status infer_sched_draft_with(struct infer_sched *s, struct infer_engine *e,
                                         const struct infer_model *m) {
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
                          .n_embd = info.wants_hidden ? info.n_embd : 0,
                          .n_given = info.n_given,
                          .n_tapped = info.n_tapped,
                          .same_ids = info.n_vocab == s->n_vocab && !info.own_ids};
    const size_t n_row = (size_t)(d->n_batch + d->n_decode_rows);
    TRY(mem_new(&d->of, (size_t)s->n_slot * sizeof *d->of, "sequences that guess"));
    for (int i = 0; i < s->n_slot; i++) d->of[i].seq = -1;
    TRY(mem_new(&d->rows, n_row * sizeof *d->rows, "rows of a step that guesses"));
    TRY(mem_new(&d->who, n_row * sizeof *d->who, "rows of a step that guesses"));
    TRY(mem_new(&d->at, n_row * sizeof *d->at, "rows of a step that guesses"));
    if (!d->n_embd) return INFER_OK;
    return mem_new(&d->in, n_row * (size_t)d->n_given * sizeof *d->in, "rows of a step that guesses");
}

void drafter_close(struct drafter *d, int n_slot) {
    if (!d) return;
    for (int i = 0; d->of && i < n_slot; i++) {
        if (d->of[i].seq >= 0) infer_seq_close(d->engine, d->of[i].seq);
        mem_free(d->of[i].at);
        mem_free(d->of[i].h);
    }
    mem_free(d->of);
    mem_free(d->rows);
    mem_free(d->who);
    mem_free(d->at);
    mem_free(d->in);
    mem_free(d);
}

/* r's, opened. */
static enum infer_status open_seq(struct drafter *d, const struct infer_request *r, struct draft_seq **out) {
    struct draft_seq *s = *out = &d->of[r->p.seq];
    if (s->seq < 0) TRY(infer_seq_open(d->engine, &s->seq));
    if (!d->n_embd || s->h) return INFER_OK;
    if (!s->at) TRY(mem_new(&s->at, (size_t)d->n_ctx * sizeof *s->at, "positions of guesses"));
    return mem_new(&s->h, (size_t)WAITING * (size_t)d->n_given * sizeof *s->h, "rows of a step that guesses");
}

void drafter_leaves(struct infer_request *r) {
    struct drafter *d = r->sched->drafter;
    if (!d || r->p.seq < 0) return;
    struct draft_seq *s = &d->of[r->p.seq];
    if (s->seq >= 0) infer_seq_close(d->engine, s->seq);
    s->seq = -1;
    s->n_true = s->n_h = 0;
}

/* Token i of what r has now. */
static int32_t token_at(const struct infer_request *r, const int32_t *ids, int i) {
    return i < r->figures.n_held ? ids[i] : r->last;
}

/* What is wanted of the row of guess i: a token, drawn as the one that is guessed will be, or the greatest logits for it, under biases,
 * penalties and, of the first one, the grammar. */
static struct infer_row wanted(struct infer_request *r, int i) {
    struct infer_row row = {.want = INFER_WANT_TOKEN};
    struct infer_draw *draw = &r->draw[0];
    if (sample_is_greedy(&r->p.sample)) return row;
    const enum sample_by by = sample_draw(r->sampler, i, draw);
    if (by != SAMPLE_BY_DRAW || !r->sched->drafter->same_ids) row.want = INFER_WANT_TOP;
    if (by == SAMPLE_BY_ROW || !r->sched->drafter->same_ids) return row;
    if (steer_constraint(r) && i == 0) draw->mask = constrain_mask(r->p.constraint);
    row.draw = draw;
    return row;
}

/* ---- a step that is put together ---- */

/* What the next row that is added reads beside its token. */
static void give(struct drafter *d, const float *h) {
    memcpy(d->in + (size_t)d->n_row * (size_t)d->n_given, h, (size_t)d->n_given * sizeof *h);
}

/* Row i of to[][n_given], of what the model made of a token, or (own) the one that drafts of a guess: heads have a place for each. */
static void put(const struct drafter *d, float *to, int i, const float *h, bool own) {
    const size_t given = (size_t)d->n_given, n = (size_t)(own || !d->n_tapped ? d->n_embd : d->n_tapped);
    to += (size_t)i * given;
    memset(to, 0, given * sizeof *to);
    memcpy(own ? to : to + (given - n), h, n * sizeof *to);
}

/* Numbers of what the model made of a token. */
static size_t seen_width(const struct drafter *d) { return (size_t)(d->n_tapped ? d->n_tapped : d->n_embd); }

/* A row of a sequence with this token. */
static void add_row(struct drafter *d, const struct draft_seq *s, struct infer_row row, int32_t id, int pos) {
    row.id = id, row.pos = pos, row.seq = s->seq, row.decode = true;
    d->rows[d->n_row++] = row;
}

/* The last one that was added guesses for r. */
static void ask(struct drafter *d, struct infer_request *r) {
    d->who[d->n_out] = r;
    d->at[d->n_out++] = d->n_row - 1;
}

static bool goes_on(const struct infer_request *r, const struct draft_seq *s) {
    return s->n_made > 0 && s->n_made < r->n_draft &&
           !infer_is_stop(r->sched->model, r->draft[s->n_made - 1]);
}

/* Output i is a guess. What the layers made of its row is kept for the next one. errors: those of infer_hidden */
static enum infer_status take_guess(struct drafter *d, const struct infer_output *out, int i) {
    struct infer_request *r = d->who[i];
    struct draft_seq *s = &d->of[r->p.seq];
    const float *h;
    const int32_t id = out->top[i] ? sample_guess(r->sampler, out->top[i], s->n_made) : out->token[i];
    if (id < 0 || id >= r->sched->n_vocab) { /* of tokens that only fill its vocabulary */
        r->n_draft = s->n_made;
        return INFER_OK;
    }
    r->draft[s->n_made++] = id;
    if (!goes_on(r, s)) return INFER_OK;
    sample_suppose(r->sampler, id);
    if (!d->n_embd) return INFER_OK;
    TRY(infer_hidden(d->engine, true, d->at[i], 1, &h));
    put(d, s->h, 0, h, true);
    return INFER_OK;
}

static enum infer_status run_rows(struct drafter *d) {
    const int n = d->n_row;
    const double begin = host_seconds();
    struct infer_output out;
    if (!n) return INFER_OK;
    d->n_row = 0;
    TRY(d->n_embd ? infer_step_hidden(d->engine, d->rows, d->in, n, &out)
                  : infer_step(d->engine, d->rows, n, &out));
    times_saw(&d->times, n, host_seconds() - begin);
    for (int i = 0; i < d->n_out; i++) TRY(take_guess(d, &out, i));
    d->n_out = 0;
    return INFER_OK;
}

/* ---- of a smaller model ---- */

/* r's sequence gets what r has, which it may hold a part of, and other tokens behind that; but for the last ones, which go into the step. */
static enum infer_status catch_up(struct drafter *d, struct infer_request *r, struct draft_seq *s) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq), *own = infer_seq_ids(d->engine, s->seq);
    const int n = r->figures.n_held + 1, length = infer_seq_length(d->engine, s->seq);
    struct infer_output out;
    int k = 0;
    while (k < length && k < n - 1 && own[k] == ids[k]) k++;
    TRY(infer_seq_rewind(d->engine, s->seq, k));
    struct infer_prefix among = r->p.prefix;
    among.adapter = NULL; /* which are those of the other engine */
    if (!length) TRY(infer_seq_prefix(d->engine, s->seq, ids, n - 1, &among, &k));
    for (k = infer_seq_length(d->engine, s->seq); n - k > WAITING;) {
        const int m = n - 1 - k < d->n_batch ? n - 1 - k : d->n_batch;
        if (atomic_load(&r->cancelled)) return INFER_E_CANCEL;
        for (int i = 0; i < m; i++, k++)
            d->rows[i] = (struct infer_row){.id = token_at(r, ids, k), .pos = k, .seq = s->seq};
        TRY(infer_step(d->engine, d->rows, m, &out));
    }
    return INFER_OK;
}

/* Its rows from there to r->last, which guesses. */
static enum infer_status add_text(struct drafter *d, struct infer_request *r, struct draft_seq *s) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const int n = r->figures.n_held + 1, from = infer_seq_length(d->engine, s->seq);
    if (d->n_row + n - from > d->n_decode_rows) TRY(run_rows(d));
    for (int k = from; k < n; k++)
        add_row(d, s, k + 1 < n ? (struct infer_row){0} : wanted(r, 0), token_at(r, ids, k), k);
    ask(d, r);
    return INFER_OK;
}

/* ---- of layers that draft ---- */

/* Behind the rows that are what r has, up to the token at position from: those behind come now, perhaps once more (a sequence that could
 * not go back as far as it was asked to has been computed anew). Where some are missing in between (the text came from a file, or was there
 * before anybody guessed) the rows behind follow closer than they should, which only guesses suffer from. */
static enum infer_status trim(struct drafter *d, const struct infer_request *r, struct draft_seq *s,
                              int from) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq), *own = infer_seq_ids(d->engine, s->seq);
    const int length = infer_seq_length(d->engine, s->seq);
    int k = 0;
    if (s->n_true > length) s->n_true = length;
    while (k < s->n_true && s->at[k] <= from && own[k] == token_at(r, ids, s->at[k])) k++;
    TRY(infer_seq_rewind(d->engine, s->seq, k));
    s->n_true = infer_seq_length(d->engine, s->seq);
    return INFER_OK;
}

/* What was made of the tokens from position from on, h[n], rows that wait or as the engine has them, each with the token behind, but where
 * that is none. In a step of its own: as rows of a prompt. */
static enum infer_status feed(struct drafter *d, const struct infer_request *r, struct draft_seq *s,
                              const float *h, int from, int n) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const size_t given = (size_t)d->n_given, width = h == s->h ? given : seen_width(d);
    struct infer_output out;
    for (int k = 0; k < n;) {
        int m = 0;
        for (; k < n && m < d->n_batch; k++) {
            const int32_t id = token_at(r, ids, from + k + 1);
            if (id < 0) continue;
            s->at[s->n_true + m] = from + k + 1;
            if (h == s->h)
                memcpy(d->in + (size_t)m * given, h + (size_t)k * given, given * sizeof *h);
            else
                put(d, d->in, m, h + (size_t)k * width, false);
            d->rows[m] = (struct infer_row){.id = id, .pos = s->n_true + m, .seq = s->seq};
            m++;
        }
        if (m) TRY(infer_step_hidden(d->engine, d->rows, d->in, m, &out));
        s->n_true += m;
    }
    return INFER_OK;
}

/* The rows that wait, and n more behind them but for the last one, which waits: the token behind it may not be known. */
static enum infer_status feed_all(struct drafter *d, const struct infer_request *r, struct draft_seq *s,
                                  const float *h, int pos, int n) {
    TRY(trim(d, r, s, s->n_h ? s->h_at : pos));
    if (s->n_true + s->n_h + n > d->n_ctx) {
        TRY(infer_seq_rewind(d->engine, s->seq, 0));
        s->n_true = s->n_h = 0;
    }
    if (s->n_h) TRY(feed(d, r, s, s->h, s->h_at, s->n_h));
    s->n_h = 0;
    if (n > 1 && n <= d->n_ctx) TRY(feed(d, r, s, h, pos, n - 1));
    put(d, s->h, 0, h + (size_t)(n - 1) * seen_width(d), false);
    s->h_at = pos + n - 1;
    s->n_h = 1;
    return INFER_OK;
}

enum infer_status drafter_saw(struct infer_request *r, const struct request_part *part, bool decode, int pos,
                              int n) {
    struct drafter *d = r->sched->drafter;
    struct draft_seq *s;
    const float *h;
    if (!d || !d->n_embd || n < 1) return INFER_OK;
    if (decode && r->sched->flight[part->step % SCHED_FLIGHTS].prompt) return INFER_OK; /* it is gone */
    TRY(open_seq(d, r, &s));
    struct infer_engine *e = r->sched->engine;
    TRY(d->n_tapped ? infer_tapped(e, decode, part->row, n, &h) : infer_hidden(e, decode, part->row, n, &h));
    const int kept = pos - s->h_at; /* of those that wait */
    s->n_h = kept >= 0 && kept <= s->n_h ? kept : 0;
    if (s->n_h + n > WAITING) {
        const enum infer_status st = feed_all(d, r, s, h, pos, n);
        if (st == INFER_E_FULL) s->n_h = 0;
        return st == INFER_E_FULL ? INFER_OK : st; /* it guesses worse, or not */
    }
    if (!s->n_h) s->h_at = pos;
    for (int k = 0; k < n; k++) put(d, s->h, s->n_h++, h + (size_t)k * seen_width(d), false);
    return INFER_OK;
}

/* Whether r's rows that wait go up to the last token, and find room. */
static enum infer_status can_feed(struct drafter *d, struct infer_request *r, struct draft_seq *s,
                                  bool *can) {
    *can = s->n_h > 0 && s->h_at + s->n_h == r->figures.n_held;
    if (!*can) return INFER_OK;
    TRY(trim(d, r, s, s->h_at));
    *can = s->n_true + s->n_h + INFER_REQUEST_DRAFT <= d->n_ctx;
    return INFER_OK;
}

/* Those rows, the last of which guesses. */
static enum infer_status add_waiting(struct drafter *d, struct infer_request *r, struct draft_seq *s) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    if (d->n_row + s->n_h > d->n_decode_rows) TRY(run_rows(d));
    for (int k = 0; k < s->n_h; k++) {
        const int32_t id = token_at(r, ids, s->h_at + k + 1);
        if (id < 0) continue;
        s->at[s->n_true] = s->h_at + k + 1;
        give(d, s->h + (size_t)k * (size_t)d->n_given);
        add_row(d, s, k + 1 < s->n_h ? (struct infer_row){0} : wanted(r, 0), id, s->n_true++);
    }
    ask(d, r);
    s->n_h = 0;
    return INFER_OK;
}

/* ---- guesses ---- */

int drafter_can(const struct infer_request *r, int most) {
    const struct drafter *d = r->sched->drafter;
    if (!d) return 0;
    const int room = d->n_ctx - r->figures.n_held;
    return d->n_embd || most < room ? most : room;
}

/* The first round: what each sequence lacks. */
static enum infer_status begin(struct drafter *d, struct infer_request *r, bool *can) {
    struct draft_seq *s;
    *can = true;
    TRY(open_seq(d, r, &s));
    s->n_made = 0;
    TRY(d->n_embd ? can_feed(d, r, s, can) : catch_up(d, r, s));
    return INFER_OK;
}

static bool guesses(const struct infer_request *r) {
    return r->n_draft > 0 && r->p.drafter == INFER_DRAFT_MODEL;
}

static enum infer_status all_rounds(struct drafter *d, struct infer_request *first) {
    bool more = false, can;
    for (struct infer_request *r = first; r; r = r->next) { /* whose steps are not those of others */
        if (!guesses(r)) continue;
        TRY(begin(d, r, &can));
        if (!can) r->n_draft = 0;
    }
    for (struct infer_request *r = first; r; r = r->next)
        if (guesses(r))
            TRY(d->n_embd ? add_waiting(d, r, &d->of[r->p.seq]) : add_text(d, r, &d->of[r->p.seq]));
    do {
        TRY(run_rows(d));
        more = false;
        for (struct infer_request *r = first; r; r = r->next) {
            const struct draft_seq *s = guesses(r) ? &d->of[r->p.seq] : NULL;
            if (!s || !goes_on(r, s)) continue;
            if (d->n_embd) give(d, s->h);
            add_row(d, s, wanted(r, s->n_made), r->draft[s->n_made - 1], infer_seq_length(d->engine, s->seq));
            ask(d, r);
            more = true;
        }
    } while (more);
    return INFER_OK;
}

void drafter_guess(struct infer_sched *s) {
    struct drafter *d = s->drafter;
    d->n_row = d->n_out = 0;
    enum infer_status st = all_rounds(d, s->first);
    const bool only = st == INFER_E_CANCEL || st == INFER_E_FULL; /* no guesses now, nothing is wrong */
    if (st && !only) err_prefix(st, "the model that drafts");
    for (struct infer_request *r = s->first; r; r = r->next) {
        if (!guesses(r)) continue;
        sample_forget(r->sampler);
        r->n_draft = st ? 0 : d->of[r->p.seq].n_made;
        if (st && !only) request_fail(r, st);
    }
}

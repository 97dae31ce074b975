/* Guesses by an engine: of a smaller model, which reads the text, or of layers that draft, which read what the model made of each token
 * as well. A sequence of its own follows the one that answers; what it holds beyond the text, or other than it, is rewound. */
#include <string.h>
#include "base/mem.h"
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
                          .same_ids = info.n_vocab == s->n_vocab};
    TRY(mem_new(&d->of, (size_t)s->n_slot * sizeof *d->of, "sequences that guess"));
    for (int i = 0; i < s->n_slot; i++) d->of[i].seq = -1;
    return mem_new(&d->rows, (size_t)(d->n_batch + d->n_decode_rows) * sizeof *d->rows,
                   "rows of a step that guesses");
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
    mem_free(d);
}

/* r's, opened. */
static enum infer_status open_seq(struct drafter *d, const struct infer_request *r, struct draft_seq **out) {
    struct draft_seq *s = *out = &d->of[r->p.seq];
    if (s->seq < 0) TRY(infer_seq_open(d->engine, &s->seq));
    if (!d->n_embd || s->h) return INFER_OK;
    if (!s->at) TRY(mem_new(&s->at, (size_t)d->n_ctx * sizeof *s->at, "positions of guesses"));
    return mem_new(&s->h, (size_t)WAITING * (size_t)d->n_embd * sizeof *s->h, "rows of a step that guesses");
}

/* Token i of what r has now. */
static int32_t token_at(const struct infer_request *r, const int32_t *ids, int i) {
    return i < r->figures.n_held ? ids[i] : r->last;
}

/* What is wanted of a row that guesses: a token, or the greatest logits under biases, penalties and, where first, the grammar. */
static struct infer_row wanted(struct infer_request *r, bool first) {
    struct infer_row row = {.want = sample_is_greedy(&r->p.sample) ? INFER_WANT_TOKEN : INFER_WANT_TOP};
    if (row.want == INFER_WANT_TOKEN || !r->sched->drafter->same_ids) return row;
    if (sample_draw(r->sampler, 0, &r->draw) == SAMPLE_BY_ROW) return row;
    if (r->p.constraint && first) r->draw.mask = constrain_mask(r->p.constraint);
    row.draw = &r->draw;
    return row;
}

/* ---- of a smaller model ---- */

/* Its sequence gets what r has, which it may hold a part of, and other tokens behind that; what it makes of r->last into out. */
static enum infer_status catch_up(struct drafter *d, struct infer_request *r, int seq,
                                  struct infer_output *out) {
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

/* n rows with what was made of the tokens from position from on, h[n][n_embd], each with the token behind; last: what is wanted of the
 * last one. */
static enum infer_status feed(struct drafter *d, const struct infer_request *r, struct draft_seq *s,
                              const float *h, int from, int n, const struct infer_row *last,
                              struct infer_output *out) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const struct infer_row none = {0};
    const bool decode = n <= d->n_decode_rows;
    for (int k = 0; k < n;) {
        const int begin = k, m = decode || n - k < d->n_batch ? n - k : d->n_batch;
        for (; k < begin + m; k++) {
            struct infer_row *row = &d->rows[k - begin];
            *row = last && k + 1 == n ? *last : none;
            s->at[s->n_true + k] = from + k + 1;
            row->id = token_at(r, ids, from + k + 1);
            row->pos = s->n_true + k, row->seq = s->seq, row->decode = decode;
        }
        TRY(infer_step_hidden(d->engine, d->rows, h + (size_t)begin * (size_t)d->n_embd, m, out));
    }
    s->n_true += n;
    return INFER_OK;
}

/* The rows that wait, and n more behind them but for the last one, which waits: the token behind it may not be known. */
static enum infer_status feed_all(struct drafter *d, const struct infer_request *r, struct draft_seq *s,
                                  const float *h, int pos, int n) {
    struct infer_output none;
    TRY(trim(d, r, s, s->n_h ? s->h_at : pos));
    if (s->n_true + s->n_h + n > d->n_ctx) {
        TRY(infer_seq_rewind(d->engine, s->seq, 0));
        s->n_true = s->n_h = 0;
    }
    if (s->n_h) TRY(feed(d, r, s, s->h, s->h_at, s->n_h, NULL, &none));
    s->n_h = 0;
    if (n > 1 && n <= d->n_ctx) TRY(feed(d, r, s, h, pos, n - 1, NULL, &none));
    memcpy(s->h, h + (size_t)(n - 1) * (size_t)d->n_embd, (size_t)d->n_embd * sizeof *h);
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
    TRY(open_seq(d, r, &s));
    TRY(infer_hidden(r->sched->engine, decode, part->row, n, &h));
    const int kept = pos - s->h_at; /* of those that wait */
    s->n_h = kept >= 0 && kept <= s->n_h ? kept : 0;
    if (s->n_h + n > WAITING) return feed_all(d, r, s, h, pos, n);
    if (!s->n_h) s->h_at = pos;
    memcpy(s->h + (size_t)s->n_h * (size_t)d->n_embd, h, (size_t)n * (size_t)d->n_embd * sizeof *h);
    s->n_h += n;
    return INFER_OK;
}

/* The rows that wait, the last of which guesses. *ready: there are some, up to the last token. */
static enum infer_status feed_waiting(struct drafter *d, struct infer_request *r, struct draft_seq *s,
                                      struct infer_output *out, bool *ready) {
    const struct infer_row last = wanted(r, true);
    const int n = s->n_h;
    *ready = false;
    if (!n || s->h_at + n != r->figures.n_held) return INFER_OK;
    TRY(trim(d, r, s, s->h_at));
    if (s->n_true + n + INFER_REQUEST_DRAFT > d->n_ctx) return INFER_OK;
    s->n_h = 0;
    TRY(feed(d, r, s, s->h, s->h_at, n, &last, out));
    *ready = true;
    return INFER_OK;
}

/* ---- guesses ---- */

/* Guess i, of output 0 of a step. */
static int32_t guess_of(struct infer_request *r, const struct infer_output *out, int i) {
    if (out->top[0]) return sample_guess(r->sampler, out->top[0], i, &r->guess[i]);
    r->guess[i].n = 1;
    return out->token[0];
}

/* A guess is fed back, with what the layers made of the row that guessed: row so many of the step before. */
static enum infer_status feed_back(struct drafter *d, struct infer_request *r, int seq, int32_t id,
                                   int before, struct infer_output *out) {
    struct infer_row row = wanted(r, false);
    const float *h;
    row.id = id, row.pos = infer_seq_length(d->engine, seq), row.seq = seq, row.decode = true;
    if (!d->n_embd) return infer_step(d->engine, &row, 1, out);
    TRY(infer_hidden(d->engine, true, before, 1, &h));
    return infer_step_hidden(d->engine, &row, h, 1, out);
}

enum infer_status drafter_guess(struct infer_request *r, int most, int *n) {
    struct drafter *d = r->sched->drafter;
    const int held = r->figures.n_held;
    struct draft_seq *s;
    struct infer_output out;
    bool ready = true;
    if (!d->n_embd && most > d->n_ctx - held) most = d->n_ctx - held;
    if (most < 1) return INFER_OK;
    TRY(open_seq(d, r, &s));
    int before = d->n_embd ? s->n_h - 1 : 0;
    enum infer_status st = d->n_embd ? feed_waiting(d, r, s, &out, &ready) : catch_up(d, r, s->seq, &out);
    while (!st && ready) {
        int32_t id = guess_of(r, &out, *n);
        if (id < 0 || id >= r->sched->n_vocab) break; /* of tokens that only fill its vocabulary */
        r->draft[(*n)++] = id;
        if (*n == most || infer_is_stop(r->sched->model, id)) break;
        st = feed_back(d, r, s->seq, id, before, &out);
        before = 0;
    }
    return st == INFER_E_CANCEL ? INFER_OK : st ? err_prefix(st, "the model that drafts") : INFER_OK;
}

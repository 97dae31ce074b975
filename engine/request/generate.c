/* A request between two steps: which rows it wants, what their results mean. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "request/request_impl.h"
#include "seam/draw.h"
#include "base/host.h"

/* ---- how it ends ---- */

static enum infer_status show_new(struct infer_request *r) {
    size_t n;
    bool thinking;
    for (const char *text; text = answer_take(&r->answer, &n, &thinking), n;)
        if (r->p.on_text) TRY(r->p.on_text(r->p.user, text, n, thinking));
    return INFER_OK;
}

static void fail(struct infer_request *r, enum infer_status st) {
    r->why = INFER_REQUEST_FAILED;
    r->status = st;
    snprintf(r->message, sizeof r->message, "%s", err_message());
}

static void drained(struct infer_request *r);

void request_fail(struct infer_request *r, enum infer_status st) {
    fail(r, st);
    if (r->n_part == 0) drained(r);
}

/* The answer is whole: what was held back is text. */
static void finish(struct infer_request *r, enum infer_request_why why) {
    r->why = why;
    enum infer_status st = answer_finish(&r->answer);
    if (!st) st = show_new(r);
    if (st) fail(r, st);
}

/* No step has anything of it: what was computed ahead is dropped. */
static void drained(struct infer_request *r) {
    struct infer_engine *e = r->sched->engine;
    if (r->why != INFER_REQUEST_FAILED && r->why != INFER_REQUEST_CANCELLED)
        admit_saw(r->sched, r->figures.n_answer);
    if (r->p.seq < 0) return;
    if (infer_seq_length(e, r->p.seq) > r->figures.n_held) {
        enum infer_status st = infer_seq_rewind(e, r->p.seq, r->figures.n_held);
        r->figures.n_held = infer_seq_length(e, r->p.seq);
        if (st && r->why != INFER_REQUEST_FAILED) fail(r, st);
    }
    if (!r->own_seq) return;
    drafter_leaves(r);
    infer_seq_close(e, r->p.seq);
    r->p.seq = -1;
}

void request_starves(struct infer_request *r) {
    if (r->decodes) {
        finish(r, INFER_REQUEST_FULL);
    } else {
        err_set(INFER_E_FULL,
                "no page is left for a prompt of %d tokens: sequences of others hold them (.kv_tokens)",
                r->n_feed);
        fail(r, INFER_E_FULL);
    }
    drained(r);
}

/* ---- rows ---- */

/* What the row has to give for a token, and how that is drawn, into draw; ahead: tokens in flight that come first. */
static enum sample_by want_token(struct infer_request *r, struct infer_row *row, struct infer_draw *draw,
                                 int ahead) {
    static const uint8_t want[] = {[SAMPLE_BY_DRAW] = INFER_WANT_TOKEN,
                                   [SAMPLE_BY_TOP] = INFER_WANT_TOP,
                                   [SAMPLE_BY_ROW] = INFER_WANT_LOGITS};
    row->want = INFER_WANT_TOKEN;
    if (infer_request_is_greedy(&r->p)) return SAMPLE_BY_DRAW;
    enum sample_by by = sample_draw(r->sampler, ahead, draw);
    row->want = want[by];
    r->by_row = by == SAMPLE_BY_ROW || steer_constraint(r);
    if (by != SAMPLE_BY_ROW) {
        if (steer_constraint(r)) draw->mask = constrain_mask(r->p.constraint);
        row->draw = draw;
    }
    if (r->p.n_logprob >= 0) /* of the logits as they are */
        row->want |= by != SAMPLE_BY_ROW && !draw->n_edit && !draw->mask ? INFER_WANT_TOP : INFER_WANT_LOGITS;
    return by;
}

/* Of a prompt from a position on, the rows of a part: all that are left, or what ends where copies of states are kept, or on the grid. */
static int prompt_part(const struct infer_sched *s, int from, int left, int most) {
    int n = left < most ? left : most;
    if (s->state_step && from / s->state_step != (from + n) / s->state_step)
        n = (from + n) / s->state_step * s->state_step - from;
    const int page = (from + left - 1) / INFER_STATE_PAGE * INFER_STATE_PAGE; /* the last one's beginning */
    if (s->state_step && page > from && from + n > page && (n < left || page - from >= INFER_STATE_PAGE))
        n = page - from;
    const int off = s->grid && n < left ? (from + n) % s->grid : 0;
    if (n > off) return n - off;
    return off && s->n_batch >= s->grid ? 0 : n; /* a step with more room comes */
}

static int prompt_rows(struct infer_request *r, struct infer_row *rows, int from, int most,
                       enum sample_by *by) {
    const int left = r->n_feed - from, n = given_part(r, from, prompt_part(r->sched, from, left, most));
    for (int i = 0; i < n; i++) {
        const bool scored = r->p.score && from + i >= r->scores.n && from + i + 1 < r->n_feed;
        rows[i] = (struct infer_row){.id = r->feed[from + i],
                                     .pos = from + i,
                                     .seq = r->p.seq,
                                     .type = r->p.n_first && from + i >= r->p.n_first,
                                     .want = scored ? INFER_WANT_LOGITS : INFER_WANT_NONE};
    }
    if (n && n == left && r->p.make)
        rows[n - 1].want = r->p.make == INFER_MAKE_LOGITS ? INFER_WANT_LOGITS : INFER_WANT_NONE;
    else if (n && n == left && !r->chosen)
        *by = want_token(r, &rows[n - 1], &r->draw[0], 0);
    return n;
}

/* Of the answer once more, what was put aside. */
static int rows_again(const struct infer_request *r, struct infer_row *rows, int from, int most) {
    const int left = r->n_feed + r->n_again - from, n = left < most ? left : most;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){
            .id = r->again[from + i - r->n_feed], .pos = from + i, .seq = r->p.seq, .decode = true};
    return n;
}

int request_queued(const struct infer_request *r, int *tokens) {
    int n = 0;
    *tokens = 0;
    for (int i = 0; i < r->n_part; i++) {
        n += r->part[i].n_row;
        *tokens += r->part[i].n_out > 0;
    }
    return n;
}

/* The row of guess i, or of the token in front of them (0), as if those before it were right; how it is drawn. Where a grammar decides, or
 * there is no memory for edits, that is by its logits. */
static enum sample_by want_guessed(struct infer_request *r, struct infer_row *row, int i, int n) {
    struct infer_draw *draw = &r->draw[i];
    enum sample_by by = SAMPLE_BY_ROW;
    if (n == 1 || !steer_constraint(r)) by = want_token(r, row, draw, i);
    if (n > 1 && row->draw && draw->n_edit) {
        const size_t all = (INFER_REQUEST_DRAFT + 1) * (size_t)INFER_EDITS_MAX;
        if (!r->edit && mem_new(&r->edit, all * sizeof *r->edit, "edits of a draw")) {
            by = SAMPLE_BY_ROW;
        } else {
            struct infer_edit *edit = r->edit + (size_t)i * INFER_EDITS_MAX;
            memcpy(edit, draw->edit, (size_t)draw->n_edit * sizeof *edit);
            draw->edit = edit;
        }
    }
    if (by == SAMPLE_BY_ROW) row->want = INFER_WANT_LOGITS, row->draw = NULL;
    return by;
}

/* The token that was chosen, known or still on the device (ahead), and the guesses behind it, as many as there is room for. */
static int decode_rows(struct infer_request *r, struct infer_row *rows, const struct request_room *room,
                       enum sample_by *by) {
    int ahead, n = 1, logits = 0; /* tokens; rows */
    const int pos = r->figures.n_held + request_queued(r, &ahead);
    if (room->decode < 1) return 0;
    if (!ahead) n += r->n_draft < room->decode ? r->n_draft : room->decode - 1;
    for (int i = 0; i < n; i++) {
        rows[i] = (struct infer_row){.id = ahead ? INFER_LAST
                                           : i   ? r->draft[i - 1]
                                                 : r->last,
                                     .pos = pos + i,
                                     .seq = r->p.seq,
                                     .decode = true};
        const enum sample_by own =
            ahead ? want_token(r, &rows[i], &r->draw[0], ahead) : want_guessed(r, &rows[i], i, n);
        logits += (rows[i].want & INFER_WANT_LOGITS) != 0;
        if (i && (own != *by || logits > room->logits))
            n = i;
        else
            *by = own;
        if (i + 1 < n) sample_suppose(r->sampler, r->draft[i]);
    }
    sample_forget(r->sampler);
    r->n_draft = n - 1;
    return n;
}

/* Drops the older half of a full context, but for its first token, and has the rest computed anew: keys know their
 * position, so they cannot simply move. */
static enum infer_status shift(struct infer_request *r) {
    struct infer_engine *e = r->sched->engine;
    const int held = r->figures.n_held, keep = held / 2;
    int32_t *feed;
    TRY(mem_new(&feed, ((size_t)keep + 2) * sizeof *feed, "token ids of the context"));
    const int32_t *ids = infer_seq_ids(e, r->p.seq);
    feed[0] = ids[0];
    memcpy(feed + 1, ids + held - keep, (size_t)keep * sizeof *feed);
    feed[keep + 1] = r->last;
    mem_free(r->feed);
    r->feed = feed;
    r->n_feed = keep + 2;
    r->n_begin = r->figures.n_held = 0;
    r->decodes = false;
    r->figures.n_shift++;
    return infer_seq_rewind(e, r->p.seq, 0);
}

enum infer_status request_keeps_answer(struct infer_request *r) {
    const int n = r->figures.n_held - r->n_feed;
    if (!r->decodes) return INFER_OK;
    TRY(mem_new(&r->again, ((size_t)n + 1) * sizeof *r->again, "token ids of the answer"));
    memcpy(r->again, infer_seq_ids(r->sched->engine, r->p.seq) + r->n_feed, (size_t)n * sizeof *r->again);
    r->n_again = n;
    r->chosen = true;
    r->decodes = false;
    return INFER_OK;
}

/* A sequence goes back behind a step that was thrown away with the one in front; one that could not go back as far as it was asked to
 * has the rest computed anew. */
static enum infer_status catch_up(struct infer_request *r) {
    struct infer_engine *e = r->sched->engine;
    const int held = r->figures.n_held;
    if (infer_seq_length(e, r->p.seq) > held) TRY(infer_seq_rewind(e, r->p.seq, held));
    const int length = infer_seq_length(e, r->p.seq);
    if (length >= held) return INFER_OK;
    TRY(request_keeps_answer(r));
    r->n_begin = r->figures.n_held = length;
    return INFER_OK;
}

static bool is_full(const struct infer_request *r) {
    return r->decodes && r->figures.n_held >= r->sched->n_ctx;
}

bool request_goes_on(struct infer_request *r) {
    if (r->why) return false;
    if (r->n_part) return true;
    if (atomic_load(&r->cancelled)) {
        finish(r, INFER_REQUEST_CANCELLED);
        drained(r);
    }
    return !r->why;
}

/* What a request without rows in flight has to do before its next one; false: it ends. */
static bool looks_up(struct infer_request *r) {
    if (is_full(r) && (r->p.overflow != INFER_OVERFLOW_SHIFT || r->sched->n_ctx < 8 || r->p.n_rows)) {
        finish(r, INFER_REQUEST_FULL);
    } else {
        enum infer_status st = is_full(r) ? shift(r) : catch_up(r);
        if (st) fail(r, st);
    }
    if (r->why) drained(r);
    return !r->why;
}

int request_rows(struct infer_request *r, struct infer_row *rows, const struct request_room *room) {
    if (!request_goes_on(r) || r->waits || (!r->n_part && !looks_up(r))) return 0;
    if (!r->decodes && !r->chosen && !r->n_part && r->figures.n_held == r->n_begin && r->p.on_prompt)
        r->p.on_prompt(r->p.user, 0, r->n_feed - r->n_begin);
    enum sample_by by = SAMPLE_BY_DRAW;
    int tokens, n;
    const int from = r->figures.n_held + request_queued(r, &tokens);
    if (r->decodes || (from >= r->n_feed && !r->chosen))
        n = decode_rows(r, rows, room, &by);
    else if (from < r->n_feed)
        n = prompt_rows(r, rows, from,
                        r->p.score && room->logits < room->prompt ? room->logits : room->prompt, &by);
    else
        n = rows_again(r, rows, from, room->decode);
    if (r->why && !r->n_part) drained(r);
    given_fill(r, rows, n);
    if (n && rows[n - 1].want & INFER_WANT_LOGITS && room->logits < 1) return 0; /* waits */
    if (n) r->part[r->n_part++] = (struct request_part){.n_row = n, .by = by};
    return n;
}

bool request_follows(const struct infer_request *r) {
    const struct infer_sched *s = r->sched;
    int tokens;
    const int at = r->figures.n_held + request_queued(r, &tokens);
    if (r->why || r->n_part != 1 || !s->ahead || draft_waits(r) || atomic_load(&r->cancelled)) return false;
    if (!tokens) return at < r->n_feed + r->n_again; /* within what is known */
    if (steer_waits(r)) return false;
    bool known = infer_request_is_greedy(&r->p) || (!r->p.constraint && sample_ignores_text(&r->p.sample));
    return known && at < s->n_ctx && (r->p.n_predict < 0 || r->n_token + 2 <= r->p.n_predict);
}

/* ---- results ---- */

/* The bytes that a token adds to the text; control tokens add none, but for the marks around thinking. */
static const char *piece_of(const struct infer_request *r, int32_t token, bool first, size_t *n) {
    const char *piece = infer_piece(r->sched->model, token, true, first, n);
    return r->p.special || answer_is_tag(piece, *n) ? piece
                                                    : infer_piece(r->sched->model, token, false, first, n);
}

/* What ends the model's turn: nothing is guessed behind it. */
static bool ends_turn(const struct infer_request *r, int32_t token) {
    if (r->p.no_turn) return false;
    for (int i = 0; i < r->p.n_end_id; i++)
        if (token == r->p.end_ids[i]) return true;
    return infer_is_stop(r->sched->model, token) || token == r->p.end_id;
}

/* A token of the answer becomes text, unless it ends it. */
static enum infer_status add_token(struct infer_request *r, int32_t token) {
    struct infer_request_figures *f = &r->figures;
    if (r->p.n_predict == 0) {
        finish(r, INFER_REQUEST_LIMIT);
        return INFER_OK;
    }
    if (ends_turn(r, token)) {
        f->end_id = token;
        finish(r, INFER_REQUEST_TURN);
        return INFER_OK;
    }
    size_t n;
    const char *piece = piece_of(r, token, r->p.first && f->n_answer == 0, &n);
    if (r->p.on_token) r->p.on_token(r->p.user, token);
    TRY(answer_push(&r->answer, piece, n));
    f->n_answer++;
    if (r->answer.stopped) {
        f->stop = r->answer.stopped_by;
        finish(r, INFER_REQUEST_STOP);
        return INFER_OK;
    }
    TRY(show_new(r));
    TRY(steer_told(r));
    f->cycle = loop_push(&r->loop, token);
    if (steer_loops(r, f->cycle))
        f->cycle = 0;
    else if (f->cycle && r->p.loop_stop)
        finish(r, INFER_REQUEST_LOOP);
    else if (f->n_answer == r->p.n_predict)
        finish(r, INFER_REQUEST_LIMIT);
    return INFER_OK;
}

/* r->last, how likely the model held it in output i of a step. */
static enum infer_status add_logprob(struct infer_request *r, const struct infer_output *out, int i) {
    const float *logits = out->logits[i];
    struct infer_top top;
    if (!logits) {
        const struct infer_top *t = out->top[i];
        float x = t->chosen; /* of a token that was drawn there */
        for (int k = 0; k < t->n; k++)
            if (t->id[k] == r->last) x = t->x[k];
        return logprobs_add(&r->logprobs, t, r->last, x);
    }
    draw_top(&top, logits, r->sched->n_vocab, NULL);
    return logprobs_add(&r->logprobs, &top, r->last, logits[r->last]);
}

/* Chooses r->last from output i of a part. */
static enum infer_status choose(struct infer_request *r, const struct request_part *part,
                                const struct infer_output *out, int i) {
    const float *logits = out->logits[part->first + i];
    switch (part->by) {
    case SAMPLE_BY_DRAW:
        r->last = out->token[part->first + i];
        sample_was_drawn(r->sampler);
        break;
    case SAMPLE_BY_TOP:
        r->last = sample_from_top(r->sampler, out->top[part->first + i]);
        break;
    case SAMPLE_BY_ROW:
        if (steer_constraint(r)) logits = constrain_logits(r->p.constraint, logits);
        r->last = sample_token(r->sampler, logits);
        break;
    }
    TRY(steer_chosen(r));
    if (steer_constraint(r)) TRY(constrain_accept(r->p.constraint, r->last));
    sample_accept(r->sampler, r->last);
    r->n_token++;
    return r->p.n_logprob < 0 ? INFER_OK : add_logprob(r, out, part->first + i);
}

/* How likely the model held the prompt's tokens behind the rows of a part, the first of which is at `from`. */
static enum infer_status add_scores(struct infer_request *r, const struct request_part *part,
                                    const struct infer_output *out, int from) {
    int k = part->first;
    for (int at = r->scores.n > from ? r->scores.n : from; at < from + part->n_row && at + 1 < r->n_feed;
         at++) {
        struct infer_top top;
        const float *logits = out->logits[k++];
        draw_top(&top, logits, r->sched->n_vocab, NULL);
        TRY(logprobs_add(&r->scores, &top, r->feed[at + 1], logits[r->feed[at + 1]]));
    }
    return INFER_OK;
}

/* A part of the prompt was computed. */
static enum infer_status take_prompt(struct infer_request *r, const struct request_part *part,
                                     const struct infer_output *out, double begin) {
    struct infer_request_figures *f = &r->figures;
    const bool answered = r->n_token > 0, answer = f->n_held >= r->n_feed; /* it is computed once more */
    f->n_held += part->n_row;
    if (!answered && f->n_held > r->reached) {
        const int before = f->n_held - part->n_row;
        f->n_prompt += f->n_held - (before > r->reached ? before : r->reached);
        r->reached = f->n_held;
    }
    r->decodes = f->n_held == r->n_feed + r->n_again;
    const bool chooses = r->decodes && !r->chosen && !r->p.make;
    enum infer_status st = r->p.make    ? embed_saw(r, part, out, f->n_held - part->n_row)
                           : r->p.score ? add_scores(r, part, out, f->n_held - part->n_row)
                                        : INFER_OK;
    if (!st && chooses) st = choose(r, part, out, part->n_out - 1);
    if (!st && draft_reads(r)) st = drafter_saw(r, part, answer, f->n_held - part->n_row, part->n_row);
    *(answered ? &f->answer_seconds : &f->prompt_seconds) += host_seconds() - begin;
    if (r->p.on_prompt && !r->chosen)
        r->p.on_prompt(r->p.user, f->n_held - r->n_begin, r->n_feed - r->n_begin);
    if (r->decodes) {
        r->chosen = false;
        r->n_again = 0;
        mem_free(r->again);
        r->again = NULL;
    }
    if (!st && r->decodes && r->p.make) finish(r, INFER_REQUEST_LIMIT);
    if (st || !chooses) return st;
    return add_token(r, r->last);
}

/* Whether the guess is what was chosen. */
static bool is_right(struct infer_request *r, int32_t guess) {
    if (!r->p.holds) return r->last == guess;
    if (!r->p.holds(r->p.user, r->last, guess)) return false;
    r->last = guess;
    return true;
}

/* A token was fed, with guesses perhaps: those that are what the model says count. Each is told before the next one is chosen, which may
 * hang on that; a row that was drawn without the grammar that holds from there on does not count either. */
static enum infer_status take_decode(struct infer_request *r, const struct request_part *part,
                                     const struct infer_output *out, double begin) {
    struct infer_request_figures *f = &r->figures;
    const bool awake = r->awake;
    const int guessed = part->n_row - 1;
    bool right;
    int n = 0;
    do {
        f->n_held++;
        TRY(choose(r, part, out, n++));
        right = n <= guessed && is_right(r, r->draft[n - 1]);
        TRY(add_token(r, r->last));
    } while (right && !r->why && (awake == r->awake || part->by == SAMPLE_BY_ROW) &&
             !atomic_load(&r->cancelled));
    if (!r->why && draft_reads(r)) TRY(drafter_saw(r, part, true, f->n_held - n, n));
    /* behind what is read: a device copies states back, and to read waits for that */
    if (n <= guessed) TRY(infer_seq_rewind(r->sched->engine, r->p.seq, f->n_held));
    const double seconds = host_seconds() - begin;
    request_guessed(r, guessed, n - 1 + right, seconds);
    f->n_decoded += n;
    f->n_step++;
    f->answer_seconds += seconds;
    const struct infer_sched *s = r->sched;
    if (s->n_decoding < s->repack_from || s->n_decoding >= s->repack_to)
        f->n_even += n, f->n_even_step++, f->even_seconds += seconds;
    return INFER_OK;
}

void request_take(struct infer_request *r, enum infer_status st, const struct infer_output *out,
                  double begin) {
    const struct request_part part = r->part[0];
    memmove(r->part, r->part + 1, (size_t)--r->n_part * sizeof *r->part);
    if (!r->why && (!st || st == INFER_E_CANCEL) && atomic_load(&r->cancelled)) {
        if (!st) r->figures.n_held += r->decodes ? 1 : part.n_row; /* computed, and kept */
        finish(r, INFER_REQUEST_CANCELLED);
    } else if (!r->why && st != INFER_E_CANCEL) { /* which was of another one: once more */
        if (!st) st = r->decodes ? take_decode(r, &part, out, begin) : take_prompt(r, &part, out, begin);
        if (st) fail(r, st);
    }
    if (r->why && r->n_part == 0) drained(r);
}

/* The steps of all requests of one engine: one submit for all of them, one wait. */
#include <time.h>
#include "base/mem.h"
#include "request/request_impl.h"
#include "base/host.h"

enum infer_status infer_sched_open(struct infer_sched **out, struct infer_engine *e,
                                   const struct infer_model *m) {
    struct infer_engine_info place;
    struct infer_model_info info;
    struct infer_kept_info kept;
    struct infer_sched *s;
    *out = NULL;
    infer_engine_info(e, &place);
    infer_kept_info(e, &kept);
    infer_model_info(m, &info);
    TRY(mem_new(&s, sizeof *s, "requests"));
    *s = (struct infer_sched){.engine = e,
                              .model = m,
                              .n_ctx = place.n_ctx,
                              .n_adapter = place.n_adapter,
                              .n_batch = place.n_batch,
                              .n_decode_rows = place.n_decode_rows,
                              .n_logits = place.n_logits,
                              .n_slot = place.n_slot,
                              .n_vocab = info.n_vocab,
                              .n_embd = info.n_embd,
                              .encoder = info.encoder,
                              .no_head = info.no_head,
                              .grid = place.grid,
                              .state_step = place.state_bytes ? INFER_STATE_STEP : 0,
                              .ahead = place.async,
                              .keeps = kept.folder != NULL,
                              .n_page = place.kv_tokens / SCHED_PAGE,
                              .repack_from = place.repack_from,
                              .repack_to = place.repack_to,
                              .drafts_pay = true,
                              .expected = SCHED_EXPECTED};
    enum infer_status st =
        mem_new(&s->rows, (size_t)(s->n_batch + s->n_decode_rows) * sizeof *s->rows, "rows of a step");
    if (!st)
        st = mem_new(&s->axis, (size_t)(s->n_batch + s->n_decode_rows) * sizeof *s->axis, "rows of a step");
    if (!st) st = sample_room_open(&s->room, s->n_vocab);
    if (st)
        infer_sched_close(s);
    else
        *out = s;
    return st;
}

void infer_sched_close(struct infer_sched *s) {
    if (!s) return;
    while (s->first) infer_request_free(s->first);
    drafter_close(s->drafter, s->n_slot);
    sample_room_close(s->room);
    mem_free(s->rows);
    mem_free(s->axis);
    mem_free(s);
}

/* A step that is being put together. */
struct gather {
    struct request_room left;
    int n, n_out, n_class[2];
    int pages; /* free ones that nobody in the step has taken */
};

/* Puts r's rows into the step, at most these. */
static int add(struct infer_sched *s, struct gather *g, struct infer_request *r, struct request_room room) {
    struct infer_row *rows = s->rows + g->n;
    const int m = request_rows(r, rows, &room);
    if (!m) return 0;
    struct request_part *part = &r->part[r->n_part - 1];
    part->step = s->n_submit;
    part->row = g->n_class[rows[0].decode];
    part->first = g->n_out;
    g->n_class[rows[0].decode] += m;
    for (int i = 0; i < m; i++) {
        g->n_out += rows[i].want != INFER_WANT_NONE;
        g->left.logits -= (rows[i].want & INFER_WANT_LOGITS) != 0;
    }
    part->n_out = g->n_out - part->first;
    *(rows[0].decode ? &g->left.decode : &g->left.prompt) -= m;
    g->pages -= pages_more(r, m, 0);
    g->n += m;
    r->taken = true;
    return m;
}

/* Whether r can have rows in a step that is put together now, which may be behind another one. */
static bool can_join(const struct infer_request *r) {
    return request_runs(r) && !r->loads && !r->taken && (!r->n_part || request_follows(r));
}
/* Whether its next row is one that decodes. */
static bool will_decode(const struct infer_request *r) {
    int tokens;
    return r->decodes || (r->figures.n_held + request_queued(r, &tokens) >= r->n_feed && !r->chosen);
}

bool sched_decodes(const struct infer_request *r) { return can_join(r) && will_decode(r); }

/* Each that decodes has its token's row, what is left is for guesses. Where there is no room for all, another one is the first next
 * time. */
static void add_decoding(struct infer_sched *s, struct gather *g) {
    int waiting = 0, wanted = 0; /* those that have no row yet, and the pages for their rows */
    uint64_t left_out = 0;
    for (struct infer_request *r = s->first; r; r = r->next)
        if (sched_decodes(r)) waiting++, wanted += pages_more(r, 1, 0);
    /* with states half of the rows for guesses stay free: behind a wrong one some are computed again, in the same step if there is room */
    const int again = s->state_step ? (s->n_decode_rows - s->n_slot) / 2 : 0;
    draft_plan(s, waiting, g->left.decode - waiting - again, s->n_submit == s->n_wait);
    for (int turn = 0; turn < 2; turn++)
        for (struct infer_request *r = s->first; r; r = r->next) {
            if ((r->order >= s->turn) == turn || !sched_decodes(r)) continue;
            const int own = pages_more(r, 1, 0);
            struct request_room room = g->left;
            waiting--, wanted -= own;
            room.decode -= waiting;
            if (room.decode < 1 || g->pages - own - wanted < 1) room.decode = g->left.decode > 0;
            if (!add(s, g, r, room) && request_runs(r) && !left_out) left_out = r->order;
        }
    s->turn = left_out;
}

/* Rows of r's prompt, or of what is computed once more: most, and as many as it has pages for. */
static int add_prompt(struct infer_sched *s, struct gather *g, struct infer_request *r, int most) {
    struct request_room room = g->left;
    int tokens;
    const int fit = rows_that_fit(r, g->pages),
              least = given_least(r, r->figures.n_held + request_queued(r, &tokens));
    if (most < least)
        most = least; /* a picture that cannot be cut waits for room in the step, not for the pace */
    const int n = most < fit ? most : fit;
    if (room.prompt > n) room.prompt = n;
    if (room.decode > n) room.decode = n;
    return add(s, g, r, room);
}

static int rows_left(const struct infer_request *r) {
    int tokens;
    return r->n_feed + r->n_again - r->figures.n_held - request_queued(r, &tokens);
}

/* Rows of prompts that a step could have now, at most a step's. */
static int prompt_rows(const struct infer_sched *s) {
    int n = 0;
    for (const struct infer_request *r = s->first; r && n < s->n_batch; r = r->next)
        if (can_join(r) && !will_decode(r)) n += rows_left(r);
    return n;
}

/* The oldest prompt first; of the others those that are short go along with a quarter of the rows. */
static void add_prompts(struct infer_sched *s, struct gather *g, bool decoding) {
    const int all = pace_rows(s, decoding);
    if (decoding && pace_waits(s, prompt_rows(s), g->n, host_seconds())) return;
    struct infer_request *oldest = NULL;
    int few = all / 4, used = 0;
    for (struct infer_request *r = s->first; r; r = r->next) {
        if (!can_join(r) || will_decode(r)) continue;
        if (!oldest) {
            oldest = r;
            if (rows_left(r) <= all) break; /* it leaves room for others in any case */
        } else if (rows_left(r) <= few) {
            const int m = add_prompt(s, g, r, few);
            few -= m, used += m;
        }
    }
    for (struct infer_request *r = oldest; r && used < all; r = r->next)
        if (can_join(r) && !will_decode(r)) used += add_prompt(s, g, r, all - used);
}

int decode_pages(const struct infer_sched *s) {
    int n = 0;
    for (const struct infer_request *r = s->first; r; r = r->next)
        if (sched_decodes(r)) n += pages_more(r, 1, 0);
    return n;
}

/* Layers that draft read what the model made of rows that decode, which rows of prompts in the same step would go over. */
static bool keeps_apart(const struct infer_sched *s) {
    bool reads = false, prompt = false;
    for (const struct infer_request *r = s->first; r; r = r->next) {
        reads |= sched_decodes(r) && draft_reads(r);
        prompt |= can_join(r) && !will_decode(r);
    }
    return reads && prompt;
}

/* Rows of both kinds, or where they are kept apart of one, in turns. */
static void add_rows(struct infer_sched *s, struct gather *g) {
    const bool apart = keeps_apart(s);
    if (!apart) s->prompts_next = false;
    if (apart && s->prompts_next) g->pages -= decode_pages(s);
    if (!apart || !s->prompts_next) add_decoding(s, g);
    if (!apart || s->prompts_next) add_prompts(s, g, apart || g->n > 0);
    if (apart && g->n) s->prompts_next = !s->prompts_next;
}

/* Whoever runs alone and finds no page ends. */
static void starve(struct infer_sched *s) {
    for (struct infer_request *r = s->first; r; r = r->next)
        if (request_runs(r)) {
            request_starves(r);
            return;
        }
}

static bool some_load(const struct infer_sched *s) {
    for (const struct infer_request *r = s->first; r; r = r->next)
        if (request_runs(r) && r->loads) return true;
    return false;
}

/* What requests that begin find in files, a part of it at a time. */
static void load_some(struct infer_sched *s) {
    bool busy = false;
    for (const struct infer_request *r = s->first; r; r = r->next) busy |= request_runs(r) && !r->loads;
    if (some_load(s)) sched_load(s, busy);
}

/* A hundredth of the time is for what is written into files. */
static void keep_some(struct infer_sched *s, double seconds) {
    static const double most = 0.05;
    if (!s->keeps) return;
    s->may_keep += seconds / 100;
    if (s->may_keep > most) s->may_keep = most;
    if (s->may_keep < 0 || s->n_submit != s->n_wait) return;
    const double begin = host_seconds();
    infer_keep(s->engine, s->may_keep);
    s->may_keep -= host_seconds() - begin;
}

/* The rows that the requests want now; behind a step in flight only those of requests that can go on, and only where there are pages. */
static int collect(struct infer_sched *s) {
    struct gather g;
    const bool first = s->n_submit == s->n_wait;
    for (struct infer_request *r = s->first; r; r = r->next) request_goes_on(r);
    for (bool admit = true;;) {
        for (struct infer_request *r = s->first; r; r = r->next) r->taken = false;
        if (admit) sched_admit(s);
        if (admit && first) load_some(s);
        g = (struct gather){.left = {s->n_batch, s->n_decode_rows, s->n_logits}, .pages = pages_free(s)};
        bool some = false;
        for (const struct infer_request *r = s->first; r; r = r->next) some |= can_join(r);
        if (!some) return 0;
        if (decode_pages(s) <= g.pages) {
            add_rows(s, &g);
            if (g.n) break;
            if (s->prompts_next) {
                s->prompts_next = false;
                continue;
            }
        }
        if (!first) return 0;
        some = false;
        for (const struct infer_request *r = s->first; r; r = r->next) some |= can_join(r);
        admit = !some || !sched_put_aside(s); /* what was put aside waits for the next step at least */
        if (some && admit) starve(s);
    }
    s->flight[s->n_submit % SCHED_FLIGHTS].prompt = g.n_class[0];
    s->flight[s->n_submit % SCHED_FLIGHTS].decode = g.n_class[1];
    s->flight[s->n_submit % SCHED_FLIGHTS].begin = host_seconds();
    if (g.n_class[0]) s->pace.began = s->flight[s->n_submit % SCHED_FLIGHTS].begin;
    return g.n;
}

/* Hands the results of a step to those that are in it. */
static void hand_out(struct infer_sched *s, unsigned step, enum infer_status st,
                     const struct infer_output *out, double begin) {
    for (struct infer_request *r = s->first; r; r = r->next)
        if (r->n_part && r->part[0].step == step) request_take(r, st, out, begin);
}

/* Takes a step back that could not be queued. */
static void take_back(struct infer_sched *s, unsigned step) {
    for (struct infer_request *r = s->first; r; r = r->next)
        if (r->n_part && r->part[r->n_part - 1].step == step) r->n_part--;
}

/* True when most that are in the step in flight can be queued once more behind it, so that the device need not wait for the host. The
 * others have rows in every second step; whoever guesses does so when nothing is in flight, which all wait for. */
static bool most_follow(const struct infer_sched *s) {
    int n = 0, all = 0;
    if (s->rests) return false;
    for (const struct infer_request *r = s->first; r; r = r->next) {
        if (r->loads && request_runs(r)) return false; /* which is done when nothing is in flight */
        if ((request_runs(r) && draft_waits(r)) || (r->n_part && embed_of_rows(r))) return false;
        all += r->n_part > 0;
        n += r->n_part > 0 && request_follows(r);
    }
    return 2 * n > all;
}

/* Reads the oldest step. */
static enum infer_status read_step(struct infer_sched *s, double begin) {
    const unsigned step = s->n_wait % SCHED_FLIGHTS;
    struct infer_output out = {0};
    enum infer_status st = infer_wait(s->engine, &out);
    const double now = host_seconds(),
                 from = s->flight[step].begin > s->last_end ? s->flight[step].begin : s->last_end;
    if (!st) pace_saw(s, s->flight[step].prompt, s->flight[step].decode, now - from);
    if (!st && !s->flight[step].prompt && (s->n_decoding < s->repack_from || s->n_decoding >= s->repack_to))
        times_saw(&s->times, s->flight[step].decode, now - from);
    s->last_end = now;
    hand_out(s, s->n_wait++, st, &out, begin);
    s->n_decoding += s->flight[step].decode > 0;
    return st;
}

bool infer_sched_rests(struct infer_sched *s) {
    s->rests = s->n_submit != s->n_wait || some_load(s);
    return !s->rests;
}

bool infer_sched_step(struct infer_sched *s) {
    const double begin = host_seconds();
    const struct infer_output none = {0};
    enum infer_status st;
    int n;
    if (s->n_submit == s->n_wait) {
        if (!(n = collect(s))) return some_load(s);
        st = infer_submit(s->engine, s->rows, n);
        if (st == INFER_E_FULL) { /* layers with a window have fewer pages than were counted */
            take_back(s, s->n_submit);
            if (!sched_put_aside(s)) starve(s);
            return true;
        }
        if (st) {
            hand_out(s, s->n_submit, st, &none, begin);
            return true;
        }
        s->n_submit++;
    }
    if (most_follow(s) && (n = collect(s)) > 0) {
        if (infer_submit(s->engine, s->rows, n) == INFER_OK)
            s->n_submit++;
        else
            take_back(s, s->n_submit); /* asked again, and told, when it is the first in line */
    }
    if (read_step(s, begin) && s->n_submit != s->n_wait) { /* it builds on what failed */
        struct infer_output out;
        infer_wait(s->engine, &out);
        hand_out(s, s->n_wait++, INFER_E_CANCEL, &none, begin);
    }
    keep_some(s, host_seconds() - begin);
    return true;
}

enum infer_status infer_request_run(struct infer_request *r) {
    while (!infer_request_done(r) && infer_sched_step(r->sched)) continue;
    return infer_request_status(r);
}

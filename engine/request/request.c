#include "infer_request.h"
#include <string.h>
#include "base/mem.h"
#include "request/request_impl.h"

/* Lines, quotes and the like are no repetition: their tokens end a passage of DRY. */
static enum infer_status find_breakers(const struct infer_model *m, struct infer_sample_params *p) {
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    p->n_dry_breaker = 0;
    for (int i = 0; p->dry_multiplier > 0 && i < 4; i++) {
        int32_t ids[4];
        size_t n;
        TRY(infer_tokenize(m, breakers[i], NULL, 1, 0, ids, 4, &n));
        if (n == 1 && p->n_dry_breaker < INFER_SAMPLE_MAX_BREAKER)
            p->dry_breaker[p->n_dry_breaker++] = ids[0];
    }
    return INFER_OK;
}

static enum infer_status check(const struct infer_sched *s, const struct infer_request_params *p) {
    if (p->n_id < 1) return err_set(INFER_E_INPUT, "the prompt is empty");
    if (p->n_id > s->n_ctx)
        return err_set(INFER_E_FULL, "the prompt has %d tokens, the context holds %d (.ctx)", p->n_id,
                       s->n_ctx);
    if (p->n_logprob > INFER_LOGPROBS_MAX)
        return err_set(INFER_E_INPUT, "%d log probabilities a token, at most %d", p->n_logprob,
                       INFER_LOGPROBS_MAX);
    if (p->n_id >= s->n_page * SCHED_PAGE)
        return err_set(INFER_E_FULL, "the prompt has %d tokens, all pages together hold %d (.kv_tokens)",
                       p->n_id, s->n_page * SCHED_PAGE);
    TRY(given_check(s, p));
    if (s->encoder && (!p->make || p->make == INFER_MAKE_LOGITS || p->n_rows))
        return err_set(INFER_E_INPUT, "the model is an encoder: it makes vectors of texts and writes none");
    if (s->no_head && (!p->make || p->make == INFER_MAKE_LOGITS))
        return err_set(INFER_E_INPUT,
                       "the model's files have no head: it makes vectors of texts and writes none");
    if (p->make == INFER_MAKE_LOGITS && p->n_make_id < 1)
        return err_set(INFER_E_INPUT, "logits of no token are asked for");
    for (int i = 0; p->make == INFER_MAKE_LOGITS && i < p->n_make_id; i++)
        if (p->make_id[i] < 0 || p->make_id[i] >= s->n_vocab)
            return err_set(INFER_E_INPUT, "the logit of token %d is asked for, of a vocabulary of %d",
                           p->make_id[i], s->n_vocab);
    if (p->score && p->n_logprob < 0)
        return err_set(INFER_E_INPUT, "a prompt is scored with log probabilities");
    if (p->seq >= 0 && infer_seq_length(s->engine, p->seq) < 0)
        return err_set(INFER_E_INPUT, "sequence %d is not open", p->seq);
    for (const struct infer_request *r = s->first; r; r = r->next)
        if (!infer_request_done(r) &&
            ((p->seq >= 0 && r->p.seq == p->seq) || (p->constraint && r->p.constraint == p->constraint)))
            return err_set(INFER_E_INPUT, "%s %d is another request's",
                           p->seq >= 0 && r->p.seq == p->seq ? "sequence" : "the constraint of sequence",
                           r->p.seq);
    return INFER_OK;
}

/* The sequence keeps the common beginning of the prompt and what it holds, but for the prompt's last token, whose row must be
 * computed for its logits. */
static enum infer_status keep_prefix(struct infer_request *r) {
    struct infer_engine *e = r->sched->engine;
    const int32_t *ids = infer_seq_ids(e, r->p.seq);
    int k = 0, n = infer_seq_length(e, r->p.seq);
    while (k < n && k < r->n_feed - 1 && ids[k] == r->feed[k]) k++;
    TRY(infer_seq_rewind(e, r->p.seq, k));
    r->reached = r->n_begin = r->figures.n_reused = r->figures.n_held = infer_seq_length(e, r->p.seq);
    return INFER_OK;
}

static enum infer_status fill(struct infer_request *r) {
    const size_t bytes = (size_t)r->p.n_id * sizeof *r->feed;
    TRY(find_breakers(r->sched->model, &r->p.sample));
    TRY(sample_open_in(&r->sampler, r->sched->room, &r->p.sample));
    TRY(mem_new(&r->feed, bytes, "token ids of the prompt"));
    memcpy(r->feed, r->p.ids, bytes);
    r->n_feed = r->p.n_id;
    r->p.ids = NULL; /* the caller's */
    given_ids(r);
    if (r->p.n_told > 0)
        TRY(mem_new(&r->told.ids, (size_t)r->p.n_told * sizeof *r->told.ids, "a prediction"));
    if (r->p.n_told > 0) memcpy(r->told.ids, r->p.told, (size_t)r->p.n_told * sizeof *r->told.ids);
    r->told.n = r->p.n_told > 0 ? r->p.n_told : 0;
    if (r->told.n) r->p.drafter = INFER_DRAFT_LOOKUP;
    r->p.told = NULL;
    logprobs_start(&r->logprobs, r->p.n_logprob);
    logprobs_start(&r->scores, r->p.score ? r->p.n_logprob : -1);
    loop_start(&r->loop);
    answer_start(&r->answer, r->p.stop, r->p.n_stop, r->p.start);
    if (r->p.constraint) constrain_reset(r->p.constraint);
    r->figures.end_id = r->figures.stop = -1;
    TRY(steer_open(r));
    for (int i = 0; i < r->n_feed; i++)
        if (r->feed[i] >= 0) sample_accept(r->sampler, r->feed[i]);
    r->own_seq = r->waits = r->p.seq < 0;
    return r->own_seq ? INFER_OK : keep_prefix(r);
}

enum infer_status infer_request_new(struct infer_request **out, struct infer_sched *s,
                                    const struct infer_request_params *p) {
    struct infer_request *r;
    *out = NULL;
    TRY(check(s, p));
    TRY(mem_new(&r, sizeof *r, "a request"));
    r->sched = s;
    r->p = *p;
    r->order = ++s->n_come;
    r->logprobs.n_top = r->scores.n_top = -1;
    struct infer_request **last = &s->first;
    while (*last) last = &(*last)->next;
    *last = r;
    enum infer_status st = fill(r);
    if (st)
        infer_request_free(r);
    else
        *out = r;
    return st;
}

enum infer_status infer_request_chat(struct infer_request **out, struct infer_sched *s,
                                     const struct infer_request_params *p, struct json_t *messages) {
    struct infer_request_params whole = *p;
    struct infer_model_info info;
    struct infer_prompt prompt;
    *out = NULL;
    infer_model_info(s->model, &info);
    const struct infer_prompt_template own = {.text = info.chat_template, .n = info.chat_template_len};
    if (!own.text) return err_set(INFER_E_UNSUPPORTED, "the model's file has no chat template");
    TRY(infer_prompt_render(&prompt, s->model, &own, messages, true));
    infer_request_prompt(&whole, &prompt, true);
    enum infer_status st = infer_request_new(out, s, &whole);
    infer_prompt_free(&prompt);
    return st;
}

void infer_request_free(struct infer_request *r) {
    if (!r) return;
    if (!r->why) r->why = INFER_REQUEST_CANCELLED; /* what comes is dropped */
    while (r->n_part) infer_sched_step(r->sched);
    struct infer_request **at = &r->sched->first;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (r->own_seq && r->p.seq >= 0) {
        drafter_leaves(r);
        infer_seq_close(r->sched->engine, r->p.seq);
    }
    mem_free(r->again);
    mem_free(r->told.ids);
    mem_free(r->edit);
    mem_free(r->sum);
    mem_free(r->made);
    sample_close(r->sampler);
    steer_close(r);
    logprobs_free(&r->logprobs);
    logprobs_free(&r->scores);
    answer_free(&r->answer);
    mem_free(r->feed);
    mem_free(r);
}

void infer_request_cancel(struct infer_request *r) { atomic_store(&r->cancelled, true); }
enum infer_request_why infer_request_why(const struct infer_request *r) { return r->why; }
bool infer_request_done(const struct infer_request *r) { return r->why && r->n_part == 0; }
const char *infer_request_text(const struct infer_request *r, bool thinking, size_t *n) {
    return (thinking ? answer_thinking : answer_text)(&r->answer, n);
}
const struct answer *request_answer(const struct infer_request *r) { return &r->answer; }
const struct infer_logprobs *infer_request_logprobs(const struct infer_request *r) { return &r->logprobs; }
const struct infer_logprobs *infer_request_scores(const struct infer_request *r) { return &r->scores; }
const struct infer_request_figures *infer_request_figures(const struct infer_request *r) {
    return &r->figures;
}

enum infer_status infer_request_status(const struct infer_request *r) {
    return r->status ? err_set(r->status, "%s", r->message) : INFER_OK;
}

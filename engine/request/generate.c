#include "request/generate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "tools/tool.h"

/* "ID=X" of every --logit-bias into bias[n] */
static enum infer_status read_biases(const struct option_texts *t, struct sample_bias *bias) {
    for (int i = 0; i < t->n; i++) {
        char *end;
        long id = strtol(t->text[i], &end, 10);
        bool named = end != t->text[i] && *end == '=' && id >= 0 && id <= INT32_MAX;
        const char *value = end + 1;
        float x = named ? strtof(value, &end) : 0;
        if (!named || end == value || *end || isnan(x))
            return err_set(INFER_E_INPUT, "--logit-bias %s is not like 123=-1.5", t->text[i]);
        bias[i] = (struct sample_bias){(int32_t)id, x};
    }
    return INFER_OK;
}

enum infer_status generate_params(const struct options *o, struct sample_params *out) {
    static struct sample_bias bias[OPTION_MAX_TEXTS]; /* the options are read once a process */
    struct sample_params p = sample_defaults();
    p.temp = (float)o->temp;
    p.top_k = o->top_k;
    p.top_p = (float)o->top_p;
    p.min_p = (float)o->min_p;
    p.repeat_penalty = (float)o->repeat_penalty;
    p.repeat_last = o->repeat_last;
    p.seed = o->seed;
    p.frequency_penalty = (float)o->frequency_penalty;
    p.presence_penalty = (float)o->presence_penalty;
    p.typical_p = (float)o->typical;
    p.top_n_sigma = (float)o->top_n_sigma;
    p.xtc_probability = (float)o->xtc_probability;
    p.xtc_threshold = (float)o->xtc_threshold;
    p.dry_multiplier = (float)o->dry_multiplier;
    p.dry_base = (float)o->dry_base;
    p.dry_allowed = o->dry_allowed;
    p.dry_last = o->dry_last;
    p.temp_range = (float)o->temp_range;
    p.temp_exponent = (float)o->temp_exponent;
    p.mirostat = o->mirostat;
    p.mirostat_tau = (float)o->mirostat_tau;
    p.mirostat_eta = (float)o->mirostat_eta;
    if (o->samplers) TRY(sample_set_order(&p, o->samplers));
    TRY(read_biases(&o->logit_bias, bias));
    p.bias = bias;
    p.n_bias = o->logit_bias.n;
    *out = p;
    return INFER_OK;
}

/* What a step has to give: the greedy token, or the logits that it is chosen from. */
static uint8_t wanted(const struct generator *g) {
    bool token = sample_is_greedy(&g->params) && !g->constraint && g->logprobs.n_top < 0;
    return token ? INFER_WANT_TOKEN : INFER_WANT_LOGITS;
}

/* Lines, quotes and the like are no repetition: their tokens end a passage of DRY. */
static enum infer_status find_breakers(const struct session *s, struct sample_params *p) {
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    p->n_dry_breaker = 0;
    for (int i = 0; p->dry_multiplier > 0 && i < 4; i++) {
        int32_t ids[4];
        size_t n;
        TRY(infer_tokenize(s->model, breakers[i], NULL, 1, 0, ids, 4, &n));
        if (n == 1 && p->n_dry_breaker < SAMPLE_MAX_BREAKER) p->dry_breaker[p->n_dry_breaker++] = ids[0];
    }
    return INFER_OK;
}

enum infer_status generate_open(struct generator *g, struct session *s, const struct options *o,
                                const struct sample_params *p) {
    *g = (struct generator){.session = s,
                            .params = *p,
                            .logprobs.n_top = o->logprobs,
                            .seq = -1,
                            .shift = strcmp(o->overflow, "shift") == 0,
                            .lookup = o->lookup};
    enum infer_status st = find_breakers(s, &g->params);
    if (!st) st = constrain_open(&g->constraint, s, o);
    if (!st) st = sample_open(&g->sampler, s->info.n_vocab, &g->params);
    if (!st) st = mem_new(&g->ids, ((size_t)s->place.n_ctx + 1) * sizeof *g->ids, "token ids of the context");
    if (!st)
        st = mem_new(&g->spare, ((size_t)s->place.n_ctx + 1) * sizeof *g->spare, "token ids of the context");
    if (!st) st = mem_new(&g->rows, (size_t)s->place.n_batch * sizeof *g->rows, "rows of a step");
    if (!st) st = infer_seq_open(s->engine, &g->seq);
    if (st) generate_close(g);
    if (!st && g->lookup && wanted(g) != INFER_WANT_TOKEN)
        tool_say(
            "--lookup works for greedy answers without --grammar, --json-schema and --logprobs: it is off");
    return st;
}

struct session_need generate_need(const struct options *o) {
    return (struct session_need){.slots = 1, .decode_rows = o->lookup ? GENERATE_GUESS + 1 : 0, .text = true};
}

void generate_close(struct generator *g) {
    if (g->seq >= 0) infer_seq_close(g->session->engine, g->seq);
    sample_close(g->sampler);
    constrain_close(g->constraint);
    logprobs_free(&g->logprobs);
    mem_free(g->ids);
    mem_free(g->rows);
    mem_free(g->spare);
    *g = (struct generator){.seq = -1};
}

enum infer_status generate_set(struct generator *g, const struct sample_params *p) {
    struct sample_params params = *p;
    TRY(find_breakers(g->session, &params));
    TRY(sample_set(g->sampler, &params));
    g->params = params;
    return INFER_OK;
}

/* The next token, from a step's output into g->next. */
static enum infer_status choose(struct generator *g, const struct infer_output *out) {
    if (g->constraint)
        TRY(constrain_token(g->constraint, g->sampler, out->logits[0], &g->next));
    else
        g->next = wanted(g) == INFER_WANT_TOKEN ? out->token[0] : sample_token(g->sampler, out->logits[0]);
    sample_accept(g->sampler, g->next);
    return g->logprobs.n_top < 0
               ? INFER_OK
               : logprobs_add(&g->logprobs, out->logits[0], g->session->info.n_vocab, g->next);
}

/* Length of the common beginning of ids[n] and what the sequence holds, at most n - 1: the last token's row must
 * be computed for its logits. */
static int common_prefix(const struct generator *g, const int32_t *ids, int n) {
    int k = 0;
    while (k < g->n_ids && k < n - 1 && g->ids[k] == ids[k]) k++;
    return k;
}

/* Computes ids[from..n) behind what the sequence holds; out is of the last row. */
static enum infer_status prefill(struct generator *g, const int32_t *ids, int from, int n,
                                 struct infer_output *out) {
    struct session *s = g->session;
    progress_show(&s->progress, "prompt", 0, n - from, "tokens");
    for (int pos = from; pos < n;) {
        int m = n - pos < s->place.n_batch ? n - pos : s->place.n_batch;
        for (int i = 0; i < m; i++)
            g->rows[i] = (struct infer_row){.id = ids[pos + i],
                                            .pos = pos + i,
                                            .seq = g->seq,
                                            .want = pos + i + 1 == n ? wanted(g) : INFER_WANT_NONE};
        enum infer_status st = infer_step(s->engine, g->rows, m, out);
        if (st == INFER_E_CANCEL && !session_interrupted()) /* a late Ctrl-C for the answer before */
            st = infer_step(s->engine, g->rows, m, out);
        if (st) {
            progress_clear(&s->progress);
            return st;
        }
        memcpy(g->ids + pos, ids + pos, (size_t)m * sizeof *ids);
        g->n_ids = pos += m;
        g->n_prompt += m;
        if (pos < n) progress_show(&s->progress, "prompt", pos - from, n - from, "tokens");
    }
    progress_clear(&s->progress);
    return INFER_OK;
}

enum infer_status generate_prompt(struct generator *g, const int32_t *ids, int n, int32_t *token) {
    struct session *s = g->session;
    if (n < 1) return err_set(INFER_E_INPUT, "the prompt is empty");
    if (n > s->place.n_ctx)
        return err_set(INFER_E_FULL, "the prompt has %d tokens, the context holds %d (--ctx)", n,
                       s->place.n_ctx);
    int start = common_prefix(g, ids, n);
    TRY(infer_seq_rewind(s->engine, g->seq, start));
    g->n_ids = start;
    g->n_reused = start;
    g->n_prompt = g->n_answer = g->n_decoded = g->n_step = g->n_ready = g->n_shift = g->n_guessed =
        g->n_right = 0;
    g->prompt_seconds = g->answer_seconds = 0;
    sample_reset(g->sampler);
    logprobs_start(&g->logprobs, g->logprobs.n_top);
    if (g->constraint) constrain_reset(g->constraint);
    for (int i = 0; i < n; i++) sample_accept(g->sampler, ids[i]);

    double begin = term_seconds();
    struct infer_output out = {0};
    TRY(prefill(g, ids, start, n, &out));
    TRY(choose(g, &out));
    *token = g->next;
    g->prompt_seconds = term_seconds() - begin;
    return INFER_OK;
}

/* Queues the row that feeds the token before: known, or INFER_LAST when it is still on the device. */
static enum infer_status feed(struct generator *g, int32_t id, int pos) {
    struct infer_row row = {.id = id, .pos = pos, .seq = g->seq, .decode = true, .want = wanted(g)};
    return infer_submit(g->session->engine, &row, 1);
}

/* True when the device works while the host does other things, so the next step is queued before this one is
 * read. */
static bool runs_ahead(const struct generator *g) {
    const char *device = g->session->place.device;
    return wanted(g) == INFER_WANT_TOKEN && !g->lookup && strcmp(device, "cpu") != 0 &&
           strcmp(device, "ref") != 0;
}

/* Drops the older half of a full context, but for its first token, and computes the rest anew: keys know their
 * position, so they cannot simply move. */
static enum infer_status shift(struct generator *g, int32_t *token) {
    int keep = g->n_ids / 2, n = 0, computed = g->n_prompt;
    g->spare[n++] = g->ids[0];
    memcpy(g->spare + n, g->ids + g->n_ids - keep, (size_t)keep * sizeof *g->ids);
    n += keep;
    g->spare[n++] = g->next;
    TRY(infer_seq_rewind(g->session->engine, g->seq, 0));
    g->n_ids = 0;
    struct infer_output out;
    TRY(prefill(g, g->spare, 0, n, &out));
    g->n_prompt = computed;
    g->n_shift++;
    TRY(choose(g, &out));
    *token = g->next;
    return INFER_OK;
}

/* One decode step, or the wait for the one that is in flight. */
static enum infer_status decode_one(struct generator *g, int32_t *token) {
    struct session *s = g->session;
    if (!g->ahead) TRY(feed(g, g->next, g->n_ids));
    g->ahead = false;
    bool more = runs_ahead(g) && g->n_ids + 1 < s->place.n_ctx;
    if (more) TRY(feed(g, INFER_LAST, g->n_ids + 1));
    struct infer_output out;
    enum infer_status st = infer_wait(s->engine, &out);
    if (st) {
        if (more) infer_wait(s->engine, &out); /* it fails like the one before */
        return st;
    }
    g->ahead = more;
    g->ids[g->n_ids++] = g->next;
    TRY(choose(g, &out));
    *token = g->next;
    g->n_decoded++;
    g->n_step++;
    return INFER_OK;
}

/* Guesses what follows: the tokens behind the last place where the three tokens at the end stood before. */
static int guess(const struct generator *g, const int32_t **out) {
    int n = g->n_ids, most = g->session->place.n_ctx - n - 1;
    if (most > GENERATE_GUESS) most = GENERATE_GUESS;
    if (n < 3) return 0;
    for (int i = n - 2; i >= 2; i--) {
        if (g->ids[i] != g->next || g->ids[i - 1] != g->ids[n - 1] || g->ids[i - 2] != g->ids[n - 2])
            continue;
        *out = g->ids + i + 1;
        return n - i - 1 < most ? n - i - 1 : most;
    }
    return 0;
}

/* Feeds the token before and the guesses in one step; what the model says itself counts, so the tokens are those of
 * decoding one by one. source: Saxena 2023 (prompt lookup); Leviathan et al. 2023 for the acceptance. */
static enum infer_status decode_guessed(struct generator *g, const int32_t *draft, int n, int32_t *token) {
    struct infer_row rows[GENERATE_GUESS + 1];
    struct infer_output out;
    for (int i = 0; i <= n; i++)
        rows[i] = (struct infer_row){.id = i ? draft[i - 1] : g->next,
                                     .pos = g->n_ids + i,
                                     .seq = g->seq,
                                     .decode = true,
                                     .want = INFER_WANT_TOKEN};
    TRY(infer_step(g->session->engine, rows, n + 1, &out));
    int right = 0;
    while (right < n && out.token[right] == rows[right + 1].id) right++;
    for (int i = 0; i <= right; i++) {
        g->ids[g->n_ids++] = rows[i].id;
        g->ready[i] = out.token[i];
        sample_accept(g->sampler, out.token[i]);
    }
    TRY(infer_seq_rewind(g->session->engine, g->seq, g->n_ids));
    g->n_ready = right;
    g->next = out.token[right];
    *token = g->ready[0];
    g->first_ready = 1;
    g->n_guessed += n;
    g->n_right += right;
    g->n_decoded += right + 1;
    g->n_step++;
    return INFER_OK;
}

enum infer_status generate_next(struct generator *g, int32_t *token) {
    struct session *s = g->session;
    if (g->n_ready) {
        *token = g->ready[g->first_ready++];
        g->n_ready--;
        return INFER_OK;
    }
    if (g->n_ids >= s->place.n_ctx && (!g->shift || s->place.n_ctx < 8))
        return err_set(INFER_E_FULL, "the context of %d tokens is full (--ctx)", s->place.n_ctx);
    double begin = term_seconds();
    const int32_t *draft;
    int n = g->lookup && wanted(g) == INFER_WANT_TOKEN && !g->ahead ? guess(g, &draft) : 0;
    TRY(g->n_ids >= s->place.n_ctx ? shift(g, token)
        : n                        ? decode_guessed(g, draft, n, token)
                                   : decode_one(g, token));
    g->answer_seconds += term_seconds() - begin;
    return INFER_OK;
}

enum infer_status generate_end(struct generator *g) {
    if (!g->ahead) return INFER_OK;
    struct infer_output out;
    g->ahead = false;
    enum infer_status st = infer_wait(g->session->engine, &out);
    if (st && st != INFER_E_CANCEL) return st;
    return infer_seq_rewind(g->session->engine, g->seq, g->n_ids);
}

enum infer_status generate_save(struct generator *g, const char *path) {
    return infer_seq_save(g->session->engine, g->seq, path);
}

enum infer_status generate_load(struct generator *g, const char *path) {
    struct infer_engine *e = g->session->engine;
    TRY(infer_seq_rewind(e, g->seq, 0));
    g->n_ids = 0;
    TRY(infer_seq_load(e, g->seq, path));
    g->n_ids = infer_seq_length(e, g->seq);
    memcpy(g->ids, infer_seq_ids(e, g->seq), (size_t)g->n_ids * sizeof *g->ids);
    return INFER_OK;
}

static enum infer_status show_new(const struct generate_how *how, struct answer *a) {
    size_t n;
    bool thinking;
    for (const char *text; text = answer_take(a, &n, &thinking), n;)
        TRY(how->show(how->user, text, n, thinking));
    return INFER_OK;
}

/* The bytes that a token adds to the text; control tokens add none, but for the marks around thinking. */
static const char *piece_of(const struct generator *g, int32_t token, bool first, size_t *n) {
    const char *piece = infer_piece(g->session->model, token, true, first, n);
    return answer_is_tag(piece, *n) ? piece : infer_piece(g->session->model, token, false, first, n);
}

/* The tokens of the answer, until something ends it. */
static enum infer_status answer_tokens(struct generator *g, const int32_t *ids, int n,
                                       const struct generate_how *how, struct answer *a,
                                       enum generate_why *why) {
    int32_t token;
    *why = GENERATE_LIMIT;
    loop_start(&g->loop);
    TRY(generate_prompt(g, ids, n, &token));
    for (int made = 0; how->limit < 0 || made < how->limit; made++) {
        if (made) {
            enum infer_status st = generate_next(g, &token);
            if (st == INFER_E_FULL) {
                *why = GENERATE_FULL;
                return INFER_OK;
            }
            TRY(st);
        }
        if (infer_is_stop(g->session->model, token) || token == how->end) {
            *why = GENERATE_TURN;
            return INFER_OK;
        }
        size_t len;
        const char *piece = piece_of(g, token, how->first && made == 0, &len);
        TRY(answer_push(a, piece, len));
        g->n_answer++;
        if (a->stopped) {
            *why = GENERATE_STOP;
            return INFER_OK;
        }
        TRY(show_new(how, a));
        g->cycle = loop_push(&g->loop, token);
        if (g->cycle && how->loop_stop) {
            *why = GENERATE_LOOP;
            return INFER_OK;
        }
    }
    return INFER_OK;
}

bool generate_loop_stop(const struct options *o) {
    return strcmp(o->loop_stop, "on") == 0 && !options_given(o, "n-predict");
}

enum infer_status generate_answer(struct generator *g, const int32_t *ids, int n,
                                  const struct generate_how *how, struct answer *a, enum generate_why *why) {
    enum infer_status st = answer_tokens(g, ids, n, how, a, why);
    if (st == INFER_E_CANCEL) {
        *why = GENERATE_CANCEL;
        st = INFER_OK;
    }
    enum infer_status end = generate_end(g);
    if (!st) st = end;
    if (!st) st = answer_finish(a);
    if (!st) st = show_new(how, a);
    return st;
}

double generate_token_bytes(const struct generator *g) {
    const struct session *s = g->session;
    double rows = (double)s->place.n_slot * s->place.n_ctx;
    double kv_row = rows > 0 ? (double)s->place.kv_bytes / rows : 0; /* pages round it up a little */
    return (double)s->info.token_bytes + kv_row * (g->n_ids - g->n_decoded / 2.0);
}

void generate_summary(const struct generator *g, char *buf, size_t n) {
    char reused[48] = "", answer[96] = "", prompt[48] = "", lookup[48] = "";
    if (g->n_reused) snprintf(reused, sizeof reused, " (%d more were there)", g->n_reused);
    if (g->prompt_seconds > 0)
        snprintf(prompt, sizeof prompt, " at %.0f tok/s", g->n_prompt / g->prompt_seconds);
    if (g->answer_seconds > 0 && g->n_decoded) {
        double rate = g->n_decoded / g->answer_seconds;
        double read = g->n_step / g->answer_seconds * generate_token_bytes(g) * 1e-9;
        snprintf(answer, sizeof answer, " at %.1f tok/s, %.1f GB/s", rate, read);
    }
    if (g->lookup) snprintf(lookup, sizeof lookup, "; lookup %d of %d right", g->n_right, g->n_guessed);
    snprintf(buf, n, "prompt %d tokens%s%s; answer %d tokens%s%s", g->n_prompt, reused, prompt, g->n_answer,
             answer, lookup);
}

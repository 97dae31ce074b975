/* What run and chat do alike: a request as the options say, the thinking part, the figures. */
#include "tools/talk/talk.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "request/answer.h"
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/interrupt.h"
#include "tools/sampling.h"
#include "tools/sight.h"
#include "tools/talk/preview.h"
#include "tools/tool.h"
#include "base/host.h"

/* ---- options -> what a request asks for ---- */

/* "ID=X" of every --logit-bias into bias[n] */
static enum infer_status read_biases(const struct option_texts *t, struct infer_sample_bias *bias) {
    for (int i = 0; i < t->n; i++) {
        char *end;
        long id = strtol(t->text[i], &end, 10);
        bool named = end != t->text[i] && *end == '=' && id >= 0 && id <= INT32_MAX;
        const char *value = end + 1;
        float x = named ? strtof(value, &end) : 0;
        if (!named || end == value || *end || isnan(x))
            return err_set(INFER_E_INPUT, "--logit-bias %s is not like 123=-1.5", t->text[i]);
        bias[i] = (struct infer_sample_bias){(int32_t)id, x};
    }
    return INFER_OK;
}

static enum infer_status sampling(const struct options *o, struct infer_sample_bias *bias,
                                  struct infer_sample_params *out) {
    struct infer_sample_params p = infer_sample_defaults();
#define INFER_SAMPLE(type, field, ...) p.field = (INFER_SAMPLE_##type)o->field;
#include "infer_sample.def"
    p.seed = o->seed;
    if (o->samplers) TRY(infer_sample_set_order(&p, o->samplers));
    TRY(read_biases(&o->logit_bias, bias));
    p.bias = bias;
    p.n_bias = o->logit_bias.n;
    *out = p;
    return INFER_OK;
}

enum infer_status talk_params(struct talk *t, const struct options *o, struct infer_request_params *out) {
    struct infer_request_params p = infer_request_defaults();
    TRY(sampling(o, t->bias, &p.sample));
    TRY(infer_sample_check(&p.sample));
    t->draws = p.sample.temp > 0;
    t->seed = p.sample.seed;
    for (; p.n_stop < o->stop.n; p.n_stop++) t->stop[p.n_stop] = o->stop.text[p.n_stop];
    if (*t->end.text) t->stop[p.n_stop++] = t->end.text;
    p.stop = t->stop;
    p.end_id = t->end.id;
    p.seq = t->seq;
    p.constraint = t->constraint;
    p.n_predict = o->n_predict;
    p.overflow = strcmp(o->overflow, "shift") == 0 ? INFER_OVERFLOW_SHIFT : INFER_OVERFLOW_END;
    p.loop_stop = strcmp(o->loop_stop, "on") == 0 && !options_given(o, "n-predict");
    p.drafter = t->draft.by;
    p.n_draft = t->draft.most;
    p.n_logprob = o->logprobs;
    p.n_think = o->think_budget > 0 ? o->think_budget : 0;
    p.think_seconds = o->think_seconds;
    *out = p;
    return INFER_OK;
}

/* The options that say what the answer may be. */
struct form {
    const char *option, *value;
    enum infer_grammar_kind kind;
    enum text_kind file; /* of the file that value names */
};

static enum infer_status compile(struct talk *t, const struct form *f) {
    char *text;
    size_t n;
    if (f->kind == INFER_GRAMMAR_REGEX) {
        const enum infer_status st = infer_grammar_open(&t->grammar, f->kind, f->value, strlen(f->value));
        return st ? err_prefix(st, "--%s", f->option) : INFER_OK;
    }
    TRY(text_read(&text, &n, f->value, f->file));
    const enum infer_status st = infer_grammar_open(&t->grammar, f->kind, text, n);
    mem_free(text);
    return st ? err_prefix(st, "%s", f->value) : INFER_OK;
}

static enum infer_status open_constraint(struct talk *t, const struct options *o) {
    const struct form list[] = {{"grammar", o->grammar, INFER_GRAMMAR_TEXT, TEXT_GRAMMAR},
                                {"json-schema", o->json_schema, INFER_GRAMMAR_SCHEMA, TEXT_SCHEMA},
                                {"lark-file", o->lark_file, INFER_GRAMMAR_LARK, TEXT_GRAMMAR},
                                {"regex", o->regex, INFER_GRAMMAR_REGEX, TEXT_GRAMMAR},
                                {"structural-tag", o->structural_tag, INFER_GRAMMAR_TAGS, TEXT_SCHEMA}},
                      *is = NULL;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!list[i].value) continue;
        if (is)
            return err_set(INFER_E_INPUT, "--%s and --%s are both given, and one can hold", is->option,
                           list[i].option);
        is = &list[i];
    }
    if (!is) return INFER_OK;
    TRY(compile(t, is));
    TRY(infer_grammar_vocab_open(&t->vocab, t->session.model));
    return infer_constraint_open(&t->constraint, t->grammar, t->vocab, t->session.info.n_vocab);
}

void talk_seed(struct options *o) {
    if (o->seed == OPTION_RANDOM) o->seed = sampling_seed();
}

/* ---- from the model to an answer ---- */

/* Answers that are no longer do without copies of the weights, which take 0.1 s a GB and more; with drafts the first steps are compared. */
enum { FEW_TOKENS = 8 };

enum infer_status talk_begin(struct talk *t, const struct options *o) {
    TRY(session_drafter(o, &t->draft));
    const struct session_need need = {
        .slots = 1, .repack_after = t->draft.by ? 0 : FEW_TOKENS, .text = true, .draft = &t->draft};
    TRY(session_open(&t->session, o, &need));
    if (o->raw) return INFER_OK;
    t->template.no_thinking = strcmp(o->thinking, "off") == 0 || o->think_budget == 0;
    t->template.text = t->session.info.chat_template;
    t->template.n = t->session.info.chat_template_len;
    if (!o->chat_template) return INFER_OK;
    TRY(text_read(&t->template_text, &t->template.n, o->chat_template, TEXT_TEMPLATE));
    t->template.text = t->template_text;
    return INFER_OK;
}

/* The terminal is asked once. */
static void show_picture(struct talk *t, const struct options *o, const void *bytes, size_t n) {
    if (!t->asked) t->preview = preview_kind(o->image_preview);
    t->asked = true;
    preview_show(t->preview, bytes, n);
}

enum infer_status talk_picture(struct talk *t, const struct options *o, const char *path, char *line,
                               size_t n) {
    struct infer_picture *p;
    char *bytes;
    size_t n_byte;
    if (!t->template.text)
        return err_set(INFER_E_INPUT, "%s: pictures need a chat template%s", path,
                       o->raw ? ", and this is --raw" : "");
    if (!t->vision) TRY(sight_open(&t->vision, &t->session, o, true));
    TRY(sight_read(&bytes, &n_byte, o, path));
    const enum infer_status st = sight_picture(&p, t->vision, path, bytes, n_byte, line, n);
    if (!st && !o->quiet) show_picture(t, o, bytes, n_byte);
    mem_free(bytes);
    TRY(st);
    struct infer_picture **grown = mem_realloc(t->picture, (size_t)(t->n_picture + 1) * sizeof *grown);
    if (grown) t->picture = grown;
    char **files = mem_realloc(t->picture_file, (size_t)(t->n_picture + 1) * sizeof *files),
         *file = mem_strdup(strcmp(path, "-") == 0 ? "stdin" : path);
    if (files) t->picture_file = files;
    if (!grown || !files || !file) {
        infer_picture_free(p);
        mem_free(file);
        return err_set(INFER_E_MEMORY, "%s", path);
    }
    t->picture_file[t->n_picture] = file;
    t->picture[t->n_picture++] = p;
    t->template.picture = t->picture;
    t->template.n_picture = t->n_picture;
    return INFER_OK;
}

void talk_forget_pictures(struct talk *t) {
    for (int i = 0; i < t->n_picture; i++) {
        infer_picture_free(t->picture[i]);
        mem_free(t->picture_file[i]);
    }
    mem_free(t->picture);
    mem_free(t->picture_file);
    t->picture = NULL;
    t->picture_file = NULL;
    t->template.picture = NULL;
    t->template.n_picture = t->n_picture = 0;
}

enum infer_status talk_say(struct talk *t, json_t *messages, int first, const char *text, size_t n) {
    TRY(infer_prompt_add_message(messages, "user", text, n));
    if (first == t->n_picture) return INFER_OK;
    json_t *m = json_array_get(messages, json_array_size(messages) - 1), *parts = json_array();
    bool ok = parts != NULL;
    for (int i = first; i < t->n_picture; i++)
        ok = ok && !json_array_append_new(parts, json_pack("{s:s, s:i, s:s}", "type", "image", "picture", i,
                                                           "file", t->picture_file[i]));
    ok = ok && !json_array_append_new(
                   parts, json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(m, "content")));
    if (ok && !json_object_set_new(m, "content", parts)) return INFER_OK;
    return err_set(INFER_E_MEMORY, "a message");
}

/* Rows of the prompt's pictures; Ctrl-C ends that. */
static enum infer_status see(struct talk *t, struct infer_prompt *p) {
    if (!p->n_rows) return INFER_OK;
    interrupt_stops_picture(t->vision);
    enum infer_status st = INFER_OK;
    for (int i = 0; !st && i < p->n_rows; i++) {
        int k = 0; /* whose file it is */
        while (t->picture[k] != p->picture[i]) k++;
        st = infer_picture_see(p->picture[i]);
        if (st == INFER_E_INPUT) st = err_prefix(st, "%s", t->picture_file[k]);
    }
    if (!st) st = infer_prompt_see(p);
    interrupt_stops_picture(NULL);
    return st;
}

enum infer_status talk_open(struct talk *t, const struct options *o) {
    struct session *s = &t->session;
    struct infer_request_params p;
    t->end =
        t->template.text ? infer_prompt_turn_end(s->model, &t->template) : (struct infer_turn_end){.id = -1};
    TRY(talk_params(t, o, &p));
    TRY(open_constraint(t, o));
    TRY(infer_sched_open(&t->sched, s->engine, s->model));
    if (s->drafter) TRY(infer_sched_draft_with(t->sched, s->drafter, s->draft_model));
    return infer_seq_open(s->engine, &t->seq);
}

void talk_close(struct talk *t) {
    infer_request_free(t->request);
    infer_sched_close(t->sched);
    infer_constraint_close(t->constraint);
    infer_grammar_vocab_close(t->vocab);
    infer_grammar_free(t->grammar);
    mem_free(t->template_text);
    talk_forget_pictures(t);
    infer_vision_close(t->vision);
    session_close(&t->session);
    *t = (struct talk){0};
}

static void show_prompt_progress(void *user, int done, int n) {
    struct talk *t = user;
    if (done < n)
        progress_show(&t->session.progress, "prompt", done, n, "tokens");
    else
        progress_clear(&t->session.progress);
}

static enum infer_status show_text(void *user, const char *text, size_t n, bool thinking) {
    struct talk *t = user;
    return t->show(t->user, text, n, thinking);
}

enum infer_status talk_answer(struct talk *t, const struct options *o, struct infer_prompt *p) {
    struct infer_request_params params;
    struct infer_request *r;
    TRY(talk_params(t, o, &params));
    TRY(see(t, p));
    infer_request_prompt(&params, p, t->template.text != NULL);
    enum { MOST = sizeof t->think_end / sizeof *t->think_end };
    params.think_end = t->think_end;
    if (t->template.text)
        params.n_think_end = infer_prompt_think_end(t->session.model, p, t->think_end, MOST);
    if (!params.n_think_end && (params.n_think || params.think_seconds > 0))
        tool_say("nothing is known that would end this model's thinking: it has no budget");
    params.on_text = show_text;
    params.on_prompt = show_prompt_progress;
    params.user = t;
    TRY(infer_request_new(&r, t->sched, &params));
    infer_request_free(t->request);
    t->request = r;
    interrupt_stops(t->session.engine, r);
    enum infer_status st = infer_request_run(r);
    interrupt_stops(t->session.engine, NULL);
    progress_clear(&t->session.progress);
    if (st) t->request = NULL, infer_request_free(r);
    return st;
}

int talk_held(const struct talk *t) { return infer_seq_length(t->session.engine, t->seq); }

/* ---- what a model thinks ---- */

/* A folded part is a line while it lasts, on a terminal only. */
static void fold(struct thoughts *t) {
    t->folded = true;
    t->start = host_seconds();
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%sthinking ...%s", t->dim ? "\033[2m" : "", t->dim ? "\033[0m" : "");
}

void talk_thinking(struct thoughts *t, const struct options *o, const char *text, size_t n) {
    if (strcmp(o->thinking, "hide") == 0 || strcmp(o->thinking, "off") == 0) return;
    if (!t->open) {
        t->open = true;
        t->dim = term_colour(stderr);
        if (strcmp(o->thinking, "fold") == 0) fold(t);
        if (t->dim && !t->folded) fputs("\033[2m", stderr);
        size_t skip = strspn(text, "\n");
        if (skip > n) skip = n;
        text += skip, n -= skip;
    }
    if (t->folded) return;
    if (n) t->last = text[n - 1];
    term_write_safe(stderr, text, n);
}

void talk_thinking_end(struct thoughts *t) {
    if (!t->open) return;
    if (t->folded && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%sthought for %.1f s%s\n", t->dim ? "\033[2m" : "",
                host_seconds() - t->start, t->dim ? "\033[0m" : "");
    if (!t->folded && t->dim) fputs("\033[0m", stderr);
    if (!t->folded && t->last != '\n') fputc('\n', stderr);
    *t = (struct thoughts){0};
}

const char *talk_thinking_gap(char last) { return last == '\n' ? "\n" : "\n\n"; }

void talk_loop(const struct options *o, int cycle, const char *set) {
    const char *other = o->repeat_penalty == 1 ? "repeat-penalty 1.1"
                        : o->temp == 0         ? "temp 0.7"
                                               : "seed random";
    tool_say("the answer repeats its last %d token%s over and over and was ended; %s%s may do better, "
             "%sloop-stop off lets "
             "it go on",
             cycle, cycle > 1 ? "s" : "", set, other, set);
}

/* ---- figures ---- */

double talk_token_bytes(const struct talk *t) {
    const struct session *s = &t->session;
    const struct infer_request_figures *f = infer_request_figures(t->request);
    return (double)s->info.token_bytes + infer_kv_read_bytes(&s->place, f->n_held - f->n_decoded / 2.0);
}

double talk_rate(const struct infer_request_figures *f) {
    if (f->even_seconds > 0) return f->n_even / f->even_seconds;
    return f->answer_seconds > 0 ? f->n_decoded / f->answer_seconds : 0;
}

double talk_step_rate(const struct infer_request_figures *f) {
    if (f->even_seconds > 0) return f->n_even_step / f->even_seconds;
    return f->answer_seconds > 0 ? f->n_step / f->answer_seconds : 0;
}

double talk_speed_up(const struct infer_request_figures *f) {
    return f->n_step && f->answer_seconds > 0 ? f->n_decoded * f->plain_seconds / f->answer_seconds : 0;
}

/* "; draft 17 of 18 right, 3.0 tokens a step, 1.9 times as fast" */
static void say_drafts(const struct talk *t, char *buf, size_t n) {
    const struct infer_request_figures *f = infer_request_figures(t->request);
    const double times = talk_speed_up(f);
    int len = snprintf(buf, n, "; %s %d of %d right", t->draft.by == INFER_DRAFT_LOOKUP ? "lookup" : "draft",
                       f->n_right, f->n_guessed);
    if (f->n_guessed && f->n_step)
        len += snprintf(buf + len, n - (size_t)len, ", %.1f tokens a step", (double)f->n_decoded / f->n_step);
    if (f->n_guessed && times > 0) snprintf(buf + len, n - (size_t)len, ", %.2f times as fast", times);
}

void talk_summary(const struct talk *t, char *buf, size_t n) {
    const struct infer_request_figures *f = infer_request_figures(t->request);
    char reused[48] = "", answer[96] = "", prompt[48] = "", drafts[96] = "", seed[40] = "";
    if (f->n_reused) snprintf(reused, sizeof reused, " (%d more were there)", f->n_reused);
    if (f->prompt_seconds > 0)
        snprintf(prompt, sizeof prompt, " at %.0f tok/s", f->n_prompt / f->prompt_seconds);
    if (f->answer_seconds > 0 && f->n_decoded) {
        double rate = talk_rate(f), read = talk_step_rate(f) * talk_token_bytes(t) * 1e-9;
        snprintf(answer, sizeof answer, " at %.1f tok/s, %.1f GB/s", rate, read);
    }
    if (t->draft.by) say_drafts(t, drafts, sizeof drafts);
    if (t->draws) snprintf(seed, sizeof seed, "; seed %llu", (unsigned long long)t->seed);
    snprintf(buf, n, "prompt %d tokens%s%s; answer %d tokens%s%s%s", f->n_prompt, reused, prompt, f->n_answer,
             answer, drafts, seed);
}

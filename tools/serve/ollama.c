/* The API of ollama, for clients that know no other: /api/chat, /api/generate, /api/show, /api/tags, /api/ps, /api/version. Streams are
 * lines of JSON, and are what a request gets that does not say. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "tools/serve/openai.h"
#include "tools/serve/routes.h"
#include "tools/serve/server.h"

struct ollama_state {
    bool generate, raw;
    int n_id, n_answered; /* calls of the messages, and results of them */
    char *prompt, *system, *suffix;
    bool logprobs, remembers; /* the answer has log probabilities; it ends with its context */
    int top_logprobs;
    struct buf name, args; /* of the open call */
};

/* ---- fields ---- */

static enum infer_status read_message(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    json_t *m = json_copy((json_t *)v), *call, *calls = json_deep_copy(json_object_get(v, "tool_calls"));
    const char *role = json_string_value(json_object_get(v, "role"));
    char id[16];
    size_t i;
    if (json_array_size(json_object_get(v, "images"))) {
        json_decref(m);
        json_decref(calls);
        return job_refuse(j, 400, "unsupported_content", at,
                          "'%s' has images, and this model reads text alone", at);
    }
    json_array_foreach(
        calls, i, call) { /* ids are not told here, and templates want them: nine letters, as Mistral's */
        snprintf(id, sizeof id, "call%05d", s->n_id++ % 100000);
        if (!json_object_get(call, "id")) json_object_set_new(call, "id", json_string(id));
        json_object_set_new(call, "type", json_string("function"));
    }
    if (calls) json_object_set(m, "tool_calls", calls);
    if (json_is_string(json_object_get(v, "thinking")))
        json_object_set(m, "reasoning_content", json_object_get(v, "thinking"));
    if (role && strcmp(role, "tool") == 0) {
        json_t *name = json_object_get(v, "tool_name");
        snprintf(id, sizeof id, "call%05d", s->n_answered++ % 100000);
        if (!json_object_get(v, "tool_call_id")) json_object_set_new(m, "tool_call_id", json_string(id));
        if (name) json_object_set(m, "name", name);
    }
    enum infer_status st = openai_message(j, at, m);
    json_decref(calls);
    json_decref(m);
    return st;
}

static enum infer_status read_messages(struct job *j, const char *at, const json_t *v) {
    return openai_messages(j, at, v, read_message);
}

static enum infer_status read_think(struct job *j, const char *at, const json_t *v) {
    if (!json_is_boolean(v)) return openai_effort(j, at, v);
    snprintf(j->ask.effort, sizeof j->ask.effort, "%s", json_is_true(v) ? "medium" : "none");
    return INFER_OK;
}

static enum infer_status read_format(struct job *j, const char *at, const json_t *v) {
    const char *word = json_string_value(v);
    if (json_is_object(v)) return field_schema(j, at, v);
    if (word && !*word) return INFER_OK;
    if (!word || strcmp(word, "json") != 0)
        return job_refuse(j, 400, "invalid_value", at, "'%s' must be \"json\" or a JSON Schema", at);
    json_t *any = json_pack("{s:s}", "type", "object");
    enum infer_status st =
        any ? field_schema(j, at, any) : err_set(INFER_E_MEMORY, "out of memory: a schema");
    json_decref(any);
    return st;
}

static enum infer_status read_logprobs(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_bool(j, at, v, &s->logprobs);
}
static enum infer_status read_top_logprobs(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_int(j, at, v, 0, LOGPROBS_MAX, &s->top_logprobs);
}

/* context: what an earlier answer ended with. */
static enum infer_status read_past(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    size_t i;
    json_t *x;
    if (!json_is_array(v))
        return job_refuse(j, 400, "invalid_value", at, "'%s' must be an array of token ids", at);
    TRY(mem_new(&a->context, (json_array_size(v) + 1) * sizeof *a->context, "a context"));
    json_array_foreach((json_t *)v, i, x) {
        int id = 0;
        TRY(field_int(j, at, x, 0, j->server->info.n_vocab - 1, &id));
        a->context[a->n_context++] = id;
    }
    return INFER_OK;
}

static enum infer_status read_length(struct job *j, const char *at, const json_t *v) {
    int n = 0;
    TRY(field_int(j, at, v, 0, 1e9, &n));
    if (n > j->server->n_ctx) job_warn(j, at, "the context has %d tokens", j->server->n_ctx);
    return INFER_OK;
}

static enum infer_status read_most(struct job *j, const char *at, const json_t *v) {
    TRY(field_int(j, at, v, -2, 1e9, &j->ask.n_predict));
    if (j->ask.n_predict < 1) j->ask.n_predict = -1;
    return INFER_OK;
}

static enum infer_status read_options(struct job *j, const char *at, const json_t *v) {
    static const struct field rows[] = {
        {"num_predict", FIELD_HAND, .hand = read_most},
        {"num_ctx", FIELD_HAND, .hand = read_length},
        {"num_keep", .type = FIELD_SILENT},
        {"num_gpu", .type = FIELD_SILENT},
        {"num_thread", .type = FIELD_SILENT},
        {"num_batch", .type = FIELD_SILENT},
        {"main_gpu", .type = FIELD_SILENT},
        {"numa", .type = FIELD_SILENT},
        {"use_mmap", .type = FIELD_SILENT},
        {.name = NULL},
    };
    if (!json_is_object(v)) return job_refuse(j, 400, "invalid_value", at, "'%s' must be an object", at);
    return fields_read(j, at, v, (const struct field *const[]){rows, fields_sampling, fields_undone, NULL});
}

static enum infer_status read_prompt(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_keep(j, at, v, 32 << 20, &s->prompt);
}
static enum infer_status read_system(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_keep(j, at, v, 32 << 20, &s->system);
}
static enum infer_status read_suffix(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_keep(j, at, v, 32 << 20, &s->suffix);
}
static enum infer_status read_raw(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return field_bool(j, at, v, &s->raw);
}
static enum infer_status read_images(struct job *j, const char *at, const json_t *v) {
    return json_array_size(v)
               ? job_refuse(j, 400, "unsupported_content", at, "'%s': this model reads text alone", at)
               : INFER_OK;
}

#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field common[] = {
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"options", FIELD_HAND, .hand = read_options},
    {"format", FIELD_HAND, .hand = read_format},
    {"think", FIELD_HAND, .hand = read_think},
    {"logprobs", FIELD_HAND, .hand = read_logprobs},
    {"top_logprobs", FIELD_HAND, .hand = read_top_logprobs},
    {"keep_alive", .type = FIELD_SILENT},
    {"truncate", .type = FIELD_SILENT}, /* a prompt that does not fit is refused */
    {"shift", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK
static const struct field of_chat[] = {
    {"messages", FIELD_HAND, .hand = read_messages},
    {"tools", FIELD_HAND, .hand = openai_tools},
    {.name = NULL},
};
static const struct field of_generate[] = {
    {"prompt", FIELD_HAND, .hand = read_prompt},
    {"system", FIELD_HAND, .hand = read_system},
    {"raw", FIELD_HAND, .hand = read_raw},
    {"images", FIELD_HAND, .hand = read_images},
    {"template", FIELD_NEUTRAL, .why = "is not taken from requests: the model's holds"},
    {"suffix", FIELD_HAND, .hand = read_suffix},
    {"context", FIELD_HAND, .hand = read_past},
    {.name = NULL},
};

static enum infer_status begin_read(struct job *j, const json_t *body, const struct field *rows) {
    struct ollama_state *s;
    TRY(mem_new(&s, sizeof *s, "a request"));
    j->state = s;
    j->ask.stream = true;
    TRY(fields_read(j, "", body, (const struct field *const[]){common, rows, fields_undone, NULL}));
    if (s->logprobs) j->ask.n_logprob = s->top_logprobs;
    return INFER_OK;
}

static enum infer_status chat_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, of_chat));
    if (!j->ask.messages) return job_refuse(j, 400, "invalid_value", "messages", "'messages' is missing");
    if (j->ask.tools) j->ask.tool_choice = TOOLS_AUTO;
    return INFER_OK;
}

static enum infer_status generate_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, of_generate));
    struct ollama_state *s = j->state;
    struct ask *a = &j->ask;
    s->generate = true;
    if (!s->prompt) return job_refuse(j, 400, "invalid_value", "prompt", "'prompt' is missing");
    if (a->n_context && ((s->suffix && *s->suffix) || s->raw || !j->server->template.text))
        return job_refuse(j, 400, "invalid_value", "context",
                          "'context' goes on with a conversation, and 'raw' or 'suffix' makes no one");
    if (s->suffix && *s->suffix) {
        TRY(mem_new(&a->prompt, sizeof *a->prompt, "prompts"));
        a->n_prompt = 1;
        return fim_prompt(
            j, "suffix",
            &(struct fim_parts){s->prompt, s->suffix, strlen(s->prompt), strlen(s->suffix), NULL, NULL},
            a->prompt);
    }
    if (s->raw || !j->server->template.text) {
        TRY(mem_new(&a->prompt, sizeof *a->prompt, "prompts"));
        a->n_prompt = 1;
        a->prompt[0] = (struct ask_prompt){.text = s->prompt, .n = strlen(s->prompt)};
        s->prompt = NULL;
        return INFER_OK;
    }
    s->remembers = a->return_ids = true;
    a->messages = json_array();
    if (s->system && *s->system)
        json_array_append_new(a->messages, json_pack("{s:s, s:s}", "role", "system", "content", s->system));
    if (json_array_append_new(a->messages, json_pack("{s:s, s:s}", "role", "user", "content", s->prompt)))
        return err_set(INFER_E_MEMORY, "out of memory: a message");
    return INFER_OK;
}

/* ---- answers ---- */

static void now(struct buf *out) {
    char text[40];
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &utc));
    buf_printf(out, "\"%s.%06ldZ\"", text, t.tv_nsec / 1000);
}

static void head(const struct job *j, struct buf *out) {
    buf_text(out, "{\"model\":");
    buf_json_text(out, j->server->name);
    buf_text(out, ",\"created_at\":");
    now(out);
}

/* One call as an element of tool_calls. */
static void call(const struct buf *name, const struct buf *args, struct buf *out) {
    json_t *is = args->n ? json_loadb(args->p, args->n, JSON_ALLOW_NUL, NULL) : NULL;
    buf_text(out, "{\"function\":{\"name\":");
    buf_json(out, name->p ? name->p : "", name->n);
    buf_text(out, ",\"arguments\":");
    buf_text(out, json_is_object(is) ? args->p : "{}");
    buf_text(out, "}}");
    json_decref(is);
}

/* The text of a line: text and thinking; the caller closes a chat's message, after calls. */
static void said(const struct ollama_state *s, const struct buf *text, const struct buf *thinking,
                 struct buf *out) {
    buf_text(out, s->generate ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    buf_json(out, text && text->p ? text->p : "", text && text->p ? text->n : 0);
    if (!thinking || !thinking->n) return;
    buf_text(out, ",\"thinking\":");
    buf_json(out, thinking->p, thinking->n);
}

/* The ids of the prompt and of the answer, with the end of its turn: a request that has them goes on from there. */
static void context(const struct job *j, struct buf *out) {
    const struct job_answer *a = job_answer(j, 0);
    const struct server *s = j->server;
    buf_text(out, ",\"context\":[");
    for (int i = 0; i < j->prompt[0].n; i++) buf_printf(out, "%s%d", i ? "," : "", j->prompt[0].ids[i]);
    for (int i = 0; i < a->n_token; i++) buf_printf(out, ",%d", a->token[i].id);
    const int32_t end = s->end.id >= 0 ? s->end.id : infer_eos(s->model);
    if (a->finish != FINISH_LENGTH && end >= 0) buf_printf(out, ",%d", end);
    buf_text(out, "]");
}

static void logprobs(const struct job *j, const struct event_token *t, int n, struct buf *out) {
    if (j->ask.n_logprob < 0 || !n) return;
    buf_text(out, ",\"logprobs\":");
    openai_logprobs(j, t, n, out);
}

static void last(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    buf_printf(out,
               ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%.0f,\"load_duration\":0,\"prompt_"
               "eval_count\":%d,"
               "\"prompt_eval_duration\":%.0f,\"eval_count\":%d,\"eval_duration\":%.0f",
               job_answer(j, 0)->finish == FINISH_LENGTH ? "length" : "stop",
               1e6 * (n->queue_ms + n->prompt_ms + n->answer_ms), n->prompt, 1e6 * n->prompt_ms, n->answer,
               1e6 * n->answer_ms);
    if (((const struct ollama_state *)j->state)->remembers) context(j, out);
    buf_text(out, ",");
    openai_infer(j, out);
    buf_text(out, "}\n");
}

static void ollama_event(struct job *j, const struct event *e, struct buf *out) {
    struct ollama_state *s = j->state;
    const struct buf text = {.p = (char *)e->text, .n = e->n};
    bool told = false;
    switch (e->kind) {
    case EVENT_CALL:
        s->name.n = s->args.n = 0;
        buf_add(&s->name, e->text, e->n);
        break;
    case EVENT_ARGS:
        buf_add(&s->args, e->text, e->n);
        break;
    case EVENT_PROGRESS:
    case EVENT_END:
        break;
    default:
        told = true;
        break;
    }
    if (!told && (!e->n_token || j->ask.n_logprob < 0))
        return; /* but for log probabilities there is no text */
    head(j, out);
    said(s, e->kind == EVENT_TEXT ? &text : NULL, e->kind == EVENT_REASONING ? &text : NULL, out);
    if (e->kind == EVENT_CALL_END) {
        buf_text(out, ",\"tool_calls\":[");
        call(&s->name, &s->args, out);
        buf_text(out, "]");
    }
    if (!s->generate) buf_text(out, "}");
    logprobs(j, e->token, e->n_token, out);
    if (e->kind == EVENT_DONE)
        last(j, out);
    else
        buf_text(out, ",\"done\":false}\n");
}

static void ollama_whole(struct job *j, struct buf *out) {
    struct ollama_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    head(j, out);
    said(s, &a->text, &a->reasoning, out);
    for (int i = 0; i < a->n_call; i++) {
        buf_text(out, i ? "," : ",\"tool_calls\":[");
        call(&a->call[i].name, &a->call[i].args, out);
    }
    buf_text(out, a->n_call ? "]" : "");
    if (!s->generate) buf_text(out, "}");
    logprobs(j, a->token, a->n_token, out);
    last(j, out);
}

static void ollama_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                         struct buf *out) {
    (void)j, (void)request_id, (void)in_stream;
    buf_text(out, "{\"error\":");
    buf_json_text(out, r->message);
    buf_text(out, "}\n");
}

static void ollama_done(struct job *j) {
    struct ollama_state *s = j->state;
    if (!s) return;
    mem_free(s->prompt);
    mem_free(s->system);
    mem_free(s->suffix);
    buf_free(&s->name);
    buf_free(&s->args);
    mem_free(s);
}

/* ---- the model ---- */

static void details(const struct server *s, struct buf *out) {
    buf_printf(out,
               "{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"%s\",\"families\":[\"%s\"],"
               "\"parameter_size\":\"%.1fB\",\"quantization_level\":\"%s\"}",
               s->info.arch, s->info.arch, (double)s->info.n_param / 1e9, s->info.type_name);
}

static void model(const struct server *s, bool loaded, struct buf *out) {
    char iso[32];
    struct tm utc;
    strftime(iso, sizeof iso, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&(time_t){s->created}, &utc));
    buf_text(out, "{\"models\":[");
    for (int i = 0; i < s->n_name && atomic_load(&s->state) != SERVER_LOADING; i++) {
        buf_text(out, i ? ",{\"name\":" : "{\"name\":");
        buf_json_text(out, s->names[i]);
        buf_text(out, ",\"model\":");
        buf_json_text(out, s->names[i]);
        buf_printf(out, ",\"modified_at\":\"%s\",\"size\":%llu,\"digest\":\"%s\",\"details\":", iso,
                   (unsigned long long)s->info.file_bytes, s->fingerprint);
        details(s, out);
        if (loaded)
            buf_printf(out, ",\"expires_at\":\"9999-12-31T00:00:00Z\",\"size_vram\":0,\"context_length\":%d",
                       s->n_ctx);
        buf_text(out, "}");
    }
    buf_text(out, "]}\n");
}

void ollama_tags(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    model(s, false, &p->body);
}
void ollama_ps(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    model(s, true, &p->body);
}
void ollama_version(struct server *s, const char *rest, struct page *p) {
    (void)s, (void)rest;
    buf_text(&p->body, "{\"version\":\"0.12.0\"}\n"); /* whose API this is: clients compare it */
}

static enum infer_status show_read(struct job *j, const json_t *body) {
    const json_t *name = json_object_get(body, "model");
    if (!name) name = json_object_get(body, "name");
    if (json_is_string(name)) snprintf(j->ask.model, sizeof j->ask.model, "%s", json_string_value(name));
    return INFER_OK;
}

static enum infer_status show_reply(struct job *j, struct buf *out) {
    const struct server *s = j->server;
    const struct infer_model_info *m = &s->info;
    buf_text(out, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
    buf_json(out, s->template.text ? s->template.text : "", s->template.text ? s->template.n : 0);
    buf_text(out, ",\"details\":");
    details(s, out);
    buf_printf(out,
               ",\"model_info\":{\"general.architecture\":\"%s\",\"general.parameter_count\":%llu,\"%s."
               "context_length\":%d,"
               "\"%s.embedding_length\":%d,\"%s.block_count\":%d},\"capabilities\":[\"completion\"%s%s]}\n",
               m->arch, (unsigned long long)m->n_param, m->arch, s->n_ctx, m->arch, m->n_embd, m->arch,
               m->n_layer, s->template.text ? ",\"tools\"" : "", s->tools.thinking ? ",\"thinking\"" : "");
    return INFER_OK;
}

#define ANSWERS                                                                                              \
    .prefix = "", .stream_type = "application/x-ndjson", .event = ollama_event, .whole = ollama_whole,       \
    .error = ollama_error, .done = ollama_done
const struct front_end ollama_chat = {.read = chat_read, ANSWERS};
const struct front_end ollama_generate = {.read = generate_read, ANSWERS};
const struct front_end ollama_show = {
    .prefix = "", .read = show_read, .reply = show_reply, .error = ollama_error};

/* The API of ollama, for clients that know no other: /api/chat, /api/generate, /api/show, /api/tags, /api/ps, /api/version. Streams are
 * lines of JSON, and are what a request gets that does not say. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/pictures.h"
#include "serve/api/routes.h"
#include "serve/core/house.h"
#include "serve/core/server.h"

struct ollama_state {
    bool generate, raw;
    int n_id, n_answered; /* calls of the messages, and results of them */
    char *prompt, *system, *suffix;
    bool logprobs, remembers; /* the answer has log probabilities; it ends with its context */
    int top_logprobs;
    struct buf name, args; /* of the open call */
    struct content shown;  /* pictures of a prompt */
};

/* ---- fields ---- */

/* images: files in base64, which stand in front of the text. */
static enum infer_status read_images(struct job *j, const char *at, const json_t *v, struct content *c) {
    size_t i;
    json_t *image;
    char place[128];
    if (!json_is_array(v)) return job_invalid(j, at, "'%s' must be an array of files in base64", at);
    json_array_foreach((json_t *)v, i, image) {
        snprintf(place, sizeof place, "%s[%zu]", at, i);
        if (!json_is_string(image)) return job_invalid(j, place, "'%s' must be a file in base64", place);
        const char *text = json_string_value(image),
                   *comma = strncmp(text, "data:", 5) ? NULL : strchr(text, ',');
        const char *from = comma ? comma + 1 : text;
        TRY(content_base64(j, place, from, json_string_length(image) - (size_t)(from - text), 0, c));
    }
    return INFER_OK;
}

/* The last message's text stands behind its pictures. */
static enum infer_status add_images(struct job *j, const char *at, const json_t *images) {
    struct content c = {0};
    char place[96];
    json_t *m = json_array_get(j->ask.messages, json_array_size(j->ask.messages) - 1);
    const json_t *text = json_object_get(m, "content");
    if (!json_array_size(images)) return INFER_OK;
    snprintf(place, sizeof place, "%s.images", at);
    enum infer_status st = read_images(j, place, images, &c);
    if (!st && json_is_string(text)) buf_add(&c.text, json_string_value(text), json_string_length(text));
    if (!st && json_object_set_new(m, "content", content_take(&c)))
        st = err_set(INFER_E_MEMORY, "out of memory: a message");
    content_free(&c);
    return st;
}

static enum infer_status read_message(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    json_t *m = json_copy((json_t *)v), *call, *calls = json_deep_copy(json_object_get(v, "tool_calls"));
    const char *role = json_string_value(json_object_get(v, "role"));
    char id[16];
    size_t i;
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
    if (!st) st = add_images(j, at, json_object_get(v, "images"));
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
    if (json_is_object(v)) return field_form(j, at, INFER_GRAMMAR_SCHEMA, v);
    if (word && !*word) return INFER_OK;
    if (!word || strcmp(word, "json") != 0)
        return job_invalid(j, at, "'%s' must be \"json\" or a JSON Schema", at);
    return field_any_object(j, at);
}

/* context: what an earlier answer ended with. */
static enum infer_status read_past(struct job *j, const char *at, const json_t *v) {
    return field_ids(j, at, v, &j->ask.context, &j->ask.n_context);
}

static enum infer_status read_length(struct job *j, const char *at, const json_t *v) {
    int n = 0;
    TRY(field_int(j, at, v, 0, 1e9, &n));
    if (n > j->server->n_ctx) job_warn(j, at, "the context has %d tokens", j->server->n_ctx);
    return INFER_OK;
}

static enum infer_status read_most(struct job *j, const char *at, const json_t *v) {
    TRY(field_int(j, at, v, -2, 1e9, &j->ask.params.n_predict));
    if (j->ask.params.n_predict < 1) j->ask.params.n_predict = -1;
    return INFER_OK;
}

static enum infer_status read_options(struct job *j, const char *at, const json_t *v) {
    static const struct field rows[] = {
        {"num_predict", FIELD_HAND, .hand = read_most},
        {"num_ctx", FIELD_HAND, .hand = read_length},
        {"num_keep num_gpu num_thread num_batch main_gpu numa use_mmap", .type = FIELD_SILENT},
        {.name = NULL},
    };
    if (!json_is_object(v)) return job_invalid(j, at, "'%s' must be an object", at);
    return fields_read(j, at, v, FIELDS(rows, fields_sampling, fields_undone));
}

static enum infer_status read_shown(struct job *j, const char *at, const json_t *v) {
    struct ollama_state *s = j->state;
    return read_images(j, at, v, &s->shown);
}

#define OWN(field) .offset = offsetof(struct ollama_state, field), .own = true
#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field common[] = {
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"options", FIELD_HAND, .hand = read_options},
    {"format", FIELD_HAND, .hand = read_format},
    {"think", FIELD_HAND, .hand = read_think},
    {"logprobs", FIELD_BOOL, OWN(logprobs)},
    {"top_logprobs", FIELD_INT, 0, INFER_LOGPROBS_MAX, OWN(top_logprobs)},
    {"include_energy", FIELD_BOOL, ASK(energy)},
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
    {"prompt", FIELD_KEEP, 0, 32 << 20, OWN(prompt)},
    {"system", FIELD_KEEP, 0, 32 << 20, OWN(system)},
    {"raw", FIELD_BOOL, OWN(raw)},
    {"images", FIELD_HAND, .hand = read_shown},
    {"template", FIELD_NEUTRAL, .why = "is not taken from requests: the model's holds"},
    {"suffix", FIELD_KEEP, 0, 32 << 20, OWN(suffix)},
    {"context", FIELD_HAND, .hand = read_past},
    {.name = NULL},
};

static enum infer_status begin_read(struct job *j, const json_t *body, const struct field *rows) {
    struct ollama_state *s = j->state;
    j->ask.stream = true;
    TRY(fields_read(j, "", body, FIELDS(common, rows, fields_undone)));
    if (s->logprobs) j->ask.params.n_logprob = s->top_logprobs;
    return INFER_OK;
}

static enum infer_status chat_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, of_chat));
    if (!j->ask.messages) return job_invalid(j, "messages", "'messages' is missing");
    if (j->ask.tools) j->ask.tool_choice = TOOLS_AUTO;
    return INFER_OK;
}

static enum infer_status generate_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, of_generate));
    struct ollama_state *s = j->state;
    struct ask *a = &j->ask;
    s->generate = true;
    if (!s->prompt) return job_invalid(j, "prompt", "'prompt' is missing");
    if (a->n_context && ((s->suffix && *s->suffix) || s->raw || !j->server->template.text))
        return job_invalid(j, "context",
                           "'context' goes on with a conversation, and 'raw' or 'suffix' makes no one");
    if (s->shown.parts && ((s->suffix && *s->suffix) || s->raw || !j->server->template.text))
        return job_invalid(j, "images", "'images' stand in a conversation, and 'raw' or 'suffix' makes none");
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
    buf_text(&s->shown.text, s->prompt);
    if (json_array_append_new(a->messages,
                              json_pack("{s:s, s:o}", "role", "user", "content", content_take(&s->shown))))
        return err_set(INFER_E_MEMORY, "out of memory: a message");
    return INFER_OK;
}

/* ---- answers ---- */

static void head(const struct job *j, struct buf *out) {
    char text[40];
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &utc));
    snprintf(text + n, sizeof text - n, ".%06ldZ", t.tv_nsec / 1000);
    json_put(out, "{model:%s created_at:%s", j->server->name, text);
}

/* One call as an element of tool_calls. */
static void call(const struct buf *name, const struct buf *args, struct buf *out) {
    json_t *is = args->n ? json_loadb(args->p, args->n, JSON_ALLOW_NUL, NULL) : NULL;
    json_put(out, "{function:{name:%.*s arguments:", BUF_TEXT(*name));
    buf_text(out, json_is_object(is) ? args->p : "{}");
    json_put(out, "}}");
    json_decref(is);
}

/* The text of a line: text and thinking; the caller closes a chat's message, after calls. */
static void said(const struct ollama_state *s, const struct buf *text, const struct buf *thinking,
                 struct buf *out) {
    json_put(out, s->generate ? "response:" : "message:{role:'assistant' content:");
    json_put(out, "%.*s", BUF_TEXT(*text));
    if (thinking->n) json_put(out, "thinking:%.*s", BUF_TEXT(*thinking));
}

/* The ids of the prompt and of the answer, with the end of its turn: a request that has them goes on from there. */
static void context(const struct job *j, struct buf *out) {
    const struct job_answer *a = job_answer(j, 0);
    const struct server *s = j->server;
    json_put(out, "context:[");
    for (int i = 0; i < j->prompt[0].n; i++) json_put(out, "%d", j->prompt[0].ids[i]);
    for (int i = 0; i < a->n_token; i++) json_put(out, "%d", a->token[i].id);
    const int32_t end = s->end.id >= 0 ? s->end.id : infer_eos(s->model);
    if (a->finish != FINISH_LENGTH && end >= 0) json_put(out, "%d", end);
    json_put(out, "]");
}

static void logprobs(const struct job *j, const struct event_token *t, int n, struct buf *out) {
    if (j->ask.params.n_logprob < 0 || !n) return;
    json_put(out, "logprobs:");
    openai_logprobs(j, t, n, out);
}

static void last(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    json_put(out,
             "done:true done_reason:%s total_duration:%.0f load_duration:0 prompt_eval_count:%d "
             "prompt_eval_duration:%.0f eval_count:%d eval_duration:%.0f",
             job_answer(j, 0)->finish == FINISH_LENGTH ? "length" : "stop",
             1e6 * (n->queue_ms + n->prompt_ms + n->answer_ms), n->prompt, 1e6 * n->prompt_ms, n->answer,
             1e6 * n->answer_ms);
    openai_energy(j, out);
    if (((const struct ollama_state *)j->state)->remembers) context(j, out);
    openai_infer(j, out);
    json_put(out, "}\n");
}

static void ollama_event(struct job *j, const struct event *e, struct buf *out) {
    struct ollama_state *s = j->state;
    const struct buf said_now = {.p = (char *)e->text, .n = e->n}, none = {0};
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
    if (!told && (!e->n_token || j->ask.params.n_logprob < 0))
        return; /* but for log probabilities there is no text */
    head(j, out);
    said(s, e->kind == EVENT_TEXT ? &said_now : &none, e->kind == EVENT_REASONING ? &said_now : &none, out);
    if (e->kind == EVENT_CALL_END) {
        json_put(out, "tool_calls:[");
        call(&s->name, &s->args, out);
        json_put(out, "]");
    }
    if (!s->generate) json_put(out, "}");
    logprobs(j, e->token, e->n_token, out);
    if (e->kind == EVENT_DONE)
        last(j, out);
    else
        json_put(out, "done:false}\n");
}

static void ollama_whole(struct job *j, struct buf *out) {
    struct ollama_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    head(j, out);
    said(s, &a->text, &a->reasoning, out);
    if (a->n_call) json_put(out, "tool_calls:[");
    for (int i = 0; i < a->n_call; i++) call(&a->call[i].name, &a->call[i].args, out);
    if (a->n_call) json_put(out, "]");
    if (!s->generate) json_put(out, "}");
    logprobs(j, a->token, a->n_token, out);
    last(j, out);
}

void ollama_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out) {
    (void)j, (void)request_id, (void)in_stream;
    json_put(out, "{error:%s}\n", r->message);
}

static void ollama_done(struct job *j) {
    struct ollama_state *s = j->state;
    mem_free(s->prompt);
    mem_free(s->system);
    mem_free(s->suffix);
    buf_free(&s->name);
    buf_free(&s->args);
    content_free(&s->shown);
}

/* ---- the model ---- */

/* A model as this API tells it, loaded or not. */
struct told {
    const char *name, *digest, *arch, *type;
    uint64_t n_param, bytes, vram;
    int n_ctx;
    double stays; /* seconds until it goes; less than 0: for ever */
};

static void details(const struct told *t, struct buf *out) {
    char size[32];
    snprintf(size, sizeof size, "%.1fB", (double)t->n_param / 1e9);
    json_put(out,
             "details:{parent_model:'' format:'gguf' family:%s families:[%s] parameter_size:%s "
             "quantization_level:%s}",
             t->arch, t->arch, size, t->type);
}

static struct told told_of(const struct server *s, int name) {
    return (struct told){.name = s->names[name],
                         .digest = s->fingerprint,
                         .arch = s->info.arch,
                         .type = s->info.type_name,
                         .n_param = s->info.n_param,
                         .bytes = s->info.file_bytes,
                         .n_ctx = s->n_ctx,
                         .stays = -1};
}

/* One of several; the view outlives it. */
static struct told told_of_view(const struct house_view *v, int name) {
    return (struct told){.name = v->server->names[name],
                         .digest = v->name,
                         .arch = v->info.arch,
                         .type = v->info.type,
                         .n_param = v->info.n_param,
                         .bytes = v->info.file_bytes,
                         .vram = v->info.need.card,
                         .n_ctx = v->info.n_ctx,
                         .stays = v->stays};
}

static void when(char *text, size_t n, time_t t) {
    struct tm utc;
    strftime(text, n, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
}

static void model(const struct server *s, const struct told *t, bool loaded, struct buf *out) {
    char iso[32];
    when(iso, sizeof iso, s->created);
    json_put(out, "{name:%s model:%s modified_at:%s size:%llu digest:%s", t->name, t->name, iso,
             (unsigned long long)t->bytes, t->digest);
    details(t, out);
    if (loaded) {
        when(iso, sizeof iso, time(NULL) + (time_t)t->stays);
        json_put(out, "expires_at:%s size_vram:%llu context_length:%d",
                 t->stays < 0 ? "9999-12-31T00:00:00Z" : iso, (unsigned long long)t->vram, t->n_ctx);
    }
    json_put(out, "}");
}

static void models(struct server *s, bool loaded, struct buf *out) {
    json_put(out, "{models:[");
    for (int i = 0; house_of(s) && i < house_count(s->house); i++) {
        struct house_view v;
        house_see(s->house, i, &v);
        for (int k = 0; k < v.server->n_name && (!loaded || v.state == FLEET_IN); k++) {
            const struct told t = told_of_view(&v, k);
            model(s, &t, loaded, out);
        }
    }
    for (int i = 0; i < s->n_name && atomic_load(&s->state) != SERVER_LOADING; i++) {
        const struct told t = told_of(s, i);
        model(s, &t, loaded, out);
    }
    json_put(out, "]}\n");
}

void ollama_tags(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    models(s, false, &p->body);
}
void ollama_ps(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    models(s, true, &p->body);
}
void ollama_version(struct server *s, const char *rest, struct page *p) {
    (void)s, (void)rest;
    json_put(&p->body, "{version:'0.12.0'}\n"); /* whose API this is: clients compare it */
}

static enum infer_status show_read(struct job *j, const json_t *body) {
    const json_t *name = json_object_get(body, "model");
    if (!name) name = json_object_get(body, "name");
    if (json_is_string(name)) snprintf(j->ask.model, sizeof j->ask.model, "%s", json_string_value(name));
    return INFER_OK;
}

/* What all models have of it. */
static void show(const struct told *t, const char *template, size_t n, int n_embd, int n_layer,
                 struct buf *out) {
    const struct {
        const char *name;
        int is;
    } of_arch[] = {{"context_length", t->n_ctx}, {"embedding_length", n_embd}, {"block_count", n_layer}};
    json_put(out, "{license:'' modelfile:'' parameters:'' template:%.*s", (int)n, template);
    details(t, out);
    json_put(out, "model_info:{general.architecture:%s general.parameter_count:%llu", t->arch,
             (unsigned long long)t->n_param);
    for (int i = 0; i < 3; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", t->arch, of_arch[i].name);
        json_put(out, "%s:%d", key, of_arch[i].is);
    }
    json_put(out, "} capabilities:['completion'");
}

/* One of several, which is not loaded for it. */
static enum infer_status show_one(struct job *j, struct buf *out) {
    struct house_view v;
    struct refusal r;
    const int i = house_find(j->server->house, j->ask.model, &r);
    if (i < 0) return job_refuse(j, r.status, r.code, r.param, "%s", r.message);
    house_see(j->server->house, i, &v);
    const struct told t = told_of_view(&v, 0);
    show(&t, "", 0, v.info.n_embd, v.info.n_layer, out);
    if (v.info.sees) json_put(out, "'vision'");
    if (v.info.talks) json_put(out, "'tools'");
    json_put(out, "]}\n");
    return INFER_OK;
}

static enum infer_status show_reply(struct job *j, struct buf *out) {
    const struct server *s = j->server;
    if (s->house) return show_one(j, out);
    const struct told t = told_of(s, 0);
    show(&t, s->template.text, s->template.text ? s->template.n : 0, s->info.n_embd, s->info.n_layer, out);
    if (s->vision) json_put(out, "'vision'");
    if (s->template.text) json_put(out, "'tools'");
    if (s->tools.thinking) json_put(out, "'thinking'");
    json_put(out, "]}\n");
    return INFER_OK;
}

/* ---- a request that only loads its model, or lets it go ---- */

static bool loads_only(const json_t *body) {
    const json_t *messages = json_object_get(body, "messages");
    const char *prompt = json_string_value(json_object_get(body, "prompt"));
    return !json_array_size(messages) && !(prompt && *prompt) && !json_object_get(body, "images");
}

static void loaded(const struct job *j, const char *why, struct buf *out) {
    char text[40];
    when(text, sizeof text, time(NULL));
    json_put(out, "{model:%s created_at:%s", *j->ask.model ? j->ask.model : j->server->name, text);
    json_put(out, j->front == &ollama_chat ? "message:{role:'assistant' content:''}" : "response:''");
    json_put(out, "done:true done_reason:%s}\n", why);
}

#define ANSWERS                                                                                              \
    .prefix = "", .stream_type = "application/x-ndjson", .event = ollama_event, .whole = ollama_whole,       \
    .error = ollama_error, .done = ollama_done, .keeps = true, .loads_only = loads_only, .loaded = loaded
const struct front_end ollama_chat = {.state = sizeof(struct ollama_state), .read = chat_read, ANSWERS};
const struct front_end ollama_generate = {
    .state = sizeof(struct ollama_state), .read = generate_read, ANSWERS};
const struct front_end ollama_show = {
    .prefix = "", .read = show_read, .reply = show_reply, .error = ollama_error, .of_house = true};

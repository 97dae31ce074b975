/* The routes that need no answer of the model: models, health, tokens, templates, what the server is doing. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

/* ---- models ---- */

static void add_model(const struct server *s, const char *name, struct buf *out) {
    char iso[32];
    struct tm utc;
    strftime(iso, sizeof iso, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&(time_t){s->created}, &utc));
    json_put(out,
             "{id:%s object:'model' type:'model' created:%ld created_at:%s display_name:%s owned_by:'infer' "
             "max_model_len:%d context_length:%d max_input_tokens:%d",
             name, s->created, iso, name, s->n_ctx, s->n_ctx, s->n_ctx);
    json_put(out, "meta:{n_vocab:%d n_ctx_train:%d n_embd:%d n_params:%llu size:%llu}}", s->info.n_vocab,
             s->info.n_ctx_train, s->info.n_embd, (unsigned long long)s->info.n_param,
             (unsigned long long)s->info.file_bytes);
}

/* What Codex reads of a list of models. */
static void add_codex(const struct server *s, struct buf *out) {
    json_put(out,
             "{slug:%s display_name:%s description:null default_reasoning_level:null "
             "supported_reasoning_levels:[] "
             "shell_type:'default' visibility:'list' supported_in_api:true priority:0 base_instructions:'' "
             "supports_reasoning_summaries:false support_verbosity:false apply_patch_tool_type:null "
             "truncation_policy:{mode:'tokens' limit:%d} supports_parallel_tool_calls:true context_window:%d "
             "max_context_window:%d auto_compact_token_limit:%d effective_context_window_percent:95 "
             "experimental_supported_tools:[] input_modalities:['text']}",
             s->name, s->name, s->n_ctx, s->n_ctx, s->n_ctx, (int)(0.9 * s->n_ctx));
}

static void not_ready(struct server *s, struct page *p) {
    const int state = atomic_load(&s->state);
    p->status = 503;
    json_put(&p->body, "{error:{code:503 message:%s type:'unavailable_error'}}\n",
             state == SERVER_LOADING ? "Loading model"
             : state == SERVER_LOST  ? "The device is lost"
                                     : "The server is stopping");
}

static void get_models(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
        return;
    }
    json_put(&p->body, "{object:'list' data:[");
    for (int i = 0; i < s->n_name; i++) add_model(s, s->names[i], &p->body);
    json_put(&p->body, "] has_more:false first_id:%s last_id:%s models:[", s->names[0],
             s->names[s->n_name - 1]);
    add_codex(s, &p->body);
    json_put(&p->body, "]}\n");
}

static void get_model(struct server *s, const char *rest, struct page *p) {
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
    } else if (server_knows_model(s, rest)) {
        add_model(s, rest, &p->body);
        buf_text(&p->body, "\n");
    } else {
        const struct refusal r = {.status = 404,
                                  .type = "invalid_request_error",
                                  .code = "model_not_found",
                                  .message = "there is no such model here"};
        p->status = 404;
        openai_error(NULL, &r, "", false, &p->body);
    }
}

static void get_health(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_READY)
        json_put(&p->body, "{status:'ok'}\n");
    else
        not_ready(s, p);
}

static void get_metrics(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (!s->o.metrics) {
        const struct refusal r = {.type = "invalid_request_error",
                                  .code = "not_found",
                                  .message = "there are no metrics: start with --metrics"};
        p->status = 404;
        openai_error(NULL, &r, "", false, &p->body);
        return;
    }
    p->type = "text/plain; version=0.0.4";
    metrics_write(s, &p->body);
}

static void get_slots(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (s->scheduler)
        scheduler_show(s->scheduler, &p->body);
    else
        not_ready(s, p);
}

static void get_props(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
        return;
    }
    const struct infer_sample_params *d = &s->sample;
    const struct tool_probe *t = &s->tools;
    json_put(&p->body,
             "{default_generation_settings:{n_ctx:%d params:{temperature:%g top_k:%d top_p:%g min_p:%g "
             "repeat_penalty:%g}} total_slots:%d model_alias:%s",
             s->n_ctx, (double)d->temp, d->top_k, (double)d->top_p, (double)d->min_p,
             (double)d->repeat_penalty, s->n_slot, s->name);
    json_put(&p->body, "chat_template:%.*s build_info:%s", s->template.text ? (int)s->template.n : 0,
             s->template.text, infer_version());
    json_put(&p->body, "tools:{format:%s from:%s shown_by:%s thinking_switch:%s reasoning_effort:%hhd}",
             t->format.row ? t->format.row->name : "none",
             t->rendered    ? "template"
             : t->described ? "default"
                            : "marks",
             t->described ? "system message" : "template", t->thinking, t->effort);
    json_put(&p->body, "system_fingerprint:%s}\n", s->fingerprint);
}

static void get_version(struct server *s, const char *rest, struct page *p) {
    (void)s, (void)rest;
    json_put(&p->body, "{version:%s}\n", infer_version());
}

/* name: the token's text, or null */
static void add_token(const struct server *s, const char *name, int32_t id, struct buf *out) {
    size_t n = 0;
    const char *piece = id >= 0 ? infer_piece(s->model, id, true, false, &n) : NULL;
    json_put(out, "%s:", name);
    if (piece)
        json_put(out, "%.*s", (int)n, piece);
    else
        json_put(out, "null");
}

/* What vLLM tells of a tokenizer: lm-eval asks for it, and makes ids with /tokenize. */
static void get_tokenizer(struct server *s, const char *rest, struct page *p) {
    int32_t first[4];
    size_t n = 0;
    (void)rest;
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
        return;
    }
    const bool adds = infer_tokenize(s->model, "", NULL, 0, INFER_TOK_ADD, first, 4, &n) == INFER_OK && n &&
                      first[0] == infer_bos(s->model);
    json_put(&p->body, "{tokenizer_class:'infer' model_max_length:%d add_bos_token:%hhd", s->n_ctx, adds);
    add_token(s, "bos_token", infer_bos(s->model), &p->body);
    add_token(s, "eos_token", infer_eos(s->model), &p->body);
    json_put(&p->body, "pad_token:null chat_template:");
    if (s->template.text)
        json_put(&p->body, "%.*s", (int)s->template.n, s->template.text);
    else
        json_put(&p->body, "null");
    json_put(&p->body, "}\n");
}

/* ---- POST /tokenize, /detokenize, /apply-template ---- */

static enum infer_status read_content(struct job *j, const char *at, const json_t *v) {
    if (j->ask.n_prompt) return job_invalid(j, at, "'content' and 'prompt' are both given");
    if (json_is_array(v)) return job_invalid(j, at, "'%s' must be a string, and is an array", at);
    return openai_prompts(j, at, v, 1);
}

static enum infer_status read_messages(struct job *j, const char *at, const json_t *v) {
    return openai_messages(j, at, v, openai_message);
}

static enum infer_status tokenize_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"content", FIELD_HAND, .hand = read_content},
        {"prompt", FIELD_HAND, .hand = read_content},
        {"messages", FIELD_HAND, .hand = read_messages},
        {"tools", FIELD_HAND, .hand = openai_tools},
        {"chat_template_kwargs", FIELD_HAND, .hand = openai_variables},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {"add_special", FIELD_BOOL, .offset = offsetof(struct ask, add_special)},
        {"add_special_tokens", FIELD_BOOL, .offset = offsetof(struct ask, add_special)},
        {"parse_special", FIELD_NOT, .offset = offsetof(struct ask, plain_text)},
        {"with_pieces", FIELD_BOOL, .offset = offsetof(struct ask, return_ids)},
        {"return_token_strs", FIELD_BOOL, .offset = offsetof(struct ask, return_ids)},
        {"add_generation_prompt", .type = FIELD_SILENT},
        {.name = NULL},
    };
    TRY(fields_read(j, "", body, (const struct field *const[]){rows, NULL}));
    if (!j->ask.messages == !j->ask.n_prompt)
        return job_invalid(j, "content", "one of 'content', 'prompt' and 'messages' is needed");
    return INFER_OK;
}

/* ids of the text with or without what the model adds */
static enum infer_status tokens_of(const struct job *j, int32_t **ids, size_t *n) {
    const struct ask_prompt *p = j->ask.prompt;
    const unsigned flags =
        (j->ask.add_special ? INFER_TOK_ADD : 0) | (j->ask.plain_text ? 0 : INFER_TOK_SPECIAL);
    size_t cap = p->n + 16;
    *ids = NULL;
    for (int round = 0; round < 2; round++) {
        mem_free(*ids);
        TRY(mem_new(ids, cap * sizeof **ids, "token ids"));
        TRY(infer_tokenize(j->server->model, p->text, NULL, p->n, flags, *ids, cap, n));
        if (*n <= cap) break;
        cap = *n;
    }
    return INFER_OK;
}

static enum infer_status tokenize_reply(struct job *j, struct buf *out) {
    int32_t *ids = j->n_prompt ? j->prompt[0].ids : NULL, *own = NULL;
    size_t n = j->n_prompt ? (size_t)j->prompt[0].n : 0;
    if (!j->ask.messages) {
        enum infer_status st = tokens_of(j, &own, &n);
        if (st) mem_free(own);
        if (st) return st;
        ids = own;
    }
    json_put(out, "{tokens:[");
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = infer_piece(j->server->model, ids[i], true, false, &len);
        json_put(out, j->ask.return_ids ? "{id:%d piece:" : "%d", ids[i]);
        if (!j->ask.return_ids) continue;
        openai_token(out, piece, len);
        json_put(out, "}");
    }
    json_put(out, "] count:%zu max_model_len:%d}\n", n, j->server->n_ctx);
    mem_free(own);
    return INFER_OK;
}

static enum infer_status read_tokens(struct job *j, const char *at, const json_t *v) {
    TRY(mem_new(&j->ask.prompt, sizeof *j->ask.prompt, "ids"));
    j->ask.n_prompt = 1;
    return field_ids(j, at, v, &j->ask.prompt->ids, &j->ask.prompt->n_id);
}

static enum infer_status detokenize_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"tokens", FIELD_HAND, .hand = read_tokens},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {.name = NULL},
    };
    TRY(fields_read(j, "", body, (const struct field *const[]){rows, NULL}));
    return j->ask.n_prompt ? INFER_OK : job_invalid(j, "tokens", "'tokens' is missing");
}

static enum infer_status detokenize_reply(struct job *j, struct buf *out) {
    struct buf text = {0};
    for (int i = 0; i < j->prompt[0].n; i++) {
        size_t n;
        const char *piece = infer_piece(j->server->model, j->prompt[0].ids[i], true, i == 0, &n);
        buf_add(&text, piece, n);
    }
    json_put(out, "{content:%.*s prompt:%.*s}\n", BUF_TEXT(text), BUF_TEXT(text));
    out->failed |= text.failed;
    buf_free(&text);
    return INFER_OK;
}

const struct front_end rest_tokenize = {
    .prefix = "", .read = tokenize_read, .reply = tokenize_reply, .error = openai_error};
const struct front_end rest_detokenize = {
    .prefix = "", .read = detokenize_read, .reply = detokenize_reply, .error = openai_error};
/* ---- the table ---- */

const struct route routes[] = {
    {"/v1/chat/completions", &openai_chat, NULL, false},
    {"/v1/chat/completions/input_tokens", &openai_count, NULL, false},
    {"/v1/completions", &openai_text, NULL, false},
    {"/v1/embeddings", &embeddings_api, NULL, false},
    {"/v1/messages", &messages_api, NULL, false},
    {"/v1/messages/count_tokens", &messages_count, NULL, false},
    {"/v1/responses", &responses_api, NULL, false},
    {"/v1/responses/input_tokens", &responses_count, NULL, false},
    {"/api/chat", &ollama_chat, NULL, false},
    {"/api/generate", &ollama_generate, NULL, false},
    {"/api/embed", &ollama_embed, NULL, false},
    {"/api/embeddings", &ollama_embedding, NULL, false},
    {"/api/show", &ollama_show, NULL, false},
    {"/api/tags", NULL, ollama_tags, false},
    {"/api/ps", NULL, ollama_ps, false},
    {"/api/version", NULL, ollama_version, false},
    {"/v1/models", NULL, get_models, false},
    {"/v1/models/", NULL, get_model, false},
    /* clients that leave /v1 out of their base URL */
    {"/chat/completions", &openai_chat, NULL, false},
    {"/completions", &openai_text, NULL, false},
    {"/embeddings", &embeddings_api, NULL, false},
    {"/responses", &responses_api, NULL, false},
    {"/messages", &messages_api, NULL, false},
    {"/messages/count_tokens", &messages_count, NULL, false},
    {"/models", NULL, get_models, false},
    {"/models/", NULL, get_model, false},
    {"/health", NULL, get_health, true},
    {"/v1/health", NULL, get_health, true},
    {"/healthz/ready", NULL, get_health, true},
    {"/ping", NULL, get_health, true},
    {"/version", NULL, get_version, false},
    {"/tokenizer_info", NULL, get_tokenizer, false},
    {"/v1/rerank", &rerank_api, NULL, false},
    {"/v2/rerank", &rerank_api, NULL, false},
    {"/rerank", &rerank_api, NULL, false},
    {"/v1/reranking", &rerank_api, NULL, false},
    {"/reranking", &rerank_api, NULL, false},
    {"/v1/score", &score_api, NULL, false},
    {"/score", &score_api, NULL, false},
    {"/completion", &native_completion, NULL, false},
    {"/embedding", &native_embedding, NULL, false},
    {"/infill", &infill_api, NULL, false},
    {"/tokenize", &rest_tokenize, NULL, false},
    {"/detokenize", &rest_detokenize, NULL, false},
    {"/apply-template", &rest_template, NULL, false},
    {"/props", NULL, get_props, false},
    {"/slots", NULL, get_slots, false},
    {"/metrics", NULL, get_metrics, false},
    {NULL, NULL, NULL, false},
};

const struct front_end *route_errors(const struct route *r, const char *path) {
    static const struct {
        const char *begin;
        const struct front_end *front;
    } of[] = {{"/api/", &ollama_chat}, {"/v1/messages/", &messages_api}};
    if (r && r->front) return r->front;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strncmp(path, of[i].begin, strlen(of[i].begin)) == 0) return of[i].front;
    return &openai_chat;
}

const struct route *route_find(const char *url, const char **rest) {
    *rest = "";
    for (const struct route *r = routes; r->path; r++) {
        const size_t n = strlen(r->path);
        if (strcmp(r->path, url) == 0) return r;
        if (r->path[n - 1] == '/' && strncmp(r->path, url, n) == 0) {
            *rest = url + n;
            return r;
        }
    }
    return NULL;
}

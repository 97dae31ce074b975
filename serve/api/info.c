/* What a GET is answered with: models, health, the tokenizer, what the server is doing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "serve/api/model_list.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/house.h"
#include "serve/core/server.h"
#include "serve/core/timeline.h"
#include "base/host.h"
#include "tools/trace.h"

/* ---- models ---- */

static void add_model(const struct server *s, const char *name, struct buf *out) {
    char iso[32];
    struct tm utc;
    strftime(iso, sizeof iso, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&(time_t){s->created}, &utc));
    json_put(out,
             "{id:%s object:'model' type:'model' created:%ld created_at:%s display_name:%s owned_by:'infer' "
             "max_model_len:%d context_length:%d max_input_tokens:%d",
             name, s->created, iso, name, s->n_ctx, s->n_ctx, s->n_ctx);
    json_put(out, s->vision ? "input_modalities:['text' 'image']" : "input_modalities:['text']");
    json_put(out, "meta:{n_vocab:%d n_ctx_train:%d n_embd:%d n_params:%llu size:%llu}}", s->info.n_vocab,
             s->info.n_ctx_train, s->info.n_embd, (unsigned long long)s->info.n_param,
             (unsigned long long)s->info.file_bytes);
}

void models_codex(const char *name, int n_ctx, bool sees, struct buf *out) {
    json_put(out,
             "{slug:%s display_name:%s description:null default_reasoning_level:null "
             "supported_reasoning_levels:[] "
             "shell_type:'default' visibility:'list' supported_in_api:true priority:0 base_instructions:'' "
             "supports_reasoning_summaries:false support_verbosity:false apply_patch_tool_type:null "
             "truncation_policy:{mode:'tokens' limit:%d} supports_parallel_tool_calls:true context_window:%d "
             "max_context_window:%d auto_compact_token_limit:%d effective_context_window_percent:95 "
             "experimental_supported_tools:[] input_modalities:['text'",
             name, name, n_ctx, n_ctx, n_ctx, (int)(0.9 * n_ctx));
    json_put(out, sees ? "'image']}" : "]}");
}

static void not_ready(struct server *s, struct page *p) {
    const int state = atomic_load(&s->state);
    p->status = 503;
    json_put(&p->body, "{error:{code:503 message:%s type:'unavailable_error'}}\n",
             state == SERVER_LOADING ? "Loading model"
             : state == SERVER_LOST  ? "The device is lost"
                                     : "The server is stopping");
}

void get_models(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
        return;
    }
    if (s->house) {
        models_list(s, p);
        return;
    }
    json_put(&p->body, "{object:'list' data:[");
    for (int i = 0; i < s->n_name; i++) add_model(s, s->names[i], &p->body);
    for (int i = s->adapters ? s->adapters->n : 0; s->loras && i < s->adapters->n + s->adapters->n_room;
         i++) {
        struct lora_seen seen;
        if (loras_at(s, i, &seen)) add_model(s, seen.name, &p->body);
    }
    json_put(&p->body, "] has_more:false first_id:%s last_id:%s models:[", s->names[0],
             s->names[s->n_name - 1]);
    models_codex(s->name, s->n_ctx, s->vision != NULL, &p->body);
    json_put(&p->body, "]}\n");
}

void get_model(struct server *s, const char *rest, struct page *p) {
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
    } else if (s->house) {
        models_one(s, rest, p);
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

void get_health(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_READY)
        json_put(&p->body, "{status:'ok'}\n");
    else
        not_ready(s, p);
}

void get_metrics(struct server *s, const char *rest, struct page *p) {
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
    if (house_of(s))
        house_metrics(s->house, &p->body);
    else
        metrics_write(s, &p->body);
}

void get_slots(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (s->scheduler)
        scheduler_show(s->scheduler, &p->body);
    else
        not_ready(s, p);
}

/* The last seconds that the path's end names. */
static int64_t trace_since(const char *rest) {
    char *end = NULL;
    const double seconds = *rest ? strtod(rest, &end) : 10;
    if (*rest && (*end || !(seconds > 0 && seconds <= 1e6))) return -1;
    const int64_t since = (int64_t)(1e9 * (host_seconds() - seconds));
    return since > 0 ? since : 0;
}

static void write_trace(struct server *s, int64_t since, struct buf *out) {
    const struct trace_extra requests = {timeline_write, s->timeline, s->counters};
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    out->failed |= !f || trace_write(f, s->profile, since, &requests);
    if (f) out->failed |= fclose(f) != 0;
    if (!out->failed) buf_add(out, text, n);
    free(text);
}

void get_trace(struct server *s, const char *rest, struct page *p) {
    const int64_t since = trace_since(rest);
    struct refusal r = {.type = "invalid_request_error"};
    if (!s->profile) {
        r.status = 404, r.code = "not_found";
        snprintf(r.message, sizeof r.message,
                 "this server keeps no trace: --profile or --trace when it is started");
    } else if (since < 0) {
        r.status = 400, r.code = "bad_value";
        snprintf(r.message, sizeof r.message, "/debug/trace/SECONDS: a number above 0, 1000000 at most");
    } else {
        write_trace(s, since, &p->body);
        return;
    }
    p->status = r.status;
    openai_error(NULL, &r, "", false, &p->body);
}

void get_props(struct server *s, const char *rest, struct page *p) {
    (void)rest;
    if (atomic_load(&s->state) == SERVER_LOADING) {
        not_ready(s, p);
        return;
    }
    if (s->house && s->member < 0) {
        models_props(s, p);
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
    json_put(&p->body,
             s->vision ? "modalities:{vision:true audio:false}" : "modalities:{vision:false audio:false}");
    json_put(&p->body, "tools:{format:%s from:%s shown_by:%s thinking_switch:%s reasoning_effort:%hhd}",
             t->format.row ? t->format.row->name : "none",
             t->rendered    ? "template"
             : t->described ? "default"
                            : "marks",
             t->described ? "system message" : "template", t->thinking, t->effort);
    json_put(&p->body, "system_fingerprint:%s}\n", s->fingerprint);
}

void get_version(struct server *s, const char *rest, struct page *p) {
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
void get_tokenizer(struct server *s, const char *rest, struct page *p) {
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

/* The models of a server of several, as clients of OpenAI, of llama.cpp's router and of Ollama ask for them. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "serve/api/model_list.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/house.h"

/* ---- lists ---- */

static void add_entry(const struct server *front, const struct house_view *v, const char *name,
                      struct buf *out) {
    const struct house_info *m = &v->info;
    char iso[32];
    struct tm utc;
    strftime(iso, sizeof iso, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&(time_t){front->created}, &utc));
    json_put(
        out,
        "{id:%s object:'model' type:'model' created:%ld created_at:%s display_name:%s owned_by:'infer' path:%s "
        "status:",
        name, front->created, iso, name, v->path);
    house_status(v, out);
    json_put(out, "pinned:%hhd", v->pinned);
    if (v->known) {
        json_put(out, "max_model_len:%d context_length:%d max_input_tokens:%d", m->n_ctx, m->n_ctx, m->n_ctx);
        json_put(out, m->sees ? "input_modalities:['text' 'image']" : "input_modalities:['text']");
        json_put(out, m->sees ? "architecture:{input_modalities:['text' 'image']"
                              : "architecture:{input_modalities:['text']");
        json_put(out, "output_modalities:['text']}");
        json_put(out,
                 "meta:{n_vocab:%d n_ctx:%d n_ctx_train:%d n_embd:%d n_params:%llu size:%llu bytes:%llu}",
                 m->n_vocab, m->n_ctx, m->n_ctx_train, m->n_embd, (unsigned long long)m->n_param,
                 (unsigned long long)m->file_bytes, (unsigned long long)(m->need.host + m->need.card));
    }
    json_put(out, "}");
}

void models_list(struct server *s, struct page *p) {
    struct house_view v;
    const int n = house_count(s->house);
    const char *first = NULL, *last = NULL;
    json_put(&p->body, "{object:'list' data:[");
    for (int i = 0; i < n; i++) {
        house_see(s->house, i, &v);
        for (int k = 0; k < v.server->n_name; k++) add_entry(s, &v, last = v.server->names[k], &p->body);
        if (!first) first = v.name;
    }
    json_put(&p->body, "] has_more:false first_id:%s last_id:%s models:[", first, last);
    for (int i = 0; i < n; i++) {
        house_see(s->house, i, &v);
        models_codex(v.name, v.info.n_ctx, v.info.sees, &p->body);
    }
    json_put(&p->body, "]}\n");
}

void models_one(struct server *s, const char *name, struct page *p) {
    struct house_view v;
    struct refusal r;
    const int i = house_find(s->house, name, &r);
    if (i < 0) {
        p->status = r.status;
        openai_error(NULL, &r, "", false, &p->body);
        return;
    }
    house_see(s->house, i, &v);
    add_entry(s, &v, v.name, &p->body);
    buf_text(&p->body, "\n");
}

void models_props(struct server *s, struct page *p) {
    json_put(
        &p->body,
        "{role:'router' models_autoload:true max_instances:%d build_info:%s default_generation_settings:{n_ctx:0} "
        "modalities:{vision:false audio:false}}\n",
        house_count(s->house), infer_version());
}

/* ---- to load, to let go ---- */

static enum infer_status ask_read(struct job *j, const json_t *body) {
    const json_t *name = json_object_get(body, "model");
    if (!j->server->house)
        return job_refuse(j, 404, "not_found", NULL,
                          "this server has one model (infer serve --models has several)");
    if (!json_is_string(name)) return job_invalid(j, "model", "'model' must be a model's name");
    snprintf(j->ask.model, sizeof j->ask.model, "%s", json_string_value(name));
    return INFER_OK;
}

static enum infer_status ask(struct job *j, bool in, struct buf *out) {
    const enum infer_status st = house_ask(j->server->house, j, j->ask.model, in);
    if (!st) json_put(out, "{success:true}\n");
    return st;
}
static enum infer_status load_reply(struct job *j, struct buf *out) { return ask(j, true, out); }
static enum infer_status unload_reply(struct job *j, struct buf *out) { return ask(j, false, out); }

static enum infer_status events_read(struct job *j, const json_t *body) {
    (void)j, (void)body;
    return INFER_OK;
}

/* A sign of life: what happens is written by the house. */
static void events_event(struct job *j, const struct event *e, struct buf *out) {
    (void)j;
    if (e->kind == EVENT_PING) buf_text(out, ": still here\n\n");
}

const struct front_end models_load = {
    .prefix = "", .read = ask_read, .reply = load_reply, .error = openai_error, .of_house = true};
const struct front_end models_unload = {
    .prefix = "", .read = ask_read, .reply = unload_reply, .error = openai_error, .of_house = true};
const struct front_end models_events = {
    .prefix = "", .read = events_read, .event = events_event, .error = openai_error, .of_house = true};

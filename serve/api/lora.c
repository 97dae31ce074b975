/* Adapters of llama.cpp's server: GET and POST /lora-adapters, and `lora` of requests. */
#include <stdio.h>
#include "base/mem.h"
#include "serve/api/fields.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

static enum infer_status read_entry(struct job *j, const char *at, const json_t *v) {
    const struct adapter_list *l = j->server->adapters;
    struct lora_seen seen;
    const json_t *id = json_object_get(v, "id"), *scale = json_object_get(v, "scale");
    char place[128];
    int i = 0;
    float x = 0;
    if (!json_is_object(v) || !id || !scale)
        return job_invalid(j, at, "'%s' must be an object {\"id\": number, \"scale\": number}", at);
    snprintf(place, sizeof place, "%s.id", at);
    TRY(field_int(j, place, id, 0, l->n_room ? l->n + l->n_room - 1 : l->n_lora - 1, &i));
    if (i >= l->n_lora && !loras_at(j->server, i, &seen))
        return job_invalid(j, place, "'%s': there is no adapter %d", place, i);
    snprintf(place, sizeof place, "%s.scale", at);
    TRY(field_float(j, place, scale, -1e6, 1e6, &x));
    j->ask.adapter[i] = x;
    return INFER_OK;
}

enum infer_status field_lora(struct job *j, const char *at, const json_t *v) {
    const bool some = json_is_array(v) ? json_array_size(v) != 0 : true;
    const struct adapter_list *l = j->server->adapters;
    if (some && (!l || !(l->n_lora + l->n_room)))
        return job_refuse(j, 400, "unsupported_parameter", at,
                          "'%s': this server has no adapters: it is to be started with --lora", at);
    mem_free(j->ask.adapter);
    TRY(server_scales(j->server, &j->ask.adapter));
    for (int i = 0; j->ask.adapter && i < l->n + l->n_room; i++)
        if (i < l->n_lora || i >= l->n) j->ask.adapter[i] = 0;
    j->ask.lora_said = true;
    return field_each(j, at, v, 0, ADAPTERS_MAX, "objects {id, scale}", read_entry);
}

/* llama.cpp's array, or, where several models are served, {model, lora: [..]}. */
static enum infer_status lora_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"lora", FIELD_HAND, .hand = field_lora},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {.name = NULL},
    };
    if (json_is_array(body)) return field_lora(j, "lora", body);
    if (!json_is_array(json_object_get(body, "lora"))) return job_invalid(j, "lora", "'lora' is missing");
    return fields_read(j, "", body, FIELDS(rows));
}

static enum infer_status lora_reply(struct job *j, struct buf *out) {
    if (j->ask.adapter) server_set_scales(j->server, j->ask.adapter);
    json_put(out, "{success:true}\n");
    return INFER_OK;
}

const struct front_end lora_api = {
    .prefix = "", .list = true, .read = lora_read, .reply = lora_reply, .error = openai_error};

void get_lora(struct server *s, const char *rest, struct page *p) {
    struct infer_adapter_info info;
    float *scale = NULL;
    (void)rest;
    const bool ready = atomic_load(&s->state) == SERVER_READY && server_scales(s, &scale) == INFER_OK;
    if (!ready) {
        p->status = 503;
        json_put(&p->body, "{error:{code:503 message:'Loading model' type:'unavailable_error'}}\n");
        return;
    }
    json_put(&p->body, "[");
    for (int i = 0; scale && i < s->adapters->n_lora; i++) {
        infer_adapter_info(s->adapters->adapter[i], &info);
        json_put(&p->body, "{id:%d path:%s scale:%g}", i, info.path, (double)scale[i]);
    }
    for (int i = s->adapters ? s->adapters->n : 0; scale && i < s->adapters->n + s->adapters->n_room; i++) {
        struct lora_seen seen;
        if (loras_at(s, i, &seen))
            json_put(&p->body, "{id:%d path:%s scale:%g name:%s}", i, seen.path, (double)scale[i], seen.name);
    }
    json_put(&p->body, "]\n");
    mem_free(scale);
}

/* ---- coming and going ---- */

static enum infer_status begin(struct job *j, const json_t *body, const char *path_at, const char *name_at) {
    static const struct field own[] = {
        {"path", FIELD_TEXT, 1, 4095, .offset = offsetof(struct lora_ask, path), .own = true},
        {"name", FIELD_TEXT, 1, 256, .offset = offsetof(struct lora_ask, name), .own = true},
        {"id", FIELD_INT, 0, ADAPTERS_MAX, .offset = offsetof(struct lora_ask, id), .own = true},
        {"scale", FIELD_NUMBER, -1e6, 1e6, .offset = offsetof(struct lora_ask, scale), .own = true},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {.name = NULL},
    };
    static const struct field vllm[] = {
        {"lora_path", FIELD_TEXT, 1, 4095, .offset = offsetof(struct lora_ask, path), .own = true},
        {"lora_name", FIELD_TEXT, 1, 256, .offset = offsetof(struct lora_ask, name), .own = true},
        {"lora_int_id base_model_name load_inplace is_3d_lora_weight", .type = FIELD_SILENT},
        {.name = NULL},
    };
    struct lora_ask *a = j->state;
    *a = (struct lora_ask){.path_at = path_at, .name_at = name_at, .id = -1};
    return fields_read(j, "", body, strcmp(path_at, "path") == 0 ? FIELDS(own) : FIELDS(vllm));
}
static enum infer_status need(struct job *j, const char *at, bool there) {
    return there ? INFER_OK : job_invalid(j, at, "'%s' is missing", at);
}

static enum infer_status load_read(struct job *j, const json_t *body) {
    TRY(begin(j, body, "path", "name"));
    return need(j, "path", *((struct lora_ask *)j->state)->path);
}
static enum infer_status unload_read(struct job *j, const json_t *body) {
    TRY(begin(j, body, "path", "name"));
    const struct lora_ask *a = j->state;
    return need(j, "name", *a->name || a->id >= 0);
}
static enum infer_status vllm_load_read(struct job *j, const json_t *body) {
    TRY(begin(j, body, "lora_path", "lora_name"));
    const struct lora_ask *a = j->state;
    TRY(need(j, "lora_name", *a->name));
    return need(j, "lora_path", *a->path);
}
static enum infer_status vllm_unload_read(struct job *j, const json_t *body) {
    TRY(begin(j, body, "lora_path", "lora_name"));
    return need(j, "lora_name", *((struct lora_ask *)j->state)->name);
}

static enum infer_status load_reply(struct job *j, struct buf *out) {
    struct lora_ask *a = j->state;
    int id;
    TRY(loras_load(j, a, &id));
    json_put(out, "{success:true id:%d name:%s}\n", id, a->name);
    return INFER_OK;
}
static enum infer_status unload_reply(struct job *j, struct buf *out) {
    TRY(loras_unload(j, j->state));
    json_put(out, "{success:true}\n");
    return INFER_OK;
}
/* vLLM's words. */
static void said(const char *what, const struct lora_ask *a, struct buf *out) {
    char text[400];
    snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.", a->name, what);
    buf_json_text(out, text);
    buf_text(out, "\n");
}
static enum infer_status vllm_load_reply(struct job *j, struct buf *out) {
    int id;
    TRY(loras_load(j, j->state, &id));
    said("added", j->state, out);
    return INFER_OK;
}
static enum infer_status vllm_unload_reply(struct job *j, struct buf *out) {
    TRY(loras_unload(j, j->state));
    said("removed", j->state, out);
    return INFER_OK;
}

#define LORA_FRONT(name, reader, replier)                                                                    \
    const struct front_end name = {.prefix = "",                                                             \
                                   .state = sizeof(struct lora_ask),                                         \
                                   .read = reader,                                                           \
                                   .reply = replier,                                                         \
                                   .error = openai_error};
LORA_FRONT(lora_load_api, load_read, load_reply)
LORA_FRONT(lora_unload_api, unload_read, unload_reply)
LORA_FRONT(lora_vllm_load_api, vllm_load_read, vllm_load_reply)
LORA_FRONT(lora_vllm_unload_api, vllm_unload_read, vllm_unload_reply)

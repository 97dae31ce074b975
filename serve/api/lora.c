/* Adapters of llama.cpp's server: GET and POST /lora-adapters, and `lora` of requests. */
#include <stdio.h>
#include "base/mem.h"
#include "serve/api/fields.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

static enum infer_status read_entry(struct job *j, const char *at, const json_t *v) {
    const int n = j->server->adapters->n_lora;
    const json_t *id = json_object_get(v, "id"), *scale = json_object_get(v, "scale");
    char place[128];
    int i = 0;
    float x = 0;
    if (!json_is_object(v) || !id || !scale)
        return job_invalid(j, at, "'%s' must be an object {\"id\": number, \"scale\": number}", at);
    snprintf(place, sizeof place, "%s.id", at);
    TRY(field_int(j, place, id, 0, n - 1, &i));
    snprintf(place, sizeof place, "%s.scale", at);
    TRY(field_float(j, place, scale, -1e6, 1e6, &x));
    j->ask.adapter[i] = x;
    return INFER_OK;
}

enum infer_status field_lora(struct job *j, const char *at, const json_t *v) {
    const bool some = json_is_array(v) ? json_array_size(v) != 0 : true;
    if (some && (!j->server->adapters || !j->server->adapters->n_lora))
        return job_refuse(j, 400, "unsupported_parameter", at,
                          "'%s': this server has no adapters: it is to be started with --lora", at);
    mem_free(j->ask.adapter);
    TRY(server_scales(j->server, &j->ask.adapter));
    for (int i = 0; j->ask.adapter && i < j->server->adapters->n_lora; i++) j->ask.adapter[i] = 0;
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
    json_put(&p->body, "]\n");
    mem_free(scale);
}

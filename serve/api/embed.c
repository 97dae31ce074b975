/* POST /v1/embeddings, and ollama's /api/embed and /api/embeddings: texts as vectors of length 1, pooled from what the layers make of their
 * tokens as the model's file says (pooling_type), the last token's where it says nothing. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"
#include "serve/core/engine_port.h"

enum { INPUTS = 2048, POOL_SCORES = 4 /* of GGUF's pooling_type */ };
struct embed_state {
    bool base64;
    int dimensions; /* 0: all */
    int most;       /* tokens of a text, what is behind them is cut off; 0: a longer one is refused */
};

/* ---- fields ---- */

static enum infer_status read_input(struct job *j, const char *at, const json_t *v) {
    return openai_prompts(j, at, v, INPUTS);
}

/* What ollama's older route calls prompt: one text. */
static enum infer_status read_text(struct job *j, const char *at, const json_t *v) {
    if (!json_is_string(v))
        return job_invalid(j, at, "'%s' must be a string, and is %s", at, field_type_name(v));
    return openai_prompts(j, at, v, 1);
}

static enum infer_status read_format(struct job *j, const char *at, const json_t *v) {
    struct embed_state *s = j->state;
    const char *word = json_string_value(v);
    s->base64 = word && strcmp(word, "base64") == 0;
    return s->base64 || (word && strcmp(word, "float") == 0)
               ? INFER_OK
               : job_invalid(j, at, "'%s' is none of float, base64", at);
}

static enum infer_status read_dimensions(struct job *j, const char *at, const json_t *v) {
    struct embed_state *s = j->state;
    return field_int(j, at, v, 1, j->server->info.n_vector, &s->dimensions);
}

/* Most tokens of a text that the model was made for, in this context. */
static int bound(const struct job *j) {
    const struct server *s = j->server;
    return s->info.n_text < s->n_ctx ? s->info.n_text : s->n_ctx;
}

static enum infer_status read_truncate(struct job *j, const char *at, const json_t *v) {
    struct embed_state *s = j->state;
    bool cut = false;
    TRY(field_bool(j, at, v, &cut));
    if (cut && !j->server->info.encoder)
        job_warn(j, at, "a text that is longer than the context is refused, not cut off");
    s->most = cut ? bound(j) : 0;
    return INFER_OK;
}

/* vLLM's: so many tokens, -1: as many as the model was made for. */
static enum infer_status read_most(struct job *j, const char *at, const json_t *v) {
    struct embed_state *s = j->state;
    TRY(field_int(j, at, v, -1, 1 << 24, &s->most));
    if (!j->server->info.encoder)
        return job_invalid(j, at, "'%s' is of encoders: of other models nothing of a text is cut off", at);
    if (s->most >= 0 && s->most < 4) return job_invalid(j, at, "'%s' must be -1 or 4 at least", at);
    if (s->most < 0 || s->most > bound(j)) s->most = bound(j);
    return INFER_OK;
}

#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field common[] = {
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"dimensions", FIELD_HAND, .hand = read_dimensions},
    {.name = NULL},
};
static const struct field of_openai[] = {
    {"input", FIELD_HAND, .hand = read_input},
    {"encoding_format", FIELD_HAND, .hand = read_format},
    {"truncate_prompt_tokens", FIELD_HAND, .hand = read_most},
    {"user", .type = FIELD_SILENT},
    {.name = NULL},
};
static const struct field of_native[] = {
    {"content input", FIELD_HAND, .hand = read_input},
    {"embd_normalize", FIELD_NEUTRAL, 2, 2, .why = "can only be 2 here: vectors have length 1"},
    {.name = NULL},
};
static const struct field of_ollama[] = {
    {"input", FIELD_HAND, .hand = read_input},
    {"truncate", FIELD_HAND, .hand = read_truncate},
    {"keep_alive options", .type = FIELD_SILENT},
    {.name = NULL},
};
static const struct field of_older[] = {
    {"prompt", FIELD_HAND, .hand = read_text},
    {"keep_alive options", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

/* How hidden rows become one: the file's word for it. */
static enum infer_status pooling(struct job *j) {
    const struct infer_model_info *m = &j->server->info;
    j->ask.params.make = infer_model_makes(m);
    if (!m->n_label && m->pooling != POOL_SCORES) return INFER_OK;
    return job_refuse(j, 400, "unsupported_parameter", "input",
                      "the model is not one for embeddings: it scores texts (/v1/rerank)");
}

/* Of an encoder a text that is longer than it was made for: its end is cut off, or it is refused. */
static enum infer_status check_length(struct job *j, struct ask_prompt *p) {
    const struct embed_state *s = j->state;
    const struct infer_text_options o = {.a = p->text, .n_a = p->n, .most = s->most ? s->most : bound(j)};
    struct infer_text t = {.ids = p->ids, .n = p->n_id, .n_whole = p->n_id};
    if (p->text) TRY(infer_text_ids(j->server->model, &o, &t));
    if (t.n_whole <= o.most) {
        if (p->text) infer_text_free(&t);
        return INFER_OK;
    }
    if (p->text && s->most) { /* its ids stand in the place of the text */
        mem_free(p->text);
        *p = (struct ask_prompt){.ids = t.ids, .n_id = t.n, .n_first = t.n_first};
        return INFER_OK;
    }
    if (p->text) infer_text_free(&t);
    job_refuse(j, 400, "context_length_exceeded", "input",
               "This model was made for texts of %d tokens at most, and one has %d.", o.most, t.n_whole);
    j->refusal.n_prompt = t.n_whole;
    j->refusal.n_limit = o.most;
    return INFER_E_INPUT;
}

static enum infer_status read_with(struct job *j, const json_t *body, const struct field *rows,
                                   const char *needed) {
    if (!j->server->port->n_embd)
        return job_refuse(j, 400, "unsupported_parameter", NULL,
                          "embeddings are computed on the CPU alone (--device cpu)");
    TRY(fields_read(j, "", body, FIELDS(rows, common)));
    j->ask.params.n_predict = 0;
    if (!j->ask.prompt) return job_invalid(j, needed, "'%s' is missing", needed);
    for (int i = 0; i < j->ask.n_prompt && j->server->info.encoder; i++)
        TRY(check_length(j, &j->ask.prompt[i]));
    return pooling(j);
}

static enum infer_status native_read(struct job *j, const json_t *body) {
    return read_with(j, body, of_native, "content");
}

static enum infer_status embeddings_read(struct job *j, const json_t *body) {
    return read_with(j, body, of_openai, "input");
}
/* Ollama cuts unless it is told not to. */
static enum infer_status ollama_read(struct job *j, const json_t *body) {
    ((struct embed_state *)j->state)->most = bound(j);
    return read_with(j, body, of_ollama, "input");
}
static enum infer_status older_read(struct job *j, const json_t *body) {
    ((struct embed_state *)j->state)->most = bound(j);
    return read_with(j, body, of_older, "prompt");
}

/* ---- answers ---- */

/* A choice's vector, cut to `dimensions` and of length 1; how many numbers. */
static int vector(struct job *j, int i) {
    const struct embed_state *s = j->state;
    struct choice *c = &j->choice[i];
    const int n = s->dimensions && s->dimensions < c->n_made ? s->dimensions : c->n_made;
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)c->made[k] * (double)c->made[k];
    for (int k = 0; sum > 0 && k < n; k++) c->made[k] = (float)((double)c->made[k] / sqrt(sum));
    return n;
}

/* As a text. */
static void as_base64(const unsigned char *p, size_t n, struct buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    buf_text(out, "\"");
    for (size_t i = 0; i < n; i += 3) {
        const unsigned x =
            (unsigned)p[i] << 16 | (i + 1 < n ? p[i + 1] : 0u) << 8 | (i + 2 < n ? p[i + 2] : 0u);
        const char four[4] = {digits[x >> 18], digits[x >> 12 & 63], i + 1 < n ? digits[x >> 6 & 63] : '=',
                              i + 2 < n ? digits[x & 63] : '='};
        buf_add(out, four, 4);
    }
    buf_text(out, "\"");
}

static void numbers(struct job *j, int i, struct buf *out) {
    const struct embed_state *s = j->state;
    const float *p = j->choice[i].made;
    const int n = vector(j, i);
    if (s->base64) { /* little endian, as x86 has them */
        as_base64((const unsigned char *)p, (size_t)n * sizeof *p, out);
        return;
    }
    json_put(out, "[");
    for (int k = 0; k < n; k++) json_put(out, "%g", (double)p[k]);
    json_put(out, "]");
}

static void embeddings_whole(struct job *j, struct buf *out) {
    json_put(out, "{object:'list' data:[");
    for (int i = 0; i < j->n_choice; i++) {
        json_put(out, "{object:'embedding' index:%d embedding:", i);
        numbers(j, i, out);
        json_put(out, "}");
    }
    json_put(out, "] model:%s usage:{prompt_tokens:%d total_tokens:%d}}\n", j->server->name, j->counts.prompt,
             j->counts.prompt);
}

static void ollama_whole(struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    json_put(out, "{model:%s embeddings:[", j->server->name);
    for (int i = 0; i < j->n_choice; i++) numbers(j, i, out);
    json_put(out, "] total_duration:%.0f load_duration:0 prompt_eval_count:%d}\n",
             1e6 * (n->queue_ms + n->prompt_ms), n->prompt);
}

/* As llama.cpp's own route has it: of each text a list of vectors, of which pooling leaves one. */
static void native_whole_of(struct job *j, struct buf *out) {
    json_put(out, "[");
    for (int i = 0; i < j->n_choice; i++) {
        json_put(out, "{index:%d embedding:[", i);
        numbers(j, i, out);
        json_put(out, "]}");
    }
    json_put(out, "]\n");
}

static void older_whole(struct job *j, struct buf *out) {
    json_put(out, "{embedding:");
    numbers(j, 0, out);
    json_put(out, "}\n");
}

const struct front_end embeddings_api = {.prefix = "embd-",
                                         .state = sizeof(struct embed_state),
                                         .read = embeddings_read,
                                         .whole = embeddings_whole,
                                         .error = openai_error};
const struct front_end native_embedding = {.prefix = "",
                                           .state = sizeof(struct embed_state),
                                           .read = native_read,
                                           .whole = native_whole_of,
                                           .error = openai_error};
const struct front_end ollama_embed = {.prefix = "",
                                       .state = sizeof(struct embed_state),
                                       .read = ollama_read,
                                       .whole = ollama_whole,
                                       .error = ollama_error,
                                       .keeps = true};
const struct front_end ollama_embedding = {.prefix = "",
                                           .state = sizeof(struct embed_state),
                                           .read = older_read,
                                           .whole = older_whole,
                                           .error = ollama_error,
                                           .keeps = true};

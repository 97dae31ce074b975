#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"

#include <math.h>
#include <string.h>

/* ---- config.json --------------------------------------------------------------------------------------------- */

/* Each so many-th layer has attention, where that says it, else a list. Both keys may be there, and agree.
 * source: configuration_qwen3_next and configuration_qwen3_5 of transformers */
static enum infer_status put_layers(struct config *c) {
    uint32_t step = 4;
    bool all = true;
    if (c->mixed)
        for (step = 1; step <= c->n_layer && c->mixed[step - 1];) step++;
    const uint32_t told = get_u32_or(c, K_DELTA_PERIOD, step);
    TRY(c->status);
    if (!c->mixed) step = told;
    if (told != step && step <= c->n_layer) return key_wrong(c, K_DELTA_PERIOD, "what 'layer_types' says");
    for (uint32_t i = 0; c->mixed && i < c->n_layer; i++) all &= c->mixed[i] == ((i + 1) % step != 0);
    if (all)
        put_u32(c, "full_attention_interval", step);
    else
        put_bools(c, "attention.recurrent_layers", c->mixed);
    return INFER_OK;
}

/* As many heads as attention has. source: configuration_kimi_linear of transformers */
static enum infer_status put_delta_rows(struct config *c) {
    const uint32_t heads = get_u32(c, K_KDA_HEADS), of = get_u32(c, K_HEADS), dim = get_u32(c, K_KDA_DIM);
    TRY(c->status);
    if (heads != of) return key_wrong(c, K_KDA_HEADS, "num_attention_heads");
    put_u32(c, "kda.head_dim", dim);
    put_u32(c, "ssm.conv_kernel", get_u32(c, K_DELTA_TAPS));
    return c->status;
}

/* What Kimi Linear's published folders have in an object, layers counted from 1. Members that are not known leave it to be refused. */
void config_kimi(json_t *root) {
    static const char *const names[][2] = {{"head_dim", "linear_head_dim"},
                                           {"num_heads", "linear_num_heads"},
                                           {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
    const char *type = json_string_value(json_object_get(root, "model_type"));
    json_t *of = json_object_get(root, "linear_attn_config"), *full = json_object_get(of, "full_attn_layers"),
           *rest = json_object_get(of, "kda_layers"), *v;
    const json_int_t n = json_integer_value(json_object_get(root, "num_hidden_layers"));
    size_t i, known = 2;
    if (!type || strcmp(type, "kimi_linear") != 0 || !json_is_array(full) || !json_is_array(rest)) return;
    for (i = 0; i < 3; i++) known += json_object_get(of, names[i][0]) != NULL;
    if (n < 1 || n > 65536 || known != json_object_size(of)) return;
    if (json_array_size(full) + json_array_size(rest) != (size_t)n) return;
    json_t *types = json_array();
    for (json_int_t k = 0; k < n; k++) json_array_append_new(types, json_null());
    const json_t *lists[] = {full, rest};
    bool all = true;
    for (int k = 0; k < 2; k++) json_array_foreach(lists[k], i, v) {
            const json_int_t layer = json_integer_value(v);
            const char *kind = k ? "linear_attention" : "full_attention";
            const bool told =
                layer >= 1 && layer <= n && json_is_null(json_array_get(types, (size_t)layer - 1));
            if (told) json_array_set_new(types, (size_t)layer - 1, json_string(kind));
            all &= told;
        }
    if (!all) {
        json_decref(types);
        return;
    }
    for (i = 0; i < 3; i++)
        if ((v = json_object_get(of, names[i][0]))) json_object_set(root, names[i][1], v);
    json_object_set_new(root, "layer_types", types);
    json_object_del(root, "linear_attn_config");
}

enum infer_status config_mixers(struct config *c) {
    struct hf_config *out = c->out;
    const struct arch *a = out->table;
    if (a->mixer.kind != MIX_DELTA) return INFER_OK;
    if (a->mixer.by_row) return put_delta_rows(c);
    TRY(put_layers(c));
    for (int i = 0; i < 4; i++) out->delta[i] = (int)get_u32(c, K_DELTA_KEYS + (enum hf_key)i);
    TRY(put_keys(c, K_DELTA_KEYS, K_DELTA_KEY_DIM));
    put_u32(c, "ssm.conv_kernel", get_u32(c, K_DELTA_TAPS));
    TRY(c->status);
    if (out->delta[1] % out->delta[0])
        return key_wrong(c, K_DELTA_VALUES, "a multiple of linear_num_key_heads");
    put_u32(c, "ssm.inner_size", (uint32_t)out->delta[1] * (uint32_t)out->delta[3]);
    if (key_reads(c, K_DELTA_TURNS)) put_f32(c, "ssm.beta_scale", get_flag(c, K_DELTA_TURNS) ? 2 : 1);
    out->tiled = a->mixer.tiled && c->for_gguf;
    if (a->mixer.tiled && !out->tiled) put_bool(c, "ssm.grouped_heads", true);
    return INFER_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

static enum infer_status misfit(const struct tensor *t, const char *path) {
    return err_set(INFER_E_INPUT,
                   "%s: tensor %.100s has shape [%lld][%lld][%lld], which is not that of the heads that "
                   "config.json says",
                   path, t->name, (long long)t->shape[1], (long long)t->shape[2], (long long)t->shape[3]);
}
static enum infer_status room(const struct tensor *t, size_t bytes, struct arena *arena, const char *path,
                              char **out) {
    *out = arena_alloc(arena, bytes);
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", path, t->name);
}

enum infer_status hf_qkvz(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const int *delta = m->config->delta;
    const size_t each = (size_t)(delta[1] / delta[0] * delta[3]), key = (size_t)delta[2],
                 head = 2 * key + 2 * each, heads = (size_t)delta[0],
                 row = quant_row_bytes(quant_info(from->type), (size_t)from->shape[3]);
    /* rows of a head: from which on, how many, of which output */
    const size_t part[4][3] = {{0, key, 0}, {key, key, 0}, {2 * key, each, 0}, {2 * key + each, each, 1}};
    if (from->n_dim != 2 || from->shape[2] != (int64_t)(heads * head)) return misfit(from, m->path);
    for (int i = 0; i < 2; i++) {
        char *to;
        out[i] = *from;
        out[i].shape[2] = (int64_t)(heads * (i ? each : head - each));
        out[i].bytes = (size_t)out[i].shape[2] * row;
        TRY(room(from, out[i].bytes, m->arena, m->path, &to));
        out[i].data = to;
        for (size_t p = 0; p < 4; p++)
            for (size_t h = 0; part[p][2] == (size_t)i && h < heads; h++, to += part[p][1] * row)
                memcpy(to, (const char *)from->data + (h * head + part[p][0]) * row, part[p][1] * row);
    }
    return INFER_OK;
}

/* Blocks of bytes by value heads, groups of them one behind the other: from heads of a key head side by side to these in turns. */
static void in_turns(char *to, const char *from, const int delta[4], size_t bytes) {
    const size_t keys = (size_t)delta[0], each = (size_t)(delta[1] / delta[0]);
    for (size_t j = 0; j < each; j++)
        for (size_t g = 0; g < keys; g++, to += bytes) memcpy(to, from + (g * each + j) * bytes, bytes);
}

/* -exp(w) as float32. */
static enum infer_status decays(struct tensor *t, struct arena *arena, const char *path) {
    const size_t n = (size_t)t->shape[3];
    char *copy;
    TRY(room(t, n * sizeof(float), arena, path, &copy));
    float *x = (float *)(void *)copy;
    quant_info(t->type)->decode(x, t->data, n);
    for (size_t i = 0; i < n; i++) x[i] = -expf(x[i]);
    t->data = copy;
    t->type = QUANT_F32;
    t->bytes = n * sizeof *x;
    return INFER_OK;
}

/* Rows (elements of a vector), or the parts of a row, of value heads behind front others. */
static enum infer_status turn(struct tensor *t, bool columns, size_t front, const int delta[4],
                              struct arena *arena, const char *path) {
    const size_t n = columns ? (size_t)t->shape[2] : 1, one = t->bytes / n,
                 lines = (size_t)t->shape[columns || t->n_dim == 1 ? 3 : 2], line = one / lines;
    char *copy;
    TRY(room(t, t->bytes, arena, path, &copy));
    for (size_t i = 0; i < n; i++) {
        const char *from = (const char *)t->data + i * one;
        memcpy(copy + i * one, from, front * line);
        in_turns(copy + i * one + front * line, from + front * line, delta,
                 (lines - front) / (size_t)delta[1] * line);
    }
    t->data = copy;
    return INFER_OK;
}

enum infer_status hf_by_value(struct tensor out[2], const struct hf_make *m) {
    const enum hf_op op = m->op;
    const int *delta = m->config->delta;
    struct tensor *t = out;
    const bool columns = op == HF_VALUE_COLUMNS;
    if (op == HF_VALUE_TAPS) { /* [channels][1][taps] */
        if (t->n_dim != 3 || t->shape[2] != 1) return misfit(t, m->path);
        t->n_dim = 2;
        t->shape[2] = t->shape[1];
        t->shape[1] = 1;
    }
    size_t front = op == HF_VALUE_TAIL || op == HF_VALUE_TAPS ? 2 * (size_t)(delta[0] * delta[2]) : 0,
           lines = (size_t)t->shape[columns || t->n_dim == 1 ? 3 : 2];
    if (t->n_dim > 2 || quant_info(t->type)->elems != 1 || lines <= front ||
        (lines - front) % (size_t)delta[1])
        return misfit(t, m->path);
    if (op == HF_VALUE_DECAYS) TRY(decays(t, m->arena, m->path));
    return m->config->tiled && delta[0] != delta[1] ? turn(t, columns, front, delta, m->arena, m->path)
                                                    : INFER_OK;
}

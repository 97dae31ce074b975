/* generation_config.json, and what config.json says of the same: tokens that end an answer, recommended sampling. */
#include "files/hf/hf.h"
#include "files/json.h"
#include "files/textfile.h"

#include <string.h>

struct ids { /* of tokens, without one twice */
    int32_t *id;
    size_t n;
};

static enum infer_status wrong(const char *path, const char *key, const char *want) {
    return err_set(INFER_E_INPUT, "%s: '%s' is not %s", path, key, want);
}

/* eos_token_id: an id, a list of ids, null or absent. */
static enum infer_status add_ids(struct hf_keys *k, struct ids *out, const char *path, const json_t *root) {
    static const char key[] = "eos_token_id";
    const json_t *v = json_object_get(root, key);
    size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);
    int32_t *grown = arena_alloc(k->arena, (out->n + n + 1) * sizeof *grown);
    if (!grown) return err_set(INFER_E_MEMORY, "%s: out of memory: %zu ids", path, n);
    if (out->n) memcpy(grown, out->id, out->n * sizeof *grown);
    out->id = grown;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t id = json_integer_value(one);
        bool old = false;
        if (!json_is_integer(one) || id < -1 || id > INT32_MAX)
            return wrong(path, key, "an id or a list of ids");
        for (size_t j = 0; j < out->n; j++) old |= grown[j] == id;
        if (!old && id >= 0) grown[out->n++] = (int32_t)id; /* -1: none */
    }
    return INFER_OK;
}

/* A number from low to high under GGUF's name; *there: the file has it. */
static enum infer_status put_number(struct hf_keys *k, const char *path, const json_t *root, const char *key,
                                    const char *name, double low, double high, bool *there) {
    const json_t *v = json_object_get(root, key);
    *there = v && !json_is_null(v);
    if (!*there) return INFER_OK;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= low && x <= high))
        return err_set(INFER_E_INPUT, "%s: '%s' is not a number from %g to %g", path, key, low, high);
    hf_put_f32(k, NULL, name, (float)x);
    return INFER_OK;
}

/* do_sample false: greedy, whatever else the file says (transformers ignores it then, and so is a file meant that was
 * written with its defaults). do_sample true without a temperature: 1. */
static enum infer_status put_sampling(struct hf_keys *k, const char *path, const json_t *root) {
    const json_t *sample = json_object_get(root, "do_sample"), *top_k = json_object_get(root, "top_k");
    bool there;
    if (sample && !json_is_null(sample) && !json_is_boolean(sample))
        return wrong(path, "do_sample", "true or false");
    TRY(put_number(k, path, root, "repetition_penalty", "general.sampling.penalty_repeat", 1e-3, 1e3,
                   &there));
    if (json_is_false(sample)) {
        hf_put_f32(k, NULL, "general.sampling.temp", 0);
        return INFER_OK;
    }
    TRY(put_number(k, path, root, "temperature", "general.sampling.temp", 0, 1e3, &there));
    if (!there && json_is_true(sample)) hf_put_f32(k, NULL, "general.sampling.temp", 1);
    TRY(put_number(k, path, root, "top_p", "general.sampling.top_p", 0, 1, &there));
    TRY(put_number(k, path, root, "min_p", "general.sampling.min_p", 0, 1, &there));
    if (!top_k || json_is_null(top_k)) return INFER_OK;
    json_int_t v = json_integer_value(top_k);
    if (!json_is_integer(top_k) || v < -1 || v > INT32_MAX)
        return wrong(path, "top_k", "an integer of at least -1");
    hf_put_u32(k, NULL, "general.sampling.top_k", v < 0 ? 0 : (uint32_t)v); /* both mean: all tokens */
    return INFER_OK;
}

static void put_stops(struct hf_keys *k, const struct ids *ids) {
    static const char stops[] = "tokenizer.infer.stops", eos[] = "tokenizer.ggml.eos_token_id";
    bool known = false;
    if (!ids->n) return;
    for (size_t i = 0; i < k->n; i++)
        known |=
            k->meta[i].key.len == sizeof eos - 1 && memcmp(k->meta[i].key.data, eos, sizeof eos - 1) == 0;
    if (!known) hf_put_u32(k, NULL, eos, (uint32_t)ids->id[0]);
    hf_put(k, &(struct meta){.key = {stops, sizeof stops - 1},
                             .type = META_ARRAY,
                             .elem = META_I32,
                             .n = ids->n,
                             .raw = (const unsigned char *)ids->id});
}

static enum infer_status read_root(json_t **root, const struct mapfile *m) {
    *root = NULL;
    if (!m->path) return INFER_OK; /* there is no such file */
    TRY(json_read_python(root, m->path, text_of_map(m), m->size, 0));
    if (json_is_object(*root)) return INFER_OK;
    json_decref(*root);
    return err_set(INFER_E_INPUT, "%s: it is no JSON object", m->path);
}

enum infer_status hf_generation(struct hf_keys *keys, const struct mapfile *generation,
                                const struct mapfile *config) {
    const struct mapfile *const file[] = {generation, config};
    struct ids ids = {0};
    for (int i = 0; i < 2; i++) {
        json_t *root;
        TRY(read_root(&root, file[i]));
        enum infer_status s = root ? add_ids(keys, &ids, file[i]->path, root) : INFER_OK;
        if (!s && root && i == 0) s = put_sampling(keys, file[i]->path, root);
        json_decref(root);
        TRY(s);
    }
    put_stops(keys, &ids);
    return keys->status;
}

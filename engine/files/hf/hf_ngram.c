/* config.json -> the keys of GGUF: runs of positions that have the mean of their keys, streams that are read by gates, and what runs of tokens are
 * hashed with; and the tensors of these. source: configuration_qwen4_exp and modeling_qwen4_exp of transformers */
#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"

#include <string.h>

static bool is(const json_t *v, const char *name) {
    const char *own = json_string_value(v);
    return own && strcmp(own, name) == 0;
}

void config_qwen4(json_t *root) {
    json_t *types = json_object_get(root, "layer_types"), *v;
    size_t i;
    if (!is(json_object_get(root, "model_type"), "qwen4_exp_text")) return;
    json_array_foreach(types, i, v) if (is(v, "indexed_attention"))
        json_array_set_new(types, i, json_string("full_attention"));
    if (!json_object_get(root, "ple_embed_dim"))
        json_object_set(root, "ple_embed_dim", json_object_get(root, "hidden_size"));
}

/* ---- what is hashed with --------------------------------------------------------------------------------------- */

static uint64_t splitmix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
/* Odd numbers that times any id stay below 2^63. */
static void multipliers(int64_t *out, uint32_t n, uint64_t seed, uint32_t n_vocab) {
    const uint64_t half = (uint64_t)INT64_MAX / (n_vocab ? n_vocab : 1) / 2, bound = half ? half : 1;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (int64_t)(2 * (splitmix(seed + 0x9E3779B97F4A7C15u * (i + 1)) % bound) + 1);
}
static bool is_prime(uint32_t n) {
    if (n < 3 || n % 2 == 0) return n == 2;
    for (uint32_t k = 3; (uint64_t)k * k <= n; k += 2)
        if (n % k == 0) return false;
    return true;
}
/* Each head has as many rows as the next prime says, one after the other. */
static void rows_of(int64_t *rows, int64_t *first, uint32_t n, uint32_t base) {
    uint32_t prime = base - 1;
    int64_t at = 0;
    for (uint32_t h = 0; h < n; h++) {
        do prime++;
        while (!is_prime(prime));
        rows[h] = prime, first[h] = at;
        at += prime;
    }
}

/* The layer, counted from 1; 0: none. */
static enum infer_status layer_of(struct config *c, uint32_t *layer) {
    const json_t *list = get_json(c, K_NGRAM_LAYERS);
    *layer = 0;
    if (!list || json_array_size(list) == 0) return c->status;
    if (json_array_size(list) > 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'ple_layer_ids' names %zu layers; one is supported", c->path,
                       json_array_size(list));
    TRY(config_u32(c, "ple_layer_ids", json_array_get(list, 0), -1, layer));
    if (*layer < 1 || *layer > c->n_layer) return key_wrong(c, K_NGRAM_LAYERS, "a layer, counted from 1");
    return c->status;
}

static enum infer_status put_ngrams(struct config *c) {
    struct hf_config *out = c->out;
    uint32_t layer, end;
    TRY(layer_of(c, &layer));
    const uint32_t size = get_u32(c, K_NGRAM), each = get_u32(c, K_NGRAM_HEADS),
                   width = get_u32(c, K_NGRAM_EMBD), base = get_u32(c, K_NGRAM_BASE),
                   seed = get_u32(c, K_NGRAM_SEED), n_vocab = get_u32(c, K_VOCAB), n = (size - 1) * each;
    TRY(c->status);
    if (!layer) return INFER_OK;
    const json_t *eos = get_json(c, K_NGRAM_END);
    if (json_is_array(eos)) eos = json_array_get(eos, 0);
    TRY(config_u32(c, "eos_token_id", eos, -1, &end));
    if (width % n) return key_wrong(c, K_NGRAM_EMBD, "a multiple of the heads of n-grams");
    int64_t *mult = get_room(c, size * sizeof *mult), *rows = get_room(c, 2 * n * sizeof *rows);
    TRY(c->status);
    multipliers(mult, size, seed, n_vocab);
    rows_of(rows, rows + n, n, base);
    out->mult = mult, out->rows = rows, out->first = rows + n;
    out->n_mult = size, out->n_rows = n;
    hf_put_u32s(c->keys, out->arch, "ple.layers", &(uint32_t){layer - 1}, 1);
    TRY(put_keys(c, K_NGRAM, K_NGRAM_TAPS));
    put_u32(c, "ple.eos_token_id", end);
    put_u32(c, "embedding_length_per_layer_input", width / n);
    hf_put_i64s(c->keys, out->arch, "ple.layer_multipliers", mult, size);
    hf_put_i64s(c->keys, out->arch, "ple.head_vocab_sizes", rows, n);
    hf_put_i64s(c->keys, out->arch, "ple.head_offsets", rows + n, n);
    return c->status;
}

enum infer_status config_gates(struct config *c) {
    if (!c->out->table->attn.index_means) return INFER_OK;
    const uint32_t ratio = get_u32(c, K_INDEX_MEAN);
    uint32_t *every = get_room(c, sizeof *every * ((size_t)c->n_layer + 1));
    TRY(c->status);
    if (!is(get_json(c, K_DELTA_GATE), "sigmoid"))
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'output_gate_type' is not 'sigmoid', which alone is supported", c->path);
    for (uint32_t i = 0; i < c->n_layer; i++)
        every[i] = (c->mixed ? c->mixed[i] : (i + 1) % get_u32(c, K_DELTA_PERIOD) != 0) ? 0 : ratio;
    put_u32s(c, "attention.compress_ratios", every);
    c->out->index_dim = (int)get_u32(c, K_INDEX_DIM);
    TRY(put_keys(c, K_INDEX_HEADS, K_INDEX_TOP));
    TRY(put_keys(c, K_HYPER, K_HYPER_LOW));
    return put_ngrams(c);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

enum infer_status hf_hash_check(const struct hf_config *c, const struct tensor *t, const char *name,
                                const char *path) {
    const bool mult = strcmp(name, "ple.layer_multipliers") == 0,
               rows = strcmp(name, "ple.head_vocab_sizes") == 0;
    const int64_t *want = mult ? c->mult : rows ? c->rows : c->first;
    const size_t n = mult ? c->n_mult : c->n_rows;
    if (t->raw && strcmp(t->raw, "I64") == 0 && t->bytes == n * sizeof *want &&
        memcmp(t->data, want, t->bytes) == 0)
        return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: tensor %.100s is not what config.json comes to", path, t->name);
}

enum infer_status hf_index_qk(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const int64_t key = m->config->index_dim, rows = from->shape[2];
    if (from->n_dim != 2 || key < 1 || rows <= key)
        return err_set(INFER_E_INPUT, "%s: tensor %.100s has %lld rows, of which %lld are a key's", m->path,
                       from->name, (long long)rows, (long long)key);
    const size_t row = from->bytes / (size_t)rows;
    for (int i = 0; i < 2; i++) {
        const size_t at = i ? (size_t)(rows - key) * row : 0;
        out[i] = *from;
        out[i].shape[2] = i ? key : rows - key;
        out[i].bytes = (size_t)out[i].shape[2] * row;
        out[i].data = (const char *)from->data + at;
        out[i].offset += at;
    }
    return INFER_OK;
}

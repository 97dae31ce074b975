#include "files/hf_latent.h"
#include "arch/arch.h"

#include <string.h>

/* ---- config.json --------------------------------------------------------------------------------------------- */

static enum infer_status read_size(const struct config *c, const char *key, int64_t fallback, uint32_t *out) {
    TRY(config_u32(c, key, json_object_get(c->root, key), fallback, out));
    return *out > 1 << 20 || (fallback < 0 && !*out) ? config_wrong(c, key, "in range") : INFER_OK;
}

/* What other keys say once more. */
static enum infer_status check_sizes(const struct config *c, uint32_t heads, uint32_t nope, uint32_t rope) {
    uint32_t kv, head, whole;
    bool bias;
    TRY(read_size(c, "num_key_value_heads", heads, &kv));
    TRY(read_size(c, "head_dim", rope, &head));
    TRY(read_size(c, "qk_head_dim", nope + rope, &whole));
    TRY(config_bool(c, "attention_bias", json_object_get(c->root, "attention_bias"), false, &bias));
    if (kv != heads) return config_wrong(c, "num_key_value_heads", "num_attention_heads");
    if (head != rope && head != nope + rope)
        return config_wrong(c, "head_dim", "qk_rope_head_dim, or with qk_nope_head_dim");
    if (whole != nope + rope) return config_wrong(c, "qk_head_dim", "qk_nope_head_dim + qk_rope_head_dim");
    if (bias)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'attention_bias' is true: latent attention has no biases here", c->path);
    return INFER_OK;
}

/* source: configuration_deepseek_v3 and modeling_deepseek_v2 of transformers; the norms of latents have the class's epsilon, whatever
 * rms_norm_eps says */
enum infer_status config_latent(const struct config *c, uint32_t *n_rot) {
    const char *arch = c->out->arch;
    uint32_t heads, rank, q_rank, nope, rope, value;
    bool neighbours = true;
    TRY(read_size(c, "num_attention_heads", -1, &heads));
    TRY(read_size(c, "kv_lora_rank", -1, &rank));
    TRY(read_size(c, "q_lora_rank", 0, &q_rank));
    TRY(read_size(c, "qk_nope_head_dim", -1, &nope));
    TRY(read_size(c, "qk_rope_head_dim", -1, &rope));
    TRY(read_size(c, "v_head_dim", -1, &value));
    TRY(check_sizes(c, heads, nope, rope));
    TRY(config_bool(c, "rope_interleave", json_object_get(c->root, "rope_interleave"), true, &neighbours));
    hf_put_u32(c->keys, arch, "attention.head_count", heads);
    hf_put_u32(c->keys, arch, "attention.head_count_kv", 1);
    hf_put_u32(c->keys, arch, "attention.key_length", rank + rope);
    hf_put_u32(c->keys, arch, "attention.value_length", rank);
    hf_put_u32(c->keys, arch, "attention.key_length_mla", nope + rope);
    hf_put_u32(c->keys, arch, "attention.value_length_mla", value);
    hf_put_u32(c->keys, arch, "attention.kv_lora_rank", rank);
    if (q_rank) hf_put_u32(c->keys, arch, "attention.q_lora_rank", q_rank);
    hf_put_f32(c->keys, arch, "attention.latent_norm_rms_epsilon", 1e-6f);
    if (!neighbours) hf_put_bool(c->keys, arch, "rope.neox", true);
    c->out->n_head = (int)heads;
    c->out->n_kv_head = 1;
    c->out->head_dim = (int)(nope + rope);
    c->out->latent[0] = (int)nope, c->out->latent[1] = (int)value, c->out->latent[2] = (int)rank;
    *n_rot = rope;
    return INFER_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

static enum infer_status room(struct tensor *out, const struct tensor *from, int64_t heads, int64_t rows,
                              int64_t cols, struct arena *arena, const char *path) {
    *out = *from;
    out->n_dim = 3;
    out->shape[0] = 1, out->shape[1] = heads, out->shape[2] = rows, out->shape[3] = cols;
    out->bytes = (size_t)(heads * rows * cols) * quant_info(from->type)->bytes;
    out->data = arena_alloc(arena, out->bytes);
    if (!out->data) return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", path, from->name);
    return INFER_OK;
}

enum infer_status hf_latent(struct tensor out[2], const struct tensor *from, const struct hf_latent_sizes *s,
                            struct arena *arena, const char *path) {
    const size_t size = quant_info(from->type)->bytes, nope = (size_t)s->n_nope, rank = (size_t)s->rank,
                 value = (size_t)s->n_value;
    if (quant_info(from->type)->elems != 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.100s is quantised: its keys cannot be transposed",
                       path, from->name);
    if (from->n_dim != 2 || from->shape[2] != (int64_t)s->n_head * (s->n_nope + s->n_value) ||
        from->shape[3] != s->rank)
        return err_set(INFER_E_INPUT,
                       "%s: tensor %.100s has shape [%lld][%lld], config.json asks for [%lld][%d]", path,
                       from->name, (long long)from->shape[2], (long long)from->shape[3],
                       (long long)s->n_head * (s->n_nope + s->n_value), s->rank);
    TRY(room(&out[0], from, s->n_head, s->rank, s->n_nope, arena, path));
    TRY(room(&out[1], from, s->n_head, s->n_value, s->rank, arena, path));
    char *k = (char *)(uintptr_t)out[0].data, *v = (char *)(uintptr_t)out[1].data;
    for (size_t h = 0; h < (size_t)s->n_head; h++) {
        const char *head = (const char *)from->data + h * (nope + value) * rank * size;
        for (size_t j = 0; j < rank; j++)
            for (size_t i = 0; i < nope; i++, k += size) memcpy(k, head + (i * rank + j) * size, size);
        memcpy(v, head + nope * rank * size, value * rank * size);
        v += value * rank * size;
    }
    return INFER_OK;
}

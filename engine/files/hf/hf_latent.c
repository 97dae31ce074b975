#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"
#include "arch/arch.h"

#include <string.h>

/* ---- config.json --------------------------------------------------------------------------------------------- */

/* What other keys say once more. */
static enum infer_status check_sizes(struct config *c, uint32_t heads, uint32_t nope, uint32_t rope) {
    const uint32_t kv = get_u32_or(c, K_KV_HEADS, heads), head = get_u32_or(c, K_HEAD_DIM, rope),
                   whole = get_u32_or(c, K_QK_HEAD_DIM, (int64_t)nope + rope);
    const bool bias = get_flag(c, K_ATTN_BIAS);
    TRY(c->status);
    if (kv != heads) return key_wrong(c, K_KV_HEADS, "num_attention_heads");
    if (head != rope && head != nope + rope && !c->out->table->mixer.by_row)
        return key_wrong(c, K_HEAD_DIM, "qk_rope_head_dim, or with qk_nope_head_dim");
    if (whole != nope + rope) return key_wrong(c, K_QK_HEAD_DIM, "qk_nope_head_dim + qk_rope_head_dim");
    if (bias)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'attention_bias' is true: latent attention has no biases here", c->path);
    return INFER_OK;
}

/* Layers with attention keep one key head. */
static enum infer_status put_kept(struct config *c) {
    if (!config_has(c, LAYER_STATE)) {
        put_u32(c, "attention.head_count_kv", 1);
        return INFER_OK;
    }
    uint32_t *kept = get_room(c, sizeof *kept * (size_t)c->n_layer);
    for (uint32_t i = 0; kept && i < c->n_layer; i++) kept[i] = c->kind[i] == LAYER_ATTENTION;
    if (kept) put_u32s(c, "attention.head_count_kv", kept);
    return c->status;
}

/* source: configuration_deepseek_v3 and modeling_deepseek_v2 of transformers; the norms of latents have the class's epsilon, whatever
 * rms_norm_eps says */
enum infer_status config_latent(struct config *c, uint32_t *n_rot) {
    const uint32_t heads = get_u32(c, K_HEADS), rank = get_u32(c, K_LATENT_RANK),
                   q_rank = get_u32(c, K_Q_RANK), nope = get_u32(c, K_NOPE_DIM),
                   rope = get_u32(c, K_ROPE_DIM), value = get_u32(c, K_VALUE_DIM);
    const bool neighbours = get_flag(c, K_INTERLEAVED);
    TRY(c->status);
    if (!heads || heads > 1 << 20) return key_wrong(c, K_HEADS, "in range");
    TRY(check_sizes(c, heads, nope, rope));
    put_u32(c, "attention.head_count", heads);
    TRY(put_kept(c));
    put_u32(c, "attention.key_length", rank + rope);
    put_u32(c, "attention.value_length", rank);
    put_u32(c, "attention.key_length_mla", nope + rope);
    put_u32(c, "attention.value_length_mla", value);
    put_u32(c, "attention.kv_lora_rank", rank);
    if (q_rank) put_u32(c, "attention.q_lora_rank", q_rank);
    put_f32(c, "attention.latent_norm_rms_epsilon", 1e-6f);
    if (!neighbours) put_bool(c, "rope.neox", true);
    if (c->out->table->rope.kind == ROPE_NONE) put_u32(c, "rope.dimension_count", rope); /* which do not */
    c->out->n_head = (int)heads;
    c->out->n_kv_head = 1;
    c->out->head_dim = (int)(nope + rope);
    memcpy(c->out->latent, (int[]){(int)nope, (int)value, (int)rank}, sizeof c->out->latent);
    *n_rot = rope;
    return c->out->table->attn.index_rope ? config_index(c) : INFER_OK;
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

enum infer_status hf_latent(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const int heads = m->config->n_head, n_nope = m->config->latent[0], n_value = m->config->latent[1],
              n_rank = m->config->latent[2];
    struct arena *arena = m->arena;
    const char *path = m->path;
    const size_t size = quant_info(from->type)->bytes, nope = (size_t)n_nope, rank = (size_t)n_rank,
                 value = (size_t)n_value;
    if (quant_info(from->type)->elems != 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.100s is quantised: its keys cannot be transposed",
                       path, from->name);
    if (from->n_dim != 2 || from->shape[2] != (int64_t)heads * (n_nope + n_value) || from->shape[3] != n_rank)
        return err_set(INFER_E_INPUT,
                       "%s: tensor %.100s has shape [%lld][%lld], config.json asks for [%lld][%d]", path,
                       from->name, (long long)from->shape[2], (long long)from->shape[3],
                       (long long)heads * (n_nope + n_value), n_rank);
    TRY(room(&out[0], from, heads, n_rank, n_nope, arena, path));
    TRY(room(&out[1], from, heads, n_value, n_rank, arena, path));
    char *k = (char *)(uintptr_t)out[0].data, *v = (char *)(uintptr_t)out[1].data;
    for (size_t h = 0; h < (size_t)heads; h++) {
        const char *head = (const char *)from->data + h * (nope + value) * rank * size;
        for (size_t j = 0; j < rank; j++)
            for (size_t i = 0; i < nope; i++, k += size) memcpy(k, head + (i * rank + j) * size, size);
        memcpy(v, head + nope * rank * size, value * rank * size);
        v += value * rank * size;
    }
    return INFER_OK;
}

/* config.json and the processor's numbers to keys of clip. */
#include "files/hf/hf_tower.h"
#include "files/hf/hf_tower_kind.h"
#include "files/json.h"
#include "files/model_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct hf_tower *out;
    struct hf_keys *keys;
    const char *path;
    json_t *root, *vision, *more; /* more: of the image processor; NULL: none */
    const struct key_ignore *ignore;
};

/* Keys of vision_config that become keys here, and those that say nothing more: training, what tensors or the family say. */
static const struct {
    const char *names, *gguf;
} sizes[] = {{"hidden_size|mm_embed_dim", "vision.embedding_length"},
             {"intermediate_size", "vision.feed_forward_length"},
             {"num_hidden_layers|depth", "vision.block_count"},
             {"num_attention_heads|num_heads", "vision.attention.head_count"},
             {"num_key_value_heads", "vision.attention.head_count_kv"},
             {"head_dim", "vision.attention.head_dim"},
             {"patch_size", "vision.patch_size"},
             {"image_size", "vision.image_size"},
             {"spatial_merge_size|pooling_kernel_size", "vision.spatial_merge_size"}};
static const char others[] =
    "model_type|initializer_range|initializer_factor|attention_dropout|hidden_act|hidden_activation|num_channels|in_channels|"
    "temporal_patch_size|num_position_embeddings|position_embedding_size|mm_posemb_size|out_hidden_size|"
    "output_proj_dims|deepstack_visual_indexes|rope_parameters|rope_theta|attention_bias|standardize|"
    "use_clipped_linears|vision_use_head|max_position_embeddings|torch_dtype|dtype|layer_norm_eps|rms_norm_eps|"
    "model_patch_size|default_output_length|transformers_version|architectures|_name_or_path|num_image_tokens|size|max_image_size|use_base_siglip|tie_word_embeddings";

static enum infer_status wrong(const struct reader *r, const char *key, const char *want) {
    return err_set(INFER_E_INPUT, "%s: '%s' of 'vision_config' is not %s", r->path, key, want);
}

/* The value of the first of the names "a|b" that o has. */
static json_t *named(const json_t *o, const char *names) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key,
                        v) if (!json_is_null(v) && key_names(names, key, strlen(key))) return v;
    return NULL;
}

static enum infer_status check_keys(const struct reader *r) {
    const char *key;
    json_t *v;
    json_object_foreach(r->vision, key, v) {
        bool known = key_names(others, key, strlen(key));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            known |= key_names(sizes[i].names, key, strlen(key));
        if (!known) TRY(key_unknown(r->ignore, r->path, key));
    }
    const json_t *channels = named(r->vision, "num_channels|in_channels"),
                 *frames = json_object_get(r->vision, "temporal_patch_size");
    if (channels && json_integer_value(channels) != 3) return wrong(r, "num_channels", "3");
    if (frames && json_integer_value(frames) != 2) return wrong(r, "temporal_patch_size", "2");
    return INFER_OK;
}

static enum infer_status put_sizes(const struct reader *r) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const json_t *v = named(r->vision, sizes[i].names);
        if (!v) continue;
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return wrong(r, sizes[i].names, "a size");
        hf_put_u32(r->keys, "clip", sizes[i].gguf, (uint32_t)json_integer_value(v));
    }
    const struct tower_kind *k = r->out->kind;
    if (k->n_ff && !named(r->vision, "intermediate_size"))
        hf_put_u32(r->keys, "clip", "vision.feed_forward_length", (uint32_t)k->n_ff);
    if (k->n_layer && !named(r->vision, "num_hidden_layers"))
        hf_put_u32(r->keys, "clip", "vision.block_count", (uint32_t)k->n_layer);
    return INFER_OK;
}

static enum infer_status positive(const struct reader *r, const char *key, const json_t *v, float absent,
                                  float *out) {
    *out = v ? (float)json_number_value(v) : absent;
    return *out > 0 && *out < 1 ? INFER_OK : wrong(r, key, "above 0 and below 1");
}

static enum infer_status put_norms(const struct reader *r) {
    const json_t *text = json_object_get(r->root, "text_config");
    float eps;
    TRY(positive(r, "layer_norm_eps", named(r->vision, "layer_norm_eps|rms_norm_eps"), r->out->kind->eps,
                 &eps));
    hf_put_f32(r->keys, "clip", "vision.attention.layer_norm_epsilon", eps);
    if (!r->out->kind->neighbours) return INFER_OK; /* whose projector has the text model's */
    TRY(positive(r, "rms_norm_eps", json_object_get(text, "rms_norm_eps"), r->out->kind->eps, &eps));
    hf_put_f32(r->keys, "clip", "vision.projector.layer_norm_epsilon", eps);
    if (!r->out->for_gguf) hf_put_bool(r->keys, "clip", "vision.rope.neox", true);
    return INFER_OK;
}

static enum infer_status put_act(const struct reader *r) {
    static const struct {
        const char *hf, *gguf;
    } acts[] = {{"gelu_pytorch_tanh", "use_gelu"},
                {"gelu", "use_gelu_erf"},
                {"silu", "use_silu"},
                {"quick_gelu", NULL}};
    const json_t *v = named(r->vision, "hidden_act|hidden_activation");
    const char *act = v ? json_string_value(v) : r->out->kind->act;
    if (!r->out->kind->act) return INFER_OK; /* without blocks */
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (!act || strcmp(act, acts[i].hf) != 0) continue;
        if (acts[i].gguf) hf_put_bool(r->keys, "clip", acts[i].gguf, true);
        return INFER_OK;
    }
    return wrong(r, "hidden_act", "an activation that is known");
}

/* Patches a side of a row where vision_config does not say it. */
static enum infer_status put_merge(const struct reader *r) {
    const json_t *own = named(r->vision, "spatial_merge_size|pooling_kernel_size"),
                 *root = named(r->root, "spatial_merge_size|scale_factor"),
                 *tokens = json_object_get(r->root, "mm_tokens_per_image");
    int merge = r->out->kind->merge;
    if (own) return INFER_OK;
    if (root) merge = (int)json_integer_value(root);
    if (!merge) { /* fixed pictures: a square of patches for each of mm_tokens_per_image */
        const double side =
                         (double)json_integer_value(json_object_get(r->vision, "image_size")) / r->out->patch,
                     rows = sqrt(tokens ? json_number_value(tokens) : 256);
        if (!(rows >= 1 && side >= 1 && side < 65536))
            return wrong(r, "image_size", "a number of patches for mm_tokens_per_image");
        merge = (int)(side / rows);
    }
    if (merge < 1 || merge > 16) return wrong(r, "spatial_merge_size", "1 to 16");
    hf_put_u32(r->keys, "clip", "vision.spatial_merge_size", (uint32_t)merge);
    return INFER_OK;
}

static enum infer_status put_three(const struct reader *r, const char *key, const float *absent) {
    const json_t *v = json_object_get(r->more, key);
    char name[32];
    float x[3];
    for (size_t i = 0; i < 3; i++) {
        x[i] = json_array_size(v) == 3 ? (float)json_number_value(json_array_get(v, i)) : absent[i];
        if (!isfinite(x[i])) return wrong(r, key, "three numbers");
    }
    snprintf(name, sizeof name, "vision.%s", key);
    hf_put_f32s(r->keys, "clip", name, x, 3);
    return INFER_OK;
}

static void put_bound(const struct reader *r, const char *gguf, const json_t *v) {
    const json_int_t n = json_integer_value(v);
    if (v && n > 0 && n <= INT32_MAX) hf_put_u32(r->keys, "clip", gguf, (uint32_t)n);
}
/* Bounds of pictures: pixels, or the longest edge. */
static void put_bounds(const struct reader *r) {
    const json_t *size = json_object_get(r->more, "size"), *longest = json_object_get(size, "longest_edge");
    if (strcmp(r->out->kind->projector, "idefics3") == 0) {
        put_bound(r, "vision.preproc_image_size", longest);
    } else if (strcmp(r->out->kind->projector, "pixtral") == 0) {
        put_bound(r, "vision.preproc_image_size",
                  longest ? longest : json_object_get(r->vision, "image_size"));
    } else if (strcmp(r->out->kind->projector, "qwen3vl_merger") == 0) {
        const json_t *low = json_object_get(r->more, "min_pixels"),
                     *high = json_object_get(r->more, "max_pixels");
        put_bound(r, "vision.image_min_pixels", low ? low : json_object_get(size, "shortest_edge"));
        put_bound(r, "vision.image_max_pixels", high ? high : longest);
    } else if (strncmp(r->out->kind->projector, "gemma4", 6) == 0) {
        const json_int_t rows = json_integer_value(json_object_get(r->more, "max_soft_tokens")),
                         side = (json_int_t)r->out->patch * r->out->pool;
        if (rows > 0 && rows * side * side <= INT32_MAX)
            hf_put_u32(r->keys, "clip", "vision.image_max_pixels", (uint32_t)(rows * side * side));
    }
}

static enum infer_status read_deepstack(const struct reader *r) {
    const json_t *v = json_object_get(r->vision, "deepstack_visual_indexes");
    struct hf_tower *h = r->out;
    const size_t most = sizeof h->deepstack / sizeof *h->deepstack;
    if (json_array_size(v) > most) return wrong(r, "deepstack_visual_indexes", "a list of at most 16 layers");
    for (size_t i = 0; i < json_array_size(v); i++)
        h->deepstack[h->n_deepstack++] = (int)json_integer_value(json_array_get(v, i));
    return INFER_OK;
}

/* What the changes of tensors ask for. */
static enum infer_status read_sizes(const struct reader *r) {
    struct hf_tower *h = r->out;
    h->n_embd = (int)json_integer_value(named(r->vision, "hidden_size|mm_embed_dim"));
    h->n_head = (int)json_integer_value(named(r->vision, "num_attention_heads|num_heads"));
    h->patch = (int)json_integer_value(json_object_get(r->vision, "patch_size"));
    if (h->n_embd < 1 || h->patch < 1 || h->patch > 1024)
        return wrong(r, "patch_size", "there, or hidden_size is not");
    if (h->n_head < 1) h->n_head = 1;
    const json_t *pool = json_object_get(r->vision, "pooling_kernel_size");
    h->pool = pool ? (int)json_integer_value(pool) : h->kind->merge;
    if (pool && (h->pool < 1 || h->pool > 16)) return wrong(r, "pooling_kernel_size", "1 to 16");
    if (strcmp(h->kind->projector, "gemma4uv") == 0)
        h->patch *= h->pool, h->pool = 1; /* a row's pixels are one patch */
    return INFER_OK;
}

static enum infer_status read_all(struct reader *r) {
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    r->vision = json_object_get(r->root, "vision_config");
    r->out->kind = type ? tower_kind_find(type) : NULL;
    if (!json_is_object(r->vision))
        return err_set(INFER_E_UNSUPPORTED, "%s: no 'vision_config': this model has no tower for images",
                       r->path);
    if (!r->out->kind)
        return err_set(INFER_E_UNSUPPORTED, "%s: the tower of model_type '%.64s' is not known", r->path,
                       type ? type : "");
    const char *projector = r->out->kind->projector;
    hf_put_str(r->keys, NULL, "general.architecture", "clip", 4);
    hf_put_str(r->keys, NULL, "general.type", "mmproj", 6);
    hf_put_bool(r->keys, "clip", "has_vision_encoder", true);
    hf_put_str(r->keys, "clip", "projector_type", projector, strlen(projector));
    TRY(check_keys(r));
    TRY(read_sizes(r));
    TRY(put_sizes(r));
    TRY(put_norms(r));
    TRY(put_act(r));
    TRY(put_merge(r));
    TRY(put_three(r, "image_mean", r->out->kind->mean));
    TRY(put_three(r, "image_std", r->out->kind->std));
    const json_t *width = json_object_get(json_object_get(r->root, "text_config"), "hidden_size");
    if (json_is_integer(width) && json_integer_value(width) > 0)
        hf_put_u32(r->keys, "clip", "vision.projection_dim", (uint32_t)json_integer_value(width));
    put_bounds(r);
    TRY(read_deepstack(r));
    return r->keys->status;
}

enum infer_status hf_tower_keys(struct hf_tower *out, struct hf_keys *keys, const char *path,
                                const char *text, size_t n, const char *more, size_t n_more,
                                const struct tensorfile_options *options) {
    struct reader r = {.out = out, .keys = keys, .path = path, .ignore = &options->ignore};
    json_t *processor = NULL;
    *out = (struct hf_tower){.arena = keys->arena, .path = path, .for_gguf = options->for_gguf};
    TRY(json_read_python(&r.root, path, text, n, JSON_REJECT_DUPLICATES));
    enum infer_status s = n_more ? json_read_python(&processor, path, more, n_more, 0) : INFER_OK;
    r.more = json_object_get(processor, "image_processor");
    if (!r.more) r.more = processor;
    if (!s) s = read_all(&r);
    json_decref(processor);
    json_decref(r.root);
    return s;
}

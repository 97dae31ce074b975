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
} sizes[] = {{"intermediate_size", "vision.feed_forward_length"},
             {"num_hidden_layers|depth", "vision.block_count"},
             {"num_attention_heads|num_heads", "vision.attention.head_count"},
             {"num_key_value_heads", "vision.attention.head_count_kv"},
             {"head_dim", "vision.attention.head_dim"},
             {"patch_size", "vision.patch_size"},
             {"image_size", "vision.image_size"},
             {"spatial_merge_size|pooling_kernel_size", "vision.spatial_merge_size"}};

static const char others[] =
    "model_type|hidden_size|mm_embed_dim|embed_dim|mlp_ratio|in_chans|spatial_patch_size|tokens_per_second|fullatt_block_indexes|window_size|"
    "auto_map|capacity_factor|drop_path_rate|dropout|eval_capacity_factor|laux_allreduce|moe_coeff_ratio|moe_intermediate_size|moe_output_scale|noisy_gate_policy|num_experts|num_routed_experts|num_shared_experts|qk_normalization|qkv_bias|shared_expert_intermediate_size|use_bfloat16|use_flash_attn|use_moe|use_residual|use_rts|use_weighted_residual|"
    "insert_layer_id|window_kernel_size|num_patches|norm_eps|vision_output_dim|projector_input_dim|projector_output_dim|projector_dropout|multi_modal_projector_bias|pixel_shuffle_ratio|vision_feature_layer|vision_feature_select_strategy|"
    "use_qk_norm|norm_type|use_mask_token|use_absolute_position_embeddings|layer_scale_init_value|use_mean_pooling|projection_dropout|hidden_dropout_prob|"
    "initializer_range|initializer_factor|attention_dropout|hidden_act|hidden_activation|num_channels|in_channels|"
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
    const json_t *channels = named(r->vision, "num_channels|in_channels|in_chans"),
                 *frames = json_object_get(r->vision, "temporal_patch_size");
    if (channels && json_integer_value(channels) != 3) return wrong(r, "num_channels", "3");
    if (json_is_true(json_object_get(r->vision, "use_moe"))) return wrong(r, "use_moe", "false");
    if (frames && json_integer_value(frames) != 2) return wrong(r, "temporal_patch_size", "2");
    return INFER_OK;
}

/* A number, or a list of one for each side, which are alike; -1: neither. */
static json_int_t size_of(const json_t *v) {
    for (size_t i = 1; i < json_array_size(v); i++)
        if (!json_equal(json_array_get(v, i), json_array_get(v, 0))) return -1;
    if (json_array_size(v)) v = json_array_get(v, 0);
    return json_is_integer(v) && json_integer_value(v) <= INT32_MAX ? json_integer_value(v) : -1;
}

static enum infer_status put_sizes(const struct reader *r) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const json_t *v = named(r->vision, sizes[i].names);
        if (!v || (r->out->kind->bounds == BOUND_SLICES && strcmp(sizes[i].names, "image_size") == 0))
            continue;
        if (size_of(v) < 0) return wrong(r, sizes[i].names, "a size");
        hf_put_u32(r->keys, "clip", sizes[i].gguf, (uint32_t)size_of(v));
    }
    const struct tower_kind *k = r->out->kind;
    hf_put_u32(r->keys, "clip", "vision.embedding_length", (uint32_t)r->out->n_embd);
    const double ratio = json_number_value(named(r->vision, "mlp_ratio"));
    if (ratio > 0 && ratio < 1024)
        hf_put_u32(r->keys, "clip", "vision.feed_forward_length", (uint32_t)(ratio * r->out->n_embd));
    const json_int_t places = json_integer_value(json_object_get(r->vision, "num_patches"));
    if (places > 0 && places <= 65536)
        hf_put_u32(r->keys, "clip", "vision.image_size",
                   (uint32_t)sqrt((double)places + 0.5) * (uint32_t)r->out->patch);
    if (k->n_ff && !named(r->vision, "intermediate_size"))
        hf_put_u32(r->keys, "clip", "vision.feed_forward_length", (uint32_t)k->n_ff);
    if (k->n_layer && !named(r->vision, "num_hidden_layers"))
        hf_put_u32(r->keys, "clip", "vision.block_count", (uint32_t)k->n_layer);
    return INFER_OK;
}

/* What other readers of GGUF files ask for, although nothing is made of it: sizes of pictures where any are seen, numbers of blocks where
 * there are none, the embedding behind a line of rows. source: llama.cpp's clip and its converter */
static enum infer_status put_for_others(const struct reader *r) {
    static const char *const none[] = {"vision.attention.head_count", "vision.feed_forward_length",
                                       "vision.block_count"};
    const struct tower_kind *k = r->out->kind;
    const json_t *places = named(r->vision, "num_position_embeddings"),
                 *image = named(r->root, "image_token_index|image_token_id");
    const double side = sqrt((double)json_integer_value(places));
    if (!r->out->for_gguf) return INFER_OK;
    if (k->any_size && !named(r->vision, "image_size"))
        hf_put_u32(r->keys, "clip", "vision.image_size",
                   side >= 1 && side * r->out->patch < 65536 ? (uint32_t)(side * r->out->patch) : 560);
    for (size_t i = 0; !k->act && i < sizeof none / sizeof *none; i++)
        hf_put_u32(r->keys, "clip", none[i], 0);
    /* the tokens of Mistral's models: a row's, two more, the end of a line. source: mistral_common's tokenizers */
    if (k->neighbours && image) r->out->break_id = json_integer_value(image) + 2;
    return INFER_OK;
}

static enum infer_status positive(const struct reader *r, const char *key, const json_t *v, float absent,
                                  float *out) {
    *out = v ? (float)json_number_value(v) : absent;
    return *out > 0 && *out < 1 ? INFER_OK : wrong(r, key, "above 0 and below 1");
}

static enum infer_status put_norms(const struct reader *r) {
    const json_t *text = named(r->root, "text_config|llm_config");
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
        if (strcmp(act, "gelu") == 0) hf_put_bool(r->keys, "clip", "use_gelu", true); /* for others */
        return INFER_OK;
    }
    return wrong(r, "hidden_act", "an activation that is known");
}

/* Patches a side of a row where vision_config does not say it. */
static enum infer_status put_merge(const struct reader *r) {
    const json_t *own = named(r->vision, "spatial_merge_size|pooling_kernel_size"),
                 *root = named(r->root, "spatial_merge_size|scale_factor|downsample_factor"),
                 *own_ratio = json_object_get(r->vision, "pixel_shuffle_ratio"),
                 *ratio = own_ratio ? own_ratio : json_object_get(r->root, "downsample_ratio"),
                 *tokens = json_object_get(r->root, "mm_tokens_per_image");
    int merge = r->out->kind->merge;
    const json_t *mode = json_object_get(r->root, "downsample_mode"),
                 *times = json_object_get(r->root, "merger_times");
    if (own) return INFER_OK;
    if (times && json_integer_value(times) != 1) return wrong(r, "merger_times", "1");
    if (mode && json_is_string(mode)) merge = strcmp(json_string_value(mode), "4x") == 0 ? 2 : 4;
    if (root) merge = (int)json_integer_value(root);
    if (ratio && json_number_value(ratio) > 0.01) merge = (int)(1 / json_number_value(ratio));
    if (!merge) { /* fixed pictures: a square of patches for each of mm_tokens_per_image */
        const double side =
                         (double)json_integer_value(json_object_get(r->vision, "image_size")) / r->out->patch,
                     rows = sqrt(tokens ? json_number_value(tokens) : 256);
        if (!(rows >= 1 && side >= 1 && side < 65536))
            return wrong(r, "image_size", "a number of patches for mm_tokens_per_image");
        merge = (int)(side / rows);
    }
    if (merge < 1 || merge > 16) return wrong(r, "spatial_merge_size", "1 to 16");
    hf_put_u32(r->keys, "clip",
               r->out->kind->scaled ? "vision.projector.scale_factor" : "vision.spatial_merge_size",
               (uint32_t)merge);
    return INFER_OK;
}

static enum infer_status put_three(const struct reader *r, const char *key, const float *absent) {
    const json_t *own = json_object_get(r->more, key),
                 *v =
                     own ? own
                         : json_object_get(r->more, strcmp(key, "image_std") == 0 ? "norm_std" : "norm_mean");
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
static void put_half(const struct reader *r, const char *gguf, const json_t *v) {
    const json_int_t n = json_integer_value(v) / 2;
    if (n > 0 && n <= INT32_MAX) hf_put_u32(r->keys, "clip", gguf, (uint32_t)n);
}
/* As many pixels as so many rows have. */
static void put_rows(const struct reader *r, const char *gguf, const json_t *v) {
    const json_int_t rows = json_integer_value(v), side = (json_int_t)r->out->patch * r->out->pool;
    if (rows > 0 && rows * side * side <= INT32_MAX)
        hf_put_u32(r->keys, "clip", gguf, (uint32_t)(rows * side * side));
}
/* By the processor, else by config.json. */
static const json_t *said(const struct reader *r, const char *key) {
    const json_t *v = json_object_get(r->more, key);
    return v ? v : json_object_get(r->root, key);
}
/* Bounds of pictures: pixels, or the longest edge. */
static void put_bounds(const struct reader *r) {
    const json_t *size = json_object_get(r->more, "size"), *longest = json_object_get(size, "longest_edge");
    const enum tower_bounds bounds = r->out->kind->bounds;
    const json_t *low = named(r->more, "min_patches"), *high = named(r->more, "max_patches");
    put_bound(r, "vision.preproc_min_tiles", low ? low : named(r->root, "min_dynamic_patch"));
    put_bound(r, "vision.preproc_max_tiles", high ? high : named(r->root, "max_dynamic_patch"));
    if (bounds == BOUND_EDGE_OR_SIZE && !longest) longest = json_object_get(r->vision, "image_size");
    if (bounds == BOUND_EDGE || bounds == BOUND_EDGE_OR_SIZE) {
        put_bound(r, "vision.preproc_image_size", longest);
    } else if (bounds == BOUND_FRAMES) {
        put_half(r, "vision.image_min_pixels", json_object_get(size, "shortest_edge"));
        put_half(r, "vision.image_max_pixels", longest);
    } else if (bounds == BOUND_PIXELS) {
        const json_t *low = json_object_get(r->more, "min_pixels"),
                     *high = json_object_get(r->more, "max_pixels");
        put_bound(r, "vision.image_min_pixels", low ? low : json_object_get(size, "shortest_edge"));
        put_bound(r, "vision.image_max_pixels", high ? high : longest);
    } else if (bounds == BOUND_SLICES) {
        const json_t *area = json_object_get(r->more, "scale_resolution");
        hf_put_u32(r->keys, "clip", "vision.image_size", area ? (uint32_t)json_integer_value(area) : 448);
        put_bound(r, "vision.preproc_max_tiles", json_object_get(r->more, "max_slice_nums"));
    } else if (bounds == BOUND_TILES) {
        put_rows(r, "vision.image_min_pixels", said(r, "min_image_tokens"));
        put_rows(r, "vision.image_max_pixels", said(r, "max_image_tokens"));
        put_bound(r, "vision.preproc_image_size", said(r, "tile_size"));
        put_bound(r, "vision.preproc_min_tiles", said(r, "min_tiles"));
        put_bound(r, "vision.preproc_max_tiles", said(r, "max_tiles"));
    } else if (bounds == BOUND_ROWS) {
        put_rows(r, "vision.image_max_pixels", json_object_get(r->more, "max_soft_tokens"));
    }
}

/* The numbers of MiniCPM-V's folders: which one it is (2.6, 4, 4.5), and how many queries. */
static enum infer_status put_queries(const struct reader *r) {
    static const struct {
        double version;
        int32_t gguf;
    } known[] = {{2.6, 3}, {4, 5}, {4.5, 6}};
    const json_t *version = json_object_get(r->root, "version"), *n = json_object_get(r->root, "query_num");
    if (strcmp(r->out->kind->projector, "resampler") != 0) return INFER_OK;
    if (json_is_true(json_object_get(r->root, "drop_vision_last_layer")))
        return err_set(INFER_E_UNSUPPORTED, "%s: 'drop_vision_last_layer' is true", r->path);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(json_real_of(version) - known[i].version) < 1e-6)
            hf_put_i32(r->keys, "clip", "minicpmv_version", known[i].gguf);
    put_bound(r, "minicpmv_query_num", n);
    return INFER_OK;
}

/* Which blocks see all of the picture: each so many-th. The others see windows. */
static enum infer_status put_windows(const struct reader *r) {
    const json_t *full = json_object_get(r->vision, "fullatt_block_indexes"),
                 *size = json_object_get(r->vision, "window_size");
    const json_int_t every = json_integer_value(json_array_get(full, 0)) + 1;
    const json_t *insert = json_object_get(r->root, "insert_layer_id");
    const int32_t middle = insert ? (int32_t)json_integer_value(insert) : 6;
    if (r->out->kind->bounds == BOUND_SLICES && r->out->kind->merge > 1)
        hf_put_i32s(r->keys, "clip", "vision.wa_layer_indexes", &middle, 1);
    if (!full) return INFER_OK;
    for (size_t i = 0; i < json_array_size(full); i++)
        if (json_integer_value(json_array_get(full, i)) != every * (json_int_t)(i + 1) - 1)
            return wrong(r, "fullatt_block_indexes", "each so many-th block");
    if (!json_array_size(full) || every < 1 || every > INT32_MAX)
        return wrong(r, "fullatt_block_indexes", "a list of blocks");
    hf_put_u32(r->keys, "clip", "vision.n_wa_pattern", (uint32_t)every);
    put_bound(r, "vision.window_size", size);
    return INFER_OK;
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
    h->n_embd = (int)json_integer_value(
        named(r->vision, h->kind->width ? h->kind->width : "hidden_size|mm_embed_dim"));
    h->n_head = (int)json_integer_value(named(r->vision, "num_attention_heads|num_heads"));
    h->patch = (int)size_of(json_object_get(r->vision, "patch_size"));
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
    const json_t *layer = named(r->root, "vision_feature_layer|select_layer");
    if (layer && json_integer_value(layer) != -1)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'vision_feature_layer' is not -1, the last", r->path);
    const char *projector = r->out->kind->projector;
    hf_put_str(r->keys, NULL, "general.architecture", "clip", 4);
    hf_put_str(r->keys, NULL, "general.type", "mmproj", 6);
    hf_put_bool(r->keys, "clip", "has_vision_encoder", true);
    hf_put_str(r->keys, "clip", "projector_type", projector, strlen(projector));
    TRY(check_keys(r));
    TRY(read_sizes(r));
    TRY(put_sizes(r));
    TRY(put_for_others(r));
    TRY(put_norms(r));
    TRY(put_act(r));
    TRY(put_merge(r));
    TRY(put_three(r, "image_mean", r->out->kind->mean));
    TRY(put_three(r, "image_std", r->out->kind->std));
    const json_t *text = named(r->root, "text_config|llm_config"),
                 *width = json_object_get(text ? text : r->root, "hidden_size");
    if (json_is_integer(width) && json_integer_value(width) > 0)
        hf_put_u32(r->keys, "clip", "vision.projection_dim", (uint32_t)json_integer_value(width));
    put_bounds(r);
    TRY(put_windows(r));
    TRY(put_queries(r));
    TRY(read_deepstack(r));
    return r->keys->status;
}

enum infer_status hf_tower_keys(struct hf_tower *out, struct hf_keys *keys, const char *path,
                                const char *text, size_t n, const char *more, size_t n_more,
                                const struct tensorfile_options *options) {
    struct reader r = {.out = out, .keys = keys, .path = path, .ignore = &options->ignore};
    json_t *processor = NULL;
    *out =
        (struct hf_tower){.arena = keys->arena, .path = path, .for_gguf = options->for_gguf, .break_id = -1};
    TRY(json_read_python(&r.root, path, text, n, JSON_REJECT_DUPLICATES));
    enum infer_status s = n_more ? json_read_python(&processor, path, more, n_more, 0) : INFER_OK;
    r.more = json_object_get(processor, "image_processor");
    if (!r.more) r.more = processor;
    if (!s) s = read_all(&r);
    json_decref(processor);
    json_decref(r.root);
    return s;
}

/* Keys of a tower's file: all of clip.* and clip.vision.*; those of sound are not looked at. */
#include "vision/tower_impl.h"

#include <math.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 16, MAX_LAYERS = 256, MAX_IMAGE = 8192, MAX_TILES = 64 };

/* Keys that are read here, and those that say nothing more: what the tensors say (projection_dim, is_deepstack_layers), or what the
 * family has in one way alone. */
static const char read_keys[] =
    "has_vision_encoder|has_audio_encoder|has_text_encoder|has_llava_projector|has_minicpmv_projector|minicpmv_version|minicpmv_query_num|has_qwen2vl_merger|projector_type|use_gelu|use_silu|use_gelu_erf|vision.projector_type|"
    "vision.embedding_length|vision.feed_forward_length|vision.block_count|vision.attention.head_count|"
    "vision.attention.head_count_kv|vision.attention.head_dim|vision.attention.layer_norm_epsilon|"
    "vision.projection_dim|vision.image_size|vision.patch_size|vision.image_mean|vision.image_std|"
    "vision.projector.scale_factor|vision.spatial_merge_size|vision.image_min_pixels|vision.image_max_pixels|"
    "vision.preproc_image_size|vision.preproc_min_tiles|vision.preproc_max_tiles|vision.n_wa_pattern|vision.wa_layer_indexes|vision.window_size|vision.is_deepstack_layers|vision.projector.layer_norm_epsilon|vision.rope.neox";

static enum infer_status check_keys(const struct tower *t) {
    for (size_t i = 0; i < t->file->n_meta; i++) {
        const struct str key = t->file->meta[i].key;
        char name[128];
        if (key.len < 5 || key.len >= sizeof name || memcmp(key.data, "clip.", 5) != 0) continue;
        memcpy(name, key.data, key.len);
        name[key.len] = 0;
        if (strncmp(name + 5, "audio.", 6) == 0 || key_names(read_keys, name + 5, strlen(name + 5))) continue;
        TRY(key_unknown(&t->options.ignore, t->file->path, name));
    }
    return INFER_OK;
}

/* Above -1: what stands for a key that is absent. */
static enum infer_status read_int(const struct tower *t, const char *key, int min, int max, int absent,
                                  int *out) {
    uint32_t v = (uint32_t)absent;
    bool present;
    TRY(meta_u32(t->file, key, &v, absent < 0 ? NULL : &present));
    if (absent >= 0 && !present) {
        *out = absent;
        return INFER_OK;
    }
    if (v < (uint32_t)min || v > (uint32_t)max)
        return err_set(INFER_E_INPUT, "%s: key '%s' is %u, must be %d to %d", t->file->path, key, v, min,
                       max);
    *out = (int)v;
    return INFER_OK;
}

static enum infer_status read_eps(const struct tower *t, const char *key, float absent, float *out) {
    bool present;
    float v = absent;
    TRY(meta_f32(t->file, key, &v, absent < 0 ? NULL : &present));
    if (!(v > 0 && v < 1))
        return err_set(INFER_E_INPUT, "%s: key '%s' is %g, must be above 0 and below 1", t->file->path, key,
                       (double)v);
    *out = v;
    return INFER_OK;
}

static enum infer_status read_three(const struct tower *t, const char *key, float low, float *out) {
    const struct meta *m;
    TRY(meta_array(t->file, key, META_KIND_FLOAT, 3, &m, NULL));
    for (size_t i = 0; i < 3; i++) {
        out[i] = (float)meta_elem_f64(m, i);
        if (!(out[i] >= low && out[i] < 1000))
            return err_set(INFER_E_INPUT, "%s: key '%s' has %g", t->file->path, key, (double)out[i]);
    }
    return INFER_OK;
}

static enum infer_status read_act(struct tower *t) {
    bool gelu = false, silu = false, erf = false, there;
    TRY(meta_bool(t->file, "clip.use_gelu", &gelu, &there));
    TRY(meta_bool(t->file, "clip.use_silu", &silu, &there));
    TRY(meta_bool(t->file, "clip.use_gelu_erf", &erf, &there));
    if (gelu && silu)
        return err_set(INFER_E_INPUT, "%s: clip.use_gelu and clip.use_silu are both true", t->file->path);
    erf |= gelu && t->family->erf;
    t->act = erf ? ACT_GELU_ERF : gelu ? ACT_GELU_TANH : silu ? ACT_SILU : ACT_SWIGLU_OAI;
    /* neither: x / (1 + exp(-1.702 x)) */
    t->act_k = (struct act_numbers){.limit = INFINITY, .alpha = 1.702f};
    return INFER_OK;
}

static enum infer_status find_family(struct tower *t) {
    const struct tensorfile *f = t->file;
    struct str type, name;
    bool there, vision = false;
    TRY(meta_str(f, "general.architecture", &name, NULL));
    if (name.len != 4 || memcmp(name.data, "clip", 4) != 0)
        return err_set(INFER_E_INPUT,
                       "%s: general.architecture is '%.*s': no tower for images (those are of 'clip')",
                       f->path, (int)(name.len < 64 ? name.len : 64), name.data);
    TRY(meta_bool(f, "clip.has_vision_encoder", &vision, &there));
    if (!vision) return err_set(INFER_E_UNSUPPORTED, "%s: it has no tower for images", f->path);
    TRY(meta_str(f, "clip.vision.projector_type", &type, &there));
    if (!there) TRY(meta_str(f, "clip.projector_type", &type, NULL));
    t->family = tower_family_find(type.data, type.len);
    if (t->family) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: projector '%.*s' is not known", f->path,
                   (int)(type.len < 64 ? type.len : 64), type.data);
}

static enum infer_status read_heads(struct tower *t) {
    int n_kv = 0;
    const bool none = t->family->no_blocks;
    TRY(read_int(t, "clip.vision.attention.head_count", none ? 0 : 1, MAX_WIDTH, none ? 1 : -1, &t->n_head));
    if (!t->n_head) t->n_head = 1;
    TRY(read_int(t, "clip.vision.attention.head_count_kv", 1, MAX_WIDTH, t->n_head, &n_kv));
    TRY(read_int(t, "clip.vision.attention.head_dim", 1, 1024, t->n_embd / t->n_head, &t->head_dim));
    if (n_kv != t->n_head)
        return err_set(INFER_E_UNSUPPORTED, "%s: %d heads of keys for %d of queries", t->file->path, n_kv,
                       t->n_head);
    if (t->head_dim < 1 || t->head_dim > 1024 || (t->family->turn != TURN_NONE && t->head_dim % 4))
        return err_set(INFER_E_INPUT, "%s: heads of %d numbers", t->file->path, t->head_dim);
    return INFER_OK;
}

/* Where rows are made in two steps, the block behind which the first one is. */
static enum infer_status read_middle(struct tower *t) {
    uint32_t at;
    t->middle_at = -1;
    if (!t->family->middle || t->merge == 2) return INFER_OK;
    if (t->merge != 4)
        return err_set(INFER_E_INPUT, "%s: %d patches a side of a row, must be 2 or 4", t->file->path,
                       t->merge);
    TRY(meta_u32_array(t->file, "clip.vision.wa_layer_indexes", &at, 1, NULL));
    if (at + 1 >= (uint32_t)t->n_layer)
        return err_set(INFER_E_INPUT, "%s: key 'clip.vision.wa_layer_indexes' is %u, there are %d blocks",
                       t->file->path, at, t->n_layer);
    t->middle_at = (int)at;
    return INFER_OK;
}

/* Rows are so many queries. Of MiniCPM-V 2.6 to 4.5: before, marks and what is cut were others. source: llama.cpp's clip */
static enum infer_status read_queries(struct tower *t) {
    int version;
    if (!t->family->queries) return INFER_OK;
    TRY(read_int(t, "clip.minicpmv_version", 0, INT32_MAX, 2, &version));
    if (version < 3 || version > 6)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'clip.minicpmv_version' is %d; 3 to 6 are known (MiniCPM-V 2.6, o 2.6, 4.0, 4.5)",
                       t->file->path, version);
    return read_int(t, "clip.minicpmv_query_num", 1, 1024, 64, &t->n_query);
}

/* A window has as many rows a side as its pixels hold. source: HF modeling_qwen2_5_vl */
static enum infer_status read_windows(struct tower *t) {
    int pixels;
    if (!t->family->windows) return INFER_OK;
    TRY(read_int(t, "clip.vision.n_wa_pattern", 1, MAX_LAYERS, -1, &t->whole_every));
    TRY(read_int(t, "clip.vision.window_size", 1, MAX_IMAGE, 112, &pixels));
    t->window = pixels / t->merge / t->patch;
    if (t->window) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: windows of %d pixels, rows of %d", t->file->path, pixels,
                   tower_side(t));
}

enum infer_status tower_read_keys(struct tower *t) {
    TRY(find_family(t));
    TRY(check_keys(t));
    const int zero = t->family->no_blocks ? 0 : -1, least = t->family->queries;
    TRY(read_int(t, "clip.vision.embedding_length", 1, MAX_WIDTH, -1, &t->n_embd));
    TRY(read_int(t, "clip.vision.feed_forward_length", 0, 1 << 20, zero, &t->n_ff));
    TRY(read_int(t, "clip.vision.block_count", least, MAX_LAYERS, zero, &t->n_layer));
    if (t->family->no_blocks) t->n_layer = 0;
    TRY(read_heads(t));
    TRY(read_int(t, "clip.vision.image_size", 0, MAX_IMAGE, 0, &t->image_size));
    TRY(read_int(t, "clip.vision.patch_size", 1, 1024, -1, &t->patch));
    TRY(read_int(t, "clip.vision.spatial_merge_size", 1, 16, t->family->merge ? t->family->merge : 1,
                 &t->merge));
    TRY(read_int(t, "clip.vision.projector.scale_factor", 1, 16, t->merge, &t->merge));
    if (t->family->no_blocks) t->merge = 1;
    TRY(read_windows(t));
    TRY(read_middle(t));
    TRY(read_queries(t));
    TRY(read_int(t, "clip.vision.image_min_pixels", 0, 1 << 30, 0, &t->min_pixels));
    TRY(read_int(t, "clip.vision.image_max_pixels", 0, 1 << 30, 0, &t->max_pixels));
    TRY(read_int(t, "clip.vision.preproc_image_size", 0, MAX_IMAGE, 0, &t->edge));
    TRY(read_int(t, "clip.vision.preproc_min_tiles", 1, MAX_TILES, t->family->min_tiles, &t->min_tiles));
    TRY(read_int(t, "clip.vision.preproc_max_tiles", 1, MAX_TILES, t->family->max_tiles, &t->max_tiles));
    TRY(read_eps(t, "clip.vision.attention.layer_norm_epsilon", -1, &t->eps));
    TRY(read_eps(t, "clip.vision.projector.layer_norm_epsilon", t->eps, &t->out_eps));
    TRY(read_three(t, "clip.vision.image_mean", 0, t->mean));
    TRY(read_three(t, "clip.vision.image_std", 1e-6f, t->std));
    bool there;
    TRY(meta_bool(t->file, "clip.vision.rope.neox", &t->neox, &there));
    return read_act(t);
}

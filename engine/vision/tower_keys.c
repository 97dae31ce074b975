/* Keys of a tower's file: all of clip.* and clip.vision.*; those of sound are not looked at. */
#include "vision/tower_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 16, MAX_LAYERS = 256, MAX_IMAGE = 8192 };

/* Keys that are read here, and those that say nothing more: what the tensors say (projection_dim, is_deepstack_layers), or what the
 * family has in one way alone. */
static const char read_keys[] =
    "has_vision_encoder|has_audio_encoder|projector_type|use_gelu|use_silu|use_gelu_erf|vision.projector_type|"
    "vision.embedding_length|vision.feed_forward_length|vision.block_count|vision.attention.head_count|"
    "vision.attention.head_count_kv|vision.attention.head_dim|vision.attention.layer_norm_epsilon|"
    "vision.projection_dim|vision.image_size|vision.patch_size|vision.image_mean|vision.image_std|"
    "vision.projector.scale_factor|vision.spatial_merge_size|vision.image_min_pixels|vision.image_max_pixels|"
    "vision.preproc_image_size|vision.is_deepstack_layers|vision.projector.layer_norm_epsilon|vision.rope.neox";

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
    TRY(read_int(t, "clip.vision.attention.head_count", 1, MAX_WIDTH, t->family->no_blocks ? 1 : -1,
                 &t->n_head));
    TRY(read_int(t, "clip.vision.attention.head_count_kv", 1, MAX_WIDTH, t->n_head, &n_kv));
    TRY(read_int(t, "clip.vision.attention.head_dim", 1, 1024, t->n_embd / t->n_head, &t->head_dim));
    if (n_kv != t->n_head)
        return err_set(INFER_E_UNSUPPORTED, "%s: %d heads of keys for %d of queries", t->file->path, n_kv,
                       t->n_head);
    if (t->head_dim < 1 || t->head_dim > 1024 || (t->family->turn != TURN_NONE && t->head_dim % 4))
        return err_set(INFER_E_INPUT, "%s: heads of %d numbers", t->file->path, t->head_dim);
    return INFER_OK;
}

enum infer_status tower_read_keys(struct tower *t) {
    TRY(find_family(t));
    TRY(check_keys(t));
    const int zero = t->family->no_blocks ? 0 : -1;
    TRY(read_int(t, "clip.vision.embedding_length", 1, MAX_WIDTH, -1, &t->n_embd));
    TRY(read_int(t, "clip.vision.feed_forward_length", 0, 1 << 20, zero, &t->n_ff));
    TRY(read_int(t, "clip.vision.block_count", 0, MAX_LAYERS, zero, &t->n_layer));
    if (t->family->no_blocks) t->n_layer = 0;
    TRY(read_heads(t));
    TRY(read_int(t, "clip.vision.image_size", 0, MAX_IMAGE, 0, &t->image_size));
    TRY(read_int(t, "clip.vision.patch_size", 1, 1024, -1, &t->patch));
    TRY(read_int(t, "clip.vision.spatial_merge_size", 1, 16, t->family->merge ? t->family->merge : 1,
                 &t->merge));
    TRY(read_int(t, "clip.vision.projector.scale_factor", 1, 16, t->merge, &t->merge));
    if (t->family->no_blocks) t->merge = 1;
    TRY(read_int(t, "clip.vision.image_min_pixels", 0, 1 << 30, 0, &t->min_pixels));
    TRY(read_int(t, "clip.vision.image_max_pixels", 0, 1 << 30, 0, &t->max_pixels));
    TRY(read_int(t, "clip.vision.preproc_image_size", 0, MAX_IMAGE, 0, &t->edge));
    TRY(read_eps(t, "clip.vision.attention.layer_norm_epsilon", -1, &t->eps));
    TRY(read_eps(t, "clip.vision.projector.layer_norm_epsilon", t->eps, &t->out_eps));
    TRY(read_three(t, "clip.vision.image_mean", 0, t->mean));
    TRY(read_three(t, "clip.vision.image_std", 1e-6f, t->std));
    bool there;
    TRY(meta_bool(t->file, "clip.vision.rope.neox", &t->neox, &there));
    return read_act(t);
}

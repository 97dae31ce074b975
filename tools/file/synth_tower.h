/* Towers for images: blocks of q k v in one, a feed-forward part without a gate, patches of 16, rows of 2 x 2, places of 48 x 48; the
 * shape's vocabulary is the width of the text model. source: config.json of Qwen3.6-27B, vision_config. Part of synth_file.c. */
enum { TOWER_PATCH = 16, TOWER_MERGE = 2, TOWER_SIDE = 48 };
static bool is_tower(const struct shape *s) { return strcmp(s->arch, "clip") == 0; }

static enum infer_status put_tower(struct gguf_writer *w, const struct shape *s, const struct mix *m) {
    static const float half[3] = {0.5f, 0.5f, 0.5f};
    char text[96];
    snprintf(text, sizeof text, "%s-synthetic", s->name);
    gguf_writer_str(w, "general.architecture", s->arch);
    gguf_writer_str(w, "general.type", "mmproj");
    gguf_writer_str(w, "general.name", text);
    gguf_writer_u32(w, "general.file_type", mix_file_type(m));
    gguf_writer_bool(w, "clip.has_vision_encoder", true);
    gguf_writer_str(w, "clip.projector_type", "qwen3vl_merger");
    gguf_writer_bool(w, "clip.use_gelu", true);
    put_key(w, s, "vision.block_count", (uint32_t)s->n_layer);
    put_key(w, s, "vision.embedding_length", (uint32_t)s->n_embd);
    put_key(w, s, "vision.feed_forward_length", (uint32_t)s->n_ff);
    put_key(w, s, "vision.attention.head_count", (uint32_t)s->n_head);
    put_key(w, s, "vision.image_size", TOWER_SIDE * TOWER_PATCH);
    put_key(w, s, "vision.patch_size", TOWER_PATCH);
    put_key(w, s, "vision.spatial_merge_size", TOWER_MERGE);
    put_f32(w, s, "vision.attention.layer_norm_epsilon", 1e-6f);
    gguf_writer_array(w, "clip.vision.image_mean", META_F32, half, 3);
    gguf_writer_array(w, "clip.vision.image_std", META_F32, half, 3);
    return INFER_OK;
}

/* A product with its bias, or a norm (rows 0). */
static void add_tower_part(struct list *l, const char *name, int rows, int cols, float gain) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    if (rows)
        add_matrix(l, -1, full, 1, rows, cols, gain);
    else
        add_norm(l, -1, full, cols);
    snprintf(full, sizeof full, "%s.bias", name);
    add(l, -1, full, 1, 1, rows ? rows : cols, 0, 0.1f);
}

static void add_tower(struct list *l) {
    const struct shape *s = l->s;
    const int d = s->n_embd, q = s->n_head * s->head_dim, pixels = 3 * TOWER_PATCH * TOWER_PATCH,
              merged = d * TOWER_MERGE * TOWER_MERGE;
    const float residual = 1.0f / sqrtf(2.0f * (float)s->n_layer);
    add_tower_part(l, "v.patch_embd", d, pixels, 0.7f);
    add_matrix(l, -1, "v.patch_embd.weight.1", 1, d, pixels, 0.7f); /* of the second frame */
    add(l, -1, "v.position_embd.weight", 1, TOWER_SIDE * TOWER_SIDE, d, 0, 0.5f);
    for (int i = 0; i < s->n_layer; i++) {
        char name[48];
        const struct {
            const char *part;
            int rows, cols;
            float gain;
        } parts[] = {{"ln1", 0, d, 1}, {"attn_qkv", 3 * q, d, 1}, {"attn_out", d, q, residual},
                     {"ln2", 0, d, 1}, {"ffn_up", s->n_ff, d, 1}, {"ffn_down", d, s->n_ff, 2 * residual}};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            snprintf(name, sizeof name, "v.blk.%d.%s", i, parts[k].part);
            add_tower_part(l, name, parts[k].rows, parts[k].cols, parts[k].gain);
        }
    }
    add_tower_part(l, "v.post_ln", 0, d, 1);
    add_tower_part(l, "mm.0", merged, merged, 1);
    add_tower_part(l, "mm.2", s->n_vocab, merged, 1);
}

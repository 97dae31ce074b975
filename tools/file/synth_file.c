#include "tools/file/synth.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "files/gguf_write.h"
#include "base/mem.h"
#include "tools/file/mix.h"

/* ---- shapes ---- */

struct shape {
    const char *name, *arch;
    int n_layer, n_embd, n_ff, n_head, n_kv_head, head_dim, n_vocab, n_expert, n_used;
    bool any_arch;
    int n_draft; /* layers behind the others, which draft */
};

static const struct shape shapes[] = {
#define SHAPE(...) {__VA_ARGS__, 0},
#include "tools/shapes.def"
#undef SHAPE
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

const char *synth_shapes(char *buf, size_t n) {
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < N_SHAPE && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? " " : "", shapes[i].name);
    return buf;
}

static enum infer_status find_shape(const struct synth_options *o, struct shape *out) {
    char names[512];
    for (int i = 0; i < N_SHAPE; i++)
        if (o->shape && strcmp(shapes[i].name, o->shape) == 0) {
            static const char *const dense[] = {"llama", "qwen2", "qwen3"};
            *out = shapes[i];
            if (!o->arch || strcmp(o->arch, out->arch) == 0) return INFER_OK;
            for (int k = 0; k < 3 && out->any_arch; k++)
                if (strcmp(o->arch, dense[k]) == 0) {
                    out->arch = dense[k];
                    return INFER_OK;
                }
            return err_set(INFER_E_INPUT, "shape %s is of architecture %s%s, not %s", out->name, out->arch,
                           out->any_arch ? " (or qwen2, qwen3)" : "", o->arch);
        }
    return err_set(INFER_E_INPUT, "no shape '%s'; there are: %s", o->shape ? o->shape : "",
                   synth_shapes(names, sizeof names));
}

/* ---- metadata ---- */

static void put_key(struct gguf_writer *w, const struct shape *s, const char *key, uint32_t value) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", s->arch, key);
    gguf_writer_u32(w, full, value);
}

/* Gemma 4: every sixth layer and the last see all positions, with heads twice as wide and a quarter of the heads of keys, which are its
 * values; beside experts stands a dense part three times as wide as one of them. source: config.json of Gemma 4 31B and 26B-A4B */
enum { GEMMA4_WINDOW = 1024, GEMMA4_DENSE = 3 };
static bool is_gemma4(const struct shape *s) { return strcmp(s->arch, "gemma4") == 0; }
static bool is_llama4(const struct shape *s) { return strcmp(s->arch, "llama4") == 0; }
static bool is_wide(const struct shape *s, int layer) {
    return is_gemma4(s) && ((layer + 1) % 6 == 0 || layer + 1 == s->n_layer);
}

static enum infer_status put_gemma4(struct gguf_writer *w, const struct shape *s) {
    char key[96];
    uint8_t *windowed;
    uint32_t *kv;
    TRY(mem_new(&windowed, (size_t)s->n_layer, "list of layers"));
    enum infer_status st = mem_new(&kv, (size_t)s->n_layer * sizeof *kv, "list of layers");
    for (int i = 0; !st && i < s->n_layer; i++) {
        windowed[i] = !is_wide(s, i);
        kv[i] = (uint32_t)(is_wide(s, i) ? s->n_kv_head / 4 : s->n_kv_head);
    }
    if (!st) {
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", s->arch);
        gguf_writer_array(w, key, META_BOOL, windowed, (uint64_t)s->n_layer);
        snprintf(key, sizeof key, "%s.attention.head_count_kv", s->arch);
        gguf_writer_array(w, key, META_U32, kv, (uint64_t)s->n_layer);
        put_key(w, s, "attention.sliding_window", GEMMA4_WINDOW);
        put_key(w, s, "attention.key_length_swa", (uint32_t)s->head_dim);
        put_key(w, s, "attention.value_length_swa", (uint32_t)s->head_dim);
        put_key(w, s, "rope.dimension_count_swa", (uint32_t)s->head_dim);
        snprintf(key, sizeof key, "%s.final_logit_softcapping", s->arch);
        gguf_writer_f32(w, key, 30);
    }
    mem_free(windowed);
    mem_free(kv);
    return st;
}

/* Gemma 3: every sixth layer sees all positions. source: config.json of Gemma 3 4B */
enum { GEMMA3_WINDOW = 1024 };
static bool is_gemma3(const struct shape *s) { return strcmp(s->arch, "gemma3") == 0; }

/* What shapes with latent attention have beside; their first layer is dense, n_ff of the shape is an expert's, head_dim a query's.
 * source: config.json of DeepSeek-V2-Lite and GLM-4.7-Flash */
static const struct latent {
    const char *name;
    int q_rank, rank, n_rot, value, n_ff, n_shared; /* q_rank 0: queries of x itself */
    bool sigmoid;
    float yarn, scale; /* factor of contexts, 0: none; of experts */
} latents[] = {{"deepseek-v2-lite", 0, 512, 64, 128, 10944, 2, false, 40, 1},
               {"glm-4.7-flash", 768, 512, 64, 256, 10240, 1, true, 0, 1.8f},
               {"tiny-latent", 96, 64, 32, 48, 512, 1, true, 0, 1.8f},
               {"tiny-latent-512", 96, 512, 64, 64, 512, 1, true, 0, 1.8f}};
static const struct latent *latent_of(const struct shape *s) { /* NULL: none */
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
        if (strcmp(latents[i].name, s->name) == 0) return &latents[i];
    return NULL;
}

static void put_f32(struct gguf_writer *w, const struct shape *s, const char *key, float value) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", s->arch, key);
    gguf_writer_f32(w, full, value);
}

static void put_latent(struct gguf_writer *w, const struct shape *s, const struct latent *t) {
    char key[96];
    put_key(w, s, "feed_forward_length", (uint32_t)t->n_ff);
    put_key(w, s, "leading_dense_block_count", 1);
    put_key(w, s, "attention.key_length", (uint32_t)(t->rank + t->n_rot));
    put_key(w, s, "attention.value_length", (uint32_t)t->rank);
    put_key(w, s, "attention.key_length_mla", (uint32_t)s->head_dim);
    put_key(w, s, "attention.value_length_mla", (uint32_t)t->value);
    put_key(w, s, "attention.kv_lora_rank", (uint32_t)t->rank);
    if (t->q_rank) put_key(w, s, "attention.q_lora_rank", (uint32_t)t->q_rank);
    put_key(w, s, "rope.dimension_count", (uint32_t)t->n_rot);
    put_key(w, s, "expert_shared_count", (uint32_t)t->n_shared);
    put_key(w, s, "expert_gating_func", t->sigmoid ? 2 : 1);
    put_f32(w, s, "expert_weights_scale", t->scale);
    snprintf(key, sizeof key, "%s.expert_weights_norm", s->arch);
    gguf_writer_bool(w, key, t->sigmoid);
    if (t->yarn == 0) return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", s->arch);
    gguf_writer_str(w, key, "yarn");
    put_f32(w, s, "rope.scaling.factor", t->yarn);
    put_f32(w, s, "rope.scaling.yarn_log_multiplier", 0.0707f);
    put_key(w, s, "rope.scaling.original_context_length", 4096);
}

/* What shapes with the gated delta rule have beside; each fourth layer has attention, whose queries have gates. source: config.json of
 * Qwen3.6-27B and 35B-A3B */
enum { DELTA_EACH = 4, DELTA_TAPS = 4 };
static const struct delta {
    const char *name;
    int n_key, n_value, dim, n_rot, n_shared; /* n_shared: width of the part that all rows share */
} deltas[] = {{"qwen3.6-27b", 16, 48, 128, 64, 0},  {"qwen3.6-35b-a3b", 16, 32, 128, 64, 512},
              {"tiny-delta", 2, 6, 32, 16, 0},      {"tiny-delta-moe", 2, 4, 64, 16, 128},
              {"tiny-delta-128", 2, 6, 128, 16, 0}, {"tiny-delta-moe-128", 2, 4, 128, 16, 256}};
static const struct delta *delta_of(const struct shape *s) { /* NULL: none */
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++)
        if (strcmp(deltas[i].name, s->name) == 0) return &deltas[i];
    return NULL;
}

static void put_delta(struct gguf_writer *w, const struct shape *s, const struct delta *t) {
    static const int32_t sections[] = {11, 11, 10, 0};
    char key[96];
    put_key(w, s, "feed_forward_length", (uint32_t)s->n_ff);
    put_key(w, s, "attention.key_length", (uint32_t)s->head_dim);
    put_key(w, s, "attention.value_length", (uint32_t)s->head_dim);
    put_key(w, s, "rope.dimension_count", (uint32_t)t->n_rot);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", s->arch);
    gguf_writer_array(w, key, META_I32, sections, 4);
    put_key(w, s, "full_attention_interval", DELTA_EACH);
    put_key(w, s, "ssm.conv_kernel", DELTA_TAPS);
    put_key(w, s, "ssm.state_size", (uint32_t)t->dim);
    put_key(w, s, "ssm.group_count", (uint32_t)t->n_key);
    put_key(w, s, "ssm.time_step_rank", (uint32_t)t->n_value);
    put_key(w, s, "ssm.inner_size", (uint32_t)(t->n_value * t->dim));
    if (t->n_shared) put_key(w, s, "expert_shared_feed_forward_length", (uint32_t)t->n_shared);
}

static void put_heads(struct gguf_writer *w, const struct shape *s) {
    const int wide = is_gemma4(s) ? 2 : 1, dense = is_gemma4(s) && s->n_expert ? GEMMA4_DENSE : 1;
    put_key(w, s, "feed_forward_length", (uint32_t)(dense * s->n_ff));
    put_key(w, s, "attention.key_length", (uint32_t)(wide * s->head_dim));
    put_key(w, s, "attention.value_length", (uint32_t)(wide * s->head_dim));
    put_key(w, s, "rope.dimension_count", (uint32_t)(wide * s->head_dim));
}

static const struct hybrid *hybrid_of(const struct shape *s);
static enum infer_status put_hybrid(struct gguf_writer *w, const struct shape *s, const struct hybrid *t);

static enum infer_status put_config(struct gguf_writer *w, const struct shape *s, const struct mix *m) {
    char text[96];
    snprintf(text, sizeof text, "%s-synthetic", s->name);
    gguf_writer_str(w, "general.architecture", s->arch);
    gguf_writer_str(w, "general.name", text);
    gguf_writer_u32(w, "general.file_type", mix_file_type(m));
    gguf_writer_u32(w, "general.quantization_version", 2);
    put_key(w, s, "block_count", (uint32_t)(s->n_layer + s->n_draft));
    if (s->n_draft) put_key(w, s, "nextn_predict_layers", (uint32_t)s->n_draft);
    put_key(w, s, "context_length", 131072);
    put_key(w, s, "embedding_length", (uint32_t)s->n_embd);
    put_key(w, s, "attention.head_count", (uint32_t)s->n_head);
    if (!is_gemma4(s) && !hybrid_of(s)) put_key(w, s, "attention.head_count_kv", (uint32_t)s->n_kv_head);
    if (latent_of(s))
        put_latent(w, s, latent_of(s));
    else if (delta_of(s))
        put_delta(w, s, delta_of(s));
    else if (!hybrid_of(s))
        put_heads(w, s);
    put_key(w, s, "vocab_size", (uint32_t)s->n_vocab);
    put_f32(w, s, "rope.freq_base", 500000.0f);
    put_f32(w, s, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (strcmp(s->arch, "gpt-oss") == 0) {
        put_key(w, s, "attention.sliding_window", 128);
        put_key(w, s, "rope.scaling.original_context_length", 4096);
        snprintf(text, sizeof text, "%s.rope.scaling.type", s->arch);
        gguf_writer_str(w, text, "yarn");
        snprintf(text, sizeof text, "%s.rope.scaling.factor", s->arch);
        gguf_writer_f32(w, text, 32);
    }
    if (s->n_expert) {
        put_key(w, s, "expert_count", (uint32_t)s->n_expert);
        put_key(w, s, "expert_used_count", (uint32_t)s->n_used);
        put_key(w, s, "expert_feed_forward_length", (uint32_t)s->n_ff);
    }
    if (is_gemma3(s)) put_key(w, s, "attention.sliding_window", GEMMA3_WINDOW);
    if (is_llama4(s)) put_key(w, s, "interleave_moe_layer_step", 1); /* as Scout has it */
    if (hybrid_of(s)) return put_hybrid(w, s, hybrid_of(s));
    return is_gemma4(s) ? put_gemma4(w, s) : INFER_OK;
}

/* GPT-2's name of a byte: itself when it is printable Latin-1, else 256 and up, as UTF-8. Returns the length. */
static int byte_name(char *out, int byte) {
    int code = byte;
    bool printable = (byte >= 33 && byte < 127) || (byte >= 161 && byte != 173);
    if (!printable) { /* 0..32 -> 256.., 127..160 -> 289.., 173 -> 323 */
        code = byte <= 32 ? 256 + byte : byte <= 160 ? 289 + byte - 127 : 323;
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

/* A vocabulary that can say every text: the 256 bytes, one merge, one end token, fillers. */
static enum infer_status put_vocabulary(struct gguf_writer *w, int n) {
    enum { SPACE_A = 256, END = 257, NAME = 12 };
    struct str *token;
    TRY(mem_new(&token, (size_t)n * (sizeof *token + 4 + NAME), "vocabulary"));
    int32_t *type = (int32_t *)(token + n);
    char *text = (char *)(type + n);
    for (int i = 0; i < n; i++) {
        char *name = text + (size_t)i * NAME;
        int len = i < 256        ? byte_name(name, i)
                  : i == SPACE_A ? snprintf(name, NAME,
                                            "\xc4\xa0"
                                            "a")
                  : i == END     ? snprintf(name, NAME, "<|eos|>")
                                 : snprintf(name, NAME, "t%d", i);
        token[i] = (struct str){name, (size_t)len};
        type[i] = i == END ? 3 : 1; /* control; normal */
    }
    gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_str(w, "tokenizer.ggml.pre", "default");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", token, (uint64_t)n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", META_I32, type, (uint64_t)n);
    gguf_writer_strings(w, "tokenizer.ggml.merges", &(struct str){"\xc4\xa0 a", 4}, 1);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", END);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", END);
    mem_free(token);
    return INFER_OK;
}

/* ---- the list of tensors ---- */

struct item {
    enum quant_type type;
    uint64_t n; /* elements */
    float mean, deviation;
};

struct list {
    struct gguf_writer *w;
    const struct shape *s;
    const struct mix *mix;
    struct mix_model model;
    struct synth_report *report;
    struct item *item; /* item[n] */
    int n, size;
    uint64_t n_data; /* bytes */
};

static void add(struct list *l, int layer, const char *part, int experts, int rows, int cols, float mean,
                float deviation) {
    char name[64];
    if (l->n == l->size) infer_bug("more than %d tensors", l->size);
    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    int n_dim = experts > 1 ? 3 : rows > 1 ? 2 : 1;
    enum quant_type type = QUANT_F32, wanted;
    if (mix_is_matrix(name, n_dim)) {
        type = mix_type(l->mix, &l->model, name, cols, &wanted);
        l->report->n_matrix++;
        if (type != wanted) l->report->fallback[wanted][type]++;
    }
    struct item *it = &l->item[l->n++];
    *it = (struct item){type, (uint64_t)experts * (uint64_t)rows * (uint64_t)cols, mean, deviation};
    l->n_data += quant_row_bytes(quant_info(type), it->n);
    gguf_writer_tensor(l->w, name, type, n_dim, (int64_t[4]){1, experts, rows, cols});
}

/* A matrix that keeps the size of its input, times gain. */
static void add_matrix(struct list *l, int layer, const char *part, int experts, int rows, int cols,
                       float gain) {
    add(l, layer, part, experts, rows, cols, 0, gain / sqrtf((float)cols));
}
static void add_norm(struct list *l, int layer, const char *part, int n) {
    add(l, layer, part, 1, 1, n, 1, 0.1f);
}

/* Biases and sinks of gpt-oss. */
static void add_oss(struct list *l, int i) {
    const struct shape *s = l->s;
    add(l, i, "attn_output.bias", 1, 1, s->n_embd, 0, 0.1f);
    add(l, i, "attn_sinks.weight", 1, 1, s->n_head, 0, 1);
    add(l, i, "ffn_gate_inp.bias", 1, 1, s->n_expert, 0, 0.1f);
    add(l, i, "ffn_gate_exps.bias", 1, s->n_expert, s->n_ff, 0, 0.1f);
    add(l, i, "ffn_up_exps.bias", 1, s->n_expert, s->n_ff, 0, 0.1f);
    add(l, i, "ffn_down_exps.bias", 1, s->n_expert, s->n_embd, 0, 0.1f);
}

/* Norms and scales of Gemma 4, and the dense part beside its experts. */
static void add_gemma4(struct list *l, int i, int head_dim, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, ff = GEMMA4_DENSE * s->n_ff;
    add_norm(l, i, "post_attention_norm.weight", d);
    add_norm(l, i, "post_ffw_norm.weight", d);
    add(l, i, "attn_q_norm.weight", 1, 1, head_dim, 0.3f, 0.03f); /* scores have no other scale */
    add_norm(l, i, "attn_k_norm.weight", head_dim);
    add(l, i, "layer_output_scale.weight", 1, 1, 1, 1, 0.01f);
    if (!s->n_expert) return;
    add(l, i, "ffn_gate_inp.scale", 1, 1, d, 1, 0.1f);
    add(l, i, "ffn_down_exps.scale", 1, 1, s->n_expert, 1, 0.1f);
    add_norm(l, i, "pre_ffw_norm_2.weight", d);
    add_norm(l, i, "post_ffw_norm_1.weight", d);
    add_norm(l, i, "post_ffw_norm_2.weight", d);
    add_matrix(l, i, "ffn_gate.weight", 1, ff, d, 1);
    add_matrix(l, i, "ffn_up.weight", 1, ff, d, 1);
    add_matrix(l, i, "ffn_down.weight", 1, d, ff, 2 * residual);
}

static void add_gemma3(struct list *l, int i) {
    const struct shape *s = l->s;
    add_norm(l, i, "post_attention_norm.weight", s->n_embd);
    add_norm(l, i, "post_ffw_norm.weight", s->n_embd);
    add_norm(l, i, "attn_q_norm.weight", s->head_dim);
    add_norm(l, i, "attn_k_norm.weight", s->head_dim);
}

/* The part of Llama 4 that all rows share. */
static void add_shared(struct list *l, int i, float residual) {
    const int d = l->s->n_embd, ff = l->s->n_ff;
    add_matrix(l, i, "ffn_gate_shexp.weight", 1, ff, d, 1);
    add_matrix(l, i, "ffn_up_shexp.weight", 1, ff, d, 1);
    add_matrix(l, i, "ffn_down_shexp.weight", 1, d, ff, 2 * residual);
}

static void add_latent(struct list *l, int i, const struct latent *t, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, q = s->n_head * s->head_dim, n_nope = s->head_dim - t->n_rot,
              shared = t->n_shared * s->n_ff;
    add_norm(l, i, "attn_norm.weight", d);
    add_norm(l, i, "ffn_norm.weight", d);
    if (t->q_rank) {
        add_matrix(l, i, "attn_q_a.weight", 1, t->q_rank, d, 1);
        add_norm(l, i, "attn_q_a_norm.weight", t->q_rank);
    }
    add_matrix(l, i, t->q_rank ? "attn_q_b.weight" : "attn_q.weight", 1, q, t->q_rank ? t->q_rank : d, 1);
    add_matrix(l, i, "attn_kv_a_mqa.weight", 1, t->rank + t->n_rot, d, 1);
    add_norm(l, i, "attn_kv_a_norm.weight", t->rank);
    add(l, i, "attn_k_b.weight", s->n_head, t->rank, n_nope, 0,
        1 / sqrtf((float)t->rank)); /* keys of the latent */
    add_matrix(l, i, "attn_v_b.weight", s->n_head, t->value, t->rank, 1);
    add_matrix(l, i, "attn_output.weight", 1, d, s->n_head * t->value, residual);
    if (i == 0) {
        add_matrix(l, i, "ffn_gate.weight", 1, t->n_ff, d, 1);
        add_matrix(l, i, "ffn_up.weight", 1, t->n_ff, d, 1);
        add_matrix(l, i, "ffn_down.weight", 1, d, t->n_ff, 2 * residual);
        return;
    }
    add_matrix(l, i, "ffn_gate_inp.weight", 1, s->n_expert, d, 1);
    if (t->sigmoid) add(l, i, "exp_probs_b.bias", 1, 1, s->n_expert, 0, 0.1f);
    add_matrix(l, i, "ffn_gate_exps.weight", s->n_expert, s->n_ff, d, 1);
    add_matrix(l, i, "ffn_up_exps.weight", s->n_expert, s->n_ff, d, 1);
    add_matrix(l, i, "ffn_down_exps.weight", s->n_expert, d, s->n_ff, 2 * residual);
    add_matrix(l, i, "ffn_gate_shexp.weight", 1, shared, d, 1);
    add_matrix(l, i, "ffn_up_shexp.weight", 1, shared, d, 1);
    add_matrix(l, i, "ffn_down_shexp.weight", 1, d, shared, 2 * residual);
}

/* What mixes positions in a layer. */
static void add_delta_mixer(struct list *l, int i, const struct delta *t, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, inner = t->n_value * t->dim, channels = 2 * t->n_key * t->dim + inner;
    if ((i + 1) % DELTA_EACH == 0 || i >= s->n_layer) { /* one that drafts has attention */
        const int q = s->n_head * s->head_dim, kv = s->n_kv_head * s->head_dim;
        add_matrix(l, i, "attn_q.weight", 1, 2 * q, d, 1);
        add_matrix(l, i, "attn_k.weight", 1, kv, d, 1);
        add_matrix(l, i, "attn_v.weight", 1, kv, d, 1);
        add_matrix(l, i, "attn_output.weight", 1, d, q, 2 * residual);
        add_norm(l, i, "attn_q_norm.weight", s->head_dim);
        add_norm(l, i, "attn_k_norm.weight", s->head_dim);
        return;
    }
    add_matrix(l, i, "attn_qkv.weight", 1, channels, d, 1);
    add_matrix(l, i, "attn_gate.weight", 1, inner, d, 1);
    add_matrix(l, i, "ssm_beta.weight", 1, t->n_value, d, 1);
    add_matrix(l, i, "ssm_alpha.weight", 1, t->n_value, d, 1);
    add(l, i, "ssm_conv1d.weight", 1, channels, DELTA_TAPS, 0, 0.5f);
    add(l, i, "ssm_dt.bias", 1, 1, t->n_value, -3, 0.5f);
    add(l, i, "ssm_a", 1, 1, t->n_value, -1, 0.1f);
    add_norm(l, i, "ssm_norm.weight", t->dim);
    add_matrix(l, i, "ssm_out.weight", 1, d, inner, 2 * residual);
}

static void add_delta(struct list *l, int i, const struct delta *t, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, experts = s->n_expert ? s->n_expert : 1;
    add_norm(l, i, "attn_norm.weight", d);
    add_norm(l, i, "post_attention_norm.weight", d);
    add_delta_mixer(l, i, t, residual);
    if (s->n_expert) add_matrix(l, i, "ffn_gate_inp.weight", 1, s->n_expert, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_gate_exps.weight" : "ffn_gate.weight", experts, s->n_ff, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_up_exps.weight" : "ffn_up.weight", experts, s->n_ff, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_down_exps.weight" : "ffn_down.weight", experts, d, s->n_ff,
               2 * residual);
    if (!s->n_expert) return;
    add_matrix(l, i, "ffn_gate_shexp.weight", 1, t->n_shared, d, 1);
    add_matrix(l, i, "ffn_up_shexp.weight", 1, t->n_shared, d, 1);
    add_matrix(l, i, "ffn_down_shexp.weight", 1, d, t->n_shared, 2 * residual);
    add(l, i, "ffn_gate_inp_shexp.weight", 1, 1, d, 0, 1 / sqrtf((float)d));
}

#include "tools/file/synth_hybrid.h"

static void add_layer(struct list *l, int i) {
    const struct shape *s = l->s;
    if (delta_of(s)) {
        add_delta(l, i, delta_of(s), 1.0f / sqrtf(2.0f * (float)s->n_layer));
        return;
    }
    if (latent_of(s)) {
        add_latent(l, i, latent_of(s), 1.0f / sqrtf(2.0f * (float)s->n_layer));
        return;
    }
    if (hybrid_of(s)) {
        add_hybrid(l, i, hybrid_of(s), 1.0f / sqrtf(2.0f * (float)s->n_layer));
        return;
    }
    const bool wide = is_wide(s, i);
    const int head_dim = wide ? 2 * s->head_dim : s->head_dim;
    int d = s->n_embd, q = s->n_head * head_dim, kv = (wide ? s->n_kv_head / 4 : s->n_kv_head) * head_dim;
    int experts = s->n_expert ? s->n_expert : 1;
    float residual = 1.0f / sqrtf(2.0f * (float)s->n_layer); /* the stream keeps its size over all layers */
    bool is_qwen2 = strcmp(s->arch, "qwen2") == 0, is_qwen3 = strncmp(s->arch, "qwen3", 5) == 0,
         is_oss = strcmp(s->arch, "gpt-oss") == 0;
    add_norm(l, i, "attn_norm.weight", d);
    add_norm(l, i, is_oss ? "post_attention_norm.weight" : "ffn_norm.weight", d);
    add_matrix(l, i, "attn_q.weight", 1, q, d, 1);
    add_matrix(l, i, "attn_k.weight", 1, kv, d, 1);
    if (!wide) add_matrix(l, i, "attn_v.weight", 1, kv, d, 1);
    if (is_qwen2 || is_oss) {
        add(l, i, "attn_q.bias", 1, 1, q, 0, 0.1f);
        add(l, i, "attn_k.bias", 1, 1, kv, 0, 0.1f);
        add(l, i, "attn_v.bias", 1, 1, kv, 0, 0.1f);
    }
    add_matrix(l, i, "attn_output.weight", 1, d, q, residual);
    if (is_oss) add_oss(l, i);
    if (is_gemma3(s)) add_gemma3(l, i);
    if (is_gemma4(s)) add_gemma4(l, i, head_dim, residual);
    if (is_llama4(s)) add_shared(l, i, residual);
    if (is_qwen3) {
        add_norm(l, i, "attn_q_norm.weight", s->head_dim);
        add_norm(l, i, "attn_k_norm.weight", s->head_dim);
    }
    if (s->n_expert) add_matrix(l, i, "ffn_gate_inp.weight", 1, s->n_expert, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_gate_exps.weight" : "ffn_gate.weight", experts, s->n_ff, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_up_exps.weight" : "ffn_up.weight", experts, s->n_ff, d, 1);
    add_matrix(l, i, s->n_expert ? "ffn_down_exps.weight" : "ffn_down.weight", experts, d, s->n_ff,
               2 * residual); /* silu(gate) * up is about half as large as its input */
}

#include "tools/file/synth_tower.h"

/* What a layer that drafts has beside its attention and feed-forward part. */
static void add_draft(struct list *l, int i) {
    const int d = l->s->n_embd;
    add_norm(l, i, "nextn.enorm.weight", d);
    add_norm(l, i, "nextn.hnorm.weight", d);
    add_norm(l, i, "nextn.shared_head_norm.weight", d);
    add_matrix(l, i, "nextn.eh_proj.weight", 1, d, 2 * d, 1);
}

static void add_all(struct list *l) {
    const struct shape *s = l->s;
    if (is_tower(s)) {
        add_tower(l);
        return;
    }
    const bool conv = hybrid_of(s) && !hybrid_of(s)->n_head, tied = conv || is_gemma3(s) || is_gemma4(s);
    /* Gemma multiplies embeddings by sqrt(n_embd), and its head is the same matrix, as LFM2's is */
    add(l, -1, "token_embd.weight", 1, s->n_vocab, s->n_embd, 0, tied ? 2 / sqrtf((float)s->n_embd) : 1);
    add_norm(l, -1, conv ? "token_embd_norm.weight" : "output_norm.weight", s->n_embd);
    if (!tied) add_matrix(l, -1, "output.weight", 1, s->n_vocab, s->n_embd, 2);
    for (int i = 0; i < s->n_layer + s->n_draft; i++) add_layer(l, i);
    for (int i = s->n_layer; i < s->n_layer + s->n_draft; i++) add_draft(l, i);
}

/* ---- random bytes ---- */

/* splitmix64; source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators". */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* POOL encoded elements of one type and deviation; a tensor is made of segments of a pool. `places` segments (a prime)
 * are walked with a stride that changes after each round, so that no two rows of a matrix are alike; places do not
 * depend on the type, so the same shape and seed give the same weights in every type. */
enum { POOL = 1 << 19, SEGMENT = 512, N_POOL = 32, BUFFER = 16 << 20 };
struct pool {
    enum quant_type type;
    float mean, deviation;
    unsigned char *bytes;
};
struct maker {
    float *normal, *scaled; /* [POOL] */
    unsigned char *buffer;  /* [BUFFER] */
    int places;             /* 1021; 257 is enough for shapes with small matrices */
    struct pool pool[N_POOL];
    int n_pool;
};

static void fill_normal(float *x, uint64_t seed) {
#pragma omp parallel for
    for (int i = 0; i < POOL; i += 2) { /* Box and Muller */
        uint64_t a = mixed(seed + (uint64_t)i), b = mixed(seed + (uint64_t)i + 1);
        double u = ((double)(a >> 11) + 0.5) * 0x1p-53, v = (double)(b >> 11) * 0x1p-53;
        double radius = sqrt(-2 * log(u)), angle = 6.283185307179586 * v;
        x[i] = (float)(radius * cos(angle));
        x[i + 1] = (float)(radius * sin(angle));
    }
}

static enum infer_status find_pool(struct maker *k, const struct item *it, const struct pool **out) {
    const struct quant_info *q = quant_info(it->type);
    for (int i = 0; i < k->n_pool; i++)
        if (k->pool[i].type == it->type && k->pool[i].mean == it->mean &&
            k->pool[i].deviation == it->deviation) {
            *out = &k->pool[i];
            return INFER_OK;
        }
    if (k->n_pool == N_POOL) infer_bug("more than %d kinds of tensors", N_POOL);
    struct pool *p = &k->pool[k->n_pool];
    *p = (struct pool){it->type, it->mean, it->deviation, NULL};
    TRY(mem_new(&p->bytes, quant_row_bytes(q, POOL), "random blocks"));
    k->n_pool++;
    for (int i = 0; i < POOL; i++) k->scaled[i] = it->mean + it->deviation * k->normal[i];
#pragma omp parallel for
    for (int i = 0; i < k->places * SEGMENT; i += 4096)
        q->encode(p->bytes + quant_row_bytes(q, (size_t)i), k->scaled + i, 4096, NULL);
    *out = p;
    return INFER_OK;
}

/* Where segment i of a tensor stands in the pool, in segments. */
static size_t place(uint64_t seed, uint64_t i, uint64_t places) {
    uint64_t round = mixed(seed + i / places), stride = 1 + (round >> 32) % (places - 1);
    return (size_t)((round % places + i % places * stride) % places);
}

static enum infer_status write_tensor(struct maker *k, struct gguf_writer *w, const struct item *it,
                                      uint64_t seed, const struct synth_options *o, double *done,
                                      double total) {
    const struct quant_info *q = quant_info(it->type);
    const struct pool *p;
    TRY(find_pool(k, it, &p));
    size_t segment = quant_row_bytes(q, SEGMENT), left = quant_row_bytes(q, (size_t)it->n);
    size_t per_buffer = BUFFER / segment;
    for (uint64_t at = 0; left > 0; at += per_buffer) {
        size_t n = left < per_buffer * segment ? left : per_buffer * segment;
        long segments = (long)((n + segment - 1) / segment);
#pragma omp parallel for schedule(static)
        for (long i = 0; i < segments; i++) {
            size_t start = place(seed, at + (uint64_t)i, (uint64_t)k->places) * segment;
            size_t bytes = (size_t)(i + 1) * segment <= n ? segment : n - (size_t)i * segment;
            memcpy(k->buffer + (size_t)i * segment, p->bytes + start, bytes);
        }
        TRY(gguf_writer_data(w, k->buffer, n));
        left -= n;
        *done += (double)n;
        if (o->progress) o->progress(o->user, *done, total);
    }
    return INFER_OK;
}

static enum infer_status write_data(struct list *l, const struct synth_options *o) {
    struct maker *k;
    double done = 0;
    TRY(mem_new(&k, sizeof *k, "generator"));
    enum infer_status s = mem_new(&k->normal, POOL * sizeof *k->normal, "random numbers");
    if (!s) s = mem_new(&k->scaled, POOL * sizeof *k->scaled, "random numbers");
    if (!s) s = mem_new(&k->buffer, BUFFER, "write buffer");
    uint64_t largest = 0;
    for (int i = 0; i < l->n; i++) largest = l->item[i].n > largest ? l->item[i].n : largest;
    k->places = largest > 256 * SEGMENT ? 1021 : 257;
    if (!s) fill_normal(k->normal, mixed(o->seed));
    for (int i = 0; i < l->n && !s; i++)
        s = write_tensor(k, l->w, &l->item[i], mixed(mixed(o->seed) ^ (uint64_t)(i + 1) << 32), o, &done,
                         (double)l->n_data);
    for (int i = 0; i < k->n_pool; i++) mem_free(k->pool[i].bytes);
    mem_free(k->normal);
    mem_free(k->scaled);
    mem_free(k->buffer);
    mem_free(k);
    return s;
}

/* ---- the file ---- */

static enum infer_status write_file(struct list *l, const struct synth_options *o) {
    if (is_tower(l->s)) {
        TRY(put_tower(l->w, l->s, l->mix));
    } else {
        TRY(put_config(l->w, l->s, l->mix));
        TRY(put_vocabulary(l->w, l->s->n_vocab));
    }
    l->size = 3 + 24 * (l->s->n_layer + l->s->n_draft);
    TRY(mem_new(&l->item, (size_t)l->size * sizeof *l->item, "list of tensors"));
    add_all(l);
    TRY(gguf_writer_begin(l->w));
    l->report->bytes = gguf_writer_bytes(l->w);
    return write_data(l, o);
}

enum infer_status synth_write(const struct synth_options *o, struct synth_report *report) {
    struct shape s;
    char names[512];
    memset(report, 0, sizeof *report);
    TRY(find_shape(o, &s));
    if (o->layers > s.n_layer)
        return err_set(INFER_E_INPUT, "shape %s has %d layers, not %d", s.name, s.n_layer, o->layers);
    if (o->layers) s.n_layer = o->layers;
    if (o->draft && !delta_of(&s))
        return err_set(INFER_E_UNSUPPORTED, "shape %s has no layer that drafts (--draft-layer)", s.name);
    s.n_draft = o->draft;
    if (o->vocab) s.n_vocab = o->vocab;
    if (o->experts && s.n_expert) s.n_expert = o->experts;
    const struct mix *m = o->type ? mix_find(o->type, true) : NULL;
    if (!m)
        return err_set(INFER_E_INPUT, "no type '%s'; there are: %s", o->type ? o->type : "",
                       mix_names(names, sizeof names));
    if (strcmp(o->type, "keep") == 0) return err_set(INFER_E_INPUT, "synth has no type to keep");
    if (strcmp(o->type, "nf4") == 0) /* its tensors are not rows of blocks in a file */
        return err_set(INFER_E_UNSUPPORTED,
                       "synth writes no nf4; quantize makes it of a file that synth wrote");
    struct list l = {.s = &s, .mix = m, .report = report};
    l.model =
        (struct mix_model){.n_layer = s.n_layer, .n_gqa = s.n_head / s.n_kv_head, .n_expert = s.n_expert};
    TRY(gguf_writer_open(&l.w, o->path));
    enum infer_status status = write_file(&l, o);
    mem_free(l.item);
    if (status) {
        gguf_writer_abort(l.w);
        return status;
    }
    return gguf_writer_close(l.w);
}

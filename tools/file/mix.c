#include "tools/file/mix.h"
#include <stdio.h>
#include <string.h>

enum rule {
    PURE,
    HEAD,
    Q2,
    Q2_S,
    Q3_S,
    Q3_M,
    Q3_L,
    Q4_S,
    Q4_M,
    Q5_S,
    Q5_M,
    NL,
    EXPERTS,
    LOW,
    MID,
    XXS3,
    S3,
    TERNARY,
    KEEP
};

struct mix {
    const char *name; /* NULL: the element type's own */
    enum quant_type base;
    enum rule rule;
    enum quant_type more; /* what the rule takes where more bits tell */
    uint32_t file_type;   /* llama.cpp's number for general.file_type */
};

static const struct mix mixes[] = {
#define MIX(name, base, rule, more, file_type) {name, QUANT_##base, rule, QUANT_##more, file_type},
#include "tools/mixes.def"
};
enum { N_MIX = sizeof mixes / sizeof *mixes };

/* The same names when they mean one type everywhere. */
static const struct mix pure[QUANT_COUNT] = {
#define QUANT(id, gguf, label, elems, bytes) {label, QUANT_##id, PURE, QUANT_##id, 0},
#include "quant/quant.def"
};

static const struct mix *find(const char *name) {
    for (int i = 0; i < N_MIX; i++)
        if (strcmp(mixes[i].name, name) == 0) return &mixes[i];
    return NULL;
}

const struct mix *mix_find(const char *name, bool want_pure) {
    const struct quant_info *q = want_pure ? quant_by_name(name) : NULL;
    return q && (q->gguf >= 0 || q->type == QUANT_NF4) ? &pure[q->type] : find(name);
}

const char *mix_names(char *buf, size_t n) {
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < N_MIX && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? " " : "", mixes[i].name);
    return buf;
}

bool mix_keeps(const struct mix *m) { return m->rule == KEEP; }

uint32_t mix_file_type(const struct mix *m) { return find(m->name)->file_type; }

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

bool mix_is_matrix(const char *name, int n_dim) {
    return n_dim >= 2 && ends_with(name, ".weight") && !ends_with(name, "_norm.weight") &&
           strcmp(name, "token_types.weight") != 0 && strcmp(name, "position_embd.weight") != 0 &&
           strncmp(name, "v.patch_embd", 12) != 0 && strncmp(name, "v.position_embd", 15) != 0 &&
           !strstr(name, "ffn_gate_inp") && !strstr(name, "ffn_gate_tid2eid") &&
           !strstr(name, "ssm_conv1d") && !strstr(name, "shortconv.conv");
}

/* The layer number of "blk.N.", 0 when there is none. */
static int layer_of(const char *name) {
    int layer = 0;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : 0;
}

/* The first and last eighth of the layers, and every third between. */
static bool more_bits(int layer, int n) {
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

bool mix_is_value(const char *name) {
    return strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight") ||
           strstr(name, "attn_kv_b.weight");
}

static enum quant_type value_type(const struct mix *m, const struct mix_model *model, int layer) {
    const int n = model->n_value ? model->n_value : model->n_layer;
    if (model->n_value) layer = model->i_value;
    enum quant_type t = m->base;
    const bool shared = model->n_gqa >= 4;
    switch (m->rule) {
    case Q2:
        t = shared ? QUANT_Q4_K : m->more;
        break;
    case LOW:
    case MID:
        t = shared || model->n_expert >= 4 ? QUANT_Q4_K : m->more;
        break;
    case Q2_S:
    case NL:
    case S3:
        t = shared ? m->more : t;
        break;
    case Q3_M:
        t = layer < 2 ? QUANT_Q5_K : m->more;
        break;
    case Q3_L:
        t = m->more;
        break;
    case Q4_S:
        t = layer < 4 ? m->more : t;
        break;
    case Q4_M:
    case Q5_M:
        t = more_bits(layer, n) ? m->more : t;
        break;
    case XXS3:
        t = shared ? QUANT_Q4_K : model->importance ? t : m->more;
        break;
    default:
        break;
    }
    if (model->extra_v && (t == QUANT_Q3_K || t == QUANT_Q4_K)) t = QUANT_Q5_K;
    return model->n_expert == 8 ? QUANT_Q8_0 : t;
}

static enum quant_type down_type(const struct mix *m, const struct mix_model *model, int layer) {
    bool early = layer < model->n_layer / 8;
    if (early && model->importance && m->rule == HEAD && m->base == QUANT_Q4_0) return QUANT_Q4_1;
    if (early && model->importance && m->rule == HEAD && m->base == QUANT_Q5_0) return QUANT_Q5_1;
    switch (m->rule) {
    case Q2:
    case Q3_L:
        return m->more;
    case Q2_S:
    case Q4_S:
    case LOW:
    case MID:
        return early ? m->more : m->base;
    case Q3_M:
        return layer < model->n_layer / 16 ? QUANT_Q5_K : m->more;
    case NL:
        return early && !model->importance ? m->more : m->base;
    case XXS3:
        return model->importance ? m->base : early ? QUANT_Q4_K : QUANT_Q3_K;
    case Q4_M:
    case Q5_M:
        return more_bits(layer, model->n_layer) ? m->more : m->base;
    default:
        return m->base;
    }
}

static enum quant_type out_type(const struct mix *m, const struct mix_model *model) {
    const enum rule r = m->rule;
    const bool small = r == Q2 || r == Q3_S || r == Q3_M || r == Q4_S || r == Q4_M || r == NL,
               few = r == LOW || r == MID || r == XXS3;
    if (model->n_expert == 8) return small || few ? QUANT_Q5_K : m->base;
    if (r == LOW) return m->base == QUANT_IQ1_S || m->base == QUANT_IQ1_M ? QUANT_IQ2_XXS : m->base;
    return few || r == Q2 || r == Q3_M || r == Q3_L ? m->more : m->base;
}

static enum quant_type by_rule(const struct mix *m, const struct mix_model *model, const char *name,
                               int64_t cols) {
    if (m->rule == PURE || m->rule == KEEP) return m->base;
    if (m->rule == EXPERTS) return strstr(name, "_exps.") ? m->base : m->more;
    int layer = layer_of(name);
    const bool low = m->rule == LOW || m->rule == MID || m->rule == XXS3;
    if (strcmp(name, "token_embd.weight") == 0 && !model->tied)
        return low || m->rule == TERNARY ? m->more : m->base;
    if (strcmp(name, "output.weight") == 0 || (model->tied && strcmp(name, "token_embd.weight") == 0))
        return cols % (int64_t)quant_info(m->base)->elems ? QUANT_Q8_0 : low ? QUANT_Q5_K : QUANT_Q6_K;
    if (strstr(name, "attn_v.weight")) return value_type(m, model, layer);
    if (strstr(name, "attn_k.weight"))
        return model->n_expert == 8 ? m->rule == LOW || m->rule == MID ? QUANT_Q4_K : QUANT_Q8_0
               : m->rule == XXS3    ? QUANT_IQ2_S
                                    : m->base;
    if (strstr(name, "attn_q.weight")) return m->rule == XXS3 ? QUANT_IQ2_S : m->base;
    if (strstr(name, "ffn_down")) return down_type(m, model, layer);
    if (strstr(name, "attn_output.weight")) return out_type(m, model);
    if (strstr(name, "attn_qkv.weight"))
        return m->rule == Q3_M || m->rule == Q3_L || m->rule == Q4_M || m->rule == Q5_M
                   ? m->base == QUANT_Q3_K   ? QUANT_Q4_K
                     : m->base == QUANT_Q4_K ? QUANT_Q5_K
                                             : QUANT_Q6_K
                   : m->base;
    return m->base;
}

/* What rows take that are no multiple of t's 256 columns: of these types of 32 the first with more bits. */
static enum quant_type in_small_blocks(enum quant_type t) {
    static const enum quant_type small[] = {QUANT_IQ4_NL, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0};
    const struct quant_info *q = quant_info(t);
    for (size_t i = 0; q->elems == 256 && i < sizeof small / sizeof *small; i++)
        if (quant_row_bytes(quant_info(small[i]), 256) > q->bytes) return small[i];
    return t;
}

enum quant_type mix_type(const struct mix *m, const struct mix_model *model, const char *name, int64_t cols,
                         enum quant_type *wanted) {
    enum quant_type t = *wanted = by_rule(m, model, name, cols);
    if (cols % (int64_t)quant_info(t)->elems) t = in_small_blocks(t);
    return cols % (int64_t)quant_info(t)->elems == 0 ? t : QUANT_F16;
}

const char *mix_fallback_line(char *buf, size_t n, const int (*count)[QUANT_COUNT], int n_matrix) {
    int all = 0;
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < QUANT_COUNT * QUANT_COUNT; i++) all += count[i / QUANT_COUNT][i % QUANT_COUNT];
    if (all == 0) return buf;
    used = (size_t)snprintf(buf, n, "%d of %d matrices have rows that are no multiple of the block:", all,
                            n_matrix);
    for (int i = 0; i < QUANT_COUNT * QUANT_COUNT && used < n; i++) {
        enum quant_type from = (enum quant_type)(i / QUANT_COUNT), to = (enum quant_type)(i % QUANT_COUNT);
        if (count[from][to])
            used += (size_t)snprintf(buf + used, n - used, " %d %s as %s,", count[from][to],
                                     quant_info(from)->name, quant_info(to)->name);
    }
    if (used < n) buf[used - 1] = 0; /* the last comma */
    return buf;
}

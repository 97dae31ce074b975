/* Names and shapes of towers' tensors. sources: HF modeling_* of each; llama.cpp's clip for GGUF's names. */
#include "files/hf/hf_tower.h"
#include "base/waves.h"
#include "files/hf/hf_tower_kind.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* In front of the number of a block. */
static const char *const blocks[] = {"visual.blocks.",
                                     "vision_tower.encoder.layers.",
                                     "vision_tower.encoder.layer.",
                                     "vision_tower.vision_model.encoder.layers.",
                                     "vision_tower.transformer.layers.",
                                     "vision_model.encoder.layers.",
                                     "vision_model.model.layers.",
                                     "vpm.encoder.layers."};
/* Of a block, in all families; a family's own table comes first. */
static const struct tower_name part[] = {{"attn.qkv.", "attn_qkv.", TOWER_SAME},
                                         {"attn.proj.", "attn_out.", TOWER_SAME},
                                         {"attn.q_norm.", "attn_q_norm.", TOWER_SAME},
                                         {"attn.k_norm.", "attn_k_norm.", TOWER_SAME},
                                         {"self_attn.q_proj.", "attn_q.", TOWER_QUERY},
                                         {"self_attn.k_proj.", "attn_k.", TOWER_QUERY},
                                         {"self_attn.v_proj.", "attn_v.", TOWER_SAME},
                                         {"self_attn.out_proj.", "attn_out.", TOWER_SAME},
                                         {"self_attn.o_proj.", "attn_out.", TOWER_SAME},
                                         {"self_attn.q_norm.", "attn_q_norm.", TOWER_SAME},
                                         {"self_attn.k_norm.", "attn_k_norm.", TOWER_SAME},
                                         {"attention.q_proj.", "attn_q.", TOWER_QUERY},
                                         {"attention.k_proj.", "attn_k.", TOWER_QUERY},
                                         {"attention.v_proj.", "attn_v.", TOWER_SAME},
                                         {"attention.o_proj.", "attn_out.", TOWER_SAME},
                                         {"layer_norm1.", "ln1.", TOWER_SAME},
                                         {"layer_norm2.", "ln2.", TOWER_SAME},
                                         {"norm1.", "ln1.", TOWER_SAME},
                                         {"norm2.", "ln2.", TOWER_SAME},
                                         {"attention_norm.", "ln1.", TOWER_SAME},
                                         {"ffn_norm.", "ln2.", TOWER_SAME},
                                         {"mlp.fc1.", "ffn_up.", TOWER_SAME},
                                         {"mlp.fc2.", "ffn_down.", TOWER_SAME},
                                         {"mlp.linear_fc1.", "ffn_up.", TOWER_SAME},
                                         {"mlp.linear_fc2.", "ffn_down.", TOWER_SAME},
                                         {"mlp.gate_proj.", "ffn_gate.", TOWER_SAME},
                                         {"mlp.up_proj.", "ffn_up.", TOWER_SAME},
                                         {"mlp.down_proj.", "ffn_down.", TOWER_SAME},
                                         {"feed_forward.gate_proj.", "ffn_gate.", TOWER_SAME},
                                         {"feed_forward.up_proj.", "ffn_up.", TOWER_SAME},
                                         {"feed_forward.down_proj.", "ffn_down.", TOWER_SAME},
                                         {0}};

/* Only the parts of a text model or of another sense begin so, behind "model.". */
static bool is_of_tower(const char *name) {
    static const char *const begins[] = {"vision_tower.", "multi_modal_projector.",
                                         "visual.",       "vision_model.",
                                         "embed_vision.", "vision_embedder.",
                                         "connector.",    "merger.",
                                         "mlp1.",         "vpm.",
                                         "resampler."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

static const struct tower_name *row_of(const struct tower_name *table, const char *name, const char **rest) {
    for (const struct tower_name *row = table; row && row->hf; row++) {
        const size_t n = strlen(row->hf);
        const bool open = row->hf[n - 1] == '.';
        if (open ? strncmp(name, row->hf, n) != 0 : strcmp(name, row->hf) != 0) continue;
        *rest = name + n;
        return row;
    }
    return NULL;
}

/* The number behind one of the beginnings of blocks; -1: none. */
static int block_of(const char *name, const char **rest) {
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const size_t n = strlen(blocks[i]);
        int il, used = 0;
        if (strncmp(name, blocks[i], n) != 0) continue;
        if (sscanf(name + n, "%4d.%n", &il, &used) == 1 && used && il >= 0) {
            *rest = name + n + used;
            return il;
        }
    }
    return -1;
}

/* The layer behind which merger i of the deepstack reads; "visual.deepstack_merger_list.1.norm.weight" */
static bool deepstack_name(const struct hf_tower *h, const char *name, char *out, size_t n) {
    static const struct tower_name parts[] = {{"norm.", "norm.", TOWER_SAME},
                                              {"linear_fc1.", "fc1.", TOWER_SAME},
                                              {"linear_fc2.", "fc2.", TOWER_SAME},
                                              {0}};
    const char *rest;
    int i, used = 0;
    if (sscanf(name, "visual.deepstack_merger_list.%2d.%n", &i, &used) != 1 || !used || i < 0 ||
        i >= h->n_deepstack)
        return false;
    const struct tower_name *row = row_of(parts, name + used, &rest);
    if (row) snprintf(out, n, "v.deepstack.%d.%s%s", h->deepstack[i], row->gguf, rest);
    return row != NULL;
}

/* Bounds stand beside a product's matrix, which is one level deeper. */
static const char *without_linear(const char *rest) {
    return strncmp(rest, "linear.", 7) == 0 ? rest + 7 : rest;
}

/* GGUF's name, and what is done to the tensor. false: it has none */
static bool name_of(const struct hf_tower *h, const char *name, char *out, size_t n, enum tower_op *op) {
    const char *rest = "";
    *op = TOWER_SAME;
    if (deepstack_name(h, name, out, n)) return true;
    const int il = block_of(name, &name);
    const struct tower_name *row = row_of(il < 0 ? h->kind->whole : h->kind->layer, name, &rest);
    if (!row && il >= 0) row = row_of(part, name, &rest);
    if (!row) return false;
    *op = row->op;
    if (il < 0)
        snprintf(out, n, "%s%s", row->gguf, without_linear(rest));
    else
        snprintf(out, n, "v.blk.%d.%s%s", il, row->gguf, without_linear(rest));
    return true;
}

/* ---- changes ---- */

static size_t elements(const struct tensor *t) {
    return t->bytes / quant_info(t->type)->bytes * quant_info(t->type)->elems;
}
static enum infer_status misfit(const struct hf_tower *h, const struct tensor *t) {
    return err_set(INFER_E_INPUT, "%s: tensor %.100s does not fit the sizes of config.json", h->path,
                   t->name);
}
static enum infer_status no_memory(const struct hf_tower *h, const struct tensor *t) {
    return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", h->path, t->name);
}

/* A copy of the same type where element i is element from(i) of t. */
typedef size_t order_fn(const struct hf_tower *h, const struct tensor *t, size_t i);
static enum infer_status reorder(const struct hf_tower *h, struct tensor *t, order_fn *from) {
    const size_t size = quant_info(t->type)->bytes, n = elements(t);
    if (quant_info(t->type)->elems != 1) return misfit(h, t);
    unsigned char *to = arena_alloc(h->arena, t->bytes);
    if (!to) return no_memory(h, t);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * size, (const unsigned char *)t->data + from(h, t, i) * size, size);
    t->data = to;
    return INFER_OK;
}

/* [..][3][patch][patch] of [..][patch][patch][3]; patches of h->patch pixels */
static size_t by_channel(const struct hf_tower *h, const struct tensor *t, size_t i) {
    (void)t;
    const size_t area = (size_t)h->patch * (size_t)h->patch, in = i % (3 * area), c = in / area;
    return i - in + in % area * 3 + c;
}
/* Rows of q and k so that neighbours turn together: row 2 j + s of a head is row j + s * half. */
static size_t by_neighbours(const struct hf_tower *h, const struct tensor *t, size_t i) {
    (void)t;
    const size_t k = (size_t)h->n_embd, dim = k / (size_t)h->n_head, row = i / k, in = row % dim;
    return (row - in + in / 2 + in % 2 * (dim / 2)) * k + i % k;
}
/* [2][n][n_embd] of [n][2][n_embd] */
static size_t by_plane(const struct hf_tower *h, const struct tensor *t, size_t i) {
    const size_t d = (size_t)h->n_embd, row = i / d, planes = (size_t)t->shape[1];
    return (row % planes * 2 + row / planes) * d + i % d;
}

/* [n][n] of its columns */
static size_t by_column(const struct hf_tower *h, const struct tensor *t, size_t i) {
    const size_t n = (size_t)t->shape[3];
    (void)h;
    return i % n * n + i / n;
}

/* Both kernels of two frames: [n_embd][3][2][patch][patch]. */
static enum infer_status two_frames(const struct hf_tower *h, const struct tensor *from,
                                    struct tensor out[2]) {
    const size_t area = (size_t)h->patch * (size_t)h->patch, size = quant_info(from->type)->bytes,
                 n = (size_t)h->n_embd * 3;
    if (quant_info(from->type)->elems != 1 || from->bytes != 2 * n * area * size) return misfit(h, from);
    for (int k = 0; k < 2; k++) {
        unsigned char *to = arena_alloc(h->arena, n * area * size);
        if (!to) return no_memory(h, from);
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * area * size,
                   (const unsigned char *)from->data + (2 * i + (size_t)k) * area * size, area * size);
        out[k] = *from;
        out[k].data = to, out[k].bytes = n * area * size, out[k].n_dim = 4;
        out[k].shape[0] = h->n_embd, out[k].shape[1] = 3, out[k].shape[2] = out[k].shape[3] = h->patch;
    }
    return INFER_OK;
}

/* A third of the rows each. */
static enum infer_status three_parts(const struct hf_tower *h, const struct tensor *from,
                                     struct tensor out[3]) {
    const size_t n = elements(from), part = from->bytes / 3;
    if (n % 3 || from->bytes % 3 || from->shape[from->n_dim == 1 ? 3 : 2] % 3) return misfit(h, from);
    for (size_t i = 0; i < 3; i++) {
        out[i] = *from;
        out[i].data = (const unsigned char *)from->data + i * part;
        out[i].bytes = part;
        out[i].shape[from->n_dim == 1 ? 3 : 2] /= 3;
    }
    return INFER_OK;
}

static enum infer_status one_more(const struct hf_tower *h, struct tensor *t) {
    const size_t n = elements(t);
    float *to = arena_alloc(h->arena, n * sizeof *to);
    if (!to) return no_memory(h, t);
    quant_info(t->type)->decode(to, t->data, n);
    for (size_t i = 0; i < n; i++) to[i] += 1;
    t->data = to, t->type = QUANT_F32, t->bytes = n * sizeof *to;
    return INFER_OK;
}

static enum infer_status change(const struct hf_tower *h, enum tower_op op, struct tensor *t) {
    const size_t n = elements(t), area = (size_t)h->patch * (size_t)h->patch;
    switch (op) {
    case TOWER_PLUS_ONE:
        return one_more(h, t);
    case TOWER_PIXELS: /* [n_embd][patch * patch * 3], or one row of them */
        if (n % (3 * area)) return misfit(h, t);
        TRY(reorder(h, t, by_channel));
        if (t->n_dim == 2 && n == (size_t)h->n_embd * 3 * area) {
            t->n_dim = 4;
            t->shape[0] = h->n_embd, t->shape[1] = 3, t->shape[2] = t->shape[3] = h->patch;
        }
        return INFER_OK;
    case TOWER_QUERY:
        if (!h->for_gguf || !h->kind->neighbours) return INFER_OK;
        if (n != (size_t)h->n_embd * (size_t)h->n_embd || h->n_embd % (2 * h->n_head)) return misfit(h, t);
        return reorder(h, t, by_neighbours);
    case TOWER_TWO_TABLES:
        if (t->n_dim != 3 || t->shape[2] != 2 || t->shape[3] != h->n_embd) return misfit(h, t);
        TRY(reorder(h, t, by_plane));
        t->shape[2] = t->shape[1], t->shape[1] = 2;
        return INFER_OK;
    case TOWER_TURNED:
        if (t->n_dim != 2 || t->shape[2] != t->shape[3]) return misfit(h, t);
        return reorder(h, t, by_column);
    default:
        return INFER_OK;
    }
}

/* The embedding of the text model that stands behind a line of rows. */
static enum infer_status break_row(const struct hf_tower *h, const struct tensor *from, struct tensor *out,
                                   int *n_out) {
    if (from->n_dim != 2 || quant_info(from->type)->elems != 1 || h->break_id >= from->shape[2])
        return misfit(h, from);
    const size_t row = from->bytes / (size_t)from->shape[2];
    *out = *from;
    out->name = "v.token_embd.img_break";
    out->data = (const unsigned char *)from->data + (size_t)h->break_id * row, out->bytes = row;
    out->n_dim = 1, out->shape[2] = 1;
    *n_out = 1;
    return INFER_OK;
}

/* Places of keys, which llama.cpp loads and computes anew: of width numbers each, half of them tell the column, half the line. source: its
 * converter of MiniCPM-V */
static enum infer_status places(const struct hf_tower *h, const struct tensor *from, struct tensor *out) {
    enum { SIDE = 70 };
    const int width = (int)from->shape[3], half = width / 2;
    const size_t bytes = (size_t)SIDE * SIDE * (size_t)width * sizeof(float);
    if (width % 4) return misfit(h, from);
    float *to = arena_alloc(h->arena, bytes);
    if (!to) return no_memory(h, from);
    for (int i = 0; i < SIDE * SIDE; i++) {
        put_waves(i % SIDE, half, to + (size_t)i * (size_t)width);
        put_waves(i / SIDE, half, to + (size_t)i * (size_t)width + half);
    }
    *out = *from;
    out->name = "resampler.pos_embed_k";
    out->type = QUANT_F32, out->data = to, out->bytes = bytes;
    out->shape[2] = SIDE * SIDE;
    return INFER_OK;
}

enum infer_status hf_tower_tensor(const struct hf_tower *h, const struct tensor *from,
                                  struct tensor out[TOWER_PARTS], int *n_out) {
    static const char letter[] = "qkv";
    const char *name = from->name;
    char full[128];
    enum tower_op op;
    *n_out = 0;
    if (strncmp(name, "model.", 6) == 0) name += 6;
    if (h->break_id >= 0 &&
        key_names("language_model.embed_tokens.weight|language_model.model.embed_tokens.weight", name,
                  strlen(name)))
        return break_row(h, from, out, n_out);
    if (!is_of_tower(name)) return INFER_OK;
    if (!name_of(h, name, full, sizeof full - 2, &op))
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: tensor %.100s is not part of the tower of a %s as this build knows it", h->path,
                       from->name, h->kind->projector);
    if (op == TOWER_SKIP) return INFER_OK;
    const bool frames = op == TOWER_FRAMES && !from->n_dim, split = op == TOWER_SPLIT;
    if (!from->n_dim && !frames)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: tensor %.100s: a type or shape that this build does not read", h->path,
                       from->name);
    out[0] = *from;
    TRY(frames ? two_frames(h, from, out) : split ? three_parts(h, from, out) : change(h, op, &out[0]));
    *n_out = frames ? 2 : split ? 3 : 1;
    for (int i = 0; i < *n_out; i++) {
        if (split) *(strstr(full, "attn") + 5) = letter[i]; /* attn_q. */
        if (frames && i) strcat(full, ".1");
        out[i].name = arena_strndup(h->arena, full, strlen(full));
        if (!out[i].name) return no_memory(h, from);
    }
    return op == TOWER_TURNED && h->for_gguf ? places(h, from, &out[(*n_out)++]) : INFER_OK;
}

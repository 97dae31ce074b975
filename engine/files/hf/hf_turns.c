#include "files/hf/hf_ops.h"
#include "files/hf/hf_mxfp4.h"
#include "base/host.h"

#include <string.h>

static enum infer_status misfit(const struct tensor *t, const char *path, const char *want) {
    return err_set(INFER_E_INPUT, "%s: tensor %.100s has another size than %s", path, t->name, want);
}

/* *out: n_expert matrices of rows times cols, or one matrix (rows 0: of cols), with room for them. */
static enum infer_status room(struct tensor *out, const struct tensor *from, enum quant_type type,
                              int64_t experts, int64_t rows, int64_t cols, struct arena *arena,
                              const char *path) {
    const struct quant_info *q = quant_info(type);
    size_t n = (size_t)(experts * (rows ? rows : 1));
    *out = *from;
    out->type = type;
    out->n_dim = rows ? 3 : 2;
    out->shape[0] = 1;
    out->shape[1] = rows ? experts : 1;
    out->shape[2] = rows ? rows : experts;
    out->shape[3] = cols;
    if (!size_mul(n, quant_row_bytes(q, (size_t)cols), &out->bytes) ||
        !(out->data = arena_alloc(arena, out->bytes + 1)))
        return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", path, from->name);
    return INFER_OK;
}

enum infer_status hf_halves(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const char *path = m->path;
    if (from->n_dim != 2 || from->shape[2] % 2 || quant_info(from->type)->elems != 1)
        return misfit(from, path, "gate and up of one length");
    for (size_t i = 0; i < 2; i++) {
        out[i] = *from;
        out[i].shape[2] /= 2;
        out[i].bytes /= 2;
        out[i].data = (const char *)from->data + i * out[i].bytes;
        out[i].offset += i * out[i].bytes;
    }
    return INFER_OK;
}

/* from is [experts][rows][cols / 32][16] bytes, scales [experts][rows][cols / 32], none above 2^(252 - 127): with larger ones no product is a
 * number. */
static enum infer_status check_blocks(const struct tensor *from, const struct tensor *scales, int64_t experts,
                                      int64_t rows, int64_t cols, const char *path) {
    const int64_t want[4] = {experts, rows, cols / 32, 16}, *f = from->shape, *s = scales ? scales->shape : f;
    if (!scales)
        return err_set(INFER_E_INPUT, "%s: tensor %.100s has no scales beside it (.._scales for .._blocks)",
                       path, from->name);
    if (cols % 32 || memcmp(f, want, sizeof want) != 0) return misfit(from, path, "config.json says");
    if (s[0] != 1 || s[1] != experts || s[2] != rows || s[3] != cols / 32)
        return misfit(scales, path, "its blocks need");
    for (size_t i = 0; i < scales->bytes; i++)
        if (((const uint8_t *)scales->data)[i] > 252)
            return err_set(INFER_E_INPUT,
                           "%s: tensor %.100s holds the scale 2^%d, which is too large or no number", path,
                           scales->name, ((const uint8_t *)scales->data)[i] - 127);
    return INFER_OK;
}

enum infer_status hf_blocks(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const struct hf_config *s = m->config;
    int64_t n = s->n_expert * s->n_embd;
    TRY(check_blocks(from, m->scales, s->n_expert, s->n_embd, s->n_ff_expert, m->path));
    TRY(room(out, from, QUANT_MXFP4, s->n_expert, s->n_embd, s->n_ff_expert, m->arena, m->path));
    hf_mxfp4_rows((struct block_MXFP4 *)(uintptr_t)out->data, from->data, m->scales->data, (size_t)n,
                  (size_t)s->n_ff_expert / 32, 1, host_threads_pick(0));
    return INFER_OK;
}

static enum infer_status turns_of_blocks(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const struct hf_config *s = m->config;
    size_t row = (size_t)s->n_embd / 32;
    TRY(check_blocks(from, m->scales, s->n_expert, 2 * s->n_ff_expert, s->n_embd, m->path));
    for (size_t i = 0; i < 2; i++) {
        TRY(room(&out[i], from, QUANT_MXFP4, s->n_expert, s->n_ff_expert, s->n_embd, m->arena, m->path));
        hf_mxfp4_rows((struct block_MXFP4 *)(uintptr_t)out[i].data,
                      (const uint8_t *)from->data + 16 * i * row, (const uint8_t *)m->scales->data + i * row,
                      (size_t)(s->n_expert * s->n_ff_expert), row, 2, host_threads_pick(0));
    }
    return INFER_OK;
}

/* out[e][n][k] = from[e][k][first + every * n], of 2 n columns; a bias has one k. */
static void take_columns(const struct tensor *out, const struct tensor *from, size_t first, size_t every,
                         size_t experts, size_t n, size_t k) {
    size_t size = quant_info(from->type)->bytes;
    char *to = (char *)(uintptr_t)out->data;
    for (size_t e = 0; e < experts; e++) {
        const char *matrix = (const char *)from->data + e * k * 2 * n * size;
        for (size_t row = 0; row < n; row++)
            for (size_t col = 0; col < k; col++, to += size)
                memcpy(to, matrix + (col * 2 * n + every * row + first) * size, size);
    }
}

enum infer_status hf_turns(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const struct hf_config *s = m->config;
    bool bias = from->n_dim == 2;
    int64_t rows = bias ? s->n_expert : s->n_embd;
    if (!from->n_dim) return turns_of_blocks(out, m);
    if (quant_info(from->type)->elems != 1 || from->n_dim > 3 || from->shape[2] != rows ||
        from->shape[3] != 2 * s->n_ff_expert || (!bias && from->shape[1] != s->n_expert))
        return misfit(from, m->path, "gate and up of all experts in turns");
    for (size_t i = 0; i < 2; i++) {
        TRY(room(&out[i], from, from->type, s->n_expert, bias ? 0 : s->n_ff_expert,
                 bias ? s->n_ff_expert : s->n_embd, m->arena, m->path));
        take_columns(&out[i], from, i, 2, (size_t)s->n_expert, (size_t)s->n_ff_expert,
                     bias ? 1 : (size_t)s->n_embd);
    }
    return INFER_OK;
}

enum infer_status hf_columns(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const struct hf_config *s = m->config;
    const size_t n = (size_t)s->n_ff_expert;
    if (from->n_dim != 3 || quant_info(from->type)->elems != 1 || from->shape[1] != s->n_expert ||
        from->shape[2] != s->n_embd || from->shape[3] != 2 * s->n_ff_expert)
        return misfit(from, m->path, "columns of gate and up of all experts");
    for (size_t i = 0; i < 2; i++) {
        TRY(room(&out[i], from, from->type, s->n_expert, s->n_ff_expert, s->n_embd, m->arena, m->path));
        take_columns(&out[i], from, i * n, 1, (size_t)s->n_expert, n, (size_t)s->n_embd);
    }
    return INFER_OK;
}

#include "files/hf/hf_ops.h"
#include "base/host.h"

#include <math.h>
#include <string.h>

static enum infer_status misfit(const struct tensor *t, const char *path, const char *want) {
    return err_set(INFER_E_INPUT, "%s: tensor %.100s has shape [%lld][%lld], which is not %s", path, t->name,
                   (long long)t->shape[2], (long long)t->shape[3], want);
}
static enum infer_status no_memory(const struct tensor *t, const char *path) {
    return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", path, t->name);
}

/* w + 1 as float32. */
enum infer_status hf_plus_one(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    struct tensor *t = out;
    if (strstr(from->name, ".bias")) return INFER_OK;
    const struct quant_info *q = quant_info(t->type);
    size_t n = (size_t)t->shape[3], bytes;
    if (t->n_dim != 1 || q->elems != 1) return misfit(t, m->path, "a vector of floats");
    float *copy = size_mul(n, sizeof *copy, &bytes) ? arena_alloc(m->arena, bytes) : NULL;
    if (!copy) return no_memory(t, m->path);
    q->decode(copy, t->data, n);
    for (size_t i = 0; i < n; i++) copy[i] += 1;
    t->data = copy;
    t->bytes = bytes;
    t->type = QUANT_F32;
    return INFER_OK;
}

/* Blocks of F8_128 of one matrix [rows][cols], rows a multiple of 128, the other way round. false: rows have scales of their own */
static bool turn_f8(struct block_F8_128 *to, const struct block_F8_128 *from, int64_t rows, int64_t cols) {
    const int64_t across = cols / 128, down = rows / 128;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < across; c++)
            if (!(from[i * across + c].s == from[i / 128 * 128 * across + c].s)) return false;
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t j = 0; j < cols; j++)
        for (int64_t d = 0; d < down; d++) {
            struct block_F8_128 *b = &to[j * down + d];
            const struct block_F8_128 *f = &from[128 * d * across + j / 128];
            b->s = f->s;
            for (int i = 0; i < 128; i++) b->q[i] = f[i * across].q[j % 128];
        }
    return true;
}
/* In place, which is memory that hf_unpack made. */
static enum infer_status transpose_f8(struct tensor *t, const char *path) {
    struct block_F8_128 *all = (struct block_F8_128 *)(uintptr_t)t->data, *from;
    const int64_t rows = t->shape[2], cols = t->shape[3];
    const size_t n = (size_t)(rows * (cols / 128));
    bool good = true;
    if (rows % 128) return misfit(t, path, "of rows of a multiple of 128");
    TRY(mem_new(&from, n * sizeof *from, "a matrix that is transposed"));
    for (size_t e = 0; good && e < (size_t)t->shape[1]; e++) {
        memcpy(from, all + e * n, n * sizeof *from);
        good = turn_f8(all + e * n, from, rows, cols);
    }
    mem_free(from);
    t->shape[2] = cols;
    t->shape[3] = rows;
    return good ? INFER_OK : misfit(t, path, "of scales of blocks");
}

enum infer_status hf_transpose(struct tensor out[2], const struct hf_make *m) {
    struct tensor *t = out;
    size_t size = quant_info(t->type)->bytes, rows = (size_t)t->shape[2], cols = (size_t)t->shape[3];
    if (t->n_dim == 1) return INFER_OK; /* its bias */
    if (t->type == QUANT_F8_128) return transpose_f8(t, m->path);
    if (t->n_dim > 3 || quant_info(t->type)->elems != 1) return misfit(t, m->path, "a matrix of floats");
    char *copy = arena_alloc(m->arena, t->bytes), *to = copy;
    if (!copy) return no_memory(t, m->path);
    for (int64_t e = 0; e < t->shape[1]; e++, to += rows * cols * size)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                memcpy(to + (j * rows + i) * size,
                       (const char *)t->data + (((size_t)e * rows + i) * cols + j) * size, size);
    t->data = copy;
    t->shape[2] = (int64_t)cols;
    t->shape[3] = (int64_t)rows;
    return INFER_OK;
}

enum infer_status hf_by_expert(struct tensor out[2], const struct hf_make *m) {
    struct tensor *t = out;
    const int64_t n = m->config->n_expert;
    if (t->n_dim != 2 || n < 1 || t->shape[2] % n)
        return misfit(t, m->path, "that of as many rows of each expert");
    t->n_dim = 3;
    t->shape[1] = n;
    t->shape[2] /= n;
    return m->op == HF_EXPERT_TURNED ? hf_transpose(out, m) : INFER_OK;
}

/* Rows, or the elements of a bias. */
enum infer_status hf_qkv_heads(struct tensor out[2], const struct hf_make *m) {
    const struct hf_config *h = m->config;
    struct tensor *t = out;
    int64_t n = t->shape[t->n_dim == 1 ? 3 : 2];
    size_t kv = (size_t)h->n_kv_head, group = kv ? (size_t)h->n_head / kv : 0, dim = (size_t)h->head_dim;
    if (t->n_dim > 2 || quant_info(t->type)->elems != 1 || !n || n != (int64_t)((group + 2) * kv * dim))
        return misfit(t, m->path, "that of queries, keys and values of every head");
    size_t row = t->bytes / (size_t)n;
    char *copy = arena_alloc(m->arena, t->bytes), *to = copy;
    if (!copy) return no_memory(t, m->path);
    for (size_t part = 0; part < 3; part++)
        for (size_t g = 0; g < kv; g++) {
            size_t first = part == 0 ? 0 : group + part - 1, bytes = (part == 0 ? group : 1) * dim * row;
            memcpy(to, (const char *)t->data + (g * (group + 2) + first) * dim * row, bytes);
            to += bytes;
        }
    t->data = copy;
    return INFER_OK;
}

/* [n] as [groups][n / groups]; -exp: as float32. */
enum infer_status hf_reshape(struct tensor out[2], const struct hf_make *m) {
    struct tensor *t = out;
    const struct quant_info *q = quant_info(t->type);
    if (t->n_dim == 4 && m->op == HF_NEG_EXP &&
        t->shape[0] * t->shape[1] * t->shape[3] == 1) { /* [1][1][n][1] */
        t->n_dim = 1;
        t->shape[3] = t->shape[2], t->shape[2] = 1;
    }
    const int64_t n = t->shape[3], groups = m->op == HF_GROUPS ? m->config->n_state_group : n;
    size_t bytes;
    if (t->n_dim != 1 || q->elems != 1 || groups < 1 || n % groups)
        return misfit(t, m->path, "a vector of as many groups");
    t->n_dim = 2;
    t->shape[2] = groups;
    t->shape[3] = n / groups;
    if (m->op != HF_NEG_EXP) return INFER_OK;
    float *copy = size_mul((size_t)n, sizeof *copy, &bytes) ? arena_alloc(m->arena, bytes) : NULL;
    if (!copy) return no_memory(t, m->path);
    q->decode(copy, t->data, (size_t)n);
    for (int64_t i = 0; i < n; i++) copy[i] = -expf(copy[i]);
    t->data = copy;
    t->bytes = bytes;
    t->type = QUANT_F32;
    return INFER_OK;
}

enum infer_status hf_squeeze(struct tensor out[2], const struct hf_make *m) {
    struct tensor *t = out;
    if (t->n_dim != 3 || t->shape[2] != 1) return misfit(t, m->path, "that of a convolution");
    t->n_dim = 2;
    t->shape[2] = t->shape[1];
    t->shape[1] = 1;
    return INFER_OK;
}

enum infer_status hf_stack(struct tensor *t, const struct tensor *row, int index, const struct hf_make *m) {
    size_t bytes, most = (size_t)m->config->n_head;
    if (row->n_dim != 1 || (size_t)index >= most ||
        (t->n_dim && (t->type != row->type || t->shape[3] != row->shape[3])))
        return misfit(row, m->path, "one of a head's vectors");
    if (!t->n_dim) {
        char *copy = size_mul(most, row->bytes, &bytes) ? arena_alloc(m->arena, bytes) : NULL;
        if (!copy) return no_memory(row, m->path);
        memset(copy, 0, bytes);
        *t = *row;
        t->n_dim = 2;
        t->shape[2] = 0;
        t->data = copy;
        t->bytes = 0;
    }
    memcpy((char *)(uintptr_t)t->data + (size_t)index * row->bytes, row->data, row->bytes);
    t->shape[2]++; /* a row that is missing makes the matrix too small, which is said when it is bound */
    t->bytes += row->bytes;
    return INFER_OK;
}

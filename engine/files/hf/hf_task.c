/* Folders of Jina's embeddings of 2024, which have an adapter for each task beside every matrix W:
 *
 *     X.parametrizations.weight.original   W [n][k]
 *     X.parametrizations.weight.0.lora_A   [tasks][r][k]; of embeddings [tasks][n][r]
 *     X.parametrizations.weight.0.lora_B   [tasks][n][r]; of embeddings [tasks][r][k]
 *
 * With a task W + alpha / r B A, of embeddings A B, in float32; without one W alone.
 * sources: xlm-roberta-flash-implementation's modeling_lora; llama.cpp's converter, which writes a file of each task */
#include "files/hf/hf_task.h"
#include "base/stbds.h"
#include "quant/quant.h"

#include <stdio.h>
#include <string.h>

static const char original[] = ".parametrizations.weight.original",
                  half[] = ".parametrizations.weight.0.lora_";

/* The text in front of `part` within a name; 0: it is not there. */
static size_t front(const char *name, const char *part) {
    const char *at = strstr(name, part);
    return at ? (size_t)(at - name) : 0;
}

static enum infer_status misfit(const struct tensor *t, const char *path) {
    return err_set(INFER_E_INPUT,
                   "%s: tensor %.100s has shape [%lld][%lld][%lld], which does not fit its matrix", path,
                   t->name, (long long)t->shape[1], (long long)t->shape[2], (long long)t->shape[3]);
}

static bool is_shape(const struct tensor *t, int64_t n, int64_t rows, int64_t cols) {
    return t->n_dim == 3 && t->shape[1] == n && t->shape[2] == rows && t->shape[3] == cols;
}

/* The numbers of one task as floats: out[rows][cols]. */
static void decode(const struct tensor *t, int task, float *out) {
    const size_t n = (size_t)(t->shape[2] * t->shape[3]), bytes = t->bytes / (size_t)t->shape[1];
    quant_info(t->type)->decode(out, (const char *)t->data + bytes * (size_t)task, n);
}

/* w[rows][cols] += scale left right; left [rows][r], right [r][cols] */
static void add_product(float *w, const float *left, const float *right, int64_t rows, int64_t cols,
                        int64_t r, float scale) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < r; k++) {
            const float times = scale * left[i * r + k];
            for (int64_t j = 0; j < cols; j++) w[i * cols + j] += times * right[k * cols + j];
        }
}

/* *t, a matrix, as floats with what the task adds to it. */
static enum infer_status add_task(struct tensor *t, const struct tensor *a, const struct tensor *b,
                                  const struct hf_tasks *s) {
    const int64_t rows = t->shape[2], cols = t->shape[3];
    const bool linear = is_shape(a, s->n, a->shape[2], cols) && is_shape(b, s->n, rows, a->shape[2]),
               table = is_shape(a, s->n, rows, a->shape[3]) && is_shape(b, s->n, a->shape[3], cols);
    const struct tensor *left = linear ? b : a, *right = linear ? a : b;
    const int64_t r = right->shape[2];
    size_t bytes, n;
    float *l;
    if ((!linear && !table) || r < 1) return misfit(a, s->path);
    if (t->n_dim != 2 || quant_info(t->type)->elems != 1 || quant_info(a->type)->elems != 1 ||
        quant_info(b->type)->elems != 1 || !size_mul((size_t)(rows * cols), sizeof(float), &bytes) ||
        !size_mul((size_t)((rows + cols) * r), sizeof(float), &n))
        return misfit(t, s->path);
    float *w = arena_alloc(s->arena, bytes);
    if (!w) return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", s->path, t->name);
    TRY(mem_new(&l, n, "an adapter"));
    quant_info(t->type)->decode(w, t->data, (size_t)(rows * cols));
    decode(left, s->task, l);
    decode(right, s->task, l + rows * r);
    add_product(w, l, l + rows * r, rows, cols, r, s->alpha / (float)r);
    mem_free(l);
    t->type = QUANT_F32;
    t->data = w;
    t->bytes = bytes;
    return INFER_OK;
}

/* Of the halves by their names; errors: INFER_E_INPUT (it is missing) */
static enum infer_status find_half(const struct tensor **out, const struct strmap *at, const struct tensor *t,
                                   size_t n, char which, const struct hf_tasks *s) {
    char name[320];
    const int len = snprintf(name, sizeof name, "%.*s%s%c", (int)n, t->name, half, which);
    const int64_t i = len < (int)sizeof name ? strmap_get(at, name, (size_t)len) : -1;
    if (i < 0)
        return err_set(INFER_E_INPUT, "%s: tensor %.200s has no %s%c beside it", s->path, t->name, half + 1,
                       which);
    for (int p = 0, before = 0; p < s->n_list; before += (int)s->list[p++].n)
        if (i < before + (int)s->list[p].n) {
            *out = &s->list[p].tensor[i - before];
            return INFER_OK;
        }
    infer_bug("tensor %lld of a folder", (long long)i);
}

static enum infer_status take(struct tensor *t, const struct strmap *at, const struct hf_tasks *s) {
    const size_t n = front(t->name, original);
    const struct tensor *a, *b;
    char name[320];
    if (!n) return INFER_OK;
    if (s->task >= 0) {
        TRY(find_half(&a, at, t, n, 'A', s));
        TRY(find_half(&b, at, t, n, 'B', s));
        TRY(add_task(t, a, b, s));
    }
    const int len = snprintf(name, sizeof name, "%.*s.weight", (int)n, t->name);
    t->name = len < (int)sizeof name ? arena_strndup(s->arena, name, (size_t)len) : NULL;
    return t->name ? INFER_OK : err_set(INFER_E_MEMORY, "%s: out of memory for names", s->path);
}

enum infer_status hf_tasks_take(const struct hf_tasks *s) {
    struct strmap *at;
    int64_t old, n = 0;
    TRY(strmap_new(&at, s->arena));
    for (int p = 0; p < s->n_list; p++)
        for (size_t i = 0; i < s->list[p].n; i++, n++)
            if (front(s->list[p].tensor[i].name, half)) {
                const char *name = s->list[p].tensor[i].name;
                TRY(strmap_put(at, name, strlen(name), n, &old));
            }
    for (int p = 0; p < s->n_list; p++)
        for (size_t i = 0; i < s->list[p].n; i++) TRY(take(&s->list[p].tensor[i], at, s));
    for (int p = 0; p < s->n_list; p++)
        for (size_t i = 0; i < s->list[p].n; i++)
            if (front(s->list[p].tensor[i].name, half)) s->list[p].tensor[i].name = "";
    return INFER_OK;
}

#include "tools/file/merge.h"
#include "base/mem.h"
#include "model/adapter.h"

#include <stdio.h>
#include <string.h>

struct pair {
    const char *name;
    int expert;         /* -1: all of a stack */
    int n, k, r;        /* of each matrix */
    const float *a, *b; /* a[..][r][k], b[..][n][r], times the scale */
};

struct merge {
    struct pair *pair; /* pair[n_pair] */
    size_t n_pair;
    struct arena arena;
};

static float *numbers(struct merge *m, const struct tensor *t) {
    const size_t n = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]);
    float *x = arena_alloc(&m->arena, n * sizeof *x);
    if (x) quant_info(t->type)->decode(x, t->data, n);
    return x;
}

static enum infer_status add_pair(struct merge *m, const struct model *of, const struct adapterfile *f,
                                  const struct adapter_pair *p, float scale) {
    struct pair *to = &m->pair[m->n_pair++];
    char name[96];
    snprintf(name, sizeof name, "%.*sscale", (int)(strlen(p->name) - strlen("weight")), p->name);
    if (tensorfile_find(of->file, name) || (of->tied && strcmp(p->name, "output.weight") == 0))
        return err_set(INFER_E_UNSUPPORTED, "%s: nothing can be added to %s in a file: it is %s", f->path,
                       p->name, of->tied ? "the embedding, too" : "times a number of its own");
    *to = (struct pair){.name = arena_strndup(&m->arena, p->name, strlen(p->name)),
                        .expert = p->expert,
                        .n = (int)p->b->shape[2],
                        .k = (int)p->a->shape[3],
                        .r = (int)p->a->shape[2],
                        .a = numbers(m, p->a)};
    const float *b = numbers(m, p->b);
    const size_t n = (size_t)to->n, r = (size_t)to->r, all = (size_t)p->b->shape[1] * n;
    float *rows = arena_alloc(&m->arena, all * r * sizeof *rows);
    if (!to->name || !to->a || !b || !rows) return err_set(INFER_E_MEMORY, "out of memory for %s", f->path);
    for (size_t i = 0; i < all; i++) {
        const size_t from = i / n * n + (size_t)adapter_row(of, f->folder, false, p->name, (int)(i % n));
        for (size_t j = 0; j < r; j++) rows[i * r + j] = scale * p->scale * b[from * r + j];
    }
    to->b = rows;
    return INFER_OK;
}

/* All that an engine refuses is refused here, too. */
static enum infer_status add_adapter(struct merge *m, const struct model *of,
                                     const struct merge_named *named) {
    struct adapterfile *f;
    struct adapter *check;
    TRY(adapter_open(&check, of, named->path, 0, of->n_layer));
    adapter_close(check);
    TRY(adapterfile_open(&f, named->path, of->arch, of->n_layer));
    enum infer_status s = INFER_OK;
    struct pair *all = arena_alloc(&m->arena, (m->n_pair + f->n_pair) * sizeof *all);
    if (!all) s = err_set(INFER_E_MEMORY, "out of memory for %s", named->path);
    if (f->n_vector)
        s = err_set(INFER_E_UNSUPPORTED, "%s: a control vector is added to no matrix", named->path);
    if (!s && m->n_pair) memcpy(all, m->pair, m->n_pair * sizeof *all);
    if (!s) m->pair = all;
    for (size_t i = 0; !s && i < f->n_pair; i++) s = add_pair(m, of, f, &f->pair[i], named->scale);
    adapterfile_close(f);
    return s;
}

enum infer_status merge_open(struct merge **out, const char *model, const struct tensorfile_options *options,
                             const struct merge_named *adapter, int n) {
    struct model *of;
    struct merge *m = NULL;
    *out = NULL;
    TRY(model_open(&of, model, options));
    enum infer_status s = mem_new(&m, sizeof *m, "adapters");
    for (int i = 0; !s && i < n; i++) s = add_adapter(m, of, &adapter[i]);
    model_close(of);
    if (s)
        merge_close(m);
    else
        *out = m;
    return s;
}

void merge_close(struct merge *m) {
    if (!m) return;
    arena_free(&m->arena);
    mem_free(m);
}

bool merge_has(const struct merge *m, const char *name) {
    for (size_t i = 0; m && i < m->n_pair; i++)
        if (strcmp(m->pair[i].name, name) == 0) return true;
    return false;
}

void merge_add(const struct merge *m, const struct tensor *t, int64_t matrix, size_t first, float *x,
               size_t n) {
    const size_t cols = (size_t)t->shape[3], rows = (size_t)t->shape[2];
    for (size_t i = 0, some; i < n; i += some) {
        const size_t row = (first + i) / cols, col = (first + i) % cols, e = (size_t)matrix + row / rows;
        some = cols - col < n - i ? cols - col : n - i;
        for (const struct pair *p = m->pair; p < m->pair + m->n_pair; p++) {
            if (strcmp(p->name, t->name) || (p->expert >= 0 && (size_t)p->expert != e)) continue;
            const size_t at = p->expert < 0 ? e : 0, r = (size_t)p->r;
            const float *b = p->b + (at * rows + row % rows) * r, *a = p->a + at * r * cols + col;
            for (size_t j = 0; j < r; j++, a += cols)
                for (size_t c = 0; c < some; c++) x[i + c] += b[j] * a[c];
        }
    }
}

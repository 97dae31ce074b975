/* A random adapter in GGUF for the matrices of a model file. */
#include "base/mem.h"
#include "files/gguf_write.h"
#include "model/model.h"
#include "tools/file/synth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What stands behind the sum of squares of B's numbers: what is added is some tenth of the product. */
static const float ADDED = 0.1f;

struct pairs {
    const struct model *m;
    const struct tensor **of; /* of[n]: each once */
    size_t n;
};

/* Matrices of layers that are multiplied as they are: not embeddings and heads, those of a latent's heads, or parts of a stack. */
static bool is_adapted(const struct model *m, const struct weight_group *g, const struct weight *w) {
    const struct tensor *t = tensorfile_find(m->file, w->name);
    return g != &m->input_table && t && !w->part && strncmp(w->name, "blk.", 4) == 0 &&
           !strstr(w->name, "attn_k_b.") && !strstr(w->name, "attn_v_b.") && t->shape[2] > 1;
}
static enum infer_status find_pairs(struct pairs *p) {
    const struct model *m = p->m;
    TRY(mem_new(&p->of, (m->file->n_tensor + 1) * sizeof *p->of, "an adapter"));
    for (int i = 0; i < m->n_group; i++)
        for (int k = 0; k < m->group[i]->n_member; k++) {
            const struct weight *w = &m->group[i]->member[k];
            if (!is_adapted(m, m->group[i], w)) continue;
            const struct tensor *t = tensorfile_find(m->file, w->name);
            size_t at = 0;
            while (at < p->n && p->of[at] != t) at++;
            if (at == p->n) p->of[p->n++] = t;
        }
    if (!p->n) return err_set(INFER_E_INPUT, "%s: no matrix that an adapter is added to", m->file->path);
    return INFER_OK;
}

static void shapes_of(const struct tensor *t, int rank, int64_t a[4], int64_t b[4]) {
    memcpy(a, (const int64_t[]){1, t->shape[1], rank, t->shape[3]}, 4 * sizeof *a);
    memcpy(b, (const int64_t[]){1, t->shape[1], t->shape[2], rank}, 4 * sizeof *b);
}

/* About normal. source: xorshift of Marsaglia; the sum of uniform numbers */
static float number(uint64_t *seed) {
    float sum = 0;
    for (int i = 0; i < 3; i++) {
        *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
        sum += (float)(int32_t)(*seed >> 32) * 0x1p-31f;
    }
    return sum;
}
/* n numbers of a deviation as halves. */
static enum infer_status put_numbers(struct gguf_writer *w, size_t n, float deviation, uint64_t *seed) {
    enum { PIECE = 4096 };
    float x[PIECE];
    uint16_t half[PIECE];
    for (size_t done = 0, m; done < n; done += m) {
        m = n - done < PIECE ? n - done : PIECE;
        for (size_t i = 0; i < m; i++) x[i] = deviation * number(seed);
        quant_info(QUANT_F16)->encode(half, x, m, NULL);
        TRY(gguf_writer_data(w, half, m * sizeof *half));
    }
    return INFER_OK;
}

static enum infer_status put_all(struct gguf_writer *w, const struct pairs *p, int rank, uint64_t seed) {
    int64_t a[4], b[4];
    char name[96];
    gguf_writer_str(w, "general.type", "adapter");
    gguf_writer_str(w, "general.architecture", p->m->arch->name);
    gguf_writer_str(w, "adapter.type", "lora");
    gguf_writer_f32(w, "adapter.lora.alpha", (float)rank);
    for (size_t i = 0; i < p->n; i++) {
        const int n_dim = p->of[i]->shape[1] > 1 ? 3 : 2;
        shapes_of(p->of[i], rank, a, b);
        snprintf(name, sizeof name, "%.80s.lora_a", p->of[i]->name);
        gguf_writer_tensor(w, name, QUANT_F16, n_dim, a);
        snprintf(name, sizeof name, "%.80s.lora_b", p->of[i]->name);
        gguf_writer_tensor(w, name, QUANT_F16, n_dim, b);
    }
    TRY(gguf_writer_begin(w));
    for (size_t i = 0; i < p->n; i++) {
        const struct tensor *t = p->of[i];
        const size_t stack = (size_t)t->shape[1], rows = (size_t)t->shape[2], cols = (size_t)t->shape[3];
        TRY(put_numbers(w, stack * (size_t)rank * cols, 1 / sqrtf((float)cols), &seed));
        TRY(put_numbers(w, stack * (size_t)rank * rows, ADDED / sqrtf((float)rank), &seed));
    }
    return INFER_OK;
}

enum infer_status synth_adapter(const char *model, int rank, uint64_t seed, const char *path,
                                uint64_t *bytes) {
    struct pairs p = {0};
    struct model *m;
    struct gguf_writer *w = NULL;
    TRY(model_open(&m, model, &(struct tensorfile_options){0}));
    p.m = m;
    enum infer_status s = find_pairs(&p);
    if (!s) s = gguf_writer_open(&w, path);
    if (!s) s = put_all(w, &p, rank, seed * UINT64_C(0x9e3779b97f4a7c15) | 1);
    if (!s) {
        *bytes = gguf_writer_bytes(w);
        s = gguf_writer_close(w);
    } else if (w)
        gguf_writer_abort(w);
    mem_free(p.of);
    model_close(m);
    return s;
}

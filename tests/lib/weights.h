/* Models whose weights are more than plain matrices, from random ones that synth wrote: for test_weights and test_cuda. */
#pragma once
#include "tests/lib/test.h"
#include "engine_impl.h"
#include "files/gguf_write.h"
#include "model/model_impl.h"
#include "models/registry.h"
#include "tests/lib/synth_model.h"

/* Tensors that become the rows of one. */
static const struct {
    const char *name, *part[3];
} fused[] = {{"attn_qkv.weight", {"attn_q.weight", "attn_k.weight", "attn_v.weight"}},
             {"attn_qkv.bias", {"attn_q.bias", "attn_k.bias", "attn_v.bias"}},
             {"ffn_up.weight", {"ffn_gate.weight", "ffn_up.weight"}}};

static inline const struct tensor *fused_part(const struct tensorfile *f, int layer, const char *part) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part ? part : "");
    return part ? tensorfile_find(f, name) : NULL;
}
/* The next tensor of the fused file: its parts, one if it stays as it is; 0: t went into one before. */
static inline int fused_parts(const struct tensorfile *f, const struct tensor *t, const struct tensor *out[3],
                              char name[64]) {
    int layer, used = 0;
    snprintf(name, 64, "%s", t->name);
    out[0] = t;
    if (sscanf(t->name, "blk.%d.%n", &layer, &used) != 1) return 1;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        for (int k = 0; k < 3; k++) {
            int n = 0;
            if (!fused[i].part[k] || strcmp(t->name + used, fused[i].part[k]) != 0) continue;
            for (; !k && n < 3 && (out[n] = fused_part(f, layer, fused[i].part[n])); n++)
                ;
            snprintf(name, 64, "blk.%d.%s", layer, fused[i].name);
            return n;
        }
    return 1;
}
static inline void write_fused(const char *from, const char *to) {
    struct tensorfile *f;
    struct gguf_writer *w;
    const struct tensor *part[3];
    char name[64];
    assert_ok(tensorfile_open(&f, from, NULL));
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < f->n_meta; i++) gguf_writer_meta(w, &f->meta[i]);
    for (size_t i = 0; i < f->n_tensor; i++) {
        int n = fused_parts(f, &f->tensor[i], part, name);
        if (!n) continue;
        int64_t shape[4];
        memcpy(shape, part[0]->shape, sizeof shape);
        int dim = part[0]->n_dim == 1 ? 3 : 2; /* biases follow each other, matrices have more rows */
        for (int k = 1; k < n; k++) shape[dim] += part[k]->shape[dim];
        gguf_writer_tensor(w, name, part[0]->type, part[0]->n_dim, shape);
    }
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_tensor; i++) {
        int n = fused_parts(f, &f->tensor[i], part, name);
        for (int k = 0; k < n; k++) assert_ok(gguf_writer_data(w, part[k]->data, part[k]->bytes));
    }
    assert_ok(gguf_writer_close(w));
    tensorfile_close(f);
}

/* infer_model_open by a table that no row of models/ is. */
static inline struct infer_model *open_as(const char *path, const struct arch *arch) {
    struct infer_model *im;
    struct model *m;
    assert_ok(mem_new(&m, sizeof *m, "a model"));
    assert_ok(mem_new(&im, sizeof *im, "a model"));
    im->m = m;
    m->arch = arch;
    assert_ok(tensorfile_open(&m->file, path, NULL));
    assert_ok(tok_open(&m->tok, m->file));
    assert_ok(model_read_hparams(m));
    assert_ok(model_bind_tensors(m));
    return im;
}

/* The architecture with fused tensors instead of single ones. */
static inline struct arch fused_arch(const struct arch *plain) {
    static const enum slot gone[] = {SLOT_ATTN_Q, SLOT_ATTN_K,      SLOT_ATTN_V,      SLOT_FFN_GATE,
                                     SLOT_FFN_UP, SLOT_ATTN_Q_BIAS, SLOT_ATTN_K_BIAS, SLOT_ATTN_V_BIAS};
    struct arch arch = *plain;
    arch.slot[SLOT_ATTN_QKV_BIAS] = arch.slot[SLOT_ATTN_Q_BIAS];
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) arch.slot[gone[i]] = SLOT_ABSENT;
    arch.slot[SLOT_ATTN_QKV] = arch.slot[SLOT_FFN_GATE_UP] = SLOT_MUST;
    return arch;
}

/* Two models with the same weights: as synth writes them, and with q k v and gate up in one tensor each. */
static inline void open_both(const char *arch, const char *shape, const char *type,
                             struct infer_model **plain, struct infer_model **one) {
    char path[SYNTH_PATH], other[64];
    synth_temporary(&(struct synth_options){.arch = arch, .shape = shape, .type = type, .seed = 3}, path);
    snprintf(other, sizeof other, "%s-fused", path);
    write_fused(path, other);
    assert_ok(infer_model_open(plain, path, NULL));
    static struct arch arch_one;
    arch_one = fused_arch((*plain)->m->arch);
    *one = open_as(other, &arch_one);
    unlink(path);
    unlink(other);
}

/* A factor for every matrix, another one each; the head's is a quarter. */
static inline void set_factors(struct infer_model *im) {
    struct model *m = im->m;
    m->embd.factor = 2;
    for (int i = 0; i < m->n_group; i++)
        for (int k = 0; k < m->group[i]->n_member; k++)
            ((struct weight_group *)m->group[i])->member[k].factor =
                m->group[i] == &m->head ? 0.25f : 0.7f + 0.3f * (float)((i + k) % 3);
}

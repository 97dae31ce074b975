/* Matrices of latent attention. */
#include "model/bind.h"
#include "seam/weight.h"

/* The keys of t [n_head][n_nope + n_value][latent], each head's transposed: a copy, in F16 unless the file has floats. */
static enum infer_status transpose_keys(struct model *m, const struct layer *l, const struct tensor *t,
                                        struct weight *k) {
    const struct quant_info *from = quant_info(t->type);
    const enum quant_type type = from->elems == 1 ? t->type : QUANT_F16;
    const size_t nope = (size_t)l->mla.n_nope, rank = (size_t)l->attn.head_dim_v,
                 each = nope + (size_t)l->mla.n_value, row = quant_row_bytes(from, rank),
                 to_row = quant_row_bytes(quant_info(type), nope);
    uint8_t *copy = arena_alloc(&m->arena, (size_t)l->attn.n_head * rank * to_row);
    float *x;
    if (!copy) return err_set(INFER_E_MEMORY, "out of memory for %s", t->name);
    TRY(mem_new(&x, (nope * rank + nope) * sizeof *x, "the keys of a head"));
    *k = bind_weight(t);
    k->type = type, k->n = (int)rank, k->k = (int)nope, k->data = copy;
    k->n_stack = l->attn.n_head, k->stack_bytes = rank * to_row;
    for (size_t h = 0; h < (size_t)l->attn.n_head; h++) {
        for (size_t i = 0; i < nope; i++)
            from->decode(x + i * rank, (const uint8_t *)t->data + (h * each + i) * row, rank);
        for (size_t j = 0; j < rank; j++, copy += to_row) {
            for (size_t i = 0; i < nope; i++) x[nope * rank + i] = x[i * rank + j];
            quant_info(type)->encode(copy, x + nope * rank, nope, NULL);
        }
    }
    mem_free(x);
    return INFER_OK;
}

enum infer_status bind_latent(struct binder *b, int il) {
    static const struct group_slots keys = {.matrix = {SLOT_ATTN_K_B}}, values = {.matrix = {SLOT_ATTN_V_B}};
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const struct tensor *t;
    struct weight k, v;
    char name[80];
    if (!m->arch->attn.latent) return INFER_OK;
    TRY(bind_slot(b, SLOT_ATTN_KV_B, il, &t));
    if (!t || tensorfile_find(m->file, bind_name(m, name, SLOT_ATTN_K_B, il))) { /* some files have both */
        TRY(bind_group(b, &l->mla.k_b, il, &keys));
        return bind_group(b, &l->mla.v_b, il, &values);
    }
    v = bind_weight(t);
    TRY(bind_factor(b, t, &v.factor));
    size_t head = weight_stride(&v) * (size_t)(l->mla.n_nope + l->mla.n_value);
    v.data = (const char *)v.data + weight_stride(&v) * (size_t)l->mla.n_nope;
    v.n = l->mla.n_value, v.n_stack = l->attn.n_head, v.stack_bytes = head;
    TRY(transpose_keys(m, l, t, &k));
    k.factor = v.factor;
    m->prompt_bytes += weight_bytes(&v) + weight_bytes(&k);
    m->token_bytes += weight_bytes(&v) + weight_bytes(&k);
    bind_member(m, &l->mla.k_b, &k, l->attn.n_head);
    bind_member(m, &l->mla.v_b, &v, l->attn.n_head);
    TRY(bind_number(b, &l->mla.k_b));
    return bind_number(b, &l->mla.v_b);
}

// From the links of the decode list (links.h) to a program: which kernels, and whom each hands its result.
#include "cuda/plan/link_type.h"
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

static const decode_code *const codes[] = {
#define LINK(id, name, file) &decode_##name,
#include "cuda/plan/links.def"
};
const struct decode_code *decode_code_of(const decode_link *d) { return codes[d->is.kind]; }

enum { MOST_TAGS = 4095 };
static bool has_kernel(void *user, const struct cuda_link *k, enum link_form in, enum link_form out) {
    decode_maker &m = *(decode_maker *)user;
    const decode_code *c = codes[k->kind];
    const bool has = !c->has || c->has(m, k, in, out);
    m.refused |= c->needed && !has;
    return has;
}
static bool is_matmul(const decode_link *d) { return d->is.matmul >= 0; }

// Links of the list; false where that is no program: nothing to stream, or nobody fetches the step or leaves its tokens.
static bool find_links(decode_maker &m, struct cuda_link *link) {
    const cuda_backend *b = m.b;
    struct decode_program *p = m.p;
    const struct op_list *l = decode_list(b);
    const struct route_case route = cuda_route_case(b);
    const struct link_case c = {l, &b->plan, b->c.store, &route, m.int8, has_kernel, &m};
    int n_matmul = program_links(p, c, link);
    int n_look = 0;
    if (!p->n_link || (m.int8 && m.refused) || link[0].kind != LINK_EMBED ||
        (l->max_out && l->op[l->n_op - 1].kind != OP_SELECT) || l->max_rows > 1024)
        return false;
    for (int i = 0; i < p->n_link; i++) n_matmul += link_types[p->link[i].is.kind]->by_product;
    p->settled = p->n_link;
    for (int i = 0; i < p->n_link; i++) {
        n_look += decode_code_of(&p->link[i])->looks;
        if (n_look == 2 && decode_code_of(&p->link[i])->looks) p->settled = i;
    }
    return n_matmul > 0;
}
static bool build(cuda_backend *b, struct decode_program *p, bool int8, struct cuda_link *link) {
    decode_maker m = {b, p, int8, false, true, -1};
    if (!find_links(m, link)) return false;
    for (int i = p->n_link; i-- > 0;) { // from the end: a gate looks at the kernel behind it
        decode_link *d = &p->link[i];
        const matmul_link *next =
            d->is.product == PRODUCT_GATED && d->is.gives != FORM_ROWS ? &p->link[i + 1].mm : NULL;
        if (is_matmul(d) && !decode_matmul_make(m, d, next)) return false;
    }
    for (int i = 0; i < p->n_link; i++) {
        decode_link *d = &p->link[i];
        if (is_matmul(d)) decode_takes(m, d);
        if (decode_code_of(d)->make) decode_code_of(d)->make(m, d);
    }
    for (int i = 1; i + 1 < p->n_link && i < MOST_TAGS; i++)
        if (decode_code_of(&p->link[i])->hand_over)
            decode_code_of(&p->link[i])->hand_over(b, &p->link[i], 1 + (uint32_t)i);
    if (p->link[1].is.product == PRODUCT_ROWS) p->link[1].mm.job.first = true;
    if (int8) decode_twins(b, p);
    for (int i = 0; int8 && i < p->n_link && i < MOST_TAGS; i++) {
        const decode_link *d = &p->link[i];
        if (is_matmul(d) && !d->mm.twin && !(i + 1 < p->n_link && d[1].mm.twin))
            decode_streamk(b, &p->link[i], i);
    }
    return true;
}

// Whether there are kernels that multiply codes by codes for all matrices.
static bool all_codes(const cuda_backend *b) {
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region && !b->plan.group[g].apart; i++) {
            if (b->plan.group[g].n == 1) continue; // a gate, which no kernel of codes reads
            const enum layout l = b->plan.group[g].region[i].layout;
            if (layout_kind(l) != KIND_CODES) return false;
        }
    return true;
}
// What the scales of each region are multiplied by.
static enum infer_status find_scales(cuda_backend *b, float (*up)[2]) {
    unsigned *most = (unsigned *)(b->work + b->plan.stage), *found = (unsigned *)up;
    const size_t n = (size_t)b->plan.n_group * 2;
    CU(cudaMemsetAsync(most, 0, n * sizeof *most, b->stream));
    const bool batch = b->c.list[ROW_DECODE]->max_rows > 1; // whose experts need them, too
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region && i < 2 && (batch || !b->plan.group[g].apart); i++) {
            const cuda_region *r = &b->plan.group[g].region[i];
            if (r->layout == LAYOUT_F32 || layout_kind(r->layout) == KIND_HALVES) continue;
            CU(scale_range(r->layout, b->weights + r->offset, (size_t)(r->rows / UNIT_ROWS) * (size_t)r->u,
                           most + g * 2 + i, b->stream));
        }
    CU(cudaMemcpyAsync(found, most, n * sizeof *most, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    for (size_t i = 0; i < n; i++) {
        float v, *to = &up[0][0] + i;
        memcpy(&v, found + i, sizeof v);
        *to = v > 0 ? exp2f(floorf(log2f(65504.f / v))) : 1.f;
    }
    return INFER_OK;
}
// What runs op by op, for the log.
static void tell(const cuda_backend *b, const struct decode_program *p) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct op *first = NULL;
    int n = 0;
    for (int i = 0; p && i < p->n_link; i++)
        if (p->link[i].is.kind == LINK_PLAIN && !n++) first = &l->op[p->link[i].is.first];
    if (!p)
        log_line(LOG_NOTE, "cuda: no fused kernel takes this model; decode runs op by op");
    else if (n)
        log_line(LOG_NOTE, "cuda: %d of %d operations of decode run op by op (%s of layer %d first)", n,
                 l->n_op, first->name, first->layer);
}

enum infer_status decode_build(struct decode_program **out, cuda_backend *b) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    struct decode_program *p = NULL;
    struct cuda_link *link;
    bool fits = false;
    *out = NULL;
    if (b->prop.major < 9) return INFER_OK; // bulk copies
    enum infer_status st = program_new(&p, &link, l);
    if (st == INFER_OK)
        st = mem_new(&p->up, (size_t)(b->plan.n_group + 1) * sizeof *p->up, "a decode program");
    if (st == INFER_OK) st = find_scales(b, p->up);
    if (st == INFER_OK &&
        cudaMemsetAsync(b->work + b->plan.post, 0, b->plan.post_bytes, b->stream) != cudaSuccess)
        st = cuda_error(cudaGetLastError(), "cudaMemsetAsync");
    if (st == INFER_OK)
        fits = (l->max_rows == 1 && all_codes(b) && build(b, p, true, link)) || build(b, p, false, link);
    mem_free(link);
    cudaError_t e = cudaSuccess;
    for (const decode_code *c : codes)
        if (c->prepare && e == cudaSuccess) e = c->prepare();
    if (st == INFER_OK && e != cudaSuccess) st = cuda_error(e, "cudaFuncSetAttribute");
    if (st != INFER_OK || !fits) {
        decode_free(p);
        if (st == INFER_OK) tell(b, NULL);
        return st;
    }
    tell(b, p);
    *out = p;
    return INFER_OK;
}

void decode_free(struct decode_program *p) {
    if (p) mem_free(p->up);
    program_free(p);
}

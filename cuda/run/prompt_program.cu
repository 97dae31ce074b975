// The program of prompt rows: links one after the other, in a plain Llama eight kernels a layer (norm; q k v; rotation and cache
// write; attention; output projection with the residual; norm; gate, up and their product; down with the residual).
#include <stdio.h>
#include "cuda/common/mx.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/prompt/ssm_prompt.h"
#include "cuda/run/prompt_profile.h"
#include "cuda/run/prompt_program_impl.h"
#include "cuda/run/behind.h"
#include "cuda/plan/tune.h"
#include "seam/op_list.h"

static const prompt_code *const codes[] = {
#define LINK(id, name, file) &prompt_##name,
#include "cuda/plan/links.def"
};

static int order_of(enum link_form f) {
    return f == FORM_PANEL    ? ORDER_ROWS
           : f == FORM_TF32   ? ORDER_FLOATS
           : f == FORM_HALVES ? ORDER_HALVES
                              : ORDER_CODES;
}
int prompt_matmul_order(enum route_group g, enum layout l) { return order_of(route_prompt_form(g, l)); }
cudaError_t prompt_matmul_launch(const prompt_job &j, enum layout l, enum prompt_epilogue e,
                                 const struct route *r, int n, int sm_count, cudaStream_t s) {
    switch (l) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return prompt_matmul_##id(j, e, r, n, sm_count, s);
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
}

// ---- building
// Tiles of so many columns in a slot.
static prompt_tiles tiles_of(const cuda_backend *b, enum act_slot slot, enum link_form f, int columns) {
    prompt_tiles t = {};
    t.tiles = b->work + b->plan.tiles[slot];
    t.order = order_of(f);
    t.k_tiles = (columns + prompt_tile_cols(t.order) - 1) / prompt_tile_cols(t.order);
    return t;
}
prompt_tiles prompt_output(const cuda_backend *b, prompt_link *d, enum act_slot slot) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct view out = link_writes(l, &d->is);
    d->to_rows = d->is.gives == FORM_ROWS;
    if (!d->to_rows) return tiles_of(b, d[1].is.slot, d->is.gives, out.width);
    d->output = tiles_of(b, slot, d->is.wants == FORM_PANEL ? FORM_PANEL : FORM_HALVES, out.width);
    d->output.x = cuda_rows(b, l, out);
    return d->output;
}
static prompt_tiles input_of(const cuda_backend *b, const prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    prompt_tiles t = tiles_of(b, d->is.slot, d->is.wants, l->op[d->is.matmul].matmul.w->k);
    t.x = cuda_rows(b, l, link_reads(l, &d->is));
    if (d->is.norm < 0) return t;
    t.w = cuda_constant(b, l->op[d->is.norm].norm.w);
    t.eps = l->op[d->is.norm].norm.eps;
    return t;
}

static void place_members(const cuda_backend *b, const cuda_group *g, int region, bool glu, prompt_job *j) {
    for (int m = 0; m < g->n_member; m++) {
        const cuda_member *c = &g->member[m];
        if (c->region != region || (glu && m)) continue;
        const float *bias =
            g->bias ? (const float *)(b->work + b->plan.constant + g->bias_offset) + c->col : NULL;
        j->member[j->n_member++] = prompt_member{c->base / UNIT_ROWS, c->n, c->col, bias};
    }
}
void prompt_place_weights(const cuda_backend *b, int group, int region, bool glu, prompt_job *j) {
    const cuda_region *r = &b->plan.group[group].region[region];
    j->mx = b->work + b->plan.mx;
    j->mx_scale = b->work + b->plan.mx_scale;
    j->mx_rows = b->plan.mx_rows;
    j->w = b->weights + r->offset;
    j->u = r->u;
    j->n_slab = r->rows / UNIT_ROWS;
    place_members(b, &b->plan.group[group], region, glu, j);
}
void prompt_matmul_make(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *list = b->c.list[ROW_PROMPT];
    const int group = list->op[d->is.matmul].matmul.w->id;
    const cuda_group *g = &b->plan.group[group];
    const enum link_product product = d->is.product;
    const rows out = cuda_rows(
        b, list, product == PRODUCT_LATER ? list->op[d->is.matmul].matmul.out : link_writes(list, &d->is));
    const bool glu = product == PRODUCT_GATED, act = product == PRODUCT_ACTED;
    const prompt_tiles gated = glu || act ? prompt_output(b, d, ACT_GATED) : prompt_tiles{};
    prompt_gemm *l = &d->gemm;
    memset(l->tuned, -1, sizeof l->tuned);
    l->epilogue = glu ? EPILOGUE_GLU : product == PRODUCT_ADDED ? EPILOGUE_ADD : EPILOGUE_STORE;
    l->acted = act;
    l->weights = group;
    d->scaled = out;
    d->factor = product == PRODUCT_ROWS ? g->member[0].factor : 1;
    l->n_job = g->n_region;
    d->input = input_of(b, d);
    d->from_rows = d->is.in.form == FORM_ROWS;
    if (d->is.before >= 0) d->front = cuda_front(b, &list->op[d->is.before]);
    for (int i = 0; i < g->n_region; i++) {
        prompt_job *j = &l->job[i];
        l->layout[i] = g->region[i].layout;
        l->group[i] = route_prompt_group(&p->route, g->region[i].layout);
        prompt_place_weights(b, group, i, glu, j);
        j->x = d->input.tiles;
        j->k_tiles = d->input.k_tiles;
        j->n_row = row_count(b, d->out_rows);
        if (glu || act) {
            j->glu = gated.tiles;
            j->glu_order = gated.order;
            j->glu_k_tiles = gated.k_tiles;
            j->act = list->op[d->is.matmul + 1].glu.act;
        } else {
            j->out = out.p;
            j->stride = out.stride;
        }
    }
}

// False where no matmul has a fused kernel.
static bool build(cuda_backend *b, prompt_program *p, struct cuda_link *link) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct link_case c = {l, &b->plan, b->c.store, &p->route, false, NULL, NULL};
    const int n_matmul = program_links(p, c, link);
    for (int i = 0; i < p->n_link; i++)
        if (codes[p->link[i].is.kind]->make) codes[p->link[i].is.kind]->make(p, b, &p->link[i]);
    return n_matmul > 0;
}

// Whether this card passes the test of a block-scaled format, asked once a card, driver and build.
static enum infer_status mx_agrees(cuda_backend *b, int kind, bool *agree) {
    char what[64];
    double error = 0;
    snprintf(what, sizeof what, "self-test %s sm_%d", b->c.cuda.block_scaled,
             b->prop.major * 10 + b->prop.minor);
    int known = b->tune ? tune_get(b->tune, what, -1) : -1;
    *agree = known == 1;
    if (known >= 0) return INFER_OK;
    TRY(prompt_mx_self_test(kind, agree, &error, b->stream));
    if (!*agree)
        log_line(
            LOG_WARN,
            "cuda: %s products of this card are off by %.2g of their norm: NOT used; prompt rows take halves",
            b->c.cuda.block_scaled, error);
    if (b->tune) tune_set(b->tune, what, *agree);
    return INFER_OK;
}

// FP8 products are exact but for the activations, so they need no test of their own: a chip and weights are all.
static enum infer_status fp8_is_there(const cuda_backend *b, const struct route_case *c) {
    if (c->sm / 10 != 9 || c->only_mma)
        return err_set(INFER_E_UNSUPPORTED,
                       ".block_scaled fp8 needs a card of sm_90 and all of its kernels, this is sm_%d%s",
                       c->sm, c->only_mma ? " with .kernels mma" : "");
    for (int i = 0; i < b->c.n_group; i++)
        for (int r = 0; r < b->plan.group[i].n_region; r++)
            if (b->plan.group[i].region[r].layout == LAYOUT_F8) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED,
                   ".block_scaled fp8 multiplies FP8 weights, and no matrix on the card has any");
}

// The options' side of the table: what was asked for and cannot be had is refused.
static enum infer_status choose_routes(cuda_backend *b, prompt_program *p) {
    static const char *const kinds[MX_KIND_COUNT] = {"mxfp8", "mxfp4", "nvfp4"};
    p->route = cuda_route_case(b);
    if (b->c.cuda.blas)
        for (int i = 0; i < b->c.n_group; i++)
            if (b->plan.group[i].region[0].layout == LAYOUT_F32)
                return err_set(INFER_E_UNSUPPORTED, ".blas takes no F32 matrix (%s)",
                               b->c.group[i]->member[0].name);
    if (!b->c.cuda.block_scaled) return INFER_OK;
    if (!strcmp(b->c.cuda.block_scaled, "fp8")) return fp8_is_there(b, &p->route);
    if (p->route.sm / 10 != 12)
        return err_set(INFER_E_UNSUPPORTED, ".block_scaled %s needs a card of sm_120, this is sm_%d",
                       b->c.cuda.block_scaled, p->route.sm);
    while (strcmp(kinds[p->mx_kind], b->c.cuda.block_scaled) != 0) p->mx_kind++;
    return mx_agrees(b, p->mx_kind, &p->route.block_scaled);
}

enum infer_status prompt_build(struct prompt_program **out, cuda_backend *b) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    struct prompt_program *p = NULL;
    struct cuda_link *link;
    *out = NULL;
    if (b->prop.major < 8) return INFER_OK;
    enum infer_status st = program_new(&p, &link, l);
    if (st == INFER_OK) st = choose_routes(b, p);
    const bool fits = st == INFER_OK && build(b, p, link);
    cudaError_t e = cudaSuccess;
    if (fits && p->has_delta) e = delta_prompt_prepare(delta_prompt_stages(p->route.shared_bytes));
    if (fits && p->has_ssm && e == cudaSuccess)
        e = ssm_prompt_prepare(ssm_prompt_stages(p->route.shared_bytes));
    if (st == INFER_OK && e != cudaSuccess) st = cuda_error(e, "cudaFuncSetAttribute");
    mem_free(link);
    if (st != INFER_OK || !fits) {
        prompt_free(p);
        return st;
    }
    prompt_tuned_load(b, p);
    *out = p;
    return INFER_OK;
}

int prompt_grid(const struct prompt_program *p) { return p && (p->has_delta || p->has_ssm) ? CHUNK_ROWS : 0; }
void prompt_free(struct prompt_program *p) { program_free(p); }

// ---- running
// Whether a matmul's input is read as e4m3 alone, so that a norm may make it.
static bool only_fp8(const prompt_gemm *l) {
    bool all = true;
    for (int i = 0; i < l->n_job; i++) all &= l->group[i] == GROUP_MX && l->layout[i] == LAYOUT_F8;
    return all;
}
enum infer_status prompt_matmul_run(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                    int n, cudaStream_t s) {
    const prompt_tiles *t = &d->input;
    const int *n_row = d->gemm.job[0].n_row;
    const bool fp8 = d->from_rows && d->is.before < 0 && only_fp8(&d->gemm);
    if (fp8)
        CU(fp8_norm(t->x, t->w, t->eps, d->gemm.job[0], n, s));
    else if (d->from_rows && d->is.before >= 0)
        CU(prompt_front_launch(t->x, d->front, n_row, t->tiles, t->k_tiles, t->order, n, s));
    else if (d->from_rows)
        CU(prompt_norm_launch(t->x, t->w, t->eps, n_row, t->tiles, t->k_tiles, t->order, n, s));
    return prompt_gemm_run(b, p, &d->gemm, fp8, n, s);
}
static enum infer_status run_link(const cuda_backend *b, const prompt_program *p, const prompt_link *d, int n,
                                  cudaStream_t s) {
    const prompt_tiles *t = &d->output;
    TRY(codes[d->is.kind]->run(b, p, d, n, s));
    if (d->to_rows)
        CU(prompt_rows_launch(t->tiles, t->k_tiles, t->order, row_count(b, d->out_rows), t->x, n, s));
    return INFER_OK;
}
static enum infer_status run_any(cuda_backend *b, const prompt_program *p, const prompt_link *d, int n_row,
                                 int n_out, cudaStream_t s) {
    const int n = d->out_rows ? n_out : n_row;
    const range shown(d->name);
    if (d->is.kind == LINK_PLAIN)
        return cuda_run_ops(b, ROW_PROMPT, d->is.first, d->is.n_op, n_row, n_out, op_queue{s, false});
    if (!n) return INFER_OK;
    TRY(run_link(b, p, d, n, s));
    return behind_link(b, b->c.list[ROW_PROMPT], d, false, s);
}
enum infer_status prompt_run(cuda_backend *b, const struct prompt_program *p, int n_row, int n_out,
                             cudaStream_t s) {
    TRY(cuda_rope_tables(b, n_row, op_queue{s, false}));
    if (p->has_delta || p->has_ssm) TRY(prompt_delta_cut(b, s));
    for (int i = 0; i < p->n_link; i++) TRY(run_any(b, p, &p->link[i], n_row, n_out, s));
    return INFER_OK;
}

// ---- looking
static enum infer_status profile(cuda_backend *b, int n_row, int n_out, cudaEvent_t from, cudaEvent_t to,
                                 void (*line)(void *user, const char *kind, const char *name, float us),
                                 void *user) {
    const prompt_program *p = b->prompt;
    for (int i = 0; i < p->n_link; i++) {
        const struct cuda_link *k = &p->link[i].is;
        float ms = 0;
        CU(cudaEventRecord(from, b->stream));
        TRY(run_any(b, p, &p->link[i], n_row, n_out, b->stream));
        CU(cudaEventRecord(to, b->stream));
        CU(cudaEventSynchronize(to));
        CU(cudaEventElapsedTime(&ms, from, to));
        line(user, route_link_name(k->kind), link_name(b->c.list[ROW_PROMPT], k), ms * 1000);
    }
    return INFER_OK;
}
enum infer_status prompt_profile(struct backend *base, int n_row, int n_out,
                                 void (*line)(void *user, const char *kind, const char *name, float us),
                                 void *user) {
    cuda_backend *b = (cuda_backend *)base;
    cudaEvent_t e[2] = {};
    if (!b->prompt) return err_set(INFER_E_UNSUPPORTED, "prompt rows are not fused");
    CU(cudaSetDevice(b->device));
    enum infer_status st = INFER_OK;
    for (int i = 0; i < 2 && !st; i++)
        if (cudaEventCreate(&e[i]) != cudaSuccess) st = cuda_error(cudaGetLastError(), "cudaEventCreate");
    if (!st) st = profile(b, n_row, n_out, e[0], e[1], line, user);
    for (int i = 0; i < 2; i++)
        if (e[i]) cudaEventDestroy(e[i]);
    return st;
}

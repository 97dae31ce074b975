// The fused program for prompt rows: eight kernels a layer (norm; q k v; rotation and cache write; attention; output
// projection with the residual; norm; gate, up and their product; down with the residual).
#include <stdio.h>
#include "cuda/run/match_layer.h"
#include "base/mem.h"
#include "cuda/common/mx.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/run/prompt_program_impl.h"
#include "cuda/plan/tune.h"

int prompt_matmul_order(enum route_group g, enum layout l) {
    return g == GROUP_BLAS                       ? ORDER_ROWS
           : l == LAYOUT_F32                     ? ORDER_FLOATS
           : l == LAYOUT_F16 || l == LAYOUT_BF16 ? ORDER_HALVES
                                                 : ORDER_CODES;
}
cudaError_t prompt_matmul_launch(const prompt_job &j, enum layout l, enum prompt_epilogue e,
                                 const struct route *r, int n, int sm_count, cudaStream_t s) {
    switch (l) {
    case LAYOUT_F16:
    case LAYOUT_Q8:
    case LAYOUT_Q4:
        return prompt_matmul_a(j, l, e, r, n, sm_count, s);
    case LAYOUT_Q4K:
    case LAYOUT_Q6K:
    case LAYOUT_Q4M:
        return prompt_matmul_b(j, l, e, r, n, sm_count, s);
    case LAYOUT_F32:
    case LAYOUT_BF16:
    case LAYOUT_Q3K:
    case LAYOUT_IQ4:
        return prompt_matmul_d(j, l, e, r, n, sm_count, s);
    default:
        return prompt_matmul_c(j, l, e, r, n, sm_count, s);
    }
}

// The order in which the kernels of a weight group read their input: -1 where its regions disagree, or no fused kernel takes
// it.
static int order_of(const cuda_backend *b, const prompt_program *p, int group) {
    const cuda_group *g = &b->plan.group[group];
    int order = -1;
    if (g->scaled) return -1;
    for (int i = 0; i < g->n_region; i++) {
        enum layout l = g->region[i].layout;
        enum route_group r = route_prompt_group(&p->route, l);
        if (r == GROUP_PLAIN || (i && prompt_matmul_order(r, l) != order)) return -1;
        order = prompt_matmul_order(r, l);
    }
    return order;
}
// Tiles of tile slot i along its columns.
static int k_tiles(const cuda_backend *b, int slot, int order) {
    int cols = prompt_tile_cols(order);
    return (b->plan.tile_cols[slot] + cols - 1) / cols;
}

// Launches of a group that reads tiles slot.
static void make_link(const cuda_backend *b, const prompt_program *p, prompt_link *l, int group, int slot,
                      const int *n_row, enum prompt_epilogue e, rows out) {
    const cuda_group *g = &b->plan.group[group];
    memset(l, 0, sizeof *l);
    memset(l->tuned, -1, sizeof l->tuned);
    int order = order_of(b, p, group);
    l->epilogue = e;
    l->weights = group;
    l->n_job = g->n_region;
    for (int i = 0; i < g->n_region; i++) {
        const cuda_region *r = &g->region[i];
        prompt_job *j = &l->job[i];
        l->layout[i] = r->layout;
        l->group[i] = route_prompt_group(&p->route, r->layout);
        j->mx = b->work + b->plan.mx;
        j->mx_scale = b->work + b->plan.mx_scale;
        j->mx_rows = b->plan.mx_rows;
        j->w = b->weights + r->offset;
        j->u = r->u;
        j->n_slab = r->rows / UNIT_ROWS;
        j->x = p->tiles[slot];
        j->k_tiles = k_tiles(b, slot, order);
        j->n_row = n_row;
        j->out = out.p;
        j->stride = out.stride;
        for (int m = 0; m < g->n_member; m++) {
            const cuda_member *c = &g->member[m];
            if (c->region != i || (e == EPILOGUE_GLU && m)) continue;
            const float *bias =
                g->bias ? (const float *)(b->work + b->plan.constant + g->bias_offset) + c->col : NULL;
            j->member[j->n_member++] = prompt_member{c->base / UNIT_ROWS, c->n, c->col, bias};
        }
    }
}

// Whether the kernels take a layer's sizes and formats.
static bool layer_fits(const cuda_backend *b, const prompt_program *p, const struct layer_ops *o) {
    const struct kv_store *s = &b->c.store[o->attend->store];
    const cuda_group *gu = &b->plan.group[o->gate_up->w->id];
    if (o->q_rope->rope != o->k_rope->rope || o->attend->store != o->put->store) return false;
    if (!prompt_attend_has(s->head_dim_k, s->head_dim_v)) return false;
    if (o->q_norm && (o->q_norm->dim != s->head_dim_k || o->k_norm->dim != s->head_dim_k)) return false;
    int order[4] = {order_of(b, p, o->qkv->w->id), order_of(b, p, o->out->w->id),
                    order_of(b, p, o->gate_up->w->id), order_of(b, p, o->down->w->id)};
    for (int i = 0; i < 4; i++) {
        if (order[i] < 0) return false;
        // columns that pad a tile are never written: halves must not read what floats left there
        if (order[i] == ORDER_FLOATS)
            for (int t = 0; t < 3; t++)
                if (b->plan.tile_cols[t] % 64 &&
                    (order[0] + order[1] + order[2] + order[3]) != 4 * ORDER_FLOATS)
                    return false;
    }
    return gu->paired && !gu->bias && gu->n_region == 1 && b->c.n_embd % 4 == 0;
}

static prompt_norm make_norm(const cuda_backend *b, const prompt_program *p, const struct op_norm *n,
                             int group) {
    int order = order_of(b, p, group);
    return prompt_norm{cuda_rows(b, b->c.list[ROW_PROMPT], n->x), cuda_constant(b, n->w), n->eps, order,
                       k_tiles(b, 0, order)};
}

static void build_layer(cuda_backend *b, prompt_program *p, prompt_layer *d, const struct layer_ops *o,
                        rows res) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct kv_store *s = &b->c.store[o->attend->store];
    const int *n_row = &b->t.step->n_row;
    rows qkv = cuda_rows(b, l, o->qkv->out);
    d->attn_norm = make_norm(b, p, o->norm, o->qkv->w->id);
    make_link(b, p, &d->qkv, o->qkv->w->id, 0, n_row, EPILOGUE_STORE, qkv);

    prompt_put_job *put = &d->put;
    put->t = b->t;
    put->kv = cuda_store(b, o->put->store);
    put->qkv = qkv.p;
    put->stride = qkv.stride;
    put->q_col = o->attend->q.col;
    put->k_col = o->put->k.col;
    put->v_col = o->put->v.col;
    put->n_head = o->attend->n_head;
    put->n_rot = o->q_rope->rope->n_rot;
    put->neox = o->q_rope->rope->kind == ROPE_NEOX;
    put->rope = cuda_rope_table(b, o->q_rope->rope);
    if (o->q_norm) {
        put->q_norm = cuda_constant(b, o->q_norm->w);
        put->k_norm = cuda_constant(b, o->k_norm->w);
        put->eps = o->q_norm->eps;
    }

    prompt_attend_job *a = &d->attend;
    a->q = qkv.p + o->attend->q.col;
    a->q_stride = qkv.stride;
    a->type = put->kv.type;
    a->k = put->kv.k;
    a->v = put->kv.v;
    a->pages = put->kv.pages;
    a->max_pages = put->kv.max_pages;
    a->n_head = o->attend->n_head;
    a->n_kv_head = s->n_kv_head;
    a->dk = s->head_dim_k;
    a->dv = s->head_dim_v;
    a->window = o->attend->window;
    a->n_row = n_row;
    a->pos = b->t.pos;
    a->slot = b->t.slot;
    a->scale = o->attend->scale;
    a->softcap = o->attend->softcap;
    a->sinks = cuda_constant(b, o->attend->sinks);
    a->out = p->tiles[1];
    a->out_order = order_of(b, p, o->out->w->id);
    a->out_k_tiles = k_tiles(b, 1, a->out_order);

    make_link(b, p, &d->out, o->out->w->id, 1, n_row, EPILOGUE_ADD, res);
    d->ffn_norm = make_norm(b, p, o->ffn_norm, o->gate_up->w->id);
    make_link(b, p, &d->gate_up, o->gate_up->w->id, 0, n_row, EPILOGUE_GLU, rows{});
    for (int i = 0; i < d->gate_up.n_job; i++) {
        d->gate_up.job[i].glu = p->tiles[2];
        d->gate_up.job[i].glu_order = order_of(b, p, o->down->w->id);
        d->gate_up.job[i].glu_k_tiles = k_tiles(b, 2, d->gate_up.job[i].glu_order);
        d->gate_up.job[i].act = o->glu->act;
    }
    make_link(b, p, &d->down, o->down->w->id, 2, n_row, EPILOGUE_ADD, res);
}

static bool build(cuda_backend *b, prompt_program *p, struct layer_ops *ops, int n_max) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    cursor c = {l, 0};
    p->embed = take_op(&c, OP_EMBED);
    if (!p->embed) return false;
    struct view x = p->embed->embed.out;
    while (p->n_layer < n_max && c.i < l->n_op && l->op[c.i].kind == OP_NORM) {
        struct layer_ops *o = &ops[p->n_layer];
        if (!match_layer(&c, x, o) || !layer_fits(b, p, o)) return false;
        p->n_layer++;
    }
    p->pick = take_op(&c, OP_ROWS);
    const struct op *norm = take_op(&c, OP_NORM), *head = take_op(&c, OP_MATMUL);
    p->select = take_op(&c, OP_SELECT);
    if (!p->n_layer || !p->pick || !head || !p->select || !plain_norm(norm, p->pick->rows.out, x.width) ||
        !view_same(head->matmul.x, norm->norm.out) || order_of(b, p, head->matmul.w->id) < 0)
        return false;
    for (int i = 0; i < 3; i++) p->tiles[i] = b->work + b->plan.tiles[i];
    for (int i = 0; i < p->n_layer; i++) build_layer(b, p, &p->layer[i], &ops[i], cuda_rows(b, l, x));
    p->norm = make_norm(b, p, &norm->norm, head->matmul.w->id);
    make_link(b, p, &p->head, head->matmul.w->id, 0, &b->t.step->n_out, EPILOGUE_STORE,
              cuda_rows(b, l, head->matmul.out));
    return true;
}

// Whether this card passes the test of a block-scaled format, asked once a card, driver and build.
static enum infer_status mx_agrees(cuda_backend *b, int kind, bool *agree) {
    char what[64];
    double error = 0;
    snprintf(what, sizeof what, "self-test %s sm_%d", b->c.block_scaled, b->prop.major * 10 + b->prop.minor);
    int known = b->tune ? tune_get(b->tune, what, -1) : -1;
    *agree = known == 1;
    if (known >= 0) return INFER_OK;
    TRY(prompt_mx_self_test(kind, agree, &error, b->stream));
    if (!*agree)
        log_line(
            LOG_WARN,
            "cuda: %s products of this card are off by %.2g of their norm: NOT used; prompt rows take halves",
            b->c.block_scaled, error);
    if (b->tune) tune_set(b->tune, what, *agree);
    return INFER_OK;
}

// The options' side of the table: what was asked for and cannot be had is refused.
static enum infer_status choose_routes(cuda_backend *b, prompt_program *p) {
    static const char *const kinds[MX_KIND_COUNT] = {"mxfp8", "mxfp4", "nvfp4"};
    p->route = cuda_route_case(b);
    if (b->c.blas)
        for (int i = 0; i < b->c.n_group; i++)
            if (b->plan.group[i].region[0].layout == LAYOUT_F32)
                return err_set(INFER_E_UNSUPPORTED, "--blas on takes no F32 matrix (%s)",
                               b->c.group[i]->member[0].name);
    if (!b->c.block_scaled) return INFER_OK;
    if (p->route.sm / 10 != 12)
        return err_set(INFER_E_UNSUPPORTED, "--matmul-precision %s needs a card of sm_120, this is sm_%d",
                       b->c.block_scaled, p->route.sm);
    while (strcmp(kinds[p->mx_kind], b->c.block_scaled) != 0) p->mx_kind++;
    return mx_agrees(b, p->mx_kind, &p->route.block_scaled);
}

enum infer_status prompt_build(struct prompt_program **out, cuda_backend *b) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    struct prompt_program *p;
    struct layer_ops *ops = NULL;
    int n_layer = 0;
    *out = NULL;
    if (b->prop.major < 8) return INFER_OK;
    for (int i = 0; i < l->n_op; i++) n_layer += l->op[i].kind == OP_ATTEND;
    TRY(mem_new(&p, sizeof *p, "a prompt program"));
    enum infer_status st = mem_new(&p->layer, (size_t)(n_layer + 1) * sizeof *p->layer, "a prompt program");
    if (st == INFER_OK) st = mem_new(&ops, (size_t)(n_layer + 1) * sizeof *ops, "a prompt program");
    if (st == INFER_OK) st = choose_routes(b, p);
    bool fits = st == INFER_OK && build(b, p, ops, n_layer);
    mem_free(ops);
    if (!fits) {
        prompt_free(p);
        return st;
    }
    prompt_tuned_load(b, p);
    *out = p;
    return INFER_OK;
}

void prompt_free(struct prompt_program *p) {
    if (!p) return;
    mem_free(p->layer);
    mem_free(p);
}

static enum infer_status run_norm(const prompt_program *p, const prompt_norm *n, const int *n_row, int count,
                                  cudaStream_t s) {
    CU(prompt_norm_launch(n->x, n->w, n->eps, n_row, p->tiles[0], n->k_tiles, n->order, count, s));
    return INFER_OK;
}

enum infer_status prompt_run(cuda_backend *b, const struct prompt_program *p, int n_row, int n_out,
                             cudaStream_t s) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const op_queue ops = {s, false};
    const int *rows_at = &b->t.step->n_row, *outs_at = &b->t.step->n_out;
    for (int i = 0; i < b->n_rope; i++)
        CU(op_rope_table_run(b->t, cuda_constant(b, b->rope[i]->inv_freq), b->rope[i]->n_rot,
                             b->rope[i]->mscale, cuda_rope_table(b, b->rope[i]), n_row, ops));
    CU(op_embed_run(b->t, cuda_matrix(b, b->plan.embedding, 0), cuda_rows(b, l, p->embed->embed.out),
                    p->embed->embed.scale * p->embed->embed.w->factor, n_row, ops));
    for (int i = 0; i < p->n_layer; i++) {
        const prompt_layer *d = &p->layer[i];
        TRY(run_norm(p, &d->attn_norm, rows_at, n_row, s));
        TRY(prompt_link_run(b, p, &d->qkv, n_row, s));
        CU(prompt_put_launch(d->put, n_row, s));
        CU(prompt_attend_launch(d->attend, n_row, cuda_only_mma(b), s));
        TRY(prompt_link_run(b, p, &d->out, n_row, s));
        TRY(run_norm(p, &d->ffn_norm, rows_at, n_row, s));
        TRY(prompt_link_run(b, p, &d->gate_up, n_row, s));
        TRY(prompt_link_run(b, p, &d->down, n_row, s));
    }
    if (!n_out) return INFER_OK;
    CU(op_rows_run(b->t, cuda_rows(b, l, p->pick->rows.x), cuda_rows(b, l, p->pick->rows.out), n_out, ops));
    TRY(run_norm(p, &p->norm, outs_at, n_out, s));
    TRY(prompt_link_run(b, p, &p->head, n_out, s));
    CU(op_select_run(b->t, cuda_rows(b, l, p->select->select.logits), p->select->select.n_vocab,
                     (float2 *)(b->work + b->plan.cand), cuda_tokens(b), cuda_logits_copy(b), n_out, ops));
    return INFER_OK;
}

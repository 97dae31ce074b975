// The fused program for prompt rows: eight kernels a layer (norm; q k v; rotation and cache write; attention; output
// projection with the residual; norm; gate, up and their product; down with the residual).
#include "prompt.h"
#include "match.h"
#include "mem.h"
#include "prompt_frag.cuh"
#include "prompt_ops.h"

struct prompt_link { // one group: a launch per region
    prompt_job job[CUDA_REGION_MAX];
    enum layout layout[CUDA_REGION_MAX];
    enum prompt_epilogue epilogue;
    int n_job;
};
struct prompt_norm {
    rows x;
    const float *w;
    float eps;
    int order;
};
struct prompt_layer {
    prompt_norm attn_norm, ffn_norm;
    prompt_link qkv, out, gate_up, down;
    prompt_put_job put;
    prompt_attend_job attend;
};
struct prompt_program {
    const struct op *embed, *pick, *select;
    struct prompt_layer *layer;
    int n_layer;
    prompt_norm norm;
    prompt_link head;
    uint8_t *tiles[3];
    int k_tiles[3];
    bool mma; // mma.sync kernels only
};

bool prompt_matmul_has(enum layout l) { return l != LAYOUT_F32 && l != LAYOUT_BF16 && l != LAYOUT_COUNT; }
int prompt_matmul_order(enum layout l) { return l == LAYOUT_F16 ? ORDER_HALVES : ORDER_CODES; }
cudaError_t prompt_matmul_launch(const prompt_job &j, enum layout l, enum prompt_epilogue e, int n,
                                 int sm_count, bool mma, cudaStream_t s) {
    switch (l) {
    case LAYOUT_F16:
    case LAYOUT_Q8:
    case LAYOUT_Q4:
        return prompt_matmul_a(j, l, e, n, sm_count, mma, s);
    case LAYOUT_Q4K:
    case LAYOUT_Q6K:
    case LAYOUT_Q4M:
        return prompt_matmul_b(j, l, e, n, sm_count, mma, s);
    default:
        return prompt_matmul_c(j, l, e, n, sm_count, mma, s);
    }
}

// Order in which a group's kernels read their input; -1: the regions disagree, or one has no kernel.
static int group_order(const cuda_backend *b, int group) {
    const cuda_group *g = &b->plan.group[group];
    int order = prompt_matmul_order(g->region[0].layout);
    for (int i = 0; i < g->n_region; i++)
        if (!prompt_matmul_has(g->region[i].layout) || prompt_matmul_order(g->region[i].layout) != order)
            return -1;
    return order;
}

// Launches of a group that reads tiles slot.
static void make_link(const cuda_backend *b, const prompt_program *p, prompt_link *l, int group, int slot,
                      const int *n_row, enum prompt_epilogue e, rows out) {
    const cuda_group *g = &b->plan.group[group];
    memset(l, 0, sizeof *l);
    l->epilogue = e;
    l->n_job = g->n_region;
    for (int i = 0; i < g->n_region; i++) {
        const cuda_region *r = &g->region[i];
        prompt_job *j = &l->job[i];
        l->layout[i] = r->layout;
        j->w = b->weights + r->offset;
        j->u = r->u;
        j->n_slab = r->rows / UNIT_ROWS;
        j->x = p->tiles[slot];
        j->k_tiles = p->k_tiles[slot];
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
static bool layer_fits(const cuda_backend *b, const struct layer_ops *o) {
    const struct kv_store *s = &b->c.store[o->attend->store];
    const cuda_group *gu = &b->plan.group[o->gate_up->w->id];
    if (o->q_rope->rope != o->k_rope->rope || o->attend->store != o->put->store) return false;
    if (!prompt_attend_has(s->head_dim_k, s->head_dim_v)) return false;
    if (o->q_norm && (o->q_norm->dim != s->head_dim_k || o->k_norm->dim != s->head_dim_k)) return false;
    if (group_order(b, o->qkv->w->id) < 0 || group_order(b, o->out->w->id) < 0 ||
        group_order(b, o->gate_up->w->id) < 0 || group_order(b, o->down->w->id) < 0)
        return false;
    return gu->paired && !gu->bias && gu->n_region == 1 && b->c.n_embd % 4 == 0;
}

static prompt_norm make_norm(const cuda_backend *b, const struct op_norm *n, int group) {
    return prompt_norm{cuda_rows(b, b->c.list[ROW_PROMPT], n->x), cuda_constant(b, n->w), n->eps,
                       group_order(b, group)};
}

static void build_layer(cuda_backend *b, prompt_program *p, prompt_layer *d, const struct layer_ops *o,
                        rows res) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct kv_store *s = &b->c.store[o->attend->store];
    const int *n_row = &b->t.step->n_row;
    rows qkv = cuda_rows(b, l, o->qkv->out);
    d->attn_norm = make_norm(b, o->norm, o->qkv->w->id);
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
    a->out_k_tiles = p->k_tiles[1];
    a->out_order = group_order(b, o->out->w->id);

    make_link(b, p, &d->out, o->out->w->id, 1, n_row, EPILOGUE_ADD, res);
    d->ffn_norm = make_norm(b, o->ffn_norm, o->gate_up->w->id);
    make_link(b, p, &d->gate_up, o->gate_up->w->id, 0, n_row, EPILOGUE_GLU, rows{});
    for (int i = 0; i < d->gate_up.n_job; i++) {
        d->gate_up.job[i].glu = p->tiles[2];
        d->gate_up.job[i].glu_k_tiles = p->k_tiles[2];
        d->gate_up.job[i].glu_order = group_order(b, o->down->w->id);
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
        if (!match_layer(&c, x, o) || !layer_fits(b, o)) return false;
        p->n_layer++;
    }
    p->pick = take_op(&c, OP_ROWS);
    const struct op *norm = take_op(&c, OP_NORM), *head = take_op(&c, OP_MATMUL);
    p->select = take_op(&c, OP_SELECT);
    if (!p->n_layer || !p->pick || !head || !p->select || !plain_norm(norm, p->pick->rows.out, x.width) ||
        !same(head->matmul.x, norm->norm.out) || group_order(b, head->matmul.w->id) < 0)
        return false;
    for (int i = 0; i < 3; i++) {
        p->tiles[i] = b->work + b->plan.tiles[i];
        p->k_tiles[i] = (b->plan.tile_cols[i] + 63) / 64;
    }
    for (int i = 0; i < p->n_layer; i++) build_layer(b, p, &p->layer[i], &ops[i], cuda_rows(b, l, x));
    p->norm = make_norm(b, &norm->norm, head->matmul.w->id);
    make_link(b, p, &p->head, head->matmul.w->id, 0, &b->t.step->n_out, EPILOGUE_STORE,
              cuda_rows(b, l, head->matmul.out));
    return true;
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
    p->mma = b->prop.major != 9 || b->c.sm_emulate || (b->c.kernels && !strcmp(b->c.kernels, "mma"));
    bool fits = st == INFER_OK && build(b, p, ops, n_layer);
    mem_free(ops);
    if (!fits) {
        prompt_free(p);
        return st;
    }
    *out = p;
    return INFER_OK;
}

void prompt_free(struct prompt_program *p) {
    if (!p) return;
    mem_free(p->layer);
    mem_free(p);
}

static enum infer_status run_link(const cuda_backend *b, const prompt_program *p, const prompt_link *l, int n,
                                  cudaStream_t s) {
    for (int i = 0; i < l->n_job; i++)
        CU(prompt_matmul_launch(l->job[i], l->layout[i], l->epilogue, n, b->sm_count, p->mma, s));
    return INFER_OK;
}
static enum infer_status run_norm(const prompt_program *p, const prompt_norm *n, const int *n_row, int count,
                                  cudaStream_t s) {
    CU(prompt_norm_launch(n->x, n->w, n->eps, n_row, p->tiles[0], p->k_tiles[0], n->order, count, s));
    return INFER_OK;
}

enum infer_status prompt_run(cuda_backend *b, const struct prompt_program *p, int n_row, int n_out,
                             cudaStream_t s) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const int *rows_at = &b->t.step->n_row, *outs_at = &b->t.step->n_out;
    for (int i = 0; i < b->n_rope; i++)
        CU(op_rope_table_run(b->t, cuda_constant(b, b->rope[i]->inv_freq), b->rope[i]->n_rot,
                             b->rope[i]->mscale, cuda_rope_table(b, b->rope[i]), n_row, s));
    CU(op_embed_run(b->t, cuda_matrix(b, b->plan.embedding, 0), cuda_rows(b, l, p->embed->embed.out),
                    p->embed->embed.scale, n_row, s));
    for (int i = 0; i < p->n_layer; i++) {
        const prompt_layer *d = &p->layer[i];
        TRY(run_norm(p, &d->attn_norm, rows_at, n_row, s));
        TRY(run_link(b, p, &d->qkv, n_row, s));
        CU(prompt_put_launch(d->put, n_row, s));
        CU(prompt_attend_launch(d->attend, n_row, p->mma, s));
        TRY(run_link(b, p, &d->out, n_row, s));
        TRY(run_norm(p, &d->ffn_norm, rows_at, n_row, s));
        TRY(run_link(b, p, &d->gate_up, n_row, s));
        TRY(run_link(b, p, &d->down, n_row, s));
    }
    if (!n_out) return INFER_OK;
    CU(op_rows_run(b->t, cuda_rows(b, l, p->pick->rows.x), cuda_rows(b, l, p->pick->rows.out), n_out, s));
    TRY(run_norm(p, &p->norm, outs_at, n_out, s));
    TRY(run_link(b, p, &p->head, n_out, s));
    CU(op_select_run(b->t, cuda_rows(b, l, p->select->select.logits), p->select->select.n_vocab,
                     (float2 *)(b->work + b->plan.cand), cuda_tokens(b), cuda_logits_copy(b), n_out, s));
    return INFER_OK;
}

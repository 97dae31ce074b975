/* Mixtures of experts: which experts a row goes to, their products, and what becomes of them.
 *
 * A pair is a row of the step and one of its choices. The pairs are put in the order of their experts, and the rows of x with them, so
 * that the pairs of an expert are neighbours: a unit is a block of rows of one expert's matrix, read once for all of its pairs.
 * Every thread makes the order for itself, which is less than a barrier. One row (decode) has each expert once at most: its
 * inputs need no order. The kernels give a row the same sums beside any others. */
#include "cpu/cpu_list.h"
#include "seam/router.h"
#include "seam/weight.h"
#include <string.h>

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static size_t form_bytes(enum cpu_route form, bool twice, int k) { /* of a row of x */
    return form == CPU_ROUTE_INT8    ? cpu_x8_bytes(k) * (twice ? 2 : 1)
           : form == CPU_ROUTE_INT16 ? cpu_x16_bytes(k)
                                     : cpu_norm_floats(k) * sizeof(float);
}

enum cpu_route cpu_experts_form(const struct backend_config *c, const struct cpu_kernels *k,
                                enum row_class cls, const struct weight_group *w) {
    bool int8 = true, int16 = cls == ROW_PROMPT;
    if (c->strict_fp32 && cls == ROW_PROMPT) return CPU_ROUTE_F32;
    for (int m = 0; m < w->n_member; m++) {
        if (!k->gemm_int8[w->member[m].type] || cpu_reads_floats(k, &w->member[m])) int8 = false;
        if (!cpu_int16(k, &w->member[m])) int16 = false;
    }
    return int16 ? CPU_ROUTE_INT16 : int8 ? CPU_ROUTE_INT8 : CPU_ROUTE_F32;
}

bool cpu_experts_twice(const struct cpu_kernels *k, const struct weight_group *w) {
    for (int m = 0; m < w->n_member; m++)
        if (cpu_reads_twice(k, &w->member[m])) return true;
    return false;
}

struct cpu_experts_need cpu_experts_need(const struct backend_config *c, const struct cpu_kernels *k) {
    struct cpu_experts_need n = {0};
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; i < c->list[cls]->n_op; i++) {
            if (c->list[cls]->op[i].kind != OP_EXPERTS) continue;
            const struct op_experts *o = &c->list[cls]->op[i].experts;
            const struct op_list *l = c->list[cls];
            size_t used = (size_t)o->n_used,
                   row = form_bytes(cpu_experts_form(c, k, (enum row_class)cls, o->w),
                                    cpu_experts_twice(k, o->w), o->w->k);
            size_t rows = (size_t)(l->max_rows > l->max_out ? l->max_rows : l->max_out);
            if (used * rows > n.pairs) n.pairs = used * rows;
            if (used * row > n.own_x) n.own_x = used * row;
            if (used * rows * row > n.x) n.x = used * rows * row;
            for (int m = 0; m < o->w->n_member; m++)
                if (o->w->member[m].n_stack > n.experts) n.experts = o->w->member[m].n_stack;
        }
    return n;
}

/* ---- route ------------------------------------------------------------------------------------------------------- */

void cpu_op_route(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_route *r = &op->op->route;
    int a, b;
    cpu_share(cpu_rows(s, r->logits), thread, n_thread, &a, &b);
    for (int t = a; t < b; t++)
        router_row(r->router, cpu_row(s, r->logits, t), step_told(s->s, r, t), cpu_row(s, r->choice, t));
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* -1: another rank's */
static int expert_of(const struct op_experts *o, struct cpu_step *s, int pair) {
    return op_experts_matrix(o, (int)cpu_row(s, o->choice, pair / o->n_used)[pair % o->n_used]);
}

/* The pairs in the order of their experts, those of one expert in the order of the rows. Those of no expert here have no place. */
static void order_pairs(const struct op_experts *o, struct cpu_step *s, int T, struct cpu_pairs *p) {
    int n_expert = o->w->member[0].n_stack, n = T * o->n_used, at = 0;
    memset(p->first, 0, sizeof *p->first * (size_t)(n_expert + 1));
    for (int i = 0; i < n; i++) {
        const int e = expert_of(o, s, i);
        if (e >= 0) p->first[e]++;
    }
    p->n_hit = 0;
    for (int e = 0; e < n_expert; e++) {
        int many = p->first[e];
        if (many) p->hit[p->n_hit++] = e;
        p->first[e] = at;
        at += many;
    }
    p->first[n_expert] = at;
    for (int i = 0; i < n; i++) {
        const int e = expert_of(o, s, i), place = e < 0 ? -1 : p->first[e]++;
        if (e >= 0) p->order[place] = i;
        p->place[i] = place;
    }
    for (int e = n_expert; e; e--) p->first[e] = p->first[e - 1];
    p->first[0] = 0;
}

/* Bytes of 256 columns of a row of x; 0: the row lies in one piece. */
static size_t chunk_bytes(const struct cpu_op *op) {
    return op->route == CPU_ROUTE_INT8    ? sizeof(struct cpu_x8)
           : op->route == CPU_ROUTE_INT16 ? sizeof(struct cpu_x16)
                                          : 0;
}

/* A row of x at to, its columns chunk bytes apart. */
static void fill_row(const struct cpu_op *op, struct cpu_step *s, const float *x, uint8_t *to, size_t chunk) {
    const struct cpu_kernels *k = s->cpu->k;
    int K = op->op->experts.w->k;
    if (op->route == CPU_ROUTE_INT8 && op->twice)
        k->quantise_twice(to, x, K);
    else if (op->route == CPU_ROUTE_INT8)
        k->quantise(to, chunk, x, K);
    else if (op->route == CPU_ROUTE_INT16)
        k->quantise16(to, chunk, x, K);
    else
        memcpy(to, x, sizeof *x * (size_t)K);
}

/* The rows of x of one row's choices, in their order. */
static struct cpu_x prepare_one(const struct cpu_op *op, struct cpu_step *s, uint8_t *own) {
    const struct op_experts *o = &op->op->experts;
    const size_t row = form_bytes(op->route, op->twice, o->w->k), chunk = chunk_bytes(op);
    const float *x = cpu_row(s, o->x, 0);
    if (op->route == CPU_ROUTE_F32)
        return (struct cpu_x){(const void *)x, o->by_choice ? sizeof *x * (size_t)o->w->k : 0, 0};
    for (int j = 0; j < (o->by_choice ? o->n_used : 1); j++)
        fill_row(op, s, x + j * o->w->k, own + (size_t)j * row, chunk);
    return (struct cpu_x){own, o->by_choice ? row : 0, chunk};
}

/* The rows of x of expert e's pairs, of several rows of the step: the same columns of all of them one after the other, as in a prompt's
 * matmul. */
static struct cpu_x rows_of(const struct cpu_op *op, const struct cpu *c, const struct cpu_pairs *p, int e) {
    const size_t row = form_bytes(op->route, op->twice, op->op->experts.w->k), chunk = chunk_bytes(op);
    const uint8_t *at = c->pair_x + row * (size_t)p->first[e];
    if (!chunk || op->twice) return (struct cpu_x){at, row, chunk};
    return (struct cpu_x){at, chunk, chunk * (size_t)(p->first[e + 1] - p->first[e])};
}

static void copy_row(uint8_t *to, size_t to_chunk, const uint8_t *from, size_t from_chunk, size_t row,
                     size_t chunk) {
    if (to_chunk == from_chunk && (!chunk || to_chunk == chunk)) {
        memcpy(to, from, row);
        return;
    }
    for (size_t at = 0; at < row; at += chunk, to += to_chunk, from += from_chunk) memcpy(to, from, chunk);
}

/* This thread's share of the step's rows, each for all of its experts. */
static void prepare_pairs(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread, int T,
                          const struct cpu_pairs *p) {
    const struct op_experts *o = &op->op->experts;
    const size_t row = form_bytes(op->route, op->twice, o->w->k);
    int a, b;
    cpu_share(T, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        struct cpu_x same = {0};
        for (int i = t * o->n_used; i < (t + 1) * o->n_used; i++) {
            if (p->place[i] < 0) continue;
            const int e = expert_of(o, s, i);
            struct cpu_x to = rows_of(op, s->cpu, p, e);
            to.at += to.row * (size_t)(p->place[i] - p->first[e]);
            uint8_t *at = s->cpu->pair_x + (to.at - s->cpu->pair_x);
            if (same.at)
                copy_row(at, to.chunk, same.at, same.chunk, row, chunk_bytes(op));
            else
                fill_row(op, s, cpu_row(s, o->x, t) + (o->by_choice ? i % o->n_used * o->w->k : 0), at,
                         to.chunk);
            if (!o->by_choice) same = to;
        }
    }
    cpu_barrier(s);
}

/* A part of the columns at a time. */
void cpu_multiply_unpacked(const struct cpu *c, struct cpu_work *work, const struct weight *w, int row, int n,
                           struct cpu_x x, int T, float *out) {
    const struct quant_info *q = quant_info(w->type);
    float *weights = (float *)(void *)work->weights;
    float part[CPU_LANES * CPU_UNIT_ROWS];
    for (int k0 = 0; k0 < w->k; k0 += CPU_PANEL_K) {
        int kb = w->k - k0 < CPU_PANEL_K ? w->k - k0 : CPU_PANEL_K;
        const uint8_t *from =
            (const uint8_t *)w->data + weight_stride(w) * (size_t)row + quant_row_bytes(q, (size_t)k0);
        for (int r = 0; r < n; r++)
            c->k->dequant_f32[w->type](weights + (size_t)r * CPU_PANEL_STRIDE,
                                       from + weight_stride(w) * (size_t)r, weight_end(w), kb);
        for (int t = 0; t < T; t += CPU_LANES) {
            int rows = T - t < CPU_LANES ? T - t : CPU_LANES;
            const struct cpu_x at = {x.at + x.row * (size_t)t + sizeof(float) * (size_t)k0, x.row, 0};
            c->k->gemv_float[QUANT_F32](work->weights, CPU_PANEL_STRIDE * sizeof(float), n, kb, at, rows,
                                        part, NULL, false);
            for (int i = 0; i < rows; i++) {
                float *y = out + (t + i) * CPU_UNIT_ROWS;
                for (int r = 0; r < n; r++) y[r] = part[i * CPU_UNIT_ROWS + r] + (k0 ? y[r] : 0);
            }
        }
    }
}

/* A step that reads an eighth of the experts at most copies what it reads. */
static bool copies_at_once(const struct cpu_op *op, const struct cpu_step *s) {
    const struct op_experts *o = &op->op->experts;
    return 8 * (int64_t)cpu_rows(s, o->x) * o->n_used <= o->w->member[0].n_stack;
}

/* out[t][r]: rows row .. row + n of expert e's matrix of member m, times T rows of x. */
static void multiply(const struct cpu_op *op, struct cpu_step *s, struct cpu_work *work, int m, int e,
                     int row, int n, struct cpu_x x, int T, float *out) {
    struct cpu *c = s->cpu;
    const struct weight *stack = &op->op->experts.w->member[m], w = weight_matrix(stack, e);
    size_t stride = weight_stride(&w);
    const uint8_t *from = (const uint8_t *)w.data + stride * (size_t)row;
    if (op->route == CPU_ROUTE_F32 &&
        !cpu_reads_floats(c->k, &w)) { /* no kernel that reads the rows of x as they are */
        cpu_multiply_unpacked(c, work, &w, row, n, x, T, out);
        return;
    }
    cpu_row_fn *const kernel = op->route == CPU_ROUTE_INT8    ? c->k->gemm_int8[w.type]
                               : op->route == CPU_ROUTE_INT16 ? cpu_int16(c->k, &w)
                               : cpu_is_float(w.type)         ? c->k->gemv_float[w.type]
                                                              : c->k->gemv_fine[w.type];
    const bool twice = op->route == CPU_ROUTE_INT8 && op->twice;
    if (twice) x.row = cpu_x8_bytes(w.k), T *= 2;
    const struct cpu_copied copy = cpu_copied(
        c, op->copy ? &op->copy[m] : NULL,
        e * ((w.n + op->unit_rows - 1) / op->unit_rows) + row / op->unit_rows, copies_at_once(op, s));
    kernel(from, stride, n, w.k, x, T, out, copy.to, copy.made);
    if (copy.mark) *copy.mark = 1;
    for (int t = 0; twice && 2 * t < T; t++)
        c->k->add(out + 2 * t * CPU_UNIT_ROWS, out + (2 * t + 1) * CPU_UNIT_ROWS, out + t * CPU_UNIT_ROWS, n);
}

/* v[n]: what becomes of the sums of rows row .. of expert e's matrix of a member. */
static void finish(const struct cpu *c, const struct weight *stack, int e, int row, int n, float weight,
                   float *v) {
    const float *bias = weight_bias(stack, e);
    if (stack->factor != 1)
        for (int i = 0; i < n; i++) v[i] *= stack->factor;
    if (bias) c->k->add(v, bias + row, v, n);
    if (weight != 1)
        for (int i = 0; i < n; i++) v[i] *= weight;
}

static void put_outputs(const struct cpu_op *op, struct cpu_step *s, int m, int e, int row, int n, int pair,
                        float *v, float *up) {
    const struct op_experts *o = &op->op->experts;
    int t = pair / o->n_used, j = pair % o->n_used, col = j * o->w->member[m].n + row;
    float weight = o->weighted ? cpu_row(s, o->choice, t)[o->n_used + j] : 1;
    finish(s->cpu, &o->w->member[m], e, row, n, weight, v);
    if (op->epilogue == CPU_EPI_GLU) {
        const struct op_glu *g = &op->post->glu;
        finish(s->cpu, &o->w->member[1], e, row, n, weight, up);
        s->cpu->k->glu(g, v, up, cpu_row(s, g->out, t) + col, n);
        return;
    }
    for (int i = 0; i < m; i++) col += o->n_used * o->w->member[i].n;
    memcpy(cpu_row(s, o->out, t) + col, v, sizeof *v * (size_t)n);
}

/* What experts of other ranks would have put: 0, also behind a folded glu. */
static void put_none(const struct cpu_op *op, struct cpu_step *s, int pair) {
    const struct op_experts *o = &op->op->experts;
    const int t = pair / o->n_used, j = pair % o->n_used;
    const bool folded = op->epilogue == CPU_EPI_GLU;
    float *out = cpu_row(s, folded ? op->post->glu.out : o->out, t);
    for (int m = 0; m < (folded ? 1 : o->w->n_member); out += o->n_used * o->w->member[m++].n)
        memset(out + j * o->w->member[m].n, 0, sizeof *out * (size_t)o->w->member[m].n);
}

int cpu_experts_units(const struct cpu_op *op, const struct cpu_step *s) {
    const struct op_experts *o = &op->op->experts;
    int pairs = cpu_rows(s, o->x) * o->n_used, experts = o->w->member[0].n_stack;
    return op->n_unit * (pairs < experts ? pairs : experts);
}

/* Member and first row of block b of an expert. */
static int block_place(const struct cpu_op *op, int b, int *row) {
    const struct weight_group *w = op->op->experts.w;
    int m = 0;
    for (int n; b >= (n = (w->member[m].n + op->unit_rows - 1) / op->unit_rows); m++) b -= n;
    *row = b * op->unit_rows;
    return m;
}

void cpu_op_experts(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_experts *o = &op->op->experts;
    struct cpu_work *work = &s->cpu->work[thread];
    const struct cpu_pairs *p = &work->pairs;
    int T = cpu_rows(s, o->x), victim = 0, u;
    if (!T) return;
    order_pairs(o, s, T, &work->pairs);
    struct cpu_x one = {0};
    if (T == 1)
        one = prepare_one(op, s, work->pair_x);
    else
        prepare_pairs(op, s, thread, n_thread, T, p);
    for (int i = thread; o->n_all && i < T * o->n_used; i += n_thread)
        if (p->place[i] < 0) put_none(op, s, i);
    const int most = op->twice ? CPU_PANEL_TOKENS / 2 : CPU_PANEL_TOKENS;
    float *out = work->acc, *second = work->acc + (size_t)CPU_PANEL_TOKENS * CPU_UNIT_ROWS;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        if (u / op->n_unit >= p->n_hit) continue; /* experts that several rows chose */
        int row, m = block_place(op, u % op->n_unit, &row), e = p->hit[u / op->n_unit];
        int left = o->w->member[m].n - row, n = left < op->unit_rows ? left : op->unit_rows;
        const struct cpu_x x = T == 1 ? one : rows_of(op, s->cpu, p, e);
        for (int at = p->first[e], rows; at < p->first[e + 1]; at += rows) {
            rows = p->first[e + 1] - at < most ? p->first[e + 1] - at : most;
            int first = T == 1 ? p->order[at] : at - p->first[e];
            const struct cpu_x from = {x.at + x.row * (size_t)first, x.row, x.chunk};
            for (int i = 0; i < (op->epilogue == CPU_EPI_GLU ? 2 : 1); i++)
                multiply(op, s, work, m + i, e, row, n, from, rows, i ? second : out);
            for (int i = 0; i < rows; i++)
                put_outputs(op, s, m, e, row, n, p->order[at + i], out + i * CPU_UNIT_ROWS,
                            second + i * CPU_UNIT_ROWS);
        }
    }
}

/* ---- experts that another backend computes, where this one has the rest ---- */

void cpu_op_remote(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_remote *o = &op->op->remote;
    const struct remote *other = s->cpu->config.remote;
    (void)n_thread;
    for (int t = 0; !thread && t < cpu_rows(s, o->x); t++) {
        enum infer_status st =
            other->run(other->user, s->list->list->cls, op->op->layer, 1, cpu_row(s, o->x, t),
                       cpu_row(s, o->choice, t), cpu_row(s, o->out, t));
        if (st != INFER_OK) {
            cpu_fault(s, op->op, st);
            return;
        }
    }
}

/* ---- mix --------------------------------------------------------------------------------------------------------- */

void cpu_op_mix(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    enum { BLOCK = 256 }; /* columns of a share */
    const struct op_mix *o = &op->op->mix;
    int a, b, blocks = (o->out.width + BLOCK - 1) / BLOCK;
    cpu_share(cpu_rows(s, o->x) * blocks, thread, n_thread, &a, &b);
    for (int i = a; i < b; i++) {
        int t = i / blocks, col = i % blocks * BLOCK, left = o->out.width - col;
        const float *shared = o->shared.buf >= 0 ? cpu_row(s, o->shared, t) + col : NULL;
        float scale = o->gate.buf >= 0 ? router_sigmoid(*cpu_row(s, o->gate, t)) : 1;
        s->cpu->k->mix(o->plain ? NULL : cpu_row(s, o->choice, t) + o->n_used, o->n_used,
                       cpu_row(s, o->x, t) + col, (size_t)o->out.width, shared, scale,
                       cpu_row(s, o->out, t) + col, left < BLOCK ? left : BLOCK);
    }
}

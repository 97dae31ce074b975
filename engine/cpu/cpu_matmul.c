/* The two matmul ops: decode rows stream the weights past a few rows of x; prompt rows take 32 weight rows at a time
 * past all tokens. What follows (add, glu) is done while the outputs are in
 * cache, when compile folded it in. */
#include "cpu/cpu_list.h"
#include "seam/weight.h"
#include <string.h>

/* Member and row of unit u; the units of a folded glu cover the same rows of both members. */
static int unit_place(const struct cpu_op *op, int u, int *row) {
    const struct weight_group *g = op->op->matmul.w;
    for (int m = 0; m < g->n_member; m++) {
        int n = (g->member[m].n + op->unit_rows - 1) / op->unit_rows;
        if (u < n) {
            *row = u * op->unit_rows;
            return m;
        }
        u -= n;
    }
    infer_bug("unit %d is beyond matmul %s", u, op->op->name);
}

static void scale(float factor, int n, float *v) {
    for (int i = 0; i < n; i++) v[i] *= factor;
}
/* v[n]: sums of rows row .. of a weight, with its factor and its bias. */
static void scale_and_add(const struct cpu_kernels *k, const struct weight *w, int row, int n, float *v) {
    if (w->factor != 1) scale(w->factor, n, v);
    if (w->bias) k->add(v, w->bias + row, v, n);
}

/* The sums of member m's rows row .. + n, of rows t .. t + T of the step: v[T][stride]. up: the second member's, for a glu. */
static void finish(const struct cpu_op *op, struct cpu_step *s, int m, int row, int n, int t, int T, float *v,
                   float *up, size_t stride) {
    const struct cpu_kernels *k = s->cpu->k;
    const struct op_matmul *mm = &op->op->matmul;
    const struct weight *w = &mm->w->member[m];
    const bool two = op->epilogue == CPU_EPI_GLU;
    struct cpu_sums sums = {.v = v, .v_stride = stride, .out_stride = stride, .bias = w->bias, .out = v};
    int col = row;
    for (int i = 0; i < m; i++) col += mm->w->member[i].n;
    if (sums.bias) sums.bias += row;
    for (int i = 0; w->factor != 1 && i < T; i++) scale(w->factor, n, v + (size_t)i * stride);
    if (!two) {
        const struct view to = op->epilogue == CPU_EPI_ADD   ? op->post->add.out
                               : op->epilogue == CPU_EPI_MAP ? op->post->glu.out
                                                             : mm->out;
        sums.out = cpu_row(s, to, t) + col, sums.out_stride = cpu_stride(s, to);
        if (op->epilogue == CPU_EPI_MAP) sums.act = &op->post->glu;
        if (op->epilogue == CPU_EPI_ADD) {
            const struct op_add *a = &op->post->add;
            const struct view other = a->a.buf == mm->out.buf ? a->b : a->a;
            sums.other = cpu_row(s, other, t) + col, sums.other_stride = cpu_stride(s, other);
        }
    }
    if (!two && T == 1 && !sums.act) { /* of one row the ways are short */
        if (sums.bias) k->add(v, sums.bias, v, n);
        if (sums.other)
            k->add(sums.other, v, sums.out, n);
        else
            memcpy(sums.out, v, sizeof(float) * (size_t)n);
        return;
    }
    if (!two || sums.bias) k->sum_rows(&sums, n, T);
    for (int i = 0; two && i < T; i++, v += stride, up += stride) {
        scale_and_add(k, &mm->w->member[1], row, n, up);
        k->glu(&op->post->glu, v, up, cpu_row(s, op->post->glu.out, t + i) + row, n);
    }
}

/* ---- decode rows ---- */

/* Rows t0 .. t1 of x: normed when a norm is folded in, quantised when a member wants it. */
static void prepare(const struct cpu_op *op, struct cpu_step *s, int t0, int t1, float *normed, uint8_t *x8) {
    const struct op_matmul *mm = &op->op->matmul;
    const struct cpu_kernels *k = s->cpu->k;
    for (int t = t0; t < t1; t++) {
        const float *x;
        if (op->norm) {
            float *y = normed + (size_t)t * cpu_norm_floats(mm->w->k);
            k->norm(&op->norm->norm, cpu_row(s, op->norm->norm.x, t), y, mm->w->k);
            cpu_guard(s, op->norm, t, y, mm->w->k);
            x = y;
        } else {
            x = cpu_row(s, mm->x, t);
        }
        if (op->twice)
            k->quantise_twice(x8 + 2 * (size_t)t * cpu_x8_bytes(mm->w->k), x, mm->w->k);
        else if (op->need_x8)
            k->quantise(x8 + (size_t)t * cpu_x8_bytes(mm->w->k), sizeof(struct cpu_x8), x, mm->w->k);
    }
}

/* n rows of member m from its copy, if an earlier step made it. */
static void multiply_rows(struct cpu *c, const struct cpu_op *op, int m, int row, int n, struct cpu_x x,
                          int T, float *out) {
    const struct weight *w = &op->op->matmul.w->member[m];
    const size_t stride = weight_stride(w);
    const uint8_t *from = weight_row(w, row);
    const struct cpu_copied copy = cpu_copied(c, op->copy ? &op->copy[m] : NULL, row / op->unit_rows, false);
    cpu_row_fn *const *kernel = cpu_is_float(w->type)       ? c->k->gemv_float
                                : cpu_reads_floats(c->k, w) ? c->k->gemv_fine
                                                            : c->k->gemm_int8;
    if (copy.made && c->isa == CPU_ISA_AMX && cpu_tiles_can(w->type, w->k))
        for (; T >= CPU_TILE_ROWS; T -= CPU_TILE_ROWS, out += CPU_TILE_ROWS * CPU_UNIT_ROWS) {
            cpu_gemm_int8_amx[w->type](copy.to, n, w->k, x, out);
            x.at += CPU_TILE_ROWS * x.row;
        }
    if (T) kernel[w->type](from, stride, n, w->k, x, T, out, copy.to, copy.made);
    if (copy.mark) *copy.mark = 1;
}
/* The same of rows of x as they are, or in 8 bits: xf, xq. */
static void multiply_member(struct cpu *c, const struct cpu_op *op, int m, int row, int n, struct cpu_x xf,
                            struct cpu_x xq, int T, float *out) {
    const bool floats = cpu_reads_floats(c->k, &op->op->matmul.w->member[m]), twice = op->twice && !floats;
    multiply_rows(c, op, m, row, n, floats ? xf : xq, twice ? 2 * T : T, out);
    for (int t = 0; twice && t < T; t++)
        c->k->add(out + 2 * t * CPU_UNIT_ROWS, out + (2 * t + 1) * CPU_UNIT_ROWS, out + t * CPU_UNIT_ROWS, n);
}

void cpu_op_matmul_decode(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    struct cpu *c = s->cpu;
    const struct op_matmul *mm = &op->op->matmul;
    struct cpu_work *work = &c->work[thread];
    int T = cpu_rows(s, mm->x), K = mm->w->k, victim = 0, u;
    if (!T) return;
    float *normed = work->norm;
    uint8_t *x8 = work->x8;
    if (T <= CPU_OWN_ROWS) {
        prepare(op, s, 0, T, normed, x8); /* everyone for himself: dearer than a barrier only for many rows */
    } else if (op->norm || op->need_x8) {
        int t0, t1;
        normed = c->norm;
        x8 = c->x8;
        cpu_share(T, thread, n_thread, &t0, &t1);
        prepare(op, s, t0, t1, normed, x8);
        cpu_barrier(s);
    }
    const struct cpu_x xf = {
        .at = (const void *)(op->norm ? normed : cpu_row(s, mm->x, 0)),
        .row = (op->norm ? cpu_norm_floats(K) : cpu_stride(s, mm->x)) * sizeof(float),
    };
    const struct cpu_x xq = {x8, cpu_x8_bytes(K), sizeof(struct cpu_x8)};
    float *second = work->out + (size_t)(op->twice ? 2 * T : T) * CPU_UNIT_ROWS;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int row, m = unit_place(op, u, &row);
        int n = mm->w->member[m].n - row < op->unit_rows ? mm->w->member[m].n - row : op->unit_rows;
        for (int i = 0; i < (op->epilogue == CPU_EPI_GLU ? 2 : 1); i++)
            multiply_member(c, op, m + i, row, n, xf, xq, T, i ? second : work->out);
        finish(op, s, m, row, n, 0, T, work->out, second, CPU_UNIT_ROWS);
    }
}

/* ---- prompt rows ---- */

static inline int k_padded(int k) { return (k + 31) & ~31; }
size_t cpu_x_panel_bytes(int rows, int k) {
    size_t row = (size_t)k_padded(k) * sizeof(float);
    if (row < cpu_x8_bytes(k)) row = cpu_x8_bytes(k);
    if (row < cpu_x16_bytes(k)) row = cpu_x16_bytes(k);
    return (size_t)(rows + CPU_LANES - 1) / CPU_LANES * CPU_LANES * row;
}
static size_t panel_bytes(enum cpu_route route, int k) { /* of one panel */
    return (size_t)k_padded(k) * CPU_LANES * (route == CPU_ROUTE_BF16 ? 2 : 4);
}

/* One unit's rows of member w in float32 times panels of up to CPU_PANEL_TOKENS tokens:
 * acc[panel][CPU_PANEL_ROWS][CPU_LANES]. Rows past n keep what was there, and nobody reads their sums. */
static void unit_multiply(struct cpu *c, struct cpu_work *work, const struct weight *w, int row, int n,
                          const uint8_t *panel, int n_panel, float *acc) {
    const struct quant_info *q = quant_info(w->type);
    size_t elems = (size_t)k_padded(w->k) * CPU_LANES, stride = weight_stride(w);
    float *weights = (float *)(void *)work->weights;
    memset(acc, 0, sizeof(float) * (size_t)n_panel * CPU_PANEL_ROWS * CPU_LANES);
    const void *first = weight_row(w, row);
    if (w->type == QUANT_F32 && n == CPU_PANEL_ROWS) { /* as they lie */
        c->k->gemm_f32(first, stride / sizeof(float), w->k, (const float *)(const void *)panel, elems,
                       n_panel, acc);
        return;
    }
    for (int k0 = 0; k0 < w->k; k0 += CPU_PANEL_K) {
        int kb = w->k - k0 < CPU_PANEL_K ? w->k - k0 : CPU_PANEL_K;
        const uint8_t *src = (const uint8_t *)first + quant_row_bytes(q, (size_t)k0);
        for (int r = 0; r < n; r++, src += stride)
            c->k->dequant_f32[w->type](weights + (size_t)r * CPU_PANEL_STRIDE, src, weight_end(w), kb);
        c->k->gemm_f32(weights, CPU_PANEL_STRIDE, kb,
                       (const float *)(const void *)panel + (size_t)k0 * CPU_LANES, elems, n_panel, acc);
    }
}

/* A unit's outputs for tokens t0 .. t0 + tokens, from acc: the routes in integers have them by token, the others by
 * weight row. */
static void write_out(const struct cpu_op *op, struct cpu_step *s, struct cpu_work *work, int m, int row,
                      int n, int t0, int tokens) {
    size_t acc_floats = (size_t)CPU_PANEL_TOKENS * CPU_PANEL_ROWS;
    if (op->route == CPU_ROUTE_INT8 || op->route == CPU_ROUTE_INT16) {
        finish(op, s, m, row, n, t0, tokens, work->acc, work->acc + acc_floats, CPU_PANEL_ROWS);
        return;
    }
    for (int p = 0; p * CPU_LANES < tokens; p++) {
        float y[2][CPU_LANES * CPU_PANEL_ROWS];
        for (int i = 0; i < (op->epilogue == CPU_EPI_GLU ? 2 : 1); i++)
            s->cpu->k->untile(work->acc + (size_t)i * acc_floats + (size_t)p * CPU_PANEL_ROWS * CPU_LANES,
                              y[i]);
        const int t = p * CPU_LANES, left = tokens - t < CPU_LANES ? tokens - t : CPU_LANES;
        finish(op, s, m, row, n, t0 + t, left, y[0], y[1], CPU_PANEL_ROWS);
    }
}

/* ---- AMX: the rows of the next job are unpacked while the tiles work on this one ---- */

struct
    job { /* one unpacking: CPU_PANEL_ROWS rows of a member, up to CPU_PANEL_K columns, for one group of tokens */
    int unit; /* -1: none */
    int m, row, n;
    int t0, i, k0; /* first token; member of a folded glu; first column */
};

static struct job first_job(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread,
                            int *victim) {
    struct job j = {.unit = cpu_unit_next(op, s, thread, n_thread, victim)};
    if (j.unit < 0) return j;
    j.m = unit_place(op, j.unit, &j.row);
    int rows = op->op->matmul.w->member[j.m].n - j.row;
    j.n = rows < op->unit_rows ? rows : op->unit_rows;
    return j;
}
/* Columns inside, then members, then groups of tokens, then units. */
static struct job next_job(struct job j, const struct cpu_op *op, struct cpu_step *s, int thread,
                           int n_thread, int *victim, int T) {
    int members = op->epilogue == CPU_EPI_GLU ? 2 : 1;
    j.k0 += CPU_PANEL_K;
    if (j.k0 < op->op->matmul.w->k) return j;
    j.k0 = 0;
    if (++j.i < members) return j;
    j.i = 0;
    j.t0 += CPU_PANEL_TOKENS;
    return j.t0 < T ? j : first_job(op, s, thread, n_thread, victim);
}
static struct cpu_amx_rows rows_of(const struct job *j, const struct cpu_op *op, const struct cpu *c,
                                   uint16_t *dst) {
    struct cpu_amx_rows r = {.dst = dst};
    if (j->unit < 0) return r;
    const struct weight *w = &op->op->matmul.w->member[j->m + j->i];
    const struct quant_info *q = quant_info(w->type);
    r.unpack = c->k->dequant_bf16[w->type];
    r.stride = weight_stride(w);
    r.src = (const uint8_t *)weight_row(w, j->row) + quant_row_bytes(q, (size_t)j->k0);
    r.end = weight_end(w);
    r.bytes_256 = quant_row_bytes(q, 256);
    r.n = j->n;
    r.k = w->k - j->k0 < CPU_PANEL_K ? w->k - j->k0 : CPU_PANEL_K;
    r.total = r.n * ((r.k + 255) / 256);
    return r;
}
static void tile_units(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread, int T) {
    struct cpu *c = s->cpu;
    struct cpu_work *work = &c->work[thread];
    int K = op->op->matmul.w->k, members = op->epilogue == CPU_EPI_GLU ? 2 : 1, victim = 0;
    size_t elems = (size_t)k_padded(K) * CPU_LANES, acc_floats = (size_t)CPU_PANEL_TOKENS * CPU_PANEL_ROWS;
    uint16_t *now = (uint16_t *)(void *)work->weights, *then = now + CPU_PANEL_ROWS * CPU_PANEL_STRIDE;
    struct job j = first_job(op, s, thread, n_thread, &victim);
    struct cpu_amx_rows rows = rows_of(&j, op, c, now);
    cpu_amx_dequant(&rows, rows.total);
    while (j.unit >= 0) {
        struct job next = next_job(j, op, s, thread, n_thread, &victim, T);
        struct cpu_amx_rows side = rows_of(&next, op, c, then);
        int tokens = T - j.t0 < CPU_PANEL_TOKENS ? T - j.t0 : CPU_PANEL_TOKENS;
        int n_panel = (tokens + CPU_LANES - 1) / CPU_LANES;
        const uint16_t *panel = (const uint16_t *)(const void *)c->panel + (size_t)(j.t0 / CPU_LANES) * elems;
        float *acc = work->acc + (size_t)j.i * acc_floats;
        if (!j.k0) memset(acc, 0, sizeof(float) * (size_t)n_panel * CPU_PANEL_ROWS * CPU_LANES);
        cpu_amx_gemm(now, k_padded(rows.k), panel + (size_t)j.k0 * CPU_LANES, elems, n_panel, acc, &side);
        if (j.k0 + CPU_PANEL_K >= K && j.i + 1 == members)
            write_out(op, s, work, j.m, j.row, j.n, j.t0, tokens);
        uint16_t *swap = now;
        now = then, then = swap, j = next, rows = side;
    }
}

/* The rows of a prompt in integers: the same columns of all T rows one after the other. */
static struct cpu_x integer_rows(const struct cpu *c, enum cpu_route route, int T) {
    size_t row = route == CPU_ROUTE_INT8 ? sizeof(struct cpu_x8) : sizeof(struct cpu_x16);
    return (struct cpu_x){c->panel, row, row * (size_t)T};
}

/* This thread's share of x as the route wants it: rows in integers, or panels of 16 tokens. */
static void prepare_panels(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread, int T) {
    struct cpu *c = s->cpu;
    const struct op_matmul *mm = &op->op->matmul;
    int K = mm->w->k, a, b;
    size_t x_stride = cpu_stride(s, mm->x);
    if (op->route == CPU_ROUTE_INT8 || op->route == CPU_ROUTE_INT16) {
        const struct cpu_x rows = integer_rows(c, op->route, T);
        cpu_share(T, thread, n_thread, &a, &b);
        for (int t = a; t < b; t++)
            (op->route == CPU_ROUTE_INT8 ? c->k->quantise : c->k->quantise16)(
                c->panel + (size_t)t * rows.row, rows.chunk, cpu_row(s, mm->x, t), K);
        return;
    }
    cpu_share((T + CPU_LANES - 1) / CPU_LANES, thread, n_thread, &a, &b);
    for (int p = a; p < b; p++) {
        int n = T - p * CPU_LANES < CPU_LANES ? T - p * CPU_LANES : CPU_LANES;
        const float *x = cpu_row(s, mm->x, p * CPU_LANES);
        uint8_t *y = c->panel + (size_t)p * panel_bytes(op->route, K);
        if (op->route == CPU_ROUTE_BF16)
            cpu_amx_prep((uint16_t *)(void *)y, x, x_stride, n, K);
        else
            c->k->prep_f32((float *)(void *)y, x, x_stride, n, K);
    }
}

void cpu_op_matmul_prompt(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    struct cpu *c = s->cpu;
    const struct op_matmul *mm = &op->op->matmul;
    struct cpu_work *work = &c->work[thread];
    int T = cpu_rows(s, mm->x), K = mm->w->k, victim = 0, u;
    if (!T) return;
    if (!cpu_in_middle(s, op)) {
        prepare_panels(op, s, thread, n_thread, T);
        cpu_barrier(s);
    }
    if (op->route == CPU_ROUTE_BF16) {
        tile_units(op, s, thread, n_thread, T);
        return;
    }
    /* units of weight rows */
    size_t acc_floats = (size_t)CPU_PANEL_TOKENS * CPU_PANEL_ROWS, one = panel_bytes(op->route, K);
    const struct cpu_x rows = integer_rows(c, op->route, T);
    int members = op->epilogue == CPU_EPI_GLU ? 2 : 1;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int row, m = unit_place(op, u, &row);
        int n = mm->w->member[m].n - row < op->unit_rows ? mm->w->member[m].n - row : op->unit_rows;
        for (int t0 = 0; t0 < T; t0 += CPU_PANEL_TOKENS) {
            int tokens = T - t0 < CPU_PANEL_TOKENS ? T - t0 : CPU_PANEL_TOKENS;
            const uint8_t *panel = c->panel + (size_t)(t0 / CPU_LANES) * one;
            for (int i = 0; i < members; i++) {
                const struct weight *w = &mm->w->member[m + i];
                float *acc = work->acc + (size_t)i * acc_floats;
                if (op->route == CPU_ROUTE_INT8 || op->route == CPU_ROUTE_INT16)
                    (op->route == CPU_ROUTE_INT8 ? c->k->gemm_int8[w->type] : cpu_int16(c->k, w))(
                        weight_row(w, row), weight_stride(w), n, K,
                        (struct cpu_x){rows.at + (size_t)t0 * rows.row, rows.row, rows.chunk}, tokens, acc,
                        NULL, false);
                else
                    unit_multiply(c, work, w, row, n, panel, (tokens + CPU_LANES - 1) / CPU_LANES, acc);
            }
            write_out(op, s, work, m, row, n, t0, tokens);
        }
    }
}

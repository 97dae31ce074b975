/* The two matmul ops: decode rows stream the weights past a few quantised rows of x; prompt rows unpack 32 weight
 * rows at a time and multiply them with all tokens. What follows (add, glu) is done while the outputs are in
 * cache, when compile folded it in. */
#include "cpu.h"
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

static size_t row_bytes(const struct weight *w) { return quant_row_bytes(quant_info(w->type), (size_t)w->k); }
static const uint8_t *weight_end(const struct weight *w) {
    return (const uint8_t *)w->data + row_bytes(w) * (size_t)w->n * (size_t)w->n_stack;
}

/* v[n]: outputs column .. of member m, row t, without bias. up: the second member's, for a glu. */
static void finish(const struct cpu_op *op, struct cpu_step *s, int m, int row, int n, int t, float *v,
                   float *up) {
    const struct cpu_kernels *k = s->cpu->k;
    const struct op_matmul *mm = &op->op->matmul;
    const struct weight *w = &mm->w->member[m];
    int col = row;
    for (int i = 0; i < m; i++) col += mm->w->member[i].n;
    if (w->bias) k->add(v, w->bias + row, v, n);
    if (op->epilogue == CPU_EPI_GLU) {
        const struct op_glu *g = &op->post->glu;
        if (mm->w->member[1].bias) k->add(up, mm->w->member[1].bias + row, up, n);
        k->glu(g->act, v, up, cpu_row(s, g->out, t) + row, n);
    } else if (op->epilogue == CPU_EPI_ADD) {
        const struct op_add *a = &op->post->add;
        struct view other = a->a.buf == mm->out.buf ? a->b : a->a;
        k->add(cpu_row(s, other, t) + col, v, cpu_row(s, a->out, t) + col, n);
    } else {
        memcpy(cpu_row(s, mm->out, t) + col, v, sizeof(float) * (size_t)n);
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
            float *y = normed + (size_t)t * (size_t)cpu_kp(mm->w->k);
            k->norm(&op->norm->norm, cpu_row(s, op->norm->norm.x, t), y, mm->w->k);
            x = y;
        } else {
            x = cpu_row(s, mm->x, t);
        }
        if (op->need_x8) k->quantise(x8 + (size_t)t * cpu_x8_bytes(mm->w->k), x, mm->w->k);
    }
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
    const void *xf = op->norm ? normed : cpu_row(s, mm->x, 0);
    size_t xf_stride = op->norm ? (size_t)cpu_kp(K) * sizeof(float) : cpu_stride(s, mm->x) * sizeof(float);
    float *second = work->out + (size_t)T * CPU_UNIT_ROWS;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int row, m = unit_place(op, u, &row);
        int n = mm->w->member[m].n - row < op->unit_rows ? mm->w->member[m].n - row : op->unit_rows;
        for (int i = 0; i < (op->epilogue == CPU_EPI_GLU ? 2 : 1); i++) {
            const struct weight *w = &mm->w->member[m + i];
            bool plain = cpu_is_float(w->type);
            size_t stride = row_bytes(w);
            c->k->row[w->type]((const uint8_t *)w->data + stride * (size_t)row, stride, weight_end(w), n, K,
                               plain ? xf : x8, plain ? xf_stride : cpu_x8_bytes(K), T,
                               i ? second : work->out);
        }
        for (int t = 0; t < T; t++)
            finish(op, s, m, row, n, t, work->out + t * CPU_UNIT_ROWS, second + t * CPU_UNIT_ROWS);
    }
}

/* ---- prompt rows ---- */

static inline int k_padded(int k) { return (k + 31) & ~31; }
size_t cpu_panel_bytes(int rows, int k) {
    size_t panels = (size_t)(rows + CPU_LANES - 1) / CPU_LANES + 1; /* the 8-bit kernel looks one ahead */
    return panels * (size_t)k_padded(k) * CPU_LANES * sizeof(float);
}
static size_t panel_bytes(enum cpu_route route, int k) { /* of one panel */
    if (route == CPU_ROUTE_INT8) return cpu_x8_panel_bytes(k);
    return (size_t)k_padded(k) * CPU_LANES * (route == CPU_ROUTE_BF16 ? 2 : 4);
}

/* n rows of x as int8 beside each other; the lanes past n keep codes of earlier steps, and nobody reads their sums. */
static void prep_int8(struct cpu *c, struct cpu_work *work, uint8_t *panel, const float *x, size_t x_stride,
                      int n, int k) {
    int kp = cpu_kp(k);
    for (int t = 0; t < n; t++) {
        const uint8_t *row = work->x8_row;
        c->k->quantise(work->x8_row, x + (size_t)t * x_stride, k);
        for (int i = 0; i < k / 4; i++)
            memcpy(panel + ((size_t)i * CPU_LANES + (size_t)t) * 4, row + 4 * i, 4);
        float *d = (float *)(void *)(panel + (size_t)k * CPU_LANES) + t;
        float *s32 = d + k / 32 * CPU_LANES, *s16 = s32 + k / 32 * CPU_LANES;
        for (int i = 0; i < k / 32; i++) {
            d[i * CPU_LANES] = cpu_x8_d(row, kp)[i];
            s32[i * CPU_LANES] = cpu_x8_s32(row, kp)[i];
            s16[2 * i * CPU_LANES] = cpu_x8_s16(row, kp)[2 * i];
            s16[(2 * i + 1) * CPU_LANES] = cpu_x8_s16(row, kp)[2 * i + 1];
        }
    }
}

/* CPU_PANEL_ROWS rows of w from row on, columns k0 .. k0 + kb, as the route wants them; rows past n keep what was
 * there, and nobody reads their sums. */
static void unpack_rows(const struct cpu_op *op, struct cpu *c, struct cpu_work *work, const struct weight *w,
                        int row, int n, int k0, int kb) {
    const struct quant_info *q = quant_info(w->type);
    size_t stride = row_bytes(w);
    const uint8_t *src = (const uint8_t *)w->data + stride * (size_t)row + quant_row_bytes(q, (size_t)k0);
    for (int r = 0; r < n; r++, src += stride) {
        size_t at = (size_t)r * CPU_PANEL_STRIDE;
        if (op->route == CPU_ROUTE_INT8) {
            float *d = work->scales + r * CPU_PANEL_SUBS, *g = d + CPU_PANEL_ROWS * CPU_PANEL_SUBS;
            c->k->int8[w->type].codes(work->weights + at, d, g, src, weight_end(w), kb);
        } else if (op->route == CPU_ROUTE_BF16) {
            uint16_t *y = (uint16_t *)(void *)work->weights + at;
            c->k->unpack_bf16[w->type](y, src, weight_end(w), kb);
            if (kb < k_padded(kb)) memset(y + kb, 0, (size_t)(k_padded(kb) - kb) * 2);
        } else {
            c->k->unpack_f32[w->type]((float *)(void *)work->weights + at, src, weight_end(w), kb);
        }
    }
}

/* One unit's rows of member w times panels of up to CPU_PANEL_TOKENS tokens: acc[panel][CPU_PANEL_ROWS][CPU_LANES] */
static void unit_multiply(const struct cpu_op *op, struct cpu *c, struct cpu_work *work,
                          const struct weight *w, int row, int n, const uint8_t *panel, int n_panel,
                          float *acc) {
    size_t elems = (size_t)k_padded(w->k) * CPU_LANES;
    memset(acc, 0, sizeof(float) * (size_t)n_panel * CPU_PANEL_ROWS * CPU_LANES);
    for (int k0 = 0; k0 < w->k; k0 += CPU_PANEL_K) {
        int kb = w->k - k0 < CPU_PANEL_K ? w->k - k0 : CPU_PANEL_K;
        unpack_rows(op, c, work, w, row, n, k0, kb);
        const void *weights = work->weights;
        if (op->route == CPU_ROUTE_INT8)
            c->k->int8[w->type].gemm(weights, work->scales, work->scales + CPU_PANEL_ROWS * CPU_PANEL_SUBS,
                                     kb, panel, w->k, k0, n_panel, acc);
        else if (op->route == CPU_ROUTE_BF16)
            cpu_amx_gemm(weights, k_padded(kb),
                         (const uint16_t *)(const void *)panel + (size_t)k0 * CPU_LANES, elems, n_panel, acc);
        else
            c->k->gemm_f32(weights, kb, (const float *)(const void *)panel + (size_t)k0 * CPU_LANES, elems,
                           n_panel, acc);
    }
}

void cpu_op_matmul_prompt(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    struct cpu *c = s->cpu;
    const struct op_matmul *mm = &op->op->matmul;
    struct cpu_work *work = &c->work[thread];
    int T = cpu_rows(s, mm->x), K = mm->w->k, victim = 0, u, a, b;
    size_t one = panel_bytes(op->route, K), x_stride = cpu_stride(s, mm->x);
    if (!T) return;
    /* x into panels of 16 tokens */
    cpu_share((T + CPU_LANES - 1) / CPU_LANES, thread, n_thread, &a, &b);
    for (int p = a; p < b; p++) {
        int n = T - p * CPU_LANES < CPU_LANES ? T - p * CPU_LANES : CPU_LANES;
        const float *x = cpu_row(s, mm->x, p * CPU_LANES);
        void *y = c->panel + (size_t)p * one;
        if (op->route == CPU_ROUTE_INT8)
            prep_int8(c, work, y, x, x_stride, n, K);
        else if (op->route == CPU_ROUTE_BF16)
            cpu_amx_prep(y, x, x_stride, n, K);
        else
            c->k->prep_f32(y, x, x_stride, n, K);
    }
    cpu_barrier(s);
    /* units of weight rows */
    size_t acc_floats = (size_t)CPU_PANEL_TOKENS * CPU_PANEL_ROWS;
    int members = op->epilogue == CPU_EPI_GLU ? 2 : 1;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int row, m = unit_place(op, u, &row);
        int n = mm->w->member[m].n - row < CPU_PANEL_ROWS ? mm->w->member[m].n - row : CPU_PANEL_ROWS;
        for (int t0 = 0; t0 < T; t0 += CPU_PANEL_TOKENS) {
            int tokens = T - t0 < CPU_PANEL_TOKENS ? T - t0 : CPU_PANEL_TOKENS;
            int n_panel = (tokens + CPU_LANES - 1) / CPU_LANES;
            for (int i = 0; i < members; i++)
                unit_multiply(op, c, work, &mm->w->member[m + i], row, n,
                              c->panel + (size_t)(t0 / CPU_LANES) * one, n_panel,
                              work->acc + (size_t)i * acc_floats);
            for (int p = 0; p < n_panel; p++) {
                float y[2][CPU_LANES * CPU_PANEL_ROWS];
                for (int i = 0; i < members; i++)
                    c->k->untile(work->acc + (size_t)i * acc_floats + (size_t)p * CPU_PANEL_ROWS * CPU_LANES,
                                 y[i]);
                for (int t = 0; t < CPU_LANES && p * CPU_LANES + t < tokens; t++)
                    finish(op, s, m, row, n, t0 + p * CPU_LANES + t, y[0] + t * CPU_PANEL_ROWS,
                           y[1] + t * CPU_PANEL_ROWS);
            }
        }
    }
}

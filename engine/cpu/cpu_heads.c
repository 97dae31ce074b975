/* A matrix for each head: what latent attention does to queries and to sums of latents. Units: blocks of rows of one head's matrix, times all
 * rows of the step, in float32; quantised rows are unpacked once for all of them. */
#include "cpu/cpu_list.h"
#include "seam/weight.h"
#include <string.h>

/* Rows row .. row + n of head h's matrix, times T rows of the step from t on. */
static void product(const struct cpu_op *op, struct cpu_step *s, struct cpu_work *work, int h, int row, int n,
                    int t, int T) {
    const struct op_heads *o = &op->op->heads;
    const struct weight w = weight_matrix(&o->w->member[0], h);
    struct cpu *c = s->cpu;
    int rest = op_heads_rest(o);
    const struct cpu_x x = {(const uint8_t *)(cpu_row(s, o->x, t) + h * (w.k + rest)),
                            cpu_stride(s, o->x) * sizeof(float), 0};
    float *y = work->acc;
    if (cpu_is_float(w.type))
        c->k->gemv_float[w.type]((const uint8_t *)w.data + weight_stride(&w) * (size_t)row, weight_stride(&w),
                                 n, w.k, x, T, y, NULL, false);
    else
        cpu_multiply_unpacked(c, work, &w, row, n, x, T, y);
    for (int i = 0; i < T; i++) {
        float *out = cpu_row(s, o->out, t + i) + h * (w.n + rest) + row;
        for (int r = 0; r < n; r++) out[r] = y[i * CPU_UNIT_ROWS + r] * w.factor;
    }
}

void cpu_op_heads(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_heads *o = &op->op->heads;
    const struct weight *w = &o->w->member[0];
    int blocks = op->n_unit / w->n_stack, rest = op_heads_rest(o), T = cpu_rows(s, o->x), victim = 0, u;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int h = u / blocks, row = u % blocks * op->unit_rows;
        int n = w->n - row < op->unit_rows ? w->n - row : op->unit_rows;
        for (int t = 0; t < T; t += CPU_PANEL_TOKENS)
            product(op, s, &s->cpu->work[thread], h, row, n, t,
                    T - t < CPU_PANEL_TOKENS ? T - t : CPU_PANEL_TOKENS);
        for (int t = 0; row == 0 && rest && t < T; t++)
            memcpy(cpu_row(s, o->out, t) + h * (w->n + rest) + w->n,
                   cpu_row(s, o->x, t) + h * (w->k + rest) + w->k, (size_t)rest * sizeof(float));
    }
}

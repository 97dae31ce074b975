/* Operations with a matrix of each head as state. A unit is some columns of a head's matrix: each thread has units of its own, for all
 * rows, so that the state stays with it. */
#include "cpu/cpu_list.h"

/* The columns of unit u and those behind it that are of the same head and before unit end. Returns the next unit. */
static int unit_columns(int u, int end, int columns, int *head, int *c0, int *c1) {
    const int each = (columns + CPU_STATE_COLUMNS - 1) / CPU_STATE_COLUMNS;
    const int next = (u / each + 1) * each < end ? (u / each + 1) * each : end;
    *head = u / each;
    *c0 = u % each * CPU_STATE_COLUMNS;
    *c1 = *c0 + (next - u) * CPU_STATE_COLUMNS;
    if (*c1 > columns) *c1 = columns;
    return next;
}

/* Rows from t on that are of one sequence. */
static int run_length(const struct cpu_step *s, int t) {
    int n = 1;
    while (t + n < s->n_row && s->s->slot[t + n] == s->s->slot[t]) n++;
    return n;
}

void cpu_op_delta(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_delta *o = &op->op->delta;
    struct cpu *c = s->cpu;
    const size_t n_elem = (size_t)c->config.state[o->state].n_elem;
    int a, b, h, c0, c1;
    cpu_share(o->n_value * ((o->dv + CPU_STATE_COLUMNS - 1) / CPU_STATE_COLUMNS), thread, n_thread, &a, &b);
    for (int t = 0, n; t < s->n_row; t += n) {
        n = run_length(s, t);
        const struct cpu_state_rows r = {
            .x = cpu_row(s, o->qkv, t),
            .a = cpu_row(s, o->a, t),
            .b = cpu_row(s, o->b, t),
            .out = cpu_row(s, o->out, t),
            .x_stride = cpu_stride(s, o->qkv),
            .a_stride = cpu_stride(s, o->a),
            .b_stride = cpu_stride(s, o->b),
            .out_stride = cpu_stride(s, o->out),
            .n = n,
            .pos = s->s->pos[t],
        };
        for (int u = a; u < b;) {
            u = unit_columns(u, b, o->dv, &h, &c0, &c1);
            c->k->delta(o, h, c0, c1, &r, c->state[o->state] + (size_t)s->s->slot[t] * n_elem);
        }
    }
}

void cpu_op_ssm(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_ssm *o = &op->op->ssm;
    struct cpu *c = s->cpu;
    const size_t n_elem = (size_t)c->config.state[o->state].n_elem;
    int a, b, h, c0, c1;
    cpu_share(o->n_head * ((o->head_dim + CPU_STATE_COLUMNS - 1) / CPU_STATE_COLUMNS), thread, n_thread, &a,
              &b);
    for (int t = 0, n; t < s->n_row; t += n) {
        n = run_length(s, t);
        const struct cpu_state_rows r = {
            .x = cpu_row(s, o->xbc, t),
            .a = cpu_row(s, o->dt, t),
            .out = cpu_row(s, o->out, t),
            .x_stride = cpu_stride(s, o->xbc),
            .a_stride = cpu_stride(s, o->dt),
            .out_stride = cpu_stride(s, o->out),
            .n = n,
            .pos = s->s->pos[t],
        };
        for (int u = a; u < b;) {
            u = unit_columns(u, b, o->head_dim, &h, &c0, &c1);
            c->k->ssm(o, h, c0, c1, &r, c->state[o->state] + (size_t)s->s->slot[t] * n_elem);
        }
    }
}

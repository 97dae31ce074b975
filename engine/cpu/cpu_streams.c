/* Several residual streams, and entries of runs of positions: plain loops, which compilers make vectors of. An element's sum has one order,
 * wherever it is computed. */
#include "cpu/cpu_list.h"
#include "seam/balance.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 }; /* elements that a thread takes at once */

void cpu_op_balance(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_balance *o = &op->op->balance;
    int a, b;
    cpu_share(cpu_rows(s, o->x), thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) balance_row(o, cpu_row(s, o->x, t), cpu_row(s, o->out, t));
}

/* sum[k][] = write[k] y + sum_j M[j][k] x[j], n elements from i on. */
static void mix_block(const struct op_streams *o, const float *x, const float *M, const float *y,
                      const float *write, int i, int n, float sum[STREAMS_MAX][BLOCK]) {
    const int m = op_streams_out(o), d = o->x.width / o->n;
    for (int k = 0; k < m; k++) {
        for (int e = 0; e < n; e++) sum[k][e] = y ? write[k] * y[i + e] : 0;
        for (int j = 0; j < o->n; j++) {
            const float f = M[j * m + k], *from = x + j * d + i;
            for (int e = 0; e < n; e++) sum[k][e] += f * from[e];
        }
    }
}
/* Blocks of all rows are shared. */
void cpu_op_streams(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_streams *o = &op->op->streams;
    const int m = op_streams_out(o), d = o->x.width / o->n, blocks = (d + BLOCK - 1) / BLOCK;
    float sum[STREAMS_MAX][BLOCK];
    int a, b;
    cpu_share(cpu_rows(s, o->x) * blocks, thread, n_thread, &a, &b);
    for (int u = a; u < b; u++) {
        const int t = u / blocks, i = u % blocks * BLOCK, n = d - i < BLOCK ? d - i : BLOCK;
        const bool writes = o->write.buf >= 0;
        mix_block(o, cpu_row(s, o->x, t), cpu_row(s, o->M, t), writes ? cpu_row(s, o->y, t) : NULL,
                  writes ? cpu_row(s, o->write, t) : NULL, i, n, sum);
        for (int k = 0; k < m; k++)
            memcpy(cpu_row(s, o->out, t) + k * d + i, sum[k], (size_t)n * sizeof(float));
    }
}

/* Channels c .. c + n of the entry of the run that ends at pos. */
static void entry_block(const struct op_compress *o, const float *state, int pos, int c, int n, float *out) {
    const int width = o->x.width, span = op_compress_span(o), run = pos + 1 - o->ratio,
              first = run ? pos + 1 - span : run;
    float top[BLOCK], sum[BLOCK] = {0};
    for (int e = 0; e < n; e++) top[e] = -INFINITY, out[e] = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int p = first; p <= pos; p++) {
            const int at = span > o->ratio && p >= run ? c + o->out.width : c;
            const float *x = state + (size_t)(p % span) * 2 * (size_t)width + at, *gate = x + width,
                        *bias = o->bias + p % o->ratio * width + at;
            for (int e = 0; e < n && !pass; e++)
                top[e] = gate[e] + bias[e] > top[e] ? gate[e] + bias[e] : top[e];
            for (int e = 0; e < n && pass; e++) {
                const float w = expf(gate[e] + bias[e] - top[e]);
                sum[e] += w;
                out[e] += w * x[e];
            }
        }
    for (int e = 0; e < n; e++) out[e] /= sum[e];
}
/* Channels c .. c + n of out, and what the state has of them, of one row. */
static void compress_block(const struct op_compress *o, const float *x, const float *gate, int pos, int c,
                           int n, float *state, float *out) {
    const int width = o->x.width, N = o->out.width;
    float *place = state + (size_t)(pos % op_compress_span(o)) * 2 * (size_t)width;
    for (int half = c; half < width; half += N) {
        memcpy(place + half, x + half, (size_t)n * sizeof *place);
        memcpy(place + width + half, gate + half, (size_t)n * sizeof *place);
    }
    if ((pos + 1) % o->ratio)
        memset(out + c, 0, (size_t)n * sizeof *out);
    else
        entry_block(o, state, pos, c, n, out + c);
}
/* Each thread has channels of its own, for all rows: their state stays with it. */
void cpu_op_compress(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_compress *o = &op->op->compress;
    const size_t n_elem = (size_t)s->cpu->config.state[o->state].n_elem;
    const int N = o->out.width;
    int a, b;
    cpu_share((N + BLOCK - 1) / BLOCK, thread, n_thread, &a, &b);
    for (int t = 0; t < s->n_row; t++)
        for (int c = a * BLOCK; c < b * BLOCK && c < N; c += BLOCK)
            compress_block(o, cpu_row(s, o->x, t), cpu_row(s, o->gate, t), s->s->pos[t], c,
                           N - c < BLOCK ? N - c : BLOCK,
                           s->cpu->state[o->state] + (size_t)s->s->slot[t] * n_elem, cpu_row(s, o->out, t));
}

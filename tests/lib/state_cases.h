/* Operations with a matrix of each head as state, on one backend, against sums over all positions before (no state in them, doubles):
 *   delta: d_i = beta_i (v_i - e^{G_i} S0^T k_i - sum_{j<i} e^{G_i - G_j} (k_i . k_j) d_j),  o_i = e^{G_i} S0^T q_i + sum_{j<=i} e^{G_i - G_j} (q_i . k_j) d_j
 *   ssm:   d_i = D_i x_i,                                                                   o_i = the same + skip x_i, with k = B, q = C
 * with G the sum of the decays' logarithms; the state behind is e^{G_n} S0 + sum_j e^{G_n - G_j} k_j d_j^T. And bits: a run cut anywhere,
 * beside others, by any number of threads. */
#pragma once
#include "tests/lib/test.h"
#include "tests/lib/seam_step.h"
#include "seam/op_list.h"

#include <math.h>

enum { STATE_ROWS = 200, STATE_SLOTS = 4 };
struct state_setting {
    const struct backend_type *type;
    const char *isa;
    int threads;
    enum row_class cls;
    double tolerance; /* root mean square of the error over that of the numbers */
};
/* n_group of ssm: heads that share B and C; of delta: key heads. dk is n_state, dv head_dim. lo of delta: beta, 0: 1; hi: 1: rows decay by themselves. */
struct state_case {
    enum op_kind kind;
    int n_group, n_head, dk, dv, tiled;
    float lo, hi;
};
static const struct state_case state_cases[] = {
    {OP_DELTA, 1, 1, 1, 1, 0, 0, 0},         {OP_DELTA, 2, 6, 8, 12, 0, 0, 0},
    {OP_DELTA, 2, 6, 8, 12, 1, 0, 0},        {OP_DELTA, 3, 3, 33, 7, 1, 0, 0},
    {OP_DELTA, 1, 2, 128, 128, 0, 0, 0},     {OP_DELTA, 2, 4, 64, 256, 1, 0, 0},
    {OP_DELTA, 3, 3, 24, 48, 0, 2, 0},       {OP_DELTA, 3, 3, 24, 40, 0, 0, 1},
    {OP_DELTA, 2, 2, 128, 128, 0, 0, 1},     {OP_SSM, 1, 1, 1, 1, 0, 0, 1},
    {OP_SSM, 2, 6, 5, 10, 0, 0, INFINITY},   {OP_SSM, 3, 6, 16, 7, 0, 0.3f, 0.9f},
    {OP_SSM, 1, 2, 128, 64, 0, 0, INFINITY}, {OP_SSM, 1, 2, 256, 64, 0, 0, INFINITY},
};
enum { STATE_CASES = sizeof state_cases / sizeof *state_cases };

/* Decays of a head. */
static inline int state_decays(const struct state_case *c) {
    return c->kind == OP_DELTA && c->hi != 0 ? c->dk : 1;
}
static inline int state_in_width(const struct state_case *c) {
    int heads = c->n_group * c->dk * 2 + c->n_head * c->dv;
    return heads + c->n_head * (c->kind == OP_DELTA ? 1 + state_decays(c) : 1);
}
static inline size_t state_elems(const struct state_case *c) {
    return (size_t)c->n_head * (size_t)(c->dk * c->dv);
}

/* ---- numbers ---- */

struct state_data {
    float *x, *state, *A, *dt, *skip; /* x[STATE_ROWS][width]; state[STATE_SLOTS][elems]; [n_head] each */
};
static uint64_t state_seed;
static inline float state_random(void) { /* -1 .. 1 */
    state_seed ^= state_seed << 13, state_seed ^= state_seed >> 7, state_seed ^= state_seed << 17;
    return (float)(int32_t)(state_seed >> 32) * 0x1p-31f;
}
static inline float *state_numbers(size_t n, float scale, float shift) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = scale * state_random() + shift;
    return x;
}
static inline struct state_data state_data_new(const struct state_case *c) {
    state_seed = 88172645463325252ull;
    size_t h = (size_t)c->n_head;
    struct state_data d = {.x = state_numbers((size_t)STATE_ROWS * (size_t)state_in_width(c), 1.5f, 0),
                           .state = state_numbers(STATE_SLOTS * state_elems(c), 0.5f, 0),
                           .A = state_numbers(h, 0.2f, -0.25f),
                           .dt = state_numbers(h * (size_t)state_decays(c), 2, -0.5f),
                           .skip = state_numbers(h, 1, 0)};
    d.dt[0] = 25; /* where softplus is a line */
    d.A[0] /= 20;
    return d;
}
static inline void state_data_free(struct state_data *d) {
    free(d->x), free(d->state), free(d->A), free(d->dt), free(d->skip);
}

/* ---- the sums ---- */

/* Head h of row x: k, q, v and its scalars. For ssm v is D x. */
static inline void state_row(const struct state_case *c, const struct state_data *d, const float *x, int h,
                             double *k, double *q, double *v, double *log_decay, double *beta) {
    const int g = c->tiled ? h % c->n_group : h / (c->n_head / c->n_group), keys = c->n_group * c->dk;
    const bool delta = c->kind == OP_DELTA;
    const float *qf = delta ? x + g * c->dk : x + c->n_head * c->dv + keys + g * c->dk;
    const float *kf = delta ? x + keys + g * c->dk : x + c->n_head * c->dv + g * c->dk;
    const float *vf = delta ? x + 2 * keys + h * c->dv : x + h * c->dv;
    const float *a = x + 2 * keys + c->n_head * c->dv;
    const int decays = state_decays(c);
    double step = log(1 + exp((double)a[h] + (double)d->dt[h])), qq = 1e-6, kk = 1e-6;
    if (!delta) step = fmin(fmax(step, (double)c->lo), (double)c->hi);
    for (int i = 0; i < c->dk; i++) {
        qq += (double)qf[i] * (double)qf[i], kk += (double)kf[i] * (double)kf[i];
    }
    for (int i = 0; i < c->dk; i++) {
        q[i] = (double)qf[i] / (delta ? sqrt(qq) * sqrt(c->dk) : 1);
        k[i] = (double)kf[i] / (delta ? sqrt(kk) : 1);
    }
    for (int i = 0; i < c->dv; i++) v[i] = (double)vf[i] * (delta ? 1 : step);
    for (int i = 0; i < c->dk; i++) {
        const int at = decays > 1 ? h * c->dk + i : h;
        log_decay[i] = (double)d->A[h] * (delta ? log(1 + exp((double)a[at] + (double)d->dt[at])) : step);
    }
    *beta = delta ? (c->lo != 0 ? (double)c->lo : 1) / (1 + exp(-(double)a[c->n_head * decays + h])) : 1;
}
/* sum of a[i] b[i] e^(G[i] - before[i]), whose difference is the same for all i unless each is by itself */
static inline double state_dot(const double *a, const double *b, const double *G, const double *before, int n,
                               bool each) {
    double s = 0, f = exp(G[0] - before[0]);
    for (int i = 0; i < n; i++) s += a[i] * b[i] * (each ? exp(G[i] - before[i]) : f);
    return s;
}
/* y[dv] += sign S0^T (e^G x) */
static inline void state_add(const struct state_case *c, const float *S0, const double *x, const double *G,
                             double sign, double *y) {
    for (int i = 0; S0 && i < c->dk; i++)
        for (int j = 0; j < c->dv; j++) y[j] += sign * exp(G[i]) * (double)S0[i * c->dv + j] * x[i];
}
/* n rows of x from a state S0 [n_head][dk][dv] (NULL: zeros): out[n][n_head][dv] and the state behind. */
static inline void state_sums(const struct state_case *c, const struct state_data *data, const float *x,
                              int n, const float *S0, double *out, double *after) {
    const int dk = c->dk, dv = c->dv, width = state_in_width(c);
    double *k = malloc(sizeof *k * (size_t)(n * dk)), *d = malloc(sizeof *d * (size_t)(n * dv)),
           q[STATE_DIM_MAX], v[STATE_DIM_MAX], *G = malloc(sizeof *G * (size_t)(n * dk)), beta;
    const bool each = state_decays(c) > 1;
    for (int h = 0; h < c->n_head; h++) {
        const float *S = S0 ? S0 + h * dk * dv : NULL;
        double *end = after + h * dk * dv;
        for (int i = 0; i < n; i++) {
            double *o = out + (i * c->n_head + h) * dv, *di = d + i * dv;
            state_row(c, data, x + i * width, h, k + i * dk, q, v, G + i * dk, &beta);
            for (int r = 0; i && r < dk; r++) G[i * dk + r] += G[(i - 1) * dk + r];
            memset(di, 0, sizeof *di * (size_t)dv);
            memset(o, 0, sizeof *o * (size_t)dv);
            if (c->kind == OP_DELTA) {
                state_add(c, S, k + i * dk, G + i * dk, -1, di);
                for (int j = 0; j < i; j++) {
                    double w = state_dot(k + i * dk, k + j * dk, G + i * dk, G + j * dk, dk, each);
                    for (int e = 0; e < dv; e++) di[e] -= w * d[j * dv + e];
                }
            }
            for (int e = 0; e < dv; e++) di[e] = beta * (di[e] + v[e]);
            state_add(c, S, q, G + i * dk, 1, o);
            for (int j = 0; j <= i; j++) {
                double w = state_dot(q, k + j * dk, G + i * dk, G + j * dk, dk, each);
                for (int e = 0; e < dv; e++) o[e] += w * d[j * dv + e];
            }
            for (int e = 0; c->kind == OP_SSM && e < dv; e++)
                o[e] += (double)data->skip[h] * (double)x[i * width + h * dv + e];
        }
        for (int i = 0; i < dk * dv; i++) end[i] = S ? exp(G[(n - 1) * dk + i / dv]) * (double)S[i] : 0;
        for (int t = 0; t < n; t++)
            for (int i = 0; i < dk * dv; i++)
                end[i] += exp(G[(n - 1) * dk + i / dv] - G[t * dk + i / dv]) * k[t * dk + i / dv] *
                          d[t * dv + i % dv];
    }
    free(k), free(d), free(G);
}

/* ---- a backend with the one operation ---- */

struct state_bench {
    struct op op[2];
    struct buf buf[2], other_buf[2];
    struct op_list list, other;
    struct weight table;
    struct state_store store;
    struct kv_group kv;
    struct backend_config c;
    struct backend *b;
};
static inline struct op state_op(const struct state_case *c, const struct state_data *d) {
    const int keys = c->n_group * c->dk, vals = c->n_head * c->dv, all = 2 * keys + vals;
    struct view x = {0, 0, all}, a = {0, all, c->n_head * state_decays(c)},
                b = {0, all + c->n_head * state_decays(c), c->n_head};
    struct view out = {1, 0, vals};
    if (c->kind == OP_DELTA)
        return (struct op){
            OP_DELTA, 0, "delta",
            .delta = {x, a, b, out, 0, c->n_group, c->n_head, c->dk, c->dv, c->tiled, d->A, d->dt, c->lo}};
    return (struct op){
        OP_SSM, 0, "ssm",
        .ssm = {x, a, out, 0, c->n_head, c->dv, c->n_group, c->dk, d->A, d->dt, d->skip, c->lo, c->hi}};
}
static inline void state_open(struct state_bench *s, const struct state_case *c, const struct state_data *d,
                              struct state_setting set) {
    struct backend_sizes sizes;
    const int width = state_in_width(c);
    *s = (struct state_bench){.table = {.name = "x",
                                        .type = QUANT_F32,
                                        .n = STATE_ROWS,
                                        .k = width,
                                        .factor = 1,
                                        .n_stack = 1,
                                        .data = d->x},
                              .store = {(int)state_elems(c)},
                              .kv = {0, 1, 4}};
    s->op[0] = (struct op){.kind = OP_EMBED, .name = "embed", .embed = {{0, 0, width}, &s->table, 1, false}};
    s->op[1] = state_op(c, d);
    s->buf[0] = (struct buf){.name = "x", .width = width, .rows = BUF_ROWS_ALL};
    s->buf[1] = (struct buf){.name = "out", .width = c->n_head * c->dv, .rows = BUF_ROWS_ALL};
    memcpy(s->other_buf, s->buf, sizeof s->buf);
    s->list = (struct op_list){set.cls, s->op, 2, s->buf, 2, STATE_ROWS, STATE_ROWS};
    s->other = (struct op_list){
        set.cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE, s->op, 0, s->other_buf, 2, STATE_ROWS, STATE_ROWS};
    list_lives(&s->list);
    s->c = (struct backend_config){.embedding = &s->table,
                                   .n_vocab = 1,
                                   .n_embd = width,
                                   .kv_group = &s->kv,
                                   .n_kv_group = 1,
                                   .state = &s->store,
                                   .n_state = 1,
                                   .n_state_slot = STATE_SLOTS,
                                   .n_slot = STATE_SLOTS,
                                   .n_ctx = 4 * KV_PAGE,
                                   .cpu = {.threads = set.threads, .isa = set.isa},
                                   .n_logits = 1};
    s->c.list[s->list.cls] = &s->list, s->c.list[s->other.cls] = &s->other;
    assert_ok(set.type->sizes(&s->c, &sizes));
    s->c.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < 2; i++) {
        s->buf[i].offset = s->c.activation_bytes;
        s->c.activation_bytes += (s->buf[i].row_bytes * STATE_ROWS + 63) / 64 * 64;
    }
    assert_ok(set.type->open(&s->b, &s->c));
    assert_ok(set.type->upload(s->b));
    assert_ok(set.type->compile(s->b, set.cls));
    for (int k = 0; k < STATE_SLOTS; k++)
        assert_ok(set.type->state_write(s->b, 0, k, d->state + (size_t)k * state_elems(c)));
}

/* Rows first .. end - 1 of x as one run of a slot, row i at position pos0 + i. A step has runs of different slots. */
struct state_run {
    int slot, first, end, pos0;
};
/* One step of these runs; out[STATE_ROWS][width]: the rows at their own places. */
static inline void state_step(struct state_bench *s, const struct state_run *run, int n_run, float *out) {
    int32_t id[STATE_ROWS], pos[STATE_ROWS], slot[STATE_ROWS], pages[STATE_SLOTS * 4] = {0};
    const int32_t *tables[1] = {pages};
    const int width = s->buf[1].width;
    struct step_result result;
    int n = 0;
    for (int i = 0; i < n_run; i++)
        for (int t = run[i].first; t < run[i].end; t++, n++)
            id[n] = t, slot[n] = run[i].slot, pos[n] = run[i].pos0 + t;
    struct step step = seam_step(n, 0, id, pos, slot, id, NULL, tables);
    float *rows = malloc(sizeof *rows * (size_t)(n * width));
    assert_ok(s->b->type->run(s->b, s->list.cls, &step));
    assert_ok(s->b->type->wait(s->b, &result));
    assert_ok(s->b->type->read(s->b, s->list.cls, (struct view){1, 0, width}, n, rows));
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)id[i] * (size_t)width, rows + (size_t)i * (size_t)width,
               sizeof *out * (size_t)width);
    free(rows);
}

/* ---- what is asked of a backend ---- */

static inline void state_near(const char *what, const float *got, const double *want, size_t n,
                              double tolerance) {
    double ee = 0, ss = 1e-60;
    for (size_t i = 0; i < n; i++) {
        double e = (double)got[i] - want[i];
        if (!isfinite(got[i])) fail_msg("%s: number %zu is %f", what, i, (double)got[i]);
        ee += e * e, ss += want[i] * want[i];
    }
    if (!(sqrt(ee / ss) <= tolerance))
        fail_msg("%s: error %.3g of the rms, tolerance %.3g", what, sqrt(ee / ss), tolerance);
}

/* Three sequences of a step: one goes on, one begins (whatever its state holds), one goes on with few rows. */
static const struct state_run state_runs[] = {{0, 0, 129, 37}, {2, 129, 193, -129}, {1, 193, 200, -100}};
enum { STATE_RUNS = 3 };

/* The whole step, out[STATE_ROWS][width] and state[STATE_SLOTS][elems], against the sums. */
static inline void state_values(const struct state_case *c, const struct state_data *d,
                                struct state_setting set, const char *what, float *out, float *state) {
    struct state_bench s;
    size_t n = state_elems(c);
    int width = c->n_head * c->dv;
    double *want = malloc(sizeof *want * (size_t)(STATE_ROWS * width)), *after = malloc(sizeof *after * n);
    float *nan = malloc(sizeof *nan * n);
    char name[200];
    state_open(&s, c, d, set);
    for (size_t i = 0; i < n; i++) nan[i] = NAN;
    assert_ok(set.type->state_write(s.b, 0, 2, nan));
    state_step(&s, state_runs, STATE_RUNS, out);
    for (int k = 0; k < STATE_SLOTS; k++) assert_ok(set.type->state_read(s.b, 0, k, state + (size_t)k * n));
    set.type->close(s.b);
    for (int i = 0; i < STATE_RUNS; i++) {
        struct state_run r = state_runs[i];
        const float *S0 = r.first + r.pos0 ? d->state + (size_t)r.slot * n : NULL;
        state_sums(c, d, d->x + r.first * state_in_width(c), r.end - r.first, S0, want, after);
        snprintf(name, sizeof name, "%s, sequence %d", what, i);
        state_near(name, out + r.first * width, want, (size_t)((r.end - r.first) * width), set.tolerance);
        snprintf(name, sizeof name, "%s, state of sequence %d", what, i);
        state_near(name, state + (size_t)r.slot * n, after, n, set.tolerance);
    }
    assert_memory_equal(state + 3 * n, d->state + 3 * n, sizeof *state * n); /* of another sequence */
    free(want), free(after), free(nan);
}

/* The first run alone, cut at cut (a position of its sequence; before or behind it: not at all), beside it the second one, has the
 * bits of out and state. */
static inline void state_cut(const struct state_case *c, const struct state_data *d, struct state_setting set,
                             int cut, const char *what, const float *out, const float *state) {
    struct state_bench s;
    size_t n = state_elems(c), width = (size_t)(c->n_head * c->dv);
    float *got = calloc(STATE_ROWS * width, sizeof *got), *after = malloc(sizeof *after * n);
    struct state_run a = state_runs[0], b = state_runs[1], part[2] = {b, a};
    int at = cut - a.pos0;
    state_open(&s, c, d, set);
    if (at > a.first && at < a.end) {
        struct state_run head = a;
        head.end = part[1].first = at;
        state_step(&s, &head, 1, got);
    }
    state_step(&s, part, 2, got);
    if (memcmp(got, out, sizeof *got * width * (size_t)b.end))
        fail_msg("%s: cut at position %d a run has other bits", what, cut);
    for (int i = 0; i < 2; i++) {
        assert_ok(set.type->state_read(s.b, 0, part[i].slot, after));
        if (memcmp(after, state + (size_t)part[i].slot * n, sizeof *after * n))
            fail_msg("%s: cut at position %d a run leaves another state", what, cut);
    }
    set.type->close(s.b);
    free(got), free(after);
}

/* All cases of a kind: values, then bits with every cut that the backend allows (of large ones, some). */
static inline void state_check(enum op_kind kind, struct state_setting set, int other_threads) {
    for (int i = 0; i < STATE_CASES; i++) {
        const struct state_case *c = &state_cases[i];
        if (c->kind != kind) continue;
        if (strcmp(set.type->name, "cuda") == 0 && kind == OP_DELTA && (c->lo != 0 || c->hi != 0))
            continue; /* it refuses them */
        struct state_data d = state_data_new(c);
        struct state_bench s;
        struct backend_info info;
        char what[160];
        float *out = malloc(sizeof *out * (size_t)(STATE_ROWS * c->n_head * c->dv)),
              *state = malloc(sizeof *state * STATE_SLOTS * state_elems(c));
        snprintf(what, sizeof what, "%s %s %s of %d heads of %d, [%d][%d]%s", set.type->name,
                 set.isa ? set.isa : "", kind == OP_DELTA ? "delta" : "ssm", c->n_head, c->n_group, c->dk,
                 c->dv, set.cls == ROW_DECODE ? ", decode" : "");
        state_open(&s, c, &d, set);
        set.type->info(s.b, &info);
        set.type->close(s.b);
        state_values(c, &d, set, what, out, state);
        struct state_setting other = set;
        other.threads = other_threads;
        int step = info.grid ? info.grid : state_elems(c) > 4096 ? 31 : 1, end = state_runs[0].pos0 + 130;
        for (int cut = info.grid ? 0 : state_runs[0].pos0; cut < end; cut += step)
            state_cut(c, &d, cut % 2 ? set : other, cut, what, out, state);
        state_data_free(&d);
        free(out), free(state);
    }
}

/* Every op of the seam on every backend and instruction set against the reference: formats, classes, odd sizes,
 * numbers of rows and threads. Experts: test_moe.c. */
#include "tests/lib/op_bench.h"
#include "tests/lib/pace.h"
#include "base/host.h"
#include "seam/balance.h"
#include "seam/choose.h"
#include "seam/weight.h"
#include "tests/lib/choice_cases.h"
#include "tests/lib/draw_cases.h"
#include "tests/lib/pace.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- matmul ---- */

static void matmul_every_format(void **state) {
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        const struct quant_info *q = quant_info((enum quant_type)type);
        const int block = (int)q->elems, long_k = block == 256 ? 2304 : block == 128 ? 2176 : 2112;
        int ks[] = {block == 1 ? 77 : block * (block == 256 ? 1 : 9), long_k, block == 1 ? 32 : block};
        for (int i = 0; i < (same_kernel(q->type) ? 1 : block == 256 ? 2 : 3); i++) {
            struct bench b = {.matmul = true};
            bool plain = q->elems == 1;
            add_member(&b, q->type, i == 1 ? 19 : 35, ks[i], i == 0);
            if (i != 1) add_member(&b, i ? q->type : QUANT_Q8_0, 1, ks[i], false);
            if (i == 0 && plain)
                b.group.member[1].type = QUANT_F32, free((void *)b.group.member[1].data),
                b.group.n_member = 1, b.group.n--, add_member(&b, QUANT_F32, 1, ks[i], false);
            struct view x = input(&b, ks[i], 0), y = output(&b, b.group.n);
            push(&b, (struct op){.kind = OP_MATMUL, .matmul = {x, y, &b.group, false}});
            b.int16 = (q->type == QUANT_F16 || q->type == QUANT_BF16) && i > 0;
            char name[64];
            snprintf(name, sizeof name, "matmul %s k %d", q->name, ks[i]);
            check(&b, name, (const double[2]){TOL_OP_BF16, plain ? TOL_OP_FLOAT : TOL_OP_INT8});
            bench_free(&b);
        }
    }
}

/* Members that are runs of the rows of one matrix: what each head has in front of something, and what it has behind. */
static void matmul_of_runs(void **state) {
    (void)state;
    static const struct {
        enum quant_type type;
        int run, heads, k;
    } all[] = {{QUANT_F32, 3, 5, 77},    {QUANT_BF16, 16, 4, 96},   {QUANT_Q8_0, 12, 4, 288},
               {QUANT_Q4_K, 64, 3, 256}, {QUANT_Q6_K, 128, 2, 512}, {QUANT_Q4_1, 2, 16, 64}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct bench b = {.matmul = true};
        const int run = all[i].run, n = run * all[i].heads, k = all[i].k;
        add_member(&b, all[i].type, 2 * n, k, false);
        const struct weight whole = b.group.member[0];
        b.group.member[0] = weight_runs(&whole, 0, run, 2 * run, n);
        b.group.member[1] = weight_runs(&whole, run, run, 2 * run, n);
        b.group.n_member = 2;
        struct view x = input(&b, k, 0), y = output(&b, 2 * n);
        push(&b, (struct op){.kind = OP_MATMUL, .matmul = {x, y, &b.group, false}});
        char name[64];
        snprintf(name, sizeof name, "matmul %s of runs of %d", quant_info(all[i].type)->name, run);
        b.int16 = all[i].type == QUANT_BF16;
        check(
            &b, name,
            (const double[2]){TOL_OP_BF16, quant_info(all[i].type)->elems == 1 ? TOL_OP_FLOAT : TOL_OP_INT8});
        b.group.member[0] = whole, b.group.n_member = 1;
        bench_free(&b);
    }
}

/* norm -> matmul -> add, and matmul -> glu, folded and not. */
static void matmul_folded(void **state) {
    (void)state;
    float w[288];
    for (int i = 0; i < 288; i++) w[i] = 1 + 0.1f * gauss();
    for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
        struct bench b = {.no_fuse = no_fuse, .matmul = true};
        add_member(&b, QUANT_Q8_0, 288, 288, true);
        struct view x = input(&b, 288, 0), y = output(&b, 288), h = new_buf(&b, 288, BUF_ROWS_ALL),
                    m = new_buf(&b, 288, BUF_ROWS_ALL);
        push(&b, (struct op){.kind = OP_NORM, .norm = {x, h, NORM_RMS, 288, 1e-5f, w, NULL, 0}});
        push(&b, (struct op){.kind = OP_MATMUL, .matmul = {h, m, &b.group, false}});
        push(&b, (struct op){.kind = OP_ADD, .add = {x, m, y}});
        check(&b, "norm, matmul, add", (const double[2]){TOL_OP_BF16, TOL_OP_INT8});
        bench_free(&b);

        struct bench g = {.no_fuse = no_fuse, .matmul = true};
        add_member(&g, QUANT_Q4_1, 75, 288, false);
        add_member(&g, QUANT_Q8_0, 75, 288, true);
        struct view gx = input(&g, 288, 0), gy = output(&g, 75), gu = new_buf(&g, 150, BUF_ROWS_ALL);
        push(&g, (struct op){.kind = OP_MATMUL, .matmul = {gx, gu, &g.group, false}});
        push(&g, (struct op){.kind = OP_GLU, .glu = {{gu.buf, 0, 75}, {gu.buf, 75, 75}, gy, ACT_SILU, {0}}});
        check(&g, "matmul, glu", (const double[2]){3 * TOL_OP_BF16, 3 * TOL_OP_INT8});
        bench_free(&g);
    }
}

/* ---- the small ops ---- */

static const double exact[2] = {TOL_OP_FLOAT, TOL_OP_FLOAT};

static void norms(void **state) {
    (void)state;
    float w[100], bias[100];
    for (int i = 0; i < 100; i++) w[i] = gauss(), bias[i] = gauss();
    static const int dims[] = {1, 7, 20, 64, 100};
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < 3; kind++) {
            struct bench b = {0};
            int width = dims[i] * 3;
            struct view x = input(&b, width, 0), y = output(&b, width);
            push(&b, (struct op){.kind = OP_NORM,
                                 .norm = {x, y, (enum norm_kind)kind, dims[i], 1e-3f, i % 2 ? w : NULL,
                                          kind ? bias : NULL, 0}});
            check(&b, "norm", exact);
            bench_free(&b);
        }
}

static void ropes(void **state) {
    (void)state;
    float freq[40];
    for (int i = 0; i < 40; i++) freq[i] = powf(10000, -(float)i / 40);
    for (int kind = ROPE_NEOX; kind <= ROPE_INTERLEAVED; kind++)
        for (int n_rot = 6; n_rot <= 80; n_rot += 37) {
            struct rope r = {
                .kind = (enum rope_kind)kind, .n_rot = n_rot & ~1, .mscale = 1.1f, .inv_freq = freq};
            struct bench b = {0};
            struct view x = input(&b, 3 * 80, 0), y = output(&b, 3 * 80),
                        z = new_buf(&b, 3 * 80, BUF_ROWS_ALL);
            push(&b, (struct op){.kind = OP_NORM, .norm = {x, z, NORM_LAYER, 80, 1e-3f, NULL, NULL, 0}});
            r.every = n_rot > 60 ? 4 : 0;
            push(&b, (struct op){.kind = OP_ROPE, .rope = {z, 3, 80, &r, n_rot % 2}});
            push(&b, (struct op){.kind = OP_NORM, .norm = {z, y, NORM_RMS, 80, 1e-3f, NULL, NULL, 0}});
            check(&b, "rope", exact);
            bench_free(&b);
        }
}

static void glus_and_adds(void **state) {
    (void)state;
    for (int n = 1; n < 80; n += 13)
        for (int act = 0; act <= ACT_KIND_COUNT; act++) {
            struct bench b = {0};
            struct view x = input(&b, 2 * n, 0), y = output(&b, n), g = {x.buf, 0, n}, u = {x.buf, n, n};
            if (act < ACT_KIND_COUNT) /* alone, where that is one */
                push(&b, (struct op){.kind = OP_GLU,
                                     .glu = {g,
                                             n % 2 && act != ACT_SWIGLU_OAI ? (struct view){-1, 0, 0} : u,
                                             y,
                                             (enum act_kind)act,
                                             {0.8f, 1.702f, 0.4f, 0.5f, -1e-6f}}});
            else
                push(&b, (struct op){.kind = OP_ADD, .add = {g, u, y}});
            check(&b, "glu or add", exact);
            bench_free(&b);
        }
}

/* One number of the gate for each head of out, in place and not. */
static void gates_of_heads(void **state) {
    (void)state;
    static const int heads[] = {1, 3, 70}, dims[] = {1, 12, 33};
    for (int i = 0; i < 9; i++)
        for (int act = ACT_SIGMOID; act <= ACT_SOFTPLUS; act += ACT_SOFTPLUS - ACT_SIGMOID) {
            const int n = heads[i % 3], dim = dims[i / 3];
            struct bench b = {0};
            struct view x = input(&b, n + n * dim, 0), y = output(&b, n * dim), g = {x.buf, 0, n},
                        u = {x.buf, n, n * dim};
            push(&b, (struct op){.kind = OP_GLU, .glu = {g, u, i % 2 ? u : y, (enum act_kind)act, {0}}});
            if (i % 2) push(&b, (struct op){.kind = OP_GLU, .glu = {g, u, y, (enum act_kind)act, {0}}});
            check(&b, "gate of heads", exact);
            bench_free(&b);
        }
}

/* kv_put of all rows, then attend: head sizes, groups, windows, caps, sinks, cache types; folded with rope and not. */
static void attention(void **state) {
    (void)state;
    float sinks[16], freq[32];
    for (int i = 0; i < 16; i++) sinks[i] = gauss();
    for (int i = 0; i < 32; i++) freq[i] = powf(10000, -(float)i / 32);
    static const struct {
        int heads, kv, hk, hv, window;
        float cap;
        bool sink, chunked, inside; /* inside: values in keys */
    } shape[] = {{4, 2, 64, 64, 0, 0, false, false, false},     {9, 3, 64, 64, 0, 0, false, false, false},
                 {16, 2, 40, 24, 0, 20, true, false, false},    {3, 3, 80, 80, 50, 0, true, false, false},
                 {35, 1, 33, 32, 0, 0, false, false, false},    {2, 2, 128, 128, 200, 5, false, false, false},
                 {4, 2, 64, 64, 32, 0, false, true, false},     {6, 2, 40, 24, 50, 0, true, true, false},
                 {2, 2, 128, 128, 1000, 0, false, true, false}, {16, 1, 576, 512, 0, 0, false, false, true},
                 {8, 1, 40, 24, 0, 0, false, false, true},      {3, 1, 77, 67, 90, 0, true, false, true},
                 {36, 1, 48, 32, 0, 7, false, false, true}};
    for (int i = 0; i < (int)(sizeof shape / sizeof *shape); i++)
        for (int type = KV_F32 + i / 2 % EVERY(2); type < (i % 3 ? 1 : 2) * KV_TYPES; type += EVERY(2))
            for (int step = type < KV_Q8_0 ? EVERY(2) : 2, fold = (i + type) % step; fold < 2; fold += step) {
                struct rope r = {.kind = ROPE_NEOX, .n_rot = 32, .mscale = 1, .inv_freq = freq};
                /* also keys and values of types of their own: the one after the next for the values */
                const enum kv_type k_type = (enum kv_type)(type % KV_TYPES),
                                   v_type = type < KV_TYPES || shape[i].inside
                                                ? k_type
                                                : (enum kv_type)((type + 2) % KV_TYPES);
                struct bench b = {
                    .store = {0, shape[i].kv, shape[i].hk, shape[i].hv, shape[i].inside, k_type, v_type, 0},
                    .kv = {shape[i].window, N_SLOT * PAGES, PAGES},
                    .kv_type = k_type == v_type ? k_type : KV_TYPES,
                    .no_fuse = i % 2};
                int nq = shape[i].heads * shape[i].hk, nk = shape[i].kv * shape[i].hk,
                    nv = shape[i].inside ? 0 : shape[i].kv * shape[i].hv;
                struct view x = input(&b, nq + nk + nv, 0), y = output(&b, shape[i].heads * shape[i].hv);
                struct view q = {x.buf, 0, nq}, k = {x.buf, nq, nk}, v = {nv ? x.buf : -1, nq + nk, nv};
                if (fold) {
                    push(&b,
                         (struct op){.kind = OP_ROPE, .rope = {q, shape[i].heads, shape[i].hk, &r, false}});
                    push(&b, (struct op){.kind = OP_ROPE, .rope = {k, shape[i].kv, shape[i].hk, &r, false}});
                }
                push(&b, (struct op){.kind = OP_KV_PUT, .kv_put = {k, v, 0}});
                push(&b, (struct op){.kind = OP_ATTEND,
                                     .attend = {.q = q,
                                                .out = y,
                                                .n_head = shape[i].heads,
                                                .scale = 0.3f,
                                                .softcap = shape[i].cap,
                                                .window = shape[i].window,
                                                .sinks = shape[i].sink && shape[i].heads <= 16 ? sinks : NULL,
                                                .chunked = shape[i].chunked}});
                char name[96];
                snprintf(name, sizeof name, "attend shape %d cache %d rope %d", i, type, fold);
                /* rotated keys may round to the other half or code than the reference's */
                static const double tol[KV_TYPES] = {TOL_OP_ATTEND,    TOL_OP_ATTEND_F16, TOL_OP_ATTEND_Q8,
                                                     TOL_OP_ATTEND_F8, TOL_OP_ATTEND_Q5,  TOL_OP_ATTEND_Q4};
                const double t = tol[k_type] > tol[v_type] ? tol[k_type] : tol[v_type];
                check(&b, name, (const double[2]){t, t});
                bench_free(&b);
            }
}

static void choices(void **state) {
    (void)state;
    choice_cases(check);
    choice_end_cases(check);
    choice_head_cases(check);
}

/* Entries of runs beside a window, in one softmax: all of them, and those that are chosen; here the ends of runs of the same keys. */
static void entries(void **state) {
    (void)state;
    static const struct {
        enum kv_type type;
        int heads, dim, window, block, top, far;
    } all[] = {{KV_F32, 3, 12, 5, 4, 0, 0},
               {KV_F32, 4, 33, 70, 4, 9, 0},
               {KV_F16, 5, 32, 128, 16, 0, 4 * KV_PAGE + 10},
               {KV_F16, 1, 64, 20, 2, 70, 4 * KV_PAGE + 10},
               {KV_Q8_0, 8, 64, 64, 3, 0, 200}};
    float sinks[8];
    for (int i = 0; i < 8; i++) sinks[i] = gauss();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int H = all[i].heads, n = all[i].dim;
        const struct choice by = {.n_top = all[i].top, .block = all[i].block, .ends = true};
        struct bench b = {.store = {0, 1, n, n, true, KV_F32, KV_F32, 0},
                          .kv = {0, N_SLOT * PAGES, PAGES},
                          .kv_type = all[i].type,
                          .whole = all[i].type <= KV_F16,
                          .far = all[i].far,
                          .no_fuse = i % 2};
        struct view x = input(&b, 2 * H * n + H + n, 0), k = view_columns(x, 2 * H * n + H, n),
                    y = output(&b, H * n), chosen = new_buf(&b, by.n_top ? by.n_top : 1, BUF_ROWS_ALL);
        push(&b, (struct op){.kind = OP_KV_PUT, .kv_put = {k, {-1, 0, 0}, 0}});
        struct op_index index = {
            view_columns(x, H * n, H * n), view_columns(x, 2 * H * n, H), chosen, 0, H, by};
        if (by.n_top) push(&b, (struct op){.kind = OP_INDEX, .index = index});
        struct op_attend at = {.q = view_columns(x, 0, H * n),
                               .out = y,
                               .n_head = H,
                               .scale = 0.1f,
                               .window = all[i].window,
                               .sinks = i % 2 ? sinks : NULL,
                               .chosen = chosen,
                               .by = by,
                               .entries = 1};
        push(&b, (struct op){.kind = OP_ATTEND, .attend = at});
        char name[96];
        snprintf(name, sizeof name, "entries %d", (int)i);
        const double t = all[i].type == KV_Q8_0  ? TOL_OP_ATTEND_Q8
                         : all[i].type == KV_F16 ? TOL_OP_ATTEND_F16
                                                 : TOL_OP_ATTEND;
        check(&b, name, (const double[2]){t, t});
        bench_free(&b);
    }
}

/* The last positions of whole runs with the greatest scores, one by one: as choose_positions has them. */
static void ends_of_runs(void **state) {
    (void)state;
    enum { N = 150, TOP = 7 };
    for (int pos = 0; pos < N; pos++)
        for (int block = 2; block < 9; block++) {
            const struct choice by = {.n_top = TOP, .block = block, .ends = true};
            float score[N], want[N], out[TOP];
            int n = 0;
            for (int p = 0; p < N; p++) want[p] = score[p] = roundf(gauss() * 4); /* some are equal */
            choose_positions(&by, score, pos, out);
            for (int p = block - 1; p <= pos; p += block) {
                int better = 0;
                for (int o = block - 1; o <= pos; o += block)
                    better += want[o] > want[p] || (want[o] == want[p] && o < p);
                if (better < TOP) assert_true(out[n++] == (float)p);
            }
            assert_int_equal(n, choice_count(&by, pos));
            for (; n < TOP; n++) assert_true(out[n] == -1);
        }
}

/* n streams read as one, and written back; and, in doubles, that the matrix that mixes them has rows and columns of sum 1. */
static void streams(void **state) {
    (void)state;
    static const int sizes[][2] = {{2, 7}, {4, 64}, {4, 130}, {3, 33}}; /* streams, numbers of each */
    float scale[3] = {0.7f, 1.3f, 2}, base[24];
    for (int i = 0; i < 24; i++) base[i] = gauss();
    for (int i = 0; i < 4; i++) {
        const int n = sizes[i][0], d = sizes[i][1], mix = 2 * n + n * n;
        struct bench b = {0};
        struct view in = input(&b, n * d + mix, 0), x = view_columns(in, 0, n * d),
                    w = new_buf(&b, mix, BUF_ROWS_ALL), one = new_buf(&b, d, BUF_ROWS_ALL),
                    y = output(&b, n * d);
        struct op_balance balance = {view_columns(in, n * d, mix), w, n, 20, 1e-6f, scale, base};
        struct op_streams read = {.x = x,
                                  .M = view_columns(w, 0, n),
                                  .y = {-1, 0, 0},
                                  .write = {-1, 0, 0},
                                  .out = one,
                                  .n = n},
                          back = {x, view_columns(w, 2 * n, n * n), one, view_columns(w, n, n), y, n};
        push(&b, (struct op){.kind = OP_BALANCE, .balance = balance});
        push(&b, (struct op){.kind = OP_STREAMS, .streams = read});
        push(&b, (struct op){.kind = OP_STREAMS, .streams = back});
        check(&b, "streams", exact);
        bench_free(&b);
        float from[24], to[24];
        for (int k = 0; k < mix; k++) from[k] = gauss();
        balance_row(&balance, from, to);
        for (int k = 0; k < n; k++) {
            double row = 0, column = 0;
            for (int j = 0; j < n; j++)
                row += (double)to[2 * n + k * n + j], column += (double)to[2 * n + j * n + k];
            assert_true(fabs(column - 1) < 1e-4 && fabs(row - 1) < 0.02);
            const double a = 1 / (1 + exp(-((double)from[k] * (double)scale[0] + (double)base[k])));
            assert_true(fabs((double)to[k] - a - 1e-6) < 1e-6);
        }
    }
}

/* Attention over the rows of a step that have a row's slot: heads of towers, grouped ones, caps, sinks. */
static void attention_without_a_store(void **state) {
    (void)state;
    static const struct {
        int heads, kv, dim;
        float cap;
        bool sink, both;
    } shape[] = {{2, 2, 12, 0, false, false}, {3, 3, 64, 0, false, true}, {2, 2, 72, 5, false, false},
                 {2, 1, 80, 0, true, false},  {4, 2, 88, 0, false, true}, {1, 1, 128, 0, true, false}};
    float sinks[4] = {0.5f, -1, 2, 0};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const int nq = shape[i].heads * shape[i].dim, nk = shape[i].kv * shape[i].dim;
        struct bench b = {0};
        struct view x = input(&b, nq + 2 * nk, 0), y = output(&b, nq);
        push(&b, (struct op){.kind = OP_ATTEND,
                             .attend = {.q = view_columns(x, 0, nq),
                                        .out = y,
                                        .store = -1,
                                        .n_head = shape[i].heads,
                                        .scale = 0.2f,
                                        .softcap = shape[i].cap,
                                        .sinks = shape[i].sink ? sinks : NULL,
                                        .both = shape[i].both,
                                        .k = view_columns(x, nq, nk),
                                        .v = view_columns(x, nq + nk, nk),
                                        .n_kv_head = shape[i].kv}});
        char name[64];
        snprintf(name, sizeof name, "attend %d heads of %d without a store", shape[i].heads, shape[i].dim);
        for (int k = 0; k < n_isa(); k++) {
            static float want[MAX_T * 512], got[MAX_T * 512];
            if (absent(k)) continue;
            for (int threads = 1; threads < 4; threads++) {
                run(&b, (struct setting){&backend_ref, NULL, 1, ROW_PROMPT}, 0, MAX_T, want, NULL);
                run(&b, (struct setting){&backend_cpu, isas[k], threads, ROW_PROMPT}, 0, MAX_T, got, NULL);
                compare(name, got, want, MAX_T, y.width, TOL_OP_ATTEND);
            }
        }
        bench_free(&b);
    }
}

/* A matrix for each head, of every format; what a head has behind its columns is copied. */
static void heads(void **state) {
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        if (same_kernel((enum quant_type)type)) continue;
        const struct quant_info *q = quant_info((enum quant_type)type);
        static const int sizes[][3] = {{1, 35, 0}, {3, 19, 5}, {7, 64, 16}}; /* heads, rows, rest */
        for (int i = 0; i < 3; i++) {
            int H = sizes[i][0], n = sizes[i][1], rest = sizes[i][2];
            int k = q->elems == 1 ? 13 + 40 * i : (int)q->elems * (q->elems == 256 ? 1 : i + 1);
            struct bench b = {.matmul = true};
            add_member(&b, q->type, H * n, k, false);
            struct weight *w = &b.group.member[0];
            w->n = b.group.n = n, w->n_stack = H;
            w->stack_bytes = (size_t)n * quant_row_bytes(q, (size_t)k);
            w->factor = i == 1 ? 0.7f : 1;
            struct view x = input(&b, H * (k + rest), 0), y = output(&b, H * (n + rest));
            push(&b, (struct op){.kind = OP_HEADS, .heads = {x, y, &b.group}});
            char name[64];
            snprintf(name, sizeof name, "heads %s %d x [%d][%d] and %d", q->name, H, n, k, rest);
            check(&b, name, (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
            bench_free(&b);
        }
    }
}

/* Two adapters, one of rank 1 to 40 on all columns, one on some of them, and a vector; the sequences have both, none, and one of them. A row
 * without one stays as it is, bit for bit. */
static void lowranks(void **state) {
    (void)state;
    static float a[2][40 * 300], b[3][40 * 300];
    static const float both[] = {0.5f, -2, 0}, one[] = {0, 1.5f, 0.25f};
    for (int i = 0; i < 40 * 300; i++)
        for (int k = 0; k < 3; k++) a[k % 2][i] = gauss(), b[k][i] = gauss();
    static const int sizes[][3] = {
        {1, 1, 1}, {33, 70, 4}, {256, 77, 8}, {300, 300, 40}, {17, 64, 17}}; /* k, n, r */
    for (int i = 0; i < 5; i++) {
        const int k = sizes[i][0], n = sizes[i][1], r = sizes[i][2], some = (n + 1) / 2;
        const struct lowrank_part part[] = {
            {.n = n, .k = k, .r = r, .n_stack = 1, .a = a[0], .b = b[0]},
            {.adapter = 1,
             .col = n - some,
             .n = some,
             .k = k,
             .r = 3,
             .n_stack = 1,
             .at = r,
             .a = a[1],
             .b = b[1]},
            {.adapter = 2, .n = n, .k = k, .r = 1, .n_stack = 1, .at = r + 3, .b = b[2]}};
        const struct lowrank w = {part, 3, r + 4};
        struct bench o = {.adapted = true, .adapter = {both, NULL, one}};
        struct view x = input(&o, k, 0), y = input(&o, n, 0);
        const float *before = o.table[1].data;
        o.out = y;
        push(&o, (struct op){.kind = OP_LOWRANK, .lowrank = {x, {-1, 0, 0}, y, &w, 0, false, false, 0}});
        char name[64];
        snprintf(name, sizeof name, "lowrank [%d][%d], rank %d", n, k, r);
        check(&o, name, (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
        static float got[MAX_T * 300];
        run(&o, (struct setting){&backend_cpu, NULL, 2, ROW_DECODE}, 0, MAX_T, got, NULL);
        assert_memory_equal(got + 40 * n, before + 40 * n, sizeof *got * (size_t)(20 * n));
        assert_memory_not_equal(got, before, sizeof *got * (size_t)n);
        bench_free(&o);
    }
}

/* Entries of runs of positions, plain and over two runs: rows of three sequences, as below. */
static void compressions(void **state) {
    (void)state;
    static float bias[8 * 300];
    for (int i = 0; i < 8 * 300; i++) bias[i] = gauss();
    static const int sizes[][3] = {
        {1, 2, 1}, {7, 4, 2}, {150, 4, 2}, {64, 8, 1}, {100, 3, 1}}; /* numbers, positions, runs */
    for (int i = 0; i < 5; i++) {
        const int n = sizes[i][0], ratio = sizes[i][1], width = n * sizes[i][2];
        struct bench b = {.state = {ratio * sizes[i][2] * 2 * width}};
        struct view x = input(&b, 2 * width, 0), y = output(&b, n);
        push(&b, (struct op){.kind = OP_COMPRESS,
                             .compress = {view_columns(x, 0, width), view_columns(x, width, width), y, 0,
                                          ratio, bias}});
        char name[64];
        snprintf(name, sizeof name, "entries of %d numbers of %d positions", n, ratio);
        check(&b, name, (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
        bench_free(&b);
    }
}

static void ngrams(void **state) {
    (void)state;
    ngram_cases(&backend_cpu, check);
}

/* Convolutions: rows of three sequences, one that goes on, one that begins, one whose first rows see some of both. */
static void convolutions(void **state) {
    (void)state;
    float w[200 * CONV_MAX], bias[200];
    for (int i = 0; i < 200 * CONV_MAX; i++) w[i] = gauss();
    for (int i = 0; i < 200; i++) bias[i] = gauss();
    static const int channels[] = {1, 7, 64, 100, 200}, widths[] = {2, 3, 4, 7, CONV_MAX};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) {
            int C = channels[i], K = widths[k];
            struct bench b = {.state = {(K - 1) * C}};
            struct view x = input(&b, C, 0), y = output(&b, C);
            push(&b, (struct op){.kind = OP_CONV, .conv = {x, y, 0, K, w, k % 2 ? bias : NULL, i % 2}});
            char name[64];
            snprintf(name, sizeof name, "conv of %d channels, width %d", C, K);
            check(&b, name, (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
            bench_free(&b);
        }
}

/* select with draws: candidates, sums and tokens. */
static void draws(void **state) {
    (void)state;
    draw_cases(&backend_ref, NULL, 20);
    for (int i = 0; i < n_isa(); i++)
        if (!absent(i)) draw_cases(&backend_cpu, isas[i], 20);
}

/* columns of a step's rows and of those that want an output, in another order: nothing is rounded. */
static void columns(void **state) {
    (void)state;
    for (int n = 1; n < 700; n = 3 * n + 1) {
        int32_t *from = malloc((size_t)n * sizeof *from);
        for (int i = 0; i < n; i++) from[i] = i;
        for (int i = n - 1; i > 0; i--) {
            const int j = (i * 7919 + 13) % (i + 1), f = from[i];
            from[i] = from[j], from[j] = f;
        }
        struct bench b = {0};
        struct view x = input(&b, n, 0), y = output(&b, n);
        push(&b, (struct op){.kind = OP_COLUMNS, .columns = {x, y, from}});
        char name[64];
        snprintf(name, sizeof name, "columns %d", n);
        check(&b, name, (const double[2]){0, 0});
        bench_free(&b);
        free(from);
    }
}

/* Rows of a step merged by 1 to 9, beside each other and to their mean; rows of the step that are no input's. */
static void merges(void **state) {
    (void)state;
    enum { W = 37, T = 66 };
    for (int n = 1; n < 10; n += 4)
        for (int mean = 0; mean < 2; mean++) {
            struct bench b = {0};
            struct view x = input(&b, W, 0), y = new_buf(&b, mean ? W : n * W, BUF_ROWS_OUT);
            static float want[T * 9 * W], got[T * 9 * W];
            push(&b, (struct op){.kind = OP_MERGE, .merge = {x, y, n, mean}});
            b.out = y, b.n_out = T / n;
            for (int i = 0; i < T / n * y.width; i++) {
                const float *in = b.table[0].data;
                int j = i / y.width, k = i % y.width;
                double sum = 0;
                for (int m = 0; m < n; m++) sum += (double)in[(j * n + m) * W + k % W] / n;
                want[i] = mean ? (float)sum : in[(j * n + k / W) * W + k % W];
            }
            for (int i = -1; i < n_isa(); i++) {
                if (i >= 0 && absent(i)) continue;
                run(&b,
                    (struct setting){i < 0 ? &backend_ref : &backend_cpu, i < 0 ? NULL : isas[i], 2,
                                     ROW_PROMPT},
                    0, T, got, NULL);
                for (int k = 0; k < T / n * y.width; k++) assert_true(fabsf(got[k] - want[k]) <= 1e-6f);
            }
            bench_free(&b);
        }
}

/* rows and select: lowest id on ties, odd vocabulary sizes. */
static void selects(void **state) {
    (void)state;
    for (int n = 1; n < 200; n += 33) {
        struct bench b = {.n_vocab = n};
        struct view x = input(&b, n, 0), y = new_buf(&b, n, BUF_ROWS_OUT);
        float *table = (float *)b.table[0].data;
        for (int t = 0; t < MAX_T; t++) table[t * n + (t * 7) % n] = table[t * n + (t * 3) % n] = 50;
        push(&b, (struct op){.kind = OP_ROWS, .rows = {x, y}});
        push(&b, (struct op){.kind = OP_SELECT, .select = {y, n}});
        for (int cls = 0; cls < 2; cls++)
            for (int i = 0; i < n_isa() && !absent(i); i++)
                for (int threads = 1; threads < 3; threads++) {
                    int32_t token[MAX_T];
                    run(&b, (struct setting){&backend_cpu, isas[i], threads, (enum row_class)cls}, 5, 33,
                        NULL, token);
                    for (int t = 0; t < 33; t++) {
                        int p = (t + 5) * 7 % n, q = (t + 5) * 3 % n;
                        assert_int_equal(token[t], p < q ? p : q);
                    }
                }
        bench_free(&b);
    }
}

/* A tenth of a second after the last step no thread of the team uses a processor. */
static void threads_rest(void **state) {
    (void)state;
    struct bench b = {0};
    struct view x = input(&b, 64, 0), y = output(&b, 64);
    push(&b, (struct op){.kind = OP_NORM, .norm = {x, y, NORM_RMS, 64, 1e-5f, NULL, NULL, 0}});
    run(&b, (struct setting){&backend_cpu, NULL, 2, ROW_DECODE}, 0, 5, NULL, NULL);
    bench_free(&b);
    struct timespec t0, t1, nap = {0, 100 * 1000 * 1000};
#ifdef __clang__ /* its OpenMP runtime spins for 200 ms by itself; gcc's, which releases are built with, for about 1 */
    nanosleep(&(struct timespec){0, 300 * 1000 * 1000}, NULL);
#endif
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    double used = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    if (used > 0.01) fail_msg("%.3f s of processor time in 0.1 s of rest", used);
}

static bool yes(void) { return true; }
static bool no(void) { return false; }

/* Steps of a team of n_thread, each of so many ms, while processors for free threads are there until the end of the busy
 * time; more threads wait for one of theirs half of the time. */
static void team_leaves_busy_processors(void **state) {
    (void)state;
    static const struct {
        int n_thread, free, step;
        double enough; /* of the steps' time with no thread too many */
        bool (*room)(void);
    } cases[] = {{2, 2, 3, 1, yes},    {2, 1, 3, 0.9, yes},     {2, 1, 3, 0.99, no}, {2, 1, 40, 0.9, yes},
                 {2, 1, 40, 0.99, no}, {2, 1, 5000, 0.66, yes}, {8, 7, 3, 0.9, yes}, {8, 5, 3, 0.85, yes},
                 {8, 5, 3, 0.97, no},  {8, 1, 3, 0.8, yes},     {16, 16, 3, 1, no}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { MS = 1000000 };
        int64_t now = 0, wall = (int64_t)cases[i].step * MS, busy = 10000 * wall, good = 0;
        int n_thread = cases[i].n_thread;
        struct cpu_team t = {.n = n_thread, .room = cases[i].room};
        for (; now < busy; now += wall) {
            good += t.n <= cases[i].free ? wall : 0;
            assert_in_range(t.n, cases[i].free, n_thread);
            cpu_team_next(&t, n_thread, now + wall, wall, t.n > cases[i].free ? wall / 2 : 0);
        }
        if ((double)good < cases[i].enough * (double)busy)
            fail_msg("%d threads, %d free: one too many for %.2f of the time", n_thread, cases[i].free,
                     1 - (double)good / (double)busy);
        t.room = yes;
        /* all of them again within a second, or a few steps; one lost slice of a processor is soon forgotten */
        for (int64_t end = now + 1000 * MS + 40 * wall; now < end; now += wall)
            cpu_team_next(&t, n_thread, now + wall, wall, 0);
        assert_int_equal(t.n, n_thread);
        cpu_team_next(&t, n_thread, now += wall, wall, wall / 2);
        for (int64_t end = now + 100 * MS + 40 * wall; now < end; now += wall)
            cpu_team_next(&t, n_thread, now + wall, wall, 0);
        assert_int_equal(t.n, n_thread);
    }
}

/* The calling thread, and those it starts, on one processor. */
static void to_one_processor(cpu_set_t *before) {
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof *before, before), 0);
    CPU_ZERO(&one);
    for (int i = 0; !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

/* A thread beside another on one processor loses time; one that sleeps loses none. */
static void threads_notice_lost_processors(void **state) {
    (void)state;
    cpu_set_t all;
    struct cpu_watch w = cpu_watch_begin();
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    assert_int_equal(cpu_watch_end(&w), 0);
    to_one_processor(&all);
    pid_t busy = fork();
    if (!busy)
        for (;;) __builtin_ia32_pause();
    int64_t begin = cpu_now(), lost = 0;
    while (lost < 1000000 && cpu_now() - begin < 20000000000) { /* 1 ms of 20 s */
        w = cpu_watch_begin();
        for (int64_t t = cpu_now(); cpu_now() - t < 20000000;) __builtin_ia32_pause();
        lost += cpu_watch_end(&w);
    }
    kill(busy, SIGKILL);
    waitpid(busy, NULL, 0);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(lost >= 1000000);
}

/* A team of three makes itself smaller on one processor. */
static void team_on_one_processor(void **state) {
    (void)state;
    cpu_set_t all;
    struct bench b = {.matmul = true, .crowded = true};
    add_member(&b, QUANT_Q8_0, 288, 2048, false);
    struct view x = input(&b, 2048, 0), y = output(&b, 288);
    push(&b, (struct op){.kind = OP_MATMUL, .matmul = {x, y, &b.group, false}});
    to_one_processor(&all); /* the third thread is new, for no test before has so many */
    host_threads_pretend(3);
    run(&b, (struct setting){&backend_cpu, NULL, 3, ROW_PROMPT}, 0, MAX_T, NULL, NULL);
    host_threads_pretend(0);
    bench_free(&b);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void instruction_sets_are_refused_by_name(void **state) {
    (void)state;
    enum cpu_isa isa;
    assert_int_equal(cpu_isa_pick("sse9", &isa), INFER_E_INPUT);
    assert_ok(cpu_isa_pick("avx2", &isa));
    assert_int_equal(isa, CPU_ISA_AVX2);
    if (cpu_isa_best() < CPU_ISA_AMX) assert_int_equal(cpu_isa_pick("amx", &isa), INFER_E_DEVICE);
}

int main(int argc, char **argv) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_every_format),
        cmocka_unit_test(matmul_of_runs),
        cmocka_unit_test(matmul_folded),
        cmocka_unit_test(norms),
        cmocka_unit_test(ropes),
        cmocka_unit_test(glus_and_adds),
        cmocka_unit_test(gates_of_heads),
        cmocka_unit_test(attention),
        cmocka_unit_test(choices),
        cmocka_unit_test(entries),
        cmocka_unit_test(ends_of_runs),
        cmocka_unit_test(streams),
        cmocka_unit_test(compressions),
        cmocka_unit_test(ngrams),
        cmocka_unit_test(attention_without_a_store),
        cmocka_unit_test(heads),
        cmocka_unit_test(lowranks),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(columns),
        cmocka_unit_test(merges),
        cmocka_unit_test(selects),
        cmocka_unit_test(draws),
        cmocka_unit_test(threads_rest),
        cmocka_unit_test(team_leaves_busy_processors),
        cmocka_unit_test(threads_notice_lost_processors),
        cmocka_unit_test(team_on_one_processor),
        cmocka_unit_test(instruction_sets_are_refused_by_name),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* a name, or a pattern like attend* */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

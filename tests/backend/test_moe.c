/* Mixtures of experts: the router's arithmetic against float64, experts and mix of every backend and instruction set against the reference,
 * and bits that do not depend on neighbours, steps, threads and how a stack lies. */
#define OP_BENCH_ROWS 257
#include "tests/lib/op_bench.h"
#include "tests/lib/pace.h"
#include "seam/router.h"
#include "seam/weight.h"

/* ---- route against float64 ---- */

static double scored(const struct router *r, double x) {
    return r->softcap > 0 ? (double)r->softcap * tanh(x / (double)r->softcap) : x;
}
static double score_of(const struct router *r, const float *logits, int e) {
    double x = scored(r, (double)logits[e]), sum = 0;
    if (r->act == ROUTE_SIGMOID) return 1 / (1 + exp(-x));
    for (int i = 0; r->act == ROUTE_SOFTMAX && i < r->n_expert; i++)
        sum += exp(scored(r, (double)logits[i]) - x);
    return r->act == ROUTE_SOFTMAX ? 1 / sum : x;
}

/* The greatest of c that are not gone, the lowest on ties; *gap: how far the next one is. */
static int greatest(const double *c, const bool *gone, int n, double *gap) {
    int best = -1;
    double next = -INFINITY;
    for (int i = 0; i < n; i++)
        if (!gone[i] && (best < 0 || c[i] > c[best])) best = i;
    for (int i = 0; i < n; i++)
        if (!gone[i] && i != best) next = fmax(next, c[i]);
    if (c[best] - next < *gap) *gap = c[best] - next;
    return best;
}

/* The smallest gap of a decision; ids and weights as choice. */
static double route_64(const struct router *r, const float *logits, double *choice) {
    double s[ROUTE_EXPERTS_MAX], c[ROUTE_EXPERTS_MAX], group[ROUTE_GROUPS_MAX], gap = INFINITY, sum = 0;
    bool gone[ROUTE_EXPERTS_MAX] = {false}, used[ROUTE_GROUPS_MAX] = {false};
    for (int e = 0; e < r->n_expert; e++) {
        s[e] = score_of(r, logits, e);
        c[e] = s[e] + (r->bias ? (double)r->bias[e] : 0);
    }
    int size = r->n_group > 1 ? r->n_expert / r->n_group : r->n_expert;
    for (int g = 0; r->n_group > 1 && g < r->n_group; g++) {
        double top = -INFINITY, next = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            next = fmax(next, fmin(top, c[i]));
            top = fmax(top, c[i]);
        }
        group[g] = r->group_top2 && size > 1 ? top + next : top;
    }
    for (int i = 0; r->n_group > 1 && i < r->n_group_used; i++)
        used[greatest(group, used, r->n_group, &gap)] = true;
    for (int e = 0; r->n_group > 1 && e < r->n_expert; e++) gone[e] = !used[e / size];
    for (int j = 0; j < r->n_used; j++) {
        int e = greatest(c, gone, r->n_expert, &gap);
        gone[e] = true;
        choice[j] = e;
        choice[r->n_used + j] = r->act == ROUTE_CHOSEN ? exp(scored(r, (double)logits[e])) : s[e];
        sum += choice[r->n_used + j];
    }
    double by = r->norm == ROUTE_NORM_ADD ? sum + (double)r->eps : fmax(sum, (double)r->eps);
    for (int j = 0; j < r->n_used; j++) {
        double *w = &choice[r->n_used + j];
        if (r->act == ROUTE_CHOSEN) *w /= sum;
        if (r->act != ROUTE_CHOSEN && r->norm != ROUTE_NORM_NONE) *w /= by;
        *w *= (double)r->scale * (r->expert_scale ? (double)r->expert_scale[(int)choice[j]] : 1);
    }
    return gap;
}

static const struct route_case {
    int n_expert, n_used, n_group, n_group_used;
    bool top2, bias, each;
    float softcap;
} route_cases[] = {{1, 1, 0, 0, false, false, false, 0},       {2, 2, 1, 1, false, true, true, 0},
                   {5, 2, 0, 0, false, false, false, 0},       {6, 2, 2, 1, true, true, false, 0},
                   {33, 33, 0, 0, false, true, true, 0},       {128, 8, 0, 0, false, false, false, 0},
                   {128, 1, 0, 0, false, false, true, 5},      {160, 6, 8, 3, false, false, false, 0},
                   {256, 8, 8, 4, true, true, false, 0},       {257, 10, 0, 0, false, true, true, 3},
                   {12, 3, 12, 4, true, true, false, 0},       {100, 7, 50, 9, true, true, true, 0},
                   {1024, 64, 64, 40, true, true, false, 0.5f}};
enum { ROUTE_CASES = sizeof route_cases / sizeof *route_cases };
static float route_bias[ROUTE_EXPERTS_MAX], route_scales[ROUTE_EXPERTS_MAX];

static struct router route_of(const struct route_case *c, enum route_act act, enum route_norm norm) {
    static const float eps[] = {0, 1e-20f, 0.6f};
    for (int i = 0; i < ROUTE_EXPERTS_MAX; i++)
        route_bias[i] = 0.3f * gauss(), route_scales[i] = 1 + 0.4f * uniform();
    return (struct router){c->n_expert,
                           c->n_used,
                           c->n_group,
                           c->n_group_used,
                           act,
                           act == ROUTE_CHOSEN ? ROUTE_NORM_NONE : norm,
                           c->top2,
                           c->softcap,
                           eps[norm],
                           norm == ROUTE_NORM_ADD ? 2.5f : 1,
                           c->bias ? route_bias : NULL,
                           c->each ? route_scales : NULL};
}

static void routes_against_float64(void **state) {
    (void)state;
    int compared = 0;
    for (int i = 0; i < ROUTE_CASES; i++)
        for (int act = ROUTE_SOFTMAX; act <= ROUTE_CHOSEN; act++)
            for (int norm = ROUTE_NORM_NONE; norm <= ROUTE_NORM_CLAMP; norm++)
                for (int row = 0; row < 20; row++) {
                    struct router r = route_of(&route_cases[i], (enum route_act)act, (enum route_norm)norm);
                    float logits[ROUTE_EXPERTS_MAX], choice[2 * ROUTE_USED_MAX];
                    double want[2 * ROUTE_USED_MAX];
                    for (int e = 0; e < r.n_expert; e++) logits[e] = 3 * gauss();
                    double gap = route_64(&r, logits, want);
                    router_row(&r, logits, NULL, choice);
                    if (gap < 1e-6) continue; /* float32 may choose the other one */
                    compared++;
                    for (int j = 0; j < r.n_used; j++) {
                        double w = want[r.n_used + j];
                        if ((double)choice[j] != want[j])
                            fail_msg("case %d: choice %d is %g, not %g", i, j, (double)choice[j], want[j]);
                        if (!(fabs((double)choice[r.n_used + j] - w) <= 3e-6 * fabs(w)))
                            fail_msg("case %d: weight %d is %g, not %g", i, j, (double)choice[r.n_used + j],
                                     w);
                    }
                }
    assert_true(compared > 1500);
}

/* Each of two by a softmax over those that are near it and left: experts 1 and 3 are, 0 is not, a NaN never. */
static void routes_of_those_near(void **state) {
    (void)state;
    const float logits[] = {0.95f, 1, -1, 0.99f, 0.98f, NAN};
    const double e1 = exp(-0.01), e2 = exp(-0.02), want[] = {1, 3, 1 / (1 + e1 + e2), 1 / (1 + e1)};
    const struct router r = {.n_expert = 6, .n_used = 2, .act = ROUTE_NEAR, .eps = 0.0201f, .scale = 1};
    float choice[4];
    router_row(&r, logits, NULL, choice);
    for (int i = 0; i < 4; i++) assert_true(fabs((double)choice[i] - want[i]) < 1e-6);
}

/* A card says by name that it has no kernel for them. */
static void what_no_card_computes(void **state) {
    (void)state;
    const struct router r = {.n_expert = 6, .n_used = 2, .act = ROUTE_NEAR};
    const int32_t told[2] = {0, 1};
    struct op ops[] = {
        {OP_ROUTE, 0, "that are told", .route = {.router = &r, .told = told, .n_told = 1}},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct op_list list = {.op = &ops[i], .n_op = 1};
        struct backend_config c = {0};
        struct backend_sizes sizes;
        c.list[ROW_DECODE] = &list;
        assert_int_equal(cuda_sizes(&c, &sizes), INFER_E_UNSUPPORTED);
        assert_non_null(strstr(err_message(), "no kernel for"));
        assert_non_null(strstr(err_message(), ops[i].name));
    }
}

/* Ties go to the lowest; ids are different ones of the model's, whatever the logits are. */
static void routes_of_odd_logits(void **state) {
    (void)state;
    static const float odd[] = {0, -0.0f, 1, -INFINITY, INFINITY, NAN};
    for (int i = 0; i < ROUTE_CASES; i++)
        for (int act = ROUTE_SOFTMAX; act <= ROUTE_CHOSEN; act++)
            for (int row = 0; row < 60; row++) {
                struct route_case c = route_cases[i];
                c.bias = false;
                struct router r = route_of(&c, (enum route_act)act, ROUTE_NORM_ADD);
                float logits[ROUTE_EXPERTS_MAX], choice[2 * ROUTE_USED_MAX];
                bool seen[ROUTE_EXPERTS_MAX] = {false};
                for (int e = 0; e < r.n_expert; e++) {
                    int k = (int)((uniform() + 1) * 2.99f);
                    logits[e] = row < 6 ? odd[row] : odd[k];
                }
                router_row(&r, logits, NULL, choice);
                for (int j = 0; j < r.n_used; j++) {
                    int e = (int)choice[j];
                    assert_in_range(e, 0, r.n_expert - 1);
                    assert_false(seen[e]);
                    seen[e] = true;
                    if (row < 6 && r.n_group < 2) assert_int_equal(e, j);
                }
            }
    float tied[6] = {1, 3, 2, 3, 2, 2}, choice[8];
    struct router r = {.n_expert = 6, .n_used = 4, .act = ROUTE_CHOSEN, .scale = 1};
    router_row(&r, tied, NULL, choice);
    assert_true(choice[0] == 1 && choice[1] == 3 && choice[2] == 2 && choice[3] == 4);
}

/* Roots of softplus, against doubles; what a row is told, in its order, with weights as if it had chosen. */
static void told(void **state) {
    (void)state;
    const struct router r = {
        .n_expert = 6, .n_used = 3, .act = ROUTE_ROOT, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .scale = 1.5f};
    const float logits[6] = {-30, -2, 0, 0.5f, 3, 40};
    const int32_t say[3] = {4, 0, 2};
    float choice[6];
    double s[3], sum = 0;
    for (int j = 0; j < 3; j++) sum += s[j] = sqrt(log1p(exp((double)logits[say[j]])));
    router_row(&r, logits, say, choice);
    for (int j = 0; j < 3; j++) {
        assert_true(choice[j] == (float)say[j]);
        assert_true(fabs((double)choice[3 + j] - 1.5 * s[j] / sum) < 1e-6);
    }
    for (double x = -20; x < 20; x += 0.37) {
        const double want = sqrt(log1p(exp((double)(float)x)));
        assert_true(fabs((double)router_root((float)x) - want) < 3e-6 * want);
    }
    router_row(&r, logits, NULL, choice);
    assert_true(choice[0] == 5 && choice[1] == 4 && choice[2] == 3);
    int32_t id[3] = {1, 7, 0};
    const float *input[3] = {NULL, NULL, logits};
    const struct step step = {.id = id, .input = input};
    const struct op_route o = {.router = &r, .told = say, .n_told = 2};
    assert_ptr_equal(step_told(&step, &o, 0), say + 3); /* of its id */
    assert_null(step_told(&step, &o, 1));               /* which has none */
    assert_null(step_told(&step, &o, 2));               /* of no id */
}

/* Every backend has the bits of router_row. */
static void routes_of_backends(void **state) {
    (void)state;
    for (int i = 0; i < ROUTE_CASES; i++)
        for (int act = ROUTE_SOFTMAX; act <= ROUTE_CHOSEN; act++) {
            struct router r = route_of(&route_cases[i], (enum route_act)act, (enum route_norm)(i % 3));
            struct bench b = {0};
            struct view x = input(&b, r.n_expert, 0), y = output(&b, 2 * r.n_used);
            float want[2 * ROUTE_USED_MAX], *got = malloc(sizeof *got * MAX_T * (size_t)y.width);
            push(&b, (struct op){.kind = OP_ROUTE, .route = {x, y, &r, NULL, 0}});
            for (int k = 0; k < 4; k++) {
                run(&b, (struct setting){k ? &backend_cpu : &backend_ref, NULL, k, (enum row_class)(k % 2)},
                    0, MAX_T, got, NULL);
                for (int t = 0; t < MAX_T; t++) {
                    router_row(&r, (const float *)b.table[0].data + t * r.n_expert, NULL, want);
                    assert_memory_equal(got + t * y.width, want, sizeof *got * (size_t)y.width);
                }
            }
            free(got);
            bench_free(&b);
        }
}

/* ---- experts ---- */

enum { HITS_ALL, HITS_FEW }; /* which experts the rows choose: any; the first ones alone */

/* A stack of E matrices of n rows; those that no row chooses are NaN. */
static struct weight stack_of(enum quant_type type, int E, int n, int k, bool bias, int hit) {
    const struct quant_info *q = quant_info(type);
    size_t row = quant_row_bytes(q, (size_t)k);
    uint8_t *data = malloc(row * (size_t)(E * n)); /* exactly: ASan sees a byte too far */
    float *x = malloc(sizeof *x * (size_t)k), *b = bias ? malloc(sizeof *b * (size_t)(E * n)) : NULL;
    for (int i = 0; i < E * n; i++) {
        for (int j = 0; j < k; j++) x[j] = 0.05f * gauss();
        q->encode(data + row * (size_t)i, x, (size_t)k, NULL);
        if (i / n >= hit) memset(data + row * (size_t)i, 0xff, row);
        if (b) b[i] = i / n < hit ? gauss() : NAN;
    }
    free(x);
    return (struct weight){.name = "experts",
                           .type = type,
                           .n = n,
                           .k = k,
                           .factor = bias ? 0.7f : 1,
                           .n_stack = E,
                           .stack_bytes = row * (size_t)n,
                           .data = data,
                           .bias = b};
}
static void add_stack(struct weight_group *g, struct weight w) {
    g->member[g->n_member++] = w;
    g->n += w.n;
    g->k = w.k;
}

/* Choices of all rows, from random logits of which those of the first hit experts are greater. */
static struct view choices(struct bench *b, struct router *r, int hit) {
    struct view logits = input(b, r->n_expert, 0), choice = new_buf(b, 2 * r->n_used, BUF_ROWS_ALL);
    float *x = (float *)b->table[b->n_table - 1].data;
    for (int i = 0; i < MAX_T * r->n_expert; i++) x[i] += i % r->n_expert < hit ? 100 : 0;
    push(b, (struct op){.kind = OP_ROUTE, .route = {logits, choice, r, NULL, 0}});
    return choice;
}

static const struct {
    int E, used, n, k;
    int hit;
    bool by_choice, weighted, bias;
} shapes[] = {{5, 2, 35, 256, 5, false, false, true},  {16, 4, 33, 512, 16, true, false, false},
              {7, 7, 9, 256, 7, false, true, true},    {9, 1, 70, 2304, 9, true, true, false},
              {12, 3, 64, 256, 4, false, false, true}, {128, 8, 19, 256, 128, true, false, true}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double tolerance_of(enum quant_type t) { return cpu_is_float(t) ? TOL_OP_FLOAT : TOL_OP_INT8; }

static void experts_every_format(void **state) {
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int i = same_kernel((enum quant_type)type) ? SHAPES : type % 2; i < SHAPES;
             i += type == QUANT_F32 ? 1 : 2 * EVERY(2)) {
            enum quant_type t = (enum quant_type)type;
            bool plain = quant_info(t)->elems == 1, few = shapes[i].hit < shapes[i].E;
            int k = plain && shapes[i].k == 256 ? 77 : shapes[i].k;
            struct router r = {
                .n_expert = shapes[i].E, .n_used = shapes[i].used, .act = ROUTE_SOFTMAX, .scale = 3};
            struct bench b = {.matmul = true, .no_fuse = i % 2};
            struct view choice = choices(&b, &r, few ? shapes[i].hit : 0);
            struct view x = input(&b, k * (shapes[i].by_choice ? r.n_used : 1), 0);
            add_stack(&b.group, stack_of(t, r.n_expert, shapes[i].n, k, shapes[i].bias, shapes[i].hit));
            if (i % 3 == 0) add_stack(&b.group, stack_of(t, r.n_expert, 5, k, false, shapes[i].hit));
            if (i == 5) /* of two kinds */
                add_stack(&b.group, stack_of(plain ? QUANT_Q8_0 : QUANT_F32, r.n_expert, 16, k = 256, true,
                                             r.n_expert));
            if (i == 5 && plain) {
                bench_free(&b);
                continue; /* 77 columns are no blocks */
            }
            struct view y = output(&b, r.n_used * b.group.n);
            push(&b, (struct op){.kind = OP_EXPERTS,
                                 .experts = {x, choice, y, &b.group, r.n_used, shapes[i].by_choice,
                                             shapes[i].weighted, 0, 0}});
            char name[80];
            snprintf(name, sizeof name, "experts %s, shape %d", quant_info(t)->name, i);
            b.int16 = t == QUANT_F16 || t == QUANT_BF16;
            check(&b, name, (const double[2]){b.int16 ? TOL_OP_BF16 : tolerance_of(t), tolerance_of(t)});
            bench_free(&b);
        }
}

/* An adapter's matrices of each expert: of rows as they are, of rows of each choice, times the choice's weight; two members. */
static void adapters_of_experts(void **state) {
    (void)state;
    enum { E = 5, K = 70, N = 37, R = 6, USED = 3 };
    static float a[E * R * K], b[E * N * R];
    static const float scale[] = {1.5f, -1};
    for (int i = 0; i < E * R * K; i++) a[i] = gauss();
    for (int i = 0; i < E * N * R; i++) b[i] = gauss();
    for (int i = 0; i < 3; i++) {
        const bool by_choice = i == 1, weighted = i == 2;
        const struct lowrank_part part[] = {
            {.col = 0, .n = N, .k = K, .r = R, .n_stack = E, .a = a, .b = b},
            {.col = N, .n = N, .k = K, .r = R, .n_stack = E, .at = R, .a = a, .b = b},
            {.adapter = 1, .col = N, .n = N, .k = K, .r = R, .n_stack = E, .at = 2 * R, .a = a, .b = b}};
        const struct lowrank w = {part, 3, 3 * R};
        struct router r = {
            .n_expert = E, .n_used = USED, .act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .scale = 2};
        struct bench o = {.adapted = true, .adapter = {scale, NULL, scale}};
        struct view choice = choices(&o, &r, 0), x = input(&o, by_choice ? USED * K : K, 0),
                    y = input(&o, 2 * USED * N, 0);
        o.out = y;
        push(&o,
             (struct op){.kind = OP_LOWRANK, .lowrank = {x, choice, y, &w, USED, by_choice, weighted, 0}});
        check(&o, "adapters of experts", (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
        bench_free(&o);
    }
}

/* A whole block: gate and up, their product, down, and the sum with a shared part; with a router that everything else follows. */
static void blocks(void **state) {
    (void)state;
    static const struct {
        enum quant_type gate, down;
        int shared; /* 0: none; 1: added; 2: by a gate */
        bool no_fuse, plain;
    } cases[] = {{QUANT_Q4_K, QUANT_Q6_K, 0, false, false},
                 {QUANT_Q4_K, QUANT_Q6_K, 2, true, false},
                 {QUANT_F32, QUANT_F32, 1, false, true},
                 {QUANT_F32, QUANT_F32, 2, true, false},
                 {QUANT_Q8_0, QUANT_Q4_0, 1, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += EVERY(2)) {
        enum { E = 10, USED = 3, FF = 256, D = 512 };
        struct bench b = {.matmul = true, .no_fuse = cases[i].no_fuse};
        struct router r = {
            .n_expert = E, .n_used = USED, .act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .scale = 2};
        struct view choice = choices(&b, &r, 0), x = input(&b, D + 1, 0);
        x.width = D;
        b.second.id = 1;
        for (int m = 0; m < 2; m++) add_stack(&b.group, stack_of(cases[i].gate, E, FF, D, m == 0, E));
        add_stack(&b.second, stack_of(cases[i].down, E, D, FF, true, E));
        struct view gu = new_buf(&b, 2 * USED * FF, BUF_ROWS_ALL), f = new_buf(&b, USED * FF, BUF_ROWS_ALL),
                    d = new_buf(&b, USED * D, BUF_ROWS_ALL), none = {-1, 0, 0}, y = output(&b, D);
        push(&b,
             (struct op){.kind = OP_EXPERTS, .experts = {x, choice, gu, &b.group, USED, false, false, 0, 0}});
        push(&b, (struct op){.kind = OP_GLU,
                             .glu = {view_columns(gu, 0, USED * FF),
                                     view_columns(gu, USED * FF, USED * FF),
                                     f,
                                     ACT_SILU,
                                     {0}}});
        push(&b,
             (struct op){.kind = OP_EXPERTS, .experts = {f, choice, d, &b.second, USED, true, false, 0, 0}});
        push(&b, (struct op){.kind = OP_MIX,
                             .mix = {d, choice, cases[i].shared ? x : none,
                                     cases[i].shared == 2 ? (struct view){x.buf, D, 1} : none, y, USED,
                                     cases[i].plain}});
        double tol = cases[i].gate == QUANT_F32 ? 3 * TOL_OP_FLOAT : 3 * TOL_OP_INT8;
        check(&b, "a block of experts", (const double[2]){tol, tol});
        bench_free(&b);
    }
}

static void mixes(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        int used = 1 + i % 4 * 3, n = i % 3 ? 13 + 100 * i : 1;
        struct router r = {.n_expert = 16, .n_used = used, .act = ROUTE_SOFTMAX, .scale = 1};
        struct bench b = {0};
        struct view choice = choices(&b, &r, 0), x = input(&b, used * n + n + 1, 0), y = output(&b, n),
                    none = {-1, 0, 0};
        struct view shared = {x.buf, used * n, n}, gate = {x.buf, used * n + n, 1};
        push(&b, (struct op){.kind = OP_MIX,
                             .mix = {view_columns(x, 0, used * n), choice, i % 2 ? shared : none,
                                     i % 4 == 3 ? gate : none, y, used, i % 5 == 0}});
        check(&b, "mix", (const double[2]){TOL_OP_FLOAT, TOL_OP_FLOAT});
        bench_free(&b);
    }
}

/* ---- the same stacks in other places ---- */

enum { LIE_ALONE, LIE_HALVES, LIE_TURNS, LIE_PARTS, LIE_COUNT };

/* gate and up of E experts: apart, halves of one stack, row after row of one stack in turns, or a tensor each. */
static void lay_out(struct weight_group *g, const struct weight alone[2], int how, void **memory) {
    enum { E = 6, N = 40 };
    static const void *part[2][E];
    size_t row = quant_row_bytes(quant_info(alone[0].type), (size_t)alone[0].k);
    uint8_t *all = *memory = malloc(row * 2 * N * E);
    static float bias[E * 2 * N];
    for (int m = 0; m < 2; m++)
        for (int e = 0; e < E; e++)
            for (int i = 0; i < N; i++) {
                int at = how == LIE_HALVES  ? (e * 2 + m) * N + i
                         : how == LIE_TURNS ? (e * N + i) * 2 + m
                                            : ((E - 1 - e) * 2 + m) * N + i;
                memcpy(all + row * (size_t)at, (const uint8_t *)alone[m].data + row * (size_t)(e * N + i),
                       row);
                bias[(e * 2 + m) * N + i] = alone[m].bias[e * N + i];
                part[m][e] = all + row * (size_t)((E - 1 - e) * 2 + m) * N;
            }
    struct weight whole = alone[0];
    whole.data = all, whole.n = 2 * N, whole.stack_bytes = row * 2 * N;
    whole.bias = how == LIE_HALVES ? bias : NULL;
    *g = (struct weight_group){0};
    for (int m = 0; m < 2; m++) {
        struct weight w = alone[m];
        if (how == LIE_HALVES) w = weight_rows(&whole, m * N, N);
        if (how == LIE_TURNS) w = weight_slice(&whole, m, 2, N), w.bias = alone[m].bias, w.stack_bias = 0;
        if (how == LIE_PARTS) w.part = part[m], w.data = part[m][0];
        add_stack(g, w);
    }
}

static void stacks_lie_anywhere(void **state) {
    (void)state;
    static const enum quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_K, QUANT_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        enum { E = 6, N = 40, K = 256, USED = 2 };
        struct router r = {.n_expert = E, .n_used = USED, .act = ROUTE_SOFTMAX, .scale = 1};
        struct bench b = {.matmul = true};
        struct view choice = choices(&b, &r, 0), x = input(&b, K, 0), y = output(&b, USED * 2 * N);
        struct weight alone[2] = {stack_of(types[i], E, N, K, true, E), stack_of(types[i], E, N, K, true, E)};
        push(&b,
             (struct op){.kind = OP_EXPERTS, .experts = {x, choice, y, &b.group, USED, false, false, 0, 0}});
        float *want = malloc(sizeof *want * MAX_T * USED * 2 * N),
              *got = malloc(sizeof *got * MAX_T * USED * 2 * N);
        for (int k = 0; k < 4; k++)
            for (int how = LIE_ALONE; how < LIE_COUNT; how++) {
                struct setting s = {k % 2 ? &backend_cpu : &backend_ref, NULL, 2, (enum row_class)(k / 2)};
                void *memory;
                lay_out(&b.group, alone, how, &memory);
                run(&b, s, 0, MAX_T, how ? got : want, NULL);
                if (how) assert_memory_equal(got, want, sizeof *got * MAX_T * USED * 2 * N);
                free(memory);
            }
        b.group = (struct weight_group){0};
        for (int m = 0; m < 2; m++) free((void *)alone[m].data), free((void *)alone[m].bias);
        free(want);
        free(got);
        bench_free(&b);
    }
}

/* The bits of all experts where a rank has the chosen one, and 0 where another has. */
static void experts_of_a_rank(void **state) {
    (void)state;
    enum { E = 7, N = 40, K = 256, USED = 3, WIDTH = USED * 2 * N };
    static const int shares[][2] = {{0, 4}, {4, 3}, {2, 1}, {0, 7}};
    for (int type = 0; type < 2; type++)
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            const int first = shares[i][0], n = shares[i][1];
            struct router r = {.n_expert = E, .n_used = USED, .act = ROUTE_SOFTMAX, .scale = 1};
            struct bench b = {.matmul = true};
            struct view choice = choices(&b, &r, 0), x = input(&b, K, 0), y = output(&b, WIDTH);
            for (int m = 0; m < 2; m++)
                add_stack(&b.group, stack_of(type ? QUANT_Q4_K : QUANT_F32, E, N, K, true, E));
            const struct weight_group all = b.group;
            push(&b, (struct op){.kind = OP_EXPERTS,
                                 .experts = {x, choice, y, &b.group, USED, false, false, 0, 0}});
            float *want = malloc(sizeof *want * MAX_T * WIDTH), *got = malloc(sizeof *got * MAX_T * WIDTH);
            for (int k = 0; k < 4; k++) {
                const struct setting s = {k % 2 ? &backend_cpu : &backend_ref, NULL, 2,
                                          (enum row_class)(k / 2)};
                struct op_experts *o = &b.op[b.n_op - 1].experts;
                float chosen[2 * USED];
                o->first = o->n_all = 0;
                b.group = all;
                run(&b, s, 0, MAX_T, want, NULL);
                o->first = first, o->n_all = E;
                for (int m = 0; m < 2; m++) {
                    struct weight *w = &b.group.member[m];
                    w->n_stack = n;
                    w->data = (const char *)w->data + (size_t)first * w->stack_bytes;
                    w->bias += first * N;
                }
                run(&b, s, 0, MAX_T, got, NULL);
                for (int t = 0; t < MAX_T; t++) {
                    router_row(&r, (const float *)b.table[0].data + t * E, NULL, chosen);
                    for (int c = 0; c < 2 * USED; c++) {
                        const int e = (int)chosen[c % USED];
                        float *of = want + t * WIDTH + c * N;
                        if (e < first || e >= first + n) memset(of, 0, sizeof *of * N);
                        assert_memory_equal(got + t * WIDTH + c * N, of, sizeof *of * N);
                    }
                }
            }
            b.group = all;
            free(want);
            free(got);
            bench_free(&b);
        }
}

int main(int argc, char **argv) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told),
        cmocka_unit_test(routes_against_float64),
        cmocka_unit_test(routes_of_those_near),
        cmocka_unit_test(what_no_card_computes),
        cmocka_unit_test(routes_of_odd_logits),
        cmocka_unit_test(routes_of_backends),
        cmocka_unit_test(experts_every_format),
        cmocka_unit_test(adapters_of_experts),
        cmocka_unit_test(blocks),
        cmocka_unit_test(mixes),
        cmocka_unit_test(stacks_lie_anywhere),
        cmocka_unit_test(experts_of_a_rank),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

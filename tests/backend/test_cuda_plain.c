/* Operations that only some families have, on a card: gates of a number a head, gates with limits, softplus, routers that weigh what is near,
 * a table of fewer rows than tokens. Against ref, routers bit for bit; as prompt and as decode rows, by shared kernels and by one kernel an
 * operation. Skipped with a printed reason where there is no usable card, unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"

#ifdef INFER_CUDA
#include <math.h>
#include "seam/op_list.h"
#include "seam/router.h"
#include "tests/lib/random.h"
#include "tests/lib/tolerance.h"

enum { T = 19, WIDE = 1200, ROOM = 2400, FEW = 7 };
static float table[T * WIDE], few_rows[FEW * WIDE];

/* x: columns of a table, row t of id t; then the operation, which writes out. */
struct lab {
    struct op op[2];
    struct buf buf[2];
    struct view x, out;
    struct weight table;
    struct weight_group beside; /* another table, if it has members */
};
static struct lab lab(int width, int out) {
    assert_true(width <= WIDE && out <= ROOM);
    for (int i = 0; i < T * width; i++) table[i] = 3 * uniform();
    struct lab l = {.buf = {{.name = "x", .width = width}, {.name = "out", .width = out}},
                    .x = {0, 0, width},
                    .out = {1, 0, out},
                    .table = {.name = "table", .type = QUANT_F32, .factor = 1, .n_stack = 1, .data = table}};
    l.table.n = T, l.table.k = width;
    return l;
}

static void run(struct lab *l, const struct backend_type *type, enum row_class cls, bool no_fuse,
                float *out) {
    const struct weight_group *groups[1] = {&l->beside};
    struct kv_group pages = {0, 1, 1};
    int32_t id[T], pos[T], slot[T] = {0}, page = 0;
    const int32_t *tables[1] = {&page};
    struct step_result result;
    struct backend_sizes sizes;
    struct backend *e;
    l->op[0] = (struct op){.kind = OP_EMBED, .name = "x", .embed = {l->x, &l->table, 1, false}};
    l->op[1].name = "op";
    struct op_list list = {cls, l->op, 2, l->buf, 2, T, T}, other = {.max_rows = T, .max_out = T};
    struct backend_config c = {.group = groups,
                               .n_group = l->beside.n_member > 0,
                               .embedding = &l->table,
                               .n_vocab = T,
                               .kv_group = &pages,
                               .n_kv_group = 1,
                               .n_slot = 1,
                               .n_ctx = KV_PAGE,
                               .no_fuse = no_fuse,
                               .n_logits = 1};
    list_lives(&list);
    other.cls = cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE;
    c.list[cls] = &list, c.list[other.cls] = &other;
    assert_ok(type->sizes(&c, &sizes));
    c.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < 2; i++) {
        l->buf[i].offset = c.activation_bytes;
        c.activation_bytes += (l->buf[i].row_bytes * T + 255) / 256 * 256;
    }
    assert_ok(type->open(&e, &c));
    assert_ok(type->upload(e));
    assert_ok(type->compile(e, cls));
    for (int t = 0; t < T; t++) id[t] = pos[t] = t;
    struct step s = {
        .n_row = T, .id = id, .pos = pos, .slot = slot, .out_row = id, .pages = tables, .pages_version = 1};
    assert_ok(type->run(e, cls, &s));
    assert_ok(type->wait(e, &result));
    assert_ok(type->read(e, cls, l->out, T, out));
    type->close(e);
}

/* The operation on the card as prompt and decode rows, by shared kernels and without; tolerance 0: the bits of ref. */
static void check(struct lab *l, const char *what, double tolerance) {
    static float want[T * ROOM], got[T * ROOM];
    const int n = T * l->out.width;
    double ss = 0;
    run(l, &backend_ref, ROW_PROMPT, false, want);
    for (int i = 0; i < n; i++) ss += (double)want[i] * (double)want[i] / n;
    for (int way = 0; way < 4; way++) {
        run(l, &backend_cuda, way & 1 ? ROW_DECODE : ROW_PROMPT, way & 2, got);
        for (int i = 0; i < n; i++) {
            const double off = fabs((double)got[i] - (double)want[i]);
            const bool like = got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]);
            if (like || (tolerance > 0 && off <= tolerance * sqrt(ss))) continue;
            fail_msg("%s, way %d: row %d, column %d is %.9g, not %.9g", what, way, i / l->out.width,
                     i % l->out.width, (double)got[i], (double)want[i]);
        }
    }
}

/* each: numbers of out for one of the gate; 0: there is no up */
static void gate(enum act_kind act, struct act_numbers k, int width, int each) {
    const int n = each ? width / each : width;
    char what[80];
    struct lab l = lab(n + (each ? width : 0) + 3, width);
    const struct view up = each ? view_columns(l.x, n + 3, width) : (struct view){-1, 0, 0};
    l.op[1] = (struct op){.kind = OP_GLU, .glu = {view_columns(l.x, 0, n), up, l.out, act, k}};
    snprintf(what, sizeof what, "activation %d of %d numbers for %d", (int)act, n, width);
    check(&l, what, 8 * TOL_OP_FLOAT);
}
static void gates(void **state) {
    (void)state;
    static const enum act_kind acts[] = {ACT_SIGMOID, ACT_SOFTPLUS, ACT_SILU, ACT_SILU_CLAMP};
    const struct act_numbers k = {.limit = 0.7f};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        gate(acts[i], k, 37, 0);
        gate(acts[i], k, 301, 1);
        gate(acts[i], k, 5 * 33, 33);
        gate(acts[i], k, 7 * 128, 128);
        gate(acts[i], k, 96, 96);
    }
}

/* Experts that are near each other and far, in groups and beside a bias; ties and a NaN. */
static void routers_of_what_is_near(void **state) {
    (void)state;
    static const struct {
        int n_expert, n_used, n_group, n_group_used;
        bool bias;
    } cases[] = {{16, 2, 0, 0, false}, {6, 3, 0, 0, true},  {40, 33, 0, 0, false}, {300, 8, 0, 0, false},
                 {64, 4, 8, 3, false}, {64, 4, 8, 3, true}, {130, 5, 0, 0, true}};
    static float bias[300];
    for (int i = 0; i < 300; i++) bias[i] = 0.3f * uniform();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int norm = ROUTE_NORM_NONE; norm <= ROUTE_NORM_ADD; norm++) {
            const struct router r = {.n_expert = cases[i].n_expert,
                                     .n_used = cases[i].n_used,
                                     .n_group = cases[i].n_group,
                                     .n_group_used = cases[i].n_group_used,
                                     .act = ROUTE_NEAR,
                                     .norm = (enum route_norm)norm,
                                     .eps = 0.3f,
                                     .scale = 1.5f,
                                     .bias = cases[i].bias ? bias : NULL};
            struct lab l = lab(r.n_expert, 2 * r.n_used);
            for (int k = 0; k < 3 * r.n_expert; k++) table[k] = roundf(4 * table[k]) / 4; /* ties */
            table[3 * r.n_expert + 1] = NAN;
            l.op[1] = (struct op){.kind = OP_ROUTE, .route = {.logits = l.x, .choice = l.out, .router = &r}};
            check(&l, "a router", 0);
        }
}

/* Tokens that a table beside the embedding has no row of have its first. */
static void tables_of_few_rows(void **state) {
    (void)state;
    struct lab l = lab(64, 75);
    for (int i = 0; i < FEW * 75; i++) few_rows[i] = uniform();
    l.beside = (struct weight_group){.n_member = 1, .n = FEW, .k = 75};
    l.beside.member[0] = (struct weight){
        .name = "few", .type = QUANT_F32, .n = FEW, .k = 75, .factor = 1, .n_stack = 1, .data = few_rows};
    l.op[1] = (struct op){.kind = OP_EMBED, .embed = {l.out, &l.beside.member[0], 0.5f, true}};
    check(&l, "a table", TOL_OP_FLOAT);
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates), cmocka_unit_test(routers_of_what_is_near),
                                       cmocka_unit_test(tables_of_few_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}

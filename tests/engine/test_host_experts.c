/* Experts in host memory: what the plan chooses by bytes and rates, and steps that are cancelled or must not allocate. That the logits are
 * right, whatever lies where, is in test_hf_forward.c. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "cuda/plan/host_part.h"
#include "cuda/plan/links.h"
#include "infer.h"
#include "model/model.h"
#include "plan/plan.h"

enum { N_LAYER = 2 };

static const char *folder(char *path, size_t n) { return test_path(path, n, "golden/hf/gpt_oss"); }
static struct model *open_model(void) {
    char path[512];
    struct model *m;
    assert_ok(model_open(&m, folder(path, sizeof path), &(struct tensorfile_options){0}));
    assert_int_equal(m->n_layer, N_LAYER);
    return m;
}

/* ---- the plan ---- */

struct question {
    size_t limit;        /* of the card's memory; 0: plenty */
    double host_gb_s;    /* the card has 1,000 */
    int layers, experts; /* as .gpu_layers and .cpu_experts */
};

static void ask(struct plan *p, struct arena *arena, const struct model *m, const struct question *q) {
    const struct card card = {.name = "some card", .sm = 89, .memory_bytes = (uint64_t)24 << 30};
    struct plan_options o = {.wish = {.device = DEVICE_AUTO,
                                      .host = DEVICE_NONE,
                                      .n_layer = q->layers,
                                      .n_cpu_experts = q->experts},
                             .ctx = 64,
                             .batch = 8,
                             .vram_limit = q->limit,
                             .rates = {1000, q->host_gb_s, false}};
    device_pick_card(&o.wish, &card, true, &o.place);
    o.place.host = &backend_cpu;
    assert_ok(plan_make(p, arena, m, &o));
}

static size_t card_bytes(const struct model *m, int layers, int experts) {
    struct arena arena = {0};
    struct plan p;
    ask(&p, &arena, m, &(struct question){0, 1, layers, experts});
    assert_true(p.fits);
    size_t n = p.part[p.n_part - 1].total_bytes;
    arena_free(&arena);
    return n;
}

static void what_the_plan_takes(void **state) {
    (void)state;
    struct model *m = open_model();
    const size_t all = card_bytes(m, -1, 0), one = card_bytes(m, -1, 1), two = card_bytes(m, -1, 2),
                 layer = card_bytes(m, 1, 0);
    enum { SLOW = 0, FAST = 1 };
    static const double host_gb_s[] = {1e-6, 1e6};
    assert_true(all > one && one > layer && layer > two);
    const struct {
        size_t limit;
        int host;                     /* of memory; FAST: only crossings count */
        int layers, experts;          /* asked for */
        int n_device, n_host, n_part; /* layers on the card, layers whose experts are not, parts */
        bool fits;
    } cases[] = {
        {all, SLOW, -1, -1, 2, 0, 1, true},       {all - 1, SLOW, -1, -1, 2, 1, 2, true},
        {one, SLOW, -1, -1, 2, 1, 2, true},       {one - 1, SLOW, -1, -1, 2, 2, 2, true},
        {one - 1, FAST, -1, -1, 1, 0, 2, true},   {layer, FAST, -1, -1, 1, 0, 2, true},
        {layer - 1, FAST, -1, -1, 2, 2, 2, true}, {layer - 1, SLOW, -1, -1, 2, 2, 2, true},
        {two, SLOW, -1, -1, 2, 2, 2, true},       {two - 1, SLOW, -1, -1, 0, 0, 1, true},
        {one - 1, SLOW, -1, 0, 1, 0, 2, true},    {all, SLOW, -1, 1, 2, 1, 2, true},
        {all, SLOW, -1, 99, 2, 2, 2, true},       {one - 1, SLOW, -1, 1, 2, 1, 2, false},
        {all, SLOW, 1, -1, 1, 0, 2, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        struct plan p;
        ask(&p, &arena, m,
            &(struct question){cases[i].limit, host_gb_s[cases[i].host], cases[i].layers, cases[i].experts});
        int away = p.part[p.n_part - 1].range.n_remote;
        if (p.set.n_device_layer != cases[i].n_device || away != cases[i].n_host ||
            p.n_part != cases[i].n_part || p.fits != cases[i].fits)
            fail_msg("case %zu: %d layers on the card, experts of %d on the host, %d parts, %s\n%s", i,
                     p.set.n_device_layer, away, p.n_part, p.fits ? "fits" : "does not fit", p.text);
        if (p.n_part > 1 && !p.experts.there && !p.layers.there)
            fail_msg("case %zu: nothing is predicted", i);
        if (p.experts.there && p.layers.there && p.layers.n < N_LAYER &&
            (away > 0) != (p.experts.tok_s >= p.layers.tok_s))
            fail_msg("case %zu: %g and %g tok/s", i, p.experts.tok_s, p.layers.tok_s);
        if (!p.fits && !strstr(p.text, "would fit: .device auto .cpu_experts 2")) fail_msg("%s", p.text);
        arena_free(&arena);
    }
    model_close(m);
}

/* By hand: bytes over rates, 60 us for each layer whose rows cross, and 0.5 us for each kernel of the card. */
static void what_the_plan_predicts(void **state) {
    (void)state;
    struct model *m = open_model();
    struct arena arena = {0};
    struct plan p;
    ask(&p, &arena, m, &(struct question){0, 10, -1, 2});
    double experts = 0, token = (double)m->token_bytes;
    for (int i = 0; i < N_LAYER; i++) {
        const struct layer *l = &m->layer[i];
        const struct weight *w[] = {&l->moe.experts.member[0], &l->moe.experts.member[1],
                                    &l->moe.experts_down.member[0]};
        for (int k = 0; k < 3; k++) experts += 2.0 * w[k]->n * w[k]->k * l->moe.n_used;
    }
    assert_true((double)p.experts.host_bytes == experts);
    double seconds = experts / 10e9 + (double)p.experts.device_bytes / 1000e9 + 2 * 60e-6 +
                     plan_kernels(&p, &p.part[1]) * 0.5e-6;
    assert_in_range(plan_kernels(&p, &p.part[1]), 10, 50);
    assert_int_equal(plan_kernels(&p, &p.part[0]), 0);
    assert_true(p.experts.tok_s * seconds > 0.999999 && p.experts.tok_s * seconds < 1.000001);
    assert_true((double)p.experts.device_bytes + experts <= token * 1.01);
    assert_non_null(strstr(p.text, "experts on the CPU"));
    arena_free(&arena);
    model_close(m);
}

/* On a card: no memory for the weights that are not there, room for the rows that cross, and no fused kernel over them. */
static void what_a_card_makes_of_it(void **state) {
    (void)state;
    struct model *m = open_model();
    for (int experts = 0; experts <= N_LAYER; experts++) {
        struct arena arena = {0};
        struct plan p;
        struct cuda_plan sizes;
        ask(&p, &arena, m, &(struct question){0, 10, -1, experts});
        const struct backend_config *c = &p.part[p.n_part - 1].config;
        assert_ok(cuda_plan_make(&sizes, c));
        assert_int_equal(host_part_of(c).bytes > 0, experts > 0);
        for (int i = 0; i < N_LAYER; i++) {
            assert_int_equal(sizes.group[m->layer[i].moe.experts.id].n_member > 0, i >= experts);
            assert_int_equal(sizes.group[m->layer[i].moe.experts_down.id].n_member > 0, i >= experts);
            assert_true(sizes.group[m->layer[i].moe.router.id].n_member > 0);
        }
        for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
            struct cuda_link link[128];
            struct route_case route = {.sm = 90, .shared_bytes = 227 << 10};
            const struct op_list *l = c->list[cls];
            int n = links_make(
                &(struct link_case){.list = l, .plan = &sizes, .store = c->store, .route = &route}, link);
            int found = 0;
            for (int i = 0; i < n; i++)
                for (int k = link[i].first; k < link[i].first + link[i].n_op; k++) {
                    if (l->op[k].kind != OP_REMOTE) continue;
                    found++;
                    assert_int_equal(link[i].kind, LINK_PLAIN);
                }
            assert_int_equal(found, experts);
        }
        cuda_plan_free(&sizes);
        arena_free(&arena);
    }
    model_close(m);
}

static void what_cannot_be(void **state) {
    (void)state;
    char path[512];
    struct infer_model *m;
    struct infer_engine *e;
    static const struct {
        const char *model, *device;
        int layers, experts;
        const char *says;
    } cases[] = {{"golden/hf/gpt_oss", "cpu", 1, 1, "not with .gpu_layers 1"},
                 {"golden/hf/llama", "cpu", -1, 1, "has no experts"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_engine_options o = {.device = cases[i].device,
                                         .host_device = "ref",
                                         .gpu_layers = cases[i].layers,
                                         .cpu_experts = cases[i].experts};
        assert_ok(infer_model_open(&m, test_path(path, sizeof path, cases[i].model), NULL));
        assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), cases[i].says));
        infer_model_close(m);
    }
}

/* ---- steps ---- */

static void steps(void **state) {
    (void)state;
    static const char *const hosts[] = {"ref", "cpu"}, *const devices[] = {"cpu", "ref"};
    char path[512];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, folder(path, sizeof path), NULL));
    for (int i = 0; i < 2; i++) {
        struct infer_engine_options o = {.device = devices[i],
                                         .host_device = hosts[i],
                                         .gpu_layers = -1,
                                         .cpu_experts = 1,
                                         .ctx = 64,
                                         .threads = 2,
                                         .all_logits = true};
        struct infer_engine *e;
        struct infer_output out;
        struct infer_row rows[8];
        struct infer_model_info info;
        int seq;
        infer_model_info(m, &info);
        float *want = malloc((size_t)info.n_vocab * sizeof *want);
        assert_ok(infer_engine_create(&e, m, &o));
        assert_ok(infer_seq_open(e, &seq));
        for (int t = 0; t < 8; t++)
            rows[t] = (struct infer_row){.id = t + 1,
                                         .pos = t,
                                         .seq = seq,
                                         .decode = t >= 6,
                                         .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN};
        mem_forbid(true);
        assert_ok(infer_step(e, rows, 6, &out));
        assert_ok(infer_step(e, rows + 6, 1, &out));
        mem_forbid(false);
        memcpy(want, out.logits[0], (size_t)info.n_vocab * sizeof *want);
        assert_ok(infer_seq_rewind(e, seq, 6));
        infer_cancel(e);
        assert_int_equal(infer_step(e, rows + 6, 1, &out), INFER_E_CANCEL);
        assert_int_equal(infer_seq_length(e, seq), 6);
        assert_ok(infer_step(e, rows + 6, 1, &out)); /* a cancelled step leaves a working engine */
        assert_memory_equal(want, out.logits[0], (size_t)info.n_vocab * sizeof *want);
        rows[7].id = INFER_LAST;
        assert_ok(infer_step(e, rows + 7, 1, &out));
        infer_engine_free(e);
        free(want);
    }
    infer_model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_plan_takes),
        cmocka_unit_test(what_the_plan_predicts),
        cmocka_unit_test(what_a_card_makes_of_it),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(steps),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

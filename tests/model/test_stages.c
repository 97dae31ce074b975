/* Whole layers in a row on several backends compute what one does, bit for bit; ranks may have stages. */
#include "tests/lib/test.h"
#include "tests/lib/hf_golden.h"
#include "engine_impl.h"

static enum infer_status start(struct infer_engine **e, const struct infer_model *m, const char *device,
                               int stages, int ranks) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f32",
                                           .ctx = MAX_TOKENS,
                                           .slots = 2,
                                           .threads = 2,
                                           .stages = stages,
                                           .ranks = ranks,
                                           .gpu_layers = -1,
                                           .all_logits = true,
                                           .nan_guard = true};
    return infer_engine_create(e, m, &o);
}

/* In steps of 7 prompt rows, then one by one as decode rows. */
static void compute_both(struct infer_engine *e, const struct golden *g, float *out) {
    const struct infer_prompt *p = &g->prompt[N_PROMPT - 1];
    compute(e, g, p, 7, false, out);
    compute(e, g, p, 1, true, out + elements(g, p));
}

static void check_stages(const struct golden *g, const struct infer_model *m, const char *device) {
    const size_t n = 2 * elements(g, &g->prompt[N_PROMPT - 1]);
    float *want = malloc(n * 4), *got = malloc(n * 4);
    for (int stages = 1; stages <= 4 && stages <= m->m->n_layer; stages++) {
        struct infer_engine *e;
        struct infer_engine_info info;
        assert_ok(start(&e, m, device, stages, 0));
        infer_engine_info(e, &info);
        assert_int_equal(e->plan.n_part, stages);
        assert_int_equal(info.device_layers, m->m->n_layer);
        compute_both(e, g, stages == 1 ? want : got);
        if (stages > 1 && memcmp(want, got, n * 4))
            fail_msg("%s on %s: %d stages have other bits", g->name, device, stages);
        infer_engine_free(e);
    }
    free(want);
    free(got);
}

static void stages_change_no_bit(void **state) {
    struct golden g;
    struct infer_model *m;
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    check_stages(&g, m, "ref");
    check_stages(&g, m, "cpu");
    infer_model_close(m);
    golden_free(&g);
}

/* Each of two ranks is two stages. */
static void ranks_have_stages(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    const size_t n = 2 * elements(&g, &g.prompt[N_PROMPT - 1]);
    float *want = malloc(n * 4), *got = malloc(n * 4);
    for (int stages = 0; stages <= 2; stages += 2) {
        assert_ok(start(&e, m, "cpu", stages, 2));
        compute_both(e, &g, stages ? got : want);
        infer_engine_free(e);
    }
    assert_memory_equal(want, got, n * 4);
    free(want);
    free(got);
    infer_model_close(m);
    golden_free(&g);
}

/* Every stage has a layer, and bytes as near to its share as whole layers come. */
static void bytes_are_divided(void **state) {
    struct golden g;
    struct model *m;
    struct plan_settings s = {0};
    (void)state;
    golden_read(&g, "qwen3_next");
    assert_ok(model_open(&m, g.path, NULL));
    assert_int_equal(m->n_layer, 4);
    assert_ok(plan_stages(&s, m, 1, NULL));
    assert_int_equal(s.n_stage, 0);
    assert_ok(plan_stages(&s, m, 4, NULL));
    for (int i = 0; i < 4; i++) assert_int_equal(s.stage_end[i], i + 1);
    assert_ok(plan_stages(&s, m, 2, (const double[]){0.01, 0.99}));
    assert_int_equal(s.stage_end[0], 1);
    assert_ok(plan_stages(&s, m, 2, (const double[]){0.99, 0.01}));
    assert_int_equal(s.stage_end[0], 3);
    assert_int_equal(s.stage_end[1], 4);
    assert_int_equal(plan_stages(&s, m, 5, NULL), INFER_E_INPUT);
    model_close(m);
    golden_free(&g);
}

/* Each stage on its card, of whose memory it has its share. */
static void stages_have_cards(void **state) {
    struct golden g;
    struct model *m;
    struct arena arena = {0};
    static struct plan p;
    struct placement at[2];
    struct card card[2];
    struct plan_options po = {.stages = 2, .ctx = 64};
    int n;
    (void)state;
    po.wish = (struct device_wish){.host = DEVICE_NONE, .n_layer = -1, .n_cpu_experts = -1};
    golden_read(&g, "qwen3_next");
    assert_ok(model_open(&m, g.path, NULL));
    assert_ok(cards_find("8,sm_90,24,sm_90", card, 2, &n));
    for (int i = 0; i < 2; i++) {
        device_pick_card(&po.wish, &card[i], false, &at[i]);
        at[i].card = 3 - i;
    }
    po.place = at[0];
    assert_int_equal(plan_make(&p, &arena, m, &po), INFER_E_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "several cards"));
    po.stage = at;
    assert_ok(plan_make(&p, &arena, m, &po));
    assert_true(p.fits && p.n_part == 2 && p.set.stage_end[0] < m->n_layer - p.set.stage_end[0]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p.part[i].config.card, 3 - i);
        assert_int_equal(p.part[i].limit_bytes, (size_t)((double)at[i].memory.total_bytes * 0.9));
    }
    arena_free(&arena);
    model_close(m);
    golden_free(&g);
}

#define NAMED(test, golden)                                                                                  \
    { #test ": " golden, test, NULL, NULL, (void *)(uintptr_t)golden }
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_divided),   cmocka_unit_test(stages_have_cards),
        NAMED(stages_change_no_bit, "llama"),  NAMED(stages_change_no_bit, "qwen3_next"),
        NAMED(stages_change_no_bit, "lfm2"),   NAMED(stages_change_no_bit, "deepseek_v3"),
        NAMED(stages_change_no_bit, "gemma3"), NAMED(stages_change_no_bit, "nemotron_h"),
        NAMED(ranks_have_stages, "llama"),     NAMED(ranks_have_stages, "granitemoehybrid"),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A model on cards that are not here: how they are named, which experts a token meets, and ways to divide it. */
#include "tests/lib/test.h"
#include "tests/lib/hf_golden.h"
#include "infer.h"
#include "plan/several.h"
#include <math.h>

static void cards_are_named(void **state) {
    struct card c[3];
    int n;
    (void)state;
    assert_ok(cards_find("h200,NVIDIA GeForce RTX 4090", c, 3, &n));
    assert_int_equal(n, 2);
    assert_string_equal(c[1].name, "rtx-4090");
    assert_ok(cards_find("24,sm_89,h200", c, 3, &n));
    assert_int_equal(n, 2);
    assert_int_equal(c[0].sm, 89);
    assert_ok(cards_find("24,sm_89", c, 3, &n));
    assert_int_equal(n, 1);
    assert_int_equal(cards_find("h200,h200", c, 1, &n), INFER_E_INPUT);
    assert_int_equal(cards_find("h200,", c, 3, &n), INFER_E_INPUT);
    assert_int_equal(cards_find("h200,,h200", c, 3, &n), INFER_E_INPUT);
}

static void busiest_rank_has_more_than_its_share(void **state) {
    (void)state;
    assert_true(fabs(plan_busiest(128, 8, 1) - 8) < 1e-9);
    assert_true(fabs(plan_busiest(2, 1, 2) - 1) < 1e-9);
    assert_true(fabs(plan_busiest(4, 2, 2) - 4.0 / 3) < 1e-9); /* 2 of 6 choices meet on one rank */
    assert_true(fabs(plan_busiest(128, 8, 8) - 2.5) < 0.05);
    assert_true(fabs(plan_busiest(5, 2, 2) - 1.4) < 1e-9); /* of 3 and 2: 4 of 10 choices */
}

static void plan_of(struct plan_several *out, const struct model *m, const char *names,
                    struct plan_options po) {
    struct card card[RANKS_MAX];
    int n;
    po.ctx = 64;
    po.wish = (struct device_wish){.host = DEVICE_NONE, .n_layer = -1, .n_cpu_experts = -1};
    assert_ok(cards_find(names, card, RANKS_MAX, &n));
    assert_ok(plan_several(out, m, &po, card, n));
}

static void ways_of_a_dense_model(void **state) {
    struct golden g;
    struct model *m;
    static struct plan_several s, one;
    (void)state;
    golden_read(&g, "llama");
    assert_ok(model_open(&m, g.path, NULL));
    plan_of(&s, m, "h200,h200", (struct plan_options){0});
    const struct plan_way *tp = &s.way[WAY_TENSOR], *pp = &s.way[WAY_PIPELINE];
    assert_true(tp->there && tp->fits && pp->there && pp->fits && !s.way[WAY_EXPERTS].there);
    assert_string_equal(s.way[WAY_EXPERTS].why, "this model has no experts");
    assert_string_equal(s.link, "NVLink");
    assert_int_equal(tp->exchanges, 2 * m->n_layer + 1);
    assert_int_equal(tp->n_card, 2);
    assert_int_equal(tp->n_whole, 0);
    assert_int_equal(pp->exchanges, 1);
    assert_int_equal(pp->card[0].end, pp->card[1].first);
    assert_int_equal(pp->card[1].end, m->n_layer);
    for (int k = 0; k < WAYS; k++)
        if (s.way[k].there) assert_true(s.way[k].tok_s <= s.way[s.taken].tok_s);
    /* nothing goes between cards; the faster one is taken */
    plan_of(&one, m, "rtx-4070,h200", (struct plan_options){0});
    assert_true(one.way[WAY_ONE].there && one.way[WAY_ONE].n_card == 1 && one.way[WAY_ONE].card[0].no == 1);
    assert_true(one.way[WAY_ONE].tok_s >= s.way[WAY_ONE].tok_s);
    assert_int_equal(one.way[WAY_ONE].exchanges, 0);
    /* what was asked for is taken, and a slower link slows ranks */
    plan_of(&one, m, "h200,h200", (struct plan_options){.ranks = 2});
    assert_int_equal(one.taken, WAY_TENSOR);
    plan_of(&one, m, "h200,h200", (struct plan_options){.stages = 2});
    assert_int_equal(one.taken, WAY_PIPELINE);
    plan_of(&one, m, "h200,h100-pcie", (struct plan_options){0});
    assert_string_equal(one.link, "PCIe 5");
    assert_true(one.way[WAY_TENSOR].tok_s < tp->tok_s);
    assert_true(one.way[WAY_TENSOR].between_s > tp->between_s);
    model_close(m);
    golden_free(&g);
}

/* As drivers call them; those of a table that says more or less than they do. */
static void cards_have_drivers_names(void **state) {
    struct card c;
    (void)state;
    assert_true(card_of_driver("NVIDIA H100 80GB HBM3, sm_90", &c));
    assert_string_equal(c.name, "h100-sxm");
    assert_true(card_of_driver("NVIDIA H200, sm_90", &c));
    assert_string_equal(c.name, "h200");
    assert_true(card_of_driver("NVIDIA GeForce RTX 4090, sm_89", &c));
    assert_false(card_of_driver("24,sm_89", &c));
    assert_false(card_of_driver("a card of tomorrow, sm_200", &c));
}

/* Among some ways, the fastest that fits. */
static void a_way_is_taken_of_those_that_are_there(void **state) {
    struct golden g;
    struct model *m;
    static struct plan_several s;
    (void)state;
    golden_read(&g, "llama");
    assert_ok(model_open(&m, g.path, NULL));
    plan_of(&s, m, "h200,h200", (struct plan_options){.ranks = -1});
    assert_true(s.taken >= 0);
    const int all = s.taken;
    assert_int_equal(plan_several_take(&s, 1 << WAY_TENSOR), WAY_TENSOR);
    assert_int_equal(plan_several_take(&s, (1 << WAYS) - 1), all);
    s.way[WAY_PIPELINE].tok_s = 2 * s.way[all].tok_s;
    assert_int_equal(plan_several_take(&s, 1 << WAY_TENSOR | 1 << WAY_PIPELINE), WAY_PIPELINE);
    s.way[WAY_PIPELINE].fits = false;
    assert_int_equal(plan_several_take(&s, 1 << WAY_TENSOR | 1 << WAY_PIPELINE), WAY_TENSOR);
    assert_int_equal(plan_several_take(&s, 1 << WAY_EXPERTS), -1);
    model_close(m);
    golden_free(&g);
}

/* A processor is one; cards that are named are not there. */
static void a_processor_is_one(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_engine_info info;
    struct infer_engine_options o = {
        .device = "cpu", .ranks = -1, .ctx = 64, .threads = 1, .gpu_layers = -1, .cpu_experts = -1};
    (void)state;
    golden_read(&g, "llama");
    assert_ok(infer_model_open(&m, g.path, NULL));
    assert_ok(infer_engine_create(&e, m, &o));
    infer_engine_info(e, &info);
    assert_string_equal(info.device, "cpu");
    infer_engine_free(e);
    o.ranks = 0, o.devices = "0,1";
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "no card is used"));
    infer_model_close(m);
    golden_free(&g);
}

static void experts_of_the_busiest_are_read(void **state) {
    struct golden g;
    struct model *m;
    static struct plan_several s;
    (void)state;
    golden_read(&g, "qwen3_moe");
    assert_ok(model_open(&m, g.path, NULL));
    plan_of(&s, m, "h200,h200", (struct plan_options){.ranks = 2, .ep = true});
    const struct plan_way *tp = &s.way[WAY_TENSOR], *ep = &s.way[WAY_EXPERTS];
    assert_true(ep->there && tp->there);
    assert_int_equal(s.taken, WAY_EXPERTS);
    assert_int_equal(ep->exchanges, tp->exchanges);
    assert_true(ep->token_bytes >
                tp->token_bytes); /* columns are halved, the busiest rank has more than half of the experts */
    model_close(m);
    golden_free(&g);
}

/* By infer.h; and what goes with another number of cards is refused. */
static void the_library_tells_ways(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_plan_report r;
    struct infer_engine_options o = {.ctx = 64, .gpu_layers = -1, .cpu_experts = -1};
    (void)state;
    golden_read(&g, "llama");
    assert_ok(infer_model_open(&m, g.path, NULL));
    assert_ok(infer_plan(m, &o, "h200,h200", &r));
    assert_true(r.n_way == WAYS && r.fits && r.way[0].bytes && strstr(r.text, "TAKEN") &&
                strstr(r.text, "predicted"));
    infer_plan_free(&r);
    o.ranks = 3;
    assert_int_equal(infer_plan(m, &o, "h200,h200", &r), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "2 cards"));
    o.ranks = 0;
    assert_int_equal(infer_plan(m, &o, "h200,24,sm_89", &r), INFER_E_INPUT);
    o.ranks = 2, o.device = "cpu";
    assert_ok(infer_plan(m, &o, NULL, &r));
    struct infer_model_info info;
    infer_model_info(m, &info);
    assert_int_equal(r.n_rank, 2);
    assert_true(r.rank_token_bytes > info.token_bytes / 3 && r.rank_token_bytes < info.token_bytes * 2 / 3);
    infer_plan_free(&r);
    infer_model_close(m);
    golden_free(&g);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_are_named),
        cmocka_unit_test(busiest_rank_has_more_than_its_share),
        cmocka_unit_test(ways_of_a_dense_model),
        cmocka_unit_test(cards_have_drivers_names),
        cmocka_unit_test(a_way_is_taken_of_those_that_are_there),
        cmocka_unit_test(a_processor_is_one),
        cmocka_unit_test(experts_of_the_busiest_are_read),
        cmocka_unit_test(the_library_tells_ways),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

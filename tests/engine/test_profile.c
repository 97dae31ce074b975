/* Where the time goes: every operation of every step is told once, with what it reads; the bits are those without a profile. */
#include "tests/lib/test.h"
#include <math.h>
#include "infer.h"
#include "infer_profile.h"
#include "engine_impl.h"
#include "seam/op_list.h"
#include "tests/lib/steps.h"

enum { PROMPT = 20, DECODED = 5, MOST = 256, SPANS = 64, MOST_VOCAB = 1024 };

struct place {
    const char *name, *folder, *device;
    int threads, ranks, stages;
    bool plain; /* no operation takes another over */
};
static const struct place places[] = {
    {"ref", "golden/hf/llama", "ref", 1, 0, 0, false},
    {"one thread", "golden/hf/llama", "cpu", 1, 0, 0, false},
    {"three threads", "golden/hf/llama", "cpu", 3, 0, 0, false},
    {"experts", "golden/hf/gpt_oss", "cpu", 2, 0, 0, false},
    {"states", "golden/hf/qwen3_5", "cpu", 2, 0, 0, false},
    {"two ranks", "golden/hf/llama", "cpu", 2, 2, 0, false},
    {"two stages", "golden/hf/llama", "cpu", 2, 0, 2, false},
};

struct run {
    struct infer_model *model;
    struct infer_engine *engine;
    int n_vocab, n_layer;
    float prompt[MOST_VOCAB], decoded[MOST_VOCAB];
};

static void run(struct run *r, const struct place *p, struct infer_profile *profile) {
    struct infer_model_info info;
    const struct infer_engine_options o = {.device = p->device,
                                           .threads = p->threads,
                                           .ranks = p->ranks,
                                           .stages = p->stages,
                                           .ctx = 64,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1,
                                           .no_fuse = p->plain,
                                           .profile = profile};
    char path[512];
    int seq;
    assert_ok(infer_model_open(&r->model, test_path(path, sizeof path, p->folder), NULL));
    infer_model_info(r->model, &info);
    r->n_vocab = info.n_vocab, r->n_layer = info.n_layer;
    assert_true(r->n_vocab <= MOST_VOCAB);
    assert_ok(infer_engine_create(&r->engine, r->model, &o));
    assert_ok(infer_seq_open(r->engine, &seq));
    compute_steps(r->engine, seq, 0, PROMPT, PROMPT, false, r->n_vocab, r->prompt);
    compute_steps(r->engine, seq, PROMPT, PROMPT + DECODED, 1, true, r->n_vocab, r->decoded);
}
static void end(struct run *r) {
    infer_engine_free(r->engine);
    infer_model_close(r->model);
}

static void check_steps(const struct infer_profile *p, bool decode, uint64_t steps, uint64_t rows,
                        const char *name) {
    struct infer_profile_steps s;
    struct infer_profile_row row[MOST];
    const size_t n = infer_profile_rows(p, row, MOST);
    double sum = 0;
    infer_profile_steps(p, decode, &s);
    assert_int_equal(s.steps, steps);
    assert_int_equal(s.rows, rows);
    assert_in_range(n, 8, MOST);
    for (size_t i = 0; i < n; i++) {
        if (row[i].decode != decode) continue;
        sum += row[i].seconds;
        assert_true(row[i].calls % steps == 0 && row[i].seconds >= 0);
    }
    if (sum <= 0 || sum > s.seconds)
        fail_msg("%s: operations of %g s in steps of %g s", name, sum, s.seconds);
}

static const struct infer_profile_row *find(const struct infer_profile_row *row, size_t n, const char *name,
                                            bool decode) {
    for (size_t i = 0; i < n; i++)
        if (row[i].decode == decode && !strcmp(row[i].name, name)) return &row[i];
    return NULL;
}

static void every_operation_is_told(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct place *at = &places[i];
        struct run with, without;
        struct infer_profile *p;
        assert_ok(infer_profile_new(&p, 0));
        run(&with, at, p);
        run(&without, at, NULL);
        assert_memory_equal(with.prompt, without.prompt, (size_t)with.n_vocab * sizeof(float));
        assert_memory_equal(with.decoded, without.decoded, (size_t)with.n_vocab * sizeof(float));
        check_steps(p, false, 1, PROMPT, at->name);
        check_steps(p, true, DECODED, DECODED, at->name);
        assert_int_equal(infer_profile_spans(p, 0, NULL, 0), 0);
        end(&with);
        end(&without);
        infer_profile_free(p);
    }
}

/* Of a model whose sizes are known: bytes and operations of a product, and of a matrix that every layer has. */
static void what_it_costs(void **state) {
    (void)state;
    struct infer_profile *p;
    struct infer_profile_row row[MOST];
    struct infer_model_info info;
    struct run r;
    assert_ok(infer_profile_new(&p, 0));
    run(&r, &places[1], p);
    infer_model_info(r.model, &info);
    const size_t n = infer_profile_rows(p, row, MOST);
    double flops[2] = {0};
    for (size_t i = 0; i < n; i++)
        if (!strcmp(row[i].kind, "matmul") && strcmp(row[i].name, "logits"))
            flops[row[i].decode] += row[i].flops;
    const struct infer_profile_row *down = find(row, n, "ffn_down", true),
                                   *prompt = find(row, n, "ffn_down", false),
                                   *head = find(row, n, "logits", true);
    assert_true(down && prompt && head);
    assert_int_equal(down->calls, DECODED * r.n_layer);
    assert_int_equal(prompt->calls, r.n_layer);
    assert_true(prompt->flops * DECODED == down->flops * PROMPT); /* a row's are a row's */
    assert_true(prompt->bytes < down->bytes * PROMPT / DECODED);  /* and weights are read once a step */
    assert_true(flops[0] == flops[1] / DECODED * PROMPT);
    /* a token's products, head included, as the model's own count has them */
    assert_true(flops[1] / DECODED + head->flops / DECODED == (double)info.token_flops);
    end(&r);
    infer_profile_free(p);
}

/* Where no operation takes another over, the processor tells of those that the reference does, as often and at the same cost. */
static void none_is_left_out(void **state) {
    (void)state;
    static const struct place plain = {"plain", "golden/hf/llama", "cpu", 3, 0, 0, true};
    struct infer_profile_row want[MOST], got[MOST];
    struct infer_profile *ref, *cpu;
    struct run r;
    assert_ok(infer_profile_new(&ref, 0));
    assert_ok(infer_profile_new(&cpu, 0));
    run(&r, &places[0], ref);
    end(&r);
    run(&r, &plain, cpu);
    end(&r);
    const size_t n = infer_profile_rows(ref, want, MOST), m = infer_profile_rows(cpu, got, MOST);
    size_t told = 0;
    for (size_t i = 0, k = 0; i < m; i++) {
        if (!strcmp(got[i].name, "(team)")) continue;
        told++;
        assert_true(k < n);
        assert_string_equal(got[i].name, want[k].name);
        assert_int_equal(got[i].calls, want[k].calls);
        assert_true(got[i].flops == want[k++].flops);
    }
    assert_int_equal(told, n);
    infer_profile_free(ref);
    infer_profile_free(cpu);
}

static void the_newest_are_kept(void **state) {
    (void)state;
    struct infer_profile *p;
    struct infer_profile_span s[SPANS];
    struct infer_profile_steps steps;
    struct run r;
    assert_ok(infer_profile_new(&p, SPANS));
    run(&r, &places[2], p);
    assert_int_equal(infer_profile_spans(p, 0, NULL, 0), SPANS);
    assert_int_equal(infer_profile_spans(p, 0, s, SPANS), SPANS);
    for (int i = 1; i < SPANS; i++) assert_true(s[i].begin <= s[i].end && s[i - 1].end <= s[i].end);
    assert_null(s[SPANS - 1].name); /* a step ends behind its operations */
    assert_true(s[SPANS - 1].decode && s[SPANS - 1].rows == 1);
    assert_int_equal(infer_profile_spans(p, s[SPANS - 3].end, s, SPANS), 3);
    assert_int_equal(infer_profile_spans(p, s[2].end + 1, s, SPANS), 0);
    infer_profile_reset(p);
    infer_profile_steps(p, true, &steps);
    assert_true(steps.steps == 0 && steps.seconds == 0);
    assert_int_equal(infer_profile_spans(p, 0, s, SPANS), 0);
    end(&r);
    infer_profile_free(p);
}

/* What a card tells: links of some steps, which stand for all; what their operations hand to each other is not read. */
static void links_of_some_steps(void **state) {
    (void)state;
    struct infer_profile *p, *all;
    struct infer_profile_row row[MOST], each[MOST];
    struct infer_profile_steps steps;
    struct infer_profile_span span[SPANS];
    struct run r;
    assert_ok(infer_profile_new(&p, SPANS));
    assert_ok(infer_profile_new(&all, 0));
    run(&r, &places[0], all);
    const struct plan_part *part = last_part(r.engine);
    const struct op_list *l = &part->list[ROW_DECODE];
    int at = 0;
    while (strcmp(l->op[at].name, "ffn_down")) at++;
    const struct profile_link down = {at, 2, "ffn_down", "residual"};
    const int32_t pos[] = {PROMPT};
    const struct step s = {.n_row = 1, .n_out = 1, .pos = pos};
    assert_ok(profile_list(p, l, &part->config, true));
    const int64_t second = 1000000000, now = profile_now();
    profile_link_work(p, l, &down, &s);
    profile_link_time(p, l, &down, 1, now - 2 * second, now - second);
    profile_step(p, ROW_DECODE, 1, now - 2 * second);
    for (int i = 0; i < 3; i++) profile_step(p, ROW_DECODE, 1, profile_now() - second);
    infer_profile_steps(p, true, &steps);
    assert_int_equal(steps.steps, 4);
    assert_int_equal(steps.timed_steps, 1);
    assert_int_equal(infer_profile_rows(p, row, MOST), 1);
    assert_string_equal(row[0].name, "ffn_down");
    assert_string_equal(row[0].kind, "residual");
    assert_string_equal(row[0].covers, "ffn_down + ffn_add");
    assert_int_equal(row[0].calls, 4);
    /* half of a step's time, of 2 + 3 seconds */
    assert_true(row[0].seconds > 2.4 && row[0].seconds < 2.6 && row[0].seconds < steps.seconds);
    const size_t n = infer_profile_rows(all, each, MOST);
    const struct infer_profile_row *product = find(each, n, "ffn_down", true),
                                   *sum = find(each, n, "ffn_add", true);
    const double calls = (double)(DECODED * r.n_layer);
    assert_true(row[0].flops / 4 == product->flops / calls);
    const double inner = 2 * 4.0 * l->op[at].matmul.out.width; /* written by one, read by the other */
    assert_true(fabs(row[0].bytes / 4 - (product->bytes + sum->bytes) / calls + inner) < 1e-6);
    assert_int_equal(infer_profile_spans(p, 0, span, SPANS), 5);
    assert_true(!strcmp(span[0].name, "ffn_down") && span[0].layer == 0 && !span[1].name);
    end(&r);
    infer_profile_free(p);
    infer_profile_free(all);
}

/* Every thread tells of its part of every operation, in spans alone; the bits are the same. */
static void parts_of_threads(void **state) {
    (void)state;
    enum { MOST_SPANS = 1 << 14 };
    static struct infer_profile_span s[MOST_SPANS];
    struct infer_profile *p, *alone;
    struct infer_profile_row row[MOST], each[MOST];
    struct run r, other;
    struct place place = places[2];
    int n[3] = {0};
    place.threads = 2;
    assert_ok(infer_profile_new(&p, MOST_SPANS));
    assert_ok(infer_profile_new(&alone, MOST_SPANS));
    assert_ok(infer_profile_threads(p, MOST_SPANS));
    run(&r, &place, p);
    run(&other, &place, alone);
    assert_memory_equal(r.decoded, other.decoded, (size_t)r.n_vocab * sizeof *r.decoded);
    const size_t n_span = infer_profile_parts(p, 0, s, MOST_SPANS);
    assert_true(n_span < MOST_SPANS);
    for (size_t i = 0; i < n_span; i++) {
        assert_true(s[i].thread >= 1 && s[i].thread <= 2 && s[i].begin <= s[i].end && s[i].name);
        n[s[i].thread]++;
    }
    assert_true(n[1] >= n[2]); /* where others need the processor, the first thread goes on alone */
    assert_int_equal(infer_profile_parts(alone, 0, s, MOST_SPANS), 0);
    assert_int_equal(infer_profile_rows(p, row, MOST), infer_profile_rows(alone, each, MOST));
    for (size_t i = 0; i < infer_profile_rows(p, NULL, 0); i++) assert_int_equal(row[i].calls, each[i].calls);
    const size_t n_all = infer_profile_spans(p, 0, s, MOST_SPANS);
    assert_int_equal(n_all, infer_profile_spans(alone, 0, NULL, MOST_SPANS));
    for (size_t i = 0; i < n_all; i++) n[0] += s[i].name && strcmp(s[i].name, "(team)") != 0;
    assert_true(n[0] == n[1] && n[0] > PROMPT); /* one of each operation is the first thread's */
    end(&r);
    end(&other);
    infer_profile_free(p);
    infer_profile_free(alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_told), cmocka_unit_test(what_it_costs),
        cmocka_unit_test(none_is_left_out),        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(parts_of_threads),        cmocka_unit_test(links_of_some_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

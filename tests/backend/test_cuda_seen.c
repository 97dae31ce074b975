/* What a card shows of its steps: where the time goes, by links that cover every operation once, with the bits of an engine that is not
 * asked; what operations wrote, by which a fault in a matrix is found; and the operation that first wrote what is not finite. */
#include "tests/lib/cuda_there.h"
#include <math.h>
#include "engine_impl.h"
#include "seam/op_list.h"
#include "seam/weight.h"
#include "tests/lib/steps.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/verify_text.h"

enum { PROMPT = 40, DECODED = 40, MOST = 256, SPANS = 1 << 16, MOST_VOCAB = 4096 };

struct how {
    const char *name, *folder; /* NULL: a synthetic Llama of Q8_0 */
    bool no_fuse, no_graphs;
};
static const struct how hows[] = {{"fused", NULL, false, false},
                                  {"without graphs", NULL, false, true},
                                  {"op by op", NULL, true, false},
                                  {"experts", "golden/hf/gpt_oss", false, false},
                                  {"states", "golden/hf/qwen3_5", false, false}};
enum { N_HOW = sizeof hows / sizeof *hows };

static struct infer_model *model_of(const struct how *h) {
    char path[512];
    struct infer_model *m;
    if (!h->folder) return synth_model(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 7});
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, h->folder), NULL));
    return m;
}

static struct infer_engine_options options_of(const struct how *h) {
    return (struct infer_engine_options){.device = "cuda",
                                         .ctx = 128,
                                         .slots = 1,
                                         .batch = 64,
                                         .gpu_layers = -1,
                                         .cpu_experts = -1,
                                         .no_fuse = h->no_fuse,
                                         .no_graphs = h->no_graphs};
}

/* ---- where the time goes ---- */

/* A prompt and decoded tokens; the last logits of each into out[2][MOST_VOCAB]. The engine stays open. */
static struct infer_engine *run(const struct infer_model *m, const struct how *h, struct infer_profile *p,
                                float *out) {
    struct infer_engine_options o = options_of(h);
    struct infer_model_info info;
    struct infer_engine *e;
    int seq;
    o.profile = p;
    infer_model_info(m, &info);
    assert_true(info.n_vocab <= MOST_VOCAB);
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    compute_steps(e, seq, 0, PROMPT, PROMPT, false, info.n_vocab, out);
    compute_steps(e, seq, PROMPT, PROMPT + DECODED, 1, true, info.n_vocab, out + MOST_VOCAB);
    return e;
}

/* How often the rows of a class name operations of a layer or list, "a + b" two. */
static double named(const struct infer_profile_row *row, size_t n, bool decode) {
    double all = 0;
    for (size_t i = 0; i < n; i++) {
        if (row[i].decode != decode) continue;
        int parts = 1;
        for (const char *at = row[i].covers; at && (at = strstr(at, " + ")) != NULL; at += 3) parts++;
        all += parts * (double)row[i].calls;
    }
    return all;
}

static void check_class(const struct how *h, const struct infer_engine *e, const struct infer_profile *p,
                        bool decode, uint64_t steps) {
    struct infer_profile_row row[MOST];
    struct infer_profile_steps s;
    struct infer_model_info info;
    const struct op_list *l = &last_part(e)->list[decode ? ROW_DECODE : ROW_PROMPT];
    const size_t n = infer_profile_rows(p, row, MOST);
    double sum = 0, flops = 0;
    infer_profile_steps(p, decode, &s);
    infer_model_info(e->model, &info);
    assert_int_equal(s.steps, steps);
    assert_true(s.timed_steps > 0 && s.timed_steps <= steps && s.timed_seconds <= s.seconds);
    for (size_t i = 0; i < n; i++)
        if (row[i].decode == decode)
            sum += row[i].seconds, flops += strcmp(row[i].kind, "attend") ? row[i].flops : 0;
    print_message("%-14s %s: %llu of %llu steps timed, links %.1f%% of the time\n", h->name,
                  decode ? "decode " : "prompts", (unsigned long long)s.timed_steps,
                  (unsigned long long)steps, 100 * sum / s.seconds);
    if (!(sum > 0.01 * s.seconds && sum <= s.seconds))
        fail_msg("%s: links of %g s in steps of %g s", h->name, sum, s.seconds);
    if (h->folder) return; /* whose layers differ */
    if (named(row, n, decode) != (double)l->n_op * (double)steps)
        fail_msg("%s: links name %g operations of %d", h->name, named(row, n, decode) / (double)steps,
                 l->n_op);
    if (decode && fabs(flops / (double)steps - (double)info.token_flops) > 1e-9 * flops)
        fail_msg("%s: %g operations a token, the model's own count is %g", h->name, flops / (double)steps,
                 (double)info.token_flops);
}

static void check_spans(const struct infer_profile *p) {
    static struct infer_profile_span s[SPANS];
    const size_t n = infer_profile_spans(p, 0, s, SPANS);
    int64_t before = 0;
    int links = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(s[i].begin <= s[i].end);
        if (!s[i].name) { /* a step, behind its links, which ran in it */
            if (links) assert_true(s[i - 1].end <= s[i].end && s[i - (size_t)links].begin >= s[i].begin);
            links = 0;
            continue;
        }
        assert_true(!links || s[i].begin == before);
        before = s[i].end, links++;
    }
    assert_true(n > DECODED && !s[n - 1].name);
}

static void time_of_links(void **state) {
    (void)state;
    static float with[2 * MOST_VOCAB], without[2 * MOST_VOCAB];
    for (int i = 0; i < N_HOW; i++) {
        struct infer_model *m = model_of(&hows[i]);
        struct infer_profile *p;
        assert_ok(infer_profile_new(&p, SPANS));
        struct infer_engine *e = run(m, &hows[i], p, with);
        check_class(&hows[i], e, p, false, 1);
        check_class(&hows[i], e, p, true, DECODED);
        check_spans(p);
        infer_engine_free(e);
        infer_engine_free(run(m, &hows[i], NULL, without));
        if (memcmp(with, without, sizeof with)) fail_msg("%s: other bits with a profile", hows[i].name);
        infer_profile_free(p);
        infer_model_close(m);
    }
}

/* ---- what operations wrote ---- */

/* h NULL: on the processor. */
static enum infer_status compute(const struct infer_model *m, const struct how *h, struct verify_record *r) {
    struct infer_engine_options o = options_of(h ? h : &hows[0]);
    if (r) o.watch = verify_watch, o.watch_user = r;
    if (!h) o.device = "cpu", o.threads = 2;
    return compute_verify_text(m, &o);
}
static struct verify_record record_of(const struct infer_model *m, const struct how *h) {
    struct verify_record r = {.device = "cuda", .isa = "sm", .version = "1", .type = "Q8_0", .bits = 8.5f};
    assert_ok(compute(m, h, &r));
    assert_ok(r.status);
    return r;
}

/* w of Q8_0, in memory of its own, the scale of the first block of row 5 that half. */
static uint8_t *with_scale(struct weight *w, uint16_t half) {
    const size_t n = (size_t)weight_bytes(w), row = (size_t)w->k / 32 * 34;
    uint8_t *data = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_true(w->type == QUANT_Q8_0 && data && !w->pitch);
    memcpy(data, w->data, n);
    memcpy(data + 5 * row, &half, sizeof half);
    w->data = data;
    return data;
}

/* What the card tells is what was computed: as the processor has it, in every row. */
static void check_against_cpu(const struct infer_model *m, const struct verify_record *was,
                              const char *name) {
    struct verify_record other = {.device = "cpu", .isa = "", .version = "1", .type = "Q8_0", .bits = 8.5f};
    struct verify_difference d;
    struct verify_report report;
    assert_ok(compute(m, NULL, &other));
    if (!verify_compare(was, &other, verify_limits_of(was, &other), &d, &report))
        fail_msg("%s: %s of layer %d, row %d is %g apart of the processor's", name, d.is->name, d.is->layer,
                 d.pos, d.apart);
    assert_true(report.compared >= 10);
    verify_free(&other);
}

static void what_is_written(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct infer_model *m = model_of(&hows[i]);
        struct verify_record was = record_of(m, &hows[i]), again = record_of(m, &hows[i]);
        const struct verify_limits limits = verify_limits_of(&was, &again);
        struct verify_difference d;
        struct verify_report report;
        assert_true(verify_compare(&was, &again, limits, &d, &report));
        assert_true(report.apart == 0);
        print_message("%-14s %d operations seen\n", hows[i].name, report.compared);
        assert_true(report.compared >= (hows[i].no_fuse ? 40 : 10));
        verify_free(&again);
        check_against_cpu(m, &was, hows[i].name);
        struct weight *w = &m->m->layer[0].dense.down.member[0];
        const struct weight whole = *w;
        uint8_t *data = with_scale(w, 0x3c00); /* 1 */
        struct verify_record is = record_of(m, &hows[i]);
        assert_false(verify_compare(&was, &is, limits, &d, &report));
        print_message("%-14s differs: %s of layer %d, row %d: %g was %g\n", hows[i].name, d.is->name,
                      d.is->layer, d.pos, (double)d.is_value, (double)d.was_value);
        assert_string_equal(d.is->name, hows[i].no_fuse ? "ffn_down" : "ffn_add");
        assert_int_equal(d.is->layer, 0);
        verify_free(&is);
        verify_free(&was);
        *w = whole;
        free(data);
        infer_model_close(m);
    }
}

static void not_finite(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct infer_model *m = model_of(&hows[i]);
        struct weight *w = &m->m->layer[0].dense.down.member[0];
        const struct weight whole = *w;
        assert_ok(compute(m, &hows[i], NULL));
        uint8_t *data = with_scale(w, 0x7e00); /* NaN */
        assert_int_equal(compute(m, &hows[i], NULL), INFER_E_NAN);
        print_message("%-14s %s\n", hows[i].name, infer_error());
        assert_non_null(strstr(infer_error(), "ffn_down of layer 0: element 5 of position 0"));
        *w = whole;
        free(data);
        infer_model_close(m);
    }
}

/* ---- ranges for NVIDIA's tools ---- */

/* A tool as NVTX 3 starts it: linked in, by this name; it is asked for the functions that it wants to be called. */
static int depth, most_depth, n_steps, n_links;
static int range_begins(const char *name) {
    n_steps += !strcmp(name, "infer decode"), n_links += !strcmp(name, "ffn_down");
    if (++depth > most_depth) most_depth = depth;
    return depth - 1;
}
static int range_ends(void) { return --depth; }
struct callbacks {
    size_t size;
    int (*functions)(int module, void (****table)(void), unsigned *n);
};
static int start_tool(const void *(*export)(uint32_t table)) {
    enum { CALLBACKS = 1, MODULE_CORE = 1, PUSH_A = 9, POP = 11 };
    const struct callbacks *c = export(CALLBACKS);
    void (***function)(void);
    unsigned n;
    if (!c || !c->functions(MODULE_CORE, &function, &n) || n <= POP) return 0;
    *function[PUSH_A] = (void (*)(void))range_begins;
    *function[POP] = (void (*)(void))range_ends;
    return 1;
}
int (*InitializeInjectionNvtx2_fnptr)(const void *(*)(uint32_t)) = start_tool;

static bool must; /* a card has to be there, and the toolkit's NVTX */

static void ranges(void **state) {
    (void)state;
    static float out[2 * MOST_VOCAB];
    const struct how h = {"ranges", NULL, false, true};
    struct infer_model *m = model_of(&h);
    depth = most_depth = n_steps = n_links = 0;
    infer_engine_free(run(m, &h, NULL, out));
    print_message("ranges: %d steps, %d links, %d deep\n", n_steps, n_links, most_depth);
    if (!n_steps && !must) skip(); /* the toolkit had no NVTX */
    assert_int_equal(depth, 0);
    assert_int_equal(most_depth, 2);
    assert_true(n_steps >= DECODED && n_links >= 2 * n_steps);
    infer_model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_of_links), cmocka_unit_test(what_is_written),
                                       cmocka_unit_test(not_finite), cmocka_unit_test(ranges)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

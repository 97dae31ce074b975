/* infer verify: faults that are put into a model are found, by the name of the operation; and the NaN guard names where one begins. */
#include "tests/lib/test.h"
#include <math.h>
#include <unistd.h>
#include "engine_impl.h"
#include "tests/lib/verify_text.h"

enum { ROWS = VERIFY_PROMPT + VERIFY_DECODE };

static struct infer_model *model_of(const char *name) {
    char path[512];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, name), NULL));
    return m;
}

static enum infer_status compute(const struct infer_model *m, const char *device, bool no_fuse,
                                 struct verify_record *r) {
    const struct infer_engine_options o = {.device = device,
                                           .threads = 2,
                                           .ctx = 64,
                                           .batch = VERIFY_PROMPT,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1,
                                           .no_fuse = no_fuse,
                                           .watch = r ? verify_watch : NULL,
                                           .watch_user = r};
    return compute_verify_text(m, &o);
}

static struct verify_record record_of(const struct infer_model *m, const char *device, bool no_fuse) {
    struct infer_model_info info;
    struct verify_record r = {.device = device, .isa = "", .version = "1", .bits = 32};
    infer_model_info(m, &info);
    r.type = info.type_name;
    assert_ok(compute(m, device, no_fuse, &r));
    assert_ok(r.status);
    return r;
}

/* The first operation that differs; *d is it. */
static const struct verify_op *first(const struct verify_record *was, const struct verify_record *is,
                                     struct verify_difference *d) {
    struct verify_report report;
    if (verify_compare(was, is, verify_limits_of(was, is), d, &report)) return NULL;
    return d->is ? d->is : d->was;
}

static void expect(const struct verify_record *was, const struct infer_model *m, const char *name,
                   int layer) {
    struct verify_difference d;
    struct verify_record is = record_of(m, was->device, true);
    const struct verify_op *o = first(was, &is, &d);
    if (!o) fail_msg("%s of layer %d is not seen", name, layer);
    assert_string_equal(o->name, name);
    assert_int_equal(o->layer, layer);
    verify_free(&is);
}

/* w of F32, in memory of its own; the weight that row 5 multiplies number 3 with is times x. */
static float *poisoned(struct weight *w, float x) {
    const size_t n = (size_t)w->n * (size_t)w->k;
    float *data = aligned_alloc(64, (n * sizeof *data + 63) / 64 * 64);
    assert_true(w->type == QUANT_F32 && data && !w->pitch);
    memcpy(data, w->data, n * sizeof *data);
    data[(size_t)5 * (size_t)w->k + 3] *= x;
    w->data = data;
    return data;
}

static void seeded(void **state) {
    (void)state;
    struct infer_model *m = model_of("golden/forward/qwen3.gguf");
    struct model *k = m->m;
    struct layer *l = &k->layer[1];
    for (int i = 0; i < 2; i++) {
        struct verify_record was = record_of(m, i ? "cpu" : "ref", true);
        struct verify_difference d;
        struct verify_report report;
        struct verify_record again = record_of(m, was.device, true);
        assert_true(verify_compare(&was, &again, verify_limits_of(&was, &again), &d, &report));
        assert_true(report.apart == 0 && report.compared > 60);
        verify_free(&again);

        struct rope rope = *l->attn.rope;
        const struct rope *true_rope = l->attn.rope;
        rope.kind = rope.kind == ROPE_NEOX ? ROPE_INTERLEAVED : ROPE_NEOX;
        l->attn.rope = &rope;
        expect(&was, m, "rope_q", 1);
        l->attn.rope = true_rope;

        const struct norm_weights norm = l->attn.k_norm;
        l->attn.k_norm = (struct norm_weights){0};
        expect(&was, m, "attn_k_norm", 1); /* which is gone */
        l->attn.k_norm = norm;

        const float eps = k->eps;
        k->eps = 10 * eps;
        expect(&was, m, "attn_norm", 0);
        k->eps = eps;

        struct weight *w = &l->dense.down.member[0];
        const struct weight true_weight = *w;
        float *data = poisoned(w, 1.5f); /* of one weight of thousands: others may differ by as little */
        expect(&was, m, "ffn_down", 1);
        *w = true_weight;
        free(data);
        verify_free(&was);
    }
    infer_model_close(m);
}

/* Without being asked: the operation, the layer and the position; a norm behind it sees it, whatever is folded into what. */
static void guard(void **state) {
    (void)state;
    struct infer_model *m = model_of("golden/forward/qwen3.gguf");
    struct layer *l = &m->m->layer[1];
    const struct weight true_down = l->dense.down.member[0], true_head = m->m->head.member[0];
    float *data = poisoned(&l->dense.down.member[0], NAN);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(compute(m, i & 1 ? "cpu" : "ref", i & 2, NULL), INFER_E_NAN);
        assert_non_null(strstr(infer_error(), "ffn_down of layer 1: element 5 of position"));
    }
    l->dense.down.member[0] = true_down;
    free(data);
    data = poisoned(&m->m->head.member[0], INFINITY); /* behind the last norm */
    assert_int_equal(compute(m, "cpu", false, NULL), INFER_E_NAN);
    assert_non_null(strstr(infer_error(), "logits: element 5 of position 23 is not finite"));
    m->m->head.member[0] = true_head;
    free(data);
    assert_ok(compute(m, "cpu", false, NULL));
    infer_model_close(m);
}

/* A record in a file is what it was; a broken one is refused. */
static void file(void **state) {
    (void)state;
    char path[] = "/tmp/infer-test-XXXXXX", other[512];
    struct infer_model *m = model_of("golden/hf/gpt_oss");
    struct verify_record was = record_of(m, "cpu", false), is;
    struct verify_difference d;
    struct verify_report report;
    static const int32_t ids[ROWS] = {3, 1};
    static struct verify_text text = {"plain", "a\n\"b\"", ids, 2};
    was.arch = "x", was.ids = ids, was.n_id = ROWS, was.text = &text, was.n_text = 1, was.model = ~0ull;
    close(mkstemp(path));
    assert_ok(verify_write(&was, path));
    assert_ok(verify_read(&is, path));
    assert_true(is.model == was.model && is.n_op == was.n_op && is.n_text == 1);
    assert_string_equal(is.text[0].text, text.text);
    assert_memory_equal(is.ids, ids, sizeof ids);
    assert_true(verify_compare(&was, &is, (struct verify_limits){0, 1, false, ""}, &d, &report));
    assert_true(report.compared > 20 && report.apart == 0);
    verify_free(&is);
    assert_int_equal(verify_read(&is, test_path(other, sizeof other, "golden/forward/qwen3.gguf")),
                     INFER_E_INPUT);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(verify_read(&is, path), INFER_E_INPUT);
    unlink(path);
    verify_free(&was);
    infer_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(seeded), cmocka_unit_test(guard),
                                       cmocka_unit_test(file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

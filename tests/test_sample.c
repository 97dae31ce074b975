/* Sampling: the vectors of the reference implementation, and the properties that sample.h promises. */
#include "test.h"
#include <jansson.h>
#include <math.h>
#include "sample.h"

static float number(json_t *args, const char *key, float missing) {
    json_t *v = json_object_get(args, key);
    return v ? (float)json_number_value(v) : missing;
}

/* One vector: logits are the logarithms of probs, expected the probabilities that are left. */
static void run_vector(json_t *args, struct sample_params p, bool sorted) {
    json_t *probs = json_object_get(args, "probs"), *expected = json_object_get(args, "expected");
    int n = (int)json_array_size(probs), m = 0;
    float logits[16];
    for (int i = 0; i < n; i++) logits[i] = logf((float)json_number_value(json_array_get(probs, i)));
    struct sampler *s;
    assert_ok(sample_open(&s, n, &p));
    json_t *last = json_object_get(args, "last_tokens");
    for (size_t i = 0; last && i < json_array_size(last); i++)
        sample_accept(s, (int32_t)json_integer_value(json_array_get(last, i)));
    const struct sample_candidate *c;
    m = sample_distribution(s, logits, &c);
    if (sorted) assert_int_equal(m, json_array_size(expected));
    float got[16], want[16];
    for (int i = 0; i < m; i++) got[i] = c[i].p;
    for (int i = 0; i < m; i++) want[i] = (float)json_number_value(json_array_get(expected, i));
    if (!sorted) /* ours keeps the order of ids: compare as sorted lists */
        for (int i = 0; i < m; i++)
            for (int j = i + 1; j < m; j++)
                if (got[j] > got[i]) {
                    float t = got[i];
                    got[i] = got[j], got[j] = t;
                }
    for (int i = 0; i < m; i++) assert_true(fabsf(got[i] - want[i]) < 1e-3f);
    sample_close(s);
}

static void test_vectors(void **state) {
    (void)state;
    char path[512];
    if (!testdata_path(path, sizeof path, "sampling/sampling_vectors.json")) skip();
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_t *tests = json_object_get(root, "tests"), *t;
    size_t i;
    int run = 0;
    json_array_foreach(tests, i, t) {
        const char *fn = json_string_value(json_object_get(t, "fn"));
        json_t *args = json_object_get(t, "args");
        struct sample_params p = sample_defaults();
        p.temp = 1;
        if (strcmp(fn, "temp") == 0)
            p.temp = number(args, "temperature", 1);
        else if (strcmp(fn, "top_k") == 0)
            p.top_k = (int)number(args, "k", 0);
        else if (strcmp(fn, "top_p") == 0)
            p.top_p = number(args, "p", 1);
        else if (strcmp(fn, "min_p") == 0)
            p.min_p = number(args, "p", 0);
        else if (strcmp(fn, "penalties") == 0 && number(args, "frequency", 0) == 0)
            p.repeat_penalty = number(args, "repeat", 1);
        else
            continue;
        run_vector(args, p, p.top_k || p.top_p < 1);
        run++;
    }
    json_decref(root);
    assert_int_equal(run, 12);
}

static void test_greedy(void **state) {
    (void)state;
    struct sample_params p = sample_defaults();
    assert_true(sample_is_greedy(&p));
    struct sampler *s;
    assert_ok(sample_open(&s, 6, &p));
    float ties[6] = {1, 3, 2, 3, NAN, -INFINITY};
    assert_int_equal(sample_token(s, ties), 1);
    float none[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    assert_int_equal(sample_token(s, none), 0);
    p.repeat_penalty = 2;
    assert_false(sample_is_greedy(&p));
    assert_ok(sample_set(s, &p));
    sample_accept(s, 1);
    assert_int_equal(sample_token(s, ties), 3);
    sample_close(s);
}

/* Frequencies of many draws follow the probabilities; one seed gives one stream, another seed another. */
static void test_draws(void **state) {
    (void)state;
    enum { N = 1000, DRAWS = 40000 };
    static float logits[N];
    static int count[N], first[DRAWS];
    for (int i = 0; i < N; i++) logits[i] = (float)((i * 37) % 101) / 20;
    struct sample_params p = sample_defaults();
    p.temp = 0.7f, p.top_k = 20, p.top_p = 0.9f, p.min_p = 0.05f, p.seed = 7;
    struct sampler *s;
    assert_ok(sample_open(&s, N, &p));
    const struct sample_candidate *c;
    int n = sample_distribution(s, logits, &c);
    assert_true(n > 1 && n < 20);
    float expected[20], total = 0;
    int32_t ids[20];
    for (int i = 0; i < n; i++) expected[i] = c[i].p, ids[i] = c[i].id, total += c[i].p;
    assert_true(fabsf(total - 1) < 1e-5f);
    for (int i = 0; i < DRAWS; i++) count[first[i] = sample_token(s, logits)]++;
    for (int i = 0; i < n; i++) {
        float mean = expected[i] * DRAWS;
        assert_true(fabsf((float)count[ids[i]] - mean) < 6 * sqrtf(mean));
        count[ids[i]] = 0;
    }
    for (int i = 0; i < N; i++) assert_int_equal(count[i], 0);
    sample_reset(s);
    for (int i = 0; i < 1000; i++) assert_int_equal(sample_token(s, logits), first[i]);
    p.seed = 8;
    assert_ok(sample_set(s, &p));
    int same = 0;
    for (int i = 0; i < 1000; i++) same += sample_token(s, logits) == first[i];
    assert_true(same < 500);
    sample_close(s);
}

static void test_refusals(void **state) {
    (void)state;
    struct sampler *s;
    struct sample_params p = sample_defaults();
    p.top_p = 1.5f;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "top-p 1.5"));
    p = sample_defaults(), p.temp = NAN;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    p = sample_defaults(), p.repeat_last = SAMPLE_MAX_LAST + 1;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    p = sample_defaults();
    assert_int_equal(sample_open(&s, 0, &p), INFER_E_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

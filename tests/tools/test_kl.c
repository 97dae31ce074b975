/* Logits of a base in a file: what a comparison says against the same sums in double, and files that are not what they say. */
#include "tests/lib/test.h"
#include <math.h>
#include <unistd.h>
#include "tools/measure/kl.h"

enum { VOCAB = 33, TOKENS = 8 };
static const struct kl_header shape = {.n_vocab = VOCAB, .window = 8, .first = 4, .n_window = 2};
static char path[64];

static float logit(int model, int t, int i) { /* some far below the likeliest */
    return (float)((i * 37 + t * 11 + model * (i % 5)) % 29) * (model ? 0.9f : 1.1f) - 7;
}
static double log_z(int model, int t) {
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += exp((double)logit(model, t, i));
    return log(sum);
}
static enum infer_status feed(struct kl *k, int model, int n) {
    for (int t = 0; t < n; t++) {
        float x[VOCAB];
        for (int i = 0; i < VOCAB; i++) x[i] = logit(model, t, i);
        TRY(kl_token(k, x, t + 3, log_z(model, t) - (double)x[t + 3]));
    }
    return INFER_OK;
}
static void make(void) {
    struct kl k = {0};
    strcpy(path, "/tmp/infer-test-kl-XXXXXX");
    assert_true(close(mkstemp(path)) == 0);
    assert_ok(kl_make(&k, path, &shape));
    assert_ok(feed(&k, 0, TOKENS));
    assert_ok(kl_done(&k));
    kl_close(&k);
}

static void divergence(void **state) {
    (void)state;
    double sum = 0, change = 0;
    make();
    for (int model = 0; model < 2; model++) {
        struct kl k = {0};
        struct kl_header h = shape;
        h.n_window = 5; /* of a longer text: the file's windows count */
        assert_ok(kl_open(&k, path, &h));
        assert_int_equal(h.n_window, 2);
        assert_ok(feed(&k, model, TOKENS));
        assert_int_equal(k.n, TOKENS);
        if (!model) {
            assert_true(fabs(k.sum) < 1e-3 && fabs(k.change) < 1e-5);
            assert_int_equal(k.same, TOKENS);
        }
        for (int t = 0; t < TOKENS && model; t++) {
            for (int i = 0; i < VOCAB; i++) {
                double p = (double)logit(0, t, i) - log_z(0, t), q = (double)logit(1, t, i) - log_z(1, t);
                sum += exp(p) * (p - q);
            }
            change +=
                exp((double)logit(1, t, t + 3) - log_z(1, t)) - exp((double)logit(0, t, t + 3) - log_z(0, t));
        }
        if (model && !(sum > 0.1 && fabs(k.sum - sum) < 1e-3 * sum && fabs(k.change - change) < 1e-5))
            fail_msg("sum %g and %g, change %g and %g", k.sum, sum, k.change, change);
        if (model) {
            const double least = kl_quantile(&k, 0), most = kl_quantile(&k, 1), half = kl_quantile(&k, 0.5);
            assert_true(least < half && half < most);
            assert_true(fabs(half - (k.each[3] + k.each[4]) / 2) < 1e-12);
        }
        kl_close(&k);
    }
    unlink(path);
}

static void other_files(void **state) {
    (void)state;
    static const struct {
        uint32_t n_vocab, window, n_window;
        const char *says;
    } wrong[] = {{34, 8, 2, "is of a model with 33 tokens"},
                 {VOCAB, 16, 2, "of which those from 4 on count"},
                 {VOCAB, 8, 1, "the text 1"}};
    make();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct kl k = {0};
        struct kl_header h = {.n_vocab = wrong[i].n_vocab,
                              .window = wrong[i].window,
                              .first = 4,
                              .n_window = wrong[i].n_window};
        assert_int_equal(kl_open(&k, path, &h), INFER_E_INPUT);
        if (!strstr(err_message(), wrong[i].says)) fail_msg("%s", err_message());
        kl_close(&k);
    }
    struct kl k = {0};
    struct kl_header h = shape;
    float x[VOCAB] = {0};
    assert_ok(kl_open(&k, path, &h));
    assert_int_equal(kl_token(&k, x, 4, log(VOCAB)), INFER_E_INPUT); /* token 3 came there */
    assert_non_null(strstr(err_message(), "was 3 there and is 4 here"));
    kl_close(&k);
    assert_ok(truncate(path, 300));
    k = (struct kl){0};
    assert_int_equal(kl_open(&k, path, &h), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "was it cut?"));
    kl_close(&k);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(divergence), cmocka_unit_test(other_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

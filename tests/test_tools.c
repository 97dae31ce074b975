/* The parts of the program that have answers of their own: terminal text, stop strings, verdicts of bench. */
#include "test.h"
#include <math.h>
#include "../tools/answer.h"
#include "../tools/bench_result.h"
#include "../tools/term.h"

/* ---- text for a terminal ---- */

static void check_safe(const char *text, size_t n, const char *expected) {
    char *got = NULL;
    size_t size;
    FILE *f = open_memstream(&got, &size);
    term_write_safe(f, text, n);
    fclose(f);
    assert_string_equal(got, expected);
    free(got);
}

static void test_safe(void **state) {
    (void)state;
    check_safe("plain\ttext\n", 11, "plain\ttext\n");
    check_safe("Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80", 16,
               "Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80");
    check_safe("\x1b]52;c;QQ\x07", 10, "\\x1b]52;c;QQ\\x07");
    check_safe("a\rb\x7f\0", 5, "a\\x0db\\x7f\\x00");
    check_safe("\xc2\x9b"
               "31m",
               5, "\\xc2\\x9b31m"); /* CSI as one C1 character */
    check_safe("\xff\xc3", 2, "\\xff\\xc3");
    check_safe("\xc2\xa0", 2, "\xc2\xa0");
}

/* ---- the answer ---- */

/* Pushes every byte of text as a token of its own and collects what is shown on the way. */
static void stream(struct answer *a, const char *text, char *shown) {
    size_t n, total = 0;
    for (size_t i = 0; text[i] && !a->stopped; i++) {
        assert_ok(answer_push(a, text + i, 1));
        const char *s = answer_take(a, false, &n);
        assert_int_equal(term_valid_utf8(s, n), n); /* never half a character */
        memcpy(shown + total, s, n);
        total += n;
    }
    assert_ok(answer_finish(a));
    const char *s = answer_take(a, true, &n);
    memcpy(shown + total, s, n);
    shown[total + n] = 0;
    assert_int_equal(total + n, a->n);
    assert_memory_equal(shown, a->text, a->n);
}

static void test_answer(void **state) {
    (void)state;
    static const struct {
        const char *text, *stop[3], *expected;
        bool stopped;
    } cases[] = {
        {"one two", {0}, "one two", false},
        {"one STOP two", {"STOP"}, "one ", true},
        {"STOP", {"STOP"}, "", true},
        {"one STO", {"STOP"}, "one STO", false},
        {"SSTOSTOP!", {"STOP"}, "SSTO", true},
        {"a b c", {"c", "b"}, "a ", true},
        {"aab aac", {"aac", "x"}, "aab ", true},
        {"a \xe2\x82\xac b", {"\xe2\x82\xac"}, "a ", true},
        {"a \xe2\x82\xac b", {"\xe2\x82\xad"}, "a \xe2\x82\xac b", false},
        {"text", {""}, "text", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct option_texts stop = {0};
        while (cases[i].stop[stop.n]) stop.text[stop.n] = cases[i].stop[stop.n], stop.n++;
        struct answer a = {0};
        char shown[64];
        answer_start(&a, &stop);
        stream(&a, cases[i].text, shown);
        assert_string_equal(shown, cases[i].expected);
        assert_int_equal(a.stopped, cases[i].stopped);
        answer_free(&a);
    }
}

static void test_answer_cut(void **state) {
    (void)state;
    struct answer a = {0};
    answer_start(&a, NULL);
    size_t n;
    assert_ok(answer_push(&a, "x\xf0\x9f", 3));
    assert_memory_equal(answer_take(&a, false, &n), "x", 1);
    assert_int_equal(n, 1);
    assert_ok(answer_finish(&a));
    assert_true(a.cut);
    answer_free(&a);
}

/* ---- bench ---- */

static void test_percentile(void **state) {
    (void)state;
    double x[] = {5, 1, 4, 2, 3};
    assert_true(bench_percentile(x, 5, 0.5) == 3);
    assert_true(bench_percentile(x, 5, 0) == 1 && bench_percentile(x, 5, 1) == 5);
    assert_true(bench_percentile(x, 5, 0.95) == 5);
    assert_true(isnan(bench_percentile(x, 0, 0.5)));
}

static void test_verdict(void **state) {
    (void)state;
    struct bench_result a = {"tg128", 100, 99, 101, 50, NAN, 10, 10, 10}, b = a;
    assert_int_equal(bench_compare(&a, &a, 5, 5).verdict, BENCH_SAME);
    b.tok_s = 95, b.tok_s_min = 94, b.tok_s_max = 96; /* 5% slower */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
    assert_int_equal(bench_compare(&a, &b, 5, 5).verdict, BENCH_FASTER);
    b.tok_s = 99, b.tok_s_min = 98, b.tok_s_max = 100; /* within the noise */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SAME);
    b.tok_s = 95, b.tok_s_min = 70, b.tok_s_max = 110; /* 5% slower, drowned */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_NOISY);
    assert_int_equal(bench_compare(&b, &b, 5, 5).verdict, BENCH_NOISY);
    b.tok_s = 50, b.tok_s_min = 40, b.tok_s_max = 55; /* noisy, and far slower */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
    b = a, a.share = 0.8, b.share = 0.79, b.tok_s = 70, b.tok_s_min = 69,
    b.tok_s_max = 71; /* slower memory */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SAME);
    b.share = 0.75;
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
}

static void test_json(void **state) {
    (void)state;
    struct bench_result a = {"tg64x8@d1024", 100.5, 99, 101, 50, NAN, 10, 11, 12}, b;
    json_t *j = bench_result_json(&a);
    assert_non_null(j);
    assert_true(json_is_null(json_object_get(j, "share")));
    assert_ok(bench_result_read(&b, j));
    assert_string_equal(b.test, a.test);
    assert_true(b.tok_s == a.tok_s && b.ms_p99 == a.ms_p99 && isnan(b.share));
    json_object_del(j, "gb_s");
    assert_int_equal(bench_result_read(&b, j), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "gb_s"));
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safe),       cmocka_unit_test(test_answer),  cmocka_unit_test(test_answer_cut),
        cmocka_unit_test(test_percentile), cmocka_unit_test(test_verdict), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

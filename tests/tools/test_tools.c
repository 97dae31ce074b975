/* The parts of the program that have answers of their own: terminal text, stop strings, verdicts of bench. */
#include "tests/lib/test.h"
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>
#include <math.h>
#include "seam/draw.h"
#include "request/answer.h"
#include "tools/interrupt.h"
#include "tools/machine/doctor_advice.h"
#include "tools/machine/doctor_cuda.h"
#include "tools/machine/doctor_self.h"
#include "tools/measure/bench_result.h"
#include "request/logprobs.h"
#include "request/loop.h"
#include "tools/term.h"
#include "tools/tool.h"

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

/* Takes what can be shown: answers go to shown, thinking to thought. */
static void take(struct answer *a, char *shown, char *thought) {
    size_t n;
    bool thinking;
    for (const char *s; s = answer_take(a, &n, &thinking), n;) {
        assert_int_equal(text_valid_utf8(s, n), n); /* never half a character */
        strncat(thinking ? thought : shown, s, n);
    }
}

/* Pushes every byte of text as a token of its own. */
static void stream(struct answer *a, const char *text, char *shown, char *thought) {
    shown[0] = thought[0] = 0;
    for (size_t i = 0; text[i] && !a->stopped; i++) {
        assert_ok(answer_push(a, text + i, 1));
        take(a, shown, thought);
    }
    assert_ok(answer_finish(a));
    take(a, shown, thought);
    size_t n;
    const char *s = answer_text(a, &n);
    assert_int_equal(n, strlen(shown));
    assert_memory_equal(s, shown, n);
    s = answer_thinking(a, &n);
    assert_int_equal(n, strlen(thought));
    assert_memory_equal(s, thought, n);
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
        {"<think>no</think>", {0}, "<think>no</think>", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n_stop = 0;
        while (cases[i].stop[n_stop]) n_stop++;
        struct answer a = {0};
        char shown[64], thought[64];
        answer_start(&a, cases[i].stop, n_stop, INFER_ANSWER_PLAIN);
        stream(&a, cases[i].text, shown, thought);
        assert_string_equal(shown, cases[i].expected);
        assert_int_equal(a.stopped, cases[i].stopped);
        answer_free(&a);
    }
}

/* For each thing that may be wrong with a machine a line says what to do, and none where all is well. */
static void doctor_knows_what_to_do(void **state) {
    (void)state;
#define WELL                                                                                                 \
    "'devices': {'cpu': {'usable': true}}, 'self_test': {'cpu': {'well': true}}, 'model': {'file': 'm', 'place': {'fits': true}}"
#define CUDA "'cuda_build': {'driver_needed': '580'}"
#define CARD "'chip': 'sm_90', 'image': 'sm_90a', 'memory_gib': 80"
    static const struct {
        const char *report, *todo[2]; /* with ' for " */
    } cases[] = {
        {"{'gpu': {'on_bus': false, 'driver': '', 'cards': []}, 'cuda_build': null, " WELL "}", {0}},
        {"{'gpu': {'on_bus': true, 'driver': '580.1', 'cards': [{" CARD ", 'free_gib': 79}]}, " CUDA ", " WELL
         "}",
         {0}},
        {"{'gpu': {'on_bus': true, 'driver': '', 'cards': []}, " CUDA ", " WELL "}",
         {"driver, 580 or newer"}},
        {"{'gpu': {'on_bus': true, 'driver': '', 'cards': []}, 'cuda_build': null, " WELL "}",
         {"install NVIDIA's driver:"}},
        {"{'gpu': {'on_bus': true, 'driver': '535.2', 'cards': []}, " CUDA ", " WELL "}",
         {"it is 535.2, this build needs 580"}},
        {"{'gpu': {'on_bus': true, 'driver': '580.1', 'cards': [{" CARD
         ", 'free_gib': 79}]}, 'cuda_build': null, " WELL "}",
         {"take a build with CUDA"}},
        {"{'gpu': {'on_bus': true, 'driver': '580.1', 'cards': [{'chip': 'sm_61', 'image': 'none', 'memory_gib': 8, 'free_gib': 1}]}, " CUDA
         ", " WELL "}",
         {"-DINFER_CUDA_ARCHS=61", "others hold 7.0 of its 8.0 GiB"}},
        {"{'devices': {'cpu': {'usable': false}}, 'self_test': {}, 'model': {'file': 'm', 'place': {'fits': true}}}",
         {"--device ref"}},
        {"{'devices': {'cpu': {'usable': true}}, 'self_test': {'cuda': {'well': false}}, 'model': {'file': 'm', 'place': {'fits': false}}}",
         {"do not use cuda", "make the model fit"}},
        {"{'devices': {'cpu': {'usable': true}}, 'self_test': {'cpu': {'well': null}, 'cuda': {'well': null}}, 'model': {'file': 'm', 'place': {'fits': true}}}",
         {"$TMPDIR"}},
        {"{'devices': {'cpu': {'usable': true}}, 'self_test': {'cpu': {'well': true}}, 'model': {'file': '/x/y', 'problem': 'no model: ..'}}",
         {"the default one to /x/y"}},
        {"{'devices': {'cpu': {'usable': true}}, 'self_test': {'cpu': {'well': true}}, 'model': {'file': '/x/y', 'problem': '/x/y: the file is empty'}}",
         {"--check /x/y"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        size_t n = 0;
        snprintf(text, sizeof text, "%s", cases[i].report);
        for (char *p = text; *p; p++)
            if (*p == '\'') *p = '"';
        json_t *report = json_loads(text, 0, NULL), *all = doctor_advice(report);
        assert_non_null(report);
        for (; n < 2 && cases[i].todo[n]; n++)
            assert_non_null(strstr(json_string_value(json_array_get(all, n)), cases[i].todo[n]));
        assert_int_equal(json_array_size(all), n);
        json_decref(report);
        json_decref(all);
    }
}

/* A device that computes something else is told from one that does not, by a tenth of a standard deviation in one row, or one number. */
static void doctor_tells_devices_apart(void **state) {
    (void)state;
    enum { ROWS = 3, VOCAB = 100 };
    float ref[ROWS * VOCAB], got[ROWS * VOCAB];
    int at;
    for (int i = 0; i < ROWS * VOCAB; i++) ref[i] = got[i] = (float)(i * 37 % 101) * 0.1f;
    assert_true(self_apart(ref, got, ROWS, VOCAB, &at) == 0);
    for (int i = 0; i < VOCAB; i++) got[VOCAB + i] += 0.29f; /* the row's deviation is 2.9 */
    assert_true(fabs(self_apart(ref, got, ROWS, VOCAB, &at) - 0.1) < 0.01);
    assert_int_equal(at, 1);
    double apart;
    assert_int_equal(self_compare(ref, got, ROWS, VOCAB, "llama", &apart), INFER_E_DEVICE);
    assert_non_null(strstr(err_message(), "1 tokens behind"));
    for (int i = 0; i < VOCAB; i++) got[VOCAB + i] -= 0.19f;
    assert_ok(self_compare(ref, got, ROWS, VOCAB, "llama", &apart));
    got[2 * VOCAB + 5] = NAN;
    assert_int_equal(self_compare(ref, got, ROWS, VOCAB, "llama", &apart), INFER_E_DEVICE);
    assert_true(isinf(self_apart(ref, got, ROWS, VOCAB, &at)));
    assert_int_equal(at, 2);
    /* of two devices the one that cannot be made is wrong, one that is not usable is not asked */
    json_t *devices = json_loads(
               "{\"cpu\":{\"usable\":true},\"abacus\":{\"usable\":true},\"cuda\":{\"usable\":false}}", 0,
               NULL),
           *self = doctor_self(devices);
    assert_int_equal(json_object_size(self), 2);
    assert_int_equal(doctor_self_failed(self), 1);
    assert_true(json_is_true(json_object_get(json_object_get(self, "cpu"), "well")));
    assert_non_null(
        strstr(json_string_value(json_object_get(json_object_get(self, "abacus"), "problem")), "abacus"));
    json_decref(devices);
    json_decref(self);
}

static void test_thinking(void **state) {
    (void)state;
    static const struct {
        enum infer_answer_start start;
        const char *text, *shown, *thought;
    } cases[] = {
        {INFER_ANSWER_MAYBE, "<think>\nhm STOP\n</think>\n\nyes", "yes", "\nhm STOP\n"},
        {INFER_ANSWER_MAYBE, "\n<think>hm</think>yes STOP", "yes ", "hm"},
        {INFER_ANSWER_MAYBE, "<thin air>", "<thin air>", ""},
        {INFER_ANSWER_MAYBE, "  plain <think>x</think>", "  plain <think>x</think>", ""},
        {INFER_ANSWER_MAYBE, "<think", "<think", ""},
        {INFER_ANSWER_MAYBE, "<think>never ends </thi", "", "never ends </thi"},
        {INFER_ANSWER_MAYBE, "<think></think>", "", ""},
        {INFER_ANSWER_MAYBE, "[THINK]a[/THINK] b", "b", "a"},
        {INFER_ANSWER_THINKING, "hm</think>\nyes", "yes", "hm"},
        {INFER_ANSWER_THINKING, "hm", "", "hm"},
        {INFER_ANSWER_MAYBE, "STOP", "", ""},
        {INFER_ANSWER_MAYBE, "", "", ""},
    };
    static const char *const stop[] = {"STOP"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = {0};
        char shown[64], thought[64];
        answer_start(&a, stop, 1, cases[i].start);
        stream(&a, cases[i].text, shown, thought);
        assert_string_equal(shown, cases[i].shown);
        assert_string_equal(thought, cases[i].thought);
        answer_free(&a);
    }
    assert_true(infer_prompt_closing("x<think>\n", 9));
    assert_false(infer_prompt_closing("x<think>y", 9));
    assert_true(answer_is_tag("</think>", 8));
    assert_false(answer_is_tag("</think", 7));
}

static void test_answer_cut(void **state) {
    (void)state;
    struct answer a = {0};
    char shown[64] = "", thought[64] = "";
    answer_start(&a, NULL, 0, INFER_ANSWER_PLAIN);
    assert_ok(answer_push(&a, "x\xf0\x9f", 3));
    take(&a, shown, thought);
    assert_string_equal(shown, "x");
    assert_ok(answer_finish(&a));
    assert_true(a.cut);
    answer_free(&a);
}

/* ---- lines that break between words ---- */

static void check_wrap(int width, const char *text, const char *expected) {
    char *got = NULL;
    size_t size;
    FILE *f = open_memstream(&got, &size);
    struct term_wrap w = {.out = f, .width = width};
    for (size_t i = 0, n = strlen(text), len; i < n; i += len) {
        len = text_utf8_len(text + i, n - i);
        term_wrap_write(&w, text + i, len ? len : 1);
        if (!len) len = 1;
    }
    term_wrap_flush(&w);
    fclose(f);
    assert_string_equal(got, expected);
    free(got);
}

static void test_wrap(void **state) {
    (void)state;
    check_wrap(10, "one two three four", "one two \nthree four");
    check_wrap(10, "one\ntwo  threes", "one\ntwo  \nthrees");
    check_wrap(10, "two  three", "two  three");
    check_wrap(10, "abcd efghi jk", "abcd efghi\njk"); /* a full line takes the space behind it */
    check_wrap(10, "abcdefghij k\nabcdefghij\nl", "abcdefghij\nk\nabcdefghij\nl");
    check_wrap(10, "abcdefghijklmnop q", "abcdefghijklmnop q");
    check_wrap(0, "one two three four five", "one two three four five");
    check_wrap(10, "Gr\xc3\xbc\xc3\x9f\x65 gr\xc3\xbc\xc3\x9f\x65n",
               "Gr\xc3\xbc\xc3\x9f\x65 \ngr\xc3\xbc\xc3\x9f\x65n");
}

/* ---- keys typed while an answer comes ---- */

static bool echoes(void) {
    struct termios t;
    assert_int_equal(tcgetattr(STDIN_FILENO, &t), 0);
    return t.c_lflag & ECHO;
}

static void test_echo(void **state) {
    (void)state;
    int master, slave, was = dup(STDIN_FILENO);
    char got[16] = "";
    if (openpty(&master, &slave, NULL, NULL, NULL)) { /* a container or chroot without /dev/pts */
        print_message("no pseudo-terminal here: %s\n", strerror(errno));
        close(was);
        skip();
    }
    assert_true(was >= 0 && dup2(slave, STDIN_FILENO) == STDIN_FILENO);
    assert_true(echoes());
    term_echo(false);
    term_echo(false);
    assert_false(echoes());
    assert_int_equal(write(master, "keys", 4), 4);
    assert_int_equal(read(STDIN_FILENO, got, sizeof got), 4); /* no newline is needed, nothing is shown */
    assert_string_equal(got, "keys");
    struct pollfd p = {.fd = master, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    term_echo(true);
    assert_true(echoes());
    dup2(was, STDIN_FILENO);
    close(was);
    close(slave);
    close(master);
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
    struct bench_result a = {.test = "tg128",
                             .tok_s = 100,
                             .tok_s_min = 99,
                             .tok_s_max = 101,
                             .gb_s = 50,
                             .share = NAN,
                             .ms_p50 = 10,
                             .ms_p95 = 10,
                             .ms_p99 = 10},
                        b = a;
    assert_int_equal(bench_compare(&a, &a, 5, 5).verdict, BENCH_SAME);
    b.tok_s = 95, b.tok_s_min = 94, b.tok_s_max = 96; /* 5% slower */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
    assert_int_equal(bench_compare(&a, &b, 5, 5).verdict, BENCH_FASTER);
    b.tok_s = 99, b.tok_s_min = 98, b.tok_s_max = 100; /* within the noise */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SAME);
    b.tok_s = 95, b.tok_s_min = 70, b.tok_s_max = 110; /* 5% slower, drowned */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_NOISY);
    assert_int_equal(bench_compare(&b, &b, 5, 5).verdict, BENCH_NOISY);
    struct bench_result slow = {.test = "pp256",
                                .tok_s = 2785,
                                .tok_s_min = 2366,
                                .tok_s_max = 3282,
                                .gb_s = NAN,
                                .share = NAN},
                        fast = {.test = "pp256",
                                .tok_s = 3478,
                                .tok_s_min = 3440,
                                .tok_s_max = 3500,
                                .gb_s = NAN,
                                .share = NAN}; /* one build */
    assert_int_equal(bench_compare(&fast, &slow, 15, 15).verdict, BENCH_NOISY);
    b.tok_s = 50, b.tok_s_min = 40, b.tok_s_max = 55; /* noisy, and far slower */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
    assert_int_equal(bench_compare(&b, &a, 2, 5).verdict, BENCH_NOISY);
    b = a, a.share = 0.80, b.share = 0.81, b.tok_s = 97, b.tok_s_min = 96,
    b.tok_s_max = 98; /* slower memory */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SAME);
    b.share = 0.76, b.tok_s = 95; /* 5% slower beside the same memory */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SLOWER);
    b.share = 0.80, b.tok_s = 70; /* the machine gives 30% less than then: nothing to be told */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_NOISY);
    b.share = 0.76, b.tok_s = 95, b.waited = 0.2; /* 5% slower, while others had the processors */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_NOISY);
    b.waited = 0, b.tok_s = 100; /* the probe alone moved */
    assert_int_equal(bench_compare(&b, &a, 5, 5).verdict, BENCH_SAME);
    char text[64];
    struct bench_change c = bench_compare(&b, &a, 5, 5);
    assert_string_equal(bench_moved(&c, text), "speed +0.0%");
    b.share = 0.81, b.tok_s = 97; /* the memory was slower by more */
    c = bench_compare(&b, &a, 5, 5);
    assert_string_equal(bench_moved(&c, text), "speed -3.0%, share the other way");
    b.share = 0.784, b.tok_s = 95;
    c = bench_compare(&b, &a, 5, 5);
    assert_string_equal(bench_moved(&c, text), "share -2.0%");
}

/* Two programs taking turns: blocks of every round about its own median, 7% to both sides. */
static enum bench_verdict turns_of(const double median[BENCH_ROUNDS], int n_block) {
    double r[BENCH_ROUNDS * 40];
    for (int i = 0; i < BENCH_ROUNDS; i++)
        for (int k = 0; k < n_block; k++)
            r[i * n_block + k] = median[i] * (1 + 0.14 * ((k * 7 % n_block + 0.5) / n_block - 0.5));
    struct bench_turns_change c = bench_compare_turns(r, n_block);
    assert_true(c.least <= c.ratio && c.ratio <= c.most);
    return c.verdict;
}
static void test_turns_verdict(void **state) {
    (void)state;
    static const struct {
        double median[BENCH_ROUNDS];
        enum bench_verdict verdict;
    } cases[] = {
        {{.97, .98, .955, .985, .97, .96, .965, .98, .97, .975}, BENCH_SLOWER},
        {{.92, 1.02, .94, .95, .94, .95, .93, .96, .94, .95},
         BENCH_SLOWER}, /* in one round of ten this one was faster */
        {{1.05, 1.04, 1.06, 1.10, 1.02, 1.05, 1.03, 1.05, 1.04, 1.06}, BENCH_FASTER},
        {{.998, 1.003, 1.001, .996, 1.004, 1.0, .999, 1.002, 1.0, .997}, BENCH_SAME},
        {{.99, .96, 1.01, 1.04, .99, 1.02, .97, 1.0, 1.01, .99}, BENCH_SAME},       /* processes differ */
        {{.993, .994, .992, .993, .994, .993, .992, .993, .994, .993}, BENCH_SAME}, /* below 1% */
        {{.94, .93, 1.02, .95, 1.0, 1.03, .94, .96, 1.02, .93}, BENCH_NOISY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(turns_of(cases[i].median, 40), cases[i].verdict);
}

static void test_json(void **state) {
    (void)state;
    struct bench_result a = {.test = "tg64x8@d1024",
                             .tok_s = 100.5,
                             .tok_s_min = 99,
                             .tok_s_max = 101,
                             .gb_s = 50,
                             .share = NAN,
                             .ms_p50 = 10,
                             .ms_p95 = 11,
                             .ms_p99 = 12,
                             .waited = 0.25,
                             .joules = 0.5,
                             .rate = {99, 101},
                             .n_rate = 2},
                        b;
    json_t *j = bench_result_json(&a);
    assert_non_null(j);
    assert_true(json_is_null(json_object_get(j, "share")));
    assert_ok(bench_result_read(&b, j));
    assert_string_equal(b.test, a.test);
    assert_true(b.tok_s == a.tok_s && b.ms_p99 == a.ms_p99 && b.waited == a.waited && isnan(b.share));
    json_object_del(j, "gb_s");
    assert_int_equal(bench_result_read(&b, j), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "gb_s"));
    json_decref(j);
}

static void a_chip_finds_its_kernel_image(void **state) {
    (void)state;
    static const char build[] = "13.0: sm_80 sm_89 sm_90a sm_120f compute_80 compute_90";
    static const struct {
        int major, minor;
        const char *image;
    } chips[] = {{7, 5, "none"},     {8, 0, "sm_80"},
                 {8, 6, "sm_80"},    {8, 9, "sm_89"},
                 {9, 0, "sm_90a"},   {10, 0, "compute_90, compiled by the driver at first start"},
                 {12, 0, "sm_120f"}, {12, 1, "sm_120f"}};
    char image[64];
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        cuda_image_for(build, chips[i].major, chips[i].minor, image, sizeof image);
        assert_string_equal(image, chips[i].image);
    }
    cuda_image_for("12.8: sm_120a", 12, 1, image, sizeof image);
    assert_string_equal(image, "none");
    assert_string_equal(cuda_driver_needed(build), "580");
}

/* Logits ln 2, ln 1, ln 5, ln 2: tenths of a whole that anyone can check. */
static void logprobs_are_of_the_softmax(void **state) {
    (void)state;
    const float logits[] = {logf(2), 0, logf(5), logf(2)};
    const struct infer_logprob expected[] = {
        {1, logf(0.1f)}, {2, logf(0.5f)}, {0, logf(0.2f)}, {3, logf(0.2f)}};
    struct infer_logprobs p = {.n_top = -1};
    logprobs_start(&p, 3);
    struct infer_top top;
    draw_top(&top, logits, 4, NULL);
    assert_ok(logprobs_add(&p, &top, 1, logits[1]));
    assert_int_equal(p.n, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p.row[i].id, expected[i].id);
        assert_true(fabsf(p.row[i].logprob - expected[i].logprob) < 1e-6f);
    }
    logprobs_free(&p);
}

/* ---- fields of the library's options -> flags ---- */

static void messages_name_flags(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"the context holds 64 (.ctx)", "the context holds 64 (--ctx)"},
        {".device cuda and .gpu_layers 3", "--device cuda and --gpu-layers 3"},
        {"gives .ignore_keys 'a.ctx'", "gives --ignore-key 'a.ctx'"},
        {".block_scaled mxfp8 needs a card", "--matmul-precision mxfp8 needs a card"},
        {"would fit: .kv_type q8_0 .batch 32\n", "would fit: --kv-type q8_0 --batch 32\n"},
        {"./x.ctx, .ctx2, .temp, .none. and 0.5", "./x.ctx, .ctx2, --temp, .none. and 0.5"},
        {"", ""},
    };
    char buf[128], small[12];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(tool_flags(buf, sizeof buf, cases[i][0]), cases[i][1]);
    assert_string_equal(tool_flags(small, sizeof small, "up to .gpu_layers"), "up to --gpu");
    assert_string_equal(tool_flags(small, sizeof small, "0123456789abcdef"), "0123456789a");
}

/* ---- answers that repeat themselves ---- */

/* Token i of streams that are the same over and over from token `plain` on: cycles of `cycle` tokens; odd: every so many tokens
 * one is another (0: never). */
struct stream_of {
    int plain, cycle, odd;
};
static int32_t stream_token(const struct stream_of *s, int i) {
    if (i < s->plain) return 100000 + i;
    int k = i - s->plain;
    if (s->odd && k % s->odd == s->odd - 1) return 50000 + k / s->odd;
    return k % s->cycle % 3 == 2 ? 7 : k % s->cycle; /* some tokens are in a cycle more than once */
}

static void a_loop_is_found_late_and_for_certain(void **state) {
    (void)state;
    enum { STREAM = 4000 };
    static const struct {
        struct stream_of stream;
        int found; /* so many tokens of the cycles; 0: never */
    } cases[] = {
        {{0, 1, 0}, 256},      {{500, 1, 0}, 256},  {{300, 2, 0}, 256},   {{77, 7, 0}, 256},
        {{256, 64, 0}, 256},   {{10, 65, 0}, 260},  {{999, 100, 0}, 400}, {{1, 255, 0}, 1020},
        {{300, 256, 0}, 1024}, {{0, 257, 0}, 0},    {{0, 1000, 0}, 0},    {{0, STREAM, 0}, 0},
        {{0, 1, 256}, 0}, /* 255 times the same, then not */
        {{0, 1, 257}, 256},    {{0, 2, 100}, 0},    {{0, 3, 5}, 0},       {{0, 60, 240}, 0},
        {{0, 10, 11}, 0}, /* a list with numbers */
        {{0, 100, 399}, 0},    {{40, 200, 799}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct stream_of *s = &cases[i].stream;
        struct loop l;
        loop_start(&l);
        int n = 0, cycle = 0;
        while (n < STREAM && cycle == 0) cycle = loop_push(&l, stream_token(s, n++));
        int found = cycle ? n - s->plain : 0;
        if (found != cases[i].found || cycle != (found ? s->cycle : 0))
            fail_msg("case %zu: a cycle of %d found after %d tokens", i, cycle, found);
    }
}

static void a_loop_is_of_one_answer(void **state) {
    (void)state;
    struct loop l;
    for (int answer = 0; answer < 3; answer++) {
        loop_start(&l);
        for (int i = 0; i < LOOP_TOKENS - 1; i++) assert_int_equal(loop_push(&l, 5), 0);
    }
    assert_int_equal(loop_push(&l, 5), 1);
}

/* One that comes when the program is about to wait for its next line is not slept through. */
static void a_ctrl_c_before_the_wait_counts(void **state) {
    (void)state;
    int line[2];
    assert_int_equal(pipe(line), 0);
    interrupt_install(false);
    interrupt_idle(true);
    for (int i = 0; i < 2; i++) {
        alarm(20); /* ends a wait that nothing else would */
        raise(SIGINT);
        assert_false(interrupt_wait_for(line[0]));
        assert_true(interrupted());
        assert_false(interrupt_wait_for(line[0]));
        interrupt_clear();
        assert_int_equal(write(line[1], "x", 1), 1);
        assert_true(interrupt_wait_for(line[0]));
        alarm(0);
    }
    assert_int_equal(close(line[1]), 0);
    assert_true(interrupt_wait_for(line[0])); /* the end can be read */
    close(line[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safe),
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_answer_cut),
        cmocka_unit_test(doctor_tells_devices_apart),
        cmocka_unit_test(doctor_knows_what_to_do),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_turns_verdict),
        cmocka_unit_test(a_chip_finds_its_kernel_image),
        cmocka_unit_test(test_json),
        cmocka_unit_test(messages_name_flags),
        cmocka_unit_test(logprobs_are_of_the_softmax),
        cmocka_unit_test(a_loop_is_found_late_and_for_certain),
        cmocka_unit_test(a_loop_is_of_one_answer),
        cmocka_unit_test(a_ctrl_c_before_the_wait_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Quantised folders on the CPU: their logits against ref's, however the rows come and whatever the instruction set, of which the better
 * one is never the less exact one. Types of GGUF files, whose activations have 8 bits: their logits within TOL_LOGITS_GGUF. */
#include "tests/lib/test.h"
#include "tests/lib/relative.h"
#include "infer.h"
#include "quant/quant.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"
#include <dirent.h>
#include <math.h>

enum { N_TOKEN = 64 };

/* From the plainest to the best; prompts of folders are BF16 on AMX (TOL_LOGITS_AMX). */
enum { N_ISA = 4, N_FINE_ISA = 3 };
static const char *const isas[N_ISA] = {"avx2", "avxvnni", "avx512", "amx"};

/* Logits of a prompt in steps of that many rows: out[N_TOKEN][n_vocab]. */
static void compute(const struct infer_model *m, const char *device, const char *isa, int step, bool decode,
                    int n_vocab, float *out) {
    const struct infer_engine_options o = {.device = device,
                                           .isa = isa,
                                           .kv_type = "f32",
                                           .ctx = N_TOKEN,
                                           .slots = 1,
                                           .decode_rows = N_TOKEN,
                                           .threads = 2,
                                           .all_logits = true,
                                           .nan_guard = true};
    struct infer_engine *e;
    struct infer_row rows[N_TOKEN];
    struct infer_output got;
    int seq;
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0; at < N_TOKEN; at += step) {
        for (int i = 0; i < step; i++)
            rows[i] = (struct infer_row){.id = ((at + i) * 7919 + 13) % n_vocab,
                                         .pos = at + i,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(e, rows, step, &got));
        assert_int_equal(got.n, step);
        for (int i = 0; i < step; i++)
            memcpy(out + (at + i) * n_vocab, got.logits[i], (size_t)n_vocab * sizeof *out);
    }
    infer_engine_free(e);
}

static bool available(const struct infer_model *m, const char *isa) {
    struct infer_engine *e = NULL;
    const enum infer_status s =
        infer_engine_create(&e, m, &(struct infer_engine_options){.device = "cpu", .isa = isa, .ctx = 1});
    infer_engine_free(e);
    if (s != INFER_OK) assert_int_equal(s, INFER_E_DEVICE);
    return s == INFER_OK;
}

/* One decode row at a time, four of one step, all rows of a prompt. */
static const struct {
    const char *name;
    int step;
    bool decode;
} ways[] = {{"decode", 1, true}, {"4 rows", 4, false}, {"prompt", N_TOKEN, false}};

static void check_folder(const char *name) {
    char path[512], file[160];
    struct infer_model *m;
    struct infer_model_info info;
    snprintf(file, sizeof file, "golden/hf/%s", name);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, file), NULL));
    infer_model_info(m, &info);
    const int n = N_TOKEN * info.n_vocab;
    float *want = malloc(sizeof *want * (size_t)n), *got = malloc(sizeof *got * (size_t)n);
    compute(m, "ref", NULL, N_TOKEN, false, info.n_vocab, want);
    const double sd = standard_deviation(want, (size_t)n);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        double plain = 0;
        for (size_t i = 0; i < N_FINE_ISA; i++) {
            if (!available(m, isas[i])) continue;
            compute(m, "cpu", isas[i], ways[w].step, ways[w].decode, info.n_vocab, got);
            const double error = max_error(got, want, (size_t)n) / sd;
            print_message("  %s, %s, %s: %.1e\n", name, ways[w].name, isas[i], error);
            if (!(error <= TOL_LOGITS_FINE))
                fail_msg("%s, %s with %s: %g of sd, tolerance %g", name, ways[w].name, isas[i], error,
                         TOL_LOGITS_FINE);
            if (i && !(error <= TOL_FINE_RATIO * plain + TOL_LOGITS_REF))
                fail_msg("%s, %s: %g of sd with %s, %g with %s", name, ways[w].name, error, isas[i], plain,
                         isas[0]);
            if (!i) plain = error;
        }
    }
    free(want), free(got);
    infer_model_close(m);
}

static void folders_are_exact(void **state) {
    (void)state;
    char path[512];
    int n = 0;
    DIR *d = opendir(test_path(path, sizeof path, "golden/hf"));
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        if (strncmp(f->d_name, "packed-", 7) == 0) check_folder(f->d_name), n++;
    closedir(d);
    assert_in_range(n, 20, 1000);
    check_folder("gpt_oss-mxfp4");
}

/* Root of the mean square of the differences. */
static double rms(const float *a, const float *b, int n) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(squares / n);
}

static void check_type(const char *shape, const char *type) {
    struct infer_model *m = synth_model(&(struct synth_options){.shape = shape, .type = type, .seed = 5});
    struct infer_model_info info;
    infer_model_info(m, &info);
    const int n = N_TOKEN * info.n_vocab;
    float *want = malloc(sizeof *want * (size_t)n), *got = malloc(sizeof *got * (size_t)n);
    compute(m, "ref", NULL, N_TOKEN, false, info.n_vocab, want);
    const double sd = standard_deviation(want, (size_t)n);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t i = 0; i < N_ISA; i++) {
            if (!available(m, isas[i])) continue;
            compute(m, "cpu", isas[i], ways[w].step, ways[w].decode, info.n_vocab, got);
            const double error = rms(got, want, n) / sd;
            print_message("  %s of %s, %s, %s: %.4f, at most %.4f\n", type, shape, ways[w].name, isas[i],
                          error, max_error(got, want, (size_t)n) / sd);
            if (!(error <= TOL_LOGITS_GGUF))
                fail_msg("%s of %s, %s with %s: %g of sd, tolerance %g", type, shape, ways[w].name, isas[i],
                         error, TOL_LOGITS_GGUF);
        }
    free(want), free(got);
    infer_model_close(m);
}

static void types_of_files_are_exact(void **state) {
    (void)state;
    int n = 0;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        if (q->gguf < 0 || !q->encode) continue;
        check_type("tiny", q->name), n++;
    }
    assert_in_range(n, 15, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_are_exact),
                                       cmocka_unit_test(types_of_files_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* FP8 products of prompt rows on a card of sm_90 (--matmul-precision fp8): each epilogue against float64, whole models whose matrices
 * are F8_128 against ref, with bits that do not depend on chunks; and what is refused. Skipped with a printed reason where
 * there is no usable card, unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "infer.h"
#include "engine_impl.h"
#include "quant/quant.h"
#include "tests/lib/relative.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"
#include "cuda/bench/cuda_bench.h"

enum { N_PROMPT = 300, MOST_COPIES = 64, MOST_DECODED = 200, N_DECODED = 5 };

static void *copy[MOST_COPIES];
static int n_copy;
static int n_vocab;

/* W as rows of F8_128. */
static void make_fp8(struct weight *w) {
    const struct quant_info *from = quant_info(w->type), *to = quant_info(QUANT_F8_128);
    const size_t n = (size_t)w->n * (size_t)w->k;
    float *x = malloc(n * 4);
    assert_true(n_copy < MOST_COPIES && w->run <= 1 && !w->pitch && w->n_stack <= 1 && w->k % 128 == 0);
    from->decode(x, w->data, n);
    w->data = copy[n_copy++] = malloc(quant_row_bytes(to, n));
    to->encode((void *)w->data, x, n, NULL);
    w->type = QUANT_F8_128;
    free(x);
}
/* A random model; its matrices but for embeddings and head become FP8 where fp8. */
static struct infer_model *open_model(const char *shape, bool fp8) {
    struct infer_model_info info;
    struct infer_model *im =
        synth_model(&(struct synth_options){.shape = shape, .type = "f16", .layers = 2, .seed = 5});
    infer_model_info(im, &info);
    n_vocab = info.n_vocab;
    for (int i = 0; fp8 && i < im->m->n_group; i++)
        for (int k = 0; im->m->group[i] != &im->m->head && k < im->m->group[i]->n_member; k++)
            make_fp8(&((struct weight_group *)im->m->group[i])->member[k]);
    return im;
}
static void close_model(struct infer_model *im) {
    infer_model_close(im);
    while (n_copy) free(copy[--n_copy]);
}

static enum infer_status open_engine(struct infer_engine **e, struct infer_model *im, const char *device,
                                     const char *precision, const char *kernels) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f16",
                                           .kernels = kernels,
                                           .block_scaled = precision,
                                           .ctx = 512,
                                           .slots = 1,
                                           .batch = N_PROMPT,
                                           .all_logits = true,
                                           .nan_guard = true,
                                           .gpu_layers = -1,
                                           .threads = 2,
                                           .decode_rows = 2};
    return infer_engine_create(e, im, &o);
}
/* A prompt in chunks; the logits of its last row to out. */
static void run(struct infer_engine *e, int chunk, float *out) {
    struct infer_row rows[N_PROMPT];
    struct infer_output o;
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0, n; at < N_PROMPT; at += n) {
        n = chunk < N_PROMPT - at ? chunk : N_PROMPT - at;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = ((at + i) * 37 + (at + i) / 7 + 3) % n_vocab,
                                         .pos = at + i,
                                         .seq = seq,
                                         .want = at + i + 1 == N_PROMPT ? INFER_WANT_LOGITS : 0};
        assert_ok(infer_step(e, rows, n, &o));
    }
    memcpy(out, o.logits[0], (size_t)n_vocab * 4);
    infer_seq_close(e, seq);
}
static float *logits(struct infer_model *im, const char *device, const char *precision) {
    struct infer_engine *e;
    float *out = malloc((size_t)n_vocab * 4);
    assert_ok(open_engine(&e, im, device, precision, NULL));
    run(e, N_PROMPT, out);
    infer_engine_free(e);
    return out;
}

/* ---- */

#ifdef INFER_CUDA
/* One launch: rows that are no whole tiles, columns that are half a unit, weight rows that are no whole block. */
static void products_agree_with_float64(void **state) {
    (void)state;
    static const int n[] = {32, 96, 160, 256, 544}, k[] = {128, 256, 384, 768, 1152},
                     rows[] = {1, 2, 7, 63, 64, 65, 127, 128, 129, 191, 255, 256, 257, 299, 300};
    double most = 0;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (size_t c = 0; c < sizeof k / sizeof *k; c++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r += few_steps() ? 4 : 1) {
                double worst;
                assert_ok(cuda_fp8_check(n[i], k[c], rows[r], &worst));
                if (worst > most) most = worst;
            }
    double worst;
    assert_ok(cuda_fp8_check(4096, 14336, 200, &worst));
    print_message("fp8 products: %.1e of the norm at most, %.1e with 14,336 columns\n", most, worst);
}
#endif

static void models_keep_their_error(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-128"};
    static const int chunks[] = {1, 7, 64, 129, 256};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct infer_model *im = open_model(shapes[s], true);
        struct infer_engine *e;
        float *want = logits(im, "ref", NULL), *halves = logits(im, "cuda", NULL),
              *got = logits(im, "cuda", "fp8"), *again = malloc((size_t)n_vocab * 4);
        const double far = relative(halves, want, (size_t)n_vocab),
                     error = relative(got, want, (size_t)n_vocab);
        print_message("%-9s f8_128 prompt %.1e of the norm by fp8, %.1e by halves\n", shapes[s], error, far);
        assert_true(far <= TOL_CUDA_PROMPT);
        if (!(error <= TOL_CUDA_FP8)) fail_msg("%s: %g (tolerance %g)", shapes[s], error, TOL_CUDA_FP8);
        assert_true(error > 2 * far); /* FP8 was there */
        assert_ok(open_engine(&e, im, "cuda", "fp8", NULL));
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            run(e, chunks[i], again);
            if (memcmp(again, got, (size_t)n_vocab * 4))
                fail_msg("%s: other bits in chunks of %d", shapes[s], chunks[i]);
        }
        infer_engine_free(e);
        close_model(im);
        free(want);
        free(halves);
        free(got);
        free(again);
    }
}

/* Sequences first .. first + n - 1, decoded side by side; the last step's logits of the first and of the last. */
static void decode(struct infer_engine *e, int first, int n, float *out, float *out_last) {
    struct infer_row rows[MOST_DECODED];
    struct infer_output o;
    int seq[MOST_DECODED];
    for (int i = 0; i < n; i++) assert_ok(infer_seq_open(e, &seq[i]));
    for (int at = 0; at < N_DECODED; at++) {
        const bool last = at + 1 == N_DECODED;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = ((first + i) * 11 + at * 37 + 3) % n_vocab,
                                         .pos = at,
                                         .seq = seq[i],
                                         .decode = true,
                                         .want = last && (!i || i + 1 == n) ? INFER_WANT_LOGITS : 0};
        assert_ok(infer_step(e, rows, n, &o));
    }
    memcpy(out, o.logits[0], (size_t)n_vocab * 4);
    if (out_last) memcpy(out_last, o.logits[o.n - 1], (size_t)n_vocab * 4);
    for (int i = 0; i < n; i++) infer_seq_close(e, seq[i]);
}
static struct infer_engine *open_many(struct infer_model *im, const char *device, const char *precision,
                                      const char *kv, int rows) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = kv,
                                           .block_scaled = precision,
                                           .ctx = 64,
                                           .slots = rows,
                                           .batch = 32,
                                           .all_logits = true,
                                           .nan_guard = true,
                                           .gpu_layers = -1,
                                           .threads = 2,
                                           .decode_rows = rows};
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, im, &o));
    return e;
}
/* An engine of many decode rows takes FP8 products for all of them: a row's bits are the same beside none and beside 199. */
static void decode_rows_keep_their_bits(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-128"}, *const kv[] = {"f16", "f8"};
    static const int counts[] = {2, 7, 64, 127, 128, 129, MOST_DECODED};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct infer_model *im = open_model(shapes[s], true);
        struct infer_engine *ref = open_many(im, "ref", NULL, kv[s], 2),
                            *halves = open_many(im, "cuda", NULL, kv[s], MOST_DECODED),
                            *fp8 = open_many(im, "cuda", "fp8", kv[s], MOST_DECODED);
        const size_t n = (size_t)n_vocab;
        float *want = malloc(n * 4), *far = malloc(n * 4), *got = malloc(n * 4), *last = malloc(n * 4),
              *alone = malloc(n * 4);
        decode(ref, 0, 1, want, NULL);
        decode(halves, 0, 1, far, NULL);
        decode(fp8, 0, 1, got, NULL);
        const double error = relative(got, want, n), by_halves = relative(far, want, n);
        print_message("%-9s f8_128 decode, %s cache: %.1e of the norm by fp8, %.1e by halves\n", shapes[s],
                      kv[s], error, by_halves);
        if (s == 0) { /* of a cache of FP8 numbers beside a step's middle move as far */
            assert_true(error <= TOL_CUDA_FP8);
            assert_true(error > 2 * by_halves); /* FP8 products were there */
        }
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            decode(fp8, 0, counts[i], far, last);
            decode(fp8, counts[i] - 1, 1, alone, NULL);
            if (memcmp(far, got, n * 4) || memcmp(last, alone, n * 4))
                fail_msg("%s: other bits beside %d rows", shapes[s], counts[i] - 1);
        }
        infer_engine_free(ref);
        infer_engine_free(halves);
        infer_engine_free(fp8);
        close_model(im);
        free(want), free(far), free(got), free(last), free(alone);
    }
}

static void refused(struct infer_model *im, const char *device, const char *kernels, const char *why) {
    struct infer_engine *e;
    assert_int_not_equal(open_engine(&e, im, device, "fp8", kernels), INFER_OK);
    if (!strstr(infer_error(), why)) fail_msg("'%s' does not say '%s'", infer_error(), why);
}
static void what_cannot_be_is_refused(void **state) {
    (void)state;
    struct infer_model *im = open_model("tiny", false);
    refused(im, "cuda", NULL, "multiplies FP8 weights");
    refused(im, "cuda", "mma", "needs a card of sm_90 and all of its kernels");
    refused(im, "ref", NULL, "needs a card of sm_90");
    close_model(im);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
#ifdef INFER_CUDA
        cmocka_unit_test(products_agree_with_float64),
#endif
        cmocka_unit_test(models_keep_their_error),
        cmocka_unit_test(decode_rows_keep_their_bits),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

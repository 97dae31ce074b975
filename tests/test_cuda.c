/* The CUDA backend's fused programs, whole models in every format: prompt and decode logits against ref, bits that do not
 * depend on chunks, neighbours and replays. Skipped with a printed reason where there is no usable card, unless
 * INFER_REQUIRE_CUDA=1. */
#include "test.h"
#include "poison.h"
#include "infer.h"
#include "engine_impl.h"
#include "engine_options.h"
#include "plan/plan.h"
#include "quant/quant.h"
#include "seam/op_list.h"
#include "tolerance.h"
#include "cuda/plan/blas.h"
#include "cuda/bench/cuda_bench.h"
#include "cuda/run/decode_profile.h"
#include "tools/file/synth.h"
#include "weights.h"

#include <math.h>
#include <unistd.h>

static bool usable(void) {
    const char *must = getenv("INFER_REQUIRE_CUDA");
    char path[] = "/tmp/infer-test-XXXXXX";
    struct infer_model *m;
    struct infer_engine *e = NULL;
    struct infer_engine_options o = {.device = "cuda", .ctx = 64, .gpu_layers = -1};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct synth_report report;
    assert_ok(synth_write(&(struct synth_options){.shape = "tiny", .type = "q8_0", .path = path}, &report));
    assert_ok(infer_model_open(&m, path, NULL));
    enum infer_status s = infer_engine_create(&e, m, &o);
    if (s != INFER_OK && must && *must == '1') fail_msg("INFER_REQUIRE_CUDA: %s", infer_error());
    if (s != INFER_OK) print_message("skipped: %s\n", infer_error());
    infer_engine_free(e);
    infer_model_close(m);
    unlink(path);
    return s == INFER_OK;
}

enum { N_PROMPT = 300, N_DECODE = 6, N_ALL = N_PROMPT + N_DECODE };

static struct infer_model *model;
static int n_vocab;

static const char *kernels;       /* NULL: all; "mma": those that every chip has */
static const char *cache = "f16"; /* of the engines that follow */
static const char *block_scaled, *autotune;
static bool blas, no_fuse;
static int n_layer; /* of the models that follow; 0: what the shape has */

static struct infer_engine *engine(const char *device, int slots, int batch) {
    struct infer_engine_options o = {.device = device,
                                     .kv_type = cache,
                                     .kernels = kernels,
                                     .sm_emulate = kernels ? 120 : 0,
                                     .block_scaled = strcmp(device, "cuda") ? NULL : block_scaled,
                                     .blas = blas && !strcmp(device, "cuda"),
                                     .autotune = autotune,
                                     .no_fuse = no_fuse,
                                     .ctx = 1024,
                                     .slots = slots,
                                     .batch = batch,
                                     .all_logits = true,
                                     .nan_guard = true,
                                     .gpu_layers = -1,
                                     .threads = 2,
                                     .decode_rows = 16};
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, model, &o));
    return e;
}

static void open_synth(const char *shape, const char *type) {
    char path[] = "/tmp/infer-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct synth_report report;
    struct infer_model_info info;
    assert_ok(synth_write(
        &(struct synth_options){.shape = shape, .type = type, .layers = n_layer, .path = path, .seed = 5},
        &report));
    assert_ok(infer_model_open(&model, path, NULL));
    unlink(path); /* the map stays */
    infer_model_info(model, &info);
    n_vocab = info.n_vocab;
}

#ifdef INFER_CUDA
/* Steps; the last ones' logits are compared. Under memcheck (INFER_FEW_STEPS=1, scripts/gpu-check) two parts of a row will do. */
enum { MOST_STEPS = 290, FEW_STEPS = 100, N_KEEP = 4, MAX_ROWS = 3, AT_ONCE = 32 };
static int n_steps(void) {
    const char *few = getenv("INFER_FEW_STEPS");
    return few && *few == '1' ? FEW_STEPS : MOST_STEPS;
}
#endif

static int32_t id_at(int i) { return (i * 37 + i / 7 + 3) % n_vocab; }

/* Rows from .. from + n of a sequence in one step; the logits of the last one to out[n_vocab]. */
static void step(struct infer_engine *e, int seq, int from, int n, bool decode, float *out) {
    struct infer_row rows[N_ALL] = {0};
    struct infer_output o;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){
            id_at(from + i), from + i, seq, decode, i + 1 == n ? INFER_WANT_LOGITS : 0, NULL};
    assert_ok(infer_step(e, rows, n, &o));
    memcpy(out, o.logits[0], (size_t)n_vocab * 4);
}

/* prompt in steps of chunk rows, then decodes; out[1 + N_DECODE][n_vocab] */
static void run(struct infer_engine *e, int chunk, float *out) {
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N_PROMPT; i += chunk)
        step(e, seq, i, i + chunk > N_PROMPT ? N_PROMPT - i : chunk, false, out);
    for (int i = 0; i < N_DECODE; i++)
        step(e, seq, N_PROMPT + i, 1, true, out + (size_t)(i + 1) * (size_t)n_vocab);
    infer_seq_close(e, seq);
}

static double relative(const float *got, const float *want, size_t n) {
    double e = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        e += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        s += (double)want[i] * (double)want[i];
    }
    return sqrt(e / s);
}

/* Two prompts and a row of decode in one step leave each as it is alone. */
static void mixed(struct infer_engine *e, const float *alone) {
    struct infer_row rows[2 * N_PROMPT];
    struct infer_output o;
    int a, b, n = 0;
    assert_ok(infer_seq_open(e, &a));
    assert_ok(infer_seq_open(e, &b));
    for (int i = 0; i < N_PROMPT; i++) { /* the rows of both interleaved */
        rows[n++] = (struct infer_row){id_at(i + 50), i, a, false, 0, NULL};
        rows[n++] =
            (struct infer_row){id_at(i), i, b, false, i + 1 == N_PROMPT ? INFER_WANT_LOGITS : 0, NULL};
    }
    assert_ok(infer_step(e, rows, n, &o));
    assert_memory_equal(o.logits[0], alone, (size_t)n_vocab * 4);
    for (int i = 0; i < N_DECODE; i++) {
        rows[0] = (struct infer_row){7, N_PROMPT + i, a, true, 0, NULL};
        rows[1] = (struct infer_row){id_at(N_PROMPT + i), N_PROMPT + i, b, true, INFER_WANT_LOGITS, NULL};
        assert_ok(infer_step(e, rows, 2, &o));
        assert_memory_equal(o.logits[0], alone + (size_t)(i + 1) * (size_t)n_vocab, (size_t)n_vocab * 4);
    }
    infer_seq_close(e, a);
    infer_seq_close(e, b);
}

/* The open model, which is closed. */
static void check_model(const char *shape, const char *type) {
    size_t n = (size_t)(1 + N_DECODE) * (size_t)n_vocab;
    float *want = malloc(n * 4), *got = malloc(n * 4), *again = malloc(n * 4);
    struct infer_engine *ref = engine("ref", 1, N_PROMPT), *e = engine("cuda", 3, 2 * N_PROMPT);
    run(ref, N_PROMPT, want);
    run(e, N_PROMPT, got);
    double prompt = relative(got, want, (size_t)n_vocab),
           decode = relative(got + n_vocab, want + n_vocab, n - (size_t)n_vocab);
    print_message("%-9s %-7s cache %-4s %-4s prompt %.1e decode %.1e of the norm\n", shape, type, cache,
                  kernels ? kernels : "all", prompt, decode);
    if (!(prompt <= TOL_CUDA_PROMPT && decode <= TOL_CUDA_DECODE))
        fail_msg("%s %s: prompt %g (tolerance %g), decode %g (%g)", shape, type, prompt, TOL_CUDA_PROMPT,
                 decode, TOL_CUDA_DECODE);
    static const int chunks[] = {1, 7, 64, 100, 129, 256};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        run(e, chunks[i], again);
        if (memcmp(again, got, n * 4)) fail_msg("%s %s: other bits in chunks of %d", shape, type, chunks[i]);
    }
    mixed(e, got);
    infer_engine_free(e);
    e = engine("cuda", 1, N_PROMPT); /* codes times codes */
    run(e, N_PROMPT, got);
    double one = relative(got + n_vocab, want + n_vocab, n - (size_t)n_vocab);
    if (!(one <= TOL_CUDA_DECODE_ONE))
        fail_msg("%s %s: decode in one slot %g (tolerance %g)", shape, type, one, TOL_CUDA_DECODE_ONE);
    infer_engine_free(ref);
    infer_engine_free(e);
    infer_model_close(model);
    free(want);
    free(got);
    free(again);
}

static void check_type(const char *shape, const char *type) {
    open_synth(shape, type);
    check_model(shape, type);
}

/* Rows of fused tensors as single ones, every bit; factors at every matrix, which the fused programs leave to plain kernels; one
 * of a single layer. */
static void weights_beside_plain_ones(void **state) {
    (void)state;
    static const char *const types[] = {"q4_k", "q8_0", "f16", "f32"};
    size_t n = (size_t)(1 + N_DECODE) * 512;
    float *want = malloc(n * 4), *got = malloc(n * 4);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct infer_model *plain, *one;
        open_both("qwen2", "tiny", types[t], &plain, &one);
        n_vocab = plain->m->n_vocab;
        assert_int_equal(n_vocab, 512);
        for (int i = 0; i < 2; i++) {
            model = i ? one : plain;
            struct infer_engine *e = engine("cuda", 1, N_PROMPT);
            run(e, N_PROMPT, i ? got : want);
            infer_engine_free(e);
        }
        assert_memory_equal(got, want, n * 4);
        infer_model_close(plain);
        set_factors(one);
        model = one;
        check_model("factors", types[t]);
        open_synth("tiny", types[t]);
        model->m->layer[1].down.member[0].factor = 0.22f;
        check_model("a factor", types[t]);
    }
    open_synth("tiny", "nvfp4"); /* in the weights, which the fused programs take */
    set_factors(model);
    check_model("factors", "nvfp4");
    free(want);
    free(got);
}

/* The same bits in chunks of any size and beside any rows. */
static void same_bits(const char *shape, const char *type) {
    size_t n = (size_t)(1 + N_DECODE) * 512;
    float *want = malloc(n * 4), *got = malloc(n * 4);
    open_synth(shape, type);
    struct infer_engine *e = engine("cuda", 3, 2 * N_PROMPT);
    run(e, N_PROMPT, want);
    for (int chunk = 1; chunk < N_PROMPT; chunk = 3 * chunk + 1) {
        run(e, chunk, got);
        assert_memory_equal(got, want, n * 4);
    }
    mixed(e, want);
    infer_engine_free(e);
    infer_model_close(model);
    free(want);
    free(got);
}

/* Experts on the plain kernels, in float32, so that a router's choices are ref's; then beside fused links, where bits alone are asked. */
static void experts_agree_with_ref(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny-moe", "tiny-oss"}, *const types[] = {"f32",  "bf16",
                                                                                    "q8_0", "q4_k",
                                                                                    "q6_k", "mxfp4_moe"};
    cache = "f32";
    no_fuse = true;
    for (size_t s = 0; s < 2; s++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) check_type(shapes[s], types[t]);
    cache = "f16";
    no_fuse = false;
    for (size_t s = 0; s < 2; s++) same_bits(shapes[s], "q4_k");
}

/* Attention by a latent: on the plain kernels in float32 as above, fused in models of one layer, which have no experts. */
static void latents_agree_with_ref(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny-latent", "tiny-latent-512"},
                             *const types[] = {"f32", "q8_0", "q4_k"},
                             *const caches[] = {"f16", "q8_0", "f32"};
    cache = "f32";
    no_fuse = true;
    for (size_t s = 0; s < 2; s++)
        for (size_t t = 0; t < 3; t++) check_type(shapes[s], types[t]);
    no_fuse = false;
    n_layer = 1;
    for (size_t c = 0; c < 3; c++)
        for (size_t s = 0; s < 2; s++) {
            cache = caches[c];
            check_type(shapes[s], "f16");
            check_type(shapes[s], "q4_k");
        }
    n_layer = 0;
    cache = "f16";
    for (size_t s = 0; s < 2; s++) same_bits(shapes[s], "q4_k");
}

/* Experts of prompts on tensor cores, in one layer whose attention adds nothing, so that the router sees the rows that ref's sees. Its
 * biases leave an expert without rows and send most rows to another one. */
static void experts_of_prompts(const char *shape) {
    static const float bias[16] = {-9, 2};
    n_layer = 1;
    for (int t = 0; t <= QUANT_COUNT; t++)
        if (t == QUANT_COUNT || quant_info((enum quant_type)t)->gguf >= 0) { /* synth writes no others */
            const char *type = t < QUANT_COUNT ? quant_info((enum quant_type)t)->name : "mxfp4_moe";
            open_synth(shape, type);
            model->m->layer[0].out.member[0].factor = 0;
            model->m->layer[0].router.member[0].bias = bias;
            check_model(shape, type);
        }
    n_layer = 0;
}
static void experts_of_prompts_agree_with_ref(void **state) {
    (void)state;
    experts_of_prompts("tiny-moe");
}
static void experts_of_prompts_with_biases_too(void **state) {
    (void)state;
    experts_of_prompts("tiny-oss");
}

/* Logits of the last row of a prompt on a tiny random model; the caller frees them. */
static float *prompt_logits(const char *type, const char *device) {
    char path[] = "/tmp/infer-test-XXXXXX";
    struct synth_report report;
    struct infer_model_info info;
    int seq, fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(synth_write(&(struct synth_options){.shape = "tiny", .type = type, .path = path, .seed = 5},
                          &report));
    assert_ok(infer_model_open(&model, path, NULL));
    infer_model_info(model, &info);
    n_vocab = info.n_vocab;
    float *out = malloc((size_t)n_vocab * 4);
    struct infer_engine *e = engine(device, 1, N_PROMPT);
    assert_ok(infer_seq_open(e, &seq));
    step(e, seq, 0, N_PROMPT, false, out);
    infer_engine_free(e);
    infer_model_close(model);
    unlink(path);
    return out;
}
static void check_prompt(const char *type, double tolerance) {
    float *want = prompt_logits(type, "ref"), *got = prompt_logits(type, "cuda");
    double error = relative(got, want, (size_t)n_vocab);
    print_message("%-7s %s prompt %.1e of the norm\n", type, blas ? "cuBLASLt" : block_scaled, error);
    if (!(error <= tolerance)) fail_msg("%s: %g (tolerance %g)", type, error, tolerance);
    free(want);
    free(got);
}

static void every_format(const char *which) {
    kernels = which;
    for (int t = 0; t < QUANT_COUNT; t++)
        if (quant_info((enum quant_type)t)->gguf >= 0)
            check_type("tiny", quant_info((enum quant_type)t)->name);
    check_type("tiny", "q4_k_m");
    check_type("tiny-odd", "f16");
    check_type("tiny-odd", "q8_0");
    static const char *const caches[] = {"q8_0", "f32"};
    for (int i = 0; i < 2; i++) {
        cache = caches[i];
        check_type("tiny", "f16");
        check_type("tiny-odd", "q8_0");
        check_type("tiny-128", "f16");
    }
    cache = "f16";
}

/* ---- windows in some layers, whose pages are freed behind them ---- */

enum { WINDOW = 100, N_FAR = 900 };

static void put_windows(struct model *m) {
    m->window[1] = WINDOW;
    m->n_kv_group = 2;
    for (int i = 1; i < m->n_layer; i += 2) {
        m->layer[i].window = WINDOW;
        m->store[m->layer[i].store].group = 1;
    }
}

/* Logits behind N_FAR prompt rows and of the rows decoded then: out[1 + N_DECODE][n_vocab]. */
static void go_far(struct infer_engine *e, int chunk, float *out) {
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N_FAR; i += chunk) {
        step(e, seq, i, i + chunk > N_FAR ? N_FAR - i : chunk, false, out);
        poison_free_pages(e);
    }
    for (int i = 0; i < N_DECODE; i++) {
        step(e, seq, N_FAR + i, 1, true, out + (size_t)(i + 1) * (size_t)n_vocab);
        poison_free_pages(e);
    }
    infer_seq_close(e, seq);
}

static void windows_agree_with_ref(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-128"}, *const sets[] = {NULL, "mma"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        open_synth(shapes[i], "f16");
        put_windows(model->m);
        size_t n = (1 + N_DECODE) * (size_t)n_vocab;
        float *want = malloc(n * 4), *got = malloc(n * 4), *one = malloc(n * 4);
        struct infer_engine *e = engine("ref", 1, 300);
        go_far(e, 300, want);
        infer_engine_free(e);
        for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
            kernels = sets[k];
            e = engine("cuda", 1, 90);
            go_far(e, 90, got);
            go_far(e, 77, one); /* in pages that the first one left */
            infer_engine_free(e);
            double prompt = relative(got, want, (size_t)n_vocab),
                   decoded = relative(got + n_vocab, want + n_vocab, n - (size_t)n_vocab);
            print_message("%-9s f16 windows, %-4s prompt %.1e, decode %.1e of the norm\n", shapes[i],
                          kernels ? kernels : "all", prompt, decoded);
            if (!(prompt <= TOL_CUDA_PROMPT) || !(decoded <= TOL_CUDA_DECODE))
                fail_msg("%s: prompt %g, decode %g of the norm", shapes[i], prompt, decoded);
            assert_memory_equal(one, got, n * 4);
        }
        kernels = NULL;
        free(want), free(got), free(one);
        infer_model_close(model);
    }
}

/* ---- memory, and calls that fail ---- */

/* n tokens in steps of many shapes: prompts, one row, rows of several sequences, drafts of one. */
static enum infer_status live(struct infer_engine *e, int n) {
    struct infer_row rows[2 * 90] = {0};
    struct infer_output o;
    int a, b;
    TRY(infer_seq_open(e, &a));
    TRY(infer_seq_open(e, &b));
    for (int done = 0; done < n;) {
        TRY(infer_seq_rewind(e, a, 0));
        TRY(infer_seq_rewind(e, b, 0));
        int each = 1 + done % 90; /* prompt rows of each sequence */
        for (int i = 0; i < 2 * each; i++)
            rows[i] =
                (struct infer_row){id_at(done + i), i / 2, i % 2 ? b : a, false, i >= 2 * each - 2, NULL};
        TRY(infer_step(e, rows, 2 * each, &o));
        for (int pos = each; pos < 100 && done < n; pos++, done += 2) {
            rows[0] = (struct infer_row){INFER_LAST, pos, a, true, INFER_WANT_TOKEN, NULL};
            rows[1] = (struct infer_row){INFER_LAST, pos, b, true, INFER_WANT_TOKEN, NULL};
            TRY(infer_step(e, rows, 2, &o));
        }
        for (int i = 0; i < 2; i++)
            rows[i] =
                (struct infer_row){id_at(i), infer_seq_length(e, a) + i, a, true, INFER_WANT_LOGITS, NULL};
        TRY(infer_step(e, rows, 2, &o));
        done += 2 * each + 2;
    }
    infer_seq_close(e, a);
    infer_seq_close(e, b);
    return INFER_OK;
}

static enum infer_status create(struct infer_engine **e) {
    struct infer_engine_options o = {.device = "cuda", .ctx = 256, .slots = 2, .gpu_layers = -1};
    return infer_engine_create(e, model, &o);
}

/* shape NULL: the golden model, whose F32 weights run op by op; else random weights in Q8_0, in fused programs. */
static void open_model(const char *shape) {
    char path[512];
    struct infer_model_info info;
    if (shape) {
        open_synth(shape, "q8_0");
        return;
    }
    assert_ok(infer_model_open(&model, test_path(path, sizeof path, "golden/forward/llama-gqa.gguf"), NULL));
    infer_model_info(model, &info);
    n_vocab = info.n_vocab;
}

/* The arena is the plan's, byte for byte, and 10,000 tokens take nothing more; what other programs take meanwhile may
 * look like growth, so it counts when it comes three times. */
static void memory_is_as_planned_and_stays(void **state) {
    (void)state;
    struct infer_engine *e;
    struct infer_engine_info before, after;
    open_model("tiny");
    assert_ok(create(&e));
    infer_engine_info(e, &before);
    assert_true(before.arena_bytes > 0);
    assert_int_equal(before.arena_bytes, before.weight_bytes + before.kv_bytes + before.activation_bytes +
                                             before.workspace_bytes + before.output_bytes);
    if (!before.driver_bytes) print_message("the driver's share cannot be measured here\n");
    for (int pass = 0; pass < 3; pass++) {
        infer_engine_info(e, &before);
        assert_ok(live(e, 10000));
        infer_engine_info(e, &after);
        if (after.driver_bytes <= before.driver_bytes) break;
        if (pass == 2) fail_msg("%zu bytes more", (size_t)(after.driver_bytes - before.driver_bytes));
    }
    print_message("arena %.1f MiB, driver %.1f MiB before and after 10,000 tokens\n",
                  (double)after.arena_bytes / (1 << 20), (double)after.driver_bytes / (1 << 20));
    infer_engine_free(e);
    infer_model_close(model);
}

#ifdef INFER_CUDA
void cuda_fail_at(uint64_t n); /* the n-th call of the CUDA runtime from now fails; 0: none */

/* Each call of the runtime (every: each of so many) in the life of an engine fails once: an error that names it, an
 * engine that refuses more steps, nothing lost. */
static void calls_fail(const char *shape, int every) {
    struct infer_engine *e = NULL;
    struct infer_engine_info before, after;
    struct infer_row row = {1, 0, 0, false, INFER_WANT_TOKEN, NULL};
    uint64_t k = 0, in_create = 0;
    open_model(shape);
    assert_ok(create(&e));
    infer_engine_info(e, &before);
    infer_engine_free(e);
    for (bool done = false; !done; infer_engine_free(e)) {
        cuda_fail_at(k += (uint64_t)every);
        enum infer_status s = create(&e);
        in_create += s != INFER_OK;
        if (s == INFER_OK) s = live(e, 30);
        cuda_fail_at(0);
        done = s == INFER_OK;
        if (done) continue;
        if (s != INFER_E_DEVICE && s != INFER_E_MEMORY) fail_msg("call %d: status %d", (int)k, (int)s);
        if (!strstr(infer_error(), "CUDA")) fail_msg("call %d: '%s'", (int)k, infer_error());
        if (!e) continue;
        assert_int_equal(infer_submit(e, &row, 1), INFER_E_DEVICE);
        assert_non_null(strstr(infer_error(), "failed before"));
    }
    print_message("%s: every %d. of %d calls failed, %d in create\n", shape ? shape : "golden", every, (int)k,
                  (int)in_create);
    assert_true(in_create > 20 && k / (uint64_t)every > in_create + 5);
    assert_ok(create(&e));
    assert_ok(live(e, 30));
    infer_engine_info(e, &after);
    if (after.driver_bytes > before.driver_bytes + (2 << 20))
        fail_msg("%zu bytes of the card are lost", (size_t)(after.driver_bytes - before.driver_bytes));
    infer_engine_free(e);
    infer_model_close(model);
}

static void every_call_may_fail(void **state) {
    (void)state;
    calls_fail(NULL,
               n_steps() < MOST_STEPS ? 5 : 1); /* under scripts/gpu-check, alone on the card, each fifth */
    calls_fail("tiny", 11);                     /* lives of fused programs are many times longer */
}
#endif

#ifdef INFER_CUDA
#include "draw_cases.h"
/* select with draws, beside a plain sort. */
static void draws_are_as_they_should_be(void **state) {
    (void)state;
    draw_cases(&backend_cuda, NULL, 20);
    for (int k = 0; k < 2; k++) /* 26 parts; 34, of which a thread has more keys */
        draw_case_run(&backend_cuda, NULL, k + 1, k ? 170001 : 128256);
}
#endif

static void every_format_agrees_with_ref(void **state) {
    (void)state;
    every_format(NULL);
}

static void and_as_on_sm_120(void **state) {
    (void)state;
    every_format("mma");
}

#ifdef INFER_CUDA
/* ---- attention of decode rows: the lists of a model with other windows, caps and sinks put in */
static int n_plain;
static void count_plain(const char *name, float alone, float without, int n) {
    (void)alone, (void)without;
    if (!strcmp(name, "kv_put")) n_plain += n;
}

struct attention {
    const char *shape, *kv;
    int window;
    float softcap;
    bool sinks;
    double tolerance;
    enum { AS_IT_IS, NOT_ROTATED, NORMED_LATE } edit;
    float temp;
};
/* The rotation taken out of a list, or brought in front of the norms of q and k. */
static void edit_list(struct op_list *l, int edit) {
    int n = 0;
    for (int i = 0; i < l->n_op; i++) {
        if (edit == NOT_ROTATED && l->op[i].kind == OP_ROPE) continue;
        l->op[n++] = l->op[i];
        if (edit != NORMED_LATE || n < 4 || l->op[n - 1].kind != OP_ROPE || l->op[n - 2].kind != OP_ROPE)
            continue;
        for (int k = n - 4; k < n - 2; k++) {
            const struct op norm = l->op[k];
            assert_int_equal(norm.kind, OP_NORM);
            l->op[k] = l->op[k + 2];
            l->op[k + 2] = norm;
        }
    }
    l->n_op = n;
    list_lives(l);
}
/* The first n tokens of one sequence as rows of a prompt, which give ref the same bits as decode rows, in less time. */
static void read_on(struct backend *b, const struct backend_type *type, const struct model *m,
                    const int32_t *const *tables, int n) {
    for (int p = 0; p < n; p += AT_ONCE) {
        int32_t id[AT_ONCE], pos[AT_ONCE], slot[AT_ONCE] = {0}, last = 0;
        const uint8_t want = INFER_WANT_TOKEN;
        struct step_result res;
        const int rows = n - p < AT_ONCE ? n - p : AT_ONCE;
        for (int i = 0; i < rows; i++) {
            pos[i] = p + i;
            id[i] = (pos[i] * 37 + pos[i] / 7 + 3) % m->n_vocab;
        }
        assert_ok(
            type->run(b, ROW_PROMPT, &(struct step){rows, 1, id, pos, slot, &last, &want, tables, 1, NULL}));
        assert_ok(type->wait(b, &res));
    }
}

/* Decodes n_steps() tokens of n_row sequences, all of different lengths but the first; out[N_KEEP][n_vocab]: the first's. */
static void decode(const struct attention *a, const struct model *m, const struct backend_type *type,
                   bool plain, int n_row, float *out) {
    static float sinks[64];
    struct infer_engine_options o = {.device = type->name,
                                     .kv_type = a->kv,
                                     .kernels = kernels,
                                     .sm_emulate = kernels ? 120 : 0,
                                     .no_fuse = plain,
                                     .ctx = MOST_STEPS + 8,
                                     .slots = n_row,
                                     .batch = type == &backend_ref ? AT_ONCE : 8,
                                     .decode_rows = n_row,
                                     .threads = 2,
                                     .gpu_layers = -1};
    struct arena arena = {0};
    struct plan plan;
    struct backend *b;
    int32_t *pages, id[MAX_ROWS], pos[MAX_ROWS], row[] = {0, 1, 2};
    uint8_t want[MAX_ROWS];
    for (int i = 0; i < 64; i++) sinks[i] = (float)(i % 5) - 2;
    struct plan_options po;
    assert_ok(engine_options_read(&po, &o));
    assert_ok(device_pick(&po.wish, &po.place));
    assert_ok(plan_make(&plan, &arena, m, &po));
    struct plan_part *part = &plan.part[0];
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        for (int i = 0; i < part->list[c].n_op; i++) {
            struct op *op = &part->list[c].op[i];
            if (op->kind != OP_ATTEND) continue;
            if (a->window >= 0) op->attend.window = a->window;
            op->attend.softcap = a->softcap;
            op->attend.sinks = a->sinks ? sinks : NULL;
            op->attend.temp_beta = a->temp;
            op->attend.temp_len = 50;
            op->attend.temp_offset = 1;
        }
    for (int c = 0; a->edit && c < ROW_CLASS_COUNT; c++) edit_list(&part->list[c], a->edit);
    assert_ok(type->open(&b, &part->config));
    if (type->upload) assert_ok(type->upload(b));
    for (int c = 0; c < ROW_CLASS_COUNT; c++) assert_ok(type->compile(b, (enum row_class)c));
    int max = plan.kv_group[0].max_pages;
    pages = arena_alloc(&arena, (size_t)(n_row * max) * 4);
    for (int i = 0; i < n_row * max; i++) pages[i] = n_row * max - 1 - i;
    const int32_t *const tables[] = {pages, pages}; /* groups with a window and without */
    const int n_step = n_steps(), begin = type == &backend_ref ? n_step - N_KEEP : 0;
    read_on(b, type, m, tables, begin);
    for (int p = begin; p < n_step; p++) {
        struct step_result res;
        for (int r = 0; r < n_row; r++) {
            id[r] = (p * 37 + p / 7 + 3 + 11 * r) % m->n_vocab;
            pos[r] = r ? p % (100 * r) : p;
            want[r] = (uint8_t)(p < n_step - N_KEEP ? INFER_WANT_TOKEN : INFER_WANT_LOGITS);
        }
        assert_ok(
            type->run(b, ROW_DECODE, &(struct step){n_row, n_row, id, pos, row, row, want, tables, 1, NULL}));
        assert_ok(type->wait(b, &res));
        if (p >= n_step - N_KEEP)
            memcpy(out + (p - n_step + N_KEEP) * m->n_vocab, res.logits, (size_t)m->n_vocab * 4);
    }
    if (type == &backend_cuda && !plain) {
        n_plain = 0;
        assert_ok(decode_profile(b, n_row, count_plain)); /* it is fused, */
        assert_int_equal(n_plain, 0);                     /* and so is all attention */
        if (n_row > 1) assert_int_equal(decode_profile(b, n_row - 1, count_plain), INFER_E_INPUT);
    }
    type->close(b);
    arena_free(&arena);
}

static void check_attention(const struct attention *a) {
    char path[] = "/tmp/infer-test-XXXXXX";
    struct synth_report report;
    struct model *m;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(synth_write(&(struct synth_options){.shape = a->shape, .type = "f16", .path = path, .seed = 7},
                          &report));
    assert_ok(model_open(&m, path, &(struct tensorfile_options){0}));
    size_t n = (size_t)N_KEEP * (size_t)m->n_vocab;
    float *want = malloc(n * 4), *got = malloc(n * 4);
    decode(a, m, &backend_ref, false, 1, want);
    decode(a, m, &backend_cuda, false, 1, got);
    double e = relative(got, want, n);
    print_message("%-9s %-4s window %-3d cap %-2g sinks %d edit %d temp %g %-4s %.1e of the norm\n", a->shape,
                  a->kv, a->window, (double)a->softcap, a->sinks, a->edit, (double)a->temp,
                  kernels ? kernels : "all", e);
    if (!(e <= a->tolerance)) fail_msg("%s %s: %g (tolerance %g)", a->shape, a->kv, e, a->tolerance);
    decode(a, m, &backend_cuda, false, MAX_ROWS, want);
    if (memcmp(want, got, n * 4)) fail_msg("%s %s: other bits beside neighbours", a->shape, a->kv);
    model_close(m);
    unlink(path);
    free(want);
    free(got);
}

static void attention_agrees_with_ref(void **state) {
    static const char *const shapes[] = {"tiny", "tiny-72", "tiny-80", "tiny-128", "tiny-256", "tiny-mqa"};
    static const char *const caches[] = {"f16", "q8_0", "f32"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        kernels = k ? "mma" : NULL;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int c = 0; c < (k ? 1 : 3); c++) {
                double tolerance = c == 1 ? TOL_CUDA_ATTEND_Q8 : TOL_CUDA_ATTEND;
                check_attention(&(struct attention){shapes[i], caches[c], 0, 0, false, tolerance, 0, 0});
                if (i == 3) {
                    check_attention(
                        &(struct attention){shapes[i], caches[c], 270, 0, false, tolerance, 0, 0});
                    check_attention(&(struct attention){shapes[i], caches[c], 0, 1, true, tolerance, 0, 0});
                    check_attention(&(struct attention){shapes[i], caches[c], 77, 2, true, tolerance, 0, 0});
                }
            }
    }
    kernels = NULL;
}
/* What a plain Llama's attention does not have: heads of 256 and 512 in turns, norms of values and behind the rotation, none, and a
 * temperature of scores. */
struct more_attention {
    const char *shape;
    int window, edit;
    float softcap, temp;
    bool sinks;
};
static void check_more(const struct more_attention *all, size_t n) {
    static const char *const caches[] = {"f16", "q8_0", "f32"};
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) {
            /* scores of Gemma 4's large heads, see test_cuda_links */
            const double more =
                (!strcmp(all[i].shape, "tiny-gemma4-256") ? 4 : 1) * (n_steps() < MOST_STEPS ? 1.5 : 1);
            check_attention(&(struct attention){
                all[i].shape, caches[c], all[i].window, all[i].softcap, all[i].sinks,
                more * (c == 1 ? TOL_CUDA_ATTEND_Q8 : TOL_CUDA_ATTEND), all[i].edit, all[i].temp});
        }
}
static void more_attention_agrees_with_ref(void **state) {
    static const struct more_attention all[] = {
        {"tiny-128", 0, NOT_ROTATED, 0, 0, false}, {"tiny-128", 270, AS_IT_IS, 0, 0.1f, true},
        {"tiny-moe", 0, NORMED_LATE, 0, 0, false}, {"tiny-moe", 100, NOT_ROTATED, 0, 0.2f, false},
        {"tiny-256", 0, AS_IT_IS, 2, 0.1f, true},  {"tiny-gemma4", -1, AS_IT_IS, 0, 0, false}};
    (void)state;
    check_more(all, sizeof all / sizeof *all);
}
static void large_heads_agree_with_ref(void **state) {
    static const struct more_attention all[] = {{"tiny-gemma4-256", -1, AS_IT_IS, 0, 0, false},
                                                {"tiny-gemma4-256", 77, AS_IT_IS, 2, 0, true},
                                                {"tiny-gemma4-256", 0, NOT_ROTATED, 0, 0.1f, false}};
    (void)state;
    check_more(all, sizeof all / sizeof *all);
}
#endif

#ifdef INFER_CUDA
/* Every kernel of prompt rows' attention alone, on pools and tables that end where the rows do: under compute-sanitizer
 * (scripts/gpu-check) a read beyond them is an error, without it the NaN there shows in the result. */
static void attention_of_prompt_rows_agrees_with_float64(void **state) {
    static const int dims[] = {8, 40, 64, 72, 80, 96, 112, 128, 136, 256, 264, 512},
                     rows[] = {1, 63, 64, 129, 300}, windows[] = {0, 1, 100}, depths[] = {0, 5, 64, 700};
    enum { MOST = 12 * 5 * 3 * 3 * 3 };
    static struct cuda_attention all[MOST];
    int n = 0;
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                for (int type = KV_F32; type <= KV_Q8_0; type++)
                    for (int k = CUDA_ATTEND_WGMMA; k <= CUDA_ATTEND_PLAIN; k++, n++)
                        all[n] = (struct cuda_attention){.dk = dims[d],
                                                         .dv = n % 7 == 3 ? 64 : dims[d],
                                                         .n_head = n % 2 ? 6 : 4,
                                                         .n_kv_head = 2,
                                                         .n_row = rows[r],
                                                         .n_seq = n % 4 == 3 && rows[r] > 2 ? 3 : 1,
                                                         .depth = depths[n / 3 % 4],
                                                         .window = windows[w],
                                                         .kv_type = type,
                                                         .kernel = (enum cuda_attend_kernel)k,
                                                         .softcap = n % 5 == 1 ? 2 : 0,
                                                         .sinks = n % 5 == 2};
    double worst;
    assert_int_equal(n, MOST);
    assert_ok(cuda_attention_check(all, n, &worst));
    print_message("%d cases, at most %.1e of the norm\n", n, worst);
}

/* What the shares of infer bench refer to: two readings of a card at rest are alike, and of the order of some card's. */
static void ceilings_are_measured(void **state) {
    struct cuda_ceiling *c;
    (void)state;
    assert_ok(cuda_ceiling_open(&c));
    double read = cuda_ceiling_read(c, 0.02), products = cuda_ceiling_products(c, 0.02) * 1e-12;
    double again = cuda_ceiling_read(c, 0.02);
    cuda_ceiling_close(c);
    print_message("read %.0f and %.0f GB/s, products of halves %.0f TFLOP/s\n", read, again, products);
    assert_true(read > 100 && read < 20000 && fabs(again / read - 1) < 0.1);
    assert_true(products > 10 && products < 5000);
}

/* Every kernel that a matrix of prompt rows may take, beside the others of its group: one set of bits. */
static void entries_of_a_route_give_the_same_bits(void **state) {
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        assert_ok(cuda_routes_check((enum quant_type)t, 544, 768, 301));
        assert_ok(cuda_routes_check((enum quant_type)t, 96, 256, 65));
    }
}

/* Prompt rows through cuBLASLt agree with ref, where the library is there. */
static void blas_agrees_with_ref(void **state) {
    (void)state;
    struct blas *found;
    if (blas_open(&found) != INFER_OK) {
        print_message("skipped: %s\n", infer_error());
        skip();
    }
    blas_close(found);
    kernels = NULL;
    blas = true;
    check_prompt("f16", TOL_CUDA_PROMPT);
    check_prompt("bf16", TOL_CUDA_PROMPT);
    check_prompt("q4_k_m", TOL_CUDA_PROMPT);
    blas = false;
}
#endif

/* Block-scaled formats on the kernels of sm_120, their one instruction in plain arithmetic. */
static void block_scaled_formats_keep_their_error(void **state) {
    (void)state;
    kernels = "mma";
    static const char *const types[] = {"f16", "bf16", "q8_0", "q4_0", "q4_k_m"};
    static const struct {
        const char *name;
        double tolerance;
    } format[] = {{"mxfp8", TOL_CUDA_MXFP8}, {"mxfp4", TOL_CUDA_FP4}, {"nvfp4", TOL_CUDA_FP4}};
    for (int f = 0; f < 3; f++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            block_scaled = format[f].name;
            check_prompt(types[t], format[f].tolerance);
        }
    block_scaled = NULL;
}

/* The tuner chooses among equal bits: other kernels or not, the logits are the same. */
static void tuning_changes_no_bit(void **state) {
    (void)state;
    char folder[] = "/tmp/infer-test-XXXXXX", path[64], line[256];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    kernels = NULL;
    float *off = NULL, *now = NULL;
    static const char *const how[] = {"off", "full", "load"};
    for (int i = 0; i < 3; i++) {
        autotune = how[i];
        float *got = prompt_logits("q4_k_m", "cuda");
        if (i == 0)
            off = got;
        else {
            now = got;
            assert_memory_equal(off, now, (size_t)n_vocab * 4);
            free(now);
        }
    }
    free(off);
    autotune = NULL;
    snprintf(path, sizeof path, "%s/infer/routes", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int n = 0;
    while (fgets(line, sizeof line, f)) n += strstr(line, "wgmma ") || strstr(line, "mma ") ? 1 : 0;
    fclose(f);
    assert_true(n >= 4); /* q k v, out, gate and up, down, for one size of step at least */
    unlink(path);
    snprintf(path, sizeof path, "%s/infer", folder);
    rmdir(path);
    rmdir(folder);
    unsetenv("XDG_CACHE_HOME");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_planned_and_stays),
#ifdef INFER_CUDA
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(attention_of_prompt_rows_agrees_with_float64),
        cmocka_unit_test(attention_agrees_with_ref),
        cmocka_unit_test(more_attention_agrees_with_ref),
        cmocka_unit_test(large_heads_agree_with_ref),
        cmocka_unit_test(draws_are_as_they_should_be),
#endif
        cmocka_unit_test(windows_agree_with_ref),
        cmocka_unit_test(every_format_agrees_with_ref),
        cmocka_unit_test(weights_beside_plain_ones),
        cmocka_unit_test(experts_agree_with_ref),
        cmocka_unit_test(experts_of_prompts_agree_with_ref),
        cmocka_unit_test(experts_of_prompts_with_biases_too),
        cmocka_unit_test(latents_agree_with_ref),
        cmocka_unit_test(and_as_on_sm_120),
        cmocka_unit_test(block_scaled_formats_keep_their_error),
        cmocka_unit_test(tuning_changes_no_bit),
#ifdef INFER_CUDA
        cmocka_unit_test(ceilings_are_measured),
        cmocka_unit_test(entries_of_a_route_give_the_same_bits),
        cmocka_unit_test(blas_agrees_with_ref),
#endif
    };
    if (!usable()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* a name, or a pattern like attention* */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The CUDA backend's fused programs, whole models in every format: prompt and decode logits against ref, bits that do not
 * depend on chunks, neighbours and replays. Skipped with a printed reason where there is no usable card, unless
 * INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/poison.h"
#include "infer.h"
#include "engine_impl.h"
#include "engine_options.h"
#include "quant/quant.h"
#include "tests/lib/relative.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"
#include "cuda/plan/blas.h"
#include "cuda/bench/cuda_bench.h"
#include "tests/lib/weights.h"

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
    struct infer_model_info info;
    model = synth_model(&(struct synth_options){.shape = shape, .type = type, .layers = n_layer, .seed = 5});
    infer_model_info(model, &info);
    n_vocab = info.n_vocab;
}

static int32_t id_at(int i) { return (i * 37 + i / 7 + 3) % n_vocab; }

/* Rows from .. from + n of a sequence in one step; the logits of the last one to out[n_vocab]. */
static void step(struct infer_engine *e, int seq, int from, int n, bool decode, float *out) {
    struct infer_row rows[N_ALL] = {0};
    struct infer_output o;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = id_at(from + i),
                                     .pos = from + i,
                                     .seq = seq,
                                     .decode = decode,
                                     .want = i + 1 == n ? INFER_WANT_LOGITS : 0};
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

/* Two prompts and a row of decode in one step leave each as it is alone. */
static void mixed(struct infer_engine *e, const float *alone) {
    struct infer_row rows[2 * N_PROMPT];
    struct infer_output o;
    int a, b, n = 0;
    assert_ok(infer_seq_open(e, &a));
    assert_ok(infer_seq_open(e, &b));
    for (int i = 0; i < N_PROMPT; i++) { /* the rows of both interleaved */
        rows[n++] = (struct infer_row){.id = id_at(i + 50), .pos = i, .seq = a, .want = 0};
        rows[n++] = (struct infer_row){
            .id = id_at(i), .pos = i, .seq = b, .want = i + 1 == N_PROMPT ? INFER_WANT_LOGITS : 0};
    }
    assert_ok(infer_step(e, rows, n, &o));
    assert_memory_equal(o.logits[0], alone, (size_t)n_vocab * 4);
    for (int i = 0; i < N_DECODE; i++) {
        rows[0] = (struct infer_row){.id = 7, .pos = N_PROMPT + i, .seq = a, .decode = true, .want = 0};
        rows[1] = (struct infer_row){.id = id_at(N_PROMPT + i),
                                     .pos = N_PROMPT + i,
                                     .seq = b,
                                     .decode = true,
                                     .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(e, rows, 2, &o));
        assert_memory_equal(o.logits[0], alone + (size_t)(i + 1) * (size_t)n_vocab, (size_t)n_vocab * 4);
    }
    infer_seq_close(e, a);
    infer_seq_close(e, b);
}

/* What tolerances are times: codes of few bits that fall to the other side change more than rounding does. */
static double cache_slack(void) {
    return !strcmp(cache, "f8") || !strcmp(cache, "q5_0") || !strcmp(cache, "q4_0") ? 4 : 1;
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
    const double slack = cache_slack();
    if (!(prompt <= slack * TOL_CUDA_PROMPT && decode <= slack * TOL_CUDA_DECODE))
        fail_msg("%s %s: prompt %g (tolerance %g), decode %g (%g)", shape, type, prompt,
                 slack * TOL_CUDA_PROMPT, decode, slack * TOL_CUDA_DECODE);
    static const int chunks[] = {1, 7, 64, 100, 129, 256};
    const bool states = model->m->n_state > 0; /* whose prompts are cut on a grid, and rows stand together */
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks && !states; i++) {
        run(e, chunks[i], again);
        if (memcmp(again, got, n * 4)) fail_msg("%s %s: other bits in chunks of %d", shape, type, chunks[i]);
    }
    if (!states) mixed(e, got);
    infer_engine_free(e);
    e = engine("cuda", 1, N_PROMPT); /* codes times codes */
    run(e, N_PROMPT, got);
    double one = relative(got + n_vocab, want + n_vocab, n - (size_t)n_vocab);
    if (!(one <= slack * TOL_CUDA_DECODE_ONE))
        fail_msg("%s %s: decode in one slot %g (tolerance %g)", shape, type, one,
                 slack * TOL_CUDA_DECODE_ONE);
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
        model->m->layer[1].dense.down.member[0].factor = 0.22f;
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

/* Models with states: prompts of three sequences in one step, whose decode rows are those of one alone. */
static void states_together(const char *shape, const char *type) {
    enum { SEQS = 3, ROWS = 70 };
    static struct infer_row rows[SEQS * ROWS];
    struct infer_output o;
    int seq[SEQS], n = 0;
    open_synth(shape, type);
    float *want = malloc((size_t)(1 + N_DECODE) * (size_t)n_vocab * 4);
    struct infer_engine *e = engine("cuda", SEQS, SEQS * ROWS);
    for (int together = 0; together < 2; together++, n = 0) {
        const int n_seq = together ? SEQS : 1;
        for (int s = 0; s < n_seq; s++) {
            assert_ok(infer_seq_open(e, &seq[s]));
            for (int i = 0; i < ROWS; i++)
                rows[n++] = (struct infer_row){
                    .id = id_at(i), .pos = i, .seq = seq[s], .want = i + 1 == ROWS ? INFER_WANT_LOGITS : 0};
        }
        for (int t = 0; t <= N_DECODE; t++) {
            float *one = want + (size_t)t * (size_t)n_vocab;
            assert_ok(infer_step(e, rows, n, &o));
            for (int s = 0; s < n_seq; s++) {
                if (!together) memcpy(one, o.logits[s], (size_t)n_vocab * 4);
                if (memcmp(one, o.logits[s], (size_t)n_vocab * 4))
                    fail_msg("%s %s: sequence %d has other bits %d rows behind its prompt", shape, type, s,
                             t);
                rows[s] = (struct infer_row){.id = id_at(ROWS + t),
                                             .pos = ROWS + t,
                                             .seq = seq[s],
                                             .decode = true,
                                             .want = INFER_WANT_LOGITS};
            }
            n = n_seq;
        }
        for (int s = 0; s < n_seq; s++) infer_seq_close(e, seq[s]);
    }
    infer_engine_free(e);
    infer_model_close(model);
    free(want);
}
static void states_keep_their_bits_beside_others(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny-delta", "tiny-delta-128", "tiny-nemotron-128", "tiny-lfm2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) states_together(shapes[i], "q8_0");
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

/* Caches that are turned: rows of prompts in chunks and beside others, on the fused kernels of both kinds and on plain ones, heads whose
 * numbers are turned 64 and 8 at a time; latents. */
static void caches_that_are_turned_agree_with_ref(void **state) {
    (void)state;
    static const char *const caches[] = {"f8", "q5_0", "q4_0"}, *const shapes[] = {"tiny", "tiny-72",
                                                                                   "tiny-128", "tiny-256"};
    for (size_t c = 0; c < 3; c++) {
        cache = caches[c];
        for (size_t s = 0; s < 4; s++) check_type(shapes[s], "f16");
        kernels = "mma";
        check_type("tiny-128", "f16");
        kernels = NULL;
        no_fuse = true;
        check_type("tiny-odd", "f32");
        no_fuse = false;
        n_layer = 1;
        check_type("tiny-latent", "f16");
        check_type("tiny-latent-512", "f16");
        n_layer = 0;
    }
    cache = "f16";
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
            model->m->layer[0].attn.out.member[0].factor = 0;
            model->m->layer[0].moe.router.member[0].bias = bias;
            check_model(shape, type);
        }
    n_layer = 0;
}
/* One matrix and its activation in place of gate and up, behind a layer of Mamba-2. */
static void experts_of_one_matrix_agree_too(void **state) {
    (void)state;
    static const char *const types[] = {"q8_0", "q4_k", "q6_k", "f16", "mxfp4_moe"};
    n_layer = 2;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        open_synth("tiny-nemotron-128", types[t]);
        model->m->layer[0].mixer.out.member[0].factor = 0;
        check_model("tiny-nemotron-128", types[t]);
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
    int seq;
    open_synth("tiny", type);
    float *out = malloc((size_t)n_vocab * 4);
    struct infer_engine *e = engine(device, 1, N_PROMPT);
    assert_ok(infer_seq_open(e, &seq));
    step(e, seq, 0, N_PROMPT, false, out);
    infer_engine_free(e);
    infer_model_close(model);
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
        m->layer[i].attn.window = WINDOW;
        m->store[m->layer[i].attn.store].group = 1;
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
            rows[i] = (struct infer_row){
                .id = id_at(done + i), .pos = i / 2, .seq = i % 2 ? b : a, .want = i >= 2 * each - 2};
        TRY(infer_step(e, rows, 2 * each, &o));
        for (int pos = each; pos < 100 && done < n; pos++, done += 2) {
            rows[0] = (struct infer_row){
                .id = INFER_LAST, .pos = pos, .seq = a, .decode = true, .want = INFER_WANT_TOKEN};
            rows[1] = (struct infer_row){
                .id = INFER_LAST, .pos = pos, .seq = b, .decode = true, .want = INFER_WANT_TOKEN};
            TRY(infer_step(e, rows, 2, &o));
        }
        for (int i = 0; i < 2; i++)
            rows[i] = (struct infer_row){.id = id_at(i),
                                         .pos = infer_seq_length(e, a) + i,
                                         .seq = a,
                                         .decode = true,
                                         .want = INFER_WANT_LOGITS};
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
    struct infer_row row = {.id = 1, .pos = 0, .seq = 0, .want = INFER_WANT_TOKEN};
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
    calls_fail(NULL, few_steps() ? 5 : 1); /* under scripts/gpu-check, alone on the card, each fifth */
    calls_fail("tiny", 11);                /* lives of fused programs are many times longer */
}
#endif

#ifdef INFER_CUDA
#include "tests/lib/draw_cases.h"
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
        assert_ok(cuda_routes_check((enum quant_type)t, 160, 512,
                                    1040)); // tiles that end in another tile of activations
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
        cmocka_unit_test(draws_are_as_they_should_be),
#endif
        cmocka_unit_test(windows_agree_with_ref),
        cmocka_unit_test(every_format_agrees_with_ref),
        cmocka_unit_test(weights_beside_plain_ones),
        cmocka_unit_test(states_keep_their_bits_beside_others),
        cmocka_unit_test(experts_agree_with_ref),
        cmocka_unit_test(experts_of_prompts_agree_with_ref),
        cmocka_unit_test(experts_of_one_matrix_agree_too),
        cmocka_unit_test(experts_of_prompts_with_biases_too),
        cmocka_unit_test(latents_agree_with_ref),
        cmocka_unit_test(caches_that_are_turned_agree_with_ref),
        cmocka_unit_test(and_as_on_sm_120),
        cmocka_unit_test(block_scaled_formats_keep_their_error),
        cmocka_unit_test(tuning_changes_no_bit),
#ifdef INFER_CUDA
        cmocka_unit_test(ceilings_are_measured),
        cmocka_unit_test(entries_of_a_route_give_the_same_bits),
        cmocka_unit_test(blas_agrees_with_ref),
#endif
    };
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* a name, or a pattern like experts* */
    if (!cuda_there(&must)) return must ? 1 : 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

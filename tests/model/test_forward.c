/* The whole model: logits of tiny random models made by Hugging Face transformers in float32 (scripts/make-goldens.py),
 * prompt against decode, two sequences against each alone, rewind, prefixes, nothing allocated in a step. */
#include "tests/lib/test.h"
#include "tests/lib/cuda_there.h"
#include "tests/lib/relative.h"
#include "infer.h"
#include "base/mem.h"
#include "quant/quant.h"
#include "tests/lib/tolerance.h"

#include <unistd.h>

static const char *const models[] = {"llama-gqa",      "llama-mha-tied", "llama-rope3",  "llama-linear",
                                     "llama-odd",      "qwen2",          "qwen3-narrow", "qwen3",
                                     "mistral-window", "qwen2-windows",  "granite",      "phi3"};
enum { N_MODEL = sizeof models / sizeof *models, MAX_TOKENS = 256 };

/* "cpu+ref": the last layer on cpu, those before it on ref */
static const char *const devices[] = {
    "ref",  "cpu",      "cpu+ref", "cpu+cpu",
#ifdef INFER_CUDA
    "cuda", "cuda+cpu",
#endif
};
static int N_DEVICE = sizeof devices / sizeof *devices;

struct golden {
    int32_t n, n_vocab;
    int32_t *ids;  /* ids[n] */
    float *logits; /* logits[n][n_vocab] */
    double sd;     /* standard deviation of all logits */
    struct infer_model *m;
};

static void golden_open(struct golden *g, const char *name) {
    char path[512], file[128];
    snprintf(file, sizeof file, "golden/forward/%s.bin", name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    assert_int_equal(fread(&g->n, 4, 1, f), 1);
    assert_int_equal(fread(&g->n_vocab, 4, 1, f), 1);
    assert_in_range(g->n, 1, MAX_TOKENS);
    size_t n = (size_t)g->n, v = (size_t)g->n_vocab;
    g->ids = malloc(n * 4);
    g->logits = malloc(n * v * 4);
    assert_int_equal(fread(g->ids, 4, n, f), n);
    assert_int_equal(fread(g->logits, 4, n * v, f), n * v);
    fclose(f);
    g->sd = standard_deviation(g->logits, n * v);
    snprintf(file, sizeof file, "golden/forward/%s.gguf", name);
    assert_ok(infer_model_open(&g->m, test_path(path, sizeof path, file), NULL));
}

static void golden_close(struct golden *g) {
    infer_model_close(g->m);
    free(g->ids);
    free(g->logits);
}

/* Options with the device and the host of a name like those above. */
static struct infer_engine_options options_for(const char *name) {
    static const char *const single[] = {"ref", "cpu", "cuda"};
    struct infer_engine_options o = {.ctx = 512, .slots = 1, .threads = 2, .gpu_layers = -1};
    const char *host = strchr(name, '+');
    size_t n = host ? (size_t)(host - name) : strlen(name);
    for (int i = 0; i < 3; i++)
        if (strlen(single[i]) == n && !strncmp(name, single[i], n)) o.device = single[i];
    assert_non_null(o.device);
    if (host) {
        o.host_device = host + 1;
        o.gpu_layers = 1;
    }
    return o;
}

static struct infer_engine *engine(const struct golden *g, const char *device, const char *kv_type,
                                   int slots) {
    struct infer_engine_options o = options_for(device);
    o.kv_type = kv_type;
    o.slots = slots;
    o.all_logits = o.nan_guard = true;
    o.strict_fp32 =
        kv_type && strcmp(kv_type, "f32") == 0; /* where logits are compared; a card has TF32 else */
    o.decode_rows = 8;
    struct infer_engine *e;
    struct infer_engine_info info;
    struct infer_model_info model;
    assert_ok(infer_engine_create(&e, g->m, &o));
    infer_engine_info(e, &info);
    infer_model_info(g->m, &model);
    assert_int_equal(info.device_layers, o.host_device ? 1 : model.n_layer);
    return e;
}

/* Computes ids[from .. from + n) of a sequence in one step, logits of every row into out[n][n_vocab]. */
static void compute(struct infer_engine *e, const struct golden *g, int seq, int from, int n, bool decode,
                    float *out) {
    struct infer_row rows[MAX_TOKENS] = {0};
    struct infer_output o;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = g->ids[from + i],
                                     .pos = from + i,
                                     .seq = seq,
                                     .decode = decode,
                                     .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN};
    assert_ok(infer_step(e, rows, n, &o));
    assert_int_equal(o.n, n);
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int k = 1; k < g->n_vocab; k++)
            if (o.logits[i][k] > o.logits[i][best]) best = k;
        assert_int_equal(o.token[i], best);
        memcpy(out + (size_t)i * (size_t)g->n_vocab, o.logits[i], (size_t)g->n_vocab * 4);
    }
}

/* Every model, device and class against transformers. */
static void logits_equal_transformers(void **state) {
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        struct golden g;
        golden_open(&g, models[i]);
        size_t n = (size_t)g.n * (size_t)g.n_vocab;
        float *got = malloc(n * 4), *step = malloc(n * 4);
        for (int d = 0; d < N_DEVICE; d++) {
            double tolerance = (d == 0 ? TOL_LOGITS_REF : TOL_LOGITS_FAST) * g.sd;
            struct infer_engine *e = engine(&g, devices[d], "f32", 2);
            int a, b;
            assert_ok(infer_seq_open(e, &a));
            assert_ok(infer_seq_open(e, &b));
            compute(e, &g, a, 0, g.n, false, got);
            double err = max_error(got, g.logits, n);
            print_message("%-15s %-8s prompt %.2e of sd", models[i], devices[d], err / g.sd);
            if (!(err <= tolerance))
                fail_msg("%s on %s: error %g, tolerance %g", models[i], devices[d], err, tolerance);
            for (int t = 0; t < g.n; t++) compute(e, &g, b, t, 1, true, step + (size_t)t * (size_t)g.n_vocab);
            err = max_error(step, got, n);
            print_message(", decode against prompt %.2e\n", err / g.sd);
            if (d == 0)
                assert_true(err == 0);
            else if (!(err <= tolerance))
                fail_msg("%s on %s: decode differs from prompt by %g", models[i], devices[d], err);
            infer_engine_free(e);
        }
        free(got);
        free(step);
        golden_close(&g);
    }
}

/* Chunks of a prompt, and neighbours in the batch, change no bit. */
static void neighbours_and_chunks_change_nothing(void **state) {
    (void)state;
    for (int d = 0; d < N_DEVICE; d++) {
        struct golden g;
        golden_open(&g, "llama-gqa");
        size_t v = (size_t)g.n_vocab, n = (size_t)g.n * v;
        float *alone = malloc(n * 4), *got = malloc(n * 4);
        struct infer_engine *e = engine(&g, devices[d], NULL, 3);
        int a, b, c;
        assert_ok(infer_seq_open(e, &a));
        assert_ok(infer_seq_open(e, &b));
        assert_ok(infer_seq_open(e, &c));
        compute(e, &g, a, 0, g.n, false, alone);
        for (int t = 0, k = 1; t < g.n; t += k, k = k % 7 + 2) { /* chunks of 1 to 8 rows */
            if (k > g.n - t) k = g.n - t;
            compute(e, &g, b, t, k, false, got + (size_t)t * v);
        }
        assert_memory_equal(alone, got, n * 4);
        /* one step: decode rows of a, prompt rows of c, interleaved with decode rows of b */
        struct infer_row rows[16];
        struct infer_output o;
        int half = g.n / 2;
        float *want_a = malloc(v * 4), *want_c = malloc(v * 4);
        assert_ok(infer_seq_rewind(e, a, half));
        assert_ok(infer_seq_rewind(e, b, half));
        compute(e, &g, a, half, 1, true, want_a);
        compute(e, &g, c, 0, 2, false, got);
        memcpy(want_c, got + v, v * 4);
        assert_ok(infer_seq_rewind(e, a, half));
        assert_ok(infer_seq_rewind(e, c, 0));
        rows[0] = (struct infer_row){.id = g.ids[0], .pos = 0, .seq = c};
        rows[1] = (struct infer_row){
            .id = g.ids[half], .pos = half, .seq = a, .decode = true, .want = INFER_WANT_LOGITS};
        rows[2] = (struct infer_row){.id = g.ids[1], .pos = 1, .seq = c, .want = INFER_WANT_LOGITS};
        rows[3] = (struct infer_row){
            .id = g.ids[half], .pos = half, .seq = b, .decode = true, .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(e, rows, 4, &o));
        assert_int_equal(o.n, 3);
        assert_memory_equal(o.logits[0], want_a, v * 4);
        assert_memory_equal(o.logits[1], want_c, v * 4);
        assert_memory_equal(o.logits[2], want_a, v * 4);
        free(alone);
        free(got);
        free(want_a);
        free(want_c);
        infer_engine_free(e);
        golden_close(&g);
    }
}

/* INFER_LAST with two steps in flight gives the tokens of one step at a time. */
static void running_ahead_changes_nothing(void **state) {
    (void)state;
    for (int d = 0; d < N_DEVICE; d++) {
        struct golden g;
        golden_open(&g, "qwen3");
        struct infer_engine *e = engine(&g, devices[d], NULL, 2);
        int32_t one[40], two[40];
        struct infer_output o;
        for (int pass = 0; pass < 2; pass++) {
            int seq, n_wait = 0;
            int32_t *got = pass ? two : one;
            assert_ok(infer_seq_open(e, &seq));
            struct infer_row row = {
                .id = INFER_LAST, .pos = 0, .seq = seq, .decode = true, .want = INFER_WANT_TOKEN};
            struct infer_row first = {.id = g.ids[0], .pos = 0, .seq = seq, .want = INFER_WANT_TOKEN};
            assert_int_equal(infer_submit(e, &row, 1), INFER_E_INPUT); /* nothing sampled yet */
            assert_ok(infer_submit(e, &first, 1));
            for (int i = 1; i < 40; i++) {
                row.pos = i;
                if (!pass) {
                    assert_ok(infer_wait(e, &o));
                    got[n_wait++] = o.token[0];
                    if (i == 20)
                        row.id = got[n_wait - 1]; /* an explicit id is the same */
                    else
                        row.id = INFER_LAST;
                }
                assert_ok(infer_submit(e, &row, 1));
                if (pass) {
                    assert_int_equal(infer_submit(e, &row, 1), INFER_E_INPUT); /* two are in flight */
                    assert_ok(infer_wait(e, &o));
                    got[n_wait++] = o.token[0];
                }
            }
            assert_ok(infer_wait(e, &o));
            got[n_wait++] = o.token[0];
            assert_int_equal(n_wait, 40);
        }
        assert_memory_equal(one, two, sizeof one);
        infer_engine_free(e);
        golden_close(&g);
    }
}

/* Shared prefixes, rewinding into a shared page, closing and opening again: the logits stay the same. */
static void pages_are_shared_and_copied(void **state) {
    (void)state;
    for (int d = 0; d < N_DEVICE; d++) {
        struct golden g;
        golden_open(&g, "llama-gqa");
        size_t v = (size_t)g.n_vocab;
        int32_t ids[200];
        for (int i = 0; i < 200; i++) ids[i] = (i * 7 + i / 13) % g.n_vocab;
        struct golden long_g = g;
        long_g.ids = ids;
        float *want = malloc(200 * v * 4), *got = malloc(200 * v * 4);
        struct infer_engine *e = engine(&g, devices[d], NULL, 2);
        int a, b, n;
        assert_ok(infer_seq_open(e, &a));
        compute(e, &long_g, a, 0, 200, false, want);
        assert_ok(infer_seq_open(e, &b));
        assert_ok(infer_seq_prefix(e, b, ids, 200, NULL, &n));
        assert_int_equal(n, 192);
        assert_int_equal(infer_seq_length(e, b), 192);
        compute(e, &long_g, b, 192, 8, false, got);
        assert_memory_equal(got, want + 192 * v, 8 * v * 4);
        /* b rewinds into a page that a still reads, and writes something else there */
        assert_ok(infer_seq_rewind(e, b, 100));
        int32_t saved = ids[100];
        ids[100] = (saved + 1) % g.n_vocab;
        compute(e, &long_g, b, 100, 20, false, got);
        assert_true(max_error(got, want + 100 * v, 20 * v) > 0);
        ids[100] = saved;
        assert_ok(infer_seq_rewind(e, b, 100));
        compute(e, &long_g, b, 100, 100, false, got);
        assert_memory_equal(got, want + 100 * v, 100 * v * 4);
        assert_ok(infer_seq_rewind(e, a, 150));
        compute(e, &long_g, a, 150, 50, false, got);
        assert_memory_equal(got, want + 150 * v, 50 * v * 4);
        /* closed sequences leave their pages to be found */
        infer_seq_close(e, a);
        infer_seq_close(e, b);
        assert_ok(infer_seq_open(e, &a));
        assert_ok(infer_seq_prefix(e, a, ids, 129, NULL, &n));
        assert_int_equal(n, 128);
        compute(e, &long_g, a, 128, 72, false, got);
        assert_memory_equal(got, want + 128 * v, 72 * v * 4);
        free(want);
        free(got);
        infer_engine_free(e);
        golden_close(&g);
    }
}

/* Changes one byte of a file, or cuts it at that byte. */
static void spoil(const char *path, long at, bool cut) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    if (cut) {
        assert_int_equal(ftruncate(fileno(f), at), 0);
    } else {
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        int byte = fgetc(f);
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        fputc(byte ^ 1, f);
    }
    fclose(f);
}

static void expect_load(struct infer_engine *e, int seq, const char *path, enum infer_status want,
                        const char *words) {
    assert_int_equal(infer_seq_load(e, seq, path), want);
    assert_int_equal(infer_seq_length(e, seq), 0);
    if (!strstr(infer_error(), words)) fail_msg("'%s' lacks '%s'", infer_error(), words);
}

/* What is refused leaves the sequence empty. at: bytes of header, then ids. */
static void bad_snapshots(const struct golden *g, const char *device, struct infer_engine *e, int seq,
                          const char *path) {
    char copy[64], command[256];
    struct golden other;
    snprintf(copy, sizeof copy, "%s.bad", path);
    snprintf(command, sizeof command, "cp %s %s", path, copy);
    static const long places[] = {0, 120, 200, 20000};
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        assert_int_equal(system(command), 0);
        spoil(copy, places[i / 2], i % 2);
        expect_load(e, seq, copy, INFER_E_INPUT, i < 2 ? "no snapshot" : "broken");
    }
    FILE *f = fopen(copy, "wb");
    assert_int_equal(fwrite("INFERKV2, as once", 1, 17, f), 17);
    fclose(f);
    expect_load(e, seq, copy, INFER_E_UNSUPPORTED, "older version");
    unlink(copy);
    expect_load(e, seq, copy, INFER_E_IO, copy);
    struct infer_engine *q8 = engine(g, device, "q8_0", 1);
    golden_open(&other, "llama-linear");
    struct infer_engine *o = engine(&other, device, NULL, 1);
    assert_ok(infer_seq_open(q8, &seq));
    expect_load(q8, seq, path, INFER_E_UNSUPPORTED, "q8_0");
    assert_ok(infer_seq_open(o, &seq));
    expect_load(o, seq, path, INFER_E_UNSUPPORTED, "another model");
    infer_engine_free(q8);
    infer_engine_free(o);
    golden_close(&other);
    if (N_DEVICE < 2) return;
    struct infer_engine *d = engine(g, devices[device == devices[0]], NULL, 1);
    assert_ok(infer_seq_open(d, &seq));
    expect_load(d, seq, path, INFER_E_UNSUPPORTED, device);
    infer_engine_free(d);
}

/* A sequence of prompt rows and decode rows goes on in another engine as if it had stayed. */
static void snapshots_go_on_bit_for_bit(void **state) {
    (void)state;
    enum { N_KV = 5 };
    static const char *const kv_types[N_KV] = {NULL, "f32", "q8_0", "q4_0", "q8_0/q4_0,1:f16/f8"};
    for (int d = 0; d < N_DEVICE * N_KV; d++) {
        if (d % N_KV >= 3 && !strncmp(devices[d / N_KV], "cuda", 4)) continue; /* not on a card */
        struct golden g;
        golden_open(&g, "llama-gqa");
        char path[] = "/tmp/infer-test-XXXXXX";
        int fd = mkstemp(path), a, b;
        assert_true(fd >= 0);
        close(fd);
        size_t v = (size_t)g.n_vocab;
        int32_t ids[200], *own = g.ids;
        for (int i = 0; i < 200; i++) ids[i] = (i * 7 + i / 13) % g.n_vocab;
        g.ids = ids;
        float *want = malloc(200 * v * 4), *got = malloc(200 * v * 4);
        struct infer_engine *e = engine(&g, devices[d / N_KV], kv_types[d % N_KV], 2),
                            *later = engine(&g, devices[d / N_KV], kv_types[d % N_KV], 1);
        assert_ok(infer_seq_open(e, &a));
        assert_ok(infer_seq_open(e, &a)); /* not the first pages of the pool */
        compute(e, &g, a, 0, 140, false, want);
        compute(e, &g, a, 140, 5, true, want);
        assert_ok(infer_seq_save(e, a, path));
        compute(e, &g, a, 145, 5, true, want);
        compute(e, &g, a, 150, 50, false, want + 5 * v);
        assert_ok(infer_seq_open(later, &b));
        assert_ok(infer_seq_load(later, b, path));
        assert_int_equal(infer_seq_length(later, b), 145);
        assert_memory_equal(infer_seq_ids(later, b), ids, 145 * 4);
        assert_int_equal(infer_seq_load(later, b, path), INFER_E_INPUT); /* not empty */
        compute(later, &g, b, 145, 5, true, got);
        compute(later, &g, b, 150, 50, false, got + 5 * v);
        assert_memory_equal(got, want, 55 * v * 4);
        assert_ok(infer_seq_rewind(later, b, 0));
        if (d % N_KV == 0) bad_snapshots(&g, devices[d / N_KV], later, b, path);
        assert_int_equal(infer_seq_save(later, b, "/dev/null/x"), INFER_E_IO);
        unlink(path);
        free(want);
        free(got);
        infer_engine_free(e);
        infer_engine_free(later);
        g.ids = own;
        golden_close(&g);
    }
}

/* The residual stream crosses from backend to backend without losing a bit. */
static void a_boundary_changes_nothing(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"ref", "ref+ref"}, {"cpu", "cpu+cpu"}};
    for (int i = 0; i < 2; i++) {
        struct golden g;
        golden_open(&g, "qwen3");
        size_t n = (size_t)g.n * (size_t)g.n_vocab;
        float *logits[2] = {malloc(n * 4), malloc(n * 4)};
        for (int j = 0; j < 2; j++) {
            struct infer_engine *e = engine(&g, pairs[i][j], NULL, 1);
            int seq;
            assert_ok(infer_seq_open(e, &seq));
            compute(e, &g, seq, 0, g.n / 2, false, logits[j]);
            for (int t = g.n / 2; t < g.n; t++)
                compute(e, &g, seq, t, 1, true, logits[j] + (size_t)t * (size_t)g.n_vocab);
            infer_engine_free(e);
            if (j && memcmp(logits[0], logits[1], n * 4)) fail_msg("%s: other bits", pairs[i][1]);
        }
        free(logits[0]);
        free(logits[1]);
        golden_close(&g);
    }
}

static void bad_rows_are_refused(void **state) {
    (void)state;
    struct golden g;
    golden_open(&g, "llama-gqa");
    struct infer_engine_options opt = {.device = "cpu", .ctx = 64, .batch = 16, .gpu_layers = -1};
    struct infer_engine *e;
    struct infer_output o;
    assert_ok(infer_engine_create(&e, g.m, &opt));
    int seq, other;
    assert_ok(infer_seq_open(e, &seq));
    assert_int_equal(infer_seq_open(e, &other), INFER_E_FULL);
    struct infer_row rows[65];
    for (int i = 0; i < 65; i++) rows[i] = (struct infer_row){.id = 1, .pos = i, .seq = seq};
    struct infer_row bad = rows[0];
    bad.id = g.n_vocab;
    assert_int_equal(infer_submit(e, &bad, 1), INFER_E_INPUT);
    bad = rows[0];
    bad.pos = 1;
    assert_int_equal(infer_submit(e, &bad, 1), INFER_E_INPUT);
    bad = rows[0];
    bad.seq = 7;
    assert_int_equal(infer_submit(e, &bad, 1), INFER_E_INPUT);
    assert_int_equal(infer_submit(e, rows, 17), INFER_E_INPUT);
    assert_int_equal(infer_wait(e, &o), INFER_E_INPUT);
    for (int i = 0; i < 64; i += 16) assert_ok(infer_step(e, rows + i, 16, &o)); /* the whole context fills */
    assert_int_equal(infer_submit(e, rows + 64, 1), INFER_E_FULL);
    assert_non_null(strstr(infer_error(), "65"));
    assert_non_null(strstr(infer_error(), "64"));
    assert_int_equal(infer_seq_length(e, seq), 64);
    infer_cancel(e);
    assert_ok(infer_seq_rewind(e, seq, 10));
    assert_int_equal(infer_step(e, rows + 10, 4, &o), INFER_E_CANCEL);
    assert_int_equal(infer_seq_length(e, seq), 10);
    assert_ok(infer_step(e, rows + 10, 4, &o)); /* a cancelled step leaves a working engine */
    infer_engine_free(e);
    golden_close(&g);
}

/* A model whose positions are a table has no more of them than the table. */
static void learned_positions_end(void **state) {
    (void)state;
    char path[512];
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_engine_options o = {.device = "ref", .ctx = 160};
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/gpt2"), NULL));
    assert_ok(infer_engine_create(&e, m, &o));
    infer_engine_free(e);
    o.ctx = 161;
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "160 of them"));
    infer_model_close(m);
}

/* Every allocation of opening, creating and running fails once: an error each time, no leak, no crash. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    char path[512];
    test_path(path, sizeof path, "golden/forward/llama-odd.gguf");
    for (int d = 0; d < N_DEVICE; d++) {
        struct infer_engine_options opt = options_for(devices[d]);
        opt.ctx = 64;
        opt.batch = 8;
        bool done = false;
        for (uint64_t k = 1; !done && k < 2000; k++) {
            struct infer_model *m = NULL;
            struct infer_engine *e = NULL;
            mem_fail_at(k);
            enum infer_status s = infer_model_open(&m, path, NULL);
            if (s == INFER_OK) s = infer_engine_create(&e, m, &opt);
            mem_fail_at(0);
            if (s == INFER_OK)
                done = true;
            else
                assert_int_equal(s, INFER_E_MEMORY);
            infer_engine_free(e);
            infer_model_close(m);
        }
        assert_true(done);
    }
}

/* Without a usable card the CUDA device is left out with the reason; under INFER_REQUIRE_CUDA=1 that is a failure. */
static int leave_out_cuda(void **state) {
    (void)state;
    bool must, there = cuda_there(&must);
#ifdef INFER_CUDA
    if (!there) N_DEVICE -= 2;
#endif
    return must && !there;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_transformers),
        cmocka_unit_test(neighbours_and_chunks_change_nothing),
        cmocka_unit_test(running_ahead_changes_nothing),
        cmocka_unit_test(pages_are_shared_and_copied),
        cmocka_unit_test(snapshots_go_on_bit_for_bit),
        cmocka_unit_test(a_boundary_changes_nothing),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(learned_positions_end),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, leave_out_cuda, NULL);
}

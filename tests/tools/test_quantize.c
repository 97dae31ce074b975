/* synth, quantize and the mixes: what stands in the files they write. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include <math.h>
#include <omp.h>
#include <unistd.h>
#include "tools/file/mix.h"
#include "tools/file/quantize.h"
#include "tools/file/synth.h"
#include "files/mapfile.h"
#include "base/mem.h"
#include "files/tensorfile.h"

static struct folder dir;

static const char *file_in(char *buf, const char *name) { /* buf[128] */
    snprintf(buf, 128, "%s/%s", dir.path, name);
    return buf;
}

static int make_dir(void **state) {
    (void)state;
    folder_make(&dir);
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    folder_remove(&dir);
    return 0;
}

static void synth(const char *name, const char *arch, const char *shape, const char *type,
                  struct synth_report *report) {
    char path[128];
    struct synth_report own;
    struct synth_options o = {
        .arch = arch, .shape = shape, .type = type, .path = file_in(path, name), .seed = 7};
    assert_ok(synth_write(&o, report ? report : &own));
}

static struct tensorfile *opened(const char *name) {
    char path[128];
    struct tensorfile *f;
    assert_ok(tensorfile_open(&f, file_in(path, name), &(struct tensorfile_options){0}));
    return f;
}

static enum infer_status quantize(const char *in, const char *out, const char *type, const char *only,
                                  bool pure, struct quantize_report *report) {
    char a[128], b[128];
    struct quantize_report own;
    struct quantize_options o = {
        .in = file_in(a, in), .out = file_in(b, out), .type = type, .only = only, .pure = pure};
    return quantize_file(&o, report ? report : &own);
}

static bool same_bytes(const char *a, const char *b) {
    char pa[128], pb[128];
    struct mapfile x, y;
    assert_ok(mapfile_open(&x, file_in(pa, a), false));
    assert_ok(mapfile_open(&y, file_in(pb, b), false));
    bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    mapfile_close(&x);
    mapfile_close(&y);
    return same;
}

/* ---- mixes ---- */

static int count_types(const char *mix, int n_layer, int gqa, const char *part, enum quant_type type) {
    const struct mix *m = mix_find(mix, false);
    struct mix_model model = {.n_layer = n_layer, .n_gqa = gqa};
    enum quant_type wanted;
    int n = 0;
    assert_non_null(m);
    for (int i = 0; i < n_layer; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, part);
        n += mix_type(m, &model, name, 4096, &wanted) == type;
    }
    return n;
}

/* The counts that llama.cpp's files of an 8B Llama (32 layers, 4 query heads per key head) show. */
static void mixes_are_llama_cpps(void **state) {
    (void)state;
    assert_int_equal(count_types("q4_k_m", 32, 4, "attn_v", QUANT_Q6_K), 16);
    assert_int_equal(count_types("q4_k_m", 32, 4, "ffn_down", QUANT_Q6_K), 16);
    assert_int_equal(count_types("q4_k_m", 32, 4, "attn_q", QUANT_Q4_K), 32);
    assert_int_equal(count_types("q4_k_s", 32, 4, "attn_v", QUANT_Q5_K), 4);
    assert_int_equal(count_types("q4_k_s", 32, 4, "ffn_down", QUANT_Q5_K), 4);
    assert_int_equal(count_types("q5_k_m", 32, 4, "ffn_down", QUANT_Q6_K), 16);
    assert_int_equal(count_types("q3_k_m", 32, 4, "attn_v", QUANT_Q5_K), 2);
    assert_int_equal(count_types("q3_k_m", 32, 4, "attn_output", QUANT_Q4_K), 32);
    assert_int_equal(count_types("q3_k_l", 32, 4, "ffn_down", QUANT_Q5_K), 32);
    assert_int_equal(count_types("q2_k", 32, 4, "attn_v", QUANT_Q4_K), 32);
    assert_int_equal(count_types("q2_k", 32, 1, "attn_v", QUANT_Q3_K), 32);
    assert_int_equal(count_types("q4_0", 32, 4, "ffn_down", QUANT_Q4_0), 32);
    assert_int_equal(count_types("mxfp4", 32, 4, "ffn_down", QUANT_MXFP4), 32);
    assert_int_equal(count_types("mxfp4_moe", 32, 4, "ffn_down_exps", QUANT_MXFP4), 32);
    assert_int_equal(count_types("mxfp4_moe", 32, 4, "ffn_down", QUANT_Q8_0), 32);

    struct mix_model model = {.n_layer = 32, .n_gqa = 4};
    enum quant_type wanted;
    assert_int_equal(mix_type(mix_find("q4_0", false), &model, "output.weight", 4096, &wanted), QUANT_Q6_K);
    assert_int_equal(mix_type(mix_find("q4_0", true), &model, "output.weight", 4096, &wanted), QUANT_Q4_0);
    assert_int_equal(mix_type(mix_find("q4_0", false), &model, "token_embd.weight", 4096, &wanted),
                     QUANT_Q4_0);
    model.tied = true;
    assert_int_equal(mix_type(mix_find("q4_0", false), &model, "token_embd.weight", 4096, &wanted),
                     QUANT_Q6_K);
    /* below 4 bits, and with importance: what llama.cpp's quantiser writes (bench/mixes.py compares) */
    model = (struct mix_model){.n_layer = 16, .n_gqa = 4, .importance = true};
    static const struct {
        const char *mix, *name;
        enum quant_type type;
    } want[] = {{"iq2_xs", "output.weight", QUANT_Q5_K},
                {"iq2_xs", "token_embd.weight", QUANT_Q2_K},
                {"iq2_xs", "blk.9.attn_v.weight", QUANT_Q4_K},
                {"iq2_xs", "blk.1.ffn_down.weight", QUANT_Q2_K},
                {"iq2_xs", "blk.2.ffn_down.weight", QUANT_IQ2_XS},
                {"iq1_s", "blk.2.attn_output.weight", QUANT_IQ2_XXS},
                {"iq2_s", "blk.2.attn_q.weight", QUANT_IQ2_XS},
                {"iq2_m", "blk.2.attn_output.weight", QUANT_IQ3_S},
                {"iq3_xxs", "blk.2.attn_k.weight", QUANT_IQ2_S},
                {"iq3_xxs", "blk.0.ffn_down.weight", QUANT_IQ3_XXS},
                {"iq3_s", "blk.2.attn_v.weight", QUANT_Q4_K},
                {"tq1_0", "token_embd.weight", QUANT_Q4_K},
                {"q4_0", "blk.1.ffn_down.weight", QUANT_Q4_1},
                {"q4_0", "blk.2.ffn_down.weight", QUANT_Q4_0},
                {"iq4_xs", "blk.0.ffn_down.weight", QUANT_IQ4_XS}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (mix_type(mix_find(want[i].mix, false), &model, want[i].name, 4096, &wanted) != want[i].type)
            fail_msg("%s: %s is %s", want[i].mix, want[i].name, quant_info(wanted)->name);
    model = (struct mix_model){.n_layer = 32, .n_gqa = 4, .n_value = 8, .i_value = 0}; /* a hybrid's first */
    assert_int_equal(mix_type(mix_find("q4_k_m", false), &model, "blk.13.attn_v.weight", 4096, &wanted),
                     QUANT_Q6_K);
    model.i_value = 1;
    assert_int_equal(mix_type(mix_find("q4_k_m", false), &model, "blk.31.attn_v.weight", 4096, &wanted),
                     QUANT_Q4_K);
    assert_null(mix_find("q9_k", false));
    assert_false(mix_is_matrix("blk.0.attn_q_norm.weight", 2));
    assert_false(mix_is_matrix("blk.0.ffn_gate_inp.weight", 2));
    assert_false(mix_is_matrix("blk.0.attn_q.bias", 1));
    assert_true(mix_is_matrix("blk.0.ffn_down_exps.weight", 3));
}

static void odd_rows_take_other_types(void **state) {
    (void)state;
    static const struct {
        enum quant_type wanted, taken;
    } want[] = {{QUANT_Q2_K, QUANT_IQ4_NL}, {QUANT_Q3_K, QUANT_IQ4_NL}, {QUANT_Q4_K, QUANT_Q5_0},
                {QUANT_Q5_K, QUANT_Q5_1},   {QUANT_Q6_K, QUANT_Q8_0},   {QUANT_Q4_0, QUANT_Q4_0}};
    struct mix_model model = {.n_layer = 2, .n_gqa = 1};
    enum quant_type wanted;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct mix *m = mix_find(quant_info(want[i].wanted)->name, true);
        assert_int_equal(mix_type(m, &model, "blk.0.ffn_up.weight", 576, &wanted), want[i].taken);
        assert_int_equal(wanted, want[i].wanted);
        assert_int_equal(mix_type(m, &model, "blk.0.ffn_up.weight", 512, &wanted), want[i].wanted);
        assert_int_equal(mix_type(m, &model, "blk.0.ffn_up.weight", 40, &wanted), QUANT_F16);
    }
}

/* ---- synth ---- */

static void synth_writes_every_type(void **state) {
    (void)state;
    static const char *const mixes[] = {"q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l",
                                        "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m"};
    char path[128];
    for (int t = 0; t < QUANT_COUNT + 8; t++) {
        if (t < QUANT_COUNT && quant_info((enum quant_type)t)->gguf < 0) continue;
        const char *type = t < QUANT_COUNT ? quant_info((enum quant_type)t)->name : mixes[t - QUANT_COUNT];
        synth("s.gguf", NULL, "tiny", type, NULL);
        struct tensorfile *f = opened("s.gguf");
        assert_int_equal(f->alignment, 4096);
        const struct tensor *q = tensorfile_find(f, "blk.1.attn_q.weight");
        assert_non_null(q);
        if (t < QUANT_COUNT) assert_int_equal(q->type, t);
        float x[256];
        double sum = 0, square = 0;
        const struct quant_info *info = quant_info(q->type);
        for (int r = 0; r < 64; r++) {
            info->decode(x, (const char *)q->data + quant_row_bytes(info, 256) * (size_t)r, 256);
            for (int i = 0; i < 256; i++) sum += x[i], square += (double)x[i] * x[i];
        }
        double deviation = sqrt(square / (64 * 256)); /* wanted: 1 / sqrt(256) */
        if (!(deviation > 0.055 && deviation < 0.07 && fabs(sum / (64 * 256)) < 0.004))
            fail_msg("%s: mean %g, deviation %g", type, sum / (64 * 256), deviation);
        const struct tensor *norm = tensorfile_find(f, "output_norm.weight");
        assert_int_equal(norm->type, QUANT_F32);
        assert_true(fabsf(((const float *)norm->data)[3] - 1) < 0.6f);
        tensorfile_close(f);
        unlink(file_in(path, "s.gguf"));
    }
}

static void synth_is_deterministic(void **state) {
    (void)state;
    int threads = omp_get_max_threads();
    synth("a.gguf", "qwen3", "tiny", "q4_k_m", NULL);
    omp_set_num_threads(threads == 3 ? 2 : 3);
    synth("b.gguf", "qwen3", "tiny", "q4_k_m", NULL);
    omp_set_num_threads(threads);
    assert_true(same_bytes("a.gguf", "b.gguf"));
    struct synth_report r;
    struct synth_options o = {.shape = "tiny", .arch = "qwen3", .type = "q4_k_m", .seed = 8};
    char path[128];
    o.path = file_in(path, "b.gguf");
    assert_ok(synth_write(&o, &r));
    assert_false(same_bytes("a.gguf", "b.gguf"));

    synth("b.gguf", "qwen2", "tiny-odd", "q4_k_m", &r);
    assert_int_equal(r.n_matrix, 23);
    assert_int_equal(r.fallback[QUANT_Q4_K][QUANT_Q5_0] + r.fallback[QUANT_Q6_K][QUANT_Q8_0],
                     22); /* the head is q8_0 by rule */
    struct tensorfile *f = opened("b.gguf");
    assert_non_null(tensorfile_find(f, "blk.2.attn_v.bias"));
    tensorfile_close(f);

    o.shape = "huge";
    assert_int_equal(synth_write(&o, &r), INFER_E_INPUT);
    o.shape = "llama-8b", o.arch = "qwen2";
    assert_int_equal(synth_write(&o, &r), INFER_E_INPUT);
    o.shape = "tiny", o.arch = NULL, o.type = "q7";
    assert_int_equal(synth_write(&o, &r), INFER_E_INPUT);
    o.type = "f16", o.path = "/nowhere/at/all.gguf";
    assert_int_equal(synth_write(&o, &r), INFER_E_IO);
}

/* No two rows of the head are alike: equal logits would make the greedy token a matter of luck. */
static void synth_rows_differ(void **state) {
    (void)state;
    synth("a.gguf", NULL, "tiny", "f32", NULL);
    struct tensorfile *f = opened("a.gguf");
    const struct tensor *t = tensorfile_find(f, "output.weight");
    const float *x = t->data;
    for (int64_t i = 0; i < t->shape[2]; i++)
        for (int64_t j = 0; j < i; j++) assert_memory_not_equal(x + i * 256, x + j * 256, 256 * 4);
    tensorfile_close(f);
}

/* ---- quantize ---- */

static void quantize_encodes_and_copies(void **state) {
    (void)state;
    struct quantize_report r;
    synth("a.gguf", NULL, "tiny", "f32", NULL);
    assert_ok(quantize("a.gguf", "b.gguf", "q4_k_m", NULL, false, &r));
    assert_int_equal(r.n_tensor, 21);
    assert_int_equal(r.n_matrix, 16);
    assert_int_equal(r.n_changed, 16);
    assert_int_equal(r.n_lossy, 0);
    struct tensorfile *a = opened("a.gguf"), *b = opened("b.gguf");
    assert_int_equal(b->file_bytes, r.bytes_out);
    assert_int_equal(a->n_meta, b->n_meta);
    for (size_t i = 0; i < a->n_tensor; i++) {
        const struct tensor *s = &a->tensor[i], *t = &b->tensor[i];
        assert_string_equal(s->name, t->name);
        assert_memory_equal(s->shape, t->shape, sizeof s->shape);
        size_t n = s->bytes / 4;
        unsigned char *want = mem_alloc(t->bytes);
        quant_info(t->type)->encode(want, s->data, n, NULL);
        assert_memory_equal(t->data, want, t->bytes);
        mem_free(want);
    }
    uint32_t file_type;
    assert_ok(meta_u32(b, "general.file_type", &file_type, NULL));
    assert_int_equal(file_type, 15);
    assert_int_equal(tensorfile_find(b, "output.weight")->type, QUANT_Q6_K);
    assert_int_equal(tensorfile_find(b, "blk.0.attn_q.weight")->type, QUANT_Q4_K);
    tensorfile_close(a);
    tensorfile_close(b);

    /* the same type again: byte for byte */
    assert_ok(quantize("b.gguf", "c.gguf", "q4_k_m", NULL, false, &r));
    assert_int_equal(r.n_changed, 0);
    assert_true(same_bytes("b.gguf", "c.gguf"));
}

static void quantize_only_and_pure(void **state) {
    (void)state;
    struct quantize_report r;
    synth("a.gguf", NULL, "tiny", "f16", NULL);
    assert_ok(quantize("a.gguf", "b.gguf", "q8_0", "blk.*.ffn_*", false, &r));
    struct tensorfile *f = opened("b.gguf");
    assert_int_equal(r.n_changed, 6);
    assert_int_equal(tensorfile_find(f, "blk.1.ffn_up.weight")->type, QUANT_Q8_0);
    assert_int_equal(tensorfile_find(f, "blk.1.attn_q.weight")->type, QUANT_F16);
    tensorfile_close(f);
    assert_int_equal(quantize("a.gguf", "c.gguf", "q8_0", "nothing*", false, &r), INFER_E_INPUT);

    assert_ok(quantize("b.gguf", "c.gguf", "q4_0", NULL, true, &r));
    assert_int_equal(r.n_lossy, 6);
    f = opened("c.gguf");
    assert_int_equal(tensorfile_find(f, "output.weight")->type, QUANT_Q4_0);
    assert_int_equal(tensorfile_find(f, "output_norm.weight")->type, QUANT_F32);
    tensorfile_close(f);

    synth("a.gguf", NULL, "tiny-odd", "bf16", NULL);
    assert_ok(quantize("a.gguf", "d.gguf", "q2_k", NULL, true, &r));
    assert_int_equal(r.fallback[QUANT_Q2_K][QUANT_IQ4_NL], 23);
}

static void quantize_refuses(void **state) {
    (void)state;
    char path[128], in[128];
    struct quantize_report r;
    synth("a.gguf", NULL, "tiny", "f32", NULL);
    assert_int_equal(quantize("a.gguf", "a.gguf", "q8_0", NULL, false, &r), INFER_E_INPUT);
    assert_ok(symlink("a.gguf", file_in(path, "link.gguf")));
    assert_int_equal(quantize("a.gguf", "link.gguf", "q8_0", NULL, false, &r), INFER_E_INPUT);
    assert_int_equal(quantize("absent.gguf", "b2.gguf", "q8_0", NULL, false, &r), INFER_E_IO);
    assert_int_equal(quantize("a.gguf", "b2.gguf", "q8", NULL, false, &r), INFER_E_INPUT);
    assert_ok(quantize("a.gguf", "small.gguf", "q8_0", NULL, false, &r));
    assert_int_equal(quantize("small.gguf", "a.gguf", "q4_0", NULL, false, &r), INFER_E_INPUT); /* swapped */
    assert_non_null(strstr(err_message(), "larger model"));
    struct quantize_options o = {
        .in = file_in(in, "small.gguf"), .out = file_in(path, "b3.gguf"), .type = "f32"};
    assert_ok(quantize_file(&o, &r));
    assert_int_equal(quantize_file(&o, &r), INFER_E_INPUT); /* it is there, and larger */
    o.force = true;
    assert_ok(quantize_file(&o, &r));

    /* one weight becomes infinite, then too large for a half */
    struct tensorfile *f = opened("a.gguf");
    uint64_t at = tensorfile_find(f, "blk.1.ffn_up.weight")->offset + 4 * 1000;
    tensorfile_close(f);
    for (int k = 0; k < 2; k++) {
        float bad = k ? 1e6f : INFINITY;
        FILE *file = fopen(file_in(path, "a.gguf"), "r+b");
        assert_ok(fseek(file, (long)at, SEEK_SET));
        assert_int_equal(fwrite(&bad, 4, 1, file), 1);
        fclose(file);
        assert_int_equal(quantize("a.gguf", "b2.gguf", "f16", NULL, false, &r), INFER_E_INPUT);
        assert_non_null(strstr(err_message(), "blk.1.ffn_up.weight"));
        assert_int_equal(access(file_in(path, "b2.gguf"), F_OK), -1);
    }
}

/* The k-th allocation fails, for every k: a message, no file, no leak (under AddressSanitizer). */
static void allocations_may_fail(void **state) {
    (void)state;
    char path[128];
    for (int what = 0; what < 2; what++) {
        enum infer_status s = INFER_E_MEMORY;
        uint64_t k = 0;
        synth("a.gguf", NULL, "tiny", "f16", NULL);
        unlink(file_in(path, "k.gguf"));
        while (s != INFER_OK && k < 1000) {
            struct synth_report r;
            struct synth_options o = {.shape = "tiny", .type = "f16", .path = file_in(path, "k.gguf")};
            mem_fail_at(++k);
            s = what ? quantize("a.gguf", "k.gguf", "bf16", NULL, false, NULL) : synth_write(&o, &r);
            mem_fail_at(0);
            if (s != INFER_OK && s != INFER_E_MEMORY) fail_msg("allocation %d: %s", (int)k, err_message());
            assert_int_equal(access(path, F_OK), s == INFER_OK ? 0 : -1);
        }
        assert_int_equal(s, INFER_OK);
        assert_true(k > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_are_llama_cpps),    cmocka_unit_test(odd_rows_take_other_types),
        cmocka_unit_test(synth_writes_every_type), cmocka_unit_test(synth_is_deterministic),
        cmocka_unit_test(synth_rows_differ),       cmocka_unit_test(quantize_encodes_and_copies),
        cmocka_unit_test(quantize_only_and_pure),  cmocka_unit_test(quantize_refuses),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

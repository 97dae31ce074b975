/* Attention by a latent beside what test_hf_forward compares: what sequences keep of it, and files from before keys and values of heads
 * were apart. */
#define LOGITS_TOKENS 70
#define LOGITS_CTX    160
#include "tests/lib/test.h"
#include "tests/lib/steps.h"
#include "base/mem.h"
#include "files/gguf_write.h"
#include "files/tensorfile.h"
#include "tests/lib/folder.h"
#include "tests/lib/logits_of.h"
#include "tests/lib/poison.h"
#include "tools/file/synth.h"

#include <math.h>

enum {
    LONG = 256,
    VOCAB = 61,
    H = 4,
    ROT = 32,
    NOPE = 32,
    VALUE = 48,
    RANK = 64
}; /* of tiny-latent, but for LONG and VOCAB */

/* ---- sequences of a tiny DeepSeek V2 ---- */

static int32_t id_at(int i) { return made_up_id(i, VOCAB); }

static struct infer_engine *open_engine(const struct infer_model *m, const char *device, const char *kv,
                                        int batch) {
    struct infer_engine_options o = {.device = device,
                                     .kv_type = kv,
                                     .ctx = LONG,
                                     .slots = 2,
                                     .batch = batch,
                                     .decode_rows = 8,
                                     .threads = 2,
                                     .gpu_layers = -1,
                                     .all_logits = true};
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, m, &o));
    return e;
}
static void steps(struct infer_engine *e, int seq, int from, int end, int n, bool decode, float *out) {
    compute_steps(e, seq, from, end, n, decode, VOCAB, out);
}
static void expect_same(const float *got, const float *want, const char *device, const char *kv,
                        const char *what) {
    if (memcmp(got, want, VOCAB * sizeof *got)) fail_msg("%s, %s: logits %s differ", device, kv, what);
}

/* Rewound, saved and loaded, with the pages of another sequence and beside poison: as if never away. */
static void check_sequences(const struct infer_model *m, const char *device, const char *kv) {
    struct infer_engine *whole = open_engine(m, device, kv, LONG), *e = open_engine(m, device, kv, 48);
    float at200[VOCAB], want[VOCAB], got[VOCAB];
    int32_t ids[LONG];
    char path[64];
    int a, b, n;
    for (int i = 0; i < LONG; i++) ids[i] = id_at(i);
    assert_ok(infer_seq_open(whole, &a));
    steps(whole, a, 0, 200, LONG, false, at200);
    steps(whole, a, 200, LONG, 1, true, want);
    assert_ok(infer_seq_open(e, &a));
    steps(e, a, 0, 200, 48, false, got);
    expect_same(got, at200, device, kv, "in steps");
    assert_ok(infer_seq_rewind(e, a, 131));
    assert_int_equal(infer_seq_length(e, a), 131);
    steps(e, a, 131, 200, 33, false, got);
    expect_same(got, at200, device, kv, "after a rewind");
    snprintf(path, sizeof path, "/tmp/infer-latent-%d", (int)getpid());
    assert_ok(infer_seq_save(e, a, path));
    poison_free_pages(e);
    steps(e, a, 200, LONG, 3, true, got);
    expect_same(got, want, device, kv, "beside poison");
    assert_ok(infer_seq_open(e, &b));
    assert_ok(infer_seq_load(e, b, path));
    unlink(path);
    steps(e, b, 200, LONG, 1, true, got);
    expect_same(got, want, device, kv, "of a snapshot");
    infer_seq_close(e, b);
    assert_ok(infer_seq_open(e, &b));
    assert_ok(infer_seq_prefix(e, b, ids, 200, NULL, &n));
    assert_int_equal(n, 192);
    steps(e, b, n, 200, 48, false, got);
    expect_same(got, at200, device, kv, "of a prefix");
    infer_engine_free(whole);
    infer_engine_free(e);
}

static void sequences_keep_latents(void **state) {
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    static const struct {
        const char *name;
        size_t bytes; /* of 16 + 8 numbers */
    } kv[] = {{"f32", 96}, {"f16", 48}, {"q8_0", 34}, {"f8", 26}, {"q4_0", 18}};
    char path[512];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/deepseek_v2"), NULL));
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 5; k++) {
            struct infer_engine *e = open_engine(m, devices[d], kv[k].name, 48);
            struct infer_engine_info info;
            infer_engine_info(e, &info);
            assert_int_equal(info.kv[0].row_bytes,
                             3 * kv[k].bytes); /* one key of all heads in 3 layers, and no value */
            infer_engine_free(e);
            check_sequences(m, devices[d], kv[k].name);
        }
    infer_model_close(m);
}

/* ---- files of before April 2025 ---- */

/* Keys and values of each head of layer il as one matrix [H * (NOPE + VALUE)][RANK]. */
static void join(const struct tensorfile *f, int il, float *out) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", il);
    const float *k = tensorfile_find(f, name)->data;
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", il);
    const float *v = tensorfile_find(f, name)->data;
    for (int h = 0; h < H; h++) {
        float *to = out + h * (NOPE + VALUE) * RANK;
        for (int i = 0; i < NOPE; i++)
            for (int j = 0; j < RANK; j++) to[i * RANK + j] = k[(h * RANK + j) * NOPE + i];
        memcpy(to + NOPE * RANK, v + h * VALUE * RANK, VALUE * RANK * sizeof *to);
    }
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}
static bool key_is(const struct meta *m, const char *key) {
    return m->key.len == strlen(key) && memcmp(m->key.data, key, m->key.len) == 0;
}

/* f with attn_kv_b of a type in the place of both, and the keys of such files; or beside both, with the keys as they are. */
static void write_old(const struct tensorfile *f, enum quant_type type, bool beside, const char *path) {
    static float both[H * (NOPE + VALUE) * RANK];
    static uint8_t bytes[sizeof both];
    const struct quant_info *q = quant_info(type);
    const size_t n = sizeof both / sizeof *both;
    const uint32_t heads = H, key = NOPE + ROT, value = VALUE;
    struct gguf_writer *w;
    assert_ok(gguf_writer_open(&w, path));
    for (size_t i = 0; i < f->n_meta; i++) {
        struct meta m = f->meta[i];
        if (!beside && (key_is(&m, "deepseek2.attention.key_length_mla") ||
                        key_is(&m, "deepseek2.attention.value_length_mla")))
            continue;
        if (!beside && key_is(&m, "deepseek2.attention.head_count_kv")) m.raw = (const unsigned char *)&heads;
        if (!beside && key_is(&m, "deepseek2.attention.key_length")) m.raw = (const unsigned char *)&key;
        if (!beside && key_is(&m, "deepseek2.attention.value_length")) m.raw = (const unsigned char *)&value;
        gguf_writer_meta(w, &m);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < f->n_tensor; i++) {
            const struct tensor *t = &f->tensor[i];
            int il;
            bool k = ends_with(t->name, "attn_k_b.weight"), v = ends_with(t->name, "attn_v_b.weight");
            if (k) {
                char name[64];
                assert_int_equal(sscanf(t->name, "blk.%d.", &il), 1);
                snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", il);
                join(f, il, both);
                q->encode(bytes, both, n, NULL);
                if (pass) assert_ok(gguf_writer_data(w, bytes, quant_row_bytes(q, n)));
                if (!pass) gguf_writer_tensor(w, name, type, 2, (int64_t[4]){1, 1, H * (NOPE + VALUE), RANK});
            }
            if ((k || v) && !beside) continue;
            if (pass) assert_ok(gguf_writer_data(w, t->data, t->bytes));
            if (!pass) gguf_writer_tensor(w, t->name, t->type, t->n_dim, t->shape);
        }
        if (!pass) assert_ok(gguf_writer_begin(w));
    }
    assert_ok(gguf_writer_close(w));
}

static void old_files_have_keys_and_values_together(void **state) {
    (void)state;
    struct folder d;
    struct tensorfile *f;
    struct synth_report report;
    struct result now, old, both, coarse;
    char path[256], changed[256];
    folder_make(&d);
    folder_file(&d, path, "now.gguf");
    assert_ok(synth_write(
        &(struct synth_options){.shape = "tiny-latent", .type = "f32", .path = path, .seed = 3}, &report));
    compute(path, &now);
    if (now.status) fail_msg("%s", now.why);
    assert_ok(tensorfile_open(&f, path, NULL));
    write_old(f, QUANT_F32, false, folder_file(&d, changed, "old.gguf"));
    compute(changed, &old);
    if (!same(&old, &now)) fail_msg("the old file computes something else: %s", old.why);
    write_old(f, QUANT_Q8_0, true, folder_file(&d, changed, "both.gguf"));
    compute(changed, &both);
    if (!same(&both, &now)) fail_msg("a file with both computes something else: %s", both.why);
    write_old(f, QUANT_Q8_0, false, folder_file(&d, changed, "coarse.gguf"));
    compute(changed, &coarse);
    if (coarse.status) fail_msg("%s", coarse.why);
    double sum = 0, wrong = 0;
    for (int i = 0; i < now.n_vocab; i++) {
        sum += (double)now.logits[i] * (double)now.logits[i];
        wrong += pow((double)now.logits[i] - (double)coarse.logits[i], 2);
    }
    assert_true(wrong > 0 && wrong < 1e-3 * sum);
    tensorfile_close(f);
    folder_remove(&d);
}

/* Latents are read where they are chosen, 12 of them and in one layer those of the one before; keys of 12 numbers that choose, in three layers,
 * of every position. */
static void chosen_positions_are_read(void **state) {
    (void)state;
    enum { LATENT = 16 + 8, KEY = 12, LAYERS = 4, CHOOSE = 3, TOP = 12 };
    struct infer_model *m;
    struct infer_engine_info info;
    char path[512];
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/glm_moe_dsa"), NULL));
    struct infer_engine *e = open_engine(m, "cpu", "f32", 48);
    infer_engine_info(e, &info);
    for (int n = 5; n <= 205; n += 100) {
        const int seen = n < TOP ? n : TOP;
        const double want = 4.0 * (seen * LATENT * LAYERS + n * KEY * CHOOSE);
        assert_true(infer_kv_read_bytes(&info, n) == want);
    }
    infer_engine_free(e);
    infer_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chosen_positions_are_read),
                                       cmocka_unit_test(sequences_keep_latents),
                                       cmocka_unit_test(old_files_have_keys_and_values_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

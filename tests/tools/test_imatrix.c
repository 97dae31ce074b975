/* Importance matrices: what engines hand over of a step, both forms of files, and what quantize makes of them. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include <math.h>
#include "files/outfile.h"
#include "files/tensorfile.h"
#include "infer.h"
#include "tests/lib/pace.h"
#include "tools/file/imatrix.h"
#include "tools/file/mix.h"
#include "tools/file/quantize.h"
#include "tools/file/synth.h"

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
/* layers: the first so many of the shape's, 0: all */
static void synth(const char *name, const char *shape, int layers, const char *type) {
    char path[128];
    struct synth_report report;
    assert_ok(synth_write(
        &(struct synth_options){
            .shape = shape, .layers = layers, .type = type, .path = file_in(path, name), .seed = 7},
        &report));
}

/* ---- what engines hand over ---- */

enum { ROWS = 40 };

static void collect(void *user, const char *name, int n_matrix, int matrix, const float *x, int k) {
    struct imatrix *m = user;
    struct imatrix_entry *e;
    assert_ok(imatrix_add(m, name, n_matrix, k, &e));
    if (!x) return;
    assert_in_range(matrix, 0, n_matrix - 1);
    e->count[matrix]++;
    for (int i = 0; i < k; i++)
        e->sum2[(size_t)matrix * (size_t)k + (size_t)i] += (double)x[i] * (double)x[i];
}

static void run_step(const char *name, const char *device, bool decode, struct imatrix *m) {
    char path[128];
    struct infer_model *model;
    struct infer_engine *e;
    struct infer_row rows[ROWS] = {0};
    struct infer_output out;
    int seq;
    assert_ok(infer_model_open(&model, file_in(path, name), NULL));
    assert_ok(infer_engine_create(&e, model,
                                  &(struct infer_engine_options){.device = device,
                                                                 .kv_type = "f32",
                                                                 .ctx = 64,
                                                                 .threads = 2,
                                                                 .gpu_layers = -1,
                                                                 .cpu_experts = -1,
                                                                 .decode_rows = ROWS,
                                                                 .tap = collect,
                                                                 .tap_user = m}));
    const int announced = m->n_entry;
    assert_true(announced > 4);
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < ROWS; i++)
        rows[i] = (struct infer_row){.id = i * 7 % 331, .pos = i, .seq = seq, .decode = decode};
    rows[ROWS - 1].want = INFER_WANT_TOKEN;
    assert_ok(infer_step(e, rows, ROWS, &out));
    assert_int_equal(m->n_entry, announced);
    infer_engine_free(e);
    infer_model_close(model);
}

/* Every weight matrix of the file has an entry with its sizes, every row of the step is in it, and the sums are those of ref. */
static void check_against_ref(const char *name, const struct imatrix *ref, const struct imatrix *m,
                              double tolerance) {
    char path[128];
    struct tensorfile *f;
    int n = 0;
    assert_ok(tensorfile_open(&f, file_in(path, name), &(struct tensorfile_options){0}));
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        if (strncmp(t->name, "blk.", 4) != 0 || !mix_is_matrix(t->name, t->n_dim)) continue;
        const struct imatrix_entry *a = imatrix_find(ref, t->name), *b = imatrix_find(m, t->name);
        if (!a || !b) fail_msg("%s: %s has no entry", name, t->name);
        assert_true(imatrix_fits(b, t->shape[1], t->shape[3]));
        double count = 0, square = 0, error = 0;
        for (int k = 0; k < b->n_matrix; k++) count += b->count[k];
        const int rows = t->shape[1] == 1                    ? ROWS
                         : strstr(t->name, "_exps.") != NULL ? ROWS * 3 /* experts that a row uses */
                                                             : ROWS * (int)t->shape[1];
        /* slices that are not multiplied together count anew */
        if ((int)count % rows || count == 0)
            fail_msg("%s: %s has %g rows, not %d", name, t->name, count, rows);
        for (int64_t k = 0; k < (int64_t)b->n_matrix * b->k; k++) {
            square += a->sum2[k] * a->sum2[k];
            error += (a->sum2[k] - b->sum2[k]) * (a->sum2[k] - b->sum2[k]);
        }
        if (!(square > 0 && sqrt(error / square) < tolerance))
            fail_msg("%s: %s: %g of %d rows", name, t->name, sqrt(error / square), (int)count);
        n++;
    }
    assert_true(n > 10);
    tensorfile_close(f);
}

static void engines_hand_over(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-moe", "tiny-latent", "tiny-delta", "tiny-nemotron"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += EVERY(2)) {
        synth("m.gguf", shapes[i], 0, "f32");
        struct imatrix ref = {0};
        run_step("m.gguf", "ref", false, &ref);
        for (int decode = 0; decode < 2; decode++) {
            struct imatrix cpu = {0};
            run_step("m.gguf", "cpu", decode, &cpu);
            check_against_ref("m.gguf", &ref, &cpu, 1e-3);
            imatrix_free(&cpu);
        }
        imatrix_free(&ref);
    }
}

/* ---- files ---- */

static void make(struct imatrix *m) {
    struct imatrix_entry *e;
    *m = (struct imatrix){.n_chunk = 3, .chunk_size = 512};
    strcpy(m->dataset, "words.txt");
    assert_ok(imatrix_add(m, "blk.0.attn_q.weight", 1, 256, &e));
    for (int i = 0; i < 256; i++) e->sum2[i] = (double)(i * i);
    e->count[0] = 8;
    assert_ok(imatrix_add(m, "blk.0.ffn_down_exps.weight", 3, 4, &e));
    for (int i = 0; i < 12; i++) e->sum2[i] = i < 4 ? 0 : i;
    e->count[1] = 2, e->count[2] = 5;
    assert_int_equal(imatrix_add(m, "blk.0.attn_q.weight", 1, 128, &e), INFER_E_INPUT);
}

static void files_come_back(void **state) {
    (void)state;
    char path[128];
    struct imatrix m, back;
    struct gguf_writer *w;
    float x[4];
    make(&m);
    assert_ok(gguf_writer_open(&w, file_in(path, "i.gguf")));
    assert_ok(imatrix_write(&m, w));
    assert_ok(gguf_writer_close(w));
    assert_ok(imatrix_read(&back, path));
    assert_int_equal(back.n_entry, 2);
    assert_int_equal(back.n_chunk, 3);
    assert_string_equal(back.dataset, "words.txt");
    for (int i = 0; i < 2; i++) {
        assert_string_equal(back.entry[i].name, m.entry[i].name);
        const size_t n = (size_t)(m.entry[i].n_matrix * m.entry[i].k);
        assert_memory_equal(back.entry[i].sum2, m.entry[i].sum2, n * sizeof(double));
        assert_memory_equal(back.entry[i].count, m.entry[i].count,
                            (size_t)m.entry[i].n_matrix * sizeof(double));
    }
    imatrix_importance(&back.entry[1], 0, 4, 0, 4, x); /* no row came */
    assert_true(x[0] == 1 && x[3] == 1);
    imatrix_importance(&back.entry[1], 2, 4, 1, 3, x);
    assert_true(x[0] == 9 / 5.0f && x[2] == 11 / 5.0f);
    assert_null(imatrix_find(&back, "blk.1.attn_q.weight"));
    imatrix_free(&back);
    imatrix_free(&m);
}

/* The older form, written here byte by byte; and what is refused. */
static void older_files(void **state) {
    (void)state;
    static const struct {
        const char *what, *says;
        int cut, place;
        int32_t value;
    } bad[] = {{"cut in the values", "is cut", 40, -1, 0},
               {"cut in a name", "is cut", 10, -1, 0},
               {"a name too long", "the length of a name is 1000", 0, 4, 1000},
               {"values below none", "the number of values is -1", 0, 31, -1},
               {"not a number", "holds nan", 0, 39, 0x7fc00000}};
    char path[128];
    unsigned char b[80];
    int32_t n[] = {1, 19, 2, 8, 7, 9};
    float v[8] = {2, 4, 6, 8, 10, 12, 14, 16}, x[4];
    struct imatrix m;
    memcpy(b, n, 8);
    memcpy(b + 8, "blk.0.ffn_up.weight", 19);
    memcpy(b + 27, n + 2, 8);
    memcpy(b + 35, v, 32);
    memcpy(b + 67, n + 4, 4);
    memcpy(b + 71, n + 5, 4);
    memcpy(b + 71, &(int32_t){4}, 4);
    memcpy(b + 75, "text", 4);
    assert_ok(outfile_put(file_in(path, "old.dat"), OUTFILE_DEFAULT, b, 79));
    assert_ok(imatrix_read(&m, path));
    assert_int_equal(m.n_chunk, 7);
    assert_string_equal(m.dataset, "text");
    assert_true(imatrix_fits(&m.entry[0], 2, 4)); /* two experts of four columns */
    assert_false(imatrix_fits(&m.entry[0], 2, 8) && imatrix_fits(&m.entry[0], 3, 4));
    imatrix_importance(&m.entry[0], 1, 4, 0, 4, x);
    assert_true(x[0] == 5 && x[3] == 8);
    imatrix_free(&m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        unsigned char c[80];
        memcpy(c, b, 79);
        if (bad[i].place >= 0) memcpy(c + bad[i].place, &bad[i].value, 4);
        assert_ok(outfile_put(path, OUTFILE_DEFAULT, c, bad[i].cut ? (size_t)bad[i].cut : 79));
        assert_int_equal(imatrix_read(&m, path), INFER_E_INPUT);
        if (!strstr(err_message(), bad[i].says)) fail_msg("%s: %s", bad[i].what, err_message());
        imatrix_free(&m);
    }
    synth("s.gguf", "tiny", 0, "f16");
    assert_int_equal(imatrix_read(&m, file_in(path, "s.gguf")), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "is no importance matrix"));
    imatrix_free(&m);
}

/* ---- quantize ---- */

static enum infer_status quantize(const char *type, const char *only, const char *imatrix,
                                  struct quantize_report *r) {
    char in[128], out[128], im[128];
    return quantize_file(&(struct quantize_options){.in = file_in(in, "m.gguf"),
                                                    .out = file_in(out, "q.gguf"),
                                                    .force = true,
                                                    .type = type,
                                                    .only = only,
                                                    .imatrix = imatrix ? file_in(im, imatrix) : NULL},
                         r);
}

/* Errors of columns count as the file says, in every matrix of a stack its own. */
static void quantize_weighs(void **state) {
    (void)state;
    char path[128];
    struct quantize_report r;
    struct imatrix m = {0};
    struct gguf_writer *w;
    struct tensorfile *a, *b;
    synth("m.gguf", "tiny-moe", 0, "f32");
    run_step("m.gguf", "ref", false, &m);
    assert_ok(gguf_writer_open(&w, file_in(path, "i.gguf")));
    assert_ok(imatrix_write(&m, w));
    assert_ok(gguf_writer_close(w));
    imatrix_free(&m);
    assert_ok(imatrix_read(&m, path)); /* float32 now */
    assert_ok(quantize("q4_k_s", NULL, "i.gguf", &r));
    assert_int_equal(r.n_unweighed, 0);
    assert_ok(tensorfile_open(&a, file_in(path, "m.gguf"), &(struct tensorfile_options){0}));
    assert_ok(tensorfile_open(&b, file_in(path, "q.gguf"), &(struct tensorfile_options){0}));
    for (size_t i = 0; i < a->n_tensor; i++) {
        const struct tensor *s = &a->tensor[i], *t = &b->tensor[i];
        const struct imatrix_entry *e = strncmp(s->name, "blk.", 4) ? NULL : imatrix_find(&m, s->name);
        const struct quant_info *q = quant_info(t->type);
        if (!e || !mix_is_matrix(s->name, s->n_dim)) continue;
        const size_t cols = (size_t)s->shape[3], rows = (size_t)(s->shape[1] * s->shape[2]);
        float importance[512];
        unsigned char want[2048];
        assert_true(cols <= 512);
        for (size_t row = 0; row < rows; row++) {
            imatrix_importance(e, (int64_t)row / s->shape[2], (int64_t)cols, 0, (int64_t)cols, importance);
            q->encode(want, (const float *)s->data + row * cols, cols, importance);
            if (memcmp(want, (const char *)t->data + row * quant_row_bytes(q, cols),
                       quant_row_bytes(q, cols)))
                fail_msg("%s, row %d", s->name, (int)row);
        }
    }
    const struct meta *entries = tensorfile_meta(b, "quantize.imatrix.entries_count");
    assert_non_null(entries);
    assert_int_equal(meta_elem_i64(entries, 0), m.n_entry);
    tensorfile_close(a);
    tensorfile_close(b);

    assert_ok(quantize("iq2_xs", "blk.1.attn_k.weight", "i.gguf", &r));
    assert_int_equal(quantize("iq2_xs", NULL, NULL, &r), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "needs an importance matrix"));
    synth("m.gguf", "tiny-128", 0, "f32"); /* other sizes */
    assert_int_equal(quantize("q4_0", NULL, "i.gguf", &r), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "of another model?"));
    imatrix_free(&m);
}

/* ---- the best types for a size ---- */

static double bits(const char *name) {
    char path[128];
    struct tensorfile *f;
    double bytes = 0, elements = 0;
    assert_ok(tensorfile_open(&f, file_in(path, name), &(struct tensorfile_options){0}));
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        bytes += (double)t->bytes;
        elements += (double)t->bytes / quant_info(t->type)->bytes * quant_info(t->type)->elems;
    }
    tensorfile_close(f);
    return bytes * 8 / elements;
}

static double error2; /* of all matrices */
static void add_error(void *user, const struct quantize_error *e) {
    (void)user;
    error2 += e->error2 / e->square;
}
static enum infer_status best(double bpw, const char *type) {
    char in[128], out[128];
    struct quantize_report r;
    error2 = 0;
    enum infer_status s = quantize_file(&(struct quantize_options){.in = file_in(in, "m.gguf"),
                                                                   .out = file_in(out, "q.gguf"),
                                                                   .force = true,
                                                                   .type = type,
                                                                   .bpw = bpw,
                                                                   .check = add_error},
                                        &r);
    if (!s && bpw > 0) assert_true(fabs(r.bpw - bits("q.gguf")) < 1e-9);
    return s;
}

/* Never above the size and near it, less error with more bits, and less than one type everywhere at the same size has. */
static void best_types(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny-odd", "tiny-moe"};
    static const double sizes[] = {4.7, 5.3, 9, 17};
    for (size_t i = 0; i < 2; i += EVERY(2)) {
        double before = INFINITY;
        synth("m.gguf", shapes[i], 1, "f32"); /* a second layer would take as long again */
        for (size_t k = 0; k < (i ? 1 : sizeof sizes / sizeof *sizes);
             k++) { /* large matrices take their time */
            assert_ok(best(sizes[k], NULL));
            const double have = bits("q.gguf");
            if (!(have <= sizes[k] && have > sizes[k] - 1 && error2 < before))
                fail_msg("%s: %g bits of %g, error %g after %g", shapes[i], have, sizes[k], error2, before);
            before = error2;
        }
        if (i) break;
        assert_ok(best(0, "q5_1"));
        const double same = bits("q.gguf"), theirs = error2;
        assert_ok(best(same, NULL));
        if (!(error2 < theirs)) fail_msg("%s: %g, q5_1 has %g", shapes[i], error2, theirs);
        assert_int_equal(best(1.5, NULL), INFER_E_INPUT);
        assert_non_null(strstr(err_message(), "are too few: at least 4."));
    }
    assert_int_equal(best(0, NULL), INFER_E_INPUT);
}

/* NF4 with double-quantised constants, as our GGUF files have it: what was packed comes back, runs, and a broken constant is named. */
static void nf4_files(void **state) {
    (void)state;
    static unsigned char packed[1 << 20];
    static struct block_NF4 blocks[1 << 12];
    char path[128];
    struct quantize_report r;
    struct imatrix ref = {0}, cpu = {0};
    struct tensorfile *a, *b;
    uint64_t at = 0;
    synth("m.gguf", "tiny-moe", 0, "f32");
    assert_ok(quantize("nf4", NULL, NULL, &r));
    assert_ok(tensorfile_open(&a, file_in(path, "m.gguf"), &(struct tensorfile_options){0}));
    assert_ok(tensorfile_open(&b, file_in(path, "q.gguf"), &(struct tensorfile_options){0}));
    for (size_t i = 0; i < a->n_tensor; i++) {
        const struct tensor *s = &a->tensor[i], *t = &b->tensor[i];
        const size_t n = (size_t)(s->shape[2] * s->shape[3]);
        double error = 0, square = 0;
        if (t->type != QUANT_NF4) continue;
        for (size_t m = 0; m < (size_t)s->shape[1] && m < 2; m++) { /* each matrix has groups of its own */
            const float *x = (const float *)s->data + m * n;
            for (size_t k = 0; k < n; k += QUANT_NF4_GROUP)
                quant_nf4_pack(packed + quant_nf4_packed_bytes(k), x + k,
                               n - k < QUANT_NF4_GROUP ? n - k : QUANT_NF4_GROUP, NULL);
            assert_true(quant_nf4_unpack(blocks, packed, n));
            assert_memory_equal((const struct block_NF4 *)t->data + m * n / 64, blocks,
                                n / 64 * sizeof *blocks);
            for (size_t k = 0; k < n; k++) {
                float y = blocks[k / 64].s * quant_nf4_levels[blocks[k / 64].q[k % 64 / 2] >> k % 2 * 4 & 15];
                error += ((double)x[k] - (double)y) * ((double)x[k] - (double)y);
                square += (double)x[k] * (double)x[k];
            }
        }
        if (!(sqrt(error / square) < 0.1)) fail_msg("%s: error %g", s->name, sqrt(error / square));
        at = t->offset;
    }
    assert_true(at > 0);
    tensorfile_close(a);
    tensorfile_close(b);

    run_step("q.gguf", "ref", false, &ref);
    run_step("q.gguf", "cpu", false, &cpu);
    check_against_ref("q.gguf", &ref, &cpu, 0.1); /* a row may go to another expert */
    imatrix_free(&ref);
    imatrix_free(&cpu);

    FILE *f = fopen(file_in(path, "q.gguf"), "r+b"); /* the last tensor's first step */
    assert_ok(fseek(f, (long)at + 4, SEEK_SET));
    assert_int_equal(fwrite(&(float){INFINITY}, 4, 1, f), 1);
    fclose(f);
    assert_int_equal(tensorfile_open(&b, path, &(struct tensorfile_options){0}), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "a constant of its NF4 blocks is not finite"));
}

/* ---- quantised folders as GGUF ---- */

/* convert --type keep: blocks that GGUF has as they are, the others as halves, and the report says by how much those are rounded. */
static void folders_keep(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        enum quant_type type; /* of its matrices, in GGUF */
    } all[] = {{"awq", QUANT_F16},          {"bnb-fp4", QUANT_F16},
               {"bnb-int8", QUANT_F16},     {"bnb-nf4", QUANT_F16},
               {"ct-fp8", QUANT_F16},       {"ct-int8", QUANT_F16},
               {"auto-round", QUANT_F16},   {"ct-mxfp4", QUANT_MXFP4},
               {"ct-mxfp8", QUANT_BF16},    {"ct-nvfp4", QUANT_NVFP4},
               {"ct-w4", QUANT_F16},        {"ct-w8", QUANT_Q8_0},
               {"fp8-blocks", QUANT_F16},   {"gptq", QUANT_F16},
               {"gptq-8", QUANT_Q8_0},      {"gptq-8-asym", QUANT_F32},
               {"gptq-order", QUANT_F32},   {"gptq-sym", QUANT_Q4_0},
               {"modelopt-fp8", QUANT_F16}, {"modelopt-nvfp4", QUANT_NVFP4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64], from[512], to[128];
        struct quantize_report r;
        struct tensorfile *a, *b;
        snprintf(name, sizeof name, "golden/hf/packed-%s", all[i].folder);
        test_path(from, sizeof from, name);
        assert_ok(quantize_file(
            &(struct quantize_options){.in = from, .out = file_in(to, "k.gguf"), .type = "keep"}, &r));
        assert_ok(tensorfile_open(&a, from, &(struct tensorfile_options){.for_gguf = true}));
        assert_ok(tensorfile_open(&b, to, &(struct tensorfile_options){0}));
        assert_int_equal(tensorfile_find(b, "blk.0.ffn_up.weight")->type, all[i].type);
        if ((r.n_rounded > 0) != (all[i].type == QUANT_F16) || r.rounded > 0x1p-11)
            fail_msg("%s: %d matrices rounded by %g", all[i].folder, r.n_rounded, r.rounded);
        for (size_t k = 0; k < a->n_tensor; k++) {
            const struct tensor *s = &a->tensor[k], *t = tensorfile_find(b, s->name);
            static float x[1 << 16], y[1 << 16];
            const size_t n = s->bytes / quant_info(s->type)->bytes * quant_info(s->type)->elems;
            if (!t) fail_msg("%s: %s is not there", all[i].folder, s->name);
            if (strstr(s->name, "attn_q.") || strstr(s->name, "attn_k.")) continue; /* rows in GGUF's order */
            assert_true(n <= 1 << 16);
            quant_info(s->type)->decode(x, s->data, n);
            quant_info(t->type)->decode(y, t->data, n);
            for (size_t e = 0; e < n; e++) {
                const float near = t->type == QUANT_F16 ? fabsf(x[e]) * 0x1p-11f + 0x1p-25f : 0;
                if (!(fabsf(x[e] - y[e]) <= near))
                    fail_msg("%s: %s: element %d is %g, not %g", all[i].folder, s->name, (int)e, (double)y[e],
                             (double)x[e]);
            }
        }
        tensorfile_close(a);
        tensorfile_close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_hand_over), cmocka_unit_test(files_come_back), cmocka_unit_test(older_files),
        cmocka_unit_test(quantize_weighs),   cmocka_unit_test(nf4_files),       cmocka_unit_test(best_types),
        cmocka_unit_test(folders_keep),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

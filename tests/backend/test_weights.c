/* What struct weight says beside a plain matrix: slices of fused tensors, factors, stacks, side tensors; who computes them and who
 * refuses. */
#include "tests/lib/weights.h"
#include "tests/lib/pace.h"
#include "tests/lib/random.h"
#include "tests/lib/relative.h"
#include "seam/weight.h"
#include "tests/lib/tolerance.h"

/* ---- whole models ---- */

enum { N_PROMPT = 40, N_DECODE = 3, N_OUT = 1 + N_DECODE };

/* Logits of the last prompt row and of N_DECODE rows after it: out[N_OUT][n_vocab], to be freed. */
static float *logits(struct infer_model *m, const char *device, bool no_fuse, int *n_vocab) {
    struct infer_engine_options o = {
        .device = device, .kv_type = "f32", .ctx = 64, .threads = 2, .gpu_layers = -1, .no_fuse = no_fuse};
    struct infer_engine *e;
    struct infer_model_info info;
    struct infer_output out;
    struct infer_row row[N_PROMPT];
    int seq;
    assert_ok(infer_engine_create(&e, m, &o));
    infer_model_info(m, &info);
    *n_vocab = info.n_vocab;
    float *y = malloc((size_t)N_OUT * (size_t)info.n_vocab * sizeof *y);
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N_PROMPT; i++)
        row[i] = (struct infer_row){.id = i * 7 % info.n_vocab,
                                    .pos = i,
                                    .seq = seq,
                                    .want = i + 1 == N_PROMPT ? INFER_WANT_LOGITS : 0};
    assert_ok(infer_step(e, row, N_PROMPT, &out));
    memcpy(y, out.logits[0], (size_t)info.n_vocab * sizeof *y);
    for (int i = 0; i < N_DECODE; i++) {
        row[0] = (struct infer_row){
            .id = i + 5, .pos = N_PROMPT + i, .seq = seq, .decode = true, .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(e, row, 1, &out));
        memcpy(y + (size_t)(i + 1) * (size_t)info.n_vocab, out.logits[0], (size_t)info.n_vocab * sizeof *y);
    }
    infer_engine_free(e);
    return y;
}

/* The rows of a fused tensor are what the single tensors are: sizes, and every bit of the logits. */
static void fused_tensors_are_sliced(void **state) {
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    for (int t = 0; t < QUANT_COUNT; t++) {
        if (same_kernel((enum quant_type)t)) continue;
        struct infer_model *plain, *one;
        const char *arch = t % 3 == 0   ? "qwen2"
                           : t % 3 == 1 ? "llama"
                                        : "qwen3",
                   *type = quant_info((enum quant_type)t)->name;
        open_both(arch, t % 2 ? "tiny" : "tiny-odd", type, &plain, &one);
        assert_true(one->m->file->n_tensor < plain->m->file->n_tensor);
        assert_int_equal(one->m->n_param, plain->m->n_param);
        assert_int_equal(one->m->token_bytes, plain->m->token_bytes);
        assert_int_equal(one->m->n_group, plain->m->n_group);
        for (int d = 0; d < 2; d++) {
            int n;
            float *want = logits(plain, devices[d], false, &n), *got = logits(one, devices[d], false, &n);
            if (memcmp(got, want, sizeof(float) * N_OUT * (size_t)n))
                fail_msg("%s %s on %s: other bits", arch, type, devices[d]);
            free(want);
            free(got);
        }
        infer_model_close(plain);
        infer_model_close(one);
    }
}

/* A factor at every matrix: cpu computes what ref does, folded into other operations and not; the head's is exact. */
static void factors_scale(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "q8_0", "q4_k"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct infer_model *m, *one;
        int n;
        open_both("qwen2", "tiny", types[t], &m, &one);
        float *plain = logits(m, "ref", false, &n);
        m->m->head.member[0].factor = 0.25f;
        float *head = logits(m, "ref", false, &n);
        for (int i = 0; i < N_OUT * n; i++) assert_true(head[i] == plain[i] * 0.25f);
        set_factors(m);
        float *want = logits(m, "ref", false, &n);
        assert_true(relative(want, head, (size_t)n) > 0.1);
        for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
            float *got = logits(m, "cpu", no_fuse, &n);
            double error = relative(got, want, N_OUT * (size_t)n);
            if (!(error < (t < 2 ? TOL_OP_BF16 : TOL_OP_INT8)))
                fail_msg("%s, no_fuse %d: %g", types[t], no_fuse, error);
            free(got);
        }
        set_factors(one);
        float *sliced = logits(one, "cpu", false, &n), *whole = logits(m, "cpu", false, &n);
        assert_memory_equal(sliced, whole, sizeof(float) * N_OUT * (size_t)n);
        free(plain), free(head), free(want), free(sliced), free(whole);
        infer_model_close(m);
        infer_model_close(one);
    }
}

/* The file with a tensor X.scale of n elements beside every matrix X.weight: what set_factors sets, or with odd the number odd. */
static void write_scales(const char *from, const char *to, int n, float odd) {
    struct infer_model *im;
    struct gguf_writer *w;
    assert_ok(infer_model_open(&im, from, NULL));
    const struct model *m = im->m;
    set_factors(im);
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < m->file->n_meta; i++) gguf_writer_meta(w, &m->file->meta[i]);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < m->file->n_tensor; i++) {
            const struct tensor *t = &m->file->tensor[i];
            if (pass)
                assert_ok(gguf_writer_data(w, t->data, t->bytes));
            else
                gguf_writer_tensor(w, t->name, t->type, t->n_dim, t->shape);
        }
        for (int i = -1; i < m->n_group; i++)
            for (int k = 0; k < (i < 0 ? 1 : m->group[i]->n_member); k++) {
                const struct weight *x = i < 0 ? &m->embd : &m->group[i]->member[k];
                char name[64];
                snprintf(name, sizeof name, "%.*sscale", (int)(strlen(x->name) - strlen("weight")), x->name);
                const float value[2] = {odd != 0 ? odd : x->factor, 1};
                if (pass)
                    assert_ok(gguf_writer_data(w, value, (size_t)n * sizeof *value));
                else
                    gguf_writer_tensor(w, name, QUANT_F32, 1, (int64_t[4]){1, 1, 1, n});
            }
        if (!pass) assert_ok(gguf_writer_begin(w));
    }
    assert_ok(gguf_writer_close(w));
    infer_model_close(im);
}

/* X.scale of GGUF is X.weight's factor; more than one number, or none that is finite, is refused with its name. */
static void factors_come_from_files(void **state) {
    (void)state;
    char path[SYNTH_PATH], other[64];
    struct infer_model *set, *read;
    int n;
    synth_temporary(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 3}, path);
    snprintf(other, sizeof other, "%s-scaled", path);
    write_scales(path, other, 1, 0);
    assert_ok(infer_model_open(&set, path, NULL));
    set_factors(set);
    assert_ok(infer_model_open(&read, other, NULL));
    float *want = logits(set, "cpu", false, &n), *got = logits(read, "cpu", false, &n);
    assert_memory_equal(got, want, sizeof(float) * N_OUT * (size_t)n);
    infer_model_close(set);
    infer_model_close(read);
    free(want), free(got);
    write_scales(path, other, 2, 0);
    assert_int_equal(infer_model_open(&read, other, NULL), INFER_E_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "token_embd.scale"));
    write_scales(path, other, 1, INFINITY);
    assert_int_equal(infer_model_open(&read, other, NULL), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "token_embd.scale is inf"));
    unlink(path);
    unlink(other);
}

/* ---- one product ---- */

enum { T = 3, K = 64, N = 24 };

struct product {
    struct op op[2];
    struct buf buf[2];
    struct op_list list[ROW_CLASS_COUNT];
    struct weight x; /* of T rows */
    struct weight_group group;
    const struct weight_group *groups[1];
    struct kv_group kv;
    struct backend_config c;
    float rows[T][K];
};

/* out[T][n] = the group's product with T random rows, the same ones for all. */
static void product_make(struct product *p, const struct weight *w) {
    *p = (struct product){.group = {.n_member = 1, .n = w->n, .k = w->k, .member = {*w}}};
    seed = 4711;
    for (int i = 0; i < T * K; i++) p->rows[i / K][i % K] = uniform();
    p->x = (struct weight){
        .name = "x", .type = QUANT_F32, .n = T, .k = K, .factor = 1, .n_stack = 1, .data = p->rows};
    p->buf[0] = (struct buf){.name = "x", .width = K, .last = 1};
    p->buf[1] = (struct buf){.name = "y", .width = w->n, .first = 1, .last = 1};
    p->op[0] = (struct op){.kind = OP_EMBED, .name = "embed", .embed = {{0, 0, K}, &p->x, 1, false}};
    p->op[1] = (struct op){
        .kind = OP_MATMUL, .name = "matmul", .matmul = {{0, 0, w->k}, {1, 0, w->n}, &p->group, false}};
    p->groups[0] = &p->group;
    p->c = (struct backend_config){.group = p->groups,
                                   .n_group = 1,
                                   .embedding = &p->x,
                                   .n_vocab = 1,
                                   .kv_group = &p->kv,
                                   .n_slot = 1,
                                   .n_ctx = T,
                                   .cpu = {.threads = 1}};
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        p->list[cls] = (struct op_list){
            .cls = (enum row_class)cls, .op = p->op, .n_op = 2, .buf = p->buf, .n_buf = 2, .max_rows = T};
        p->c.list[cls] = &p->list[cls];
    }
}
static void product_run(const struct backend_type *type, enum row_class cls, const struct weight *w,
                        float *out) {
    struct product p;
    struct backend *b;
    struct backend_sizes sizes;
    struct step_result result;
    product_make(&p, w);
    assert_ok(type->sizes(&p.c, &sizes));
    for (int i = 0; i < 2; i++) {
        p.buf[i].offset = p.c.activation_bytes;
        p.c.activation_bytes += (p.buf[i].row_bytes * T + 255) / 256 * 256;
    }
    assert_ok(type->open(&b, &p.c));
    assert_ok(type->upload(b));
    assert_ok(type->compile(b, cls));
    static const int32_t id[T] = {0, 1, 2}, slot[T];
    const struct step s = {.n_row = T, .id = id, .pos = id, .slot = slot};
    assert_ok(type->run(b, cls, &s));
    assert_ok(type->wait(b, &result));
    assert_ok(type->read(b, cls, p.op[1].matmul.out, T, out));
    type->close(b);
}

/* n random rows of K elements of a type, and their values. */
static uint8_t *random_rows(enum quant_type type, int n, float *value) {
    const struct quant_info *q = quant_info(type);
    size_t row = quant_row_bytes(q, K);
    uint8_t *data = malloc(row * (size_t)n);
    float x[K];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < K; k++) x[k] = uniform();
        q->encode(data + row * (size_t)i, x, K, NULL);
        if (value) q->decode(value + (size_t)i * K, data + row * (size_t)i, K);
    }
    return data;
}

/* Matrix e of a stack computes what it computes alone; between the matrices lie other bytes. */
static void stacks_are_addressed(void **state) {
    (void)state;
    enum { E = 3, GAP = 36 };
    static const enum quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t bytes = quant_row_bytes(quant_info(types[t]), K) * N;
        uint8_t *alone[E], *all = malloc((bytes + GAP) * E);
        float bias[E * N], got[T * N], want[T * N], other[T * N];
        memset(all, 0xff, (bytes + GAP) * E);
        for (int i = 0; i < E * N; i++) bias[i] = uniform();
        for (int e = 0; e < E; e++)
            memcpy(all + (bytes + GAP) * (size_t)e, alone[e] = random_rows(types[t], N, NULL), bytes);
        const struct weight stack = {.name = "experts",
                                     .type = types[t],
                                     .n = N,
                                     .k = K,
                                     .factor = 1,
                                     .n_stack = E,
                                     .stack_bytes = bytes + GAP,
                                     .data = all,
                                     .bias = bias};
        assert_int_equal(weight_bytes(&stack), bytes * E);
        for (int e = 0; e < E; e++)
            for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
                for (int cpu = 0; cpu < 2; cpu++) {
                    const struct weight one = {.name = "expert",
                                               .type = types[t],
                                               .n = N,
                                               .k = K,
                                               .factor = 1,
                                               .n_stack = 1,
                                               .data = alone[e],
                                               .bias = bias + e * N};
                    const struct weight matrix = weight_matrix(&stack, e),
                                        next = weight_matrix(&stack, (e + 1) % E);
                    const struct backend_type *type = cpu ? &backend_cpu : &backend_ref;
                    product_run(type, (enum row_class)cls, &matrix, got);
                    product_run(type, (enum row_class)cls, &one, want);
                    product_run(type, (enum row_class)cls, &next, other);
                    assert_memory_equal(got, want, sizeof got);
                    assert_memory_not_equal(got, other, sizeof got);
                }
        for (int e = 0; e < E; e++) free(alone[e]);
        free(all);
    }
}

/* A product has the same bits where the rows stand apart as where they follow each other. */
static void same_product(const struct backend_type *type, enum row_class cls, const struct weight *w) {
    const size_t row = weight_bytes(w) / (size_t)w->n;
    struct weight close = *w;
    float got[T * N], want[T * N];
    uint8_t *data = malloc(weight_bytes(w));
    for (int i = 0; i < w->n; i++) memcpy(data + row * (size_t)i, weight_row(w, i), row);
    close.pitch = 0, close.data = data;
    product_run(type, cls, w, got);
    product_run(type, cls, &close, want);
    assert_memory_equal(got, want, sizeof *got * T * (size_t)w->n);
    free(data);
}

/* Shares of columns lie where they are said to, keep the bias once, and their products add up to the whole one. */
static void shares_of_columns(void **state) {
    (void)state;
    static const enum quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        static float value[N * K];
        float bias[N];
        for (int i = 0; i < N; i++) bias[i] = uniform();
        uint8_t *data = random_rows(types[t], N, value);
        const struct weight whole = {.name = "w",
                                     .type = types[t],
                                     .n = N,
                                     .k = K,
                                     .factor = 1,
                                     .n_stack = 1,
                                     .data = data,
                                     .bias = bias};
        for (int share = 0; share < 2; share++) {
            const struct weight part = weight_columns(&whole, share * K / 2, K / 2),
                                some = weight_rows(&part, 3, 7);
            float got[K / 2];
            assert_ptr_equal(part.bias, share ? NULL : bias);
            assert_int_equal(weight_stride(&part), weight_stride(&whole));
            assert_int_equal(weight_bytes(&part), weight_bytes(&whole) / 2);
            for (int i = 0; i < 7; i++) {
                weight_decode_row(&some, i, got);
                assert_memory_equal(got, value + (i + 3) * K + share * K / 2, sizeof got);
            }
            for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
                for (int cpu = 0; cpu < 2; cpu++)
                    same_product(cpu ? &backend_cpu : &backend_ref, (enum row_class)cls, &part);
        }
        free(data);
    }
}

/* Runs of rows lie where they are said to, and so do the rows of what a run or a whole slice is a part of. */
static void runs_of_rows(void **state) {
    (void)state;
    static float data[24 * 4];
    const struct weight w = {
        .name = "w", .type = QUANT_F32, .n = 24, .k = 4, .factor = 1, .n_stack = 1, .data = data};
    const struct weight part = weight_runs(&w, 3, 3, 6, 12), all = weight_runs(&w, 2, 4, 4, 20);
    for (int i = 0; i < 12; i++) assert_ptr_equal(weight_row(&part, i), data + 4 * (3 + i / 3 * 6 + i % 3));
    assert_int_equal(weight_run(&part), 3);
    assert_int_equal(weight_stride(&part), sizeof *data * 4);
    assert_ptr_equal(weight_end(&part), data + 4 * 24);
    assert_int_equal(weight_run(&all), 20);
    assert_ptr_equal(weight_row(&all, 19), data + 4 * 21);
    const struct weight turns = weight_slice(&w, 1, 2, 12);
    assert_int_equal(weight_run(&turns), 12);
    assert_int_equal(weight_stride(&turns), sizeof *data * 8);
}

/* ---- refusals ---- */

/* A backend says so in sizes, before it takes anything, and names the tensor. */
static void refusals_name_the_tensor(void **state) {
    (void)state;
    static float data[N * K];
    const struct weight stack = {.name = "blk.3.ffn_gate_exps.weight",
                                 .type = QUANT_F32,
                                 .n = N / 2,
                                 .k = K,
                                 .factor = 1,
                                 .n_stack = 2,
                                 .stack_bytes = 4 * N * K / 2,
                                 .data = data};
    const struct {
        const char *backend;
        enum infer_status (*sizes)(const struct backend_config *c, struct backend_sizes *out);
        const struct weight *w;
        const char *what;
    } cases[] = {{"ref", backend_ref.sizes, &stack, "stack"},
                 {"cpu", backend_cpu.sizes, &stack, "stack"},
                 {"cuda", cuda_sizes, &stack, "stack"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct product p;
        struct backend_sizes sizes;
        product_make(&p, cases[i].w);
        assert_int_equal(cases[i].sizes(&p.c, &sizes), INFER_E_UNSUPPORTED);
        assert_non_null(strstr(err_message(), cases[i].backend));
        assert_non_null(strstr(err_message(), cases[i].w->name));
        assert_non_null(strstr(err_message(), cases[i].what));
        product_make(&p, &p.x); /* an embedding is asked too */
        p.x = *cases[i].w;
        assert_int_equal(cases[i].sizes(&p.c, &sizes), INFER_E_UNSUPPORTED);
        assert_non_null(strstr(err_message(), cases[i].w->name));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_come_from_files),
        cmocka_unit_test(fused_tensors_are_sliced),
        cmocka_unit_test(factors_scale),
        cmocka_unit_test(stacks_are_addressed),
        cmocka_unit_test(shares_of_columns),
        cmocka_unit_test(refusals_name_the_tensor),
        cmocka_unit_test(runs_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

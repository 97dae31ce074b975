/* Adapters: PEFT's logits on every model of tests/golden/adapter, on ref, the CPU and a card, from folders and GGUF; rows with and without in one
 * step; what the cache knows. Files that are refused: test_adapter_files.c. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/hf_golden.h"
#include "tests/lib/tolerance.h"
#include "base/host.h"
#include "cpu/cpu_isa.h"
#include "engine_impl.h"
#include "files/gguf_write.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_text.h"
#include "tools/file/merge.h"
#include "tools/file/quantize.h"

/* The logits with an adapter; the model's path and the adapter's. */
static void read_golden(struct golden *g, const char *const name[2], char adapter[512]) {
    char file[64];
    golden_read(g, name[0]);
    memcpy(adapter, g->path, 512);
    snprintf(file, sizeof file, "golden/hf/%.40s", name[1]);
    test_path(g->path, sizeof g->path, file);
}

static bool have_cuda, loose; /* loose: engines that follow may round F32 to TF32 */
static int n_rank;            /* of engines that follow */
static bool whole_experts;    /* the same: a rank has some experts, whole */

static struct infer_engine *engine(const struct infer_model *m, const char *device, int threads,
                                   struct infer_adapter *const *adapter, const float *scale, int n) {
    struct infer_engine *e;
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f32",
                                           .threads = threads,
                                           .ctx = MAX_TOKENS,
                                           .batch = 2 * MAX_TOKENS,
                                           .slots = 3,
                                           .decode_rows = 4,
                                           .all_logits = true,
                                           .strict_fp32 = !loose,
                                           .ranks = n_rank,
                                           .ep = whole_experts,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1,
                                           .adapter = (const struct infer_adapter *const *)adapter,
                                           .adapter_scale = scale,
                                           .n_adapter = n};
    assert_ok(infer_engine_create(&e, m, &o));
    return e;
}

/* The largest difference at the rows that are there, in standard deviations. */
static double difference(const struct golden *g, const struct infer_prompt *p, const float *got) {
    double top = 0;
    for (int i = 0; i < p->n_rows; i++)
        for (int k = 0; k < g->n_vocab; k++) {
            const double d = (double)got[(size_t)p->rows[i] * (size_t)g->n_vocab + (size_t)k] -
                             (double)p->logits[(size_t)i * (size_t)g->n_vocab + (size_t)k];
            top = fmax(top, fabs(d) / g->sd);
        }
    return top;
}

/* The second prompt as decode rows. */
static void check(const struct golden *g, struct infer_engine *e, const char *what, double tolerance) {
    for (const struct infer_prompt *p = g->prompt; p < g->prompt + N_PROMPT; p++) {
        const bool decode = p == g->prompt + 1;
        float *got = malloc(elements(g, p) * sizeof *got);
        compute(e, g, p, decode ? 3 : 33, decode, got);
        const double d = difference(g, p, got);
        if (!(d < tolerance))
            fail_msg("%s, %s: %.3g of the standard deviation, tolerance %.3g", g->name, what, d, tolerance);
        free(got);
    }
}

static const char *const rows[][2] = {
    {"../adapter/llama", "llama"},         {"../adapter/llama-second", "llama"},
    {"../adapter/qwen3", "qwen3"},         {"../adapter/phi3", "phi3"},
    {"../adapter/falcon_h1", "falcon_h1"}, {"../adapter/qwen3_next", "qwen3_next"},
    {"../adapter/mixtral", "mixtral"}};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* A row: the model and its adapter. */
struct adapted {
    struct golden g;
    struct infer_model *m;
    struct infer_adapter *a;
};
static struct adapted adapted_open(const char *const row[2]) {
    struct adapted o;
    char adapter[512];
    read_golden(&o.g, row, adapter);
    assert_ok(infer_model_open(&o.m, o.g.path, NULL));
    assert_ok(infer_adapter_open(&o.a, o.m, adapter, NULL));
    return o;
}
static void adapted_close(struct adapted *o) {
    infer_adapter_close(o->a);
    infer_model_close(o->m);
    golden_free(&o->g);
}
static void check_on(const struct adapted *o, const char *device, int threads, const char *what,
                     double tolerance) {
    struct infer_engine *e = engine(o->m, device, threads, &o->a, NULL, 1);
    assert_int_equal(e->n_rank, n_rank);
    check(&o->g, e, what, tolerance);
    infer_engine_free(e);
}

static void as_peft(void **state) {
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        struct adapted o = adapted_open(rows[i]);
        check_on(&o, "ref", 1, "ref", TOL_LOGITS_REF);
        if (cpu_isa_best() != CPU_ISA_NONE) check_on(&o, "cpu", 2, "cpu", TOL_LOGITS_FAST);
        adapted_close(&o);
    }
}

/* Each rank adds what is of its heads and columns, or experts: on two and three of them. */
static void as_peft_on_ranks(void **state) {
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        struct adapted o = adapted_open(rows[i]);
        n_rank = 2;
        check_on(&o, "ref", 2, "two ranks of ref", TOL_LOGITS_REF);
        n_rank = 3;
        if (cpu_isa_best() != CPU_ISA_NONE) check_on(&o, "cpu", 3, "three ranks of cpu", TOL_LOGITS_FAST);
        whole_experts = i == N_ROWS - 1; /* mixtral */
        for (n_rank = 2; whole_experts && n_rank < 4; n_rank++) {
            check_on(&o, "ref", 2, "ranks of ref with whole experts", TOL_LOGITS_REF);
            if (cpu_isa_best() == CPU_ISA_NONE) continue;
            check_on(&o, "cpu", 3, "ranks of cpu with whole experts", TOL_LOGITS_FAST);
        }
        n_rank = 0, whole_experts = false;
        adapted_close(&o);
    }
}

/* On a card matrices of adapters are halves; F32 weights by the plain kernels, and by those of TF32. */
static void as_peft_on_a_card(void **state) {
    (void)state;
    for (int i = 0; have_cuda && i < N_ROWS; i++) {
        struct adapted o = adapted_open(rows[i]);
        check_on(&o, "cuda", 1, "cuda, highest", TOL_LOGITS_FAST);
        loose = true;
        check_on(&o, "cuda", 1, "cuda", TOL_LOGITS_TF32);
        loose = false;
        adapted_close(&o);
    }
}

/* ---- GGUF ---- */

/* The adapter of a folder of llama as GGUF: each pair under its name there, B's rows of q and k so that neighbours rotate together. */
static void write_gguf(const char *folder, const struct model *m, const char *path) {
    struct adapterfile *f;
    struct gguf_writer *w;
    assert_ok(adapterfile_open(&f, folder, m->arch, m->n_layer));
    assert_ok(gguf_writer_open(&w, path));
    gguf_writer_str(w, "general.type", "adapter");
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_str(w, "adapter.type", "lora");
    gguf_writer_f32(w, "adapter.lora.alpha", 8);
    char name[80];
    for (size_t i = 0; i < f->n_pair; i++) {
        const struct adapter_pair *p = &f->pair[i];
        snprintf(name, sizeof name, "%s.lora_a", p->name);
        gguf_writer_tensor(w, name, QUANT_F16, 2, p->a->shape);
        snprintf(name, sizeof name, "%s.lora_b", p->name);
        gguf_writer_tensor(w, name, QUANT_F32, 2, p->b->shape);
    }
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_pair; i++) {
        const struct adapter_pair *p = &f->pair[i];
        const int64_t r = p->a->shape[2], k = p->a->shape[3], n = p->b->shape[2],
                      head = m->layer[0].attn.head_dim_k;
        const bool turns = strstr(p->name, "attn_q") || strstr(p->name, "attn_k");
        float *a = malloc((size_t)(r * k) * 4), *b = malloc((size_t)(n * r) * 4),
              *to = malloc((size_t)(n * r) * 4);
        uint16_t *half = malloc((size_t)(r * k) * 2);
        quant_info(p->a->type)->decode(a, p->a->data, (size_t)(r * k));
        quant_info(p->b->type)->decode(b, p->b->data, (size_t)(n * r));
        quant_info(QUANT_F16)->encode(half, a, (size_t)(r * k), NULL);
        for (int64_t row = 0; row < n; row++) {
            const int64_t h = row / head, j = row % head,
                          from = turns ? h * head + j % 2 * (head / 2) + j / 2 : row;
            for (int64_t c = 0; c < r; c++) to[row * r + c] = p->scale * (float)r / 8 * b[from * r + c];
        }
        assert_ok(gguf_writer_data(w, half, (size_t)(r * k) * 2));
        assert_ok(gguf_writer_data(w, to, (size_t)(n * r) * 4));
        free(a), free(b), free(to), free(half);
    }
    assert_ok(gguf_writer_close(w));
    adapterfile_close(f);
}

/* Both kinds of adapter on both kinds of model, whose rows of q and k are in another order; and of a quantised one. */
static void folders_and_gguf(void **state) {
    (void)state;
    struct golden g;
    struct folder d;
    struct quantize_report report;
    struct infer_model *m;
    char folder[512], gguf[256], whole[256], small[256];
    read_golden(&g, rows[0], folder);
    folder_make(&d);
    folder_file(&d, gguf, "adapter.gguf"), folder_file(&d, whole, "f32.gguf"),
        folder_file(&d, small, "q8_0.gguf");
    assert_ok(quantize_file(&(struct quantize_options){.in = g.path, .out = whole, .type = "f32"}, &report));
    assert_ok(quantize_file(&(struct quantize_options){.in = g.path, .out = small, .type = "q8_0"}, &report));
    assert_ok(infer_model_open(&m, g.path, NULL));
    write_gguf(folder, m->m, gguf);
    infer_model_close(m);
    const char *const models[] = {g.path, whole, small}, *const adapters[] = {folder, gguf};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            struct infer_adapter *a;
            assert_ok(infer_model_open(&m, models[i], NULL));
            assert_ok(infer_adapter_open(&a, m, adapters[k], NULL));
            struct infer_engine *e = engine(m, "ref", 1, &a, NULL, 1);
            check(&g, e, models[i], i == 2 ? 0.3 : TOL_LOGITS_REF);
            infer_engine_free(e);
            if (have_cuda) {
                e = engine(m, "cuda", 1, &a, NULL, 1);
                check(&g, e, models[i], i == 2 ? 0.3 : TOL_LOGITS_FAST);
                infer_engine_free(e);
            }
            infer_adapter_close(a);
            infer_model_close(m);
        }
    folder_remove(&d);
    golden_free(&g);
}

/* What infer merge writes has the logits of model and adapter; of a half scale too. */
static void merged(void **state) {
    (void)state;
    static const struct tensorfile_options none;
    for (int i = 0; i < N_ROWS; i++) {
        struct golden g;
        struct folder d;
        struct merge *merge;
        struct quantize_report report;
        struct infer_model *m;
        char adapter[512], out[256];
        read_golden(&g, rows[i], adapter);
        folder_make(&d);
        folder_file(&d, out, "merged.gguf");
        const struct merge_named half[] = {{adapter, 0.25f}, {adapter, 0.75f}};
        assert_ok(infer_model_open(&m, g.path, NULL));
        const bool tied = m->m->tied;
        infer_model_close(m);
        assert_ok(merge_open(&merge, g.path, &none, half, 2));
        assert_ok(quantize_file(
            &(struct quantize_options){.in = g.path, .out = out, .type = "f32", .merge = merge}, &report));
        merge_close(merge);
        assert_ok(infer_model_open(&m, out, NULL));
        assert_int_equal(m->m->tied, tied);
        struct infer_engine *e = engine(m, "ref", 1, NULL, NULL, 0);
        check(&g, e, "merged", TOL_LOGITS_REF);
        infer_engine_free(e);
        infer_model_close(m);
        folder_remove(&d);
        golden_free(&g);
    }
}

/* A control vector: scale times the direction, behind its layer, in the layers that are asked for. */
static void vectors_on(const char *device) {
    struct infer_model *m;
    struct infer_adapter *a;
    struct folder d;
    struct infer_output o;
    struct gguf_text g = {0};
    char path[512], file[256];
    float *want = NULL;
    folder_make(&d);
    gguf_text(
        &g,
        "head 3 1 1 key general.architecture 8 str controlvector tensor direction.1 0 0 32 pad 32 zero 128");
    for (int i = 0; i < 32; i++) {
        const float x = (float)(i % 5) - 2;
        memcpy(g.data + g.n - 128 + 4 * i, &x, 4);
    }
    folder_put(&d, "v.gguf", g.data, g.n);
    free(g.data);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    folder_file(&d, file, "v.gguf");
    const struct infer_adapter_options beyond = {2, 2}, all = {1, 1};
    assert_int_equal(infer_adapter_open(&a, m, file, &beyond), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "no direction is of layers 2 to 2"));
    assert_ok(infer_adapter_open(&a, m, file, &all));
    const int n = m->m->n_embd;
    const float half[] = {0.5f};
    /* the stream behind the last layer */
    struct infer_engine_options eo = {
        .device = device, .kv_type = "f32", .ctx = 64, .gpu_layers = -1, .cpu_experts = -1, .hidden = true};
    struct infer_engine *plain, *e;
    assert_ok(infer_engine_create(&plain, m, &eo));
    eo.adapter = (const struct infer_adapter *const *)&a, eo.adapter_scale = half, eo.n_adapter = 1;
    assert_ok(infer_engine_create(&e, m, &eo));
    for (int with = 0; with < 2; with++) {
        struct infer_engine *of = with ? e : plain;
        int seq;
        assert_ok(infer_seq_open(of, &seq));
        const struct infer_row row = {.id = 5, .seq = seq, .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(of, &row, 1, &o));
        float *x = malloc((size_t)n * sizeof *x);
        assert_ok(of->backend->type->read(of->backend, ROW_PROMPT, (struct view){0, 0, n}, 1, x));
        if (!with) {
            want = x;
            continue;
        }
        for (int i = 0; i < n; i++) /* the stream is the last thing in its buffer */
            assert_true(fabsf(x[i] - want[i] - 0.5f * ((float)(i % 5) - 2)) < 1e-5f);
        free(x);
    }
    free(want);
    infer_engine_free(plain), infer_engine_free(e);
    infer_adapter_close(a);
    infer_model_close(m);
    folder_remove(&d);
}
static void control_vectors(void **state) {
    (void)state;
    vectors_on("ref");
    if (have_cuda) vectors_on("cuda");
}

/* ---- rows with and without ---- */

enum { LONG = 90, SEQS = 3 };

/* Three sequences of the same tokens, by scales[i] (NULL: nothing is said), in steps together or one after the other: prompt, then ten
 * decode rows; out[SEQS][11][n_vocab]. */
static void answer(struct infer_engine *e, int n_vocab, const float *const scales[SEQS], bool together,
                   float *out) {
    struct infer_row row[SEQS * LONG];
    struct infer_output o;
    int seq[SEQS], n;
    for (int first = 0; first < SEQS; first += together ? SEQS : 1) {
        const int end = together ? SEQS : first + 1;
        for (int i = first; i < end; i++) {
            assert_ok(infer_seq_open(e, &seq[i]));
            assert_ok(infer_seq_prefix(e, seq[i], NULL, 0,
                                       &(struct infer_prefix){.salt = 7, .adapter = scales[i]}, &n));
        }
        for (int at = 0, step; at < LONG + 10; at += step) {
            const bool decode = at >= LONG;
            step = decode ? 1 : LONG;
            n = 0;
            for (int t = at; t < at + step; t++)
                for (int i = first; i < end; i++) /* rows of all in turns */
                    row[n++] = (struct infer_row){.id = (t * 7 + 3) % n_vocab,
                                                  .pos = t,
                                                  .seq = seq[i],
                                                  .decode = decode,
                                                  .want = t + 1 >= LONG ? INFER_WANT_LOGITS : 0};
            assert_ok(infer_step(e, row, n, &o));
            for (int i = first; i < end; i++)
                memcpy(out + ((size_t)i * 11 + (size_t)(decode ? at - LONG + 1 : 0)) * (size_t)n_vocab,
                       o.logits[i - first], (size_t)n_vocab * sizeof *out);
        }
        for (int i = first; i < end; i++) infer_seq_close(e, seq[i]);
    }
}

/* What `come` finds: a model with two adapters, the logits without, with the one and with the other. */
struct coming {
    struct golden g;
    struct infer_model *m;
    struct infer_adapter *a[2];
    float *want[3], *got; /* want[2]: without */
    size_t n;
};
static struct infer_engine_options room_on(const char *device, int rank) {
    return (struct infer_engine_options){.device = device,
                                         .kv_type = "f32",
                                         .threads = 2,
                                         .ctx = MAX_TOKENS,
                                         .batch = 2 * MAX_TOKENS,
                                         .slots = 3,
                                         .decode_rows = 4,
                                         .all_logits = true,
                                         .strict_fp32 = true,
                                         .ranks = n_rank,
                                         .gpu_layers = -1,
                                         .cpu_experts = -1,
                                         .adapter_room = 2,
                                         .adapter_rank = rank};
}
static void coming_open(struct coming *c, const char *device) {
    char path[512], other[512];
    read_golden(&c->g, rows[0], path);
    assert_ok(infer_model_open(&c->m, c->g.path, NULL));
    assert_ok(infer_adapter_open(&c->a[0], c->m, path, NULL));
    test_path(other, sizeof other, "golden/adapter/llama-second");
    assert_ok(infer_adapter_open(&c->a[1], c->m, other, NULL));
    c->n = elements(&c->g, c->g.prompt);
    c->got = malloc(c->n * 4);
    for (int i = 0; i < 3; i++) {
        struct infer_engine *e = engine(c->m, device, 2, &c->a[i % 2], NULL, i < 2);
        compute(e, &c->g, c->g.prompt, 7, false, c->want[i] = malloc(c->n * 4));
        infer_engine_free(e);
    }
}
static void coming_close(struct coming *c) {
    for (int i = 0; i < 2; i++) infer_adapter_close(c->a[i]);
    for (int i = 0; i < 3; i++) free(c->want[i]);
    free(c->got);
    infer_model_close(c->m);
    golden_free(&c->g);
}

/* The logits of sequences that have what stands in a place (-1: in none). */
static void at_place(struct coming *c, struct infer_engine *e, int place, const float *want) {
    e->default_scale[0] = place == 0, e->default_scale[1] = place == 1;
    compute(e, &c->g, c->g.prompt, 7, false, c->got);
    assert_memory_equal(c->got, want, c->n * 4);
}
static void stays_with_who_has_it(struct infer_engine *e, int place) {
    const float scale[2] = {1, 1};
    struct infer_output out;
    int seq, n;
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_prefix(e, seq, &(int32_t){3}, 1, &(struct infer_prefix){.adapter = scale}, &n));
    assert_ok(infer_step(e, &(struct infer_row){.id = 3, .seq = seq}, 1, &out));
    assert_int_equal(infer_engine_adapter(e, place, NULL), INFER_E_INPUT);
    infer_seq_close(e, seq);
}

/* Adapters that come into an engine and go: the bits are those of an engine that has had them from the start, whichever place they have and whatever
 * stands beside them; who has one keeps it. */
static void adapters_come_and_go(void **state) {
    static const char *const devices[] = {"ref", "ref", "cpu"};
    (void)state;
    for (int d = 0; d < (cpu_isa_best() == CPU_ISA_NONE ? 2 : 3); d++) {
        struct coming c;
        n_rank = d == 1 ? 2 : 0;
        struct infer_engine *e;
        struct infer_engine_info info;
        coming_open(&c, devices[d]);
        struct infer_engine_options o = room_on(devices[d], 0);
        assert_int_equal(infer_engine_create(&e, c.m, &o), INFER_E_INPUT);
        o.adapter_rank = 1;
        assert_ok(infer_engine_create(&e, c.m, &o));
        assert_int_equal(infer_engine_adapter(e, 0, c.a[0]), INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), "there is room for 1 (.adapter_rank)"));
        infer_engine_free(e);
        o.adapter_rank = 64;
        assert_ok(infer_engine_create(&e, c.m, &o));
        infer_engine_info(e, &info);
        assert_int_equal(info.n_adapter, 2);
        for (int round = 0; round < 4; round++) { /* in both places, alone and beside the other one */
            const int first = round % 2;
            assert_ok(infer_engine_adapter(e, first, c.a[0]));
            if (round >= 2) assert_ok(infer_engine_adapter(e, !first, c.a[1]));
            at_place(&c, e, first, c.want[0]);
            at_place(&c, e, !first, c.want[round >= 2 ? 1 : 2]);
            at_place(&c, e, -1, c.want[2]);
            stays_with_who_has_it(e, first);
            for (int i = 0; i < 2; i++) assert_ok(infer_engine_adapter(e, i, NULL));
        }
        assert_int_equal(infer_engine_adapter(e, 2, c.a[0]), INFER_E_INPUT);
        assert_int_equal(infer_engine_adapter(e, -1, c.a[0]), INFER_E_INPUT);
        infer_engine_free(e);
        coming_close(&c);
    }
    n_rank = 0;
}

/* A row has the same bits alone, beside rows with other adapters and for any number of threads; one without an adapter those of an engine
 * that has none. */
static void neighbours_do_not_matter(void **state) {
    (void)state;
    static const float both[] = {1, -0.5f}, second[] = {0, 2}, none[] = {0, 0};
    const float *const mixed[SEQS] = {both, none, second}, *const plain[SEQS] = {NULL, NULL, NULL};
    if (cpu_isa_best() == CPU_ISA_NONE) skip();
    for (int b = 0; b < 2; b++) {
        struct golden g;
        struct infer_model *m;
        struct infer_adapter *a[2];
        char path[512], other[512];
        read_golden(&g, rows[b ? N_ROWS - 1 : 0], path);
        assert_ok(infer_model_open(&m, g.path, NULL));
        assert_ok(infer_adapter_open(&a[0], m, path, NULL));
        test_path(other, sizeof other, b ? "golden/adapter/mixtral" : "golden/adapter/llama-second");
        assert_ok(infer_adapter_open(&a[1], m, other, NULL));
        const size_t one = 11 * (size_t)g.n_vocab, n = SEQS * one;
        float *want = malloc(n * 4), *got = malloc(n * 4);
        struct infer_engine *e = engine(m, "cpu", 1, a, none, 2);
        answer(e, g.n_vocab, mixed, false, want);
        assert_memory_not_equal(want, want + one, one * 4);
        assert_memory_not_equal(want + 2 * one, want + one, one * 4);
        answer(e, g.n_vocab, mixed, true, got);
        assert_memory_equal(got, want, n * 4);
        infer_engine_free(e);
        e = engine(m, "cpu", 3, a, none, 2);
        cpu_delays_pretend(11); /* threads are late where they may be */
        answer(e, g.n_vocab, mixed, true, got);
        cpu_delays_pretend(0);
        assert_memory_equal(got, want, n * 4);
        infer_engine_free(e);
        e = engine(m, "cpu", 2, NULL, NULL, 0);
        answer(e, g.n_vocab, plain, true, got);
        assert_memory_equal(got, want + one, one * 4);
        infer_engine_free(e);
        infer_adapter_close(a[0]), infer_adapter_close(a[1]);
        infer_model_close(m);
        free(want), free(got);
        golden_free(&g);
    }
}

/* The same on a card: rows without an adapter have the bits that they have where nobody has one, and about those of an engine that has none,
 * whose lists are fused otherwise. */
static void neighbours_do_not_matter_on_a_card(void **state) {
    (void)state;
    static const float both[] = {1, -0.5f}, second[] = {0, 2}, none[] = {0, 0};
    const float *const mixed[SEQS] = {both, none, second}, *const nobody[SEQS] = {none, none, none},
                       *const plain[SEQS] = {NULL, NULL, NULL};
    for (int b = 0; have_cuda && b < 4; b++) {
        struct golden g;
        struct infer_model *m;
        struct infer_adapter *a[2];
        char path[512], other[512];
        read_golden(&g, rows[b % 2 ? N_ROWS - 1 : 0], path);
        assert_ok(infer_model_open(&m, g.path, NULL));
        assert_ok(infer_adapter_open(&a[0], m, path, NULL));
        test_path(other, sizeof other, b % 2 ? "golden/adapter/mixtral" : "golden/adapter/llama-second");
        assert_ok(infer_adapter_open(&a[1], m, other, NULL));
        const size_t one = 11 * (size_t)g.n_vocab, n = SEQS * one;
        float *want = malloc(n * 4), *got = malloc(n * 4);
        loose = b > 1;
        struct infer_engine *e = engine(m, "cuda", 1, a, none, 2);
        answer(e, g.n_vocab, mixed, false, want);
        assert_memory_not_equal(want, want + one, one * 4);
        assert_memory_not_equal(want + 2 * one, want + one, one * 4);
        answer(e, g.n_vocab, mixed, true, got);
        assert_memory_equal(got, want, n * 4);
        answer(e, g.n_vocab, nobody, true, got);
        for (int i = 0; i < SEQS; i++) assert_memory_equal(got + (size_t)i * one, want + one, one * 4);
        infer_engine_free(e);
        e = engine(m, "cuda", 1, NULL, NULL, 0);
        answer(e, g.n_vocab, plain, true, got);
        for (size_t i = 0; i < one; i++)
            if (!(fabs((double)got[i] - (double)want[one + i]) <= (b > 1 ? 2 : 1) * TOL_LOGITS_FAST * g.sd))
                fail_msg("logit %d is %f, without adapters %f", (int)i, (double)want[one + i],
                         (double)got[i]);
        infer_engine_free(e);
        loose = false;
        infer_adapter_close(a[0]), infer_adapter_close(a[1]);
        infer_model_close(m);
        free(want), free(got);
        golden_free(&g);
    }
}

/* ---- what the cache knows ---- */

static int shared(struct infer_engine *e, const int32_t *ids, const float *scale) {
    const struct infer_prefix among = {.adapter = scale};
    int seq, n, probed = infer_prefix_probe(e, ids, LONG, &among, NULL);
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_prefix(e, seq, ids, LONG, &among, &n));
    infer_seq_close(e, seq);
    assert_int_equal(n, probed);
    return n;
}

/* Pages and snapshots are of an adapter and its scale; and of its content, not of its place in the list. */
static void the_cache_knows(void **state) {
    (void)state;
    struct golden g;
    struct folder d;
    struct infer_model *m;
    struct infer_adapter *a[2], *turned[2];
    struct infer_output o;
    char path[512], other[512], file[256];
    static const float first[] = {1, 0}, half[] = {0.5f, 0}, second[] = {0, 1}, none[] = {0, 0};
    int32_t ids[LONG];
    struct infer_row row[LONG];
    int seq, n;
    read_golden(&g, rows[0], path);
    folder_make(&d);
    folder_file(&d, file, "seq.kv");
    assert_ok(infer_model_open(&m, g.path, NULL));
    assert_ok(infer_adapter_open(&a[0], m, path, NULL));
    assert_ok(
        infer_adapter_open(&a[1], m, test_path(other, sizeof other, "golden/adapter/llama-second"), NULL));
    turned[0] = a[1], turned[1] = a[0];
    struct infer_engine *e = engine(m, "ref", 1, a, first, 2);
    for (int t = 0; t < LONG; t++) ids[t] = (t * 7 + 3) % g.n_vocab;
    assert_ok(infer_seq_open(e, &seq)); /* the options' scales */
    for (int t = 0; t < LONG; t++) row[t] = (struct infer_row){.id = ids[t], .pos = t, .seq = seq};
    row[LONG - 1].want = INFER_WANT_LOGITS;
    assert_ok(infer_step(e, row, LONG, &o));
    assert_ok(infer_seq_save(e, seq, file));
    infer_seq_close(e, seq);
    assert_int_equal(shared(e, ids, first), KV_PAGE);
    assert_int_equal(shared(e, ids, NULL), KV_PAGE);
    assert_int_equal(shared(e, ids, half), 0);
    assert_int_equal(shared(e, ids, second), 0);
    assert_int_equal(shared(e, ids, none), 0);
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_load(e, seq, file));
    infer_seq_close(e, seq);
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_prefix(e, seq, NULL, 0, &(struct infer_prefix){.adapter = half}, &n));
    assert_int_equal(infer_seq_load(e, seq, file), INFER_E_UNSUPPORTED);
    assert_non_null(strstr(infer_error(), "other adapters or scales"));
    infer_engine_free(e);
    e = engine(m, "ref", 1, turned, second, 2);
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_load(e, seq, file));
    infer_engine_free(e);
    e = engine(m, "ref", 1, NULL, NULL, 0);
    assert_ok(infer_seq_open(e, &seq));
    assert_int_equal(infer_seq_load(e, seq, file), INFER_E_UNSUPPORTED);
    infer_engine_free(e);
    infer_adapter_close(a[0]), infer_adapter_close(a[1]);
    infer_model_close(m);
    folder_remove(&d);
    golden_free(&g);
}

/* What was written to .kv_store under an adapter is taken back under it alone, by another engine too. */
static void the_store_knows(void **state) {
    (void)state;
    struct infer_model *m;
    struct infer_adapter *a;
    struct folder d;
    struct infer_output o;
    char path[512];
    static const float scales[][1] = {{1}, {0.5f}, {0}, {1}};
    static const int found[] = {0, 0, 0, KV_PAGE};
    struct infer_row row[LONG];
    int32_t ids[LONG];
    if (cpu_isa_best() == CPU_ISA_NONE) skip();
    folder_make(&d);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    assert_ok(infer_adapter_open(&a, m, test_path(path, sizeof path, "golden/adapter/llama"), NULL));
    for (int i = 0; i < 4; i++) {
        const struct infer_engine_options eo = {.device = "cpu",
                                                .ctx = 256,
                                                .threads = 1,
                                                .gpu_layers = -1,
                                                .cpu_experts = -1,
                                                .kv_store = d.path,
                                                .adapter = (const struct infer_adapter *const *)&a,
                                                .adapter_scale = scales[i],
                                                .n_adapter = 1};
        struct infer_engine *e;
        int seq, n;
        bool done = false;
        assert_ok(infer_engine_create(&e, m, &eo));
        assert_ok(infer_seq_open(e, &seq));
        for (int t = 0; t < LONG; t++)
            ids[t] = 3 + t % 60, row[t] = (struct infer_row){.id = ids[t], .pos = t, .seq = seq};
        assert_ok(infer_seq_prefix(e, seq, ids, LONG, NULL, &n));
        while (!done) assert_ok(infer_seq_kept(e, seq, ids, LONG, NULL, 1, &n, &done));
        assert_int_equal(n, found[i]);
        assert_ok(infer_step(e, row + n, LONG - n, &o));
        infer_engine_free(e);
    }
    infer_adapter_close(a);
    infer_model_close(m);
    folder_remove(&d);
}

/* A scale that is none; the adapter of another model. */
static void engines_that_have_none(void **state) {
    (void)state;
    struct infer_model *m, *other;
    struct infer_adapter *a;
    struct infer_engine *e;
    char path[512];
    const float nan[] = {NAN};
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    assert_ok(infer_model_open(&other, path, NULL));
    assert_ok(infer_adapter_open(&a, m, test_path(path, sizeof path, "golden/adapter/llama"), NULL));
    const struct infer_adapter *list[] = {a};
    struct infer_engine_options o = {.device = "cpu",
                                     .ctx = 64,
                                     .gpu_layers = -1,
                                     .cpu_experts = -1,
                                     .adapter = list,
                                     .adapter_scale = nan,
                                     .n_adapter = 1};
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    o.adapter_scale = NULL;
    assert_int_equal(infer_engine_create(&e, other, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "opened for another model"));
    infer_adapter_close(a);
    infer_model_close(m), infer_model_close(other);
}

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    have_cuda = cuda_there(&must);
    if (must && !have_cuda) return 1;
    host_threads_pretend(4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_peft),
        cmocka_unit_test(as_peft_on_ranks),
        cmocka_unit_test(as_peft_on_a_card),
        cmocka_unit_test(folders_and_gguf),
        cmocka_unit_test(adapters_come_and_go),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(neighbours_do_not_matter_on_a_card),
        cmocka_unit_test(the_cache_knows),
        cmocka_unit_test(engines_that_have_none),
        cmocka_unit_test(merged),
        cmocka_unit_test(the_store_knows),
        cmocka_unit_test(control_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

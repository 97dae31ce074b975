/* Fused links beside plain operations on a card: a Llama with one operation more that no pattern takes, at each place of a layer,
 * agrees with ref, for prompt rows, one decode row and several. Skipped with a printed reason where there is no usable card, unless
 * INFER_REQUIRE_CUDA=1. */
#include "tests/lib/test.h"
#include "tests/lib/seam_step.h"
#include "engine_options.h"
#include "infer.h"
#include "cuda/run/decode_profile.h"
#include "plan/plan.h"
#include "tests/lib/relative.h"
#include "seam/op_list.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"

enum { N_PROMPT = 70, N_DECODE = 4, MOST_OPS = 256, MOST_ROWS = 20 };

/* ---- models ---- */

static struct model *open_synth(const char *shape, const char *type) {
    char path[SYNTH_PATH];
    struct model *m;
    synth_temporary(&(struct synth_options){.shape = shape, .type = type, .seed = 5}, path);
    assert_ok(model_open(&m, path, &(struct tensorfile_options){0}));
    unlink(path);
    return m;
}

/* What is changed in both lists of a run; op: room for its operations. */
typedef void edit_list(struct op_list *l, int at, struct op *op);

/* One more operation in front of operation at: a norm of the residual stream of a kind that no pattern takes. */
static void put_one_more(struct op_list *l, int at, struct op *op) {
    if (!at) return;
    struct view x = l->op[0].embed.out;
    memcpy(op, l->op, (size_t)at * sizeof *op);
    op[at] = (struct op){.kind = OP_NORM,
                         .layer = 1,
                         .name = "more",
                         .norm = {x, x, NORM_LAYER, x.width, 1e-5f, NULL, NULL, 0}};
    memcpy(op + at + 1, l->op + at, (size_t)(l->n_op - at) * sizeof *op);
    l->op = op;
    l->n_op++;
    list_lives(l);
}

/* What lists of other models have in places where a Llama's have something else. */
static void norms_with_a_mean(struct op_list *l, int at, struct op *op) {
    (void)at, (void)op;
    for (struct op *o = l->op; o < l->op + l->n_op; o++)
        if (o->kind == OP_NORM && o->norm.dim == o->norm.x.width) o->norm.kind = NORM_LAYER;
}
/* Norms of groups of columns with a mean, which no pattern takes; the first layer alone. */
static void first_layer(struct op_list *l, int at, struct op *op);
static void group_norms_with_a_mean(struct op_list *l, int at, struct op *op) {
    for (struct op *o = l->op; o < l->op + l->n_op; o++)
        if (o->kind == OP_NORM && o->norm.dim < o->norm.x.width) o->norm.kind = NORM_LAYER;
    first_layer(l, at, op);
}
static void factors(struct op_list *l, int at, struct op *op) {
    (void)at, (void)op;
    for (struct op *o = l->op; o < l->op + l->n_op; o++)
        if (o->kind == OP_MATMUL && o->matmul.w->n_member == 1)
            ((struct weight_group *)(uintptr_t)o->matmul.w)->member[0].factor = 0.375f;
}
/* The first layer alone, and what belongs to none. */
static void first_layer(struct op_list *l, int at, struct op *op) {
    int n = 0;
    (void)at;
    for (int i = 0; i < l->n_op; i++)
        if (l->op[i].layer < 1) op[n++] = l->op[i];
    l->op = op;
    l->n_op = n;
    list_lives(l);
}
/* The first layer with experts, and those before it. */
static int layers_to_experts(const struct model *m) {
    int n = 0;
    while (!m->layer[n].moe.n_expert) n++;
    return n + 1;
}
/* The first layers without attention. */
static void keep_feed_forward(struct op_list *l, int layers, struct op *op) {
    int n = 0;
    for (int i = 0; i < l->n_op; i++)
        if (l->op[i].layer < 0 || (l->op[i].layer < layers && !strncmp(l->op[i].name, "ffn", 3)))
            op[n++] = l->op[i];
    l->op = op;
    l->n_op = n;
    list_lives(l);
}

/* An engine without infer.h. */
struct run {
    const struct backend_type *type;
    const struct model *m;
    struct arena arena;
    struct plan plan;
    struct backend *b;
    struct op op[ROW_CLASS_COUNT][MOST_OPS];
    int32_t *pages;
};
/* edit: of both lists, NULL: none. */
static void run_open(struct run *r, const struct backend_type *type, const struct model *m, edit_list *edit,
                     int at, int n_row) {
    struct infer_engine_options o = {.device = type->name,
                                     .ctx = N_PROMPT + N_DECODE + 8,
                                     .slots = n_row,
                                     .batch = N_PROMPT,
                                     .decode_rows = n_row,
                                     .threads = 2,
                                     .nan_guard = true,
                                     .gpu_layers = -1};
    struct plan_options po;
    r->type = type;
    r->m = m;
    r->arena = (struct arena){0};
    assert_ok(engine_options_read(&po, &o));
    assert_ok(device_pick(&po.wish, &po.place));
    po.keep_all = true;
    assert_ok(plan_make(&r->plan, &r->arena, m, &po));
    struct plan_part *part = &r->plan.part[0];
    for (int c = 0; edit && c < ROW_CLASS_COUNT; c++) edit(&part->list[c], at, r->op[c]);
    assert_ok(type->open(&r->b, &part->config));
    if (type->upload) assert_ok(type->upload(r->b));
    for (int c = 0; c < ROW_CLASS_COUNT; c++) assert_ok(type->compile(r->b, (enum row_class)c));
    const int max = r->plan.kv_group[0].max_pages;
    r->pages = arena_alloc(&r->arena, (size_t)(n_row * max) * 4);
    for (int i = 0; i < n_row * max; i++) r->pages[i] = n_row * max - 1 - i;
}
static void run_close(struct run *r) {
    r->type->close(r->b);
    arena_free(&r->arena);
}
/* n rows of prompt of slot 0, or one row of each of n slots at position pos; the logits of the last row to out. */
static void run_step(struct run *r, enum row_class cls, int pos, int n, float *out) {
    int32_t id[N_PROMPT], at[N_PROMPT], slot[N_PROMPT], last = n - 1;
    const bool decode = cls == ROW_DECODE;
    for (int i = 0; i < n; i++) {
        at[i] =
            decode && i < n - 1 ? pos - N_PROMPT : pos + (decode ? 0 : i); /* the last slot has the prompt */
        slot[i] = decode ? i : r->plan.part[0].config.n_slot - 1;
        id[i] = (at[i] * 37 + at[i] / 7 + 3 + 11 * slot[i]) % r->m->n_vocab;
    }
    uint8_t want = WANT_TOKEN | WANT_LOGITS;
    struct step_result res;
    const int32_t *const tables[] = {r->pages, r->pages}; /* groups with a window and without */
    struct step s = seam_step(n, 1, id, at, slot, &last, &want, tables);
    assert_ok(r->type->run(r->b, cls, &s));
    assert_ok(r->type->wait(r->b, &res));
    memcpy(out, res.logits, (size_t)r->m->n_vocab * 4);
    int best = 0;
    for (int i = 1; i < r->m->n_vocab; i++)
        if (res.logits[i] > res.logits[best]) best = i;
    assert_int_equal(res.token[0], best);
}
/* out[1 + N_DECODE][n_vocab] */
static void run_all(struct run *r, int n_row, float *out) {
    const size_t n = (size_t)r->m->n_vocab;
    run_step(r, ROW_PROMPT, 0, N_PROMPT, out);
    for (int i = 0; i < N_DECODE; i++)
        run_step(r, ROW_DECODE, N_PROMPT + i, n_row, out + (size_t)(i + 1) * n);
}

/* ---- tests ---- */

#ifdef INFER_CUDA
static int n_launch, n_more;
static void count(const char *name, float alone, float without, int n) {
    (void)alone, (void)without;
    if (strcmp(name, "all") != 0) n_launch += n;
    if (!strcmp(name, "more")) n_more += n;
}
static int launches(struct run *r, int rows) {
    n_launch = n_more = 0;
    assert_ok(decode_profile(r->b, rows, count)); /* it is a program */
    return n_launch;
}

static void check(const struct model *m, const char *type, int at, int n_row, int base) {
    static struct run r;
    const size_t n = (size_t)m->n_vocab;
    float *want = malloc((1 + N_DECODE) * n * 4), *got = malloc((1 + N_DECODE) * n * 4);
    run_open(&r, &backend_ref, m, put_one_more, at, n_row);
    run_all(&r, n_row, want);
    run_close(&r);
    run_open(&r, &backend_cuda, m, put_one_more, at, n_row);
    run_all(&r, n_row, got);
    const double prompt = relative(got, want, n), decode = relative(got + n, want + n, N_DECODE * n);
    const double most = n_row == 1 ? TOL_CUDA_DECODE_ONE : TOL_CUDA_DECODE;
    print_message("%s, %d rows, one more at %d: prompt %.1e decode %.1e of the norm\n", type, n_row, at,
                  prompt, decode);
    if (!(prompt <= TOL_CUDA_PROMPT && decode <= most))
        fail_msg("%s, %d rows, one more at %d: prompt %g, decode %g", type, n_row, at, prompt, decode);
    /* a plain operation between two links is one launch more; in a link's middle it makes two of it */
    const int all = launches(&r, n_row);
    assert_int_equal(n_more, 1);
    assert_in_range(all, base + 1, base + 4);
    run_close(&r);
    free(want);
    free(got);
}

static void count_blocks(const char *name, float alone, float without, int n) {
    static const char *const plain[] = {"kv_put",      "attn_add",  "ffn_add", "attn_gated",
                                        "layer_scale", "attn_norm", "ffn_norm"};
    (void)alone, (void)without;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(name, plain[i])) n_more += n;
}
/* Blocks with norms behind attention and feed-forward part, whose layers' outputs are scaled, norms with a mean, matrices with a factor,
 * layers with a state, attention by a latent: no link of them is a plain operation. */
static void post_norms_agree_with_ref(void **state) {
    static const struct {
        const char *shape, *type;
        int n_row;
        edit_list *edit;
        const char *what;
    } all[] = {{"tiny-gemma4", "q8_0", 1, NULL, ""},
               {"tiny-gemma4", "q4_k_m", 1, NULL, ""},
               {"tiny-gemma4", "q4_k_m", 3, NULL, ""},
               {"tiny-gemma4", "f16", 1, NULL, ""},
               {"tiny-gemma4", "f16", 20, NULL, ""},
               {"tiny-gemma4", "bf16", 3, NULL, ""},
               {"tiny-gemma4-256", "q4_k_m", 1, NULL, ""},
               {"tiny-gemma4-256", "q8_0", 20, NULL, ""},
               {"tiny-delta-128", "q8_0", 1, NULL, ""},
               {"tiny-delta-128", "q4_k_m", 1, NULL, ""},
               {"tiny-delta-128", "q4_k_m", 3, NULL, ""},
               {"tiny-delta-128", "q8_0", 20, NULL, ""},
               {"tiny-delta-128", "f16", 1, NULL, ""},
               {"tiny-delta-128", "bf16", 20, NULL, ""},
               {"tiny-nemotron-128", "q8_0", 1, first_layer, ", a layer"},
               {"tiny-nemotron-128", "q4_k_m", 1, first_layer, ", a layer"},
               {"tiny-nemotron-128", "q4_k_m", 3, first_layer, ", a layer"},
               {"tiny-nemotron-128", "q8_0", 20, first_layer, ", a layer"},
               {"tiny-nemotron-128", "f16", 1, first_layer, ", a layer"},
               {"tiny-nemotron-128", "bf16", 20, first_layer, ", a layer"},
               {"tiny-nemotron-128", "q8_0", 1, group_norms_with_a_mean, ", norms with a mean"},
               {"tiny-nemotron-128", "q4_k_m", 3, group_norms_with_a_mean, ", norms with a mean"},
               {"tiny-lfm2", "q8_0", 1, NULL, ""},
               {"tiny-lfm2", "q4_k_m", 3, NULL, ""},
               {"tiny-lfm2", "f16", 1, NULL, ""},
               {"tiny-lfm2", "bf16", 20, NULL, ""},
               {"tiny-latent-512", "q8_0", 1, first_layer, ", a layer"},
               {"tiny-latent-512", "q4_k_m", 1, first_layer, ", a layer"},
               {"tiny-latent-512", "q4_k_m", 3, first_layer, ", a layer"},
               {"tiny-latent-512", "q8_0", 20, first_layer, ", a layer"},
               {"tiny-latent-512", "f16", 1, first_layer, ", a layer"},
               {"tiny-latent-512", "bf16", 3, first_layer, ", a layer"},
               {"tiny", "f16", 1, norms_with_a_mean, ", norms with a mean"},
               {"tiny", "q8_0", 1, norms_with_a_mean, ", norms with a mean"},
               {"tiny", "q4_k_m", 3, norms_with_a_mean, ", norms with a mean"},
               {"tiny", "f16", 1, factors, ", factors"},
               {"tiny", "q8_0", 1, factors, ", factors"},
               {"tiny", "q4_k_m", 3, factors, ", factors"}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static struct run r;
        const int n_row = all[i].n_row;
        struct model *m = open_synth(all[i].shape, all[i].type);
        const size_t n = (size_t)m->n_vocab;
        float *want = malloc((1 + N_DECODE) * n * 4), *got = malloc((1 + N_DECODE) * n * 4);
        run_open(&r, &backend_ref, m, all[i].edit, 0, n_row);
        run_all(&r, n_row, want);
        run_close(&r);
        run_open(&r, &backend_cuda, m, all[i].edit, 0, n_row);
        run_all(&r, n_row, got);
        const double prompt = relative(got, want, n), decode = relative(got + n, want + n, N_DECODE * n);
        print_message("%s %s%s, %d rows: prompt %.1e decode %.1e of the norm\n", all[i].shape, all[i].type,
                      all[i].what, n_row, prompt, decode);
        /* Gemma 4 does not divide its scores by the root of the head's size: those of 256 numbers spread four times as
         * far, and so do the roundings of what they are made of; those of a short convolution are of three factors */
        const double more = strstr(all[i].shape, "256") ? 4 : strstr(all[i].shape, "lfm2") ? 2 : 1;
        assert_true(prompt <= more * TOL_CUDA_PROMPT);
        assert_true(decode <= more * (n_row == 1 ? TOL_CUDA_DECODE_ONE : TOL_CUDA_DECODE));
        n_more = 0;
        assert_ok(decode_profile(r.b, n_row, count_blocks));
        assert_int_equal(n_more, 0);
        run_close(&r);
        model_close(m);
        free(want);
        free(got);
    }
}

/* A sum whose steps do not come out even between the multiprocessors of a card is shared out by units: of Q6_K, of Q4_K. */
static void sums_that_are_shared_out_agree_with_ref(void **state) {
    static const char *const types[] = {"q4_k_m", "q4_k_s"};
    (void)state;
    for (int t = 0; t < 2; t++) {
        static struct run r;
        struct model *m = open_synth("tiny-tall", types[t]);
        const size_t n = (size_t)m->n_vocab;
        float *out = malloc(2 * N_DECODE * n * 4);
        for (int side = 0; side < 2; side++) {
            run_open(&r, side ? &backend_cuda : &backend_ref, m, NULL, 0, 1);
            for (int i = 0; i < N_DECODE; i++)
                run_step(&r, ROW_DECODE, i, 1, out + (size_t)(side * N_DECODE + i) * n);
            run_close(&r);
        }
        const double decode = relative(out + N_DECODE * n, out, N_DECODE * n);
        print_message("%s: decode %.1e of the norm\n", types[t], decode);
        assert_true(decode <= TOL_CUDA_DECODE_ONE);
        model_close(m);
        free(out);
    }
}

/* A prompt that is cut where the backend says, and the rows behind it, have the bits of one that is not. */
static void prompts_of_states_are_cut_on_a_grid(void **state) {
    static const char *const shapes[] = {"tiny-delta-128", "tiny-nemotron-128"}, *const types[] = {"q4_k_m",
                                                                                                   "f16"};
    (void)state;
    for (int t = 0; t < 4; t++) {
        static struct run r;
        struct backend_info info;
        struct model *m = open_synth(shapes[t / 2], types[t % 2]);
        const size_t n = (size_t)m->n_vocab;
        float *want = malloc((1 + N_DECODE) * n * 4), *got = malloc((1 + N_DECODE) * n * 4);
        run_open(&r, &backend_cuda, m, NULL, 0, 1);
        run_all(&r, 1, want);
        r.type->info(r.b, &info);
        assert_int_equal(info.grid, 64);
        run_step(&r, ROW_PROMPT, 0, info.grid, got);
        run_step(&r, ROW_PROMPT, info.grid, N_PROMPT - info.grid, got);
        for (int i = 0; i < N_DECODE; i++)
            run_step(&r, ROW_DECODE, N_PROMPT + i, 1, got + (size_t)(i + 1) * n);
        assert_memory_equal(got, want, (1 + N_DECODE) * n * 4);
        run_close(&r);
        model_close(m);
        free(want);
        free(got);
    }
}

static void one_more_operation_agrees_with_ref(void **state) {
    static const struct {
        const char *type;
        int n_row, every;
    } all[] = {{"q8_0", 1, 1}, {"q8_0", 3, 1}, {"f16", 1, 2},
               {"f16", 20, 2}, {"bf16", 3, 4}, {"q4_k_m", 20, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static struct run r;
        struct model *m = open_synth("tiny", all[i].type);
        float *out = malloc((size_t)(1 + N_DECODE) * (size_t)m->n_vocab * 4);
        run_open(&r, &backend_cuda, m, NULL, 0, all[i].n_row);
        run_all(&r, all[i].n_row, out); /* the profile runs these steps again */
        const int base = launches(&r, all[i].n_row), n_op = r.plan.part[0].list[ROW_DECODE].n_op;
        run_close(&r);
        for (int at = n_op - 4 - 13 + (int)i % all[i].every; at < n_op;
             at += all[i].every) /* layer 1, output */
            check(m, all[i].type, at, all[i].n_row, base);
        model_close(m);
        free(out);
    }
}

/* ---- experts in one decode row ---- */

static int n_plain;
static void count_plain(const char *name, float alone, float without, int n) {
    (void)alone, (void)without;
    if (!strcmp(name, "ffn_experts_down")) n_plain += n;
}
/* Logits of single decode rows to out[N_DECODE][n_vocab]; the number of layers whose experts run op by op. */
static int run_rows(const struct backend_type *type, const struct model *m, int layers, float *out) {
    static struct run r;
    run_open(&r, type, m, keep_feed_forward, layers, 1);
    for (int i = 0; i < N_DECODE; i++) run_step(&r, ROW_DECODE, i, 1, out + (size_t)i * (size_t)m->n_vocab);
    n_plain = 0;
    if (type == &backend_cuda) assert_ok(decode_profile(r.b, 1, count_plain));
    run_close(&r);
    return n_plain;
}
/* Rows of the first layer's experts alone, whose router reads what ref's does; of all layers, where a choice may be another one when two
 * experts are close, the same bits again and again. */
static void check_experts(const struct model *m, const char *shape, const char *type, bool fused) {
    const size_t n = (size_t)m->n_vocab, all = N_DECODE * n;
    float *want = malloc(all * 4), *got = malloc(all * 4);
    const int first = layers_to_experts(m);
    run_rows(&backend_ref, m, first, want);
    const int plain = run_rows(&backend_cuda, m, first, got);
    double most = 0;
    for (int i = 0; i < N_DECODE; i++) {
        const double e = relative(got + (size_t)i * n, want + (size_t)i * n, n);
        if (!(e <= most)) most = e;
    }
    print_message("%-13s %-9s %s: decode %.1e of the norm\n", shape, type, plain ? "op by op" : "fused",
                  most);
    if (!(most <= TOL_CUDA_DECODE_ONE)) fail_msg("%s %s: decode %g", shape, type, most);
    assert_int_equal(!plain, fused);
    run_rows(&backend_cuda, m, m->n_layer, want);
    for (int i = 0; i < 3; i++) {
        run_rows(&backend_cuda, m, m->n_layer, got);
        assert_memory_equal(got, want, all * 4);
    }
    free(want);
    free(got);
}
static void experts_of_one_row_agree_with_ref(void **state) {
    static const struct {
        const char *shape, *type;
        bool fused;
    } all[] = {{"tiny-moe", "q4_k", true},
               {"tiny-moe", "q6_k", true},
               {"tiny-moe", "q4_k_m", true},
               {"tiny-moe", "q2_k", true},
               {"tiny-moe", "q3_k", true},
               {"tiny-moe", "q5_k", true},
               {"tiny-moe", "iq4_xs", true},
               {"tiny-moe", "f16", false},
               {"tiny-moe-wide", "q4_k_m", true},
               {"tiny-moe-wide", "q8_0", true},
               {"tiny-moe-odd", "q8_0", true},
               {"tiny-moe-odd", "q4_0", true},
               {"tiny-moe-odd", "q4_1", true},
               {"tiny-moe-odd", "q5_1", true},
               {"tiny-moe-odd", "iq4_nl", true},
               {"tiny-moe-odd", "mxfp4_moe", true},
               {"tiny-oss", "mxfp4_moe", true},
               {"tiny-oss", "q8_0", true},
               {"tiny-delta-moe", "q4_k", true},
               {"tiny-nemotron-128", "q4_k", true},
               {"tiny-nemotron-128", "q8_0", true},
               {"tiny-nemotron-128", "q4_k_m", true},
               {"tiny-nemotron-128", "f16", false},
               {"tiny-delta-moe-128", "q8_0", true},
               {"tiny-delta-moe-128", "q4_k_m", true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct model *m = open_synth(all[i].shape, all[i].type);
        check_experts(m, all[i].shape, all[i].type, all[i].fused);
        model_close(m);
    }
    struct model *m = open_synth("tiny-moe", "q4_k"), *other = open_synth("tiny-moe", "q8_0");
    for (int i = 0; i < m->n_layer; i++)
        m->layer[i].moe.experts.member[1] = other->layer[i].moe.experts.member[1];
    check_experts(m, "tiny-moe", "q4_k, q8_0", false);
    model_close(m);
    model_close(other);
}

/* ---- experts in several decode rows ---- */

enum { MANY = 128 };
/* n rows, the last one of token; its logits to out. The others' tokens, or where their experts stand, must not count. */
static void run_among(struct run *r, int n, int token, float *out) {
    int32_t id[MANY], at[MANY] = {0}, slot[MANY], last = n - 1;
    for (int i = 0; i < n; i++) {
        slot[i] = n - 1 - i;
        id[i] = i < n - 1 ? (i * 37 + 5 * n) % r->m->n_vocab : token;
    }
    uint8_t want = WANT_TOKEN | WANT_LOGITS;
    struct step_result res;
    const int32_t *const tables[] = {r->pages};
    struct step s = seam_step(n, 1, id, at, slot, &last, &want, tables);
    assert_ok(r->type->run(r->b, ROW_DECODE, &s));
    assert_ok(r->type->wait(r->b, &res));
    memcpy(out, res.logits, (size_t)r->m->n_vocab * 4);
}
/* An engine of so many rows: the first layer's experts against ref, and the same bits beside any neighbours, of all layers, too. */
static void check_among(const struct model *m, const char *shape, const char *type, int rows, bool fused) {
    static const int some[] = {1, 2, 7, 8, 9, 33, MANY}, tokens[] = {3, 200, 77};
    static struct run ref, r;
    const size_t n = (size_t)m->n_vocab;
    float *want = malloc(n * 4), *alone = malloc(n * 4), *got = malloc(n * 4);
    double most = 0;
    const int first = layers_to_experts(m);
    run_open(&ref, &backend_ref, m, keep_feed_forward, first, 1);
    for (int layers = first; layers <= m->n_layer; layers += m->n_layer - first) {
        run_open(&r, &backend_cuda, m, keep_feed_forward, layers, rows);
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            run_among(&ref, 1, tokens[t], want);
            run_among(&r, 1, tokens[t], alone);
            const double e = layers == first ? relative(alone, want, n) : 0;
            if (!(e <= most)) most = e;
            for (size_t i = 0; i < sizeof some / sizeof *some && some[i] <= rows; i++) {
                run_among(&r, some[i], tokens[t], got);
                if (memcmp(got, alone, n * 4))
                    fail_msg("%s %s, %d rows: other bits than alone", shape, type, some[i]);
            }
        }
        n_plain = 0;
        assert_ok(decode_profile(r.b, rows < MANY ? rows : MANY, count_plain));
        run_close(&r);
        assert_int_equal(!n_plain, fused);
    }
    run_close(&ref);
    print_message("%-13s %-9s %3d rows %s: decode %.1e of the norm\n", shape, type, rows,
                  fused ? "fused" : "op by op", most);
    if (!(most <= TOL_CUDA_DECODE)) fail_msg("%s %s: decode %g", shape, type, most);
    free(want);
    free(alone);
    free(got);
}
static void experts_of_many_rows_agree_with_ref(void **state) {
    static const struct {
        const char *shape, *type;
        int rows;
        bool fused;
    } all[] = {{"tiny-moe", "q4_k", MANY, true},
               {"tiny-moe", "q4_k_m", 8, true},
               {"tiny-moe", "q6_k", 33, true},
               {"tiny-delta-moe", "q8_0", 33, true},
               {"tiny-delta-moe-128", "q4_k", MANY, true},
               {"tiny-delta-moe-128", "q4_k_m", 8, true},
               {"tiny-moe", "q2_k", MANY, true},
               {"tiny-moe", "q3_k", 9, true},
               {"tiny-moe", "q5_k", 33, true},
               {"tiny-moe", "iq4_xs", 33, true},
               {"tiny-moe", "f16", 9, false},
               {"tiny-moe-wide", "q4_k_m", MANY, true},
               {"tiny-moe-wide", "q8_0", 33, true},
               {"tiny-moe-odd", "q8_0", MANY, true},
               {"tiny-moe-odd", "q4_0", 9, true},
               {"tiny-moe-odd", "q4_1", 33, true},
               {"tiny-moe-odd", "q5_1", 33, true},
               {"tiny-moe-odd", "iq4_nl", 9, true},
               {"tiny-moe-odd", "mxfp4_moe", 33, true},
               {"tiny-oss", "mxfp4_moe", MANY, true},
               {"tiny-oss", "q8_0", 2, true},
               {"tiny-nemotron-128", "q4_k", MANY, true},
               {"tiny-nemotron-128", "q8_0", 9, true},
               {"tiny-delta-moe-128", "q5_k", 9, true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct model *m = open_synth(all[i].shape, all[i].type);
        check_among(m, all[i].shape, all[i].type, all[i].rows, all[i].fused);
        model_close(m);
    }
}
#endif

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_more_operation_agrees_with_ref),
        cmocka_unit_test(post_norms_agree_with_ref),
        cmocka_unit_test(sums_that_are_shared_out_agree_with_ref),
        cmocka_unit_test(prompts_of_states_are_cut_on_a_grid),
        cmocka_unit_test(experts_of_one_row_agree_with_ref),
        cmocka_unit_test(experts_of_many_rows_agree_with_ref),
    };
    const char *must = getenv("INFER_REQUIRE_CUDA");
    if (backend_cuda.probe() == INFER_OK || (must && *must == '1'))
        return cmocka_run_group_tests(tests, NULL, NULL);
    printf("skipped: %s\n", infer_error());
#else
    (void)layers_to_experts, (void)group_norms_with_a_mean, (void)run_all, (void)run_open, (void)run_close,
        (void)open_synth;
    (void)put_one_more, (void)keep_feed_forward, (void)first_layer, (void)norms_with_a_mean, (void)factors;
    printf("skipped: built without CUDA\n");
#endif
    return 77;
}

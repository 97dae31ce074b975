/* What a step can say beside token ids, and what a plan can join: rows in place of embeddings, three positions a row, attention over the
 * rows of the step, parts of three backends. */
#include "tests/lib/test.h"
#include "tests/lib/hf_golden.h"
#include "tests/lib/cuda_there.h"
#include "tests/lib/random.h"
#include "tests/lib/seam_step.h"
#include "cache/kv.h"
#include "engine_options.h"
#include "join/join.h"
#include "model/model.h"
#include "plan/plan.h"
#include "seam/op_list.h"
#include "seam/weight.h"

#include <math.h>

/* ---- one list: embed, rope of q and k, attention without a store ---- */

enum { T = 5, H = 4, G = 2, D = 8, V = 7, IN = H * D + 2 * G * D, OUT = H * D, VOCAB = 6 };

static float table_data[VOCAB * IN], inv_freq[D / 2] = {1, 0.5f, 0.25f, 0.125f}, given[2][IN];
static const int32_t pairs[D / 2] = {0, 1, 2, 1};
static const struct rope by_three = {ROPE_NEOX, D, 1, inv_freq, pairs, 0};
static const struct weight table = {
    .name = "embed", .type = QUANT_F32, .n = VOCAB, .k = IN, .factor = 2, .n_stack = 1, .data = table_data};

static const int32_t ids[T] = {3, 0, 5, 0, 1}, pos[T] = {0, 0, 1, 2, 1}, slots[T] = {0, 1, 0, 0, 1},
                     second[T] = {0, 4, 7, 2, 5}, third[T] = {3, 1, 0, 6, 2};
static const float *const input[T] = {NULL, given[0], NULL, given[1], NULL};

/* The step by a backend: x[T][IN] behind the rotations, out[T][OUT]. */
static void run_list(const struct backend_type *type, enum row_class cls, float *x, float *out) {
    struct buf buf[] = {{.name = "x", .width = IN, .float32 = true},
                        {.name = "out", .width = OUT, .float32 = true}};
    const struct view q = {0, 0, H * D}, k = {0, H * D, G * D}, v = {0, (H + G) * D, G * D};
    struct op ops[] = {{OP_EMBED, -1, "embed", .embed = {{0, 0, IN}, &table, 3, false}},
                       {OP_ROPE, 0, "rope q", .rope = {q, H, D, &by_three, false}},
                       {OP_ROPE, 0, "rope k", .rope = {k, G, D, &by_three, false}},
                       {OP_ATTEND, 0, "attend",
                        .attend = {.q = q,
                                   .out = {1, 0, OUT},
                                   .store = -1,
                                   .n_head = H,
                                   .scale = 0.3f,
                                   .k = k,
                                   .v = v,
                                   .n_kv_head = G}}};
    struct op_list list = {cls, ops, 4, buf, 2, T, 0}, none = {.max_rows = T};
    struct kv_group kv_group = {0, 1, 1};
    struct backend_config c = {.embedding = &table,
                               .n_vocab = VOCAB,
                               .n_embd = IN,
                               .kv_group = &kv_group,
                               .n_slot = 2,
                               .n_ctx = 16,
                               .n_input = 2,
                               .cpu = {.threads = 3}};
    for (int i = 0; i < ROW_CLASS_COUNT; i++) c.list[i] = i == (int)cls ? &list : &none;
    struct backend_sizes sizes;
    struct step_result result;
    struct backend *b;
    list_lives(&list);
    assert_ok(cuda_sizes(&c, &sizes));
    assert_ok(type->sizes(&c, &sizes));
    for (int i = 0; i < 2; i++) {
        buf[i].offset = c.activation_bytes;
        c.activation_bytes += (buf[i].row_bytes * T + 255) / 256 * 256;
    }
    assert_ok(type->open(&b, &c));
    assert_ok(type->upload(b));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) assert_ok(type->compile(b, (enum row_class)i));
    const struct step s = {
        .n_row = T, .id = ids, .pos = pos, .slot = slots, .input = input, .axis = {second, third}};
    assert_ok(type->run(b, cls, &s));
    assert_ok(type->wait(b, &result));
    assert_ok(type->read(b, cls, (struct view){0, 0, IN}, T, x));
    assert_ok(type->read(b, cls, (struct view){1, 0, OUT}, T, out));
    type->close(b);
}

static void by_hand(double *x, double *out) {
    const int32_t *const axis[] = {pos, second, third};
    for (int t = 0; t < T; t++)
        for (int i = 0; i < IN; i++)
            x[t * IN + i] = input[t] ? (double)input[t][i] : 6 * (double)table_data[ids[t] * IN + i];
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H + G; h++)
            for (int i = 0; i < D / 2; i++) {
                double *re = &x[t * IN + h * D + i], *im = re + D / 2, r = *re,
                       a = axis[pairs[i]][t] * (double)inv_freq[i];
                *re = r * cos(a) - *im * sin(a), *im = *im * cos(a) + r * sin(a);
            }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            double sum = 0, acc[D] = {0};
            for (int p = 0; p < T; p++) {
                if (slots[p] != slots[t]) continue;
                double s = 0;
                for (int i = 0; i < D; i++)
                    s += x[t * IN + h * D + i] * x[p * IN + (H + h / (H / G)) * D + i];
                s = exp(0.3 * s), sum += s;
                for (int i = 0; i < D; i++) acc[i] += s * x[p * IN + (H + G + h / (H / G)) * D + i];
            }
            for (int i = 0; i < D; i++) out[t * OUT + h * D + i] = acc[i] / sum;
        }
}

static void rows_axes_and_no_mask(void **state) {
    (void)state;
    static double want_x[T * IN], want[T * OUT];
    static float x[T * IN], out[T * OUT];
    const struct backend_type *types[3] = {&backend_ref, &backend_cpu};
    bool must;
    const int n_type = 2 + cuda_there(&must);
    assert_true(n_type == 3 || !must);
#ifdef INFER_CUDA
    types[2] = &backend_cuda;
#endif
    for (int i = 0; i < VOCAB * IN; i++) table_data[i] = uniform();
    for (int i = 0; i < 2 * IN; i++) given[i / IN][i % IN] = uniform();
    by_hand(want_x, want);
    for (int b = 0; b < n_type; b++)
        for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
            run_list(types[b], (enum row_class)cls, x, out);
            for (int i = 0; i < T * IN; i++)
                assert_true(fabs((double)x[i] - want_x[i]) < 1e-5 * (1 + fabs(want_x[i])));
            for (int i = 0; i < T * OUT; i++)
                assert_true(fabs((double)out[i] - want[i]) < 1e-5 * (1 + fabs(want[i])));
        }
}

/* ---- rows of an engine ---- */

enum { N = 2 * KV_PAGE + 3 };
static int32_t token_of(int i) { return 3 + i * 7 % 40; }

static struct infer_model *open_llama(void) {
    char path[512];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    return m;
}
static struct infer_engine *engine_of(struct infer_model *m, const char *device) {
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, m,
                                  &(struct infer_engine_options){.device = device,
                                                                 .threads = 2,
                                                                 .ctx = N + 1,
                                                                 .slots = 2,
                                                                 .batch = N,
                                                                 .inputs = true,
                                                                 .gpu_layers = -1,
                                                                 .cpu_experts = -1}));
    return e;
}
static struct model *inside(struct infer_model *m) { return *(struct model **)(void *)m; }

/* The logits behind N rows, those from `first` on given by their embeddings. */
static void step_of(struct infer_engine *e, struct model *m, int seq, int first, float change,
                    float *logits) {
    static struct infer_row rows[N];
    float *embed = malloc((size_t)m->n_embd * N * sizeof *embed);
    struct infer_output out;
    for (int i = 0; i < N; i++) {
        float *x = embed + (size_t)m->n_embd * (size_t)i;
        weight_decode_row(&m->embd, token_of(i), x);
        x[0] += change;
        rows[i] = (struct infer_row){
            .id = token_of(i), .pos = i, .seq = seq, .want = i == N - 1 ? INFER_WANT_LOGITS : 0};
        if (i >= first) rows[i].embed = x, rows[i].id = 0;
    }
    if (infer_step(e, rows, N, &out)) fail_msg("%s", infer_error());
    memcpy(logits, out.logits[0], (size_t)m->n_vocab * sizeof *logits);
    free(embed);
}

static void an_embedding_in_place_of_a_token(void **state) {
    (void)state;
    static const char *const devices[] = {"ref", "cpu", "cuda"};
    bool must;
    const int n_device = 2 + cuda_there(&must);
    struct infer_model *im = open_llama();
    struct model *m = inside(im);
    const size_t bytes = (size_t)m->n_vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    for (int d = 0; d < n_device; d++) {
        struct infer_engine *e = engine_of(im, devices[d]);
        int a, b, n;
        assert_ok(infer_seq_open(e, &a));
        step_of(e, m, a, N, 0, want);
        infer_seq_close(e, a);
        assert_ok(infer_seq_open(e, &a));
        step_of(e, m, a, 5, 0, got);
        assert_memory_equal(got, want, bytes);
        /* its pages are known by what the rows hold */
        int32_t known[N], other[N];
        memcpy(known, infer_seq_ids(e, a), sizeof known);
        for (int i = 0; i < N; i++) assert_true(i < 5 ? known[i] == token_of(i) : known[i] < -1);
        float *row = malloc((size_t)m->n_embd * sizeof *row);
        weight_decode_row(&m->embd, token_of(5), row);
        assert_int_equal(infer_embed_id(e, row), known[5]);
        row[1] += 1;
        memcpy(other, known, sizeof known);
        other[5] = infer_embed_id(e, row);
        assert_true(other[5] != known[5]);
        assert_ok(infer_seq_open(e, &b));
        assert_ok(infer_seq_prefix(e, b, other, N, NULL, &n));
        assert_int_equal(n, 0);
        assert_ok(infer_seq_prefix(e, b, known, N, NULL, &n));
        assert_int_equal(n, 2 * KV_PAGE);
        infer_seq_close(e, b);
        infer_seq_close(e, a);
        assert_ok(infer_seq_open(e, &a));
        step_of(e, m, a, 5, 0.25f, got);
        assert_memory_not_equal(got, want, bytes);
        free(row);
        infer_engine_free(e);
    }
    free(want), free(got);
    infer_model_close(im);
}

/* Where the layers lie on two backends, the second takes the first one's rows and none of the step's. */
static void embeddings_of_a_model_in_parts(void **state) {
    (void)state;
    struct infer_model *im = open_llama();
    struct model *m = inside(im);
    struct infer_engine *e;
    float *want = malloc((size_t)m->n_vocab * sizeof *want), *got = malloc((size_t)m->n_vocab * sizeof *got);
    const struct infer_engine_options o = {.device = "ref",
                                           .host_device = "cpu",
                                           .kv_type = "f32",
                                           .threads = 2,
                                           .ctx = N + 1,
                                           .batch = N,
                                           .gpu_layers = 1,
                                           .cpu_experts = -1};
    int seq;
    assert_ok(infer_engine_create(&e, im, &o));
    for (int first = N; first >= 5; first -= N - 5) {
        assert_ok(infer_seq_open(e, &seq));
        step_of(e, m, seq, first, 0, first == N ? want : got);
        infer_seq_close(e, seq);
    }
    assert_memory_equal(got, want, (size_t)m->n_vocab * sizeof *want);
    infer_engine_free(e);
    infer_model_close(im);
    free(want), free(got);
}

/* Logits of token t at pos, whose rotations stand at `turn` on all axes. */
static void token_behind(struct infer_engine *e, const struct model *m, int seq, int pos, int turn,
                         float *logits) {
    const int32_t axis[3] = {turn, turn, turn};
    struct infer_output out;
    const struct infer_row row = {
        .id = token_of(pos), .pos = pos, .seq = seq, .decode = true, .want = INFER_WANT_LOGITS, .axis = axis};
    assert_ok(infer_step(e, &row, 1, &out));
    memcpy(logits, out.logits[0], (size_t)m->n_vocab * sizeof *logits);
}

/* Layers with states and positions on three axes: tokens behind rows that are none are computed again with their positions, and where rows
 * that are none would have to be, the sequence is shorter than it was asked to be. */
static void states_behind_rows_that_are_no_tokens(void **state) {
    (void)state;
    char path[512];
    struct infer_model *im;
    assert_ok(infer_model_open(&im, test_path(path, sizeof path, "golden/hf/qwen3_5"), NULL));
    struct model *m = inside(im);
    static int32_t axes[STATE_DIM_MAX];
    for (int i = 0; i < STATE_DIM_MAX; i++) axes[i] = 1 + i % 3;
    for (int i = 0; i < 4; i++) m->rope[i].axis = axes;
    static const char *const devices[] = {"ref", "cpu"};
    enum { LAST = 6, BEHIND = N - 40 };
    float *want = malloc((size_t)m->n_vocab * sizeof *want), *got = malloc((size_t)m->n_vocab * sizeof *got);
    for (int d = 0; d < 2; d++) {
        struct infer_engine_options o = {.device = devices[d],
                                         .threads = 2,
                                         .ctx = N + 8,
                                         .slots = 2,
                                         .batch = N,
                                         .gpu_layers = -1,
                                         .cpu_experts = -1};
        struct infer_engine *e;
        int seq;
        assert_ok(infer_engine_create(&e, im, &o));
        assert_ok(infer_seq_open(e, &seq));
        step_of(e, m, seq, N - 3, 0.5f, want);
        for (int i = 0; i < LAST; i++) token_behind(e, m, seq, N + i, BEHIND + i, want);
        assert_ok(infer_seq_rewind(e, seq, N + LAST - 1));
        assert_int_equal(infer_seq_length(e, seq), N + LAST - 1);
        token_behind(e, m, seq, N + LAST - 1, BEHIND + LAST - 1, got);
        assert_true(infer_replayed(e) > 0);
        assert_memory_equal(got, want, (size_t)m->n_vocab * sizeof *want);
        /* elsewhere it is another token */
        assert_ok(infer_seq_rewind(e, seq, N + LAST - 1));
        token_behind(e, m, seq, N + LAST - 1, BEHIND + LAST + 9, got);
        assert_memory_not_equal(got, want, (size_t)m->n_vocab * sizeof *want);
        assert_ok(infer_seq_rewind(e, seq, N - 1));
        assert_true(infer_seq_length(e, seq) <= N - 3);
        infer_engine_free(e);
    }
    free(want), free(got);
    infer_model_close(im);
}

/* A cut inside of the layers that take parts of a picture's row. */
static void parts_of_a_row_do_not_cross(void **state) {
    (void)state;
    char path[512];
    struct infer_model *im;
    struct infer_engine *e;
    struct infer_output out;
    int seq;
    assert_ok(infer_model_open(&im, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    inside(im)->n_deepstack = 2;
    const struct infer_engine_options o = {
        .device = "ref", .host_device = "cpu", .ctx = 64, .gpu_layers = 1, .cpu_experts = -1};
    static const float x[3 * 4096];
    assert_ok(infer_engine_create(&e, im, &o));
    assert_ok(infer_seq_open(e, &seq));
    assert_int_equal(infer_step(e, &(struct infer_row){.embed = x, .seq = seq}, 1, &out),
                     INFER_E_UNSUPPORTED);
    assert_non_null(strstr(infer_error(), "lie on two devices"));
    infer_engine_free(e);
    infer_model_close(im);
}

static void what_rows_are_refused(void **state) {
    (void)state;
    struct infer_model *m = open_llama();
    struct infer_engine *e = engine_of(m, "cpu");
    struct infer_output out;
    static const float x[4096];
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    assert_int_equal(infer_step(e, &(struct infer_row){.embed = x, .seq = seq, .decode = true}, 1, &out),
                     INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "one of a prompt"));
    infer_engine_free(e);
    const struct {
        const char *device, *says;
    } wrong[] = {{"cuda:", "cuda:0"}, {"cuda:x", "cuda:0"}, {"cuda:1x", "cuda:0"}, {"cudb", "must be"}};
    for (int i = 0; i < 4; i++) {
        const struct infer_engine_options o = {
            .device = wrong[i].device, .gpu_layers = -1, .cpu_experts = -1};
        assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), wrong[i].says));
    }
    const struct infer_engine_options far = {.device = "cuda:255", .gpu_layers = -1, .cpu_experts = -1};
    assert_int_equal(infer_engine_create(&e, m, &far), INFER_E_DEVICE);
    infer_model_close(m);
}

/* ---- three parts ---- */

static const struct infer_engine_options asked = {.kv_type = "f32",
                                                  .threads = 2,
                                                  .all_logits = true,
                                                  .nan_guard = true,
                                                  .no_repack = true,
                                                  .autotune = "off",
                                                  .no_graphs = true,
                                                  .gpu_layers = -1,
                                                  .cpu_experts = -1};

/* What backends are asked is in every part, whoever computes it. */
static void check_asked(const struct plan *p) {
    for (int i = 0; i < p->n_part; i++) {
        const struct backend_config *c = &p->part[i].config;
#define INFER_FOR_BACKENDS(type, field) assert_true(c->field == asked.field);
#define INFER_FOR_CPU(type, field)      assert_true(c->cpu.field == asked.field);
#define INFER_FOR_CUDA(type, field)     assert_true(c->cuda.field == asked.field);
#include "infer_options.def"
    }
}

/* The logits of a prompt's last row by a plan: cut layers on the host, experts of those before `away` there, too. */
static int by_parts(struct model *m, int cut, int away, float *logits) {
    enum { ROWS = 9 };
    struct plan_options o;
    const struct plan_settings set = {.n_ctx = 64,
                                      .n_slot = 1,
                                      .n_batch = ROWS,
                                      .n_decode_rows = 1,
                                      .n_device_layer = m->n_layer - cut,
                                      .n_device_experts = m->n_layer - away,
                                      .kv_type = KV_F32};
    struct arena arena = {0};
    struct plan p;
    struct backend *b;
    assert_ok(engine_options_read(&o, &asked));
    o.place = (struct placement){.device = &backend_cpu, .host = &backend_ref};
    assert_ok(plan_lay_out(&p, &arena, m, &o, &set));
    check_asked(&p);
    assert_ok(join_open(&b, &p));
    assert_ok(b->type->upload(b));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) assert_ok(b->type->compile(b, (enum row_class)i));
    int32_t id[ROWS], at[ROWS], slot[ROWS] = {0}, out_row[1] = {ROWS - 1}, page = 0;
    const uint8_t want[1] = {WANT_LOGITS};
    const int32_t *pages[KV_GROUPS];
    for (int i = 0; i < KV_GROUPS; i++) pages[i] = &page;
    for (int i = 0; i < ROWS; i++) id[i] = token_of(i), at[i] = i;
    const struct step s = seam_step(ROWS, 1, id, at, slot, out_row, want, pages);
    struct step_result r;
    assert_ok(b->type->run(b, ROW_PROMPT, &s));
    assert_ok(b->type->wait(b, &r));
    memcpy(logits, r.logits, (size_t)m->n_vocab * sizeof *logits);
    b->type->close(b);
    const int n = p.n_part;
    arena_free(&arena);
    return n;
}

static void joins_compose(void **state) {
    (void)state;
    char path[512];
    struct model *m;
    assert_ok(
        model_open(&m, test_path(path, sizeof path, "golden/hf/qwen3_moe"), &(struct tensorfile_options){0}));
    assert_true(m->n_layer >= 2);
    const size_t n = (size_t)m->n_vocab;
    float *whole = malloc(n * 4), *parts = malloc(n * 4);
    assert_int_equal(by_parts(m, 0, 0, whole), 1);
    static const int cases[][3] = {{1, 0, 2}, {0, 2, 2}, {1, 2, 3}}; /* layers, experts, parts */
    double size = 0;
    for (size_t k = 0; k < n; k++) size = fmax(size, fabs((double)whole[k]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(by_parts(m, cases[i][0], cases[i][1], parts), cases[i][2]);
        for (size_t k = 0; k < n; k++)
            assert_true(fabs((double)parts[k] - (double)whole[k]) <= 2e-2 * size); /* of BF16 on AMX, too */
    }
    free(whole), free(parts);
    model_close(m);
}

/* Every number has its bounds in infer_options.def, and words for -1 where there are some. */
static void numbers_out_of_range(void **state) {
    static const struct {
        struct infer_engine_options o;
        const char *says; /* NULL: it is fine */
    } cases[] = {
        {{.ctx = -5}, ".ctx is -5, must be 0 to 67108864, or -1 (max)"},
        {{.ctx = 1 << 27}, ".ctx is 134217728"},
        {{.slots = -2}, ".slots is -2, must be 0 to 1024, or -1 (the most that fit)"},
        {{.slots = 1025}, ".slots is 1025"},
        {{.batch = -1}, ".batch is -1, must be 0 to 16384"},
        {{.threads = -1}, ".threads is -1"},
        {{.ranks = -2}, ".ranks is -2"},
        {{.stages = 17}, ".stages is 17"},
        {{.kv_tokens = -3}, ".kv_tokens is -3"},
        {{.state_snapshots = -1}, ".state_snapshots is -1"},
        {{.gpu_layers = -2}, ".gpu_layers is -2, must be 0 to 65536, or -1 (auto)"},
        {{.cpu_experts = -2}, ".cpu_experts is -2"},
        {{.vram_fraction = -0.5}, ".vram_fraction is -0.5, must be 0.01 to 1"},
        {{.vram_fraction = 1.5}, ".vram_fraction is 1.5"},
        {{.vram_fraction = NAN}, ".vram_fraction is"},
        {{.decode_rows = -1}, ".decode_rows is -1"},
        {{.repack_after = -1}, ".repack_after is -1"},
        {{.block_scaled = "fp8", .blas = 1}, ".block_scaled fp8 and .blas are two kinds of products"},
        {{.ctx = -1, .slots = 2, .gpu_layers = -1, .cpu_experts = -1, .vram_fraction = 0.01}, NULL},
    };
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    (void)state;
    golden_read(&g, "llama");
    assert_ok(infer_model_open(&m, g.path, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_engine_options o = cases[i].o;
        struct infer_plan_report r;
        o.device = "cpu";
        const enum infer_status want = cases[i].says ? INFER_E_INPUT : INFER_OK;
        if (infer_engine_create(&e, m, &o) != want) fail_msg("case %zu: %s", i, infer_error());
        if (cases[i].says && !strstr(infer_error(), cases[i].says)) fail_msg("%zu: %s", i, infer_error());
        if (!want) infer_engine_free(e);
        assert_int_equal(infer_plan(m, &o, NULL, &r), want);
        infer_plan_free(&r);
    }
    infer_model_close(m);
    golden_free(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_axes_and_no_mask),
        cmocka_unit_test(an_embedding_in_place_of_a_token),
        cmocka_unit_test(embeddings_of_a_model_in_parts),
        cmocka_unit_test(states_behind_rows_that_are_no_tokens),
        cmocka_unit_test(parts_of_a_row_do_not_cross),
        cmocka_unit_test(what_rows_are_refused),
        cmocka_unit_test(joins_compose),
        cmocka_unit_test(numbers_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

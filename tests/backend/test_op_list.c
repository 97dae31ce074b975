/* op_list.h: what it tells of each kind of operation is what running one shows, on the reference and on the processor;
 * lives, overlaps and neighbours of a list; last tokens. */
#include "tests/lib/test.h"
#include "tests/lib/seam_step.h"
#include "cpu/cpu_isa.h"
#include "seam/last_tokens.h"
#include "seam/comm.h"
#include "seam/op_list.h"

#include <math.h>

enum {
    T = 5,
    N_OUT = 2,
    W = 8,
    WIDTH = 3 * W,
    BUFS = 3,
    PAGE = KV_PAGE * W,
    ARRAY = 2 * W * W,
    ARRAYS = 14,
    K = 4
};

/* ---- one operation between guards ---- */

/* What an operation may read beside views. */
enum {
    NORM_W,
    NORM_BIAS,
    FREQ,
    SINKS,
    TABLE,
    MEMBER_0,
    MEMBER_1,
    CONV_W,
    CONV_BIAS,
    ROUTER_BIAS,
    ROUTER_SCALES,
    DECAYS,
    STEP_BIAS,
    SKIP
};
static float array[ARRAYS][ARRAY];
static int32_t order[W];
static float fill[BUFS][T * WIDTH]; /* of the buffers before the operation */
static float kv_fill[2][PAGE], state_fill[(K - 1) * W];
static struct weight filler[BUFS], table;
static struct weight_group group, experts, heads; /* experts: 2; heads: 2 */
static struct router router;
static struct rope rope, runs;
/* Matrices of adapters, which op_uses does not tell */
static float low_a[2 * 3 * W], low_b[2 * 3 * W];
static const float low_scale[1] = {0.7f}, *const low_scales[1] = {low_scale};
static const struct lowrank_part plain_part = {.n = W, .k = W, .r = 3, .n_stack = 1, .a = low_a, .b = low_b},
                                 expert_part = {.n = 2, .k = W, .r = 3, .n_stack = 2, .a = low_a, .b = low_b};
static const struct lowrank plain_low = {&plain_part, 1, 3}, expert_low = {&expert_part, 1, 3};

/* What a run leaves. */
struct state {
    float buf[BUFS][T * WIDTH], kv[2][PAGE], kept[(K - 1) * W], logits[N_OUT * W];
    int32_t token[N_OUT];
    enum infer_status status;
};

static uint64_t seed = 88172645463325252ull;
static float uniform(void) { /* 0.5 .. 1.5 */
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return 0.5f + (float)(seed >> 40) * 0x1p-24f;
}
static void randomise(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = uniform();
}
static struct weight matrix(float *data, int n) {
    return (struct weight){
        .name = "w", .type = QUANT_F32, .n = n, .k = W, .factor = 1, .n_stack = 1, .data = data};
}

static void set_up(void) {
    seed = 88172645463325252ull; /* the same numbers on every backend */
    for (int i = 0; i < ARRAYS; i++) randomise(array[i], ARRAY);
    for (int i = 0; i < W; i++) order[i] = W - 1 - i;
    randomise(low_a, 2 * 3 * W), randomise(low_b, 2 * 3 * W);
    for (int i = 0; i < BUFS; i++) {
        randomise(fill[i], T * WIDTH);
        filler[i] = matrix(fill[i], T);
        filler[i].k = WIDTH;
    }
    for (int t = 0; t < T; t++) /* what also stands for positions */
        for (int i = 2 * W; i < WIDTH; i++) fill[0][t * WIDTH + i] *= 4;
    for (int i = 0; i < 2; i++) randomise(kv_fill[i], PAGE);
    randomise(state_fill, (K - 1) * W);
    table = matrix(array[TABLE], T);
    group = (struct weight_group){.n_member = 2, .n = W, .k = W};
    group.member[0] = matrix(array[MEMBER_0], W / 2), group.member[1] = matrix(array[MEMBER_1], W / 2);
    experts = group;
    for (int i = 0; i < 2; i++) {
        experts.member[i].n = 1, experts.member[i].n_stack = 2;
        experts.member[i].stack_bytes = W * sizeof(float);
    }
    experts.n = 2;
    heads = (struct weight_group){.n_member = 1, .n = 3, .k = 3};
    heads.member[0] = matrix(array[MEMBER_0], 3);
    heads.member[0].k = 3, heads.member[0].n_stack = 2, heads.member[0].stack_bytes = 9 * sizeof(float);
    router = (struct router){.n_expert = W,
                             .n_used = W / 2,
                             .act = ROUTE_SIGMOID,
                             .norm = ROUTE_NORM_ADD,
                             .scale = 1,
                             .bias = array[ROUTER_BIAS],
                             .expert_scale = array[ROUTER_SCALES]};
    rope = (struct rope){.kind = ROPE_NEOX, .n_rot = W, .mscale = 1, .inv_freq = array[FREQ]};
    runs = rope, runs.every = 4;
}

/* Buffers 0 and 1 have the rows of the step, 2 those of the outputs. */
static struct view view(int buf, int part) { return (struct view){buf, part * W, W}; }

enum { SAMPLES = 58 };
static const int gathered[] = {0, 2, W + 2};
static const int64_t hash_mult[] = {5, 3, 7}, hash_rows[] = {2, 3}, hash_first[] = {1, 0};
static const struct ngram hash = {3, 2, 77, 78, hash_mult, hash_rows, hash_first};

static void samples(struct op *out) {
    struct view x = view(0, 1), y = view(0, 2), z = view(1, 1), picked = view(2, 1), none = {-1, 0, 0};
    struct view choice = view(1, 2), half = view_columns(z, 0, W / 2), gate = view_columns(view(1, 0), 3, 1);
    struct view two = {0, W, 2 * W}, shared = view_columns(view(0, 0), 0, W / 2);
    struct view a = view_columns(y, 1, 2), b = view_columns(y, 4, 2);
    const struct op all[SAMPLES] = {
        {OP_EMBED, 0, "embed", .embed = {z, &table, 2, false}},
        {OP_EMBED, 0, "embed of a table of its own", .embed = {z, group.member, 2, false}},
        {OP_NORM, 0, "norm", .norm = {x, z, NORM_RMS, W, 1e-3f, array[NORM_W], NULL, 0}},
        {OP_NORM, 0, "norm without weights", .norm = {x, z, NORM_RMS, W, 1e-3f, NULL, NULL, 0}},
        {OP_NORM, 0, "norm in place",
         .norm = {x, x, NORM_LAYER, W / 2, 1e-3f, array[NORM_W], array[NORM_BIAS], 0}},
        {OP_NORM, 0, "norm with weights of its own for each group",
         .norm = {x, z, NORM_RMS, W / 2, 1e-3f, array[NORM_W], array[NORM_BIAS], W}},
        {OP_MATMUL, 0, "matmul", .matmul = {x, z, &group, false}},
        {OP_MATMUL, 0, "matmul of outputs", .matmul = {picked, view(2, 2), &group, false}},
        {OP_HEADS, 0, "heads", .heads = {x, z, &heads}},
        {OP_ROPE, 0, "rope", .rope = {x, 1, W, &rope, false}},
        {OP_KV_PUT, 0, "kv_put", .kv_put = {x, y, 0}},
        {OP_ATTEND, 0, "attend", .attend = {.q = x, .out = z, .n_head = 1, .scale = 0.3f}},
        {OP_ATTEND, 0, "attend with a sink",
         .attend = {.q = x, .out = z, .n_head = 1, .scale = 0.3f, .sinks = array[SINKS]}},
        {OP_ATTEND, 0, "attend with a temperature",
         .attend = {.q = x, .out = z, .n_head = 1, .scale = 0.3f, .temp_beta = 0.5f, .temp_len = 2}},
        {OP_ATTEND, 0, "attend in chunks",
         .attend = {.q = x, .out = z, .n_head = 1, .scale = 0.3f, .window = 2, .chunked = true}},
        {OP_ATTEND, 0, "attend to chosen positions",
         .attend = {.q = x, .out = z, .n_head = 1, .scale = 0.3f, .chosen = y, .by.n_top = W}},
        {OP_INDEX, 0, "index",
         .index = {{1, 0, 2 * W}, view_columns(y, 2, 2), view_columns(view(0, 0), 0, 8), 0, 2, {.n_top = 8}}},
        {OP_ATTEND, 0, "attend with entries",
         .attend = {.q = x,
                    .out = z,
                    .n_head = 1,
                    .scale = 0.3f,
                    .window = 4,
                    .by = {.block = 2, .ends = true},
                    .entries = 1}},
        {OP_ROPE, 0, "rope back, by runs", .rope = {x, 1, W, &runs, true}},
        {OP_COMPRESS, 0, "compress", .compress = {a, b, view_columns(z, 0, 1), 0, 2, array[CONV_W]}},
        {OP_BALANCE, 0, "balance", .balance = {x, x, 2, 3, 1e-3f, array[SKIP], array[NORM_W]}},
        {OP_BALANCE, 0, "balance of what is read",
         .balance = {view_columns(z, 1, 3), view_columns(z, 1, 3), 3, 0, 1e-3f, array[SKIP], array[NORM_W]}},
        {OP_STREAMS, 0, "streams",
         .streams = {x, view_columns(y, 0, 4), view_columns(z, 0, 4), view_columns(y, 4, 2), x, 2}},
        {OP_STREAMS, 0, "streams to one", .streams = {x, view_columns(y, 0, 2), none, none, half, 2}},
        {OP_NGRAM, 0, "ngram", .ngram = {{1, 0, 2 * W}, 0, group.member, &hash}},
        {OP_GLU, 0, "glu", .glu = {x, y, z, ACT_SILU, {0}}},
        {OP_GLU, 0, "activation in place", .glu = {picked, {-1, 0, 0}, picked, ACT_CAP, {.limit = 2}}},
        {OP_POSITION, 0, "position", .position = {x, array[TABLE], 2 * W}},
        {OP_ADD, 0, "add", .add = {x, y, z}},
        {OP_ADD, 0, "add in place", .add = {x, z, x}},
        {OP_ROWS, 0, "rows", .rows = {x, picked}},
        {OP_MERGE, 0, "merge", .merge = {x, picked, 1, false}},
        {OP_MERGE, 0, "merge to a mean", .merge = {x, picked, 1, true}},
        {OP_INPUT, 0, "input", .input = {z, 1}},
        {OP_EMBED, 0, "embed of a table beside", .embed = {z, group.member, 2, true}},
        {OP_NORM, 0, "norm that is none",
         .norm = {x, z, NORM_NONE, W, 0, array[NORM_W], array[NORM_BIAS], 0}},
        {OP_COLUMNS, 0, "columns", .columns = {x, z, order}},
        {OP_SELECT, 0, "select", .select = {picked, W}},
        {OP_CONV, 0, "conv", .conv = {x, z, 0, K, array[CONV_W], array[CONV_BIAS], true}},
        {OP_CONV, 0, "conv without bias", .conv = {x, z, 0, K, array[CONV_W], NULL, false}},
        {OP_DELTA, 0, "delta",
         .delta = {x, a, b, half, 0, 1, 2, 2, 2, false, array[DECAYS], array[STEP_BIAS], 0}},
        {OP_DELTA, 0, "delta whose rows decay by themselves",
         .delta = {x, view_columns(y, 0, 4), b, half, 0, 1, 2, 2, 2, false, array[DECAYS], array[STEP_BIAS],
                   2}},
        {OP_GLU, 0, "glu with a gate for each head", .glu = {view_columns(x, 1, 2), y, z, ACT_SIGMOID, {0}}},
        {OP_SSM, 0, "ssm",
         .ssm = {x, a, half, 0, 2, 2, 1, 2, array[DECAYS], array[STEP_BIAS], array[SKIP], 0, 9}},
        {OP_SSM, 0, "ssm without the input itself",
         .ssm = {x, a, half, 0, 2, 2, 1, 2, array[DECAYS], array[STEP_BIAS], NULL, 0, 9}},
        {OP_ROUTE, 0, "route", .route = {x, z, &router, NULL, 0}},
        {OP_EXPERTS, 0, "experts", .experts = {x, choice, z, &experts, W / 2, false, false, 0, 0}},
        {OP_EXPERTS, 0, "experts with weights",
         .experts = {x, choice, z, &experts, W / 2, false, true, 0, 0}},
        {OP_EXPERTS, 0, "experts of rows of their own",
         .experts = {two, choice, half, &experts, 2, true, false, 0, 0}},
        {OP_MIX, 0, "mix", .mix = {x, choice, none, none, view_columns(z, 0, 2), W / 2, false}},
        {OP_MIX, 0, "mix with a gate", .mix = {x, choice, shared, gate, half, 2, false}},
        {OP_MIX, 0, "mix in place", .mix = {x, none, half, none, half, 2, true}},
        {OP_REMOTE, 0, "remote", .remote = {x, choice, z}},
        {OP_REDUCE, 0, "reduce", .reduce = {z}},
        {OP_GATHER, 0, "gather", .gather = {x, {1, 0, W + 2}, gathered}},
        {OP_LOWRANK, 0, "lowrank", .lowrank = {x, none, z, &plain_low, 0, false, false, 0}},
        {OP_LOWRANK, 0, "lowrank of outputs",
         .lowrank = {picked, none, view(2, 2), &plain_low, 0, false, false, 0}},
        {OP_LOWRANK, 0, "lowrank of experts with weights",
         .lowrank = {x, choice, z, &expert_low, W / 2, false, true, 0}},
    };
    memcpy(out, all, sizeof all);
}

/* Another backend's sums, as good as any that need x and choice. */
static enum infer_status run_remote(void *user, enum row_class cls, int layer, int n_row, const float *x,
                                    const float *choice, float *out) {
    (void)user, (void)cls, (void)layer;
    for (int i = 0; i < n_row * W; i++) out[i] = 1 + x[i] * choice[i];
    return INFER_OK;
}

/* What another rank has, as good as any that needs what this one has: its columns of a gather stand in front. */
static enum infer_status reduce(struct comm *c, float *x, int n_row, size_t stride, int width) {
    for (int t = 0; t < n_row; t++)
        for (int i = 0; i < width; i++) x[(size_t)t * stride + (size_t)i] *= (float)c->n_rank + 1;
    return INFER_OK;
}
static enum infer_status gather(struct comm *c, float *x, int n_row, size_t stride, const int *col) {
    for (int t = 0; t < n_row; t++)
        for (int i = 0; i < col[1]; i++) x[(size_t)t * stride + (size_t)i] = (float)(c->n_rank + t + i);
    return INFER_OK;
}
static void nobody_else(struct comm *c) { (void)c; }
static const struct comm_type comm_type = {
    .name = "test", .reduce = reduce, .gather = gather, .abort = nobody_else, .ready = nobody_else};

/* Fills the buffers, then runs op. The list of the other class names the store, so that it is there. */
static void run(const struct backend_type *type, struct op op, int first_id, struct state *out) {
    struct op ops[BUFS + 1], put = {.kind = OP_KV_PUT, .kv_put = {view(0, 1), view(0, 2), 0}};
    struct buf buf[BUFS], other_buf[BUFS];
    for (int i = 0; i < BUFS; i++) {
        buf[i] = (struct buf){.name = "b", .width = WIDTH, .rows = i == 2 ? BUF_ROWS_OUT : BUF_ROWS_ALL};
        ops[i] =
            (struct op){.kind = OP_EMBED, .name = "fill", .embed = {{i, 0, WIDTH}, &filler[i], 1, false}};
    }
    ops[BUFS] = op;
    memcpy(other_buf, buf, sizeof buf);
    struct op_list list = {ROW_DECODE, ops, BUFS + 1, buf, BUFS, T, T},
                   other = {ROW_PROMPT, &put, 1, other_buf, BUFS, T, T};
    struct kv_store store = {0, 1, W, W, false, KV_F32, KV_F32, 0};
    struct kv_group kv_group = {0, 1, 1};
    struct state_store states = {(K - 1) * W};
    const struct remote remote = {run_remote, NULL};
    struct comm comm = {.type = &comm_type, .rank = 1, .n_rank = 2};
    const struct weight_group *groups[1] = {&group};
    struct backend_config c = {.group = groups,
                               .n_group = 1,
                               .embedding = &filler[0],
                               .n_vocab = W,
                               .n_embd = WIDTH,
                               .store = &store,
                               .n_store = 1,
                               .kv_group = &kv_group,
                               .n_kv_group = 1,
                               .kv_type = KV_F32,
                               .state = &states,
                               .n_state = 1,
                               .n_state_slot = 1,
                               .n_slot = 1,
                               .n_ctx = KV_PAGE - 1,
                               .cpu = {.threads = 2},
                               .n_logits = N_OUT,
                               .remote = &remote,
                               .comm = &comm,
                               .list = {[ROW_DECODE] = &list, [ROW_PROMPT] = &other}};
    list_lives(&list);
    struct backend_sizes sizes;
    struct backend *b;
    assert_ok(type->sizes(&c, &sizes));
    for (int i = 0; i < BUFS; i++) {
        buf[i].offset = c.activation_bytes;
        c.activation_bytes += (buf[i].row_bytes * T + 63) / 64 * 64;
    }
    assert_ok(type->open(&b, &c));
    assert_ok(type->upload(b));
    assert_ok(type->compile(b, ROW_DECODE));
    assert_ok(type->kv_write(b, 0, 0, kv_fill[0], kv_fill[1]));
    if (op_uses(&op).state == 0) assert_ok(type->state_write(b, 0, 0, state_fill));
    int32_t id[T], pos[T], slot[T] = {0}, out_row[N_OUT] = {1, 3}, page = 0;
    const int32_t *pages[1] = {&page};
    uint8_t want[N_OUT] = {WANT_TOKEN | WANT_LOGITS, WANT_TOKEN | WANT_LOGITS};
    for (int t = 0; t < T; t++) id[t] = t, pos[t] = 10 + t;
    id[0] = first_id;
    struct step step = seam_step(T, N_OUT, id, pos, slot, out_row, want, pages);
    step.adapter = low_scales;
    struct step_result result;
    memset(out, 0, sizeof *out);
    assert_ok(type->run(b, ROW_DECODE, &step));
    out->status = type->wait(b, &result);
    for (int i = 0; i < BUFS; i++)
        assert_ok(type->read(b, ROW_DECODE, (struct view){i, 0, WIDTH}, T, out->buf[i]));
    assert_ok(type->kv_read(b, 0, 0, out->kv[0], out->kv[1]));
    memcpy(out->kept, state_fill, sizeof state_fill);
    if (op_uses(&op).state == 0) assert_ok(type->state_read(b, 0, 0, out->kept));
    if (op.kind == OP_SELECT) {
        memcpy(out->token, result.token, sizeof out->token);
        memcpy(out->logits, result.logits, sizeof out->logits);
    }
    type->close(b);
}

/* ---- what is told is what happens ---- */

static bool same_bits(float a, float b) { return !memcmp(&a, &b, sizeof a); }
static bool inside(struct view v, int buf, int i) {
    return v.buf == buf && i % WIDTH >= v.col && i % WIDTH < v.col + v.width;
}
static bool told_read(const struct op_use *u, int buf, int i) {
    for (int k = 0; k < u->n_read; k++)
        if (inside(u->read[k], buf, i)) return true;
    return false;
}
static bool told_written(const struct op_use *u, int rows, int buf, int i) {
    for (int k = 0; k < u->n_write; k++)
        if (inside(u->write[k], buf, i) && i / WIDTH < rows) return true;
    return false;
}
static int told_rows(const struct op *op) {
    struct buf buf[BUFS] = {[2] = {.rows = BUF_ROWS_OUT}};
    struct op_list l = {.buf = buf, .n_buf = BUFS};
    return op_rows_count(&l, op, T, N_OUT);
}

/* The told elements are replaced, in the told rows, and no other one; the store and the result as told. */
static void check_writes(const struct op *s, const struct op_use *u, const struct state *after) {
    int rows = told_rows(s);
    bool stored = memcmp(after->kv, kv_fill, sizeof kv_fill) != 0;
    for (int b = 0; b < BUFS; b++)
        for (int i = 0; i < T * WIDTH; i++)
            if (same_bits(after->buf[b][i], fill[b][i]) == told_written(u, rows, b, i))
                fail_msg("%s: buffer %d row %d column %d: %s", s->name, b, i / WIDTH, i % WIDTH,
                         told_written(u, rows, b, i) ? "told to be written, and is not" : "written");
    if (stored != (u->writes_store == 0)) fail_msg("%s: store written: %d", s->name, stored);
    bool kept = memcmp(after->kept, state_fill, sizeof state_fill) != 0;
    if (kept != (u->state == 0)) fail_msg("%s: state written: %d", s->name, kept);
}

/* Whether two runs gave the same: what is told to be written, with the store where it was written, and the result. */
static bool same_outcome(const struct op *s, const struct op_use *u, const struct state *x,
                         const struct state *y) {
    int rows = told_rows(s);
    for (int b = 0; b < BUFS; b++)
        for (int i = 0; i < T * WIDTH; i++)
            if (told_written(u, rows, b, i) && !same_bits(x->buf[b][i], y->buf[b][i])) return false;
    for (int i = 10 * W; u->writes_store == 0 && i < (10 + T) * W; i++)
        if (!same_bits(x->kv[0][i], y->kv[0][i]) || !same_bits(x->kv[1][i], y->kv[1][i])) return false;
    return !memcmp(x->token, y->token, sizeof x->token) && !memcmp(x->logits, y->logits, sizeof x->logits);
}

/* Poison in every element that is not told to be read changes nothing. */
static void check_poison(const struct backend_type *type, const struct op *s, const struct op_use *u,
                         const struct state *before) {
    struct state after;
    float kept[BUFS][T * WIDTH], kv_kept[2][PAGE];
    memcpy(kept, fill, sizeof fill);
    memcpy(kv_kept, kv_fill, sizeof kv_fill);
    for (int b = 0; b < BUFS; b++)
        for (int i = 0; i < T * WIDTH; i++)
            if (!told_read(u, b, i)) fill[b][i] = NAN;
    for (int i = 0; u->reads_store != 0 && i < PAGE; i++) kv_fill[0][i] = kv_fill[1][i] = NAN;
    run(type, *s, 0, &after);
    memcpy(fill, kept, sizeof fill);
    memcpy(kv_fill, kv_kept, sizeof kv_fill);
    if (!same_outcome(s, u, before, &after)) fail_msg("%s reads what is not told", s->name);
}

/* Other values in x change the outcome when they are told to be read, and only then. */
static void check_matters(const struct backend_type *type, const struct op *s, const struct op_use *u,
                          const struct state *before, const char *what, float *x, int n, bool told) {
    float kept[PAGE];
    struct state after;
    bool same = true;
    memcpy(kept, x, (size_t)n * sizeof *x);
    for (int i = 0; i < 32 && same; i++) { /* what picks experts or positions may pick the same ones again */
        randomise(x, n);
        run(type, *s, 0, &after);
        same = same_outcome(s, u, before, &after);
        if (!told) break;
    }
    memcpy(x, kept, (size_t)n * sizeof *x);
    if (same == told)
        fail_msg("%s: %s: %s", s->name, what, told ? "told to be read, and is not" : "read, and not told");
}

static void check_reads(const struct backend_type *type, const struct op *s, const struct op_use *u,
                        const struct state *before) {
    static const char *const names[] = {"norm weights",  "norm bias", "frequencies",   "sinks", "table",
                                        "member 0",      "member 1",  "taps",          "bias",  "router bias",
                                        "router scales", "decays",    "bias of steps", "skip"};
    check_poison(type, s, u, before);
    for (int k = 0; k < u->n_read; k++)
        check_matters(type, s, u, before, "a view", &fill[u->read[k].buf][WIDTH + u->read[k].col], W, true);
    for (int a = 0; a < ARRAYS; a++) {
        bool told = false;
        for (int k = 0; k < u->n_constant; k++) told |= u->constant[k].data == array[a];
        for (int k = 0; k < u->n_weight; k++) told |= u->weight[k].data == (const void *)array[a];
        check_matters(type, s, u, before, names[a], array[a], ARRAY, told);
    }
    for (int k = 0; k < 2; k++)
        check_matters(type, s, u, before, "the store", kv_fill[k], PAGE,
                      u->reads_store == 0 && !(k && s->kind == OP_INDEX)); /* keys alone */
    check_matters(type, s, u, before, "the state", state_fill, (K - 1) * W, u->state == 0);
}

/* lacks: kinds that it has no kernel for, a bit each. */
static void every_kind_on(const struct backend_type *type, uint64_t lacks) {
    struct op sample[SAMPLES];
    struct state before;
    bool seen[OP_KIND_COUNT] = {false};
    set_up();
    samples(sample);
    for (int i = 0; i < SAMPLES; i++) {
        const struct op *s = &sample[i];
        struct op_use u = op_uses(s);
        seen[s->kind] = true;
        if (lacks >> s->kind & 1) continue;
        run(type, *s, 0, &before);
        assert_int_equal(before.status, INFER_OK);
        check_writes(s, &u, &before);
        check_reads(type, s, &u, &before);
    }
    for (int k = 0; k < OP_KIND_COUNT; k++)
        if (!seen[k]) fail_msg("no sample of operation %d", k);
}
static void reference_does_as_told(void **state) {
    (void)state;
    every_kind_on(&backend_ref, 0);
}
static void processor_does_as_told(void **state) {
    (void)state;
    if (cpu_isa_best() == CPU_ISA_NONE) skip();
    every_kind_on(&backend_cpu, 1u << OP_SSM);
}

/* Constants have the lengths that are read. */
static void constants_are_whole(void **state) {
    (void)state;
    struct op s[SAMPLES];
    set_up();
    samples(s);
    for (int i = 0; i < SAMPLES; i++) {
        struct op_use u = op_uses(&s[i]);
        for (int k = 0; k < u.n_constant; k++) {
            int n = s[i].kind == OP_NORM        ? op_norm_weights(&s[i].norm)
                    : s[i].kind == OP_ROPE      ? W / 2
                    : s[i].kind == OP_POSITION  ? ARRAY
                    : s[i].kind == OP_COLUMNS   ? W
                    : s[i].kind == OP_ROUTE     ? W
                    : s[i].kind == OP_CONV      ? (k ? W : W * K)
                    : s[i].kind == OP_DELTA     ? (k ? s[i].delta.a.width : 2)
                    : s[i].kind == OP_COMPRESS  ? 4
                    : s[i].kind == OP_NGRAM     ? 2 * (k ? s[i].ngram.by->n_head : s[i].ngram.by->size)
                    : s[i].kind == OP_BALANCE   ? (k ? s[i].balance.x.width
                                                   : s[i].balance.x.width > s[i].balance.n ? 3
                                                                                           : 1)
                    : op_uses(&s[i]).state == 0 ? 2
                                                : 1;
            assert_int_equal(u.constant[k].n, n);
        }
    }
}

/* ---- lists ---- */

static void lives_and_neighbours(void **state) {
    (void)state;
    enum { X, H, GU, F, V, UNUSED, N };
    struct weight_group gate_up = {.id = 3, .n_member = 2, .n = 2 * W, .k = W};
    gate_up.member[0].n = gate_up.member[1].n = W;
    struct view x = {X, 0, W}, h = {H, 0, W}, gu = {GU, 0, 2 * W}, f = {F, 0, W}, v = {V, 0, W};
    struct op op[] = {
        {.kind = OP_EMBED, .embed = {x, &table, 1, false}},
        {.kind = OP_EMBED, .embed = {v, &table, 1, false}},
        {.kind = OP_NORM, .norm = {x, h, NORM_RMS, W, 0, NULL, NULL, 0}},
        {.kind = OP_MATMUL, .matmul = {h, gu, &gate_up, false}},
        {.kind = OP_GLU, .glu = {{GU, 0, W}, {GU, W, W}, f, ACT_SILU, {0}}},
        {.kind = OP_ADD, .add = {x, f, x}},
        {.kind = OP_KV_PUT, .kv_put = {x, v, 1}},
    };
    struct buf buf[N] = {{.width = W}, {.width = W}, {.width = 2 * W},
                         {.width = W}, {.width = W}, {.width = W}};
    struct op_list l = {ROW_PROMPT, op, sizeof op / sizeof *op, buf, N, 10, 4};
    static const int lives[N][2] = {{0, 6}, {2, 3}, {3, 4}, {4, 5}, {1, 6}, {-1, -1}};
    list_lives(&l);
    for (int i = 0; i < N; i++) {
        assert_int_equal(buf[i].first, lives[i][0]);
        assert_int_equal(buf[i].last, lives[i][1]);
        assert_int_equal(buf_lives_meet(&buf[i], &buf[H]), i == X || i == H || i == GU || i == V);
    }
    static const bool hands_over[] = {false, false, true, true, true, true, false};
    for (int i = 0; i < l.n_op; i++) {
        assert_int_equal(list_hands_over(&l, i), hands_over[i]);
        assert_int_equal(list_is_gated(&l, i), i == 3);
    }
    op[4].glu.up.col = 0; /* not the second half */
    assert_false(list_is_gated(&l, 3));

    struct backend_config c = {.list = {[ROW_PROMPT] = &l}};
    assert_true(config_uses_group(&c, 3) && !config_uses_group(&c, 0));
    assert_true(config_uses_store(&c, 1) && !config_uses_store(&c, 0));
    struct op more[] = {{.kind = OP_CONV, .conv = {.x = x, .out = h, .state = 2}},
                        {.kind = OP_ATTEND, .attend = {.q = x, .out = h, .store = 4, .entries = 7}}};
    struct op_list states = {ROW_DECODE, more, 2, buf, N, 10, 4};
    assert_false(config_uses_state(&c, 2));
    c.list[ROW_DECODE] = &states;
    assert_true(config_uses_state(&c, 2) && !config_uses_state(&c, 1));
    assert_true(config_uses_store(&c, 4) && config_uses_store(&c, 6) && !config_uses_store(&c, 2));

    for (int i = 0; i < N; i++) buf[i].row_bytes = 64;
    buf[H].rows = BUF_ROWS_OUT, buf[H].offset = 640, buf[GU].offset = 640 + 256 - 1,
    buf[F].offset = 640 + 256;
    assert_false(list_overlaps(&l, x, h));
    assert_true(list_overlaps(&l, h, gu) && list_overlaps(&l, gu, h));
    assert_false(list_overlaps(&l, h, f));
}

static void rotations(void **state) {
    (void)state;
    struct view q = {0, 0, W}, k = {0, W, W}, v = {0, 2 * W, W};
    struct op op[] = {{.kind = OP_ROPE, .rope = {q, 1, W, &rope, false}},
                      {.kind = OP_ROPE, .rope = {k, 1, W, &rope, false}},
                      {.kind = OP_KV_PUT, .kv_put = {k, v, 0}}};
    struct op_list l = {.op = op, .n_op = 3};
    assert_true(list_is_rotated(&l, 0));
    assert_false(list_is_rotated(&l, 1));
    op[1].rope.back = true;
    assert_false(list_is_rotated(&l, 0));
    op[1].rope.back = false;
    op[2].kv_put.k = q;
    assert_false(list_is_rotated(&l, 0));
}

/* ---- last tokens ---- */

static void last_tokens_become_ids(void **state) {
    (void)state;
    int32_t memory[2 + 3];
    const int32_t id[] = {7, STEP_LAST, STEP_LAST}, slot[] = {0, 1, 0};
    struct last_tokens l;
    struct step s = {.n_row = 3, .id = id, .slot = slot};
    assert_int_equal(last_tokens_bytes(2, 3), sizeof memory);
    last_tokens_open(&l, memory, 2);
    l.token[1] = 5;
    assert_int_equal(last_tokens_resolve(&l, &s), INFER_E_INPUT);
    assert_ptr_equal(s.id, id);
    l.token[0] = 0;
    assert_ok(last_tokens_resolve(&l, &s));
    assert_true(s.id[0] == 7 && s.id[1] == 5 && s.id[2] == 0);
}

/* A row of a sequence that selected nothing is refused by every backend, in the same words. */
static void no_last_token(void **state) {
    (void)state;
    const struct backend_type *const types[] = {&backend_ref, &backend_cpu};
    struct state out;
    struct op s[SAMPLES];
    set_up();
    samples(s);
    for (int i = 0; i < (cpu_isa_best() == CPU_ISA_NONE ? 1 : 2); i++) {
        run(types[i], s[0], STEP_LAST, &out);
        assert_int_equal(out.status, INFER_E_INPUT);
        assert_string_equal(err_message(), "a row asks for the last token of a sequence that has none");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_does_as_told),
        cmocka_unit_test(processor_does_as_told),
        cmocka_unit_test(constants_are_whole),
        cmocka_unit_test(lives_and_neighbours),
        cmocka_unit_test(rotations),
        cmocka_unit_test(last_tokens_become_ids),
        cmocka_unit_test(no_last_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Lists of operations on every backend and instruction set against the reference: for test_ops and test_moe. Inputs come in through
 * embed ops (row t of a step is row id[t] of a table), the output buffer starts as NaN, and columns beside the output must keep
 * their pattern. */
#pragma once
#include "tests/lib/test.h"
#include "tests/lib/random.h"
#include "tests/lib/seam_step.h"
#include "seam/op_list.h"
#include "cpu/cpu_list.h"
#include "cpu/cpu_isa.h"
#include "infer.h"
#include "base/mem.h"
#include "tests/lib/tolerance.h"

#include <math.h>

#ifndef OP_BENCH_ROWS
#define OP_BENCH_ROWS 70
#endif
enum { MAX_T = OP_BENCH_ROWS, GUARD = 8, MAX_OPS = 12, MAX_BUFS = 8, N_SLOT = 3, PAGES = 5 };
static const float pattern = 1234.5f;

static inline float gauss(void) { return (uniform() + uniform() + uniform() + uniform()) * 0.866f; }

/* ---- a list under construction: inputs, the ops to test, the output between guard columns ---- */

struct bench {
    struct op op[MAX_OPS];
    struct buf buf[MAX_BUFS];
    int n_op, n_buf, n_table;
    struct weight table[4], *embedding;
    struct weight_group own[4];        /* of the tables, on a card */
    struct weight_group group, second; /* second: that of another operation, 1 its id */
    const struct weight_group *groups[6];
    struct kv_store store;
    struct kv_group kv;
    struct state_store state;
    bool ids;                     /* of tokens, in the states */
    enum kv_type kv_type;         /* KV_TYPES: the store's own */
    const float *adapter[N_SLOT]; /* step.adapter, with adapted */
    bool adapted;
    int n_vocab, n_out; /* n_out: outputs of a step, 0: all rows */
    struct view out;
    enum infer_status expect;
    bool no_fuse, matmul, int16;
    bool crowded; /* the team has one processor: goes on until it is smaller */
    bool whole;   /* inputs and what the cache has are whole numbers, whose sums are exact and often equal */
    int far;      /* position of the third sequence's first row; 0: before a page's end */
    float *kept;  /* with it: what each sequence's state is behind a step, kept[N_SLOT][state.n_elem] */
};

static inline struct view new_buf(struct bench *b, int width, enum buf_rows rows) {
    b->buf[b->n_buf] = (struct buf){.name = "b", .width = width, .rows = rows};
    return (struct view){b->n_buf++, 0, width};
}
static inline void push(struct bench *b, struct op op) {
    op.name = "op";
    b->op[b->n_op++] = op;
}
/* A buffer whose row t is row id[t] of a new table; fill 0: gaussian, 1: NaN with guards of the pattern. */
static inline struct view input(struct bench *b, int width, int fill) {
    struct view v = new_buf(b, width, BUF_ROWS_ALL);
    struct weight *w = &b->table[b->n_table++];
    float *data = malloc(sizeof(float) * (size_t)width * MAX_T);
    for (int t = 0; t < MAX_T; t++)
        for (int i = 0; i < width; i++)
            data[t * width + i] = !fill && b->whole                 ? roundf(gauss())
                                  : !fill                           ? gauss() * (i % 37 ? 1 : 4)
                                  : i < GUARD || i >= width - GUARD ? pattern
                                                                    : NAN;
    *w = (struct weight){
        .name = "table", .type = QUANT_F32, .n = MAX_T, .k = width, .factor = 1, .n_stack = 1, .data = data};
    b->embedding = w;
    push(b, (struct op){.kind = OP_EMBED, .embed = {v, w, 1, false}});
    return v;
}
static inline struct view output(struct bench *b, int width) {
    struct view v = input(b, width + 2 * GUARD, 1);
    return b->out = (struct view){v.buf, GUARD, width};
}
static inline void bench_free(struct bench *b) {
    for (int i = 0; i < b->n_table; i++) free((void *)b->table[i].data);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < (g ? b->second : b->group).n_member; i++) {
            free((void *)(g ? b->second : b->group).member[i].data);
            free((void *)(g ? b->second : b->group).member[i].bias);
        }
}

struct setting {
    const struct backend_type *type;
    const char *isa;
    int threads;
    enum row_class cls;
};

/* The first n numbers that a seed gives, made once: every run has them. */
static inline const float *numbers_of(uint64_t from, size_t n) {
    static float *x;
    static size_t have;
    static uint64_t of, next;
    const uint64_t keep = seed;
    if (of != from) have = 0, of = next = from;
    if (n > have && !(x = realloc(x, n * sizeof *x))) fail_msg("out of memory");
    seed = next;
    while (have < n) x[have++] = gauss();
    next = seed;
    seed = keep;
    return x;
}

/* Random rows in all pages of the cache: what came before. */
static inline void fill_cache(const struct bench *b, const struct setting s, struct backend *e) {
    size_t nk = (size_t)b->store.n_kv_head * KV_PAGE * (size_t)b->store.head_dim_k;
    size_t nv = (size_t)b->store.n_kv_head * KV_PAGE * (size_t)b->store.head_dim_v;
    const float *x = numbers_of(42, N_SLOT * PAGES * (nk + nv));
    float *whole = b->whole ? malloc(4 * nk) : NULL; /* keys of whole numbers */
    for (int p = 0; p < N_SLOT * PAGES; p++, x += nk + nv) {
        for (size_t i = 0; whole && i < nk; i++) whole[i] = roundf(x[i]);
        assert_ok(s.type->kv_write(e, 0, p, whole ? whole : x, x + nk));
    }
    free(whole);
}

/* Random states; that of the sequence that begins, at position 0, is NaN. */
static inline void fill_states(const struct bench *b, const struct setting s, struct backend *e) {
    float *x = malloc(sizeof *x * (size_t)b->state.n_elem);
    uint64_t keep = seed;
    seed = 43;
    for (int k = 0; k < N_SLOT; k++) {
        for (int i = 0; i < b->state.n_elem; i++)
            x[i] = k == 1 ? NAN : b->ids ? floorf(fabsf(8 * gauss())) : gauss();
        assert_ok(s.type->state_write(e, 0, k, x));
    }
    seed = keep;
    free(x);
}

/* out[T][width] of the bench's output, after a look at what stands beside it. */
static inline void read_out(const struct bench *b, const struct setting s, struct backend *e, int T,
                            float *out) {
    struct view wide = {b->out.buf, 0, b->buf[b->out.buf].width};
    float *all = malloc(sizeof(float) * (size_t)wide.width * MAX_T);
    assert_ok(s.type->read(e, s.cls, wide, T, all));
    for (int t = 0; t < T; t++) {
        const float *row = all + (size_t)t * (size_t)wide.width;
        if (b->buf[b->out.buf].width != b->out.width)
            for (int i = 0; i < GUARD; i++)
                if (row[i] != pattern || row[wide.width - 1 - i] != pattern)
                    fail_msg("row %d: a guard changed", t);
        memcpy(out + (size_t)t * (size_t)b->out.width, row + b->out.col,
               sizeof(float) * (size_t)b->out.width);
    }
    free(all);
}

/* A card has tables in groups of their own, and no outputs are asked of it. */
static inline bool on_card(struct setting s) { return strcmp(s.type->name, "cuda") == 0; }
static inline int outputs_of(const struct bench *b, struct setting s, int n_row) {
    return on_card(s) ? 0 : b->n_out ? b->n_out : n_row;
}
static inline void tables_to_groups(struct bench *b, struct backend_config *c) {
    for (int i = 0; i < b->n_table; i++) {
        struct weight_group *g = &b->own[i];
        *g = (struct weight_group){.id = c->n_group, .n_member = 1, .n = b->table[i].n, .k = b->table[i].k};
        g->member[0] = b->table[i];
        b->groups[c->n_group++] = g;
        for (int k = 0; k < b->n_op; k++)
            if (b->op[k].kind == OP_EMBED && b->op[k].embed.w == &b->table[i])
                b->op[k].embed.w = &g->member[0];
    }
}

/* Runs steps of T rows (row t: id t, its own place in one of three sequences); out[T][width], token[n_out]. */
static inline void run(struct bench *b, struct setting s, int first, int T, float *out, int32_t *token) {
    struct op_list list = {.cls = s.cls,
                           .op = b->op,
                           .n_op = b->n_op,
                           .buf = b->buf,
                           .n_buf = b->n_buf,
                           .max_rows = MAX_T,
                           .max_out = MAX_T};
    struct op_list other = {.cls = s.cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE,
                            .op = b->op,
                            .buf = b->buf,
                            .max_rows = MAX_T,
                            .max_out = MAX_T};
    if (b->kv_type != KV_TYPES) b->store.k_type = b->store.v_type = b->kv_type;
    struct backend_config c = {.group = b->groups,
                               .n_group = b->second.n_member  ? 2
                                          : b->group.n_member ? 1
                                                              : 0,
                               .embedding = b->embedding,
                               .n_vocab = b->n_vocab ? b->n_vocab : 1,
                               .store = &b->store,
                               .n_store = b->store.n_kv_head ? 1 : 0,
                               .kv_group = &b->kv,
                               .n_kv_group = 1,
                               .kv_type = b->kv_type,
                               .state = &b->state,
                               .n_state = b->state.n_elem ? 1 : 0,
                               .n_state_slot = N_SLOT,
                               .n_slot = N_SLOT,
                               .n_ctx = PAGES * KV_PAGE,
                               .cpu = {.threads = s.threads, .isa = s.isa},
                               .no_fuse = b->no_fuse,
                               .n_logits = MAX_T};
    list_lives(&list);
    b->groups[0] = &b->group, b->groups[1] = &b->second;
    c.list[s.cls] = &list;
    c.list[other.cls] = &other;
    struct backend_sizes sizes;
    struct backend *e;
    if (on_card(s)) tables_to_groups(b, &c);
    assert_ok(s.type->sizes(&c, &sizes));
    c.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < b->n_buf; i++) {
        b->buf[i].offset = c.activation_bytes;
        c.activation_bytes += (b->buf[i].row_bytes * MAX_T + 63) / 64 * 64;
    }
    assert_ok(s.type->open(&e, &c));
    assert_ok(s.type->upload(e));
    assert_ok(s.type->compile(e, s.cls));

    int32_t id[MAX_T], pos[MAX_T], slot[MAX_T], out_row[MAX_T], pages[N_SLOT * PAGES];
    uint8_t want[MAX_T];
    const int32_t *tables[1] = {pages};
    for (int i = 0; i < N_SLOT * PAGES; i++) pages[i] = N_SLOT * PAGES - 1 - i;
    for (int t = 0; t < MAX_T; t++) { /* rows of a sequence follow each other */
        id[t] = t, out_row[t] = t - first, want[t] = INFER_WANT_TOKEN;
        slot[t] = t < 40 ? 0 : t < 60 ? 1 : 2;
        pos[t] = t < 40 ? t + 100 : t < 60 ? t - 40 : (b->far ? b->far : 2 * KV_PAGE - 5) + t - 60;
    }
    if (b->store.n_kv_head) fill_cache(b, s, e);
    if (b->state.n_elem) fill_states(b, s, e);
    struct step step = seam_step(T, outputs_of(b, s, T), id + first, pos + first, slot + first,
                                 out_row + first, want, tables);
    if (b->adapted) step.adapter = b->adapter;
    struct step_result result;
    uint64_t n = mem_count();
    mem_forbid(!on_card(s));
    enum infer_status status = INFER_OK;
    /* a second time from what the first may have kept */
    for (int i = s.type == &backend_cpu && s.cls == ROW_DECODE && b->matmul ? 0 : 1; i < 2; i++) {
        assert_ok(s.type->run(e, s.cls, &step));
        status = s.type->wait(e, &result);
    }
    for (int64_t begin = cpu_now(); b->crowded && ((struct cpu *)e)->team.n == s.threads;) {
        if (cpu_now() - begin > 20000000000) fail_msg("after 20 s of steps all threads share a processor");
        assert_ok(s.type->run(e, s.cls, &step));
        status = s.type->wait(e, &result);
    }
    mem_forbid(false);
    assert_true(mem_count() == n || on_card(s));
    if (status != b->expect) fail_msg("status %d: %s", (int)status, err_message());
    if (out) read_out(b, s, e, T, out);
    for (int k = 0; b->kept && k < N_SLOT; k++)
        assert_ok(s.type->state_read(e, 0, k, b->kept + (size_t)k * (size_t)b->state.n_elem));
    if (token) memcpy(token, result.token, sizeof(int32_t) * (size_t)T);
    s.type->close(e);
}

/* Root mean square error over root mean square; a NaN, or an error of one element over 8 times the tolerance, fails. */
static inline void compare(const char *what, const float *got, const float *want, int rows, int width,
                           double tolerance) {
    double ee = 0, ss = 0, top = 0;
    for (int i = 0; i < rows * width; i++) {
        double d = (double)got[i] - (double)want[i];
        if (!isfinite(got[i]))
            fail_msg("%s: row %d column %d is %f", what, i / width, i % width, (double)got[i]);
        ee += d * d, ss += (double)want[i] * (double)want[i];
        top = fmax(top, fabs(d));
    }
    double rms = sqrt(ss / (rows * width)) + 1e-30;
    if (!(sqrt(ee / (rows * width)) <= tolerance * rms) || !(top <= 8 * tolerance * rms))
        fail_msg("%s: error %.3g of the rms, largest %.3g, tolerance %.3g", what,
                 sqrt(ee / (rows * width)) / rms, top / rms, tolerance);
}

static const char *const isas[] = {"avx2", "avxvnni", "avx512", "amx"};
static inline int n_isa(void) { return (int)cpu_isa_best(); }
static inline bool absent(int i) { /* AVX-512 came without AVX-VNNI at first */
    enum cpu_isa isa;
    return cpu_isa_pick(isas[i], &isa) != INFER_OK;
}

/* The bench on ref, then on every instruction set, thread count and class, states behind it too; then bits: fewer rows, other threads. */
static inline void check(struct bench *b, const char *what, const double tolerance[2]) {
    size_t n = (size_t)MAX_T * (size_t)b->out.width;
    float *ref = malloc(n * 4), *got = malloc(n * 4), *part = malloc(n * 4);
    const int n_state = N_SLOT * b->state.n_elem;
    float *ref_kept = malloc(sizeof(float) * (size_t)(n_state + 1)),
          *got_kept = malloc(sizeof(float) * (size_t)(n_state + 1));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        enum row_class rc = (enum row_class)cls;
        b->kept = n_state ? ref_kept : NULL;
        run(b, (struct setting){&backend_ref, NULL, 1, rc}, 0, MAX_T, ref, NULL);
        for (int i = 0; i < n_isa(); i++) {
            char name[160];
            if (absent(i)) continue;
            snprintf(name, sizeof name, "%s, %s, %s", what, cls == ROW_DECODE ? "decode" : "prompt", isas[i]);
            double tol = tolerance[b->matmul && i < 3 ? ROW_DECODE : cls];
            if (b->store.n_kv_head && b->kv_type != KV_F32 && i == 3 && cls == ROW_PROMPT)
                tol = TOL_OP_ATTEND_AMX;
            if (b->int16 && i < 3 && cls == ROW_PROMPT) tol = TOL_OP_INT16;
            b->kept = n_state ? got_kept : NULL;
            run(b, (struct setting){&backend_cpu, isas[i], 2, rc}, 0, MAX_T, got, NULL);
            compare(name, got, ref, MAX_T, b->out.width, tol);
            if (n_state) compare(name, got_kept, ref_kept, N_SLOT, b->state.n_elem, tol);
            b->kept = NULL;
            static const int Ts[] = {1, 2, 3, 5, 17, 33};
            for (int j = 0; j < (int)(sizeof Ts / sizeof *Ts); j++) {
                int first =
                    b->store.n_kv_head || b->state.n_elem ? 0 : j % 3 * 7; /* what sees the rows before */
                run(b, (struct setting){&backend_cpu, isas[i], 1 + j % 2, rc}, first, Ts[j], part, NULL);
                for (int t = 0; t < Ts[j]; t++)
                    if (memcmp(part + (size_t)t * (size_t)b->out.width,
                               got + (size_t)(first + t) * (size_t)b->out.width, 4 * (size_t)b->out.width))
                        fail_msg("%s: row %d of %d rows from %d has other bits alone than among %d", name, t,
                                 Ts[j], first, MAX_T);
            }
        }
    }
    free(ref);
    free(got);
    free(part);
    free(ref_kept);
    free(got_kept);
}

/* ---- weights ---- */

static inline void add_member(struct bench *b, enum quant_type type, int n, int k, bool bias) {
    const struct quant_info *q = quant_info(type);
    uint8_t *data = malloc(quant_row_bytes(q, (size_t)k) * (size_t)n); /* exactly: ASan sees a byte too far */
    float *row = malloc(sizeof(float) * (size_t)k), *bv = bias ? malloc(sizeof(float) * (size_t)n) : NULL;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < k; j++) row[j] = 0.05f * gauss();
        q->encode(data + quant_row_bytes(q, (size_t)k) * (size_t)i, row, (size_t)k, NULL);
        if (bv) bv[i] = gauss();
    }
    free(row);
    b->group.member[b->group.n_member++] = (struct weight){
        .name = "w", .type = type, .n = n, .k = k, .factor = 1, .n_stack = 1, .data = data, .bias = bv};
    b->group.k = k;
    b->group.n += n;
}

/* What sequences keep: pages by group with windows that free what lies behind them; states; prefixes, rewinds and snapshots of both. */
#include "tests/lib/test.h"
#include "tests/lib/steps.h"
#include "tests/lib/answered.h"
#include "tests/lib/poison.h"
#include "base/mem.h"
#include "cache/kv.h"
#include "engine_impl.h"
#include "infer_request.h"
#include "seam/op_list.h"
#include "infer.h"
#include "seam/backend.h"

#include <unistd.h>

enum { LONG = 1000, VOCAB = 83, SLOTS = 3 };

/* ---- bookkeeping ---- */

static int32_t id_at(int i) { return made_up_id(i, VOCAB); }

struct store {
    struct arena arena;
    struct kv kv;
    struct kv_group group[2];
};
static void store_make(struct store *s, int window, int n_slot, int n_row, int n_keep) {
    *s = (struct store){0};
    for (int g = 0; g < 2; g++)
        s->group[g] =
            (struct kv_group){g ? window : 0, kv_pages_wanted(g ? window : 0, LONG, n_slot, n_row), 0};
    assert_ok(kv_init(&s->kv, &s->arena, n_slot, LONG, s->group, 2, n_keep, 0));
}
/* n tokens more, in a step of their own. */
static void go_on(struct store *s, int slot, int n) {
    int from = s->kv.seq[slot].length;
    for (int i = from; i < from + n; i++) {
        int32_t id = id_at(i);
        assert_ok(kv_reserve(&s->kv, slot, i + 1, from));
        kv_append(&s->kv, slot, &id, NULL, 1);
    }
}
/* Every page that the next position sees is there, and no page that two sequences write. */
static void check_tables(const struct store *s) {
    for (int g = 0; g < 2; g++)
        for (int k = 0; k < s->kv.n_slot; k++) {
            const struct kv_seq *q = &s->kv.seq[k];
            const int32_t *page = s->kv.tables[g] + k * s->kv.max_pages;
            for (int i = 0; i < s->kv.max_pages; i++) {
                bool in = i >= q->span[g].first && i < q->span[g].end;
                assert_int_equal(page[i] >= 0, in);
                if (in) assert_in_range(s->kv.pool[g].page[page[i]].n_ref, 1, s->kv.n_slot);
            }
            assert_true(q->span[g].first <= kv_first_page(&s->kv, g, q->length));
            assert_int_equal(q->span[g].end, (q->length + KV_PAGE - 1) / KV_PAGE);
        }
}

/* The pool of a window is as large as its window and not as the context, and steps of the planned size never find it empty. */
static void windows_free_pages(void **state) {
    (void)state;
    static const int windows[] = {1, 20, 64, 100, 300};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int rows = 1; rows <= 65; rows += 64) {
            struct store s;
            store_make(&s, windows[w], SLOTS, SLOTS * rows, 0);
            assert_true(s.group[1].n_page < s.group[0].n_page);
            for (int k = 0, slot; k < SLOTS; k++) assert_ok(kv_open(&s.kv, &slot));
            for (int i = 0; i + rows <= LONG; i += rows) {
                for (int k = 0; k < SLOTS; k++) go_on(&s, k, rows);
                check_tables(&s);
            }
            assert_true(s.kv.seq[0].span[1].first > 0);
            assert_int_equal(s.kv.seq[0].span[0].first, 0);
            for (int k = 0; k < SLOTS; k++) kv_close(&s.kv, k);
            for (int g = 0; g < 2; g++) assert_int_equal(s.kv.pool[g].n_free, s.group[g].n_page);
            arena_free(&s.arena);
        }
}

/* One sequence after the other computes long steps, and all keep only what their windows see. */
static void sequences_share_a_small_pool(void **state) {
    (void)state;
    enum { MANY = 16, ROWS = 128 };
    struct store s;
    int slot;
    store_make(&s, 100, MANY, ROWS, 0);
    for (int k = 0; k < MANY; k++) assert_ok(kv_open(&s.kv, &slot));
    for (int k = 0; k < MANY; k++)
        for (int i = 0; i < 7; i++) {
            go_on(&s, k, ROWS);
            kv_settle(&s.kv, k, s.kv.seq[k].length);
            check_tables(&s);
        }
    arena_free(&s.arena);
}

static int32_t *ids_of(int n) {
    static int32_t ids[LONG + 1];
    for (int i = 0; i < n; i++) ids[i] = id_at(i);
    return ids;
}

static void rewinds_ask_every_group(void **state) {
    (void)state;
    struct store s;
    struct kv_moves m;
    int a, b;
    store_make(&s, 100, SLOTS, 100, 0);
    assert_ok(kv_open(&s.kv, &a));
    for (int i = 0; i < 9; i++) go_on(&s, a, 100);
    assert_ok(kv_open(&s.kv, &b));
    assert_int_equal(kv_match(&s.kv, b, ids_of(900), 900, NULL, &m), 14 * KV_PAGE);
    check_tables(&s);
    /* back into a page that both hold: a copy in each group */
    assert_ok(kv_rewind(&s.kv, b, 14 * KV_PAGE - 5, KV_COMPUTED, &m));
    assert_int_equal(m.n_page, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m.page[i].group, i);
        assert_int_equal(m.page[i].from, s.kv.tables[i][a * s.kv.max_pages + 13]);
        assert_int_equal(m.page[i].to, s.kv.tables[i][b * s.kv.max_pages + 13]);
    }
    check_tables(&s);
    kv_close(&s.kv, b);
    assert_ok(kv_rewind(&s.kv, a, 900 - KV_BACK, KV_COMPUTED, &m)); /* kept on purpose */
    assert_int_equal(s.kv.seq[a].length, 900 - KV_BACK);
    check_tables(&s);
    go_on(&s, a, KV_BACK);
    assert_ok(kv_rewind(&s.kv, a, 300, KV_COMPUTED, &m)); /* behind what the window kept */
    assert_int_equal(s.kv.seq[a].length, 0);
    check_tables(&s);
    arena_free(&s.arena);
}

static void prefixes_ask_every_group(void **state) {
    (void)state;
    struct store s;
    struct kv_moves m;
    int a, b;
    store_make(&s, 100, SLOTS, 100, 0);
    assert_ok(kv_open(&s.kv, &a));
    for (int i = 0; i < 6; i++) go_on(&s, a, 100);
    kv_close(&s.kv, a);
    assert_ok(kv_open(&s.kv, &a));
    assert_int_equal(kv_match(&s.kv, a, ids_of(600), 600, NULL, &m), 9 * KV_PAGE);
    check_tables(&s);
    kv_close(&s.kv, a);
    /* others use up the window's free pages, not those of full attention: the prefix is gone though one group still knows it */
    int32_t other = 1;
    assert_ok(kv_open(&s.kv, &a));
    assert_ok(kv_open(&s.kv, &b));
    for (int i = 0; i < LONG; i++)
        for (int k = 0; k < 2; k++) {
            assert_ok(kv_reserve(&s.kv, k ? a : b, i + 1, i));
            kv_append(&s.kv, k ? a : b, &other, NULL, 1);
        }
    kv_close(&s.kv, a);
    assert_ok(kv_open(&s.kv, &a));
    int n = kv_match(&s.kv, a, ids_of(600), 600, NULL, &m);
    assert_true(n < 9 * KV_PAGE);
    check_tables(&s);
    /* what a failed step left is found by nobody */
    assert_ok(kv_rewind(&s.kv, a, 0, KV_COMPUTED, &m));
    other = 2;
    for (int i = 0; i < 200; i++) {
        assert_ok(kv_reserve(&s.kv, a, i + 1, 0));
        kv_append(&s.kv, a, &other, NULL, 1);
    }
    assert_ok(kv_rewind(&s.kv, a, 0, KV_LOST, &m));
    int32_t twos[200];
    for (int i = 0; i < 200; i++) twos[i] = 2;
    assert_int_equal(kv_match(&s.kv, a, twos, 200, NULL, &m), 0);
    arena_free(&s.arena);
}

/* ---- a model with windows in some layers ---- */

static const char *const devices[] = {
    "ref",
    "cpu",
    "cpu+ref",
#ifdef INFER_CUDA
    "cuda",
#endif
};
static int n_device = sizeof devices / sizeof *devices;

static struct infer_model *open_model(const char *name) {
    char path[512], file[128];
    struct infer_model *m;
    snprintf(file, sizeof file, "golden/forward/%s.gguf", name);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, file), NULL));
    return m;
}
static struct infer_engine *open_engine(const struct infer_model *m, const char *device, int batch,
                                        int slots) {
    bool two = !strcmp(device, "cpu+ref");
    struct infer_engine_options o = {.device = two ? "cpu" : device,
                                     .host_device = two ? "ref" : NULL,
                                     .gpu_layers = two ? 1 : -1,
                                     .ctx = LONG,
                                     .slots = slots,
                                     .batch = batch,
                                     .decode_rows = 8,
                                     .threads = 2,
                                     .all_logits = true};
    struct infer_engine *e;
    assert_ok(infer_engine_create(&e, m, &o));
    return e;
}
/* Rows from .. from + n, logits of the last into out. */
static enum infer_status step(struct infer_engine *e, int seq, int from, int n, bool decode, float *out) {
    static struct infer_row rows[LONG];
    struct infer_output o;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = id_at(from + i),
                                     .pos = from + i,
                                     .seq = seq,
                                     .decode = decode,
                                     .want = i + 1 == n ? INFER_WANT_LOGITS : INFER_WANT_NONE};
    TRY(infer_step(e, rows, n, &o));
    assert_int_equal(o.n, 1);
    memcpy(out, o.logits[0], VOCAB * sizeof *out);
    return INFER_OK;
}
static void steps(struct infer_engine *e, int seq, int from, int end, int n, float *out) {
    for (; from < end; from += n) assert_ok(step(e, seq, from, end - from < n ? end - from : n, false, out));
}
static void expect_same(const float *got, const float *want, const char *device, const char *what) {
    if (memcmp(got, want, VOCAB * sizeof *got)) fail_msg("%s: logits %s differ", device, what);
}

/* All in one step, where no page is freed; in small ones, where many are; back and forth; saved and loaded. */
static void a_model_with_windows(void **state) {
    (void)state;
    for (int d = 0; d < n_device; d++) {
        struct infer_model *m = open_model("qwen2-windows");
        struct infer_engine *whole = open_engine(m, devices[d], LONG, 1),
                            *e = open_engine(m, devices[d], 48, 2);
        struct infer_engine_info all, few;
        float want[VOCAB], at700[VOCAB], got[VOCAB];
        char path[64];
        int a, b, n;
        infer_engine_info(whole, &all);
        infer_engine_info(e, &few);
        assert_true(few.kv_bytes < 2 * all.kv_bytes); /* two slots, and less than twice the pages */
        assert_ok(infer_seq_open(whole, &a));
        assert_ok(step(whole, a, 0, 700, false, at700));
        steps(whole, a, 700, LONG, LONG, want);
        assert_ok(infer_seq_open(e, &a));
        steps(e, a, 0, 700, 48, got);
        expect_same(got, at700, devices[d], "in steps");
        assert_ok(infer_seq_rewind(e, a, 600)); /* kept */
        assert_int_equal(infer_seq_length(e, a), 600);
        steps(e, a, 600, 700, 33, got);
        expect_same(got, at700, devices[d], "after a rewind");
        snprintf(path, sizeof path, "/tmp/infer-store-%d", (int)getpid());
        assert_ok(infer_seq_save(e, a, path));
        steps(e, a, 700, LONG, 48, got);
        expect_same(got, want, devices[d], "to the end");
        assert_ok(infer_seq_open(e, &b));
        assert_ok(infer_seq_load(e, b, path));
        unlink(path);
        assert_int_equal(infer_seq_length(e, b), 700);
        steps(e, b, 700, LONG, 48, got);
        expect_same(got, want, devices[d], "of a snapshot");
        assert_ok(infer_seq_rewind(
            e, b, 100)); /* behind the window: as far as can be, the rest is computed again */
        n = infer_seq_length(e, b);
        assert_in_range(n, 0, 100);
        steps(e, b, n, 700, 48, got);
        expect_same(got, at700, devices[d], "after a long rewind");
        infer_seq_close(e, b);
        assert_ok(infer_seq_open(e, &b));
        int32_t *ids = ids_of(LONG);
        assert_ok(infer_seq_prefix(e, b, ids, 700, NULL, &n));
        assert_int_equal(n, 640);
        steps(e, b, n, 700, 48, got);
        expect_same(got, at700, devices[d], "of a prefix");
        infer_engine_free(whole);
        infer_engine_free(e);
        infer_model_close(m);
    }
}

/* What is behind a window, and what other sequences left, is not read: prompt rows and decode rows. */
static void freed_pages_are_not_read(void **state) {
    (void)state;
    for (int d = 0; d < n_device; d++) {
        struct infer_model *m = open_model("mistral-window");
        float want[VOCAB], got[VOCAB];
        int a;
        for (int poison = 0; poison < 2; poison++) {
            struct infer_engine *e = open_engine(m, devices[d], 90, 2);
            float *out = poison ? got : want;
            assert_ok(infer_seq_open(e, &a));
            for (int i = 0; i < 720; i += 90) {
                steps(e, a, i, i + 90, 90, out);
                if (poison) poison_free_pages(e);
            }
            for (int i = 720; i < 800; i++) {
                assert_ok(step(e, a, i, 1, true, out));
                if (poison) poison_free_pages(e);
            }
            infer_engine_free(e);
        }
        expect_same(got, want, devices[d], "beside poison");
        infer_model_close(m);
    }
}

/* One long prompt after the other, with a pool that holds the windows of all and the rows of one step. */
static void many_sequences_with_windows(void **state) {
    (void)state;
    struct infer_model *m = open_model("qwen2-windows");
    struct infer_engine *e = open_engine(m, "cpu", 448, 16);
    float first[VOCAB], got[VOCAB];
    int seq;
    for (int k = 0; k < 16; k++) {
        assert_ok(infer_seq_open(e, &seq));
        steps(e, seq, 0, 2 * 448, 448, k ? got : first);
        if (k) expect_same(got, first, "cpu", "of many");
    }
    infer_engine_free(e);
    infer_model_close(m);
}

/* ---- a model with a state: a convolution of the embeddings is added to them ---- */

enum { CONV_K = 4, CONV_N = 40 };
static float taps[CONV_N * CONV_K], conv_bias[CONV_N];
static struct state_store conv_store = {(CONV_K - 1) * CONV_N};
static bool with_conv;

/* tests.cmake has the linker call this one in place of forward.c's. */
enum infer_status __real_forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                                      const struct layer_range *range, enum row_class cls, int max_rows,
                                      int max_out);
enum infer_status __wrap_forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                                      const struct layer_range *range, enum row_class cls, int max_rows,
                                      int max_out);
enum infer_status __wrap_forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                                      const struct layer_range *range, enum row_class cls, int max_rows,
                                      int max_out) {
    TRY(__real_forward_emit(out, arena, m, range, cls, max_rows, max_out));
    if (!with_conv || range->first) return INFER_OK;
    struct view x = out->op[0].embed.out, y = {out->n_buf, 0, CONV_N};
    out->buf[out->n_buf++] = (struct buf){.name = "conv", .width = CONV_N, .rows = BUF_ROWS_ALL};
    memmove(out->op + 3, out->op + 1, (size_t)(out->n_op - 1) * sizeof *out->op);
    out->op[1] = (struct op){OP_CONV, -1, "conv", .conv = {x, y, 0, CONV_K, taps, conv_bias, true}};
    out->op[2] = (struct op){OP_ADD, -1, "conv_add", .add = {x, y, x}};
    out->n_op += 2;
    list_lives(out);
    return INFER_OK;
}
static struct infer_model *open_conv_model(void) {
    struct infer_model *m = open_model("qwen2-windows");
    assert_int_equal(m->m->n_embd, CONV_N);
    for (int i = 0; i < CONV_N * CONV_K; i++) taps[i] = (float)(i * 37 % 101 - 50) / 40;
    for (int i = 0; i < CONV_N; i++) conv_bias[i] = (float)(i % 7 - 3) / 5;
    m->m->state = &conv_store;
    m->m->n_state = 1;
    with_conv = true;
    return m;
}

/* Sequence a as far as 700 in e; the logits there and, with decode rows, 20 further are those of all in one step. */
static void state_goes_on(struct infer_engine *e, int a, const float *at700, const float *at720,
                          const char *device) {
    float got[VOCAB];
    steps(e, a, infer_seq_length(e, a), 700, 48, got);
    expect_same(got, at700, device, "with a state");
    for (int i = 700; i < 720; i++) assert_ok(step(e, a, i, 1, true, got));
    expect_same(got, at720, device, "with a state, decoded");
}

/* Back by a copy of the state; a step that fails leaves no state behind; one that was not run changes none. */
static void states_go_back(struct infer_engine *e, int a, const float *at700, const float *at720,
                           const char *device) {
    float got[VOCAB];
    struct infer_row rows[4] = {{.pos = 720, .seq = a}, {.pos = 0, .seq = a + 1}, {.pos = 721, .seq = a}};
    assert_ok(infer_seq_rewind(e, a, 680));
    assert_int_equal(infer_seq_length(e, a), 680); /* from the copy at 672, 14 * 48 */
    state_goes_on(e, a, at700, at720, device);
    int other;
    assert_ok(infer_seq_open(e, &other));
    assert_int_equal(other, a + 1);
    struct infer_output o;
    assert_int_equal(infer_step(e, rows, 3, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "stand together"));
    infer_seq_close(e, other);
    assert_int_equal(infer_seq_length(e, a), 720);
    infer_cancel(e);
    assert_int_equal(step(e, a, 720, 30, false, got), INFER_E_CANCEL);
    assert_int_equal(infer_seq_length(e, a),
                     720); /* its state is gone: from the copy where its prompt ended */
    uint64_t replayed = infer_replayed(e);
    assert_ok(infer_seq_rewind(e, a, 719));
    assert_ok(step(e, a, 719, 1, true, got));
    assert_int_equal(infer_replayed(e) - replayed, 19);
    expect_same(got, at720, device, "after a step that failed");
    assert_ok(infer_seq_rewind(e, a, 100));
    assert_int_equal(infer_seq_length(e, a), 0);
    state_goes_on(e, a, at700, at720, device);
}

static void a_model_with_a_state(void **state) {
    (void)state;
    for (int d = 0; d < n_device; d++) {
        struct infer_model *m = open_conv_model();
        struct infer_engine *whole = open_engine(m, devices[d], LONG, 1),
                            *e = open_engine(m, devices[d], 48, 2);
        float at700[VOCAB], at720[VOCAB], plain[VOCAB], got[VOCAB];
        char path[64];
        int a, b, n;
        assert_ok(infer_seq_open(whole, &a));
        assert_ok(step(whole, a, 0, 700, false, at700));
        for (int i = 700; i < 720; i++) assert_ok(step(whole, a, i, 1, true, at720));
        with_conv = false;
        struct infer_engine *without = open_engine(m, devices[d], LONG, 1);
        assert_ok(infer_seq_open(without, &a));
        assert_ok(step(without, a, 0, 700, false, plain));
        assert_memory_not_equal(plain, at700, sizeof plain); /* the convolution is there */
        infer_engine_free(without);
        assert_ok(infer_seq_open(e, &a));
        state_goes_on(e, a, at700, at720, devices[d]);
        states_go_back(e, a, at700, at720, devices[d]);
        snprintf(path, sizeof path, "/tmp/infer-store-%d", (int)getpid());
        assert_ok(infer_seq_rewind(e, a, 700));
        assert_int_equal(infer_seq_length(e, a), 700);
        assert_ok(infer_seq_save(e, a, path));
        assert_ok(infer_seq_open(e, &b));
        assert_ok(infer_seq_load(e, b, path));
        unlink(path);
        assert_int_equal(infer_seq_length(e, b), 700);
        for (int i = 700; i < 720; i++) assert_ok(step(e, b, i, 1, true, got));
        expect_same(got, at720, devices[d], "of a snapshot with a state");
        infer_seq_close(e, a);
        infer_seq_close(e, b);
        assert_ok(infer_seq_open(e, &a));
        assert_ok(infer_seq_prefix(e, a, ids_of(LONG), 700, NULL, &n));
        assert_int_equal(n, 576); /* 12 * 48, and whole pages */
        state_goes_on(e, a, at700, at720, devices[d]);
        /* the end of the context: a step that does not fit is not run */
        steps(e, a, 720, LONG - 10, 48, got);
        assert_int_equal(step(e, a, LONG - 10, 20, false, got), INFER_E_FULL);
        assert_int_equal(infer_seq_length(e, a), LONG - 10);
        steps(e, a, LONG - 10, LONG, 10, got);
        assert_ok(infer_seq_rewind(whole, 0, 0));
        assert_ok(step(whole, 0, 0, 700, false, at700));
        for (int i = 700; i < 720; i++) assert_ok(step(whole, 0, i, 1, true, at720));
        steps(whole, 0, 720, LONG, LONG, at720);
        expect_same(got, at720, devices[d], "at the end of the context");
        infer_engine_free(whole);
        infer_engine_free(e);
        infer_model_close(m);
    }
}

/* Rows of two sequences in one step, each cut elsewhere, are those of each alone. */
static void states_do_not_mix(void **state) {
    (void)state;
    for (int d = 0; d < n_device; d++) {
        struct infer_model *m = open_conv_model();
        struct infer_engine *e = open_engine(m, devices[d], 48, 2);
        static float alone[2][60][VOCAB];
        int seq[2];
        for (int k = 0; k < 2; k++) assert_ok(infer_seq_open(e, &seq[k]));
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 60; i++) assert_ok(step(e, seq[k], i + 0, 1, false, alone[k][i]));
        with_conv = false;
        for (int k = 0; k < 2; k++) assert_ok(infer_seq_rewind(e, seq[k], 0));
        for (int i = 0, at[2] = {0, 0}; at[0] < 60 || at[1] < 60; i++) {
            struct infer_row rows[16] = {0};
            struct infer_output o;
            int n = 0;
            for (int k = 0; k < 2; k++)
                for (int j = 0; j < (i * (k ? 5 : 3) + k) % 8 && at[k] < 60; j++, at[k]++)
                    rows[n++] = (struct infer_row){
                        .id = id_at(at[k]), .pos = at[k], .seq = seq[k], .want = INFER_WANT_LOGITS};
            if (!n) continue;
            assert_ok(infer_step(e, rows, n, &o));
            for (int j = 0; j < n; j++)
                expect_same(o.logits[j], alone[rows[j].seq == seq[1]][rows[j].pos], devices[d],
                            "of two sequences");
        }
        infer_engine_free(e);
        infer_model_close(m);
    }
}

/* ---- requests ---- */

/* A request whose guesses are taken back goes on from the last copy of the state: the tokens are those without guesses. */
static void requests_catch_up(void **state) {
    (void)state;
    struct infer_model *m = open_conv_model();
    struct infer_engine *e = open_engine(m, "ref", 48, 1);
    struct answered answer[2] = {{0}};
    struct infer_sched *s;
    int32_t ids[130];
    int seq;
    for (int i = 0; i < 130; i++) ids[i] = i * i % 11;
    assert_ok(infer_sched_open(&s, e, m));
    assert_ok(infer_seq_open(e, &seq));
    for (int lookup = 0; lookup < 2; lookup++) {
        struct infer_request_params p = infer_request_defaults();
        struct infer_request *r;
        p.seq = seq, p.ids = ids, p.n_id = 130, p.n_predict = 40;
        p.drafter = lookup ? INFER_DRAFT_LOOKUP : INFER_DRAFT_NONE;
        p.on_token = add_id, p.user = &answer[lookup];
        assert_ok(infer_request_new(&r, s, &p));
        assert_ok(infer_request_run(r));
        const struct infer_request_figures *f = infer_request_figures(r);
        if (lookup) assert_true(f->n_guessed > f->n_right); /* something was taken back */
        infer_request_free(r);
    }
    assert_int_equal(answer[0].n, 40);
    assert_int_equal(answer[1].n, 40);
    assert_memory_equal(answer[0].id, answer[1].id, sizeof answer[0].id);
    infer_sched_close(s);
    with_conv = false;
    infer_engine_free(e);
    infer_model_close(m);
}

/* The pages of a step that was cancelled hold nothing: no sequence may adopt them. */
static void a_cancelled_step_leaves_no_prefix(void **state) {
    (void)state;
    struct infer_model *m = open_model("qwen2-windows");
    for (int d = 0; d < n_device; d++) {
        struct infer_engine *e = open_engine(m, devices[d], 200, 1);
        float got[VOCAB];
        int a, n;
        assert_ok(infer_seq_open(e, &a));
        infer_cancel(e);
        assert_int_equal(step(e, a, 0, 200, false, got), INFER_E_CANCEL);
        assert_int_equal(infer_seq_length(e, a), 0);
        assert_ok(infer_seq_prefix(e, a, ids_of(200), 200, NULL, &n));
        assert_int_equal(n, 0);
        infer_engine_free(e);
    }
    infer_model_close(m);
}

int main(void) {

#ifdef INFER_CUDA
    if (backend_cuda.probe() != INFER_OK) n_device--; /* the last one */
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_free_pages),          cmocka_unit_test(sequences_share_a_small_pool),
        cmocka_unit_test(rewinds_ask_every_group),     cmocka_unit_test(prefixes_ask_every_group),
        cmocka_unit_test(a_model_with_windows),        cmocka_unit_test(freed_pages_are_not_read),
        cmocka_unit_test(many_sequences_with_windows), cmocka_unit_test(a_cancelled_step_leaves_no_prefix),
        cmocka_unit_test(a_model_with_a_state),        cmocka_unit_test(states_do_not_mix),
        cmocka_unit_test(requests_catch_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

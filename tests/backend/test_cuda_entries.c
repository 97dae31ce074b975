/* Entries of runs of positions and the pages that keep them, streams that are mixed, rotations back and by runs, and experts that rows are told, on a card against ref: in one
 * step of three sequences, and with the same bits seven rows and one row at a time; as prompt and as decode rows, by shared kernels and by
 * one kernel an operation. Skipped with a printed reason where there is no usable card, unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"

#ifdef INFER_CUDA
#include <math.h>
#include "seam/op_list.h"
#include "seam/page_room.h"
#include "tests/lib/random.h"
#include "tests/lib/tolerance.h"

enum { T = 70, SLOTS = 3, PAGES = 7, WIDE = 1700, MOST = 8 };
static const struct view none = {-1, 0, 0};

/* Operations on rows of a table, whose row t is of id t, and what they leave. */
struct lab {
    struct op op[MOST];
    struct buf buf[MOST];
    int n_op, n_buf, n_store, n_check;
    struct kv_store store[2];
    struct state_store state;
    enum kv_type type;
    struct weight table;
    const float *given[T]; /* in place of the table's row */
    struct {
        struct view v;
        double tolerance; /* 0: the same bits */
    } check[3];
};
static float table[T * WIDE];
static int32_t pos[T], slot[T];

static float gauss(void) { return (uniform() + uniform() + uniform() + uniform()) * 0.866f; }
static struct view new_buf(struct lab *l, int width) {
    l->buf[l->n_buf] = (struct buf){.name = "b", .width = width, .rows = BUF_ROWS_ALL, .float32 = true};
    return (struct view){l->n_buf++, 0, width};
}
static void push(struct lab *l, struct op op) {
    op.name = "op";
    l->op[l->n_op++] = op;
}
static void expect(struct lab *l, struct view v, double tolerance) {
    l->check[l->n_check].v = v;
    l->check[l->n_check++].tolerance = tolerance;
}
/* So many columns of random numbers. Rows of a sequence that goes on, of one that begins, and of one that is far. */
static struct view begin(struct lab *l, int width) {
    *l = (struct lab){0};
    assert_true(width <= WIDE);
    for (int i = 0; i < T * width; i++) table[i] = gauss();
    for (int t = 0; t < T; t++) {
        slot[t] = t < 40 ? 0 : t < 60 ? 1 : 2;
        pos[t] = t < 40 ? t + 100 : t < 60 ? t - 40 : 5 * KV_PAGE - 7 + t - 60;
    }
    l->table = (struct weight){
        .name = "table", .type = QUANT_F32, .n = T, .k = width, .factor = 1, .n_stack = 1, .data = table};
    const struct view in = new_buf(l, width);
    push(l, (struct op){.kind = OP_EMBED, .embed = {in, &l->table, 1, false}});
    return in;
}

/* ---- running */
struct way {
    const struct backend_type *type;
    enum row_class cls;
    bool no_fuse;
    int chunk; /* rows of a step; T: all, else those of one sequence */
};
struct outcome {
    float *out[3], *state, *page[2];
};
static size_t page_floats(const struct kv_store *s) {
    return (size_t)s->n_kv_head * (size_t)kv_page_rows(s) * (size_t)(s->head_dim_k + kv_v_dim(s));
}
static void outcome_new(const struct lab *l, struct outcome *o) {
    for (int i = 0; i < l->n_check; i++) o->out[i] = calloc((size_t)(T * l->check[i].v.width), sizeof(float));
    o->state = calloc((size_t)(SLOTS * l->state.n_elem) + 1, sizeof(float));
    for (int s = 0; s < l->n_store; s++)
        o->page[s] = calloc(SLOTS * PAGES * page_floats(&l->store[s]), sizeof(float));
}
static void outcome_free(const struct lab *l, struct outcome *o) {
    for (int i = 0; i < l->n_check; i++) free(o->out[i]);
    free(o->state);
    for (int s = 0; s < l->n_store; s++) free(o->page[s]);
}
/* What came before: random pages and states; the state of the sequence that begins is NaN. */
static void fill(const struct lab *l, const struct backend_type *type, struct backend *e, struct outcome *o) {
    const uint64_t keep = seed;
    seed = 43;
    for (int s = 0; s < l->n_store; s++)
        for (int p = 0; p < SLOTS * PAGES; p++) {
            float *page = o->page[s] + (size_t)p * page_floats(&l->store[s]);
            for (size_t i = 0; i < page_floats(&l->store[s]); i++) page[i] = gauss();
            assert_ok(type->kv_write(e, s, p, page, NULL));
        }
    for (int k = 0; l->state.n_elem && k < SLOTS; k++) {
        for (int i = 0; i < l->state.n_elem; i++) o->state[i] = k == 1 ? NAN : gauss();
        assert_ok(type->state_write(e, 0, k, o->state));
    }
    seed = keep;
}
static void keep(const struct lab *l, const struct backend_type *type, struct backend *e, struct outcome *o) {
    for (int s = 0; s < l->n_store; s++)
        for (int p = 0; p < SLOTS * PAGES; p++)
            assert_ok(type->kv_read(e, s, p, o->page[s] + (size_t)p * page_floats(&l->store[s]), NULL));
    for (int k = 0; l->state.n_elem && k < SLOTS; k++)
        assert_ok(type->state_read(e, 0, k, o->state + k * l->state.n_elem));
}
static void steps(const struct lab *l, const struct way *w, struct backend *e, struct outcome *o) {
    int32_t id[T], pages[SLOTS * PAGES];
    const int32_t *tables[1] = {pages};
    struct step_result result;
    for (int i = 0; i < SLOTS * PAGES; i++) pages[i] = SLOTS * PAGES - 1 - i;
    for (int t = 0; t < T; t++) id[t] = t;
    for (int first = 0, n; first < T; first += n) {
        for (n = 1; first + n < T && n < w->chunk; n++)
            if (w->chunk < T && slot[first + n] != slot[first]) break;
        struct step s = {.n_row = n,
                         .id = id + first,
                         .pos = pos + first,
                         .slot = slot + first,
                         .out_row = id,
                         .pages = tables,
                         .pages_version = 1,
                         .input = l->given + first};
        assert_ok(w->type->run(e, w->cls, &s));
        assert_ok(w->type->wait(e, &result));
        for (int i = 0; i < l->n_check; i++)
            assert_ok(w->type->read(e, w->cls, l->check[i].v, n,
                                    o->out[i] + (size_t)(first * l->check[i].v.width)));
    }
}
struct session {
    struct op_list list, other;
    struct kv_group group;
    struct backend_config c;
    struct backend *e;
};
static void session_open(struct session *s, struct lab *l, struct way w) {
    for (int i = 0; i < 2; i++) l->store[i].k_type = l->store[i].v_type = l->type;
    s->list = (struct op_list){w.cls, l->op, l->n_op, l->buf, l->n_buf, T, T};
    s->other = (struct op_list){.max_rows = T, .max_out = T};
    s->other.cls = w.cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE;
    s->group = (struct kv_group){0, SLOTS * PAGES, PAGES};
    s->c = (struct backend_config){.embedding = &l->table,
                                   .n_vocab = T,
                                   .store = l->store,
                                   .n_store = l->n_store,
                                   .kv_group = &s->group,
                                   .n_kv_group = 1,
                                   .kv_type = l->type,
                                   .state = &l->state,
                                   .n_state = l->state.n_elem > 0,
                                   .n_state_slot = SLOTS,
                                   .n_slot = SLOTS,
                                   .n_ctx = PAGES * KV_PAGE,
                                   .n_input = T,
                                   .no_fuse = w.no_fuse,
                                   .cuda.no_graphs = w.no_fuse || w.chunk < T,
                                   .n_logits = 1};
    s->c.list[s->list.cls] = &s->list, s->c.list[s->other.cls] = &s->other;
    struct backend_sizes sizes;
    list_lives(&s->list);
    assert_ok(w.type->sizes(&s->c, &sizes));
    s->c.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < l->n_buf; i++) {
        l->buf[i].offset = s->c.activation_bytes;
        s->c.activation_bytes += (l->buf[i].row_bytes * T + 255) / 256 * 256;
    }
    assert_ok(w.type->open(&s->e, &s->c));
    assert_ok(w.type->upload(s->e));
    assert_ok(w.type->compile(s->e, w.cls));
}
static void run(struct lab *l, struct way w, struct outcome *o) {
    struct session s;
    session_open(&s, l, w);
    fill(l, w.type, s.e, o);
    steps(l, &w, s.e, o);
    keep(l, w.type, s.e, o);
    w.type->close(s.e);
}

/* ---- comparing */
static void compare(const char *what, const char *part, const float *got, const float *want, size_t n,
                    double tolerance) {
    double ee = 0, ss = 0, top = 0;
    if (tolerance == 0 && memcmp(got, want, n * sizeof *got) == 0) return;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i];
        if (tolerance == 0 && memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: %s %zu is %.9g, not %.9g", what, part, i, (double)got[i], (double)want[i]);
        ee += d * d, ss += (double)want[i] * (double)want[i];
        top = fmax(top, fabs(d));
    }
    const double rms = sqrt(ss / (double)n) + 1e-30, error = sqrt(ee / (double)n);
    if (!(error <= tolerance * rms) || !(top <= 32 * tolerance * rms))
        fail_msg("%s: %s: error %.3g of the rms, largest %.3g, tolerance %.3g", what, part, error / rms,
                 top / rms, tolerance);
}
static void compare_all(const struct lab *l, const char *what, const struct outcome *got,
                        const struct outcome *want, bool bits) {
    static const double types[KV_TYPES] = {
        0, 0, TOL_OP_ATTEND_Q8, TOL_OP_ATTEND_F8, TOL_OP_ATTEND_Q5, TOL_OP_ATTEND_Q4};
    for (int i = 0; i < l->n_check; i++)
        compare(what, "element", got->out[i], want->out[i], (size_t)(T * l->check[i].v.width),
                bits ? 0 : l->check[i].tolerance);
    compare(what, "number of the states", got->state, want->state, (size_t)(SLOTS * l->state.n_elem), 0);
    for (int s = 0; s < l->n_store; s++)
        compare(what, "number of the pages", got->page[s], want->page[s],
                SLOTS * PAGES * page_floats(&l->store[s]), bits ? 0 : types[l->type]);
}
static void check(struct lab *l, const char *what) {
    struct outcome want, got, again;
    outcome_new(l, &want), outcome_new(l, &got), outcome_new(l, &again);
    for (int i = 0; i < 4; i++) {
        const enum row_class cls = i % 2 ? ROW_DECODE : ROW_PROMPT;
        char name[160];
        snprintf(name, sizeof name, "%s, %s%s", what, cls == ROW_DECODE ? "decode" : "prompt",
                 i / 2 ? ", not fused" : "");
        run(l, (struct way){&backend_ref, cls, false, T}, &want);
        run(l, (struct way){&backend_cuda, cls, i / 2, T}, &got);
        compare_all(l, name, &got, &want, false);
        for (int chunk = i < 2 ? 7 : 0; chunk; chunk = chunk == 7 ? 1 : 0) {
            run(l, (struct way){&backend_cuda, cls, false, chunk}, &again);
            snprintf(name, sizeof name, "%s, %s, %d rows a step", what,
                     cls == ROW_DECODE ? "decode" : "prompt", chunk);
            compare_all(l, name, &again, &got, true);
        }
    }
    outcome_free(l, &want), outcome_free(l, &got), outcome_free(l, &again);
}

/* ---- operations */
static void entries_are_made(void **state) {
    (void)state;
    static float bias[16 * 300];
    static const int sizes[][3] = {{1, 2, 1}, {7, 4, 2}, {150, 4, 2}, {64, 16, 1}, {100, 3, 1}};
    struct lab l;
    for (int i = 0; i < 16 * 300; i++) bias[i] = gauss();
    for (int i = 0; i < 5; i++) { /* numbers, positions, runs */
        const int n = sizes[i][0], ratio = sizes[i][1], width = n * sizes[i][2];
        const struct view x = begin(&l, 2 * width), y = new_buf(&l, n);
        char name[64];
        l.state.n_elem = ratio * sizes[i][2] * 2 * width;
        push(&l, (struct op){.kind = OP_COMPRESS,
                             .compress = {view_columns(x, 0, width), view_columns(x, width, width), y, 0,
                                          ratio, bias}});
        expect(&l, y, 1e-5);
        snprintf(name, sizeof name, "entries of %d numbers of %d positions", n, ratio);
        check(&l, name);
    }
}

/* A choice of each row: so many of its runs, ascending, and -1 behind the last. */
static void choose(struct view v, int width, const struct choice *by) {
    for (int t = 0; t < T; t++) {
        const int runs = (pos[t] + 1) / by->block, n = choice_count(by, pos[t]);
        for (int i = 0, run = 0; i < v.width; i++) {
            while (i < n && runs - run > n - i && uniform() > 0) run++;
            table[t * width + v.col + i] = i < n ? (float)(++run * by->block - 1) : -1;
        }
    }
}
static void entries_are_seen(void **state) {
    (void)state;
    static const struct {
        enum kv_type type;
        int heads, dim, window, block, top;
    } all[] = {{KV_F32, 3, 12, 5, 4, 0},    {KV_F32, 4, 33, 70, 4, 9},   {KV_F16, 5, 32, 128, 16, 0},
               {KV_F16, 1, 512, 20, 3, 70}, {KV_Q8_0, 8, 64, 64, 3, 0},  {KV_F8, 2, 96, 9, 4, 20},
               {KV_Q5_0, 3, 64, 20, 4, 0},  {KV_Q4_0, 2, 128, 33, 64, 0}};
    static const double types[KV_TYPES] = {TOL_OP_ATTEND,    TOL_OP_ATTEND_F16, TOL_OP_ATTEND_Q8,
                                           TOL_OP_ATTEND_F8, TOL_OP_ATTEND_Q5,  TOL_OP_ATTEND_Q4};
    float sinks[8];
    struct lab l;
    for (int i = 0; i < 8; i++) sinks[i] = gauss();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int H = all[i].heads, n = all[i].dim, width = (H + 2) * n + all[i].top;
        const struct choice by = {.n_top = all[i].top, .block = all[i].block, .ends = true};
        const struct view x = begin(&l, width), y = new_buf(&l, H * n),
                          chosen = view_columns(x, (H + 2) * n, all[i].top);
        char name[64];
        if (by.n_top) choose(chosen, width, &by);
        l.type = all[i].type;
        l.n_store = 2;
        l.store[0] = (struct kv_store){.n_kv_head = 1, .head_dim_k = n, .head_dim_v = n, .v_in_k = true};
        l.store[1] = l.store[0];
        l.store[1].every = by.block;
        push(&l, (struct op){.kind = OP_KV_PUT, .kv_put = {view_columns(x, H * n, n), none, 0}});
        push(&l, (struct op){.kind = OP_KV_PUT, .kv_put = {view_columns(x, (H + 1) * n, n), none, 1}});
        struct op_attend at = {.q = view_columns(x, 0, H * n),
                               .out = y,
                               .n_head = H,
                               .scale = 0.1f,
                               .window = all[i].window,
                               .sinks = i % 2 ? sinks : NULL,
                               .chosen = by.n_top ? chosen : none,
                               .by = by,
                               .entries = 2};
        push(&l, (struct op){.kind = OP_ATTEND, .attend = at});
        expect(&l, y, types[l.type]);
        snprintf(name, sizeof name, "attention to entries %d", (int)i);
        check(&l, name);
    }
}

/* A window's store and one of runs of three. */
static void put_two(struct lab *l, enum kv_type type, int n) {
    const struct view x = begin(l, 2 * n);
    l->type = type;
    l->n_store = 2;
    l->store[0] = (struct kv_store){.n_kv_head = 1, .head_dim_k = n, .head_dim_v = n, .v_in_k = true};
    l->store[1] = l->store[0];
    l->store[1].every = 3;
    for (int s = 0; s < 2; s++)
        push(l, (struct op){.kind = OP_KV_PUT, .kv_put = {view_columns(x, s * n, n), none, s}});
}
/* Whether page `to` of each store is page `from`, bit for bit. */
static void same_pages(const struct lab *l, struct backend *e, int from, int to, const char *what) {
    float a[KV_PAGE * 96], b[KV_PAGE * 96];
    for (int s = 0; s < 2; s++) {
        assert_ok(backend_cuda.kv_read(e, s, from, a, NULL));
        assert_ok(backend_cuda.kv_read(e, s, to, b, NULL));
        if (memcmp(a, b, page_floats(&l->store[s]) * sizeof *a) != 0)
            fail_msg("type %d, store %d: %s", (int)l->type, s, what);
    }
}
/* Pages that are taken out and put in elsewhere, copied, and sent, of a store of runs beside another one. */
static void pages_of_runs_are_moved(void **state) {
    (void)state;
    for (int type = KV_F32; type < KV_TYPES; type++) {
        struct lab l;
        struct session s;
        struct outcome o;
        struct page_room *room;
        put_two(&l, (enum kv_type)type, 96);
        outcome_new(&l, &o);
        session_open(&s, &l, (struct way){&backend_cuda, ROW_PROMPT, false, 1});
        fill(&l, &backend_cuda, s.e, &o);
        const size_t size[2] = {kv_page_bytes(&l.store[0]), kv_page_bytes(&l.store[1])};
        assert_ok(page_room_open(&room, s.e, &s.c, size[0] + size[1], 2));
        for (int i = 0; i < 2; i++) {
            unsigned char *bytes = room->bytes + size[0] + size[1] + (i ? size[0] : 0);
            assert_ok(backend_cuda.kv_page(s.e, i, 3, bytes, false));
            assert_ok(backend_cuda.kv_page(s.e, i, 7, bytes, true));
        }
        same_pages(&l, s.e, 3, 7, "put in elsewhere");
        assert_ok(backend_cuda.kv_copy(s.e, 0, 3, SLOTS * PAGES - 1));
        same_pages(&l, s.e, 3, SLOTS * PAGES - 1, "copied");
        assert_ok(page_room_send(room, 0, 5, 1));
        assert_ok(page_room_sent(room, 1));
        same_pages(&l, s.e, 3, 5, "sent");
        page_room_close(room);
        backend_cuda.close(s.e);
        outcome_free(&l, &o);
    }
}

/* Streams that are read as one, and mixed where they lie, by numbers that have ref's bits. */
static void streams_are_mixed(void **state) {
    (void)state;
    static const int sizes[][2] = {{2, 7}, {4, 64}, {4, 300}, {8, 33}}; /* streams, numbers of each */
    float scale[3] = {0.7f, 1.3f, 2}, base[80];
    struct lab l;
    for (int i = 0; i < 80; i++) base[i] = gauss();
    for (int i = 0; i < 4; i++) {
        const int n = sizes[i][0], d = sizes[i][1], mix = 2 * n + n * n;
        const struct view in = begin(&l, n * d + mix + n), x = view_columns(in, 0, n * d),
                          w = view_columns(in, n * d, mix), one = new_buf(&l, d), reads = new_buf(&l, n);
        struct op_streams read = {x, view_columns(w, 0, n), none, none, one, n},
                          back = {x, view_columns(w, 2 * n, n * n), one, view_columns(w, n, n), x, n};
        push(&l, (struct op){.kind = OP_BALANCE, .balance = {w, w, n, 20, 1e-6f, scale, base}});
        push(&l,
             (struct op){.kind = OP_BALANCE,
                         .balance = {view_columns(in, n * d + mix, n), reads, n, 20, 1e-6f, scale, base}});
        push(&l, (struct op){.kind = OP_STREAMS, .streams = read});
        push(&l, (struct op){.kind = OP_STREAMS, .streams = back});
        expect(&l, view_columns(in, n * d, mix), 0);
        expect(&l, reads, 0);
        expect(&l, x, 1e-5);
        check(&l, "streams");
    }
}

static void heads_are_turned_back_and_by_runs(void **state) {
    (void)state;
    float freq[40];
    struct lab l;
    for (int i = 0; i < 40; i++) freq[i] = powf(10000, -(float)i / 40);
    for (int i = 0; i < 8; i++) {
        const struct rope r = {.kind = i & 1 ? ROPE_NEOX : ROPE_INTERLEAVED,
                               .n_rot = 24,
                               .mscale = 1.1f,
                               .inv_freq = freq,
                               .every = i & 2 ? 3 : 0};
        const struct view in = begin(&l, 3 * 80), ends = view_columns(in, 56, 3 * 80 - 56);
        push(&l, (struct op){.kind = OP_ROPE, .rope = {ends, 3, 80, &r, i & 4}});
        expect(&l, in, 1e-5);
        check(&l, "rotations");
    }
}

/* Rows that are told, one that is of no id, and ids that nothing is told of; and rows that choose by roots. */
static void experts_are_told(void **state) {
    (void)state;
    static int32_t told[50 * 6];
    static float own[300], bias[300];
    for (int i = 0; i < 300; i++) own[i] = gauss(), bias[i] = 0.3f * gauss();
    for (int act = ROUTE_SOFTMAX; act <= ROUTE_ROOT; act++)
        for (int i = 0; i < 8; i++) {
            struct lab l;
            if (act == ROUTE_NEAR || (act != ROUTE_ROOT && i % 4)) continue;
            const int n = i & 1 ? 300 : 40, used = i & 1 ? 6 : 4;
            const struct router r = {.n_expert = n,
                                     .n_used = used,
                                     .n_group = i == 5 ? 4 : 0,
                                     .n_group_used = i == 5 ? 2 : 0,
                                     .act = (enum route_act)act,
                                     .norm = ROUTE_NORM_ADD,
                                     .softcap = i == 4 ? 2 : 0,
                                     .eps = 1e-20f,
                                     .scale = 1.5f,
                                     .bias = i & 2 && act != ROUTE_CHOSEN ? bias : NULL};
            const struct view x = begin(&l, n), y = new_buf(&l, 2 * used);
            for (int k = 0; k < 50 * 6; k++) told[k] = (k * 7 + k / 6) % n;
            l.given[3] = l.given[45] = own;
            push(&l, (struct op){.kind = OP_ROUTE, .route = {x, y, &r, i & 4 ? NULL : told, 50}});
            expect(&l, y, 0);
            check(&l, "experts");
        }
}

static void gates_have_limits(void **state) {
    (void)state;
    struct lab l;
    for (int i = 0; i < 2; i++) {
        const struct view x = begin(&l, 2 * 301), y = new_buf(&l, 301), gate = view_columns(x, 0, 301),
                          up = i ? none : view_columns(x, 301, 301);
        push(&l, (struct op){.kind = OP_GLU, .glu = {gate, up, y, ACT_SILU_LIMIT, {.limit = 0.8f}}});
        expect(&l, y, 1e-5);
        check(&l, "gates with limits");
    }
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_are_made),
                                       cmocka_unit_test(entries_are_seen),
                                       cmocka_unit_test(pages_of_runs_are_moved),
                                       cmocka_unit_test(streams_are_mixed),
                                       cmocka_unit_test(heads_are_turned_back_and_by_runs),
                                       cmocka_unit_test(experts_are_told),
                                       cmocka_unit_test(gates_have_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}

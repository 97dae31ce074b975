/* Several ranks compute what one does: every architecture on 2, 3 and 4 of them, against transformers, whatever the cut of the prompt;
 * snapshots hold all ranks' heads; a rank that leaves a step takes the others with it.
 * On a card two ranks share it, and where there are two they have one each; INFER_ONLY_CARD=1 leaves the processor out.
 * usage: test_ranks [PATTERN]    the folders whose names match, * for anything */
#include "tests/lib/cancel_soon.h"
#include "tests/lib/cuda_there.h"
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/hf_folders.h"
#include "tests/lib/hf_golden.h"
#include "tests/lib/pace.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"
#include "join/comm_local.h"
#include "model/model.h"
#include "model/shard.h"
#include "engine_impl.h"
#include "tools/file/quantize.h"
#include <pthread.h>

static bool whole_experts;          /* of the engines that are started */
static const char *kv_type = "f32"; /* the same */

/* device: "ref", "cpu"; "0,0": ranks on that card. */
static enum infer_status start(struct infer_engine **e, const struct infer_model *m, const char *device,
                               int n_ctx, int ranks) {
    const bool card = device[0] == '0';
    const struct infer_engine_options o = {.device = card ? "cuda" : device,
                                           .devices = card ? device : NULL,

                                           .kv_type = kv_type,
                                           .ctx = n_ctx,
                                           .slots = 2,
                                           .threads = 2,
                                           .ranks = ranks,
                                           .ep = whole_experts,
                                           .gpu_layers = -1,
                                           .all_logits = true,
                                           .nan_guard = true};
    return infer_engine_create(e, m, &o);
}

static double worst_of(const struct golden *g, const struct infer_prompt *p, const float *got) {
    double worst = 0;
    const size_t v = (size_t)g->n_vocab;
    for (int i = 0; i < p->n_rows; i++) {
        double e = max_error(got + (size_t)p->rows[i] * v, p->logits + (size_t)i * v, v) / g->sd;
        if (!(e <= worst)) worst = e;
    }
    return worst;
}

/* On so many ranks: within the tolerance; the same bits again; on two in steps of 7 rows, too (where no grid says otherwise), and as
 * decode rows. */
static void check_ranks(const struct golden *g, const struct infer_model *m, const char *device, int ranks,
                        double tolerance) {
    static const int steps[] = {64, 7};
    const struct infer_prompt *p = &g->prompt[N_PROMPT - 1];
    float *want = malloc(elements(g, p) * 4), *got = malloc(elements(g, p) * 4);
    struct infer_engine *e;
    struct infer_engine_info info;
    const enum infer_status st = start(&e, m, device, p->n, ranks);
    if (st == INFER_E_UNSUPPORTED && strstr(infer_error(), "no kernel for")) { /* a card that says so */
        print_message("%s: %s\n", g->name, infer_error());
        free(want);
        free(got);
        return;
    }
    assert_ok(st);
    infer_engine_info(e, &info);
    if (info.isa && strstr(info.isa, "amx") && tolerance > TOL_LOGITS_REF) tolerance = TOL_LOGITS_AMX;
    compute(e, g, p, p->n, false, want);
    const double err = worst_of(g, p, want);
    if (!(err <= tolerance))
        fail_msg("%s on %d ranks of %s: error %g of sd, tolerance %g", g->name, ranks, device, err,
                 tolerance);
    for (int i = 0; i < (info.grid || ranks > 2 ? 1 : 2); i++) {
        compute(e, g, p, steps[i], false, got);
        if (memcmp(want, got, elements(g, p) * 4))
            fail_msg("%s on %d ranks of %s: steps of %d rows change the logits", g->name, ranks, device,
                     steps[i]);
    }
    if (ranks == 2) {
        compute(e, g, p, 1, true, got);
        const double decode = max_error(want, got, elements(g, p)) / g->sd;
        if (!(decode <= 2 * tolerance))
            fail_msg("%s on %d ranks of %s: decode differs from prompt by %g of sd", g->name, ranks, device,
                     decode);
    }
    infer_engine_free(e);
    free(want);
    free(got);
}

static bool have_cuda, only_card;
static int n_card;

static void one_folder(void **state) {
    static int turn; /* 2, 3 and 4 ranks by turns; on ref 2, and of half of them 3 or 4 */
    struct golden g;
    struct infer_model *m;
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    const bool packed = strncmp(g.name, "packed-", 7) == 0;
    if (!only_card) {
        check_ranks(&g, m, "ref", 2, TOL_LOGITS_REF);
        if (turn % 2) check_ranks(&g, m, "ref", 3 + turn / 2 % 2, TOL_LOGITS_REF);
        check_ranks(&g, m, "cpu", 2 + turn % 3, packed ? TOL_LOGITS_FINE : TOL_LOGITS_BF16);
    }
    if (have_cuda) check_ranks(&g, m, "0,0", 2, golden_tolerance(g.name, TOL_LOGITS_TF32));
    if (n_card > 1) check_ranks(&g, m, "0,1", 2, golden_tolerance(g.name, TOL_LOGITS_TF32));
    turn++;
    infer_model_close(m);
    golden_free(&g);
}

/* A model of the table of goldens whose every part can be divided by two. */
static const char divided[] = "llama";

/* A sequence that was saved goes on with the same bits, in an engine of as many ranks. */
static void snapshots_hold_all_heads(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e, *other;
    struct infer_output out;
    struct folder d;
    char file[256];
    int seq;
    golden_read(&g, *state ? *state : divided);
    assert_ok(infer_model_open(&m, g.path, NULL));
    folder_make(&d);
    folder_file(&d, file, "sequence");
    const struct infer_prompt *p = &g.prompt[N_PROMPT - 1];
    assert_ok(start(&e, m, "cpu", p->n + 1, 2));
    assert_ok(start(&other, m, "cpu", p->n + 1, 2));
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < p->n; i++)
        assert_ok(infer_step(e, &(struct infer_row){.id = p->ids[i], .pos = i, .seq = seq}, 1, &out));
    assert_ok(infer_seq_save(e, seq, file));
    const struct infer_row next = {.id = 3, .pos = p->n, .seq = seq, .want = INFER_WANT_LOGITS};
    float *want = malloc((size_t)g.n_vocab * sizeof *want);
    assert_ok(infer_step(e, &next, 1, &out));
    memcpy(want, out.logits[0], (size_t)g.n_vocab * sizeof *want);
    assert_ok(infer_seq_open(other, &seq));
    assert_ok(infer_seq_load(other, seq, file));
    assert_ok(infer_step(other, &next, 1, &out));
    assert_memory_equal(want, out.logits[0], (size_t)g.n_vocab * sizeof *want);
    infer_engine_free(other);
    free(want);
    infer_engine_free(e);
    infer_model_close(m);
    folder_remove(&d);
    golden_free(&g);
}
/* Keys and values of heads in types of their own. */
static void snapshots_of_mixed_types(void **state) {
    kv_type = "q8_0/f16,1:q4_0/q8_0";
    snapshots_hold_all_heads(state);
    kv_type = "f32";
}

/* Whoever reads a state gets that of the whole model, whichever heads a rank has. */
static void states_are_whole(void **state) {
    struct golden g;
    struct infer_model *m;
    float *x[2];
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    const struct infer_prompt *p = &g.prompt[N_PROMPT - 1];
    float *logits = malloc(elements(&g, p) * 4);
    struct infer_engine *e[2];
    for (int i = 0; i < 2; i++) {
        assert_ok(start(&e[i], m, "ref", p->n, i ? 3 : 0));
        compute(e[i], &g, p, p->n, false, logits);
    }
    for (int store = 0; store < m->m->n_state; store++) {
        const size_t n = (size_t)m->m->state[store].n_elem;
        for (int i = 0; i < 2; i++) {
            x[i] = malloc(n * sizeof *x[i]);
            assert_ok(e[i]->backend->type->state_read(e[i]->backend, store, 0, x[i]));
        }
        const double err = relative(x[1], x[0], n);
        if (!(err <= 1e-4)) fail_msg("%s: state %d differs by %g", g.name, store, err);
        free(x[0]);
        free(x[1]);
    }
    for (int i = 0; i < 2; i++) infer_engine_free(e[i]);
    free(logits);
    infer_model_close(m);
    golden_free(&g);
}

/* A sequence that goes back, to a copy of its states in the backends or in host memory, goes on with the same bits. */
static void states_go_back(void **state) {
    struct golden g;
    struct infer_model *m;
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    const struct infer_prompt *p = &g.prompt[N_PROMPT - 1];
    const size_t n = (size_t)g.n_vocab * sizeof(float);
    float *want = malloc(n);
    for (int host = 0; host < 2; host++) {
        const struct infer_engine_options o = {.device = "cpu",
                                               .kv_type = "f32",
                                               .ctx = MAX_TOKENS,
                                               .threads = 2,
                                               .ranks = 2,
                                               .gpu_layers = -1,
                                               .state_host = host};
        struct infer_engine *e;
        struct infer_output out;
        struct infer_row rows[MAX_TOKENS];
        int seq;
        assert_ok(infer_engine_create(&e, m, &o));
        assert_int_equal(e->host_state != NULL, host);
        assert_ok(infer_seq_open(e, &seq));
        for (int i = 0; i < p->n; i++) rows[i] = (struct infer_row){.id = p->ids[i], .pos = i, .seq = seq};
        rows[p->n - 1].want = INFER_WANT_LOGITS;
        assert_ok(infer_step(e, rows, p->n - 1, &out));
        for (int turn = 0; turn < 2; turn++) {
            assert_ok(infer_step(e, &rows[p->n - 1], 1, &out));
            if (turn && memcmp(want, out.logits[0], n))
                fail_msg("%s: other bits, copies on the host: %d", g.name, host);
            memcpy(want, out.logits[0], n);
            assert_ok(infer_seq_rewind(e, seq, p->n - 1));
        }
        infer_engine_free(e);
    }
    free(want);
    infer_model_close(m);
    golden_free(&g);
}

/* Value heads that stand by tiles, as GGUF has them. */
static void tiled_heads_divide(void **state) {
    struct golden g;
    struct infer_model *m;
    struct quantize_report report;
    struct folder d;
    char file[256];
    (void)state;
    golden_read(&g, "qwen3_5");
    folder_make(&d);
    folder_file(&d, file, "model.gguf");
    assert_ok(quantize_file(&(struct quantize_options){.in = g.path, .out = file, .type = "f32"}, &report));
    assert_ok(infer_model_open(&m, file, NULL));
    for (int n = 2; n <= 4; n++) check_ranks(&g, m, "ref", n, TOL_LOGITS_REF);
    infer_model_close(m);
    folder_remove(&d);
    golden_free(&g);
}

/* Whole experts on each rank, the shared part by its columns or on rank 0. */
static void experts_divide(void **state) {
    struct golden g;
    struct infer_model *m;
    struct model *part;
    golden_read(&g, *state);
    assert_ok(infer_model_open(&m, g.path, NULL));
    int experts = 0;
    const struct layer *last = &m->m->layer[m->m->n_layer - 1];
    for (int r = 0; r < 2; r++) {
        assert_ok(model_shard_by(&part, m->m, r, 2, EXPERTS_WHOLE));
        const struct layer *l = &part->layer[part->n_layer - 1];
        assert_int_equal(part->share.n_ff_whole, 0);
        assert_int_equal(l->moe.first, experts);
        assert_int_equal(l->moe.experts_down.member[0].n_stack, l->moe.n_own);
        assert_int_equal(l->moe.n_ff, last->moe.n_ff);
        experts += l->moe.n_own;
        model_close(part);
    }
    assert_int_equal(experts, last->moe.n_expert);
    whole_experts = true;
    for (int n = 2; n <= (last->moe.n_expert < 4 ? last->moe.n_expert : 4); n++)
        check_ranks(&g, m, "ref", n, TOL_LOGITS_REF);
    check_ranks(&g, m, "cpu", 2, TOL_LOGITS_BF16);
    whole_experts = false;
    infer_model_close(m);
    golden_free(&g);
}

/* What cannot be is said. */
static void ep_is_refused(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    (void)state;
    golden_read(&g, divided);
    assert_ok(infer_model_open(&m, g.path, NULL));
    whole_experts = true;
    assert_int_equal(start(&e, m, "ref", 8, 2), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "no experts"));
    assert_int_equal(start(&e, m, "ref", 8, 0), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), ".ranks N"));
    whole_experts = false;
    infer_model_close(m);
    golden_free(&g);
}

/* Ranks whose experts are on another backend. */
static void experts_may_be_elsewhere(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_engine_options o = {.device = "ref",
                                     .host_device = "cpu",
                                     .kv_type = "f32",
                                     .ctx = MAX_TOKENS,
                                     .ranks = 2,
                                     .gpu_layers = -1,
                                     .cpu_experts = 2,
                                     .all_logits = true};
    (void)state;
    golden_read(&g, "qwen3_moe");
    assert_ok(infer_model_open(&m, g.path, NULL));
    const struct infer_prompt *p = &g.prompt[N_PROMPT - 1];
    float *got = malloc(elements(&g, p) * 4);
    for (int whole = 0; whole < 2; whole++) { /* columns of each, whole ones */
        o.ep = whole;
        assert_ok(infer_engine_create(&e, m, &o));
        compute(e, &g, p, p->n, false, got);
        const double err = worst_of(&g, p, got);
        if (!(err <= TOL_LOGITS_BF16)) fail_msg("error %g of sd, whole: %d", err, whole);
        infer_engine_free(e);
    }
    free(got);
    infer_model_close(m);
    golden_free(&g);
}

/* Heads of one key head, and of one group of a state, that end inside of a block of the matrix behind them: ranks cut at blocks alone. */
static void cuts_are_at_blocks(void **state) {
    static const char *const shapes[] = {"tiny-48", "tiny-nemotron"};
    static const struct infer_prompt p = {.n = 9, .ids = {1, 8, 15, 22, 29, 36, 43, 50, 57}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct infer_model *m =
            synth_model(&(struct synth_options){.shape = shapes[k], .type = "q8_0", .seed = 1});
        struct infer_model_info info;
        infer_model_info(m, &info);
        const struct golden g = {.n_vocab = info.n_vocab};
        float *want = malloc(elements(&g, &p) * 4), *got = malloc(elements(&g, &p) * 4);
        for (int ranks = 0; ranks < 5; ranks += ranks ? 1 : 2) {
            struct infer_engine *e;
            assert_ok(start(&e, m, "ref", p.n, ranks));
            compute(e, &g, &p, p.n, false, ranks ? got : want);
            infer_engine_free(e);
            const double err = ranks ? relative(got, want, elements(&g, &p)) : 0;
            if (!(err <= 1e-5)) fail_msg("%s on %d ranks differs by %g", shapes[k], ranks, err);
        }
        free(want);
        free(got);
        infer_model_close(m);
    }
}

/* What a model that drafts reads is the whole residual stream, of whichever rank. */
static void hidden_rows_are_whole(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_model_info info;
    float *rows[2];
    (void)state;
    golden_read(&g, divided);
    assert_ok(infer_model_open(&m, g.path, NULL));
    infer_model_info(m, &info);
    const struct infer_prompt *p = &g.prompt[0];
    const size_t n = (size_t)p->n * (size_t)info.n_embd;
    for (int i = 0; i < 2; i++) {
        const struct infer_engine_options o = {.device = "ref",
                                               .kv_type = "f32",
                                               .ctx = MAX_TOKENS,
                                               .ranks = i ? 2 : 0,
                                               .gpu_layers = -1,
                                               .cpu_experts = -1,
                                               .all_logits = true,
                                               .hidden = true};
        struct infer_engine *e;
        const float *hidden;
        float *logits = malloc(elements(&g, p) * 4);
        assert_ok(infer_engine_create(&e, m, &o));
        compute(e, &g, p, p->n, false, logits);
        assert_ok(infer_hidden(e, false, 0, p->n, &hidden));
        rows[i] = malloc(n * sizeof *hidden);
        memcpy(rows[i], hidden, n * sizeof *hidden);
        infer_engine_free(e);
        free(logits);
    }
    const double err = relative(rows[1], rows[0], n);
    if (!(err <= 1e-5)) fail_msg("two ranks differ by %g", err);
    free(rows[0]);
    free(rows[1]);
    infer_model_close(m);
    golden_free(&g);
}

/* A step that is cancelled ends on all ranks, and the next one is computed. */
static void a_cancelled_step_ends(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_output out;
    struct infer_row rows[MAX_TOKENS];
    pthread_t thread;
    int seq;
    (void)state;
    golden_read(&g, divided);
    assert_ok(infer_model_open(&m, g.path, NULL));
    assert_ok(start(&e, m, "cpu", MAX_TOKENS, 2));
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < MAX_TOKENS; i++)
        rows[i] = (struct infer_row){.id = i % g.n_vocab, .pos = i, .seq = seq};
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, e), 0);
    enum infer_status st = INFER_OK;
    for (int i = 0; i < 20000 && st == INFER_OK; i++) { /* far longer than the cancel takes to come */
        st = infer_step(e, rows, MAX_TOKENS, &out);
        if (st == INFER_OK) assert_ok(infer_seq_rewind(e, seq, 0));
    }
    pthread_join(thread, NULL);
    assert_int_equal(st, INFER_E_CANCEL);
    assert_ok(infer_seq_rewind(e, seq, 0));
    assert_ok(infer_step(e, rows, MAX_TOKENS, &out));
    infer_engine_free(e);
    infer_model_close(m);
    golden_free(&g);
}

/* The shares of a model have every head, column and token once. */
static void shares_are_the_whole(void **state) {
    struct golden g;
    struct model *m, *part;
    (void)state;
    golden_read(&g, divided);
    assert_ok(model_open(&m, g.path, NULL));
    for (int n = 1; n <= 4; n++) {
        int heads = 0, keys = 0, ff = 0, tokens = 0;
        for (int r = 0; r < n; r++) {
            assert_ok(model_shard(&part, m, r, n));
            const struct layer *l = &part->layer[0];
            assert_true(l->attn.partial && l->dense.partial);
            if (n <= m->layer[0].attn.n_kv_head) assert_int_equal(part->share.key_head[0], keys);
            assert_int_equal(part->share.vocab[r], tokens);
            assert_int_equal(l->attn.out.k, l->attn.n_head * l->attn.head_dim_v);
            assert_int_equal(l->dense.down.k, l->dense.gate_up.n / 2);
            heads += l->attn.n_head, keys += l->attn.n_kv_head, ff += l->dense.n_ff, tokens += part->head.n;
            model_close(part);
        }
        assert_int_equal(heads, m->layer[0].attn.n_head);
        if (n <= m->layer[0].attn.n_kv_head) assert_int_equal(keys, m->layer[0].attn.n_kv_head);
        assert_int_equal(ff, m->layer[0].dense.n_ff);
        assert_int_equal(tokens, m->n_vocab);
    }
    assert_int_equal(model_shard(&part, m, 0, RANKS_MAX + 1), INFER_E_INPUT);
    assert_int_equal(model_shard(&part, m, 2, 2), INFER_E_INPUT);
    model_close(m);
    golden_free(&g);
}

/* Heads with a state, too: every number of each state is some rank's. */
static void states_divide(void **state) {
    struct golden g;
    struct model *m, *part;
    golden_read(&g, *state);
    assert_ok(model_open(&m, g.path, NULL));
    for (int i = 0; i < m->n_state; i++) {
        bool *there = calloc((size_t)m->state[i].n_elem, 1);
        for (int r = 0; r < 2; r++) {
            int own = 0;
            assert_ok(model_shard(&part, m, r, 2));
            assert_int_equal(part->share.n_attn_whole, 0);
            const struct state_share *s = &part->share.state[i];
            assert_int_equal(s->n_row * s->whole, m->state[i].n_elem);
            for (int row = 0; row < s->n_row; row++)
                for (int k = 0; k < s->n_section; own += s->section[k++].n)
                    memset(there + row * s->whole + s->section[k].first, 1, (size_t)s->section[k].n);
            assert_int_equal(own, part->state[i].n_elem);
            model_close(part);
        }
        assert_null(memchr(there, 0, (size_t)m->state[i].n_elem));
        free(there);
    }
    model_close(m);
    golden_free(&g);
}

/* ---- the communicator ---- */

enum { RANKS = 3, ROWS = 5, WIDTH = 37, STRIDE = 48, TIMES = 200 };
struct member {
    struct comm *comm;
    float x[ROWS * STRIDE];
    enum infer_status status;
};
static float number(int rank, int row, int i) {
    return (float)(rank + 1) * 0.1f + (float)(row * 37 + i) * 1e-3f;
}

static void *add_up(void *user) {
    struct member *m = user;
    for (int k = 0; k < TIMES && m->status == INFER_OK; k++) {
        for (int t = 0; t < ROWS; t++)
            for (int i = 0; i < STRIDE; i++) m->x[t * STRIDE + i] = number(m->comm->rank, t, i);
        m->status = m->comm->type->reduce(m->comm, m->x, ROWS, STRIDE, WIDTH);
    }
    return NULL;
}
static void *gather(void *user) {
    static const int col[] = {0, 20, 30, WIDTH};
    struct member *m = user;
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < STRIDE; i++) m->x[t * STRIDE + i] = number(m->comm->rank, t, i);
    m->status = m->comm->type->gather(m->comm, m->x, ROWS, STRIDE, col);
    return NULL;
}
/* Comes to one call, then leaves. */
static void *leave(void *user) {
    struct member *m = user;
    m->status = m->comm->type->reduce(m->comm, m->x, ROWS, STRIDE, WIDTH);
    m->comm->type->abort(m->comm);
    return NULL;
}
static void on_all(struct comm_local *l, struct member *m, void *(*const *fn)(void *)) {
    pthread_t thread[RANKS];
    for (int r = 0; r < RANKS; r++) {
        m[r] = (struct member){.comm = comm_local_rank(l, r)};
        assert_int_equal(pthread_create(&thread[r], NULL, fn[r], &m[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
}

static void sums_have_the_order_of_ranks(void **state) {
    static void *(*const all[])(void *) = {add_up, add_up, add_up};
    static struct member m[RANKS];
    struct comm_local *l;
    (void)state;
    assert_ok(comm_local_new(&l, RANKS));
    on_all(l, m, all);
    for (int r = 0; r < RANKS; r++) {
        assert_ok(m[r].status);
        for (int t = 0; t < ROWS; t++)
            for (int i = 0; i < STRIDE; i++) {
                float want = number(r, t, i);
                if (i < WIDTH) want = number(0, t, i) + number(1, t, i) + number(2, t, i);
                assert_memory_equal(&m[r].x[t * STRIDE + i], &want, sizeof want);
            }
    }
    comm_local_free(l);
}
static void columns_come_from_their_rank(void **state) {
    static void *(*const all[])(void *) = {gather, gather, gather};
    static struct member m[RANKS];
    struct comm_local *l;
    (void)state;
    assert_ok(comm_local_new(&l, RANKS));
    on_all(l, m, all);
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < ROWS; t++)
            for (int i = 0; i < STRIDE; i++) {
                const int from = i < 20 ? 0 : i < 30 ? 1 : i < WIDTH ? 2 : r;
                assert_true(m[r].x[t * STRIDE + i] == number(from, t, i));
            }
    comm_local_free(l);
}
static void whoever_leaves_takes_all_along(void **state) {
    static void *(*const two_stay[])(void *) = {add_up, leave, add_up},
                                          *(*const all[])(void *) = {add_up, add_up, add_up};
    static struct member m[RANKS];
    struct comm_local *l;
    (void)state;
    assert_ok(comm_local_new(&l, RANKS));
    on_all(l, m, two_stay);
    assert_int_equal(m[0].status, INFER_E_CANCEL);
    assert_int_equal(m[2].status, INFER_E_CANCEL);
    m[0].comm->type->ready(m[0].comm);
    on_all(l, m, all);
    for (int r = 0; r < RANKS; r++) assert_ok(m[r].status);
    comm_local_free(l);
}

#define NAMED(test, golden)                                                                                  \
    { #test ": " golden, test, NULL, NULL, (void *)(uintptr_t)golden }

static int look_for_cuda(void **state) {
    const char *only = getenv("INFER_ONLY_CARD");
    bool must;
    (void)state;
    have_cuda = cuda_there(&must);
    only_card = have_cuda && only && *only == '1';
#ifdef INFER_CUDA
    struct backend_memory memory;
    while (have_cuda && n_card < 2 && backend_cuda.memory(n_card + 1, &memory) == INFER_OK) n_card++;
#endif
    return must && !have_cuda;
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[HF_FOLDERS_MAX + 40] = {
        cmocka_unit_test(shares_are_the_whole),
        cmocka_unit_test(sums_have_the_order_of_ranks),
        cmocka_unit_test(columns_come_from_their_rank),
        cmocka_unit_test(whoever_leaves_takes_all_along),
        cmocka_unit_test(snapshots_hold_all_heads),
        cmocka_unit_test(snapshots_of_mixed_types),
        NAMED(snapshots_hold_all_heads, "qwen3_next"),
        NAMED(snapshots_hold_all_heads, "granitemoehybrid"),
        NAMED(snapshots_hold_all_heads, "lfm2"),
        NAMED(states_are_whole, "qwen3_next"),
        NAMED(states_are_whole, "falcon_h1"),
        NAMED(states_are_whole, "lfm2"),
        NAMED(states_go_back, "qwen3_next"),
        NAMED(states_go_back, "mamba2"),
        cmocka_unit_test(tiled_heads_divide),
        cmocka_unit_test(experts_may_be_elsewhere),
        NAMED(experts_divide, "qwen3_moe"),
        NAMED(experts_divide, "gpt_oss"),
        NAMED(experts_divide, "deepseek_v3"),
        NAMED(experts_divide, "nemotron_h-moe"),
        NAMED(experts_divide, "llama4"),
        NAMED(experts_divide, "qwen3_5_moe"),
        cmocka_unit_test(ep_is_refused),
        cmocka_unit_test(a_cancelled_step_ends),
        cmocka_unit_test(cuts_are_at_blocks),
        cmocka_unit_test(hidden_rows_are_whole),
        NAMED(states_divide, "qwen3_5"),
        NAMED(states_divide, "lfm2-bias"),
        NAMED(states_divide, "mamba2"),
        NAMED(states_divide, "mamba2-bias"),
        NAMED(states_divide, "falcon_h1"),
        NAMED(states_divide, "granitemoehybrid"),
        NAMED(states_divide, "nemotron_h")};
    static const char *name[HF_FOLDERS_MAX];
    const int n_folder = hf_folders(name);
    int n = 0;
    while (tests[n].name) n++;
    for (int i = 0; i < n_folder; i += EVERY(12))
        tests[n++] = (struct CMUnitTest){name[i], one_folder, NULL, NULL, (void *)(uintptr_t)name[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("ranks", tests, (size_t)n, look_for_cuda, NULL);
}

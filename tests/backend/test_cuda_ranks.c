/* Ranks on cards: sums and columns of all of them in the order of ranks, bit for bit, for one to four on one card and for two on two;
 * whole models on two ranks beside one; whoever leaves takes the others with it. Skipped with a printed reason where there is no usable
 * card, unless INFER_REQUIRE_CUDA=1; what wants two cards says so where there is one. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/random.h"
#include "tests/lib/relative.h"
#include "tests/lib/seam_step.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"
#include "infer.h"
#include "join/comm_local.h"
#include "plan/plan.h"
#include "seam/op_list.h"

#ifdef INFER_CUDA
#include <pthread.h>
void cuda_ranks_by_events(bool always);
void cuda_ranks_one_shot(size_t bytes);

static int n_card;

/* ---- operations ---- */

enum { RANKS = 4, W = 352, VOCAB = 24, ROWS = 12 };

/* A rank whose lists are: rows of its own table, columns of all ranks, sum of all ranks. */
struct rank {
    struct comm *comm;
    int card, n_row, times;
    float *table; /* table[VOCAB][W] */
    int col[RANKS + 1];
    float sum[ROWS * W], columns[ROWS * W];
    struct backend *b; /* closed when all ranks are out of it */
    bool leaves;
    enum infer_status status;
    char message[256];
};

static int32_t id_of(int time, int t) { return (7 * time + 5 * t + 1) % VOCAB; }

static enum infer_status one_step(struct rank *r, struct backend *b, enum row_class cls, int time) {
    int32_t id[ROWS], pos[ROWS], slot[ROWS], page[ROWS] = {0};
    const int32_t *pages[1] = {page};
    struct step_result result;
    for (int t = 0; t < r->n_row; t++) id[t] = id_of(time, t), pos[t] = 0, slot[t] = t;
    struct step s = seam_step(r->n_row, 0, id, pos, slot, NULL, NULL, pages);
    TRY(b->type->run(b, cls, &s));
    TRY(b->type->wait(b, &result));
    TRY(b->type->read(b, cls, (struct view){0, 0, W}, r->n_row, r->sum));
    return b->type->read(b, cls, (struct view){1, 0, W}, r->n_row, r->columns);
}

/* What all ranks' rows come to. */
static bool as_wanted(const struct rank *r, const struct rank *all, int time) {
    const int n = r->comm->n_rank;
    for (int i = 0; i < r->n_row * W; i++) {
        const size_t at = (size_t)id_of(time, i / W) * W + (size_t)(i % W);
        float sum = all[0].table[at];
        double exact = (double)sum, most = fabs(exact);
        int from = 0;
        for (int k = 1; k < n; k++) sum += all[k].table[at];
        for (int k = 1; k < n; k++) exact += (double)all[k].table[at], most += fabs((double)all[k].table[at]);
        while (i % W >= r->col[from + 1]) from++;
        if (memcmp(&r->sum[i], &sum, sizeof sum) || !(fabs((double)sum - exact) <= 1e-6 * most)) return false;
        if (memcmp(&r->columns[i], &all[from].table[at], sizeof sum)) return false;
    }
    return true;
}

static struct rank ranks[RANKS];

static enum infer_status run_rank(struct rank *r, struct backend_config *c) {
    TRY(backend_cuda.open(&r->b, c));
    TRY(backend_cuda.upload(r->b));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) TRY(backend_cuda.compile(r->b, (enum row_class)cls));
    for (int time = 0; time < r->times; time++) {
        if (r->leaves && time == 1) {
            r->comm->type->abort(r->comm);
            return INFER_OK;
        }
        TRY(one_step(r, r->b, time % 3 == 2 ? ROW_PROMPT : ROW_DECODE, time));
        if (!as_wanted(r, ranks, time)) return err_set(INFER_E_NAN, "step %d: other numbers", time);
    }
    return INFER_OK;
}

static void *work(void *user) {
    struct rank *r = user;
    const int rank = r->comm->rank, n = r->comm->n_rank;
    const struct weight table = {
        .name = "table", .type = QUANT_F32, .n = VOCAB, .k = W, .data = r->table, .factor = 1, .n_stack = 1};
    struct op op[ROW_CLASS_COUNT][3];
    struct buf buf[ROW_CLASS_COUNT][2];
    struct op_list list[ROW_CLASS_COUNT];
    const struct kv_group group = {0, 1, 1};
    struct backend_config c = {.embedding = &table,
                               .n_vocab = VOCAB,
                               .n_embd = W,
                               .kv_group = &group,
                               .n_kv_group = 1,
                               .kv_type = KV_F32,
                               .n_slot = ROWS,
                               .n_ctx = 4,
                               .n_logits = 1,
                               .card = r->card,
                               .rank = rank,
                               .n_rank = n,
                               .comm = r->comm};
    const struct view x = {0, 0, W};
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        op[cls][0] =
            (struct op){.kind = OP_EMBED, .name = "embed", .embed = {.out = x, .w = &table, .scale = 1}};
        op[cls][1] = (struct op){
            .kind = OP_GATHER,
            .name = "gather",
            .gather = {view_columns(x, r->col[rank], r->col[rank + 1] - r->col[rank]), {1, 0, W}, r->col}};
        op[cls][2] = (struct op){.kind = OP_REDUCE, .name = "reduce", .reduce = {x}};
        for (int i = 0; i < 2; i++)
            buf[cls][i] = (struct buf){.name = "b", .width = W, .rows = BUF_ROWS_ALL, .float32 = true};
        list[cls] = (struct op_list){(enum row_class)cls, op[cls], 3, buf[cls], 2, ROWS, ROWS};
        list_lives(&list[cls]);
        c.list[cls] = &list[cls];
    }
    struct backend_sizes sizes;
    r->status = backend_cuda.sizes(&c, &sizes);
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        if (r->status == INFER_OK) r->status = plan_place_buffers(&list[cls], true, &c.activation_bytes);
    if (r->status == INFER_OK) r->status = run_rank(r, &c);
    if (r->status != INFER_OK) snprintf(r->message, sizeof r->message, "%s", err_message());
    if (r->status != INFER_OK) r->comm->type->abort(r->comm);
    return NULL;
}

/* n ranks, rank r on card[r]; how many left. leaver: who leaves before the second step, -1: nobody. */
static int run_ranks(int n, const int *card, int n_row, int leaver) {
    static float table[RANKS][VOCAB * W];
    pthread_t thread[RANKS];
    struct comm_local *l;
    int left = 0;
    assert_ok(comm_local_new(&l, n));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < VOCAB * W; k++) table[i][k] = uniform();
        ranks[i] = (struct rank){.comm = comm_local_rank(l, i),
                                 .card = card[i] + 1,
                                 .n_row = n_row,
                                 .times = 7,
                                 .table = table[i],
                                 .leaves = i == leaver};
        for (int k = 0; k <= n; k++) ranks[i].col[k] = k == n ? W : k * (W / n) + (k ? 3 : 0);
    }
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&thread[i], NULL, work, &ranks[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = n; i-- > 0;)
        if (ranks[i].b) backend_cuda.close(ranks[i].b);
    for (int i = 0; i < n; i++) {
        if (leaver < 0 && ranks[i].status != INFER_OK)
            fail_msg("rank %d of %d, %d rows: %s", i, n, n_row, ranks[i].message);
        left += ranks[i].status == INFER_E_CANCEL;
    }
    comm_local_free(l);
    return left;
}

static const int one_card[RANKS] = {0, 0, 0, 0}, two_cards[RANKS] = {0, 1, 0, 1};

static void sums_and_columns_of_one_card(void **state) {
    (void)state;
    for (int n = 1; n <= RANKS; n++) {
        run_ranks(n, one_card, 1, -1);
        run_ranks(n, one_card, ROWS, -1);
    }
}
static void sums_and_columns_of_two_cards(void **state) {
    (void)state;
    if (n_card < 2) {
        print_message("one card: what two say to each other is not looked at\n");
        return;
    }
    for (int events = 0; events < 2; events++) {
        cuda_ranks_by_events(events);
        run_ranks(2, two_cards, 1, -1);
        run_ranks(2, two_cards, ROWS, -1);
        run_ranks(4, two_cards, 5, -1);
    }
    cuda_ranks_by_events(false);
}
/* More than two ranks: each adds up a part of what is large. */
static void sums_in_two_shots(void **state) {
    (void)state;
    cuda_ranks_one_shot(0);
    for (int n = 2; n <= RANKS; n++) {
        run_ranks(n, one_card, 1, -1);
        run_ranks(n, one_card, ROWS, -1);
        if (n_card > 1) run_ranks(n, two_cards, ROWS, -1);
    }
    cuda_ranks_one_shot(256 << 10);
}
static void whoever_leaves_takes_all_along(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, one_card, 2, 1), 2);
    if (n_card > 1) assert_int_equal(run_ranks(2, two_cards, 2, 1), 1);
}

/* ---- models ---- */

enum { N_PROMPT = 90, N_DECODE = 5 };

static int n_vocab;
static bool whole_experts;
static struct infer_engine *engine(const struct infer_model *m, const char *device, int n_rank, int n_stage,
                                   const char *cards, int slots) {
    struct infer_engine *e;
    const struct infer_engine_options o = {.device = device,
                                           .ranks = n_rank,
                                           .stages = n_stage,
                                           .ep = n_rank > 1 && whole_experts,
                                           .devices = cards,
                                           .ctx = 256,
                                           .slots = slots,
                                           .batch = N_PROMPT,
                                           .decode_rows = slots > 16  ? slots
                                                          : slots > 1 ? 16
                                                                      : 0,
                                           .threads = 2,
                                           .nan_guard = true,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1};
    assert_ok(infer_engine_create(&e, m, &o));
    return e;
}
/* Rows from .. from + n - 1 of a sequence; the logits of the last. */
static void model_step(struct infer_engine *e, int seq, int from, int n, bool decode, float *out) {
    struct infer_row rows[N_PROMPT] = {0};
    struct infer_output o;
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = ((from + i) * 37 + 3) % n_vocab,
                                     .pos = from + i,
                                     .seq = seq,
                                     .decode = decode,
                                     .want = i + 1 == n ? INFER_WANT_LOGITS : 0};
    assert_ok(infer_step(e, rows, n, &o));
    memcpy(out, o.logits[0], (size_t)n_vocab * 4);
}
/* out[1 + N_DECODE][n_vocab]: a prompt, then rows of decode. */
static void model_run(struct infer_engine *e, int chunk, float *out) {
    const size_t v = (size_t)n_vocab;
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N_PROMPT; i += chunk)
        model_step(e, seq, i, i + chunk > N_PROMPT ? N_PROMPT - i : chunk, false, out);
    for (int i = 0; i < N_DECODE; i++) model_step(e, seq, N_PROMPT + i, 1, true, out + (size_t)(1 + i) * v);
    infer_seq_close(e, seq);
}
static void one_model(const char *shape, const char *type, int n_rank, int n_stage, const char *cards) {
    struct infer_model_info info;
    struct infer_model *m = synth_model(&(struct synth_options){.shape = shape, .type = type, .seed = 5});
    infer_model_info(m, &info);
    n_vocab = info.n_vocab;
    const size_t n = (size_t)(1 + N_DECODE) * (size_t)n_vocab;
    float *want = malloc(n * 4), *got = malloc(n * 4), *again = malloc(n * 4);
    struct infer_engine *ref = engine(m, "ref", 0, 0, NULL, 1);
    model_run(ref, N_PROMPT, want);
    infer_engine_free(ref);
    for (int slots = 1; slots <= 3; slots += 2) {
        struct infer_engine *e = engine(m, "cuda", n_rank, n_stage, cards, slots);
        model_run(e, N_PROMPT, got);
        const double prompt = relative(got, want, (size_t)n_vocab),
                     decode = relative(got + n_vocab, want + n_vocab, n - (size_t)n_vocab),
                     most = slots == 1 ? TOL_CUDA_DECODE_ONE : TOL_CUDA_DECODE;
        print_message("%s %s, %d ranks, %d stages on %s, %d slots: prompt %.1e decode %.1e\n", shape, type,
                      n_rank, n_stage, cards, slots, prompt, decode);
        if (!(prompt <= TOL_CUDA_PROMPT && decode <= most))
            fail_msg("%s %s on %s, %d slots: prompt %g, decode %g of the norm", shape, type, cards, slots,
                     prompt, decode);
        struct infer_engine_info on;
        infer_engine_info(e, &on);
        for (int i = 0; i < (on.grid ? 1 : 2); i++) {
            model_run(e, i ? 31 : N_PROMPT, again);
            if (memcmp(got, again, n * 4))
                fail_msg("%s %s on %s: other bits %s", shape, type, cards, i ? "in steps of 31" : "again");
        }
        infer_engine_free(e);
        if (n_card < 2 || !n_rank || strcmp(cards, "0,1") != 0) continue;
        cuda_ranks_by_events(true);
        e = engine(m, "cuda", n_rank, n_stage, cards, slots);
        model_run(e, N_PROMPT, again);
        cuda_ranks_by_events(false);
        if (memcmp(got, again, n * 4)) fail_msg("%s %s: other bits by events", shape, type);
        infer_engine_free(e);
    }
    infer_model_close(m);
    free(want), free(got), free(again);
}

static const struct {
    const char *shape, *type;
} models[] = {{"tiny", "q8_0"},          {"tiny", "f16"},        {"tiny-256", "bf16"},
              {"tiny-256", "f16"},       {"tiny-256", "q8_0"},   {"tiny-256", "q4_k"},
              {"tiny-256", "q6_k"},      {"tiny-256", "q4_k_m"}, {"tiny-moe", "q4_k"},
              {"tiny-moe", "q8_0"},      {"tiny-gemma4", "f16"}, {"tiny-latent-512", "q4_k"},
              {"tiny-delta-128", "q8_0"}};

static void models_on_one_card(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        one_model(models[i].shape, models[i].type, 2, 0, "0,0");
    one_model("tiny", "q8_0", 3, 0, "0,0,0");
}
static void models_on_two_cards(void **state) {
    (void)state;
    if (n_card < 2) {
        print_message("one card: no model on two\n");
        return;
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        one_model(models[i].shape, models[i].type, 2, 0, "0,1");
}

/* A row of decode has the same bits alone and beside many, whose sums go another way. */
static void beside(struct infer_engine *e, int n_row, float *out) {
    enum { MANY = 20, N_STEP = 3 };
    struct infer_row rows[MANY] = {0};
    struct infer_output o;
    int seq[MANY];
    for (int i = 0; i < n_row; i++) {
        assert_ok(infer_seq_open(e, &seq[i]));
        model_step(e, seq[i], 0, N_PROMPT / 2, false, out);
    }
    for (int k = 0; k < N_STEP; k++) {
        for (int i = 0; i < n_row; i++)
            rows[i] = (struct infer_row){.id = (k * 37 + i) % n_vocab,
                                         .pos = N_PROMPT / 2 + k,
                                         .seq = seq[i],
                                         .decode = true,
                                         .want = i ? INFER_WANT_TOKEN : INFER_WANT_LOGITS};
        assert_ok(infer_step(e, rows, n_row, &o));
        memcpy(out + (size_t)k * (size_t)n_vocab, o.logits[0], (size_t)n_vocab * 4);
    }
    for (int i = 0; i < n_row; i++) infer_seq_close(e, seq[i]);
}
static void many_rows(void **state) {
    static const char *const types[] = {"f16", "q4_k", "q8_0"};
    const char *cards = n_card > 1 ? "0,1" : "0,0";
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct infer_model_info info;
        struct infer_model *m =
            synth_model(&(struct synth_options){.shape = "tiny-256", .type = types[i], .seed = 5});
        infer_model_info(m, &info);
        n_vocab = info.n_vocab;
        const size_t n = 3 * (size_t)n_vocab;
        float *alone = malloc(n * 4), *many = malloc(n * 4);
        struct infer_engine *e = engine(m, "cuda", 2, 0, cards, 20);
        beside(e, 1, alone);
        for (int rows = 7; rows <= 20; rows += 13) {
            beside(e, rows, many);
            if (memcmp(alone, many, n * 4)) fail_msg("%s on %s: other bits beside %d", types[i], cards, rows);
        }
        infer_engine_free(e);
        infer_model_close(m);
        free(alone), free(many);
    }
}

/* Each rank has some of the experts: what others have is 0 in its sums. */
static void experts_of_ranks(void **state) {
    static const struct {
        const char *shape, *type;
    } mixtures[] = {{"tiny-moe", "q8_0"}, {"tiny-moe", "q4_k"}, {"tiny-oss", "f16"}};
    (void)state;
    whole_experts = true;
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        one_model(mixtures[i].shape, mixtures[i].type, 2, 0, n_card > 1 ? "0,1" : "0,0");
        one_model(mixtures[i].shape, mixtures[i].type, 3, 0, "0,0,0");
    }
    whole_experts = false;
}
/* Layers of one card before those of another; both may be the same one. */
static void stages_on_cards(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strstr(models[i].shape, "gemma4")) /* whose last layers read what the first ones keep */
            one_model(models[i].shape, models[i].type, 0, 2, n_card > 1 ? "1,0" : "0,0");
    one_model("tiny-delta-128", "q8_0", 0, 3, "0,0,0");
    one_model("tiny", "q8_0", 2, 2, n_card > 1 ? "0,1,1,0" : "0,0,0,0");
}

static void cards_are_named_for_all_ranks(void **state) {
    static const struct {
        int ranks;
        const char *device, *cards, *says;
    } wrong[] = {{2, "cuda", "0", "names 1 cards"},   {0, "cuda", "0,0", "names card 0 twice"},
                 {2, "cuda", "0,x", "is '0,x'"},      {2, "cuda", "0,", "is '0,'"},
                 {2, "cuda:0", NULL, "is one card"},  {2, "cuda", "0,99", "card 100 of"},
                 {2, "cpu", "0,0", "no card is used"}};
    struct infer_model *m = synth_model(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 5});
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct infer_engine *e = NULL;
        const struct infer_engine_options o = {.device = wrong[i].device,
                                               .ranks = wrong[i].ranks,
                                               .devices = wrong[i].cards,
                                               .ctx = 64,
                                               .gpu_layers = -1,
                                               .cpu_experts = -1};
        assert_int_not_equal(infer_engine_create(&e, m, &o), INFER_OK);
        if (!strstr(infer_error(), wrong[i].says)) fail_msg("%s: %s", wrong[i].says, infer_error());
    }
    infer_model_close(m);
}

static char heard[8192];
static void hear(void *user, enum log_level level, const char *line) {
    const size_t n = strlen(heard);
    (void)user, (void)level;
    snprintf(heard + n, sizeof heard - n, "%s\n", line);
}
/* What is left open is the fastest as predicted, which is said of several cards; so is what cards are named for. */
static void cards_share_as_is_fastest(void **state) {
    struct infer_model *m =
        synth_model(&(struct synth_options){.shape = "tiny-256", .type = "f16", .seed = 5});
    const char *cards[] = {NULL, "0", "0,1"};
    struct infer_model_info info;
    (void)state;
    infer_model_info(m, &info);
    n_vocab = info.n_vocab;
    float *got = malloc((size_t)(1 + N_DECODE) * (size_t)n_vocab * 4);
    for (size_t i = 0; i < 3; i++) {
        if (i == 2 && n_card < 2) continue;
        heard[0] = 0;
        log_set(hear, NULL);
        struct infer_engine *e = engine(m, "cuda", i ? 0 : -1, 0, cards[i], 1);
        log_set(NULL, NULL);
        model_run(e, N_PROMPT, got);
        infer_engine_free(e);
        assert_int_equal(strstr(heard, "TAKEN") != NULL, n_card > 1 && i != 1);
    }
    infer_model_close(m);
    free(got);
}

static int count_cards(void) {
    struct backend_memory memory;
    int n = 0;
    while (n < 64 && backend_cuda.memory(n + 1, &memory) == INFER_OK) n++;
    return n;
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_and_columns_of_one_card),
                                       cmocka_unit_test(sums_and_columns_of_two_cards),
                                       cmocka_unit_test(sums_in_two_shots),
                                       cmocka_unit_test(whoever_leaves_takes_all_along),
                                       cmocka_unit_test(models_on_one_card),
                                       cmocka_unit_test(models_on_two_cards),
                                       cmocka_unit_test(many_rows),
                                       cmocka_unit_test(experts_of_ranks),
                                       cmocka_unit_test(stages_on_cards),
                                       cmocka_unit_test(cards_are_named_for_all_ranks),
                                       cmocka_unit_test(cards_share_as_is_fastest)};
    n_card = count_cards();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    (void)argc, (void)argv;
    return 77;
#endif
}

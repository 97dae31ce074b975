/* Prompts with rows that are no tokens: what they answer, alone, beside others, in parts and from the cache, and where they turn. */
#include "engine/model/model.h"
#include "infer_request.h"
#include "seam/weight.h"
#include "tests/lib/free_guesses.h"
#include "tests/lib/test.h"

enum { CTX = 256, LONG = 150, FIRST = 20, GIVEN = 90, MOST = 24 };

static struct infer_model *llama;
static float *embed; /* of tokens FIRST .. of the prompt */
static int n_embd;

static int32_t token_of(int i) { return 3 + i * 7 % 40; }
static const struct model *inside(const struct infer_model *m) {
    return *(const struct model *const *)(const void *)m;
}

static int load(void **state) {
    (void)state;
    char path[512];
    if (infer_model_open(&llama, test_path(path, sizeof path, "golden/hf/llama"), NULL)) return -1;
    n_embd = inside(llama)->n_embd;
    embed = malloc((size_t)n_embd * GIVEN * sizeof *embed);
    for (int i = 0; i < GIVEN; i++)
        weight_decode_row(&inside(llama)->embd, token_of(FIRST + i), embed + (size_t)i * (size_t)n_embd);
    return 0;
}
static int unload(void **state) {
    (void)state;
    infer_model_close(llama);
    free(embed);
    return 0;
}

struct place {
    struct infer_engine *e;
    struct infer_sched *s;
};
static void place_open(struct place *p, int batch) {
    const struct infer_engine_options o = {.ctx = CTX,
                                           .slots = 3,
                                           .batch = batch,
                                           .threads = 2,
                                           .kv_type = "f32",
                                           .gpu_layers = -1,
                                           .cpu_experts = -1};
    assert_ok(infer_engine_create(&p->e, llama, &o));
    assert_ok(infer_sched_open(&p->s, p->e, llama));
    free_guesses(p->s);
}
static void place_close(struct place *p) {
    infer_sched_close(p->s);
    infer_engine_free(p->e);
}

struct told {
    int32_t id[MOST];
    float logprob[MOST];
    int n, n_reused;
};
static void on_token(void *user, int32_t id) {
    struct told *a = user;
    a->id[a->n++] = id;
}

static struct infer_request *ask(struct place *p, struct told *a, int n_id,
                                 const struct infer_prompt_rows *rows, int n_rows) {
    static int32_t ids[CTX];
    struct infer_request_params q = infer_request_defaults();
    struct infer_request *r;
    *a = (struct told){0};
    for (int i = 0; i < n_id; i++) ids[i] = token_of(i);
    for (int k = 0; k < n_rows; k++)
        for (int i = 0; i < rows[k].n; i++) ids[rows[k].at + i] = -7; /* not read */
    q.ids = ids, q.n_id = n_id, q.rows = rows, q.n_rows = n_rows;
    q.n_predict = MOST, q.n_logprob = 0;
    q.drafter = INFER_DRAFT_LOOKUP;
    q.on_token = on_token, q.user = a;
    assert_ok(infer_request_new(&r, p->s, &q));
    return r;
}
static void take(struct told *a, struct infer_request *r) {
    assert_ok(infer_request_run(r));
    for (int i = 0; i < a->n; i++) a->logprob[i] = infer_logprobs_at(infer_request_logprobs(r), i)->logprob;
    a->n_reused = infer_request_figures(r)->n_reused;
    infer_request_free(r);
}
static void expect_same(const struct told *a, const struct told *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, sizeof a->id);
    assert_memory_equal(a->logprob, b->logprob, sizeof a->logprob);
}

/* Embeddings of tokens are those tokens: alone, beside others, in parts of any size, from the cache. */
static void the_answer_of_tokens(void **state) {
    (void)state;
    static const int batches[] = {256, 64, 7};
    const struct infer_prompt_rows rows[] = {
        {FIRST, 30, embed, 0, NULL, 0, false},
        {FIRST + 40, 50, embed + (size_t)40 * (size_t)n_embd, n_embd, NULL, 0, false}};
    struct told want, got, other, again;
    for (int b = 0; b < 3; b++) {
        struct place p;
        place_open(&p, batches[b]);
        struct infer_request *r = ask(&p, b ? &got : &want, LONG, NULL, 0);
        take(b ? &got : &want, r);
        if (b) expect_same(&got, &want);
        struct infer_request *with = ask(&p, &got, LONG, rows, 2), *beside = ask(&p, &other, 33, NULL, 0);
        take(&got, with);
        take(&other, beside);
        expect_same(&got, &want);
        assert_int_equal(got.n_reused, FIRST / 64 * 64);
        take(&again, ask(&p, &again, LONG, rows, 2));
        expect_same(&again, &want);
        assert_int_equal(again.n_reused, LONG / 64 * 64);
        place_close(&p);
    }
}

/* Two pictures: a grid of 3 x 2 rows that takes three positions, and one row that takes one. */
static void positions_behind_pictures(void **state) {
    (void)state;
    static const int32_t grid[6][3] = {{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 1, 0}, {0, 1, 1}, {0, 1, 2}},
                         one[1][3] = {{0, 0, 0}};
    const struct infer_prompt_rows pictures[] = {{3, 6, embed, 0, grid, 3, false},
                                                 {10, 1, embed, 0, one, 1, true}};
    static const int32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {3, 3, 4},
                                      {3, 3, 5}, {3, 4, 3}, {3, 4, 4}, {3, 4, 5}, {6, 6, 6},
                                      {7, 7, 7}, {8, 8, 8}, {9, 9, 9}};
    enum { ROWS = sizeof want / sizeof *want };
    struct infer_row rows[ROWS];
    int32_t axis[ROWS][3];
    struct infer_sched s = {.rows = rows, .axis = axis, .n_embd = n_embd};
    struct infer_request r = {.sched = &s, .p = {.rows = pictures, .n_rows = 2}};
    for (int i = 0; i < ROWS; i++) rows[i] = (struct infer_row){.pos = i};
    given_fill(&r, rows + 1, ROWS - 1);
    for (int i = 1; i < ROWS; i++) {
        if (i > 2) assert_memory_equal(rows[i].axis, want[i], sizeof want[i]);
        assert_ptr_equal(rows[i].embed, i == 10 ? embed : i >= 3 && i < 9 ? embed + (i - 3) * n_embd : NULL);
    }
    assert_null(rows[2].axis);
}

/* A picture whose rows see each other: no part ends within it, and a step that has less room for prompts takes it as a whole. */
static void pictures_that_are_not_cut(void **state) {
    (void)state;
    struct infer_prompt_rows whole[] = {
        {FIRST, 40, embed, 0, NULL, 0, true},
        {FIRST + 60, 30, embed + (size_t)60 * (size_t)n_embd, 0, NULL, 0, true}};
    static struct infer_sched of_texts;
    struct infer_request r = {.p = {.rows = whole, .n_rows = 2}, .sched = &of_texts};
    const struct {
        int from, n, part, least;
    } cases[] = {{0, 20, 20, 1},  {0, 21, 20, 1},   {0, 59, 20, 1},   {0, 60, 60, 1},
                 {0, 100, 80, 1}, {20, 39, 0, 40},  {20, 40, 40, 40}, {20, 70, 60, 40},
                 {30, 29, 0, 30}, {30, 30, 30, 30}, {60, 5, 5, 1},    {80, 31, 31, 30}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(given_part(&r, cases[i].from, cases[i].n), cases[i].part);
        assert_int_equal(given_least(&r, cases[i].from), cases[i].least);
    }
    struct told want, got, beside;
    struct place p;
    place_open(&p, 64);
    take(&want, ask(&p, &want, LONG, NULL, 0));
    infer_sched_pace(p.s, 16, 0); /* rows of prompts beside an answer, fewer than the picture has */
    struct infer_request *other = ask(&p, &beside, 30, NULL, 0);
    while (!beside.n) assert_true(infer_sched_step(p.s));
    struct infer_request *with = ask(&p, &got, LONG, whole, 2);
    take(&got, with);
    take(&beside, other);
    assert_int_equal(got.n, MOST);
    assert_memory_equal(got.id, want.id,
                        sizeof want.id); /* (a model of texts: its rows see what is before them) */
    place_close(&p);
    place_open(&p, 32);
    struct infer_request_params q = infer_request_defaults();
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = token_of(i);
    q.ids = ids, q.n_id = LONG, q.rows = whole, q.n_rows = 2;
    assert_int_equal(infer_request_new(&with, p.s, &q), INFER_E_FULL);
    assert_string_equal(
        infer_error(),
        "a picture of 40 rows that see each other is computed in one step, and a step has 32 (.batch)");
    place_close(&p);
}

static void what_is_refused(void **state) {
    (void)state;
    struct place p;
    struct infer_request *r;
    int32_t ids[30];
    struct infer_request_params q = infer_request_defaults();
    const struct infer_prompt_rows wrong[] = {{-1, 2, embed, 0, NULL, 0, false},
                                              {5, 0, embed, 0, NULL, 0, false},
                                              {5, 26, embed, 0, NULL, 0, false},
                                              {5, 25, embed, 0, NULL, 0, false},
                                              {5, 2, NULL, 0, NULL, 0, false}};
    place_open(&p, 16);
    for (int i = 0; i < 30; i++) ids[i] = token_of(i);
    q.ids = ids, q.n_id = 30, q.n_rows = 1, q.n_logprob = 0;
    for (int i = 0; i < 5; i++) {
        q.rows = &wrong[i];
        assert_int_equal(infer_request_new(&r, p.s, &q), INFER_E_INPUT);
        assert_null(r);
    }
    q.rows = &(struct infer_prompt_rows){5, 2, embed, 0, NULL, 0, false};
    ids[6] = -1; /* not read, the one behind is */
    q.score = true;
    assert_int_equal(infer_request_new(&r, p.s, &q), INFER_E_UNSUPPORTED);
    q.score = false;
    ids[7] = -1;
    assert_int_equal(infer_request_new(&r, p.s, &q), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "token 7 of the prompt"));
    place_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_of_tokens), cmocka_unit_test(positions_behind_pictures),
        cmocka_unit_test(pictures_that_are_not_cut), cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, load, unload);
}

/* Ranks that are processes, here threads with a group each: what they compute has the bits of ranks that are threads of one engine, whatever
 * is asked of them; ranks that differ, or do not know the secret, are refused with both values; who is not a rank is not let in. */
#include "tests/lib/cancel_soon.h"
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/hf_golden.h"
#include "tests/lib/steps.h"
#include "infer.h"
#include "wire/group.h"
#include <pthread.h>
#include <unistd.h>

enum { MOST = 4 };

/* A place on this machine that is free. */
static const char *place(void) {
    static char at[32];
    int fd, port;
    assert_ok(wire_listen(&fd, "127.0.0.1:0", &port));
    close(fd);
    wire_join(at, sizeof at, "127.0.0.1", port);
    return at;
}

/* A rank above 0, on a thread. */
struct follower {
    struct infer_group_options o;
    const struct infer_model *model;
    enum infer_status status;
    char message[512];
    bool lost;
    pthread_t thread;
};
static void *follow(void *user) {
    struct follower *f = user;
    struct infer_group *g;
    f->status = infer_group_open(&g, &f->o);
    if (f->status == INFER_OK)
        f->status = infer_group_follow(g, f->model, &(struct infer_follow_options){.threads = 1});
    if (f->status) snprintf(f->message, sizeof f->message, "%s", infer_error());
    f->lost = infer_group_lost(g);
    infer_group_close(g);
    return NULL;
}
static void begin(struct follower *f, const struct infer_group_options *o, const struct infer_model *m) {
    for (int r = 1; r < o->world; r++) {
        f[r] = (struct follower){.o = *o, .model = m};
        f[r].o.rank = r;
        assert_int_equal(pthread_create(&f[r].thread, NULL, follow, &f[r]), 0);
    }
}
static void end(struct follower *f, int world) {
    for (int r = 1; r < world; r++) {
        pthread_join(f[r].thread, NULL);
        if (f[r].status) fail_msg("rank %d: %s", r, f[r].message);
    }
}

/* ---- engines ---- */

static struct infer_engine_options options(struct infer_group *g, int ranks, const char *device) {
    return (struct infer_engine_options){.device = device,
                                         .ctx = MAX_TOKENS,
                                         .slots = 3,
                                         .threads = g ? 1 : ranks,
                                         .ranks = g ? 0 : ranks,
                                         .gpu_layers = -1,
                                         .cpu_experts = -1,
                                         .decode_rows = 8,
                                         .all_logits = true,
                                         .group = g};
}

/* Everything that a rank is asked: prompt and decode rows, sampled and drawn tokens, a rewind, a prefix, a snapshot. */
static void use(struct infer_engine *e, const struct golden *g, float *out) {
    const struct infer_prompt *p = &g->prompt[N_PROMPT - 1];
    const size_t v = (size_t)g->n_vocab;
    struct infer_output o;
    struct folder d;
    char file[256];
    int seq, other, shared;
    compute(e, g, p, 7, false, out);
    out += elements(g, p);
    compute(e, g, p, 5, true, out);
    out += elements(g, p);
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_prefix(e, seq, p->ids, p->n, NULL, &shared));
    struct infer_row row = {
        .id = p->ids[0], .seq = seq, .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN, .decode = true};
    const struct infer_edit edit = {.id = 3, .add = 2, .ratio = 1};
    uint64_t mask[64];
    memset(mask, 0x7f, sizeof mask);
    const struct infer_draw draw = {.u = 0.7,
                                    .temp = 1.5f,
                                    .order = {INFER_DRAW_TEMP},
                                    .n_edit = 1,
                                    .edit = &edit,
                                    .mask = v <= 4096 ? mask : NULL};
    for (int i = shared; i < shared + 12; i++) {
        row.pos = i;
        row.draw = i % 2 ? &draw : NULL;
        assert_ok(infer_step(e, &row, 1, &o));
        memcpy(out, o.logits[0], v * 4);
        out += v;
        row.id = INFER_LAST;
    }
    folder_make(&d);
    folder_file(&d, file, "sequence");
    assert_ok(infer_seq_rewind(e, seq, shared + 4));
    assert_ok(infer_seq_save(e, seq, file));
    assert_ok(infer_seq_open(e, &other));
    assert_ok(infer_seq_load(e, other, file));
    row.pos = infer_seq_length(e, other), row.seq = other, row.id = 2;
    assert_ok(infer_step(e, &row, 1, &o));
    memcpy(out, o.logits[0], v * 4);
    out += v;
    infer_seq_close(e, seq);
    infer_seq_close(e, other);
    folder_remove(&d);
    /* rows of a picture, where the model has such: each sees all of them */
    struct infer_row picture[5];
    for (int i = 0; i < 5; i++) picture[i] = (struct infer_row){.id = p->ids[i], .pos = i, .until = 4};
    picture[0].want = INFER_WANT_LOGITS;
    assert_ok(infer_seq_open(e, &picture[0].seq));
    for (int i = 1; i < 5; i++) picture[i].seq = picture[0].seq;
    assert_ok(infer_step(e, picture, 5, &o));
    memcpy(out, o.logits[0], v * 4);
    infer_seq_close(e, picture[0].seq);
}

/* A model on n ranks of both kinds, twice in a group. */
static void bits_are_those_of_threads(const char *name, const char *device, int n) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_group *group;
    struct follower f[MOST];
    golden_read(&g, name);
    const size_t all = (2 * elements(&g, &g.prompt[N_PROMPT - 1]) + 14 * (size_t)g.n_vocab);
    float *want = malloc(all * 4), *got = malloc(all * 4);
    assert_ok(infer_model_open(&m, g.path, NULL));
    struct infer_engine_options o = options(NULL, n, device);
    assert_ok(infer_engine_create(&e, m, &o));
    use(e, &g, want);
    infer_engine_free(e);
    const struct infer_group_options go = {
        .world = n, .rendezvous = place(), .options = "--ctx 1\n--batch 2\n"};
    begin(f, &go, m);
    assert_ok(infer_group_open(&group, &go));
    o = options(group, n, device);
    for (int i = 0; i < 2; i++) {
        const size_t n_got = i ? elements(&g, &g.prompt[N_PROMPT - 1]) : all;
        assert_ok(infer_engine_create(&e, m, &o));
        memset(got, 0, all * 4);
        if (i)
            compute(e, &g, &g.prompt[N_PROMPT - 1], 7, false, got);
        else
            use(e, &g, got);
        for (size_t k = 0; k < n_got; k++)
            if (memcmp(&want[k], &got[k], 4))
                fail_msg("%s on %d ranks of %s: number %zu is %g, not %g", name, n, device, k, (double)got[k],
                         (double)want[k]);
        infer_engine_free(e);
    }
    infer_group_close(group);
    end(f, n);
    infer_model_close(m);
    golden_free(&g);
    free(want);
    free(got);
}
static void dense(void **state) {
    (void)state;
    bits_are_those_of_threads("llama", "cpu", 2);
    bits_are_those_of_threads("gemma3", "ref", 3);
}
static void experts(void **state) {
    (void)state;
    bits_are_those_of_threads("qwen3_moe", "cpu", 4);
}
static void states(void **state) {
    (void)state;
    bits_are_those_of_threads("qwen3_next", "cpu", 2);
    bits_are_those_of_threads("falcon_h1", "ref", 2);
}

/* A step that rank 0 leaves ends on all ranks, again and again, and the next one has the bits of before. */
static void a_cancelled_step_ends(void **state) {
    struct golden g;
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_group *group;
    struct infer_output out;
    struct infer_row rows[MAX_TOKENS];
    struct follower f[MOST];
    pthread_t thread;
    int seq;
    (void)state;
    golden_read(&g, "llama");
    float *want = malloc((size_t)g.n_vocab * 4);
    assert_ok(infer_model_open(&m, g.path, NULL));
    const struct infer_group_options go = {.world = 3, .rendezvous = place()};
    begin(f, &go, m);
    assert_ok(infer_group_open(&group, &go));
    const struct infer_engine_options o = options(group, 3, "cpu");
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < MAX_TOKENS; i++)
        rows[i] = (struct infer_row){.id = i % g.n_vocab, .pos = i, .seq = seq};
    rows[MAX_TOKENS - 1].want = INFER_WANT_LOGITS;
    assert_ok(infer_step(e, rows, MAX_TOKENS, &out));
    memcpy(want, out.logits[0], (size_t)g.n_vocab * 4);
    for (int turn = 0; turn < 3; turn++) {
        enum infer_status st = INFER_OK;
        assert_ok(infer_seq_rewind(e, seq, 0));
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, e), 0);
        for (int i = 0; i < 20000 && st == INFER_OK; i++) {
            st = infer_step(e, rows, MAX_TOKENS, &out);
            if (st == INFER_OK) assert_ok(infer_seq_rewind(e, seq, 0));
        }
        pthread_join(thread, NULL);
        assert_int_equal(st, INFER_E_CANCEL);
        assert_ok(infer_seq_rewind(e, seq, 0));
        assert_ok(infer_step(e, rows, MAX_TOKENS, &out));
        assert_memory_equal(want, out.logits[0], (size_t)g.n_vocab * 4);
    }
    infer_engine_free(e);
    infer_group_close(group);
    end(f, 3);
    infer_model_close(m);
    golden_free(&g);
    free(want);
}

/* ---- the communicator alone ---- */

enum { WIDTH = 5000, ROWS = 40, STRIDE = 5003 };
struct member {
    struct infer_group_options o;
    float *x;
    bool leaves, wrong;
    enum infer_status status;
    pthread_barrier_t *all;
    pthread_t thread;
};
static float number(int rank, int i) { return (float)(rank + 1) * 0.1f + (float)i * 1e-5f; }
static void fill(float *x, int rank) {
    for (int i = 0; i < ROWS * STRIDE; i++) x[i] = number(rank, i);
}
static bool summed(const float *x, int rank, int world, int n_row) {
    for (int i = 0; i < ROWS * STRIDE; i++) {
        float want = number(0, i);
        for (int r = 1; r < world; r++) want += number(r, i);
        if (i >= n_row * STRIDE || i % STRIDE >= WIDTH) want = number(rank, i);
        if (memcmp(&x[i], &want, sizeof want)) return false;
    }
    return true;
}
/* (an assertion ends the main thread's test alone, and the others would wait) */
static void holds(struct member *m, bool so) { m->wrong |= !so; }
static void *add_up(void *user) {
    struct member *m = user;
    struct infer_group *g;
    const int col[] = {0, 1000, 1000, 4000, WIDTH};
    static const int rows[] = {1, 2, ROWS};
    if (infer_group_open(&g, &m->o)) return NULL;
    struct comm *c = group_comm(g);
    for (int i = 0; i < 3; i++) {
        fill(m->x, c->rank);
        holds(m, c->type->reduce(c, m->x, rows[i], STRIDE, WIDTH) == INFER_OK);
        holds(m, summed(m->x, c->rank, c->n_rank, rows[i]));
    }
    /* one leaves while the others add up large rows: all leave, and are ready again */
    for (int i = 0; i < 3; i++) {
        m->status = INFER_OK;
        for (int k = 0; m->status == INFER_OK; k++)
            m->status = m->leaves && k == 2 ? INFER_E_CANCEL : c->type->reduce(c, m->x, ROWS, STRIDE, WIDTH);
        holds(m, m->status == INFER_E_CANCEL);
        c->type->abort(c);
        c->type->ready(c);
        fill(m->x, c->rank);
        holds(m, c->type->reduce(c, m->x, ROWS, STRIDE, WIDTH) == INFER_OK);
        holds(m, summed(m->x, c->rank, c->n_rank, ROWS));
    }
    fill(m->x, c->rank);
    holds(m, c->type->gather(c, m->x, 3, STRIDE, col) == INFER_OK);
    for (int i = 0; i < 3 * STRIDE; i++) {
        int from = 0;
        while (from < MOST && i % STRIDE >= col[from + 1]) from++;
        holds(m, m->x[i] == number(i % STRIDE < WIDTH ? from : c->rank, i));
    }
    int own[8] = {c->rank, 7 * c->rank}, all[MOST][8];
    holds(m, !c->threads && *c->left == 0 && c->type->share(c, own, sizeof own, all) == INFER_OK);
    for (int r = 0; r < c->n_rank; r++) holds(m, all[r][0] == r && all[r][1] == 7 * r);
    holds(m, !c->cards == !m->o.cards && (!c->cards || !strcmp(c->cards, m->o.cards)));
    holds(m, group_who(g, c->rank)->local == c->rank);
    pthread_barrier_wait(m->all); /* whoever closes is gone */
    infer_group_close(g);
    return user;
}
static void sums_have_the_order_of_ranks(void **state) {
    struct member m[MOST];
    pthread_barrier_t all;
    (void)state;
    pthread_barrier_init(&all, NULL, MOST);
    const char *at = place();
    for (int r = 0; r < MOST; r++) {
        m[r] = (struct member){.o = {.rank = r, .world = MOST, .rendezvous = at, .cards = "host"},
                               .leaves = r == 2};
        m[r].x = malloc(ROWS * STRIDE * sizeof(float));
        m[r].all = &all;
        assert_int_equal(pthread_create(&m[r].thread, NULL, add_up, &m[r]), 0);
    }
    for (int r = 0; r < MOST; r++) {
        void *well;
        pthread_join(m[r].thread, &well);
        assert_non_null(well);
        assert_false(m[r].wrong);
        free(m[r].x);
    }
    pthread_barrier_destroy(&all);
}

/* Its watcher beats, and it computes: rank 1 between two exchanges, which has a second for it. */
static void *stand_still(void *user) {
    struct member *m = user;
    struct infer_group *g;
    if (infer_group_open(&g, &m->o)) return NULL;
    struct comm *c = group_comm(g);
    group_step(g, true);
    for (int i = 0; i < 30; i++) /* longer than a second in all, but never from one to the next */
        holds(m, c->type->reduce(c, m->x, 1, STRIDE, 8) == INFER_OK && !usleep(60000));
    if (m->leaves)
        for (int i = 0; i < 80 && !infer_group_lost(g); i++) usleep(100000);
    m->status = c->type->reduce(c, m->x, 1, STRIDE, 8);
    holds(m, infer_group_lost(g) && *c->left && strstr(infer_error(), "rank 1 of 3") &&
                 strstr(infer_error(), "has not come to the others for 1 s"));
    pthread_barrier_wait(m->all);
    infer_group_close(g);
    return user;
}
static void a_rank_that_stands_still_is_gone(void **state) {
    struct member m[3];
    pthread_barrier_t all;
    (void)state;
    pthread_barrier_init(&all, NULL, 3);
    const char *at = place();
    for (int r = 0; r < 3; r++) {
        m[r] = (struct member){.o = {.rank = r, .world = 3, .rendezvous = at, .step_seconds = 1},
                               .leaves = r == 1};
        m[r].x = calloc(STRIDE, sizeof(float));
        m[r].all = &all;
        assert_int_equal(pthread_create(&m[r].thread, NULL, stand_still, &m[r]), 0);
    }
    for (int r = 0; r < 3; r++) {
        void *well;
        pthread_join(m[r].thread, &well);
        assert_non_null(well);
        assert_false(m[r].wrong);
        assert_int_equal(m[r].status, INFER_E_DEVICE);
        free(m[r].x);
    }
    pthread_barrier_destroy(&all);
}

/* ---- who is refused ---- */

/* Ranks 0 and 1 that do not fit: what both say. */
static void refused(struct infer_group_options zero, struct infer_group_options one, const char *said) {
    struct follower f = {.o = one};
    struct infer_group *g;
    f.o.rank = 1;
    assert_int_equal(pthread_create(&f.thread, NULL, follow, &f), 0);
    assert_int_equal(infer_group_open(&g, &zero), INFER_E_INPUT);
    if (!strstr(infer_error(), said)) fail_msg("'%s' lacks '%s'", infer_error(), said);
    pthread_join(f.thread, NULL);
    assert_int_equal(f.status, INFER_E_INPUT);
    if (!strstr(f.message, said)) fail_msg("'%s' lacks '%s'", f.message, said);
}
static void other_options_are_refused(void **state) {
    (void)state;
    struct infer_group_options o = {.world = 2, .rendezvous = place(), .options = "--ctx 1\n--batch 2\n"},
                               p = o;
    p.options = "--ctx 1\n--batch 3\n";
    refused(o, p, "has --batch 3, rank 0 has --batch 2");
    p.options = "--ctx 1\n";
    refused(o, p, "rank 0 has --batch 2");
    p.options = "--ctx 1\n--batch 2\n--more 3\n";
    refused(o, p, "more options");
    p = o, p.world = 3;
    refused(o, p, "a rank 1 of 3");
}

static void another_secret_is_refused(void **state) {
    struct infer_group_options o = {
        .world = 2, .rendezvous = place(), .secret = "abc", .n_secret = 3, .wait_seconds = 0.7};
    struct follower f = {.o = o};
    struct infer_group *g;
    (void)state;
    f.o.rank = 1, f.o.secret = "abd";
    assert_int_equal(pthread_create(&f.thread, NULL, follow, &f), 0);
    assert_int_equal(infer_group_open(&g, &o), INFER_E_DEVICE);
    assert_non_null(strstr(infer_error(), "rank 1 of 2 has not come in time"));
    pthread_join(f.thread, NULL);
    assert_int_equal(f.status, INFER_E_INPUT);
    assert_non_null(strstr(f.message, "another secret"));
    o.secret = NULL, o.rendezvous = "0.0.0.0:1";
    assert_int_equal(infer_group_open(&g, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "secret"));
}

struct opener {
    struct infer_group_options o;
    struct infer_group *group;
    enum infer_status status;
    pthread_t thread;
};
static void *open_only(void *user) {
    struct opener *o = user;
    o->status = infer_group_open(&o->group, &o->o);
    return NULL;
}
/* Whoever knocks before the ranks do, and says nothing, nonsense or half of it. */
static void strangers_are_not_let_in(void **state) {
    static const char nonsense[] =
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n and so on, and so on, and so on, and so on, and so "
        "on, and so on, and so on, and so on";
    struct infer_group *g;
    (void)state;
    const struct infer_group_options o = {.world = 2, .rendezvous = place()};
    int fd[3], n = 0;
    struct opener zero = {.o = o}; /* on a thread, so that strangers come first */
    assert_int_equal(pthread_create(&zero.thread, NULL, open_only, &zero), 0);
    while (n < 3)
        if (wire_connect(&fd[n], o.rendezvous, wire_now() + 1000) == INFER_OK) n++;
    assert_ok(wire_put(fd[0], nonsense, sizeof nonsense, wire_now() + 1000));
    assert_ok(wire_put(fd[1], nonsense, 10, wire_now() + 1000));
    close(fd[1]);
    struct infer_group_options one = o;
    one.rank = 1;
    assert_ok(infer_group_open(&g, &one));
    pthread_join(zero.thread, NULL);
    assert_ok(zero.status);
    infer_group_close(zero.group);
    infer_group_close(g);
    close(fd[0]);
    close(fd[2]);
}

static void another_file_is_refused(void **state) {
    struct golden g, h;
    struct infer_model *m, *other;
    struct infer_engine *e;
    struct infer_group *group;
    struct follower f[MOST];
    (void)state;
    golden_read(&g, "llama");
    golden_read(&h, "llama-bias");
    assert_ok(infer_model_open(&m, g.path, NULL));
    assert_ok(infer_model_open(&other, h.path, NULL));
    const struct infer_group_options go = {.world = 2, .rendezvous = place()};
    begin(f, &go, other);
    assert_ok(infer_group_open(&group, &go));
    const struct infer_engine_options o = options(group, 2, "cpu");
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    if (!strstr(infer_error(), "golden/hf/llama-bias (") || !strstr(infer_error(), "golden/hf/llama ("))
        fail_msg("%s", infer_error());
    infer_group_close(group);
    end(f, 2);
    infer_model_close(m);
    infer_model_close(other);
    golden_free(&g);
    golden_free(&h);
}

/* Words of the standards: what is computed of them there. */
static void secrets_are_hashed_as_the_standards_say(void **state) {
    static const unsigned char abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea}, /* FIPS 180-4 */
        jefe[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e}; /* RFC 4231, test case 2 */
    struct wire_secret s = {.bytes = "Jefe", .n = 4};
    unsigned char h[WIRE_MAC];
    (void)state;
    wire_hash("abc", 3, h);
    assert_memory_equal(h, abc, sizeof abc);
    wire_mac(&s, "what do ya want for nothing?", 28, h);
    assert_memory_equal(h, jefe, sizeof jefe);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_hashed_as_the_standards_say),
        cmocka_unit_test(sums_have_the_order_of_ranks),
        cmocka_unit_test(a_rank_that_stands_still_is_gone),
        cmocka_unit_test(dense),
        cmocka_unit_test(experts),
        cmocka_unit_test(states),
        cmocka_unit_test(a_cancelled_step_ends),
        cmocka_unit_test(other_options_are_refused),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(strangers_are_not_let_in),
        cmocka_unit_test(another_file_is_refused),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}

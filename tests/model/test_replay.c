/* Models whose layers have states, as a whole: however a prompt is cut and whoever is beside it, after going back to any position, guesses
 * that are taken back, saving and loading, prefixes taken over, every row has the bits as if nothing had happened. */
#include "tests/lib/free_guesses.h"
#include "tests/lib/test.h"
#include "tests/lib/answered.h"
#include "tests/lib/pace.h"
#include "tests/lib/folder.h"
#include "infer.h"
#include "infer_request.h"
#ifdef INFER_CUDA
#include "seam/backend.h"
#endif

#include <unistd.h>

enum { ROWS = 224, DECODED = 24, GUESSES = 8 };

struct run {
    struct infer_engine *e;
    const char *device;
    int n_vocab, grid, prompt; /* rows of the prompt; DECODED follow */
    float *want;               /* [ROWS][n_vocab] of a run without interruption */
};

static int32_t id_at(int i) { return (i * i + 7 * i + 3) % 53; }

/* Rows from .. end - 1 as they are in every run, in one step; wrong: the last so many have other ids. */
static enum infer_status feed(struct run *r, int seq, int from, int end, int wrong, float *out) {
    struct infer_row rows[ROWS];
    struct infer_output o;
    const size_t n_vocab = (size_t)r->n_vocab;
    for (int i = from; i < end; i++)
        rows[i - from] = (struct infer_row){.id = i < end - wrong ? id_at(i) : (id_at(i) + 1) % 53,
                                            .pos = i,
                                            .seq = seq,
                                            .decode = i >= r->prompt,
                                            .want = INFER_WANT_LOGITS};
    TRY(infer_step(r->e, rows, end - from, &o));
    assert_int_equal(o.n, end - from);
    for (int i = 0; out && i < o.n; i++)
        memcpy(out + (size_t)i * n_vocab, o.logits[i], n_vocab * sizeof *out);
    return INFER_OK;
}
static void expect(struct run *r, int from, int n, const float *got, const char *what, int at) {
    const size_t n_vocab = (size_t)r->n_vocab;
    for (int i = 0; i < n; i++)
        if (memcmp(got + (size_t)i * n_vocab, r->want + (size_t)(from + i) * n_vocab, n_vocab * sizeof *got))
            fail_msg("%s, prompt of %d: %s %d: row %d has other bits", r->device, r->prompt, what, at,
                     from + i);
}
/* Feeds rows from .. end - 1 of a sequence, its prompt in one step, and compares them. */
static void go_on(struct run *r, int seq, int from, int end, const char *what, int at) {
    float *got = malloc(sizeof *got * (size_t)r->n_vocab * ROWS);
    while (from < end) {
        int n = from < r->prompt && r->prompt < end ? r->prompt - from : from < r->prompt ? end - from : 1;
        assert_ok(feed(r, seq, from, from + n, 0, got));
        expect(r, from, n, got, what, at);
        from += n;
    }
    free(got);
}

/* host: copies of states in host memory. */
static void open_run(struct run *r, const struct infer_model *m, const char *device, int prompt, bool host) {
    struct infer_engine_options o = {.device = device,
                                     .kv_type = "f32",
                                     .ctx = 256,
                                     .slots = 2,
                                     .threads = 2,
                                     .gpu_layers = -1,
                                     .decode_rows = GUESSES + 1,
                                     .state_host = host,
                                     .all_logits = true};
    struct infer_engine_info info;
    struct infer_model_info model;
    int seq;
    infer_model_info(m, &model);
    *r = (struct run){.device = device, .prompt = prompt, .n_vocab = model.n_vocab};
    r->want = malloc(sizeof *r->want * (size_t)model.n_vocab * ROWS);
    assert_ok(infer_engine_create(&r->e, m, &o));
    infer_engine_info(r->e, &info);
    assert_true(info.state_bytes > 0);
    r->grid = info.grid;
    assert_ok(infer_seq_open(r->e, &seq));
    assert_ok(feed(r, seq, 0, prompt, 0, r->want));
    for (int i = prompt; i < prompt + DECODED; i++)
        assert_ok(feed(r, seq, i, i + 1, 0, r->want + (size_t)i * (size_t)model.n_vocab));
    infer_seq_close(r->e, seq);
}
static void close_run(struct run *r) {
    infer_engine_free(r->e);
    free(r->want);
}

/* ---- what may happen to a sequence ---- */

static void cut_everywhere(struct run *r) {
    const int every = r->grid ? r->grid : (r->prompt > 65 ? 7 : 1) * EVERY(3);
    for (int cut = every; cut < r->prompt; cut += every) {
        int seq;
        assert_ok(infer_seq_open(r->e, &seq));
        float *got = malloc(sizeof *got * (size_t)r->n_vocab * ROWS);
        assert_ok(feed(r, seq, 0, cut, 0, got));
        expect(r, 0, cut, got, "cut at", cut);
        go_on(r, seq, cut, r->prompt + 2, "cut at", cut);
        infer_seq_close(r->e, seq);
        free(got);
    }
}

/* Back from the end to each position, each time with two rows more, and with all. */
static void back_to_everywhere(struct run *r) {
    const int end = r->prompt + DECODED, every = (r->prompt > 65 ? 5 : 1) * EVERY(4);
    uint64_t before = infer_replayed(r->e);
    int seq;
    assert_ok(infer_seq_open(r->e, &seq));
    go_on(r, seq, 0, end, "straight to", end);
    for (int n = end; n >= 0; n -= every) {
        assert_ok(infer_seq_rewind(r->e, seq, n));
        assert_int_equal(infer_seq_length(r->e, seq), n);
        if (n < r->prompt && r->grid && n % r->grid) continue; /* its prompt would end elsewhere */
        go_on(r, seq, n, n + 2 < end ? n + 2 : end, "back to", n);
        if (n % 3) continue;
        assert_ok(infer_seq_rewind(r->e, seq, n));
        go_on(r, seq, n, end, "back to", n);
    }
    assert_true(infer_replayed(r->e) > before);
    infer_seq_close(r->e, seq);
}

/* Steps with guesses of which the last ones are wrong. */
static void guesses_taken_back(struct run *r) {
    float *got = malloc(sizeof *got * (size_t)r->n_vocab * ROWS);
    int seq, at = r->prompt;
    uint64_t before = infer_replayed(r->e);
    assert_ok(infer_seq_open(r->e, &seq));
    go_on(r, seq, 0, at, "guesses behind", at);
    for (int k = 0; at + GUESSES < r->prompt + DECODED; k++) {
        int n = 2 + k % (GUESSES - 1), wrong = k % n;
        assert_ok(feed(r, seq, at, at + n, wrong, got));
        expect(r, at, n - wrong, got, "guesses behind", at);
        at += n - wrong;
        assert_ok(infer_seq_rewind(r->e, seq, at));
        assert_int_equal(infer_seq_length(r->e, seq), at);
    }
    go_on(r, seq, at, r->prompt + DECODED, "guesses behind", at);
    assert_in_range(infer_replayed(r->e) - before, 1, 4 * DECODED); /* from copies before the guesses */
    infer_seq_close(r->e, seq);
    free(got);
}

/* Saved at a position, loaded into another sequence, which goes on, and back, and on. */
static void saved_and_loaded(struct run *r) {
    const int end = r->prompt + DECODED, every = (r->prompt > 65 ? 31 : 9) * EVERY(2);
    char path[64];
    int seq, other;
    snprintf(path, sizeof path, "/tmp/infer-replay-%d", (int)getpid());
    assert_ok(infer_seq_open(r->e, &seq));
    go_on(r, seq, 0, end, "straight to", end);
    for (int n = end; n > r->prompt / 2; n -= every) {
        assert_ok(infer_seq_rewind(r->e, seq, n));
        assert_ok(infer_seq_save(r->e, seq, path));
        assert_ok(infer_seq_open(r->e, &other));
        assert_ok(infer_seq_load(r->e, other, path));
        unlink(path);
        const bool within = n < r->prompt && r->grid && n % r->grid;
        if (!within) go_on(r, other, n, end, "loaded at", n);
        assert_ok(infer_seq_rewind(r->e, other, n > 3 && !within ? n - 1 : 0));
        const int at = infer_seq_length(r->e, other);
        if (at >= r->prompt || !r->grid || at % r->grid == 0) go_on(r, other, at, end, "loaded at", n);
        infer_seq_close(r->e, other);
    }
    infer_seq_close(r->e, seq);
}

/* Another sequence in each step, whose rows come first. */
static void beside_another(struct run *r) {
    const size_t n_vocab = (size_t)r->n_vocab;
    struct infer_row rows[2 * ROWS];
    struct infer_output o;
    int seq[2], n = 0;
    for (int k = 0; k < 2; k++) assert_ok(infer_seq_open(r->e, &seq[k]));
    for (int k = 1; k >= 0; k--)
        for (int i = 0; i < (k ? 40 : r->prompt); i++)
            rows[n++] = (struct infer_row){
                .id = k ? (3 * i) % 53 : id_at(i), .pos = i, .seq = seq[k], .want = INFER_WANT_LOGITS};
    assert_ok(infer_step(r->e, rows, n, &o));
    for (int i = 0; i < r->prompt; i++) expect(r, i, 1, o.logits[40 + i], "beside another of", 40);
    for (int i = r->prompt; i < r->prompt + DECODED; i++) {
        for (int k = 0; k < 2; k++)
            rows[1 - k] = (struct infer_row){.id = k ? 5 : id_at(i),
                                             .pos = k ? 40 + i - r->prompt : i,
                                             .seq = seq[k],
                                             .decode = true,
                                             .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(r->e, rows, 2, &o));
        assert_memory_equal(o.logits[1], r->want + (size_t)i * n_vocab, n_vocab * sizeof(float));
    }
    for (int k = 0; k < 2; k++) infer_seq_close(r->e, seq[k]);
}

/* A prefix of a sequence that was closed: whole pages, where a copy of the state was kept. */
static void prefix_taken_over(struct run *r) {
    int seq, n;
    int32_t ids[ROWS];
    if (r->prompt < 200) return;
    for (int i = 0; i < ROWS; i++) ids[i] = id_at(i);
    assert_ok(infer_seq_open(r->e, &seq));
    assert_ok(feed(r, seq, 0, 128, 0, NULL));
    go_on(r, seq, 128, r->prompt, "in two steps to", r->prompt);
    infer_seq_close(r->e, seq);
    assert_ok(infer_seq_open(r->e, &seq));
    assert_ok(infer_seq_prefix(r->e, seq, ids, r->prompt, NULL, &n));
    assert_int_equal(n, 128);
    go_on(r, seq, n, r->prompt + DECODED, "from a prefix of", n);
    infer_seq_close(r->e, seq);
}

static void every_way(void **state) {
    static const int prompts[] = {1, 63, 64, 65, 200};
    static const char *const devices[] = {"ref", "cpu", "cuda"};
    char file[128], path[512];
    struct infer_model *m;
    int n_device = 2;
#ifdef INFER_CUDA
    n_device += backend_cuda.probe() == INFER_OK;
#endif
    snprintf(file, sizeof file, "golden/hf/%s", (const char *)*state);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, file), NULL));
    for (int d = 0; d < n_device; d++)
        for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
            struct run r;
            open_run(&r, m, devices[d], prompts[i], i % 2);
            cut_everywhere(&r);
            back_to_everywhere(&r);
            guesses_taken_back(&r);
            saved_and_loaded(&r);
            beside_another(&r);
            prefix_taken_over(&r);
            close_run(&r);
        }
    infer_model_close(m);
}

/* ---- requests and plans ---- */

static struct answered ask(struct infer_sched *s, int seq, const int32_t *ids, int n,
                           enum infer_request_drafter by, struct infer_request_figures *figures) {
    struct answered a = {0};
    struct infer_request_params p = infer_request_defaults();
    struct infer_request *r;
    p.seq = seq, p.ids = ids, p.n_id = n, p.n_predict = 40, p.drafter = by;
    p.on_token = add_id, p.user = &a;
    assert_ok(infer_request_new(&r, s, &p));
    assert_ok(infer_request_run(r));
    assert_int_equal(infer_request_why(r), INFER_REQUEST_LIMIT);
    *figures = *infer_request_figures(r);
    infer_request_free(r);
    return a;
}

/* With guesses and without, once more, and as another sequence: the same tokens, and little is computed again. */
static void requests(void **state) {
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    char path[512];
    int32_t ids[150];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/qwen3_5"), NULL));
    for (int i = 0; i < 150; i++) ids[i] = i * i % 11;
    for (int d = 0; d < 2; d++) {
        struct infer_request_figures plain, f;
        struct infer_sched *s;
        struct run r;
        int seq;
        open_run(&r, m, devices[d], 20, d);
        assert_ok(infer_sched_open(&s, r.e, m));
        assert_ok(infer_seq_open(r.e, &seq));
        free_guesses(s);
        const struct answered want = ask(s, seq, ids, 150, INFER_DRAFT_NONE, &plain);
        uint64_t before = infer_replayed(r.e);
        struct answered got = ask(s, seq, ids, 150, INFER_DRAFT_NONE, &f); /* once more */
        assert_int_equal(f.n_reused, 149);
        assert_in_range(infer_replayed(r.e) - before, 1, 64); /* from 128 on */
        assert_memory_equal(&got, &want, sizeof got);
        got = ask(s, seq, ids, 150, INFER_DRAFT_LOOKUP, &f);
        assert_true(f.n_guessed > f.n_right); /* something was taken back */
        assert_memory_equal(&got, &want, sizeof got);
        infer_sched_close(s);
        close_run(&r);
    }
    infer_model_close(m);
}

/* A plan counts every copy. */
static void plans(void **state) {
    (void)state;
    char path[512];
    struct infer_model *m;
    struct infer_plan_report few, many;
    struct infer_engine_options o = {.device = "cpu", .slots = 3, .gpu_layers = -1, .state_snapshots = 2};
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/qwen3_5"), NULL));
    assert_ok(infer_plan(m, &o, NULL, &few));
    o.state_snapshots = 9;
    assert_ok(infer_plan(m, &o, NULL, &many));
    /* 3 delta layers: 6 heads of [8][12], and 3 inputs of 104 channels */
    assert_int_equal(few.size.state_bytes, 4 * 3 * (6 * 8 * 12 + 3 * 104));
    assert_int_equal(many.size.kv_bytes - few.size.kv_bytes, 7 * few.size.state_bytes);
    assert_non_null(strstr(many.text, "3 slots, 9 snapshots"));
    o.state_host = true;
    infer_plan_free(&few);
    assert_ok(infer_plan(m, &o, NULL, &few));
    assert_int_equal(many.size.kv_bytes - few.size.kv_bytes, 9 * few.size.state_bytes);
    infer_plan_free(&few);
    infer_plan_free(&many);
    infer_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"qwen3_5", every_way, NULL, NULL, (void *)(uintptr_t) "qwen3_5"},
        cmocka_unit_test(requests),
        cmocka_unit_test(plans),
        {"qwen3_next", every_way, NULL, NULL, (void *)(uintptr_t) "qwen3_next"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A pool of pages smaller than slots times context, what is found in it and by whom, and what happens to a sequence whose rows are in
 * flight. */
#include "tests/lib/test.h"
#include "tests/lib/steps.h"
#include "base/mem.h"
#include "cache/kv.h"
#include "infer.h"

enum { VOCAB = 83, LONG = 256 };

static int32_t id_at(int i) { return made_up_id(i, VOCAB); }
static const int32_t *ids_of(int n) {
    static int32_t ids[LONG];
    assert_true(n <= LONG);
    for (int i = 0; i < n; i++) ids[i] = id_at(i);
    return ids;
}

/* ---- bookkeeping ---- */

static void kv_make(struct kv *kv, struct arena *arena, int n_page) {
    static struct kv_group group;
    group = (struct kv_group){0, n_page, 0};
    *arena = (struct arena){0};
    assert_ok(kv_init(kv, arena, 3, LONG, &group, 1, 0, 0));
}
static enum infer_status go_on(struct kv *kv, int slot, int n, uint8_t how) {
    int wanted[KV_GROUPS] = {0}, from = kv->seq[slot].length;
    TRY(kv_room(kv, slot, from + n, from, wanted));
    for (int i = from; i < from + n; i++) {
        const int32_t id = id_at(i);
        assert_ok(kv_reserve(kv, slot, i + 1, from));
        kv_append(kv, slot, &id, &how, 1);
    }
    return INFER_OK;
}

static void expect_found(struct kv *kv, uint64_t salt, bool exact, int n, int free) {
    int got_free = -1;
    const struct kv_find find = {.salt = salt, .exact = exact};
    assert_int_equal(kv_probe(kv, ids_of(LONG), LONG, &find, &got_free), n);
    assert_int_equal(got_free, free);
}

/* Pages are found under their salt, and those with rows of an answer only by who does not ask for exact ones. */
static void prefixes_have_a_salt_and_a_kind(void **state) {
    (void)state;
    struct arena arena;
    struct kv kv;
    struct kv_moves m;
    int a, b, c;
    kv_make(&kv, &arena, 16);
    assert_ok(kv_open(&kv, &a));
    assert_ok(go_on(&kv, a, 128, 0));
    assert_ok(go_on(&kv, a, 20, KV_DECODED));
    assert_ok(go_on(&kv, a, LONG - 148, 0)); /* prompt behind an answer */
    expect_found(&kv, 0, true, 128, 0);
    expect_found(&kv, 0, false, 192, 0);
    kv_close(&kv, a);
    expect_found(&kv, 0, true, 128, 2);
    expect_found(&kv, 0, false, 192, 3);
    expect_found(&kv, 5, false, 0, 0);

    assert_ok(kv_open(&kv, &b)); /* nothing to adopt, but known under that salt from here on */
    assert_int_equal(kv_match(&kv, b, ids_of(LONG), LONG, &(struct kv_find){.salt = 5, .exact = true}, &m),
                     0);
    assert_ok(go_on(&kv, b, 70, 0));
    expect_found(&kv, 5, true, 64, 0);
    expect_found(&kv, 6, true, 0, 0);
    expect_found(&kv, 0, true, 128, 2);

    assert_ok(kv_open(
        &kv, &c)); /* adopted pages with an answer stay what they are when their end is computed again */
    assert_int_equal(kv_match(&kv, c, ids_of(LONG), LONG, &(struct kv_find){.salt = 0}, &m), 192);
    assert_ok(kv_rewind(&kv, c, 150, KV_COMPUTED, &m));
    assert_ok(go_on(&kv, c, 90, 0));
    expect_found(&kv, 0, true, 128, 0);
    kv_close(&kv, b);
    assert_ok(kv_open(&kv, &b)); /* the salt went with the sequence */
    assert_ok(go_on(&kv, b, 64, 0));
    expect_found(&kv, 5, true, 64, 1);
    arena_free(&arena);
}

/* Of a model whose prompts may be cut at some places alone, pages with another cut are no exact ones. */
static void cuts_off_the_grid_are_not_exact(void **state) {
    (void)state;
    for (int at = 16; at <= 32; at += 16) {
        struct arena arena;
        struct kv kv;
        int a;
        kv_make(&kv, &arena, 16);
        kv.grid = 32;
        assert_ok(kv_open(&kv, &a));
        assert_ok(go_on(&kv, a, 64 + at, 0));
        assert_ok(go_on(&kv, a, 1, KV_BEGINS));
        assert_ok(go_on(&kv, a, 127 - at, 0));
        expect_found(&kv, 0, true, at == 32 ? 192 : 64, 0);
        expect_found(&kv, 0, false, 192, 0);
        arena_free(&arena);
    }
}

static void no_page_is_told_by_the_sequence(void **state) {
    (void)state;
    struct arena arena;
    struct kv kv;
    int a, b;
    kv_make(&kv, &arena, 3);
    assert_ok(kv_open(&kv, &a));
    assert_ok(go_on(&kv, a, 128, 0));
    kv_close(&kv, a);
    assert_ok(kv_open(&kv, &a));
    assert_ok(kv_open(&kv, &b));
    assert_int_equal(kv_free(&kv), 3);
    assert_int_equal(go_on(&kv, b, 193, 0), INFER_E_FULL);
    assert_non_null(strstr(err_message(), "sequence 1 wants 4 more pages"));
    expect_found(&kv, 0, true, 128, 2); /* nothing was taken, so nothing was forgotten */
    int wanted[KV_GROUPS] = {0};
    assert_ok(kv_room(&kv, a, 100, 0, wanted));
    assert_int_equal(kv_room(&kv, b, 65, 0, wanted), INFER_E_FULL);
    assert_non_null(strstr(err_message(), "1 are free"));
    arena_free(&arena);
}

/* ---- engines ---- */

static const char *const devices[] = {"ref", "cpu"};
static const char *const models[] = {"llama-gqa", "qwen2-windows"};

struct pair {
    struct infer_model *m;
    struct infer_engine *e;
};
static struct pair pair_open(const char *model, const char *device, int slots, int kv_tokens) {
    struct pair p;
    char path[512], file[128];
    snprintf(file, sizeof file, "golden/forward/%s.gguf", model);
    assert_ok(infer_model_open(&p.m, test_path(path, sizeof path, file), NULL));
    const struct infer_engine_options o = {.device = device,
                                           .gpu_layers = -1,
                                           .ctx = LONG,
                                           .slots = slots,
                                           .kv_tokens = kv_tokens,
                                           .batch = 220,
                                           .threads = 2};
    assert_ok(infer_engine_create(&p.e, p.m, &o));
    return p;
}
static void pair_close(struct pair *p) {
    infer_engine_free(p->e);
    infer_model_close(p->m);
}
static void each_place(void (*what)(const char *model, const char *device)) {
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) what(models[i], devices[k]);
}

/* Rows of the prompt from .. end - 1, of which the last wants a token and logits. */
static int put(struct infer_row *rows, int seq, int from, int end) {
    for (int i = from; i < end; i++)
        rows[i - from] = (struct infer_row){.id = id_at(i), .pos = i, .seq = seq};
    rows[end - from - 1].want = INFER_WANT_TOKEN | INFER_WANT_LOGITS;
    return end - from;
}
static void prompt(struct infer_engine *e, int seq, int from, int end, float *logits) {
    struct infer_row rows[LONG];
    struct infer_output o;
    assert_ok(infer_step(e, rows, put(rows, seq, from, end), &o));
    if (logits) memcpy(logits, o.logits[0], VOCAB * sizeof *logits);
}
/* n tokens more of a sequence; tokens[n] */
static void decode(struct infer_engine *e, int seq, int n, int32_t *tokens) {
    struct infer_output o;
    for (int i = 0; i < n; i++) {
        const struct infer_row row = {.id = INFER_LAST,
                                      .pos = infer_seq_length(e, seq),
                                      .seq = seq,
                                      .decode = true,
                                      .want = INFER_WANT_TOKEN};
        assert_ok(infer_step(e, &row, 1, &o));
        tokens[i] = o.token[0];
    }
}

/* Two sequences want a page and one is left: neither has moved, and both go on as if nothing had been tried. */
static void full(const char *model, const char *device) {
    struct pair p = pair_open(model, device, 3, 320), whole = pair_open(model, device, 1, 0);
    struct infer_engine_info info;
    struct infer_output o;
    int32_t got[2][80], want[80];
    int seq[2], alone;
    infer_engine_info(p.e, &info);
    assert_int_equal(info.kv_tokens, 320);
    assert_int_equal(infer_kv_free(p.e), 320);
    for (int k = 0; k < 2; k++) {
        assert_ok(infer_seq_open(p.e, &seq[k]));
        prompt(p.e, seq[k], 0, 120, NULL);
        decode(p.e, seq[k], 8, got[k]);
    }
    assert_int_equal(infer_kv_free(p.e), 64);
    const struct infer_row rows[] = {
        {.id = INFER_LAST, .pos = 128, .seq = seq[0], .decode = true, .want = INFER_WANT_TOKEN},
        {.id = INFER_LAST, .pos = 128, .seq = seq[1], .decode = true, .want = INFER_WANT_TOKEN}};
    for (int again = 0; again < 2; again++) {
        assert_int_equal(infer_step(p.e, rows, 2, &o), INFER_E_FULL);
        assert_non_null(strstr(infer_error(), "sequence 1 "));
        assert_int_equal(infer_kv_free(p.e), 64);
        for (int k = 0; k < 2; k++) assert_int_equal(infer_seq_length(p.e, seq[k]), 128);
    }
    decode(p.e, seq[1], 64, got[1] + 8);
    assert_int_equal(infer_kv_free(p.e), 0);
    infer_seq_close(p.e, seq[1]);
    assert_int_equal(infer_kv_free(p.e), 192);
    decode(p.e, seq[0], 64, got[0] + 8);
    assert_ok(infer_seq_open(whole.e, &alone));
    prompt(whole.e, alone, 0, 120, NULL);
    decode(whole.e, alone, 72, want);
    for (int k = 0; k < 2; k++) assert_memory_equal(got[k], want, 72 * sizeof *want);
    pair_close(&p);
    pair_close(&whole);
}
static void a_full_pool_changes_nothing(void **state) {
    (void)state;
    each_place(full);
}

/* The slot and the pages are free when the step is read, and a step that was cancelled leaves nothing to be found. */
static void closed(const char *model, const char *device) {
    for (int cancel = 0; cancel < 2; cancel++) {
        struct pair p = pair_open(model, device, 1, 0);
        struct infer_row rows[LONG];
        struct infer_output o;
        const int all = infer_kv_free(p.e);
        int seq, n;
        assert_ok(infer_seq_open(p.e, &seq));
        if (cancel) infer_cancel(p.e);
        assert_ok(infer_submit(p.e, rows, put(rows, seq, 0, 200)));
        infer_seq_close(p.e, seq);
        assert_int_equal(infer_seq_length(p.e, seq), -1);
        assert_int_equal(infer_seq_open(p.e, &n), INFER_E_FULL);
        assert_int_equal(infer_wait(p.e, &o), cancel ? INFER_E_CANCEL : INFER_OK);
        assert_int_equal(infer_kv_free(p.e), all);
        assert_ok(infer_seq_open(p.e, &seq));
        const struct infer_row last = {
            .id = INFER_LAST, .pos = 0, .seq = seq, .decode = true, .want = INFER_WANT_TOKEN};
        assert_int_equal(infer_step(p.e, &last, 1, &o), INFER_E_INPUT); /* that token was another's */
        assert_ok(infer_seq_prefix(p.e, seq, ids_of(200), 200, NULL, &n));
        assert_int_equal(n, cancel ? 0 : 192);
        pair_close(&p);
    }
}
static void a_close_waits_for_the_step(void **state) {
    (void)state;
    each_place(closed);
}

static void went_back(const char *model, const char *device) {
    struct pair p = pair_open(model, device, 2, 0);
    struct infer_row rows[LONG], more = {.id = id_at(50), .pos = 50, .want = INFER_WANT_TOKEN};
    struct infer_output o;
    float got[VOCAB], want[VOCAB];
    int a, b;
    assert_ok(infer_seq_open(p.e, &a));
    assert_ok(infer_submit(p.e, rows, put(rows, a, 0, 100)));
    assert_ok(infer_seq_rewind(p.e, a, 50));
    assert_ok(infer_seq_rewind(p.e, a, 80)); /* the least counts */
    assert_int_equal(infer_seq_length(p.e, a), 100);
    assert_int_equal(infer_submit(p.e, &more, 1), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "goes back to 50"));
    assert_ok(infer_wait(p.e, &o));
    assert_int_equal(o.n, 1);
    assert_int_equal(infer_seq_length(p.e, a), 50);
    more.id = INFER_LAST;
    assert_int_equal(infer_submit(p.e, &more, 1), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "sampled no token"));
    prompt(p.e, a, 50, 140, got);
    assert_ok(infer_seq_open(p.e, &b));
    prompt(p.e, b, 0, 140, want);
    assert_memory_equal(got, want, sizeof got);
    pair_close(&p);
}
static void a_rewind_waits_for_the_step(void **state) {
    (void)state;
    each_place(went_back);
}

/* What goes on from an exact prefix has the bits of what was computed whole; an answer is not part of one. */
static void exactly(const char *model, const char *device) {
    struct pair p = pair_open(model, device, 2, 0);
    float got[VOCAB], want[VOCAB];
    int32_t answer[70], text[LONG];
    const struct infer_prefix mine = {.salt = 7, .exact = true}, fast = {.salt = 7}, other = {.salt = 8};
    int a, b, n;
    assert_ok(infer_seq_open(p.e, &a));
    assert_ok(infer_seq_prefix(p.e, a, ids_of(130), 130, &mine, &n));
    assert_int_equal(n, 0);
    prompt(p.e, a, 0, 130, NULL);
    decode(p.e, a, 70, answer);
    memcpy(text, infer_seq_ids(p.e, a), 200 * sizeof *text);
    assert_int_equal(infer_prefix_probe(p.e, text, 200, &mine, NULL), 128);
    assert_int_equal(infer_prefix_probe(p.e, text, 200, &fast, &n), 192);
    assert_int_equal(n, 0);
    assert_int_equal(infer_prefix_probe(p.e, text, 200, &other, NULL), 0);
    assert_int_equal(infer_prefix_probe(p.e, text, 200, NULL, NULL), 0);
    infer_seq_close(p.e, a);
    infer_prefix_probe(p.e, text, 200, &fast, &n);
    assert_int_equal(n, 192);
    for (int whole = 0; whole < 2; whole++) {
        struct infer_row rows[LONG];
        struct infer_output o;
        assert_ok(infer_seq_open(p.e, &b));
        assert_ok(infer_seq_prefix(p.e, b, text, 200,
                                   whole ? &(struct infer_prefix){.salt = 9, .exact = true} : &mine, &n));
        assert_int_equal(n, whole ? 0 : 128);
        for (int i = n; i < 200; i++) rows[i - n] = (struct infer_row){.id = text[i], .pos = i, .seq = b};
        rows[199 - n].want = INFER_WANT_LOGITS;
        assert_ok(infer_step(p.e, rows, 200 - n, &o));
        memcpy(whole ? want : got, o.logits[0], sizeof got);
        infer_seq_close(p.e, b);
    }
    assert_memory_equal(got, want, sizeof got);
    pair_close(&p);
}
static void exact_prefixes_have_the_same_bits(void **state) {
    (void)state;
    each_place(exactly);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_have_a_salt_and_a_kind),
        cmocka_unit_test(cuts_off_the_grid_are_not_exact),
        cmocka_unit_test(no_page_is_told_by_the_sequence),
        cmocka_unit_test(a_full_pool_changes_nothing),
        cmocka_unit_test(a_close_waits_for_the_step),
        cmocka_unit_test(a_rewind_waits_for_the_step),
        cmocka_unit_test(exact_prefixes_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

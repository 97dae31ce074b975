/* Pictures on the whole way, from a file to the logits behind them: what transformers says of a talk with two of them (tests/golden/tower), by
 * requests, alone, beside others and in parts. */
#include <math.h>
#include <unistd.h>
#include "engine/request/picture.h"
#include "infer_request.h"
#include "tests/lib/test.h"
#include "tests/lib/cuda_there.h"

/* Towers have weights of BF16, whose products the CPU rounds: their rows differ by 5e-2 of sd. */
static const double TOLERANCE = 0.1;
enum { MAX_IDS = 128, TOP = INFER_LOGPROBS_MAX };

struct talk {
    int32_t n, n_vocab, n_keep, which[2], at[2], given[2];
    float sd;
    int32_t ids[MAX_IDS], keep[MAX_IDS];
    float *logits;
    int32_t size[8][2]; /* of the pictures */
};

static FILE *golden(const char *name, const char *file) {
    char part[128], path[512];
    snprintf(part, sizeof part, "golden/tower/%s/%s", name, file);
    FILE *f = fopen(test_path(path, sizeof path, part), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    return f;
}

static void talk_read(struct talk *t, const char *name) {
    int32_t head[3], picture[5];
    FILE *f = golden(name, "talk.bin");
    read_words(f, t, 9);
    read_words(f, &t->sd, 1);
    assert_in_range(t->n, 1, MAX_IDS);
    read_words(f, t->ids, (size_t)t->n);
    read_words(f, t->keep, (size_t)t->n_keep);
    t->logits = malloc((size_t)t->n_keep * (size_t)t->n_vocab * 4);
    read_words(f, t->logits, (size_t)t->n_keep * (size_t)t->n_vocab);
    fclose(f);
    assert_int_equal(t->keep[t->n_keep - 1], t->n - 1);
    f = golden(name, "rows.bin");
    read_words(f, head, 3);
    for (int i = 0; i < head[0] && i < 8; i++) {
        read_words(f, picture, 5);
        t->size[i][0] = picture[0], t->size[i][1] = picture[1];
        fseek(f, 4L * picture[4] * head[1], SEEK_CUR);
    }
    fclose(f);
}

/* The pattern of goldens/vision.py, as a BMP. */
static unsigned char *picture_file(int width, int height, int n, size_t *n_byte) {
    const size_t stride = ((size_t)width * 3 + 3) / 4 * 4;
    *n_byte = 54 + stride * (size_t)height;
    unsigned char *b = calloc(1, *n_byte);
    const uint32_t head[] = {(uint32_t)*n_byte, 0, 54, 40, (uint32_t)width, (uint32_t)height, 1 | 24 << 16};
    memcpy(b, "BM", 2);
    memcpy(b + 2, head, sizeof head);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                b[54 + stride * (size_t)(height - 1 - y) + (size_t)x * 3 + (size_t)(2 - c)] =
                    (unsigned char)(x * (11 + n) + y * 17 + c * 71 + x * y * (c + 1) % 97 + 40 * n);
    return b;
}

struct seen {
    struct infer_picture *picture[2];
    struct infer_prompt_rows rows[64];
    int n_rows;
};

static void see(struct seen *s, const struct talk *t, struct infer_vision *v) {
    s->n_rows = 0;
    for (int k = 0; k < 2; k++) {
        size_t n;
        const int which = t->which[k];
        unsigned char *bytes = picture_file(t->size[which][0], t->size[which][1], which, &n);
        struct infer_picture *p;
        assert_ok(infer_picture_open(&p, v, bytes, n, 0));
        assert_ok(infer_picture_see(p));
        free(bytes);
        s->picture[k] = p;
        int at = t->at[k];
        for (int i = 0; i < p->n_part; i++) {
            const struct picture_part *part = &p->part[i];
            if (!part->n_row) continue;
            s->rows[s->n_rows++] =
                (struct infer_prompt_rows){.at = at,
                                           .n = part->n_row,
                                           .embed = p->rows + (size_t)part->first_row * (size_t)p->width,
                                           .stride = p->width,
                                           .axis = (const int32_t(*)[3])part->axis,
                                           .advance = part->advance,
                                           .both_ways = p->both_ways};
            at += part->n_row;
        }
        assert_int_equal(at, t->at[k] + t->given[k]);
    }
}

static struct infer_request *ask(struct infer_sched *s, const struct talk *t, const struct seen *seen) {
    struct infer_request_params q = infer_request_defaults();
    struct infer_request *r;
    q.ids = t->ids, q.n_id = t->n, q.rows = seen->rows, q.n_rows = seen->n_rows;
    q.n_predict = 1, q.n_logprob = TOP;
    assert_ok(infer_request_new(&r, s, &q));
    return r;
}

/* The likeliest tokens behind the talk, and their distance from the golden's in sd of the logits. */
static void check(struct infer_request *r, const struct talk *t, const char *name, const char *how,
                  float *all) {
    const float *want = t->logits + (size_t)(t->n_keep - 1) * (size_t)t->n_vocab;
    double sum = 0, most = 0;
    assert_ok(infer_request_run(r));
    for (int i = 0; i < t->n_vocab; i++) sum += exp((double)want[i]);
    const struct infer_logprob *top = infer_logprobs_at(infer_request_logprobs(r), 0) + 1;
    for (int i = 0; i < TOP; i++) {
        const double d = fabs((double)top[i].logprob - ((double)want[top[i].id] - log(sum))) / (double)t->sd;
        if (!(d <= most)) most = d;
        all[i] = top[i].logprob;
    }
    if (!(most <= TOLERANCE)) fail_msg("%s, %s: differs by %.3g of sd", name, how, most);
    infer_request_free(r);
}

static void one_on(const char *name, const char *device) {
    const bool card = strcmp(device, "cuda") == 0; /* by tensor cores, in one step */
    struct talk t;
    struct infer_model *m;
    struct infer_vision *v;
    struct infer_model_info info;
    struct seen seen;
    char part[128], path[512];
    float alone[TOP], other[TOP];
    talk_read(&t, name);
    snprintf(part, sizeof part, "golden/tower/%s", name);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, part), NULL));
    assert_ok(infer_vision_open(
        &v, m, path, &(struct infer_vision_options){.threads = 2, .device = card ? "cuda" : NULL}));
    infer_model_info(m, &info);
    see(&seen, &t, v);
    for (int batch = MAX_IDS; batch >= (info.both_ways || card ? MAX_IDS : 7); batch -= MAX_IDS - 7) {
        const struct infer_engine_options o = {.device = device,
                                               .ctx = 2 * MAX_IDS,
                                               .slots = 3,
                                               .batch = batch,
                                               .threads = 2,
                                               .kv_type = "f32",
                                               .strict_fp32 = !card,
                                               .inputs = true,
                                               .gpu_layers = -1,
                                               .cpu_experts = -1};
        struct infer_engine *e;
        struct infer_sched *s;
        assert_ok(infer_engine_create(&e, m, &o));
        assert_ok(infer_sched_open(&s, e, m));
        struct infer_request *a = ask(s, &t, &seen);
        check(a, &t, name, "alone", batch == MAX_IDS ? alone : other);
        if (batch < MAX_IDS) assert_memory_equal(other, alone, sizeof alone);
        struct infer_request *b = ask(s, &t, &seen), *c = ask(s, &t, &seen);
        check(b, &t, name, "beside another", other);
        assert_memory_equal(other, alone, sizeof alone);
        check(c, &t, name, "from the cache", other);
        assert_memory_equal(other, alone, sizeof alone);
        infer_sched_close(s);
        infer_engine_free(e);
    }
    infer_picture_free(seen.picture[0]);
    infer_picture_free(seen.picture[1]);
    infer_vision_close(v);
    infer_model_close(m);
    free(t.logits);
}

/* The talk in a sequence that stays. */
static struct infer_request *go_on(struct infer_sched *s, const struct talk *t, const struct seen *seen,
                                   int seq, int n) {
    struct infer_request_params q = infer_request_defaults();
    struct infer_request *r;
    q.ids = t->ids, q.n_id = n, q.rows = seen->rows, q.n_rows = seen->n_rows, q.seq = seq;
    q.n_predict = 1, q.n_logprob = TOP;
    assert_ok(infer_request_new(&r, s, &q));
    assert_ok(infer_request_run(r));
    return r;
}

struct house {
    struct infer_model *m;
    struct infer_vision *v;
    struct infer_engine *e;
    struct infer_sched *s;
    struct seen seen;
    int seq;
};
static void house_open(struct house *h, const struct talk *t, const char *name) {
    char part[128], path[512];
    const struct infer_engine_options o = {.device = "cpu",
                                           .ctx = 2 * MAX_IDS,
                                           .slots = 2,
                                           .batch = MAX_IDS,
                                           .threads = 2,
                                           .inputs = true,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1};
    snprintf(part, sizeof part, "golden/tower/%s", name);
    assert_ok(infer_model_open(&h->m, test_path(path, sizeof path, part), NULL));
    assert_ok(infer_vision_open(&h->v, h->m, path, &(struct infer_vision_options){.threads = 2}));
    assert_ok(infer_engine_create(&h->e, h->m, &o));
    assert_ok(infer_sched_open(&h->s, h->e, h->m));
    assert_ok(infer_seq_open(h->e, &h->seq));
    see(&h->seen, t, h->v);
}
static void house_close(struct house *h) {
    infer_sched_close(h->s);
    infer_engine_free(h->e);
    infer_picture_free(h->seen.picture[0]);
    infer_picture_free(h->seen.picture[1]);
    infer_vision_close(h->v);
    infer_model_close(h->m);
}

/* A talk with two pictures saved but for its last words, and gone on with in another engine: nothing before them is computed again, and what
 * comes has the same bits. Rows of another picture are other rows. */
static void saved(const char *name) {
    struct talk t;
    struct house a, b;
    char path[] = "/tmp/infer-sight-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    talk_read(&t, name);
    house_open(&a, &t, name);
    house_open(&b, &t, name);
    infer_request_free(go_on(a.s, &t, &a.seen, a.seq, t.n - 3));
    const int held = infer_seq_length(a.e, a.seq);
    assert_ok(infer_seq_save(a.e, a.seq, path));
    assert_ok(infer_seq_load(b.e, b.seq, path));
    assert_int_equal(infer_seq_length(b.e, b.seq), held);
    struct infer_request *want = go_on(a.s, &t, &a.seen, a.seq, t.n),
                         *got = go_on(b.s, &t, &b.seen, b.seq, t.n);
    assert_int_equal(infer_request_figures(got)->n_reused, infer_request_figures(want)->n_reused);
    assert_in_range(infer_request_figures(got)->n_reused, t.at[1] + t.given[1], t.n - 1);
    for (int i = 0; i <= TOP; i++) {
        const struct infer_logprob *x = infer_logprobs_at(infer_request_logprobs(want), 0) + i,
                                   *y = infer_logprobs_at(infer_request_logprobs(got), 0) + i;
        assert_int_equal(x->id, y->id);
        assert_memory_equal(&x->logprob, &y->logprob, sizeof x->logprob);
    }
    infer_request_free(want);
    infer_request_free(got);
    ((float *)b.seen.rows[0].embed)[0] += 0.25f; /* the file of the first picture is another one */
    got = go_on(b.s, &t, &b.seen, b.seq, t.n);
    assert_in_range(infer_request_figures(got)->n_reused, 0, t.at[0]);
    infer_request_free(got);
    int other; /* the second sequence of b has rows of pictures under b's names, which are a's now: these go over, others do not */
    assert_ok(infer_seq_open(b.e, &other));
    assert_ok(infer_seq_load(b.e, other, path));
    infer_seq_close(b.e, other);
    struct house c;
    house_open(&c, &t, name);
    infer_request_free(go_on(c.s, &t, &c.seen, c.seq, t.n));
    assert_ok(infer_seq_open(c.e, &other));
    assert_int_equal(infer_seq_load(c.e, other, path), INFER_E_UNSUPPORTED);
    assert_int_equal(infer_seq_length(c.e, other), 0);
    infer_request_free(go_on(c.s, &t, &c.seen, c.seq, t.n));
    house_close(&a), house_close(&b), house_close(&c);
    free(t.logits);
    unlink(path);
}

static void saved_talks(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3", "gemma4v", "pixtral", "qwen3vl", "qwen3_5", "minicpmv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) saved(names[i]);
}

static void one(const char *name) {
    bool must;
    one_on(name, "cpu");
    if (cuda_there(&must)) one_on(name, "cuda");
}

static void gemma3(void **state) { (void)state, one("gemma3"); }
static void gemma4uv(void **state) { (void)state, one("gemma4uv"); }
static void gemma4v(void **state) { (void)state, one("gemma4v"); }
static void pixtral(void **state) { (void)state, one("pixtral"); }
static void qwen3vl(void **state) { (void)state, one("qwen3vl"); }
static void qwen3_5(void **state) { (void)state, one("qwen3_5"); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemma3),     cmocka_unit_test(gemma4uv),
                                       cmocka_unit_test(gemma4v),    cmocka_unit_test(pixtral),
                                       cmocka_unit_test(qwen3vl),    cmocka_unit_test(qwen3_5),
                                       cmocka_unit_test(saved_talks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

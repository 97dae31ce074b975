/* Pictures on the whole way, from a file to the logits behind them: what transformers says of a talk with two of them (tests/golden/tower), by
 * requests, alone, beside others and in parts. */
#include <math.h>
#include "engine/request/picture.h"
#include "infer_request.h"
#include "tests/lib/test.h"

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

static void words(FILE *f, void *to, size_t n) { assert_int_equal(fread(to, 4, n, f), n); }

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
    words(f, t, 9);
    words(f, &t->sd, 1);
    assert_in_range(t->n, 1, MAX_IDS);
    words(f, t->ids, (size_t)t->n);
    words(f, t->keep, (size_t)t->n_keep);
    t->logits = malloc((size_t)t->n_keep * (size_t)t->n_vocab * 4);
    words(f, t->logits, (size_t)t->n_keep * (size_t)t->n_vocab);
    fclose(f);
    assert_int_equal(t->keep[t->n_keep - 1], t->n - 1);
    f = golden(name, "rows.bin");
    words(f, head, 3);
    for (int i = 0; i < head[0] && i < 8; i++) {
        words(f, picture, 5);
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
    q.seq = -1, q.ids = t->ids, q.n_id = t->n, q.rows = seen->rows, q.n_rows = seen->n_rows;
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

static void one(const char *name) {
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
    assert_ok(infer_vision_open(&v, m, path, &(struct infer_vision_options){.threads = 2}));
    infer_model_info(m, &info);
    see(&seen, &t, v);
    for (int batch = MAX_IDS; batch >= (info.both_ways ? MAX_IDS : 7); batch -= MAX_IDS - 7) {
        const struct infer_engine_options o = {.device = "cpu",
                                               .ctx = 2 * MAX_IDS,
                                               .slots = 3,
                                               .batch = batch,
                                               .threads = 2,
                                               .kv_type = "f32",
                                               .strict_fp32 = true,
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

static void gemma3(void **state) { (void)state, one("gemma3"); }
static void gemma4uv(void **state) { (void)state, one("gemma4uv"); }
static void gemma4v(void **state) { (void)state, one("gemma4v"); }
static void pixtral(void **state) { (void)state, one("pixtral"); }
static void qwen3vl(void **state) { (void)state, one("qwen3vl"); }
static void qwen3_5(void **state) { (void)state, one("qwen3_5"); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemma3),  cmocka_unit_test(gemma4uv),
                                       cmocka_unit_test(gemma4v), cmocka_unit_test(pixtral),
                                       cmocka_unit_test(qwen3vl), cmocka_unit_test(qwen3_5)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

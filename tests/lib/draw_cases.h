/* select with draws on any backend against a plain sort: rows with ties, infinities and NaN, masks, edits, every chain. */
#pragma once
#include "tests/lib/test.h"
#include "tests/lib/seam_step.h"
#include "seam/backend.h"
#include "seam/op_list.h"

#include <float.h>
#include <math.h>

enum { DRAW_ROWS = 24, DRAW_EDITS = 40 };

struct draw_case {
    struct infer_draw draw;
    struct infer_edit edit[DRAW_EDITS];
    bool plain; /* no draw */
    float *logits;
    uint64_t *mask;
};
struct draw_result {
    int32_t token[DRAW_ROWS];
    struct infer_top top[DRAW_ROWS];
};

static uint64_t draw_seed = 0x2545f4914f6cdd1dull;
static uint32_t draw_random(uint32_t n) { /* 0 .. n - 1 */
    draw_seed ^= draw_seed << 13, draw_seed ^= draw_seed >> 7, draw_seed ^= draw_seed << 17;
    return (uint32_t)((draw_seed >> 32) * n >> 32);
}
static double draw_uniform(void) { return (draw_random(1u << 30) + 0.5) / (1u << 30); }
#define DRAW_ONE(type, ...)                                                                                  \
    (((const type[]){__VA_ARGS__})[draw_random(sizeof(type[]){__VA_ARGS__} / sizeof(type))])

static void draw_fill_row(float *x, int n, int kind) {
    float scale = DRAW_ONE(float, 0.5f, 2, 4, 8);
    for (int i = 0; i < n; i++) {
        double a = draw_uniform(), b = draw_uniform();
        x[i] = scale * (float)(sqrt(-2 * log(a)) * cos(6.283185307 * b));
        if (kind == 1) x[i] = roundf(x[i]); /* ties */
        if (kind == 2) x[i] = 1.5f;
        if (kind == 3 && i % 5 < 3) x[i] = i % 5 == 0 ? NAN : i % 5 == 1 ? INFINITY : -INFINITY;
        if (kind == 4 && draw_random(50)) x[i] = -INFINITY;
        if (kind == 5) x[i] = NAN;
        if (kind == 6) x[i] = (float)i * 1e-3f; /* ascending */
    }
}

static void draw_make(struct draw_case *c, int n_vocab, int row) {
    struct infer_draw *d = &c->draw;
    uint8_t steps[] = {INFER_DRAW_TOP_K, INFER_DRAW_TOP_P, INFER_DRAW_MIN_P, INFER_DRAW_TEMP};
    draw_fill_row(c->logits, n_vocab, row % 9);
    *d = (struct infer_draw){.u = draw_random(8) ? draw_uniform() : 0,
                             .temp = DRAW_ONE(float, 1e-6f, 0.1f, 0.5f, 0.8f, 1, 1.5f, 5),
                             .top_p = DRAW_ONE(float, 0, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 1),
                             .min_p = DRAW_ONE(float, 0, 0.001f, 0.05f, 0.5f, 1),
                             .top_k = DRAW_ONE(int32_t, 1, 5, 40, 128, 129, 700, 1 << 30),
                             .edit = c->edit};
    c->plain = draw_random(8) == 0;
    for (int i = 3; i > 0; i--) {
        uint32_t k = draw_random((uint32_t)i + 1);
        uint8_t t = steps[i];
        steps[i] = steps[k], steps[k] = t;
    }
    for (int i = 0, n = 0; i < 4; i++)
        if (draw_random(3)) d->order[n++] = steps[i];
    if (draw_random(3) == 0)
        for (int i = 0; i < DRAW_EDITS && i < n_vocab; i++)
            c->edit[d->n_edit++] =
                (struct infer_edit){(int32_t)((int64_t)i * n_vocab / DRAW_EDITS), /* each once */
                                    DRAW_ONE(float, 0, 0, -1, 3, -INFINITY), DRAW_ONE(float, 1, 1.1f, 0.5f),
                                    DRAW_ONE(float, 0, 0.7f)};
    for (int i = 1; i < d->n_edit; i++)
        if (c->edit[i].id == c->edit[i - 1].id) d->n_edit = i;
    if (draw_random(4) == 0) {
        uint32_t in = DRAW_ONE(uint32_t, 1, 2, 100, 1000);
        d->mask = c->mask;
        memset(c->mask, 0, ((size_t)n_vocab + 63) / 64 * 8);
        for (int i = 0; i < n_vocab; i++) c->mask[i / 64] |= (uint64_t)(draw_random(in) == 0) << (i % 64);
    }
}

/* ---- what has to come out ---- */

struct draw_pair {
    float x;
    int32_t id;
};
static int draw_order(const void *a, const void *b) {
    const struct draw_pair *p = a, *q = b;
    return p->x != q->x ? (p->x < q->x) - (p->x > q->x) : (p->id > q->id) - (p->id < q->id);
}

/* The greatest logit, the lowest id on ties; NaN is none. */
static int draw_argmax(const float *x, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (x[i] > (best < 0 ? -INFINITY : x[best])) best = i;
    return best < 0 ? 0 : best;
}

/* The edited candidates of the row, sorted; how many. */
static int draw_sorted(const struct draw_case *c, int n_vocab, struct draw_pair *out) {
    const struct infer_draw *d = c->plain ? NULL : &c->draw;
    int n = 0;
    for (int i = 0; i < n_vocab; i++) {
        float x = c->logits[i];
        for (int k = 0; d && k < d->n_edit && isfinite(x); k++) {
            if (d->edit[k].id != i) continue;
            x += d->edit[k].add;
            x = x > 0 ? x / d->edit[k].ratio : x * d->edit[k].ratio;
            x -= d->edit[k].less;
        }
        if (d && d->mask && !(d->mask[i / 64] >> (i % 64) & 1)) continue;
        if (isfinite(x)) out[n++] = (struct draw_pair){x, i};
    }
    qsort(out, (size_t)n, sizeof *out, draw_order);
    return n;
}

/* The place of the token, u and top_p a little changed. */
static int draw_place(const struct infer_draw *d, const struct draw_pair *p, int n, double u, double top_p) {
    double t = 1, sum, limit;
    for (const uint8_t *s = d->order; *s; s++) {
        int k = 0;
        if (*s == INFER_DRAW_TOP_K && d->top_k < n) n = d->top_k;
        if (*s == INFER_DRAW_TEMP) t = d->temp;
        if (*s == INFER_DRAW_MIN_P && d->min_p > 0) {
            while (k < n && p[k].x >= p[0].x + t * log(d->min_p) - FLT_EPSILON * fabs(p[0].x)) k++;
            n = k;
        }
        if (*s != INFER_DRAW_TOP_P || d->top_p >= 1) continue;
        sum = limit = 0;
        for (int i = 0; i < n; i++) limit += top_p * exp(((double)p[i].x - p[0].x) / t);
        do sum += exp(((double)p[k].x - p[0].x) / t);
        while (++k < n && sum < limit);
        n = k;
    }
    sum = limit = 0;
    for (int i = 0; i < n; i++) limit += u * exp(((double)p[i].x - p[0].x) / t);
    int k = 0;
    for (; k < n; k++)
        if ((sum += exp(((double)p[k].x - p[0].x) / t)) > limit) return k;
    while (k > 1 && exp(((double)p[k - 1].x - p[0].x) / t) == 0) k--;
    return k - 1;
}

static void draw_check_row(const char *what, int row, const struct draw_case *c, int n_vocab, int32_t token,
                           const struct infer_top *top) {
    struct draw_pair *p = malloc((size_t)n_vocab * sizeof *p);
    const struct infer_draw *d = &c->draw;
    int n = draw_sorted(c, n_vocab, p), first = n < INFER_TOP ? n : INFER_TOP;
    double sum = 0, sum_temp = 0, t = 1;
    for (int i = 0; !c->plain && d->order[i]; i++)
        if (d->order[i] == INFER_DRAW_TEMP) t = d->temp;
    for (int i = 0; i < n; i++)
        sum += exp((double)p[i].x - p[0].x), sum_temp += exp(((double)p[i].x - p[0].x) / t);
    if (top->n != first) fail_msg("%s, row %d: %d candidates, wanted %d", what, row, top->n, first);
    for (int i = 0; i < first; i++)
        if (top->id[i] != p[i].id || top->x[i] != p[i].x)
            fail_msg("%s, row %d, place %d: %d %g, wanted %d %g", what, row, i, top->id[i], (double)top->x[i],
                     p[i].id, (double)p[i].x);
    if (!(fabs(top->sum - sum) <= 1e-5 * sum && fabs(top->sum_temp - sum_temp) <= 1e-5 * sum_temp))
        fail_msg("%s, row %d: sums %.9g %.9g, wanted %.9g %.9g", what, row, top->sum, top->sum_temp, sum,
                 sum_temp);
    bool right = n == 0 && token == 0;
    for (int i = 0; i < 9 && n && !c->plain; i++) {
        int k = draw_place(d, p, n, d->u + (i % 3 - 1) * 2e-5, d->top_p * (1 + (i / 3 - 1) * 2e-5));
        right |= token == p[k < 0 ? 0 : k].id && top->chosen == p[k < 0 ? 0 : k].x;
    }
    if (c->plain) right = token == draw_argmax(c->logits, n_vocab);
    if (!right)
        fail_msg("%s, row %d of %d tokens: %d was drawn, chosen %g", what, row, n_vocab, token,
                 (double)top->chosen);
    free(p);
}

/* ---- a backend with a list of an embed, which brings the logits, and a select ---- */

/* The same bits, but for those of a NaN. */
static void draw_same_row(const float *got, const float *wanted, int n) {
    for (int i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) && !(got[i] != got[i] && wanted[i] != wanted[i]))
            fail_msg("logit %d is %g, wanted %g", i, (double)got[i], (double)wanted[i]);
}

static void draw_run(const struct backend_type *type, const char *isa, int threads, enum row_class cls,
                     const struct draw_case *c, int n_vocab, struct draw_result *out) {
    float *table = malloc((size_t)DRAW_ROWS * (size_t)n_vocab * sizeof *table);
    for (int j = 0; j < DRAW_ROWS; j++)
        memcpy(table + (size_t)j * (size_t)n_vocab, c[j].logits, (size_t)n_vocab * 4);
    struct weight w = {.name = "table",
                       .type = QUANT_F32,
                       .n = DRAW_ROWS,
                       .k = n_vocab,
                       .n_stack = 1,
                       .factor = 1,
                       .data = table};
    struct buf buf[] = {{.name = "in", .width = n_vocab, .rows = BUF_ROWS_ALL},
                        {.name = "logits", .width = n_vocab, .rows = BUF_ROWS_OUT}};
    struct view in = {0, 0, n_vocab}, logits = {1, 0, n_vocab};
    struct op op[] = {{.kind = OP_EMBED, .name = "embed", .embed = {in, &w, 1, false}},
                      {.kind = OP_ROWS, .name = "rows", .rows = {in, logits}},
                      {.kind = OP_SELECT, .name = "select", .select = {logits, n_vocab}}};
    struct op_list list = {
        .cls = cls, .op = op, .n_op = 3, .buf = buf, .n_buf = 2, .max_rows = DRAW_ROWS, .max_out = DRAW_ROWS};
    struct op_list other = list;
    struct kv_group kv = {0, 1, 1};
    other.cls = cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE;
    struct backend_config config = {.embedding = &w,
                                    .n_vocab = n_vocab,
                                    .n_embd = n_vocab,
                                    .kv_group = &kv,
                                    .n_kv_group = 1,
                                    .n_slot = DRAW_ROWS,
                                    .n_ctx = KV_PAGE - 1,
                                    .cpu = {.threads = threads, .isa = isa},
                                    .cuda = {.autotune = "off"},
                                    .any_logits = true,
                                    .n_logits = 2};
    struct backend_sizes sizes;
    struct backend *b;
    list_lives(&list);
    config.list[cls] = &list, config.list[other.cls] = &other;
    assert_ok(type->sizes(&config, &sizes));
    config.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < 2; i++) {
        buf[i].offset = config.activation_bytes;
        config.activation_bytes += (buf[i].row_bytes * DRAW_ROWS + 255) / 256 * 256;
    }
    assert_ok(type->open(&b, &config));
    assert_ok(type->upload(b));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) assert_ok(type->compile(b, (enum row_class)i));
    int32_t id[DRAW_ROWS], pos[DRAW_ROWS] = {0}, page[DRAW_ROWS] = {0};
    const int32_t *pages[] = {page};
    uint8_t want[DRAW_ROWS];
    const struct infer_draw *draw[DRAW_ROWS];
    for (int j = 0; j < DRAW_ROWS; j++) {
        id[j] = j, draw[j] = c[j].plain ? NULL : &c[j].draw;
        want[j] = WANT_TOKEN | WANT_TOP | (j == 3 || j == 7 ? WANT_LOGITS : 0);
    }
    struct step s = seam_step(DRAW_ROWS, DRAW_ROWS, id, pos, id, id, want, pages);
    s.draw = draw;
    struct step_result r;
    assert_ok(type->run(b, cls, &s));
    assert_ok(type->wait(b, &r));
    assert_non_null(r.top);
    memcpy(out->token, r.token, sizeof out->token);
    memcpy(out->top, r.top, sizeof out->top);
    draw_same_row(r.logits, c[3].logits, n_vocab);
    draw_same_row(r.logits + n_vocab, c[7].logits, n_vocab);
    /* the tokens are the slots' last ones: their rows come next, greedy */
    int32_t row[DRAW_ROWS];
    for (int j = 0; j < DRAW_ROWS; j++)
        id[j] = r.token[j] < DRAW_ROWS ? STEP_LAST : j, pos[j] = 1, want[j] = WANT_TOKEN, row[j] = j;
    s = seam_step(DRAW_ROWS, DRAW_ROWS, id, pos, row, row, want, pages);
    assert_ok(type->run(b, cls, &s));
    assert_ok(type->wait(b, &r));
    for (int j = 0; j < DRAW_ROWS; j++) {
        const float *x = c[id[j] == STEP_LAST ? out->token[j] : j].logits;
        assert_int_equal(r.token[j], draw_argmax(x, n_vocab));
    }
    assert_null(r.top);
    type->close(b);
    free(table);
}

/* Case k, a step of DRAW_ROWS rows of n logits, on a backend, and again with another number of threads: the same bits. */
static void draw_case_run(const struct backend_type *type, const char *isa, int k, int n) {
    struct draw_case c[DRAW_ROWS];
    static struct draw_result got, again;
    char what[80];
    for (int j = 0; j < DRAW_ROWS; j++) {
        c[j].logits = malloc((size_t)n * 4), c[j].mask = malloc(((size_t)n + 63) / 64 * 8);
        draw_make(&c[j], n, j + k);
    }
    enum row_class cls = k % 3 ? ROW_DECODE : ROW_PROMPT;
    draw_run(type, isa, 2, cls, c, n, &got);
    snprintf(what, sizeof what, "%s %s, case %d", type->name, isa ? isa : "", k);
    for (int j = 0; j < DRAW_ROWS; j++) draw_check_row(what, j, &c[j], n, got.token[j], &got.top[j]);
    draw_run(type, isa, 1 + k % 3, cls, c, n, &again);
    for (int j = 0; j < DRAW_ROWS; j++)
        if (got.token[j] != again.token[j] || got.top[j].sum != again.top[j].sum ||
            got.top[j].sum_temp != again.top[j].sum_temp)
            fail_msg("%s, row %d: other bits the second time", what, j);
    for (int j = 0; j < DRAW_ROWS; j++) free(c[j].logits), free(c[j].mask);
}

static void draw_cases(const struct backend_type *type, const char *isa, int n_case) {
    static const int vocab[] = {1, 7, 127, 128, 129, 1000, 1025, 4096, 5003, 9001};
    for (int k = 0; k < n_case; k++) draw_case_run(type, isa, k, vocab[k % 10]);
}

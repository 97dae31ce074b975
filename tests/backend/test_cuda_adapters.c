/* What adapters add to products (OP_LOWRANK) beside float64, row by row: on ref, on the CPU, and on a card with every kernel that it has.
 * Ranks 1 to 256, one row and many, rows of which each has its own adapters or none, experts, vectors; rows that have none and what stands
 * beside the columns keep their bits, and a row's bits do not depend on its neighbours. Without a usable card the card's part is skipped
 * with a printed reason, unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "cuda/plan/lowrank_plan.h"
#include "engine_impl.h"
#include "cpu/cpu_isa.h"
#include "quant/quant.h"
#include "infer.h"
#include "seam/op_list.h"
#include "tests/lib/random.h"
#include "tests/lib/relative.h"
#include "tests/lib/seam_step.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"

#include <math.h>

enum { ROWS = 45, SLOTS = 9, ADAPTERS = 8, PARTS = 10, GUARD = 5, EXPERTS = 5 };
static bool on_card;

struct shape {
    const char *name;
    int k, n, x_col; /* x_col: columns in front of x */
    int n_part, pairs;
    bool experts, by_choice, weighted, outs;
    struct {
        int adapter, col, n, r;
        bool vector;
    } part[PARTS];
};
static const struct shape shapes[] = {
    {"one number", 1, 1, 0, 1, 1, .part = {{0, 0, 1, 1, false}}},
    {"a rank", 33, 70, 0, 3, 1, .part = {{0, 0, 70, 1, false}, {1, 35, 35, 3, false}, {2, 0, 70, 1, true}}},
    {"odd columns", 77, 300, 3, 3, 1,
     .part = {{0, 1, 298, 5, false}, {0, 299, 1, 2, false}, {3, 0, 300, 17, false}}},
    {"rank 256", 320, 256, 0, 2, 1, .part = {{0, 0, 256, 256, false}, {5, 0, 100, 129, false}}},
    {"wide rows", 4500, 300, 0, 2, 1, .part = {{0, 0, 300, 16, false}, {4, 0, 300, 33, false}}},
    {"q, k and v of eight", 512, 768, 4, 10, 1,
     .part = {{0, 0, 512, 16, false},
              {0, 512, 128, 16, false},
              {0, 640, 128, 16, false},
              {1, 0, 512, 8, false},
              {2, 640, 128, 64, false},
              {3, 0, 512, 32, false},
              {4, 512, 128, 16, false},
              {5, 0, 768, 1, true},
              {6, 0, 512, 16, false},
              {7, 0, 512, 40, false}}},
    {"outputs", 96, 400, 0, 2, 1, .outs = true, .part = {{0, 0, 400, 16, false}, {1, 0, 400, 4, false}}},
    {"experts", 70, 74, 0, 3, 3, .experts = true,
     .part = {{0, 0, 37, 6, false}, {0, 37, 37, 6, false}, {1, 37, 37, 9, false}}},
    {"experts by choice", 70, 37, 0, 1, 3, .experts = true, .by_choice = true,
     .part = {{1, 0, 37, 6, false}}},
    {"experts with weights", 2100, 260, 0, 2, 2, .experts = true, .weighted = true,
     .part = {{0, 0, 260, 16, false}, {2, 0, 260, 16, false}}},
};

/* ---- numbers ---- */

struct data {
    float *a[PARTS], *b[PARTS], *table; /* table[ROWS][width] */
    int width, x, choice, out;          /* columns */
    struct lowrank_part part[PARTS];
    struct lowrank w;
};
/* Of so many halves, or any. */
static float *matrix(size_t n, float size, bool halves) {
    float *x = malloc(n * sizeof *x);
    uint16_t h;
    for (size_t i = 0; i < n; i++) {
        x[i] = size * (uniform() + uniform());
        if (!halves) continue;
        quant_info(QUANT_F16)->encode(&h, &x[i], 1, NULL);
        quant_info(QUANT_F16)->decode(&x[i], &h, 1);
    }
    return x;
}
static struct data data_new(const struct shape *s, bool halves) {
    struct data d = {0};
    const int stack = s->experts ? EXPERTS : 1, all_x = s->by_choice ? s->pairs * s->k : s->k;
    d.x = s->x_col, d.choice = d.x + all_x, d.out = d.choice + 2 * s->pairs + GUARD;
    d.width = d.out + s->n * s->pairs + GUARD;
    d.table = malloc((size_t)(ROWS * d.width) * sizeof *d.table);
    for (int i = 0; i < ROWS * d.width; i++) d.table[i] = uniform();
    for (int t = 0; t < ROWS; t++)
        for (int j = 0; j < s->pairs; j++) {
            float *c = d.table + t * d.width + d.choice;
            c[j] = (float)((t * 7 + j * 3) % EXPERTS), c[s->pairs + j] = 0.5f + 0.4f * uniform();
        }
    for (int i = 0, at = 0; i < s->n_part; at += s->part[i++].r) {
        const size_t r = (size_t)(stack * s->part[i].r);
        if (!s->part[i].vector) d.a[i] = matrix(r * (size_t)s->k, 3e-3f, halves);
        d.b[i] = matrix(r * (size_t)s->part[i].n, 20, halves);
        d.part[i] = (struct lowrank_part){.adapter = s->part[i].adapter,
                                          .col = s->part[i].col,
                                          .n = s->part[i].n,
                                          .k = s->k,
                                          .r = s->part[i].r,
                                          .n_stack = stack,
                                          .at = at,
                                          .a = d.a[i],
                                          .b = d.b[i]};
        d.w.r = at + s->part[i].r;
    }
    d.w.n_part = s->n_part;
    return d;
}
static void data_free(struct data *d) {
    for (int i = 0; i < PARTS; i++) free(d->a[i]), free(d->b[i]);
    free(d->table);
}

/* Slot 0 has none, slot 1 says nothing, 2 to 6 one each, 7 two, 8 all. */
static const float none[ADAPTERS], scales[SLOTS][ADAPTERS] = {[2] = {1},
                                                              [3] = {0, -0.5f},
                                                              [4] = {0, 0, 1.5f},
                                                              [5] = {0, 0, 0, 0, 0.75f},
                                                              [6] = {0, 0, 0, 0, 0, 2},
                                                              [7] = {0.5f, 0, 0, 1},
                                                              [8] = {1, -1, 0.5f, 2, 1, 1, -1, 0.25f}};
static const float *const adapters[SLOTS] = {none,      NULL,      scales[2], scales[3], scales[4],
                                             scales[5], scales[6], scales[7], scales[8]};
static int slot_of(int t) { return t * 5 % SLOTS; }

/* What the row's columns are to be, and whether something is added. */
static bool wanted(const struct shape *s, const struct data *d, int t, double *out) {
    const float *row = d->table + t * d->width, *scale = adapters[slot_of(t)];
    bool some = false;
    for (int i = 0; i < s->n * s->pairs; i++) out[i] = (double)row[d->out + i];
    for (int p = 0; p < s->n_part; p++) {
        const struct lowrank_part *part = &d->part[p];
        if (!scale || scale[part->adapter] == 0) continue;
        some = true;
        for (int j = 0; j < s->pairs; j++) {
            const size_t e = s->experts ? (size_t)row[d->choice + j] : 0, r = (size_t)part->r;
            const float *x = row + d->x + (s->by_choice ? j * s->k : 0);
            const double f =
                (double)scale[part->adapter] * (s->weighted ? (double)row[d->choice + s->pairs + j] : 1);
            for (size_t k = 0; k < r; k++) {
                double ax = part->a ? 0 : 1;
                for (int i = 0; part->a && i < s->k; i++)
                    ax += (double)part->a[(e * r + k) * (size_t)s->k + (size_t)i] * (double)x[i];
                for (int i = 0; i < part->n; i++)
                    out[part->col * s->pairs + j * part->n + i] +=
                        f * ax * (double)part->b[(e * r + k) * (size_t)part->n + (size_t)i];
            }
        }
    }
    return some;
}

/* ---- a backend with the one operation ---- */

struct setting {
    const struct backend_type *type;
    enum row_class cls;
    bool strict, no_fuse;
};
/* The rows first .. first + n of the table after the operation; of outputs all of them are wanted. out[n][width] */
static void run(const struct shape *s, const struct data *d, struct setting set, int first, int n,
                float *out) {
    const struct view all = {0, 0, d->width}, none_of = {-1, 0, 0};
    struct weight table = {.name = "x", .type = QUANT_F32, .n = ROWS, .k = d->width, .factor = 1};
    struct buf buf[2] = {{.name = "x", .width = d->width, .rows = BUF_ROWS_ALL},
                         {.name = "wanted", .width = d->width, .rows = BUF_ROWS_OUT}},
               other_buf[2];
    const int b = s->outs, n_op = 2 + s->outs;
    const struct view whole = {b, 0, d->width};
    struct lowrank w = d->w;
    w.part = d->part;
    struct op op[3] = {{.kind = OP_EMBED, .name = "embed", .embed = {all, &table, 1, false}},
                       {.kind = OP_ROWS, .name = "rows", .rows = {all, whole}}};
    op[n_op - 1] = (struct op){.kind = OP_LOWRANK,
                               .name = "lowrank",
                               .lowrank = {{b, d->x, s->by_choice ? s->pairs * s->k : s->k},
                                           s->experts ? (struct view){b, d->choice, 2 * s->pairs} : none_of,
                                           {b, d->out, s->n * s->pairs},
                                           &w,
                                           s->experts ? s->pairs : 0,
                                           s->by_choice,
                                           s->weighted,
                                           0}};
    struct op_list list = {set.cls, op, n_op, buf, 2, ROWS, ROWS},
                   other = {set.cls == ROW_DECODE ? ROW_PROMPT : ROW_DECODE, op, 0, other_buf, 2, ROWS, ROWS};
    struct kv_group kv = {0, 1, 4};
    struct backend_config c = {.embedding = &table,
                               .n_vocab = 1,
                               .n_embd = d->width,
                               .kv_group = &kv,
                               .n_kv_group = 1,
                               .n_slot = SLOTS,
                               .n_ctx = 4 * KV_PAGE,
                               .cpu = {.threads = 2},
                               .strict_fp32 = set.strict,
                               .no_fuse = set.no_fuse,
                               .n_logits = 1};
    struct backend_sizes sizes;
    struct backend *e;
    int32_t id[ROWS], pos[ROWS], slot[ROWS], out_row[ROWS], pages[SLOTS * 4] = {0};
    uint8_t want[ROWS];
    const int32_t *tables[1] = {pages};
    table.n_stack = 1, table.data = d->table;
    memcpy(other_buf, buf, sizeof buf);
    list_lives(&list);
    c.list[set.cls] = &list, c.list[other.cls] = &other;
    assert_ok(set.type->sizes(&c, &sizes));
    c.copy_bytes = sizes.weight_bytes;
    for (int i = 0; i < 2; i++) {
        buf[i].offset = c.activation_bytes;
        c.activation_bytes += (buf[i].row_bytes * ROWS + 63) / 64 * 64;
    }
    assert_ok(set.type->open(&e, &c));
    assert_ok(set.type->upload(e));
    assert_ok(set.type->compile(e, set.cls));
    for (int t = 0; t < n; t++) {
        id[t] = first + t, pos[t] = t, slot[t] = slot_of(first + t), out_row[t] = t;
        want[t] = WANT_TOKEN;
    }
    struct step step = seam_step(n, n, id, pos, slot, out_row, want, tables);
    struct step_result result;
    step.adapter = adapters;
    assert_ok(set.type->run(e, set.cls, &step));
    assert_ok(set.type->wait(e, &result));
    assert_ok(set.type->read(e, set.cls, whole, n, out));
    set.type->close(e);
}

static void compare(const struct shape *s, const struct data *d, const char *what, const float *got,
                    double tolerance) {
    double *want = malloc((size_t)(s->n * s->pairs) * sizeof *want), ee = 0, ss = 0, top = 0;
    for (int t = 0; t < ROWS; t++) {
        const float *row = got + t * d->width, *before = d->table + t * d->width;
        const bool some = wanted(s, d, t, want);
        for (int i = 0; i < d->width; i++) {
            if (some && i >= d->out && i < d->out + s->n * s->pairs) continue;
            if (memcmp(&row[i], &before[i], sizeof *row))
                fail_msg("%s: column %d of row %d, which is nobody's, changed", what, i - d->out, t);
        }
        for (int i = 0; some && i < s->n * s->pairs; i++) {
            const double e = (double)row[d->out + i] - want[i];
            if (!isfinite(e)) fail_msg("%s: row %d column %d is %f", what, t, i, (double)row[d->out + i]);
            ee += e * e, ss += want[i] * want[i], top = fmax(top, fabs(e));
        }
    }
    const double rms = sqrt(ss), n = sqrt((double)(ROWS * s->n * s->pairs));
    if (!(sqrt(ee) <= tolerance * rms) || !(top <= 16 * tolerance * rms / n))
        fail_msg("%s: error %.3g of the norm, largest %.3g of the rms; tolerance %.3g", what, sqrt(ee) / rms,
                 top / rms * n, tolerance);
    free(want);
}

/* halves: matrices are exact on a card. */
static void check(const struct shape *s, struct setting set, bool halves, double tolerance) {
    char what[160];
    struct data d = data_new(s, halves);
    float *got = malloc((size_t)(ROWS * d.width) * sizeof *got),
          *part = malloc((size_t)(ROWS * d.width) * sizeof *part);
    snprintf(what, sizeof what, "%s, %s, %s rows%s%s", s->name, set.type->name,
             set.cls == ROW_DECODE ? "decode" : "prompt", set.strict ? ", strict" : "",
             set.no_fuse ? ", plain" : "");
    run(s, &d, set, 0, ROWS, got);
    compare(s, &d, what, got, tolerance);
    static const int counts[] = {1, 2, 7, 16, 33};
    for (size_t i = 0; i < (few_steps() ? 2 : sizeof counts / sizeof *counts); i++) {
        const int first = (int)i * 3 % (ROWS - counts[i]);
        run(s, &d, set, first, counts[i], part);
        for (int t = 0; t < counts[i]; t++)
            if (memcmp(part + t * d.width, got + (first + t) * d.width, (size_t)d.width * sizeof *got))
                fail_msg("%s: row %d has other bits among %d rows than among %d", what, first + t, counts[i],
                         ROWS);
    }
    data_free(&d);
    free(got), free(part);
}
static void check_all(struct setting set, bool halves, double tolerance) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], set, halves, tolerance);
}

static void as_float64_on_the_host(void **state) {
    (void)state;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        check_all((struct setting){&backend_ref, (enum row_class)cls, false, false}, false, 1e-6);
        if (cpu_isa_best() != CPU_ISA_NONE)
            check_all((struct setting){&backend_cpu, (enum row_class)cls, false, false}, false, 1e-5);
    }
}

#ifdef INFER_CUDA
/* Matrices of halves are exact; others are rounded to 2^-11 of each number, A and B. */
static void on_a_card(enum row_class cls, bool strict, bool no_fuse, double tolerance) {
    if (!on_card) return;
    check_all((struct setting){&backend_cuda, cls, strict, no_fuse}, true, tolerance);
    if (!few_steps())
        check_all((struct setting){&backend_cuda, cls, strict, no_fuse}, false, fmax(tolerance, 5e-4));
}
static void decode_rows_on_a_card(void **state) {
    (void)state;
    on_a_card(ROW_DECODE, false, false, 1e-5);
    if (!few_steps()) on_a_card(ROW_DECODE, false, true, 1e-5);
}
/* x is rounded to TF32, to 2^-11 of each number. */
static void prompt_rows_on_a_card(void **state) {
    (void)state;
    on_a_card(ROW_PROMPT, false, false, 5e-4);
}
static void prompt_rows_in_float32_on_a_card(void **state) {
    (void)state;
    on_a_card(ROW_PROMPT, true, false, 1e-5);
    on_a_card(ROW_PROMPT, false, true, 1e-5);
}
#endif

/* ---- whole models, whose lists are fused as far as they can be ---- */

enum { SEQS = 3, PROMPT = 70, DECODED = 5, LORAS = 2 };
struct adapted {
    struct infer_model *m;
    struct infer_adapter *a[LORAS];
    int n_vocab;
};
/* Random weights with adapters of rank 20 and 5. */
static struct adapted open_adapted_of(struct synth_options what) {
    struct adapted o;
    struct infer_model_info info;
    char path[SYNTH_PATH], lora[SYNTH_PATH];
    uint64_t bytes;
    what.seed = 3;
    synth_temporary(&what, path);
    assert_ok(infer_model_open(&o.m, path, NULL));
    for (int i = 0; i < LORAS; i++) {
        strcpy(lora, "/tmp/infer-test-XXXXXX");
        const int fd = mkstemp(lora);
        assert_true(fd >= 0);
        close(fd);
        assert_ok(synth_adapter(path, i ? 5 : 20, (uint64_t)i + 1, lora, &bytes));
        assert_ok(infer_adapter_open(&o.a[i], o.m, lora, NULL));
        unlink(lora);
    }
    unlink(path);
    infer_model_info(o.m, &info);
    o.n_vocab = info.n_vocab;
    return o;
}
static struct adapted open_adapted(const char *shape, const char *type) {
    return open_adapted_of((struct synth_options){.shape = shape, .type = type});
}
static void close_adapted(struct adapted *o) {
    for (int i = 0; i < LORAS; i++) infer_adapter_close(o->a[i]);
    infer_model_close(o->m);
}
static bool
    plain; /* engines that follow: kernels one by one, in float32, so that a router's choices are ref's */
static struct infer_engine *engine_of(const struct adapted *o, const char *device, int slots, bool with) {
    struct infer_engine *e;
    const struct infer_engine_options eo = {.device = device,
                                            .ctx = 128,
                                            .slots = slots,
                                            .decode_rows = slots,
                                            .batch = SEQS * PROMPT,
                                            .threads = 2,
                                            .nan_guard = true,
                                            .all_logits = true,
                                            .kv_type = plain ? "f32" : "f16",
                                            .no_fuse = plain,
                                            .gpu_layers = -1,
                                            .cpu_experts = -1,
                                            .adapter = (const struct infer_adapter *const *)o->a,
                                            .n_adapter = with ? LORAS : 0};
    assert_ok(infer_engine_create(&e, o->m, &eo));
    return e;
}
static const float lora_scale[SEQS][LORAS] = {{1, 0}, {0, 0}, {-0.5f, 1}}, nobody[SEQS][LORAS];

/* Sequences first .. end - 1 of the same tokens in the same steps, prompt and decode rows; out[SEQS][1 + DECODED][n_vocab]. */
static void answer(struct infer_engine *e, const struct adapted *o, const float (*scale)[LORAS], int first,
                   int end, float *out) {
    struct infer_row row[SEQS * PROMPT];
    struct infer_output got;
    int seq[SEQS], n;
    for (int i = first; i < end; i++) {
        assert_ok(infer_seq_open(e, &seq[i]));
        if (scale)
            assert_ok(infer_seq_prefix(e, seq[i], NULL, 0, &(struct infer_prefix){.adapter = scale[i]}, &n));
    }
    for (int at = 0, step; at < PROMPT + DECODED; at += step) {
        const bool decode = at >= PROMPT;
        step = decode ? 1 : PROMPT;
        n = step * (end - first);
        for (int r = 0; r < n; r++) { /* rows of models with states stand together, others in turns */
            const int t = at + (o->m->m->n_state ? r % step : r / (end - first)),
                      i = first + (o->m->m->n_state ? r / step : r % (end - first));
            row[r] = (struct infer_row){.id = (t * 37 + 3) % o->n_vocab,
                                        .pos = t,
                                        .seq = seq[i],
                                        .decode = decode,
                                        .want = t + 1 >= PROMPT ? INFER_WANT_LOGITS : 0};
        }
        assert_ok(infer_step(e, row, n, &got));
        for (int i = first; i < end; i++)
            memcpy(out + ((size_t)(i * (1 + DECODED)) + (size_t)(decode ? at - PROMPT + 1 : 0)) *
                             (size_t)o->n_vocab,
                   got.logits[i - first], (size_t)o->n_vocab * sizeof *out);
    }
    for (int i = first; i < end; i++) infer_seq_close(e, seq[i]);
}

static void check_answers(const struct adapted *o, const char *what, const float *got, const float *want,
                          double prompt, double decode) {
    const size_t v = (size_t)o->n_vocab, one = v * (1 + DECODED);
    for (size_t i = 0; i < SEQS; i++) {
        const double p = relative(got + i * one, want + i * one, v),
                     d = relative(got + i * one + v, want + i * one + v, one - v);
        print_message("%s, sequence %d: prompt %.1e decode %.1e of the norm\n", what, (int)i, p, d);
        if (!(p <= prompt && d <= decode)) fail_msg("%s: tolerances %g, %g", what, prompt, decode);
    }
}
/* Rows of one sequence: the first that has other bits, and by how much the worst number differs. */
static void same_rows(const struct adapted *o, const char *what, const char *where, int sequence,
                      const float *got, const float *want) {
    const size_t v = (size_t)o->n_vocab;
    for (size_t row = 0; row < 1 + DECODED; row++) {
        const float *a = got + row * v, *b = want + row * v;
        if (memcmp(a, b, v * sizeof *a) == 0) continue;
        fail_msg("%s: sequence %d %s: row %d (0: the prompt's last) has other bits, %.2e of the norm", what,
                 sequence, where, (int)row, relative(a, b, v));
    }
}
/* A row's bits alone, beside others, and of rows without an adapter where nobody has one; got: of all together. */
static void check_bits(struct infer_engine *e, const struct adapted *o, const char *what, const float *got,
                       float *again) {
    const size_t one = (size_t)o->n_vocab * (1 + DECODED);
    for (int i = 0; i < SEQS; i++) answer(e, o, lora_scale, i, i + 1, again);
    for (int i = 0; i < SEQS; i++)
        same_rows(o, what, "alone", i, again + (size_t)i * one, got + (size_t)i * one);
    answer(e, o, nobody, 0, SEQS, again);
    for (int i = 0; i < SEQS; i++)
        same_rows(o, what, "where nobody has one", i, again + (size_t)i * one, got + one);
}
/* Against ref, and bits; tolerances of prompt rows, of decode rows, and of these in an engine of one slot. */
static void check_adapted(const char *device, const char *shape, const char *type,
                          const double tolerance[3]) {
    struct adapted o = open_adapted(shape, type);
    const size_t one = (size_t)o.n_vocab * (1 + DECODED), n = SEQS * one;
    float *want = malloc(n * 4), *got = malloc(n * 4), *again = malloc(n * 4);
    char what[96];
    snprintf(what, sizeof what, "%s %s on %s", shape, type, device);
    struct infer_engine *e = engine_of(&o, "ref", SEQS, true);
    answer(e, &o, lora_scale, 0, SEQS, want);
    infer_engine_free(e);
    for (int i = 0; i < SEQS; i += 2) assert_true(relative(want + one, want + (size_t)i * one, one) > 0.02);
    e = engine_of(&o, device, SEQS, true);
    answer(e, &o, lora_scale, 0, SEQS, got);
    check_answers(&o, what, got, want, tolerance[0], tolerance[1]);
    check_bits(e, &o, what, got, again);
    infer_engine_free(e);
    e = engine_of(&o, device, SEQS, false); /* fused further: not the same bits */
    answer(e, &o, NULL, 0, SEQS, again);
    const double bare = relative(again + one, got + one, one);
    if (!(bare <= 2 * tolerance[1])) fail_msg("%s: %g beside an engine without adapters", what, bare);
    infer_engine_free(e);
    e = engine_of(&o, device, 1, true);
    for (int i = 0; i < SEQS; i++) answer(e, &o, lora_scale, i, i + 1, again);
    check_answers(&o, "in one slot", again, want, tolerance[0], tolerance[2]);
    infer_engine_free(e);
    close_adapted(&o);
    free(want), free(got), free(again);
}
static void models_on_the_cpu(void **state) {
    (void)state;
    static const double tolerance[] = {5e-2, 5e-2, 5e-2};
    if (cpu_isa_best() != CPU_ISA_NONE && !few_steps()) check_adapted("cpu", "tiny", "q8_0", tolerance);
}
#ifdef INFER_CUDA
static void models_on_a_card_of(const char *shape, const char *const *types) {
    static const double tolerance[] = {TOL_CUDA_PROMPT, TOL_CUDA_DECODE, TOL_CUDA_DECODE_ONE};
    for (; on_card && *types; types++) check_adapted("cuda", shape, *types, tolerance);
}
static void dense_models_on_a_card(void **state) {
    (void)state;
    models_on_a_card_of("tiny", (const char *const[]){"q8_0", "f16", "q4_k_m", "bf16", NULL});
    models_on_a_card_of("tiny-128", (const char *const[]){"q4_k", "q6_k", NULL});
}
/* Rows wide enough for packets, in an engine of one row, beside one of several; q5_k has no kernel that adapters are a part of. */
static void one_row_on_a_card(void **state) {
    (void)state;
    static const struct {
        const char *shape, *type;
    } all[] = {{"llama-1b", "q4_k_m"}, {"llama-3b", "q4_k_m"}, {"llama-1b", "q8_0"},
               {"llama-1b", "q6_k"},   {"llama-1b", "q4_0"},   {"llama-1b", "q5_k"}};
    for (size_t t = 0; on_card && t < (few_steps() ? 2 : sizeof all / sizeof *all); t++) {
        struct adapted o = open_adapted_of(
            (struct synth_options){.shape = all[t].shape, .type = all[t].type, .layers = 2, .vocab = 512});
        const size_t one = (size_t)o.n_vocab * (1 + DECODED);
        float *want = malloc(SEQS * one * 4), *got = malloc(SEQS * one * 4), *again = malloc(SEQS * one * 4);
        struct infer_engine *e = engine_of(&o, "cuda", SEQS, true);
        answer(e, &o, lora_scale, 0, SEQS, want);
        infer_engine_free(e);
        e = engine_of(&o, "cuda", 1, true);
        for (int i = 0; i < SEQS; i++) answer(e, &o, lora_scale, i, i + 1, got);
        for (int i = 0; i < SEQS; i++) answer(e, &o, lora_scale, i, i + 1, again);
        infer_engine_free(e);
        check_answers(&o, all[t].type, got, want, TOL_CUDA_PROMPT, TOL_CUDA_DECODE_ONE);
        for (int i = 0; i < SEQS; i++)
            same_rows(&o, all[t].type, "again", i, again + (size_t)i * one, got + (size_t)i * one);
        for (int i = 0; i < SEQS; i += 2)
            assert_true(relative(want + one, want + (size_t)i * one, one) > 0.05);
        close_adapted(&o);
        free(want), free(got), free(again);
    }
}
/* Fused as far as it goes; where a router may choose others than ref's, bits alone. */
static void bits_on_a_card_of(const char *shape, const char *type) {
    if (!on_card) return;
    struct adapted o = open_adapted(shape, type);
    const size_t n = SEQS * (size_t)o.n_vocab * (1 + DECODED);
    float *got = malloc(n * 4), *again = malloc(n * 4);
    char what[96];
    snprintf(what, sizeof what, "%s %s, fused", shape, type);
    struct infer_engine *e = engine_of(&o, "cuda", SEQS, true);
    answer(e, &o, lora_scale, 0, SEQS, got);
    check_bits(e, &o, what, got, again);
    infer_engine_free(e);
    close_adapted(&o);
    free(got), free(again);
}
static void experts_on_a_card(void **state) {
    (void)state;
    plain = true;
    models_on_a_card_of("tiny-moe", (const char *const[]){"q8_0", "f16", NULL});
    models_on_a_card_of("tiny-llama4", (const char *const[]){"q8_0", NULL});
    plain = false;
    bits_on_a_card_of("tiny-moe", "q4_k");
    bits_on_a_card_of("tiny-llama4", "q8_0");
}
static void latents_and_states_on_a_card(void **state) {
    (void)state;
    plain = true;
    models_on_a_card_of("tiny-latent", (const char *const[]){"q8_0", NULL});
    models_on_a_card_of("tiny-delta", (const char *const[]){"q8_0", NULL});
    plain = false;
    bits_on_a_card_of("tiny-latent-512", "q4_k");
    bits_on_a_card_of("tiny-delta-128", "q8_0");
}
#endif

/* ---- tables of a step: no card ---- */

/* Each row with an adapter stands once, in a tile of its first adapter's rows; what is promised of how many tiles there are. */
static void tables_have_every_row_once(void **state) {
    (void)state;
    for (int tile = 8; tile <= 16; tile += 8)
        for (int n = 1; n <= ROWS; n++) {
            struct lowrank_table t;
            int32_t slot[ROWS], out_row[ROWS], owner[ROWS];
            bool seen[ROWS] = {false};
            const int n_out = n / 2;
            for (int i = 0; i < n; i++) slot[i] = slot_of(i), out_row[i] = 2 * i + 1;
            const struct step s = {
                .n_row = n, .n_out = n_out, .slot = slot, .out_row = out_row, .adapter = adapters};
            lowrank_table_of(&t, ROWS, ROWS, SLOTS, ADAPTERS, tile);
            uint8_t *blob = malloc(t.bytes);
            memset(blob, 0xee, t.bytes);
            lowrank_table_fill(&t, &s, blob, owner);
            for (int set = 0; set < LOWRANK_SETS; set++) {
                const int rows = set ? n_out : n, n_tile = ((int32_t *)(void *)blob)[set];
                const int32_t(*tiles)[4] = (void *)(blob + t.tiles[set]),
                      (*order)[2] = (void *)(blob + t.order[set]);
                int listed = 0, some = 0;
                memset(seen, 0, sizeof seen);
                assert_true(n_tile <= lowrank_most_tiles(rows, ADAPTERS, tile));
                for (int k = 0; k < n_tile; k++)
                    for (int i = tiles[k][0]; i < tiles[k][0] + tiles[k][1]; i++, listed++) {
                        const int row = order[i][0], of = slot[set ? out_row[row] : row];
                        int first = 0, have = 0;
                        assert_true(row >= 0 && row < rows && !seen[row]);
                        seen[row] = true;
                        assert_int_equal(order[i][1], of);
                        while (adapters[of][first] == 0) first++;
                        assert_int_equal(tiles[k][2], first);
                        for (int a = 0; a < ADAPTERS; a++) have += adapters[of][a] != 0;
                        assert_true(have < 2 || tiles[k][3]);
                        assert_true(tiles[k][1] <= tile);
                    }
                for (int i = 0; i < rows; i++) some += slot[set ? out_row[i] : i] > 1;
                assert_int_equal(listed, some);
            }
            const float *scale = (const float *)(const void *)(blob + t.scale);
            for (int i = 0; i < n; i++)
                for (int a = 0; a < ADAPTERS; a++)
                    assert_true(scale[slot[i] * ADAPTERS + a] == step_adapter(&s, slot[i], a));
            free(blob);
        }
}

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    on_card = cuda_there(&must);
    if (must && !on_card) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_have_every_row_once),
        cmocka_unit_test(as_float64_on_the_host),
        cmocka_unit_test(models_on_the_cpu),
#ifdef INFER_CUDA
        cmocka_unit_test(decode_rows_on_a_card),
        cmocka_unit_test(prompt_rows_on_a_card),
        cmocka_unit_test(prompt_rows_in_float32_on_a_card),
        cmocka_unit_test(dense_models_on_a_card),
        cmocka_unit_test(one_row_on_a_card),
        cmocka_unit_test(experts_on_a_card),
        cmocka_unit_test(latents_and_states_on_a_card),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

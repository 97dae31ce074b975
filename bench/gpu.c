/* Decode and prompt speed of the CUDA backend on random weights in real shapes, made in memory: no file. Checks first
 * that the fused list agrees with the plain one and that a row's bits do not depend on its neighbours.
 *
 * usage: gpu SHAPE TYPE [kv TYPE] [more AT] [check N] [tg N] [batch B N] [depth D N] [pp N] ...   shapes 8b 1b tiny; types of quant.def, q4_k_m, A+B */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench_lib.h"
#include "engine_options.h"
#include "plan/plan.h"
#include "cuda/bench/cuda_bench.h"
#include "cuda/run/decode_profile.h"
#include "seam/op_list.h"
#include "base/host.h"

struct shape {
    const char *name;
    int n_layer, n_embd, n_ff, n_head, n_kv_head, head_dim, n_vocab;
};
static const struct shape shapes[] = {{"8b", 32, 4096, 14336, 32, 8, 128, 128256},
                                      {"1b", 16, 2048, 8192, 32, 8, 64, 128256},
                                      {"tiny", 2, 512, 1536, 8, 2, 64, 1000},
                                      {"tiny128", 2, 1024, 2048, 8, 2, 128, 1000}};
enum { POOL = 1 << 23, SPAN_MAX = 1 << 30 };

static double gaussian(void) {
    static uint64_t s = 88172645463325252ull;
    double v = 0;
    for (int i = 0; i < 4; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        v += (double)(s >> 11) * 0x1p-53;
    }
    return (v - 2) * 1.732;
}

/* Blocks of one type in one file of memory, mapped again and again to look like a long matrix. */
static const void *pool(enum quant_type type, size_t bytes) {
    static void *span[QUANT_COUNT];
    const struct quant_info *q = quant_info(type);
    if (span[type]) return span[type];
    /* whole blocks and whole pages, so that the blocks run on over the seam of two copies */
    size_t block = q->bytes, n = POOL / (block * 4096) * (block * 4096);
    int fd = memfd_create("pool", 0);
    if (ftruncate(fd, (off_t)n)) exit(1);
    uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    float x[256 * 64];
    size_t unit = q->elems * 64 > 256 * 64 ? 256 * 64 : q->elems * 64, ub = unit / q->elems * block, made = 0;
    for (; made + ub <= 1 << 20; made += ub) {
        for (size_t i = 0; i < unit; i++) x[i] = (float)(gaussian() * 0.02);
        q->encode(p + made, x, unit, NULL);
    }
    for (size_t at = made; at < n; at += made) memcpy(p + at, p, at + made < n ? made : n - at);
    uint8_t *s = mmap(NULL, (size_t)SPAN_MAX + POOL * 8, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)bytes;
    for (size_t at = 0; at + n <= (size_t)SPAN_MAX + POOL * 8; at += n)
        if (mmap(s + at, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) exit(1);
    return span[type] = s;
}

static float *vector(struct arena *a, int n, double mean, double spread) {
    float *v = arena_alloc(a, (size_t)n * 4);
    for (int i = 0; i < n; i++) v[i] = (float)(mean + spread * gaussian());
    return v;
}
static int n_made;
static struct weight matrix(enum quant_type t, int n, int k) {
    size_t row = quant_row_bytes(quant_info(t), (size_t)k), shift = (size_t)(n_made++ % 97) * row;
    return (struct weight){.name = "random",
                           .type = t,
                           .n = n,
                           .k = k,
                           .factor = 1,
                           .n_stack = 1,
                           .data = (const uint8_t *)pool(t, row) + shift};
}
static void group(struct weight_group *g, int id, int n_member, struct weight a, struct weight b,
                  struct weight c) {
    *g = (struct weight_group){.id = id, .n_member = n_member, .k = a.k, .member = {a, b, c}};
    for (int i = 0; i < n_member; i++) g->n += g->member[i].n;
}

static size_t stream_bytes; /* of weights that a decoded token reads */
static size_t weight_bytes(const struct weight_group *g) {
    size_t n = 0;
    for (int i = 0; i < g->n_member; i++)
        n += quant_row_bytes(quant_info(g->member[i].type), (size_t)g->k) * (size_t)g->member[i].n;
    return n;
}

/* Layer i in type t; v and down in theirs. */
static void make_layer(struct model *m, const struct shape *s, int i, enum quant_type t, enum quant_type v,
                       enum quant_type down) {
    struct arena *a = &m->arena;
    struct layer *l = &m->layer[i];
    struct weight none = {0};
    int q = s->n_head * s->head_dim, kv = s->n_kv_head * s->head_dim;
    *l = (struct layer){.attn = {.n_head = s->n_head,
                                 .n_kv_head = s->n_kv_head,
                                 .head_dim_k = s->head_dim,
                                 .head_dim_v = s->head_dim,
                                 .store = i,
                                 .rope = &m->rope[0]},
                        .dense = {.n_ff = s->n_ff},
                        .scale = 1};
    l->attn_norm = (struct norm_weights){.w = vector(a, s->n_embd, 1, 0.2), .n = s->n_embd};
    l->ffn_norm = (struct norm_weights){.w = vector(a, s->n_embd, 1, 0.2), .n = s->n_embd};
    m->store[i] = (struct kv_store){0, s->n_kv_head, s->head_dim, s->head_dim, false, KV_F32, KV_F32, 0};
    group(&l->attn.qkv, 4 * i, 3, matrix(t, q, s->n_embd), matrix(t, kv, s->n_embd),
          matrix(v, kv, s->n_embd));
    group(&l->attn.out, 4 * i + 1, 1, matrix(t, s->n_embd, q), none, none);
    group(&l->dense.gate_up, 4 * i + 2, 2, matrix(t, s->n_ff, s->n_embd), matrix(t, s->n_ff, s->n_embd),
          none);
    group(&l->dense.down, 4 * i + 3, 1, matrix(down, s->n_embd, s->n_ff), none, none);
    struct weight_group *g[4] = {&l->attn.qkv, &l->attn.out, &l->dense.gate_up, &l->dense.down};
    for (int j = 0; j < 4; j++) {
        m->group[4 * i + j] = g[j];
        stream_bytes += weight_bytes(g[j]);
    }
}

static void make_model(struct model *m, const struct shape *s, const char *type) {
    static const struct arch arch = {
        .name = "llama", .norm = NORM_RMS, .act = ACT_SILU, .rope.kind = ROPE_INTERLEAVED};
    struct arena *a = &m->arena;
    bool mixed = !strcmp(type, "q4_k_m");
    const char *plus = strchr(type, '+'); /* A+B: B for down and the head */
    char first[32];
    snprintf(first, sizeof first, "%.*s", plus ? (int)(plus - type) : 31, type);
    enum quant_type t = mixed ? QUANT_Q4_K : quant_by_name(first)->type,
                    t6 = mixed  ? QUANT_Q6_K
                         : plus ? quant_by_name(plus + 1)->type
                                : t;
    static struct tensorfile file;
    *m = (struct model){.file = &file,
                        .arch = &arch,
                        .n_layer = s->n_layer,
                        .n_embd = s->n_embd,
                        .n_vocab = s->n_vocab,
                        .n_ctx_train = 131072,
                        .eps = 1e-5f,
                        .embd_scale = 1,
                        .n_kv_group = 1};
    float *freq = arena_alloc(a, (size_t)s->head_dim * 2);
    for (int i = 0; i < s->head_dim / 2; i++) freq[i] = powf(500000.f, -2.f * (float)i / (float)s->head_dim);
    m->rope[0] = (struct rope){.kind = ROPE_INTERLEAVED, .n_rot = s->head_dim, .mscale = 1, .inv_freq = freq};
    m->layer = arena_alloc(a, (size_t)s->n_layer * sizeof *m->layer);
    m->group = arena_alloc(a, (size_t)(4 * s->n_layer + 1) * sizeof *m->group);
    m->store = arena_alloc(a, (size_t)s->n_layer * sizeof *m->store);
    m->window = arena_alloc(a, 64);
    m->n_store = s->n_layer;
    struct weight none = {0};
    for (int i = 0; i < s->n_layer; i++) {
        bool more = i < s->n_layer / 8 || i >= 7 * s->n_layer / 8 || (i - s->n_layer / 8) % 3 == 2;
        make_layer(m, s, i, t, more && mixed ? t6 : t, more || plus ? t6 : t);
    }
    m->output_norm = (struct norm_weights){.w = vector(a, s->n_embd, 1, 0.2), .n = s->n_embd};
    m->embd = matrix(t, s->n_vocab, s->n_embd);
    group(&m->head, 4 * s->n_layer, 1, matrix(t6, s->n_vocab, s->n_embd), none, none);
    stream_bytes += weight_bytes(&m->head);
    m->group[4 * s->n_layer] = &m->head;
    m->n_group = 4 * s->n_layer + 1;
}

/* An engine without infer.h: plan, backend, page tables of all slots in full. */
struct run {
    struct arena arena;
    struct plan plan;
    struct backend *b;
    int32_t *pages;
    const int32_t *tables[1];
};
static const char *kv_type = "f16"; /* of the engines that follow */
static int one_more; /* operation in front of which both lists have one that no pattern takes; 0: none */
static void put_one_more(struct op_list *l, struct arena *a) {
    struct op *op = arena_alloc(a, (size_t)(l->n_op + 1) * sizeof *op);
    struct view x = l->op[0].embed.out;
    memcpy(op, l->op, (size_t)one_more * sizeof *op);
    op[one_more] = (struct op){
        .kind = OP_NORM, .name = "more", .norm = {x, x, NORM_LAYER, x.width, 1e-5f, NULL, NULL, 0}};
    memcpy(op + one_more + 1, l->op + one_more, (size_t)(l->n_op - one_more) * sizeof *op);
    l->op = op;
    l->n_op++;
    list_lives(l);
}
static void run_open(struct run *r, const struct model *m, int ctx, int slots, int batch, bool no_fuse) {
    memset(r, 0, sizeof *r);
    struct infer_engine_options o = {.device = "cuda",
                                     .ctx = ctx,
                                     .slots = slots,
                                     .batch = batch,
                                     .decode_rows = slots,
                                     .kv_type = kv_type,
                                     .no_fuse = no_fuse,
                                     .gpu_layers = -1};
    struct plan_options po;
    MUST(engine_options_read(&po, &o));
    MUST(device_pick(&po.wish, &po.place));
    double t = host_seconds();
    MUST(plan_make(&r->plan, &r->arena, m, &po));
    for (int i = 0; one_more && i < ROW_CLASS_COUNT; i++) put_one_more(&r->plan.part[0].list[i], &r->arena);
    MUST(backend_cuda.open(&r->b, &r->plan.part[0].config));
    double t1 = host_seconds();
    MUST(backend_cuda.upload(r->b));
    double t2 = host_seconds();
    for (int i = 0; i < ROW_CLASS_COUNT; i++) MUST(backend_cuda.compile(r->b, (enum row_class)i));
    printf("open %.2f s, upload %.2f s (%.1f GB/s), compile %.2f s; %.2f GB a token\n", t1 - t, t2 - t1,
           (double)r->plan.part[0].size.weight_bytes / (t2 - t1) * 1e-9, host_seconds() - t2,
           (double)stream_bytes * 1e-9);
    int max = r->plan.kv_group[0].max_pages;
    r->pages = arena_alloc(&r->arena, (size_t)slots * (size_t)max * 4);
    for (int i = 0; i < slots * max; i++) r->pages[i] = i * 7 % (slots * max) == i * 7 ? i : i;
    r->tables[0] = r->pages;
}
static void run_close(struct run *r) {
    backend_cuda.close(r->b);
    arena_free(&r->arena);
}
/* n rows: row i of slot slot0 + i at pos (decode), or all of slot0 from pos on (prompt); of row `logits` also these. */
static void submit_rows(struct run *r, enum row_class cls, int n, int pos, int slot0, const int32_t *ids,
                        int want, int logits) {
    static int32_t id[16384], p[16384], s[16384], out[16384];
    static uint8_t w[16384];
    bool prompt = cls == ROW_PROMPT;
    for (int i = 0; i < n; i++) {
        id[i] = ids ? ids[i] : -1;
        p[i] = prompt ? pos + i : pos;
        s[i] = prompt ? slot0 : slot0 + i;
        out[i] = prompt ? n - 1 : i;
        w[i] = (uint8_t)(want | (i == logits ? WANT_LOGITS : 0));
    }
    struct step st = {.n_row = n,
                      .n_out = prompt ? 1 : n,
                      .id = id,
                      .pos = p,
                      .slot = s,
                      .out_row = out,
                      .want = w,
                      .pages = r->tables,
                      .pages_version = 1};
    MUST(backend_cuda.run(r->b, cls, &st));
}
static void submit(struct run *r, enum row_class cls, int n, int pos, int slot0, const int32_t *ids,
                   int want) {
    submit_rows(r, cls, n, pos, slot0, ids, want, -1);
}
static struct step_result result(struct run *r) {
    struct step_result res;
    MUST(backend_cuda.wait(r->b, &res));
    return res;
}

static uint64_t hash(const float *x, size_t n) {
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < n; i++) h = (h ^ quant_f32_to_bits(x[i])) * 1099511628211ull;
    return h;
}
/* Logits of row 0 after a few decode steps of n rows. */
/* n rows, row at being the same sequence whatever n and at are; out: its logits after the last step */
static void decode_logits(struct run *r, int n, int at, int steps, float *out, int n_vocab) {
    int32_t ids[1024];
    for (int p = 0; p < steps; p++) {
        for (int i = 0; i < n; i++) ids[i] = (17 + 31 * p + 7 * ((i + n - at) % n)) % n_vocab;
        submit_rows(r, ROW_DECODE, n, p, 0, ids, 1, p + 1 == steps ? at : -1);
        struct step_result res = result(r);
        if (p + 1 == steps) memcpy(out, res.logits, (size_t)n_vocab * 4);
    }
}
static double distance(const float *a, const float *b, size_t n, double *norm) {
    double se = 0, sr = 0;
    for (size_t i = 0; i < n; i++) {
        se += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sr += (double)a[i] * (double)a[i];
    }
    *norm = sqrt(sr);
    return sqrt(se / sr);
}
static int failures; /* bits that differ, logits that are not finite */
/* Rows of an engine for `slots` in steps of so many: is row `at` of each the one that is b? */
static void check_widths(const struct model *m, int steps, int slots, const int *width, size_t n,
                         const float *b) {
    const size_t v = (size_t)m->n_vocab;
    struct run r;
    float *c = malloc(v * 4);
    double norm;
    run_open(&r, m, steps + 2, slots, 256, false);
    for (size_t i = 0; i < n; i++) {
        const int at[] = {0, width[i] - 1, width[i] / 2, 512};
        for (int k = 0; k < 4; k++) {
            if (at[k] >= width[i] || (k && at[k] == 0)) continue;
            decode_logits(&r, width[i], at[k], steps, c, m->n_vocab);
            if (!memcmp(b, c, v * 4)) continue;
            printf("  DIFFERENT BITS in row %d of %d: %.2e\n", at[k], width[i], distance(b, c, v, &norm));
            failures++;
        }
    }
    run_close(&r);
    free(c);
}
static void check(const struct model *m, int steps) {
    struct run plain, one, fused;
    size_t v = (size_t)m->n_vocab;
    float *a = malloc(v * 4), *b = malloc(v * 4);
    run_open(&plain, m, steps + 2, 1, 64, true);
    decode_logits(&plain, 1, 0, steps, a, m->n_vocab);
    run_close(&plain);
    double norm;
    run_open(&one, m, steps + 2, 1, 64, false);
    decode_logits(&one, 1, 0, steps, b, m->n_vocab);
    run_close(&one);
    printf("fused for one row against plain: error %.2e of the norm, hash %016llx\n",
           distance(a, b, v, &norm), (unsigned long long)hash(b, v));
    run_open(&fused, m, steps + 2, 256, 256, false);
    decode_logits(&fused, 1, 0, steps, b, m->n_vocab);
    const double e = distance(a, b, v, &norm);
    printf("fused against plain: error %.2e of the norm %.3g, hash %016llx\n", e, norm,
           (unsigned long long)hash(b, v));
    run_close(&fused);
    static const int few[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 33, 40, 64, 65, 100, 128, 200, 256},
                     many[] = {1, 256, 257, 300, 384, 512, 513, 520, 600, 769, 1000, 1024};
    check_widths(m, steps, 256, few, sizeof few / sizeof *few, b);
    check_widths(m, steps, 1024, many, sizeof many / sizeof *many, b);
    free(a), free(b);
}

/* n tokens of each of rows sequences after depth, running one step ahead. */
static void bench_decode(const struct model *m, int rows, int depth, int n) {
    struct run r;
    int32_t ids[1024];
    run_open(&r, m, depth + n + 2, rows, 512, false);
    for (int i = 0; i < rows; i++) ids[i] = i + 1;
    double best = 1e9, all[5];
    for (int rep = 0; rep < 5; rep++) {
        submit(&r, ROW_DECODE, rows, depth, 0, ids, 1);
        (void)result(&r);
        double t = host_seconds();
        submit(&r, ROW_DECODE, rows, depth + 1, 0, NULL, 1);
        for (int i = 1; i < n; i++) {
            submit(&r, ROW_DECODE, rows, depth + 1 + i, 0, NULL, 1);
            (void)result(&r);
        }
        (void)result(&r);
        all[rep] = (host_seconds() - t) / n;
        if (all[rep] < best) best = all[rep];
    }
    printf("  us a step of 5 repetitions:");
    for (int i = 0; i < 5; i++) printf(" %.1f", all[i] * 1e6);
    printf("\ntg%d x%d depth %d: %.1f us a step, %.1f tok/s, weights %.2f TB/s\n", n, rows, depth, best * 1e6,
           rows / best, (double)stream_bytes / best * 1e-12);
    fflush(stdout);
    run_close(&r);
}
static void profile_line(const char *name, float alone, float without, int n) {
    printf("  %-8s x%-3d alone %8.1f us (%6.2f each)   in the whole %8.1f us (%6.2f each)\n", name, n,
           (double)alone, (double)alone / n, (double)without, (double)without / n);
}
static void bench_profile(const struct model *m, int rows, int depth) {
    struct run r;
    int32_t ids[1024];
    run_open(&r, m, depth + 130, rows, 512, false);
    for (int i = 0; i < rows; i++) ids[i] = i + 1;
    for (int i = 0; i < 4; i++) { /* CUDA_FLIGHT: the profile's replays read the steps from that ring again */
        submit(&r, ROW_DECODE, rows, depth, 0, ids, 1);
        (void)result(&r);
    }
    printf("profile of %d rows at %d\n", rows, depth);
    MUST(decode_profile(r.b, rows, profile_line));
    run_close(&r);
}
static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static void bench_prompt(const struct model *m, int n, int chunk) {
    struct run r;
    int32_t *ids = malloc((size_t)n * 4);
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + 11) % m->n_vocab;
    run_open(&r, m, n + 2, 1, chunk, false);
    enum { REPS = 9 };
    double ms[REPS];
    uint64_t bits = 0;
    int odd = 0;
    printf("  ms of %d repetitions:", REPS);
    for (int rep = 0; rep < REPS; rep++) {
        double t = host_seconds();
        for (int p = 0; p < n; p += chunk) {
            int c = n - p < chunk ? n - p : chunk;
            submit(&r, ROW_PROMPT, c, p, 0, ids + p, rep || p + c < n ? 1 : 3);
            struct step_result res = result(&r);
            if (rep || p + c < n) continue;
            bits = hash(res.logits, (size_t)m->n_vocab);
            for (int i = 0; i < m->n_vocab; i++) odd += !isfinite(res.logits[i]);
        }
        ms[rep] = (host_seconds() - t) * 1e3;
        printf(" %.1f", ms[rep]);
    }
    qsort(ms, REPS, sizeof *ms, by_value);
    printf("\npp%d chunk %d: best %.1f ms, %.0f tok/s; median %.1f ms, %.0f tok/s; logits %016llx\n", n,
           chunk, ms[0], n / ms[0] * 1e3, ms[REPS / 2], n / ms[REPS / 2] * 1e3, (unsigned long long)bits);
    if (odd) printf("  NOT FINITE: %d of %d logits\n", odd, m->n_vocab), failures++;
    fflush(stdout);
    run_close(&r);
    free(ids);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return printf("usage: gpu SHAPE TYPE [kv TYPE] [more AT] [check N] [tg N] [batch B N] [depth D N] "
                      "[pp N CHUNK]\n"),
               2;
    const struct shape *s = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, argv[1])) s = &shapes[i];
    if (!s || (strcmp(argv[2], "q4_k_m") && !strchr(argv[2], '+') && !quant_by_name(argv[2])))
        return printf("unknown shape or type\n"), 2;
    static struct model m;
    make_model(&m, s, argv[2]);
    printf("== %s %s\n", argv[1], argv[2]);
    for (int i = 3; i < argc; i++) {
        int left = argc - i - 1;
        if (!strcmp(argv[i], "check") && left >= 1)
            check(&m, atoi(argv[i + 1])), i++;
        else if (!strcmp(argv[i], "kv") && left >= 1)
            kv_type = argv[++i];
        else if (!strcmp(argv[i], "more") && left >= 1)
            one_more = atoi(argv[++i]);
        else if (!strcmp(argv[i], "tg") && left >= 1)
            bench_decode(&m, 1, 0, atoi(argv[i + 1])), i++;
        else if (!strcmp(argv[i], "batch") && left >= 2)
            bench_decode(&m, atoi(argv[i + 1]), 128, atoi(argv[i + 2])), i += 2;
        else if (!strcmp(argv[i], "depth") && left >= 2)
            bench_decode(&m, 1, atoi(argv[i + 1]), atoi(argv[i + 2])), i += 2;
        else if (!strcmp(argv[i], "profile") && left >= 2)
            bench_profile(&m, atoi(argv[i + 1]), atoi(argv[i + 2])), i += 2;
        else if (!strcmp(argv[i], "pp") && left >= 2)
            bench_prompt(&m, atoi(argv[i + 1]), atoi(argv[i + 2])), i += 2;
        fflush(stdout);
    }
    return failures > 0;
}

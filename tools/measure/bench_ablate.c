/* infer bench --ablate: the tests with one thing at a time left out or done otherwise, as a table. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "tools/measure/bench.h"
#include "tools/tool.h"

static void as_asked(struct options *o) { (void)o; }
static void no_fuse(struct options *o) { o->no_fuse = true; }
static void no_repack(struct options *o) { o->no_repack = true; }
static void no_graphs(struct options *o) { o->no_graphs = true; }
static void only_mma(struct options *o) { o->kernels = "mma"; }
static void no_tune(struct options *o) { o->autotune = "off"; }
static void avx2(struct options *o) { o->isa = "avx2"; }
static void one_thread(struct options *o) { o->threads = 1; }
static void kv_f32(struct options *o) { o->kv_type = "f32"; }
static void kv_q8(struct options *o) { o->kv_type = "q8_0"; }
static void every_op(struct options *o) { o->nan_guard = true; }

enum { ON_REF = 1, ON_CPU = 2, ON_CARD = 4, ANYWHERE = 7 };
static const struct {
    const char *name;
    void (*set)(struct options *o);
    int where;
} variants[] = {{"as asked", as_asked, ANYWHERE},     {"--no-fuse", no_fuse, ON_CPU | ON_CARD},
                {"--no-repack", no_repack, ON_CPU},   {"--no-graphs", no_graphs, ON_CARD},
                {"--kernels mma", only_mma, ON_CARD}, {"--autotune off", no_tune, ON_CARD},
                {"--isa avx2", avx2, ON_CPU},         {"--threads 1", one_thread, ON_CPU},
                {"--kv-type f32", kv_f32, ANYWHERE},  {"--kv-type q8_0", kv_q8, ANYWHERE},
                {"--nan-guard", every_op, ANYWHERE}};
enum { N_VARIANT = sizeof variants / sizeof *variants };

static void print_row(const char *name, const struct bench_result *base, const struct bench_result *r) {
    double ratio = r->tok_s / base->tok_s, half = NAN;
    printf("%-16s %-16s %9.1f", name, r->test, r->tok_s);
    if (base != r && bench_ratio(r, base, &ratio, &half))
        printf("  %+6.1f%%  %+6.1f .. %+.1f%%", 100 * (ratio - 1), 100 * (ratio * exp(-half) - 1),
               100 * (ratio * exp(half) - 1));
    else if (base != r)
        printf("  %+6.1f%%", 100 * (ratio - 1));
    if (isfinite(r->joules)) printf("  %.4f J/token", r->joules);
    printf("%s\n", r->throttled > 0 ? "  HELD BACK" : "");
}

/* The same as an object: what --save keeps of a test, and beside what was asked for "ratio" with "least" and "most" (null: too few
 * repetitions). */
static json_t *row_json(const struct bench_result *base, const struct bench_result *r) {
    double ratio = r->tok_s / base->tok_s, half = NAN;
    json_t *j = bench_result_json(r);
    if (base == r || !j) return j;
    bench_ratio(r, base, &ratio, &half);
    json_object_set_new(j, "ratio", bench_real(ratio));
    json_object_set_new(j, "least", bench_real(ratio * exp(-half)));
    json_object_set_new(j, "most", bench_real(ratio * exp(half)));
    return j;
}

struct ablation {
    struct bench base; /* its results */
    int where;
    json_t *all; /* NULL: a table */
};

static void tell(struct ablation *a, const char *name, const struct bench *b, enum infer_status st) {
    json_t *rows = a->all ? json_array() : NULL;
    for (int k = 0; k < b->n && !st; k++) {
        const struct bench_result *base = a->base.result ? &a->base.result[k] : &b->result[k];
        if (rows)
            json_array_append_new(rows, row_json(base, &b->result[k]));
        else
            print_row(name, base, &b->result[k]);
    }
    if (a->all)
        json_array_append_new(a->all, json_pack("{s:s, s:s?, s:o}", "name", name, "error",
                                                st ? err_message() : NULL, "results", rows));
    else if (st)
        printf("%-16s %s\n", name, err_message()); /* not here */
}

/* One line of the table: the base is what runs first. */
static enum infer_status run_variant(struct ablation *a, const struct options *o, int i) {
    struct options local = *o;
    variants[i].set(&local);
    struct bench b = {.o = &local, .bandwidth = NAN};
    enum infer_status st = bench_run(&b);
    if (i || st != INFER_OK) {
        if (i && st != INFER_E_CANCEL) {
            tell(a, variants[i].name, &b, st);
            st = tool_flush();
        }
        bench_close(&b);
        return st;
    }
    tell(a, variants[i].name, &b, st);
    a->where = b.on_card ? ON_CARD : strcmp(b.session.place.device, "ref") == 0 ? ON_REF : ON_CPU;
    a->base = (struct bench){.result = b.result, .n = b.n};
    b.result = NULL;
    bench_close(&b);
    return tool_flush();
}

enum infer_status bench_ablate(const struct options *o) {
    const uint64_t failed = mem_failed();
    struct ablation a = {.where = ANYWHERE, .all = o->json ? json_array() : NULL};
    enum infer_status st = INFER_OK;
    if (!o->json) printf("%-16s %-16s %9s  %7s  %s\n", "", "test", "tok/s", "change", "interval of 95%");
    for (int i = 0; i < N_VARIANT && !st; i++)
        if (variants[i].where & a.where) st = run_variant(&a, o, i);
    char *text = NULL;
    if (!st && o->json)
        st = json_write(&text, json_incref(a.all), failed, JSON_INDENT(1) | JSON_REAL_PRECISION(8),
                        "the table as JSON");
    if (text) printf("%s\n", text);
    if (!st) st = tool_flush();
    mem_free(text);
    json_decref(a.all);
    mem_free(a.base.result);
    return st;
}

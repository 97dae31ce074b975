/* infer bench --ablate: the tests with one thing at a time left out or done otherwise, as a table. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
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

static const struct {
    const char *name;
    void (*set)(struct options *o);
    bool cpu, card;
} variants[] = {{"as asked", as_asked, true, true},       {"--no-fuse", no_fuse, true, true},
                {"--no-repack", no_repack, true, false},  {"--no-graphs", no_graphs, false, true},
                {"--kernels mma", only_mma, false, true}, {"--autotune off", no_tune, false, true},
                {"--isa avx2", avx2, true, false},        {"--threads 1", one_thread, true, false},
                {"--kv-type f32", kv_f32, true, true},    {"--kv-type q8_0", kv_q8, true, true},
                {"--nan-guard", every_op, true, true}};
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

enum infer_status bench_ablate(const struct options *o) {
    struct bench base = {0};
    enum infer_status st = INFER_OK;
    printf("%-16s %-16s %9s  %7s  %s\n", "", "test", "tok/s", "change", "interval of 95%");
    for (int i = 0; i < N_VARIANT && !st; i++) {
        struct options local = *o;
        variants[i].set(&local);
        struct bench b = {.o = &local, .bandwidth = NAN};
        if (i && !(base.on_card ? variants[i].card : variants[i].cpu)) continue;
        st = bench_run(&b);
        for (int k = 0; k < b.n && !st; k++)
            print_row(variants[i].name, i ? &base.result[k] : &b.result[k], &b.result[k]);
        if (st && i && st != INFER_E_CANCEL) { /* not here */
            printf("%-16s %s\n", variants[i].name, err_message());
            st = INFER_OK;
        }
        if (!st) st = tool_flush();
        if (i || st) {
            bench_close(&b);
        } else { /* its results stay */
            base = b;
            b.result = NULL;
            bench_close(&b);
            base.session = (struct session){0};
        }
    }
    mem_free(base.result);
    return st;
}

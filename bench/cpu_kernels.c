/* The CPU's matmul kernels alone, one thread: what a prompt, or a decoded row, costs beside everything else of a step.
 *
 *     cpu_kernels [--isa avx2|avxvnni|avx512] [--type NAME] [-k COLUMNS] [-t ROWS_OF_X] [-n ROWS_OF_WEIGHTS]
 *
 * Prints for each type operations in a nanosecond (two for a product and its addition), the best of five passes over the
 * weights, the time of quantising a column of x, and a sum of the results, which is the same for every build whose kernels
 * give the same bits. Weights and x are random, x with some values far from the others. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "cpu/kernels/kernels.h"
#include "base/host.h"

enum { PASSES = 5 };

struct setting {
    const struct cpu_kernels *kernels;
    int k, n_x, n_w;
};

static void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 4096) & ~(size_t)63);
    if (!p) {
        fprintf(stderr, "cpu_kernels: out of memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, (bytes + 4096) & ~(size_t)63);
    return p;
}

/* Sum of some uniform numbers, every 50th six times as large. */
static float value(uint64_t *state) {
    float s = 0;
    uint64_t bits = 0;
    for (int i = 0; i < 6; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        bits = *state >> 40;
        s += (float)bits * 0x1p-24f - 0.5f;
    }
    return bits % 50 ? s : 6 * s;
}

/* Rows of random weights in blocks of the type. */
static uint8_t *make_weights(const struct quant_info *q, const struct setting *s) {
    size_t stride = quant_row_bytes(q, (size_t)s->k);
    uint8_t *w = take(stride * (size_t)s->n_w);
    float *row = take((size_t)s->k * sizeof *row);
    uint64_t state = 1;
    for (int i = 0; i < s->n_w; i++) {
        for (int k = 0; k < s->k; k++) row[k] = value(&state) * 0.1f;
        q->encode(w + stride * (size_t)i, row, (size_t)s->k, NULL);
    }
    free(row);
    return w;
}

/* false: no kernel multiplies this type by quantised x. */
static bool measure(enum quant_type type, const struct setting *s) {
    const struct quant_info *q = quant_info(type);
    const struct cpu_kernels *f = s->kernels;
    bool wide = s->n_x > 1 && f->gemm_int16[type];
    cpu_row_fn *gemm = wide ? f->gemm_int16[type] : f->gemm_int8[type];
    if (!gemm || !q->encode || s->k % q->elems) return false;
    size_t chunk = wide ? sizeof(struct cpu_x16) : sizeof(struct cpu_x8);
    size_t stride = quant_row_bytes(q, (size_t)s->k),
           copy = cpu_copy_bytes(q->type, stride, CPU_UNIT_ROWS, s->k);
    uint8_t *w = make_weights(q, s), *x = take(chunk * (size_t)(cpu_kp(s->k) / 256 * s->n_x));
    uint8_t *copies = s->n_x > 1 ? NULL : take(copy * (size_t)(s->n_w / CPU_UNIT_ROWS));
    float *row = take((size_t)cpu_kp(s->k) * sizeof *row),
          *out = take((size_t)(s->n_x + CPU_LANES) * CPU_UNIT_ROWS * sizeof *out);
    double quantised = 0, best = 1e9, sum = 0;
    uint64_t state = 2;
    for (int t = 0; t < s->n_x; t++) {
        for (int k = 0; k < s->k; k++) row[k] = value(&state);
        double start = host_seconds();
        (wide ? f->quantise16 : f->quantise)(x + chunk * (size_t)t, chunk * (size_t)s->n_x, row, s->k);
        quantised += host_seconds() - start;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double start = host_seconds();
        for (int i = 0; i + CPU_UNIT_ROWS <= s->n_w; i += CPU_UNIT_ROWS)
            gemm(w + stride * (size_t)i, stride, CPU_UNIT_ROWS, s->k,
                 (struct cpu_x){x, chunk, chunk * (size_t)s->n_x}, s->n_x, out,
                 copies ? copies + copy * (size_t)(i / CPU_UNIT_ROWS) : NULL, copies && pass);
        double took = host_seconds() - start;
        if (took < best) best = took;
    }
    for (int i = 0; i < CPU_UNIT_ROWS * s->n_x; i++) sum += (double)out[i] * (1 + i % 7);
    printf("%-8s k %d, %d rows of x: %6.1f Gop/s, quantising %.2f ns a column, sum %.7g\n", q->name, s->k,
           s->n_x, 2e-9 * s->n_w * s->k * s->n_x / best, 1e9 * quantised / s->n_x / s->k, sum);
    free(w), free(x), free(copies), free(row), free(out);
    return true;
}

static int usage(void) {
    fputs("usage: cpu_kernels [--isa avx2|avxvnni|avx512] [--type NAME] [-k COLUMNS] [-t ROWS_OF_X] [-n "
          "ROWS_OF_WEIGHTS]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv) {
    static const struct cpu_kernels *const all[] = {&cpu_kernels_avx2, &cpu_kernels_avxvnni,
                                                    &cpu_kernels_avx512};
    static const struct option longs[] = {
        {"isa", required_argument, NULL, 'i'}, {"type", required_argument, NULL, 'y'}, {0}};
    struct setting s = {&cpu_kernels_avx2, 2048, 256, 1024};
    const char *type = NULL, *isa = "avx2";
    int n_measured = 0;
    for (int c; (c = getopt_long(argc, argv, "k:t:n:", longs, NULL)) != -1;) {
        if (c == 'i') isa = optarg;
        if (c == 'y') type = optarg;
        if (c == 'k') s.k = atoi(optarg);
        if (c == 't') s.n_x = atoi(optarg);
        if (c == 'n') s.n_w = atoi(optarg);
        if (c == '?') return usage();
    }
    s.kernels = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, isa)) s.kernels = all[i];
    if (!s.kernels || optind < argc || s.k < 1 || s.n_x < 1 || s.n_w < CPU_UNIT_ROWS) return usage();
    if (s.kernels == &cpu_kernels_avx512 && !__builtin_cpu_supports("avx512vnni")) {
        fputs("cpu_kernels: this processor has no AVX-512 VNNI\n", stderr);
        return 2;
    }
    for (int t = 0; t < QUANT_COUNT; t++)
        if (!type || !strcasecmp(quant_info((enum quant_type)t)->name, type))
            n_measured += measure((enum quant_type)t, &s);
    if (!n_measured) fputs("cpu_kernels: no kernel for such a type and such columns\n", stderr);
    return n_measured ? 0 : 2;
}

/* What bench --compare concludes of real runs: trials A.json B.json ..., saved by `infer bench --save`, an even number of them. Pairs of
 * neighbours are runs of one program, so what is not "same" is a false alarm; then the second of each as if it had been so much slower. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "infer.h"
#include "tools/measure/bench_result.h"

/* The first result of a file, and how often it was repeated; ends the program where there is none. */
static int read_run(const char *path, struct bench_result *r) {
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *first = json_array_get(json_object_get(root, "results"), 0);
    if (!first || bench_result_read(r, first)) {
        fprintf(stderr, "trials: %s: no results of infer bench\n", path);
        exit(2);
    }
    const int reps = (int)json_integer_value(json_object_get(json_object_get(root, "machine"), "reps"));
    json_decref(root);
    return reps;
}

/* As it were at `speed` times its own. */
static void scale(struct bench_result *r, double speed) {
    r->tok_s *= speed, r->tok_s_min *= speed, r->tok_s_max *= speed, r->share *= speed;
    for (int i = 0; i < r->n_rate; i++) r->rate[i] *= speed;
}

int main(int argc, char **argv) {
    static const double speeds[] = {1, 0.97, 1.03, 0.95};
    if (argc < 3 || argc % 2 == 0) return fprintf(stderr, "usage: trials A.json B.json ..\n"), 2;
    for (size_t k = 0; k < sizeof speeds / sizeof *speeds; k++) {
        int n[4] = {0}, holds = 0, known = 0;
        for (int i = 1; i + 1 < argc; i += 2) {
            struct bench_result a, b;
            const int reps_a = read_run(argv[i], &a), reps_b = read_run(argv[i + 1], &b);
            scale(&b, speeds[k]);
            const struct bench_change c = bench_compare(&b, &a, reps_b, reps_a);
            n[c.verdict]++;
            known += isfinite(c.half);
            holds += fabs(log(c.speed / speeds[k])) <= c.half;
        }
        printf(
            "speed %.2f: %d pairs: %d same, %d slower, %d faster, %d too noisy; %d of %d intervals hold it\n",
            speeds[k], (argc - 1) / 2, n[BENCH_SAME], n[BENCH_SLOWER], n[BENCH_FASTER], n[BENCH_NOISY], holds,
            known);
    }
    return 0;
}

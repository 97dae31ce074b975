/* Where the time of a step on a card goes, link by link: decode rows at a depth and a prompt of so many rows.
 *
 * usage: links MODEL ROWS DEPTH PROMPT    0 ROWS or 0 PROMPT: without */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench_lib.h"
#include "cuda/run/decode_profile.h"
#include "cuda/run/prompt_profile.h"
#include "engine_impl.h"

enum { PARTS = 128, STEPS = 4 /* the profile's replays read the ring of the steps in flight again */ };
static struct {
    char kind[32], name[48];
    double us;
    int n;
} part[PARTS];
static int n_part;

static void add(void *user, const char *kind, const char *name, float us) {
    int i = 0;
    (void)user;
    while (i < n_part && (strcmp(part[i].kind, kind) != 0 || strcmp(part[i].name, name) != 0)) i++;
    if (i == PARTS) return;
    if (i == n_part) {
        snprintf(part[i].kind, sizeof part[i].kind, "%s", kind);
        snprintf(part[i].name, sizeof part[i].name, "%s", name);
        n_part++;
    }
    part[i].us += (double)us;
    part[i].n++;
}
static void decode_line(const char *name, float alone, float without, int n) {
    printf("  %-24s x%-3d alone %9.1f us, %7.2f each; the step without it %9.1f less\n", name, n,
           (double)alone, (double)alone / n, (double)without);
}

/* n rows of each of so many sequences from position pos on. */
static void step(struct infer_engine *e, const int *seq, int n_seq, int pos, int n, bool decode) {
    struct infer_row *rows = calloc((size_t)(n_seq * n), sizeof *rows);
    struct infer_output out;
    for (int s = 0; s < n_seq; s++)
        for (int i = 0; i < n; i++)
            rows[s * n + i] = (struct infer_row){.id = (7 * (pos + i) + s) % 500 + 1,
                                                 .pos = pos + i,
                                                 .seq = seq[s],
                                                 .decode = decode,
                                                 .want = i == n - 1 ? INFER_WANT_TOKEN : 0};
    MUST(infer_step(e, rows, n_seq * n, &out));
    free(rows);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: links MODEL ROWS DEPTH PROMPT\n");
        return 2;
    }
    const int rows = atoi(argv[2]), depth = atoi(argv[3]), prompt = atoi(argv[4]);
    const int batch = prompt > 512 ? prompt : 512, n = rows > 0 ? rows : 1;
    struct infer_model *m;
    struct infer_engine *e;
    int *seq = malloc((size_t)n * sizeof *seq);
    MUST(infer_model_open(&m, argv[1], NULL));
    struct infer_engine_options o = {.device = "cuda",
                                     .ctx = (depth > prompt ? depth : prompt) + STEPS + 2,
                                     .slots = n,
                                     .batch = batch,
                                     .decode_rows = n,
                                     .gpu_layers = -1};
    MUST(infer_engine_create(&e, m, &o));
    for (int i = 0; i < n; i++) MUST(infer_seq_open(e, &seq[i]));
    if (prompt) {
        for (int i = 0; i < 2; i++) {
            infer_seq_close(e, seq[0]);
            MUST(infer_seq_open(e, &seq[0]));
            step(e, seq, 1, 0, prompt, false);
        }
        MUST(prompt_profile(e->backend, prompt, 1, add, NULL));
        double all = 0;
        for (int i = 0; i < n_part; i++) all += part[i].us;
        printf("prompt of %d rows: %.1f us in its links\n", prompt, all);
        for (int i = 0; i < n_part; i++)
            printf("  %-24s %-12s x%-3d %9.1f us, %8.1f each, %4.1f%%\n", part[i].name, part[i].kind,
                   part[i].n, part[i].us, part[i].us / part[i].n, 100 * part[i].us / all);
    }
    if (rows) {
        infer_seq_close(e, seq[0]);
        MUST(infer_seq_open(e, &seq[0]));
        for (int s = 0; s < n; s++)
            for (int at = 0; at < depth; at += batch)
                step(e, seq + s, 1, at, depth - at < batch ? depth - at : batch, false);
        for (int i = 0; i < STEPS; i++) step(e, seq, n, depth + i, 1, true);
        printf("%d decode rows at %d\n", n, depth);
        MUST(decode_profile(e->backend, n, decode_line));
    }
    infer_engine_free(e);
    infer_model_close(m);
    free(seq);
    return 0;
}

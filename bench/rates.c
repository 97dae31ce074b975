/* Our side of bench/compare-peers: a model stays open, as it does in the peers' processes.
 *
 *     rates MODEL THREADS [ISA]
 *
 * Says "ready BYTES" (of weights that a decoded token reads), then answers each line "pp N" (a prompt of N tokens in one
 * sequence, its last row wants a token) or "tg N" (N tokens one after the other behind an untimed first one) with tokens per
 * second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "infer.h"
#include "tools/term.h"
#include "base/host.h"

enum { N_CTX = 4096, N_BATCH = 512 };

/* Rows first .. first + n - 1 of seq: the ids that the peers get too. */
static enum infer_status step(struct infer_engine *e, int n_vocab, int seq, int first, int n, bool decode) {
    static struct infer_row rows[N_BATCH];
    struct infer_output out;
    for (int done = 0; done < n;) {
        int m = n - done < N_BATCH ? n - done : N_BATCH;
        for (int i = 0; i < m; i++) {
            int pos = first + done + i;
            rows[i] = (struct infer_row){.id = (1000 + 7919 * pos) % n_vocab,
                                         .pos = pos,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = done + i + 1 == n ? INFER_WANT_TOKEN : INFER_WANT_NONE};
        }
        enum infer_status st = infer_step(e, rows, m, &out);
        if (st) return st;
        done += m;
    }
    return INFER_OK;
}

static enum infer_status measure(struct infer_engine *e, int n_vocab, const char *kind, int n, double *rate) {
    int seq;
    enum infer_status st = infer_seq_open(e, &seq);
    if (st) return st;
    bool decode = strcmp(kind, "tg") == 0;
    if (decode) st = step(e, n_vocab, seq, 0, 1, false);
    double begin = host_seconds();
    if (!decode) st = step(e, n_vocab, seq, 0, n, false);
    for (int i = 0; decode && !st && i < n; i++) st = step(e, n_vocab, seq, 1 + i, 1, true);
    *rate = n / (host_seconds() - begin);
    infer_seq_close(e, seq);
    return st;
}

int main(int argc, char **argv) {
    struct infer_model *model = NULL;
    struct infer_engine *engine = NULL;
    struct infer_model_info info = {0};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: rates MODEL THREADS [ISA]\n");
        return 2;
    }
    struct infer_engine_options o = {.device = "cpu",
                                     .threads = atoi(argv[2]),
                                     .isa = argc > 3 ? argv[3] : NULL,
                                     .ctx = N_CTX,
                                     .batch = N_BATCH};
    enum infer_status st = infer_model_open(&model, argv[1], NULL);
    if (!st) infer_model_info(model, &info);
    if (!st) st = infer_engine_create(&engine, model, &o);
    char line[64], kind[8];
    int n;
    double rate;
    for (int i = 0; !st && i < 2; i++) { /* once each, as the peers do; decode makes its copies here */
        st = measure(engine, info.n_vocab, "pp", 64, &rate);
        if (!st) st = measure(engine, info.n_vocab, "tg", 8, &rate);
    }
    if (!st) printf("ready %llu\n", (unsigned long long)info.token_bytes);
    fflush(stdout);
    while (!st && fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%7s %d", kind, &n) != 2 || n < 1 || n >= N_CTX) break;
        st = measure(engine, info.n_vocab, kind, n, &rate);
        if (!st) printf("%.4f\n", rate);
        fflush(stdout);
    }
    if (st) fprintf(stderr, "rates: %s\n", infer_error());
    infer_engine_free(engine);
    infer_model_close(model);
    return st ? 1 : 0;
}

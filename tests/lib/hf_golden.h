/* Tiny random models of Hugging Face's architectures with what transformers makes of three prompts (scripts/goldens). */
#pragma once
#include "tests/lib/relative.h"
#include "tests/lib/test.h"
#include "infer.h"

enum { N_PROMPT = 3, MAX_TOKENS = 256 };

struct infer_prompt {
    int32_t n, n_rows;
    int32_t ids[MAX_TOKENS], rows[MAX_TOKENS]; /* rows[n_rows]: the positions whose logits are there */
    float *logits;                             /* logits[n_rows][n_vocab] */
};
struct golden {
    const char *name;
    int32_t n_vocab;
    double sd; /* standard deviation of the logits of all positions */
    struct infer_prompt prompt[N_PROMPT];
    char path[512];
};

static inline void golden_read(struct golden *g, const char *name) {
    char file[128], path[512];
    int32_t n_prompt;
    float sd;
    *g = (struct golden){.name = name};
    snprintf(file, sizeof file, "golden/hf/%s", name);
    test_path(g->path, sizeof g->path, file);
    snprintf(file, sizeof file, "golden/hf/%s/logits.bin", name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    read_words(f, &n_prompt, 1);
    assert_int_equal(n_prompt, N_PROMPT);
    read_words(f, &g->n_vocab, 1);
    read_words(f, &sd, 1);
    g->sd = (double)sd;
    for (struct infer_prompt *p = g->prompt; p < g->prompt + N_PROMPT; p++) {
        read_words(f, &p->n, 1);
        read_words(f, &p->n_rows, 1);
        assert_in_range(p->n, 1, MAX_TOKENS);
        assert_in_range(p->n_rows, 1, p->n);
        read_words(f, p->ids, (size_t)p->n);
        read_words(f, p->rows, (size_t)p->n_rows);
        size_t all = (size_t)p->n_rows * (size_t)g->n_vocab;
        p->logits = malloc(all * 4);
        read_words(f, p->logits, all);
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

static inline void golden_free(struct golden *g) {
    for (int i = 0; i < N_PROMPT; i++) free(g->prompt[i].logits);
}

/* Logits of a prompt in steps of that many rows, into out[n][n_vocab]. */
static inline void compute(struct infer_engine *e, const struct golden *g, const struct infer_prompt *p,
                           int step, bool decode, float *out) {
    struct infer_row rows[MAX_TOKENS];
    struct infer_output o;
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0; at < p->n; at += step) {
        int n = p->n - at < step ? p->n - at : step;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){
                .id = p->ids[at + i], .pos = at + i, .seq = seq, .decode = decode, .want = INFER_WANT_LOGITS};
        assert_ok(infer_step(e, rows, n, &o));
        assert_int_equal(o.n, n);
        for (int i = 0; i < n; i++)
            memcpy(out + (size_t)(at + i) * (size_t)g->n_vocab, o.logits[i], (size_t)g->n_vocab * 4);
    }
    infer_seq_close(e, seq);
}

static inline size_t elements(const struct golden *g, const struct infer_prompt *p) {
    return (size_t)p->n * (size_t)g->n_vocab;
}

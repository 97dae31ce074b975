/* What a model file computes, for tests that change the file. */
#pragma once
#include "tests/lib/test.h"
#include "infer.h"

#ifndef LOGITS_TOKENS /* tokens of the text, and the context of the engine */
#define LOGITS_TOKENS 24
#define LOGITS_CTX    32
#endif
enum { N_TOKEN = LOGITS_TOKENS, CTX = LOGITS_CTX, MAX_LOGIT = 512 };

/* What a file computes: the logits of the last token, or why it does not. */
struct result {
    enum infer_status status;
    char why[512];
    int n_vocab, n_ctx_train;
    float logits[MAX_LOGIT];
};

static inline void compute(const char *path, struct result *r) {
    const struct infer_engine_options o = {
        .device = "ref", .kv_type = "f32", .ctx = CTX, .threads = 1, .gpu_layers = -1};
    struct infer_model *m = NULL;
    struct infer_engine *e = NULL;
    struct infer_model_info info;
    struct infer_output out;
    struct infer_row rows[N_TOKEN];
    int seq;
    *r = (struct result){.status = infer_model_open(&m, path, NULL)};
    if (!r->status) r->status = infer_engine_create(&e, m, &o);
    if (!r->status) {
        infer_model_info(m, &info);
        r->n_vocab = info.n_vocab;
        r->n_ctx_train = info.n_ctx_train;
        assert_in_range(info.n_vocab, 2, MAX_LOGIT);
        for (int i = 0; i < N_TOKEN; i++)
            rows[i] = (struct infer_row){.id = i * 7 % info.n_vocab,
                                         .pos = i,
                                         .seq = 0,
                                         .want = i == N_TOKEN - 1 ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        assert_ok(infer_seq_open(e, &seq));
        if (info.no_head)
            r->status = infer_step(e, rows, N_TOKEN, &out);
        else
            assert_ok(infer_step(e, rows, N_TOKEN, &out));
        if (!r->status) memcpy(r->logits, out.logits[0], (size_t)info.n_vocab * sizeof(float));
    }
    snprintf(r->why, sizeof r->why, "%s", r->status ? infer_error() : "");
    infer_engine_free(e);
    infer_model_close(m);
}

/* A file is refused with a message, not by a crash or a lack of memory. */
static inline bool refused(const struct result *r) {
    return r->status == INFER_E_INPUT || r->status == INFER_E_UNSUPPORTED;
}
static inline bool same(const struct result *a, const struct result *b) {
    return !a->status && !b->status && a->n_vocab == b->n_vocab && a->n_ctx_train == b->n_ctx_train &&
           memcmp(a->logits, b->logits, (size_t)a->n_vocab * sizeof(float)) == 0;
}

/* The made-up text of `infer verify` through an engine, which is made for it: a prompt, then rows of decode one by one. */
#pragma once
#include "tests/lib/steps.h"
#include "tools/measure/verify_compare.h"

/* The status of the first step that fails. */
static inline enum infer_status compute_verify_text(const struct infer_model *m,
                                                    const struct infer_engine_options *o) {
    struct infer_model_info info;
    struct infer_engine *e;
    struct infer_row row[VERIFY_PROMPT];
    struct infer_output out;
    enum infer_status st = INFER_OK;
    int seq;
    infer_model_info(m, &info);
    assert_ok(infer_engine_create(&e, m, o));
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0, n; at < VERIFY_PROMPT + VERIFY_DECODE && !st; at += n) {
        n = at ? 1 : VERIFY_PROMPT;
        for (int i = 0; i < n; i++)
            row[i] = (struct infer_row){.id = made_up_id(at + i, info.n_vocab),
                                        .pos = at + i,
                                        .seq = seq,
                                        .decode = at > 0,
                                        .want = i + 1 == n ? INFER_WANT_TOKEN : INFER_WANT_NONE};
        st = infer_step(e, row, n, &out);
    }
    infer_engine_free(e);
    return st;
}

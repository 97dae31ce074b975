/* Made-up texts, computed in steps of so many rows. */
#pragma once
#include "tests/lib/test.h"
#include "infer.h"

/* The token at position i. */
static inline int32_t made_up_id(int i, int n_vocab) { return (i * 7 + i / 13) % n_vocab; }

/* Rows from .. end of that text in steps of n, logits[n_vocab] of the last into out. */
static inline void compute_steps(struct infer_engine *e, int seq, int from, int end, int n, bool decode,
                                 int n_vocab, float *out) {
    enum { MOST_ROWS = 256 };
    struct infer_row rows[MOST_ROWS];
    struct infer_output o;
    assert_true(end - from <= MOST_ROWS);
    for (int k; from < end; from += k) {
        k = end - from < n ? end - from : n;
        for (int i = 0; i < k; i++)
            rows[i] = (struct infer_row){.id = made_up_id(from + i, n_vocab),
                                         .pos = from + i,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = i + 1 == k ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        assert_ok(infer_step(e, rows, k, &o));
        memcpy(out, o.logits[0], (size_t)n_vocab * sizeof *out);
    }
}

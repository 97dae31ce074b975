/* How a token is drawn from a row of logits, and what comes back of the row: part of infer.h.
 *
 * x[i], i < n_vocab, is what the draw is made from: the logits, changed by edits (in their order, add, ratio, less),
 * -infinity where the mask has no bit. Only finite x are candidates. Their order: the greatest first, the lowest id on ties. */
#pragma once
#include <stdint.h>

enum {
    INFER_TOP = 128,      /* candidates of struct infer_top */
    INFER_EDITS_MAX = 512 /* edits of one draw */
};

/* x = logit + add; x = x > 0 ? x / ratio : x * ratio; x = x - less */
struct infer_edit {
    int32_t id; /* each at most once in a draw */
    float add, ratio, less;
};

/* Each step keeps the first candidates; w(x) = exp((x - greatest x) / t), t is 1 and from INFER_DRAW_TEMP on temp. */
enum infer_draw_step {
    INFER_DRAW_END,
    INFER_DRAW_TOP_K, /* at most top_k of them */
    INFER_DRAW_TOP_P, /* the fewest whose w add up to top_p of the sum over those kept so far */
    INFER_DRAW_MIN_P, /* w at least min_p; a difference in the last bit of the greatest x does not count */
    INFER_DRAW_TEMP,
    INFER_DRAW_STEPS
};

/* The token is the first candidate at which the sum of w, over those that are kept, exceeds u of their whole sum; 0 where
 * there is no candidate. */
struct infer_draw {
    double u;                      /* a random number in [0, 1) */
    float temp;                    /* at least 1e-6 */
    float top_p, min_p;            /* 0 to 1 */
    int32_t top_k;                 /* at least 1 */
    uint8_t order[8];              /* enum infer_draw_step, each at most once, ended by INFER_DRAW_END */
    int32_t n_edit;                /* at most INFER_EDITS_MAX */
    const struct infer_edit *edit; /* edit[n_edit], ids within the vocabulary */
    const uint64_t
        *mask; /* bit i % 64 of mask[i / 64], mask[(n_vocab + 63) / 64]: token i may come; NULL: all */
};

/* The first candidates of a row, before any step. */
struct infer_top {
    double sum;      /* of exp(x - x[0]) over all candidates: ln of the softmax of x is x - x[0] - ln sum */
    double sum_temp; /* of exp((x - x[0]) / temp) of the draw; without a draw as sum */
    int32_t n;       /* INFER_TOP, or as many as there are */
    float chosen;    /* x of the token, 0 where none was wanted */
    int32_t id[INFER_TOP];
    float x[INFER_TOP]; /* x[n] */
};

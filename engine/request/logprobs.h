/* How likely the model held each token of the answer, and the N likeliest ones at its place.
 *
 * ln of the softmax over all of the model's logits, before biases, penalties, temperature, filters and grammar, from the
 * greatest of them and their sum; the figures are the same for any number of threads. */
#pragma once
#include <stdint.h>
#include "base/status.h"
#include "infer_draw.h"

enum { LOGPROBS_MAX = 20 }; /* most alternatives */

struct logprob {
    int32_t id;
    float logprob;
};
struct logprobs {
    int n_top;  /* -1: off */
    int n, cap; /* tokens so far */
    /* row[n][1 + n_top]: the chosen token, then the likeliest, the lowest id first on ties */
    struct logprob *row;
};

/* Starts anew with n_top alternatives. */
void logprobs_start(struct logprobs *p, int n_top);
void logprobs_free(struct logprobs *p);
/* Adds the token that was chosen, with its logit, where the model gave these logits. errors: INFER_E_MEMORY */
enum infer_status logprobs_add(struct logprobs *p, const struct infer_top *t, int32_t id, float logit);
/* The tokens so far in the order of the answer: entries [1 + n_top], the chosen token first; id -1: none. */
const struct logprob *logprobs_at(const struct logprobs *p, int i);

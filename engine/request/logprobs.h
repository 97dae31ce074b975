/* How likely the model held each token of the answer, and the N likeliest ones at its place.
 *
 * ln of the softmax over all of the model's logits, before biases, penalties, temperature, filters and grammar, from the
 * greatest of them and their sum; the figures are the same for any number of threads. */
#pragma once
#include "base/status.h"
#include "infer_request.h"

/* Starts anew with n_top alternatives. */
void logprobs_start(struct infer_logprobs *p, int n_top);
void logprobs_free(struct infer_logprobs *p);
/* Adds the token that was chosen, with its logit, where the model gave these logits. errors: INFER_E_MEMORY */
enum infer_status logprobs_add(struct infer_logprobs *p, const struct infer_top *t, int32_t id, float logit);

/* --logprobs N for people and programs. */
#pragma once
#include <jansson.h>
#include "infer.h"
#include "infer_request.h"

/* [{"id", "token", "logprob", "top": [{"id", "token", "logprob"}]}] of the first n tokens; a token that is no UTF-8 has
 * "bytes" instead of "token". NULL: out of memory. */
json_t *logprobs_json(const struct infer_logprobs *p, const struct infer_model *m, int n);
/* The same as a table on stderr. */
void logprobs_print(const struct infer_logprobs *p, const struct infer_model *m, int n);

/* Texts that an answer must not hold, whatever tokens they would be made of: which tokens may not come next. */
#pragma once
#include "infer_request.h"

/* Most ids that avoid_next gives. */
int avoid_most(const struct infer_avoid *a);
/* The ids that would complete one of the texts behind tail[n], the last INFER_AVOID_BYTES bytes of the answer or all of it; some perhaps more than once. */
int avoid_next(const struct infer_avoid *a, const char *tail, size_t n, int32_t *ids);

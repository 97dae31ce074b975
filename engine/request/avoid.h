/* Texts that an answer must not hold, whatever tokens they would be made of: which tokens may not come next. */
#pragma once
#include "infer.h"

enum { AVOID_TEXTS = 64, AVOID_BYTES = 128 }; /* texts; bytes of one */

/* Immutable, shared by requests. */
struct avoid;
/* text[n], of 1 to AVOID_BYTES bytes each, at most AVOID_TEXTS. Looks at the vocabulary once a text. errors: INFER_E_INPUT, INFER_E_MEMORY */
enum infer_status avoid_open(struct avoid **out, const struct infer_model *m, const char *const *text, int n);
void avoid_close(struct avoid *a);
/* Most ids that avoid_next gives. */
int avoid_most(const struct avoid *a);
/* The ids that would complete one of the texts behind tail[n], the last AVOID_BYTES bytes of the answer or all of it; some perhaps more than once. */
int avoid_next(const struct avoid *a, const char *tail, size_t n, int32_t *ids);

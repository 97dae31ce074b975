/* Inside of struct infer_constraint: which tokens an answer may have. */
#pragma once
#include "infer_request.h"

/* A new answer begins. */
void constrain_reset(struct infer_constraint *c);
/* Which tokens may come next, as struct infer_draw has it; valid until the next call. */
const uint64_t *constrain_mask(struct infer_constraint *c);
/* The logits with those of the other tokens forbidden; valid until the next call. */
const float *constrain_logits(struct infer_constraint *c, const float *logits);
/* Goes on by text that came otherwise; false, and nothing changes: it does not fit. */
bool constrain_text(struct infer_constraint *c, const char *text, size_t n);
/* Goes on by a token. errors: INFER_E_UNSUPPORTED (no token of the vocabulary fits) */
enum infer_status constrain_accept(struct infer_constraint *c, int32_t id);

/* --grammar and --json-schema: which tokens an answer may have. */
#pragma once
#include "tools/options.h"
#include "text/sample/sample.h"
#include "tools/session.h"

struct constraint;
/* *out is NULL when the options ask for none. errors: INFER_E_INPUT and INFER_E_UNSUPPORTED of the grammar or schema (and both
 * given), INFER_E_IO (its file), INFER_E_MEMORY */
enum infer_status constrain_open(struct constraint **out, const struct session *s, const struct options *o);
void constrain_close(struct constraint *c);
/* A new answer begins. */
void constrain_reset(struct constraint *c);
/* Draws a token that may come next. errors: INFER_E_UNSUPPORTED (no token of the vocabulary fits) */
enum infer_status constrain_token(struct constraint *c, struct sampler *sampler, const float *logits,
                                  int32_t *id);

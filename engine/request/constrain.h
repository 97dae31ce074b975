/* Which tokens an answer may have: a grammar in GBNF, or the one of a JSON Schema. */
#pragma once
#include "infer.h"
#include "text/grammar/grammar.h"
#include "text/sample/sample.h"

/* The vocabulary of a model as grammars need it; immutable, shared by the constraints of all requests. Free with
 * grammar_vocab_close. errors: INFER_E_MEMORY */
enum infer_status constrain_vocab(struct grammar_vocab **out, const struct infer_model *m);

/* Follows one answer at a time. */
struct constraint;
/* g and v outlive it. errors: INFER_E_MEMORY, INFER_E_INPUT (the grammar branches too much at its start) */
enum infer_status constrain_open(struct constraint **out, const struct grammar *g,
                                 const struct grammar_vocab *v, int n_vocab);
void constrain_close(struct constraint *c);
/* A new answer begins. */
void constrain_reset(struct constraint *c);
/* Draws a token that may come next. errors: INFER_E_UNSUPPORTED (no token of the vocabulary fits) */
enum infer_status constrain_token(struct constraint *c, struct sampler *sampler, const float *logits,
                                  int32_t *id);

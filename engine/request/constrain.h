/* Which tokens an answer may have: a grammar in GBNF, or the one of a JSON Schema. */
#pragma once
#include "infer.h"
#include "text/grammar/grammar.h"

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
/* Which tokens may come next, as struct infer_draw has it; valid until the next call. */
const uint64_t *constrain_mask(struct constraint *c);
/* The logits with those of the other tokens forbidden; valid until the next call. */
const float *constrain_logits(struct constraint *c, const float *logits);
/* Goes on by text that came otherwise; false, and nothing changes: it does not fit. */
bool constrain_text(struct constraint *c, const char *text, size_t n);
/* Goes on by a token. errors: INFER_E_UNSUPPORTED (no token of the vocabulary fits) */
enum infer_status constrain_accept(struct constraint *c, int32_t id);

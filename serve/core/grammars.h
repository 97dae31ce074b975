/* Compiled grammars by their text: clients send the same schema with each request. */
#pragma once
#include "base/status.h"
#include "infer_request.h"
#include "serve/core/metrics.h"

struct grammars;
struct kept_grammar;
/* errors: INFER_E_MEMORY */
enum infer_status grammars_open(struct grammars **out, struct metrics *m);
/* All that were taken have been given back. */
void grammars_close(struct grammars *g);
/* The grammar of text[n], made at the first call; *out until grammars_give. errors: those of infer_grammar_open */
enum infer_status grammars_take(struct grammars *g, enum infer_grammar_kind kind, const char *text, size_t n,
                                struct kept_grammar **kept, struct infer_grammar **out);
void grammars_give(struct grammars *g, struct kept_grammar *kept);

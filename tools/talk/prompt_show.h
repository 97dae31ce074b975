/* --show-prompt. */
#pragma once
#include "infer_request.h"

/* Text, ids, pieces and special tokens of a prompt, and what ends an answer to it, on stderr. Warns of what looks wrong: two BOS, no
 * token that ends an answer, marks of the template that are no tokens of this vocabulary, a wish (thinking) that the template
 * has no variable for. */
void prompt_show(const struct infer_prompt *p, const struct infer_model *m,
                 const struct infer_prompt_template *t);

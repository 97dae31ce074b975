/* What does not fit between a template and a vocabulary. */
#pragma once
#include "infer_request.h"

/* The marks of the template (<|im_end|>, [INST]) that are no tokens of the vocabulary, each once, into line[n], "" when there are
 * none; how many have no room there. */
int prompt_unknown_marks(const struct infer_model *m, const struct infer_prompt_template *t, char *line,
                         size_t n);
/* A token that is no text: its piece is empty unless special ones are shown. */
bool prompt_is_special(const struct infer_model *m, int32_t id);

/* What a chat template says about the end of a turn, and what does not fit between a template and a vocabulary. */
#pragma once
#include "request/prompt.h"

/* How the template ends an answer: the control token behind it, or the text where the vocabulary has no such token. */
struct turn_end {
    int32_t id;    /* -1: none was found */
    char text[64]; /* "": a token ends it, or nothing does */
};
/* Renders a short conversation and looks behind the answer in it. Nothing is found where the template refuses. */
struct turn_end prompt_turn_end(const struct infer_model *m, const struct prompt_template *t);

/* The marks of the template (<|im_end|>, [INST]) that are no tokens of the vocabulary, each once, into line[n], "" when there are
 * none; how many have no room there. */
int prompt_unknown_marks(const struct infer_model *m, const struct prompt_template *t, char *line, size_t n);
/* A token that is no text: its piece is empty unless special ones are shown. */
bool prompt_is_special(const struct infer_model *m, int32_t id);

/* What a chat template says about the end of a turn, and what looks wrong between a template and a vocabulary. */
#pragma once
#include "request/prompt.h"

/* How the template ends an answer: the control token behind it, or the text where the vocabulary has no such token. */
struct turn_end {
    int32_t id;    /* -1: none was found */
    char text[64]; /* "": a token ends it, or nothing does */
};
/* Renders a short conversation and looks behind the answer in it. Nothing is found where the template refuses. */
struct turn_end prompt_turn_end(const struct session *s, const struct chat_template *t);

/* Warns on stderr: two BOS, no token that ends an answer, marks of the template that are no tokens of this vocabulary, a
 * wish (thinking) that the template has no variable for. */
void prompt_check(const struct prompt *p, const struct session *s, const struct chat_template *t);
/* The special tokens of a prompt, and those that end an answer, on stderr. */
void prompt_show_special(const struct prompt *p, const struct session *s, const struct chat_template *t);

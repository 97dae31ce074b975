/* Messages -> token ids: through a chat template, or a text as it is. */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "infer.h"

struct prompt {
    char *text; /* text[n_text], as the tokenizer gets it */
    size_t n_text;
    int32_t *ids; /* ids[n] */
    int n;
};
void prompt_free(struct prompt *p);

struct prompt_template {
    const char *text; /* text[n], of the model's file or another; NULL: none */
    size_t n;
    bool no_thinking; /* enable_thinking is false */
    /* Of one conversation: further variables by name (tools, switches), NULL: none; and tail[n_tail], text behind what the template makes,
     * in which special tokens are text. */
    const json_t *variables;
    const char *tail;
    size_t n_tail, n_own; /* but for its first bytes, tail[n_own], where they are tokens */
};

/* Renders messages (a JSON array of {role, content}) with the beginning of an answer behind them, or (generate false) without.
 * errors: INFER_E_INPUT (the template's), INFER_E_UNSUPPORTED (no tokenizer), INFER_E_MEMORY */
enum infer_status prompt_render(struct prompt *p, const struct infer_model *m,
                                const struct prompt_template *t, json_t *messages, bool generate);
/* Text as it is; special tokens in it are text, or (special) tokens; what the model adds in front is added. */
enum infer_status prompt_text(struct prompt *p, const struct infer_model *m, const char *text, size_t n,
                              bool special);

/* Appends {role, content[n]}; errors: INFER_E_INPUT (no UTF-8: names the byte), INFER_E_MEMORY */
enum infer_status prompt_add_message(json_t *messages, const char *role, const char *content, size_t n);

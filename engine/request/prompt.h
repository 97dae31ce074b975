/* Messages -> token ids: the chat template of the file (or of --template), or the text as it is (--raw). */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "tools/options.h"
#include "tools/session.h"

struct prompt {
    char *text; /* text[n_text], as the tokenizer gets it */
    size_t n_text;
    int32_t *ids; /* ids[n] */
    int n;
};
void prompt_free(struct prompt *p);

/* The template to use; NULL: none, or --raw. errors: INFER_E_IO (--template cannot be read) */
struct chat_template {
    char *owned; /* read from --template */
    const char *text;
    size_t n;
    bool no_thinking; /* --thinking off: enable_thinking is false */
};
enum infer_status prompt_template(struct chat_template *t, const struct session *s, const struct options *o);
void prompt_template_free(struct chat_template *t);

/* Renders messages (a JSON array of {role, content}) with the beginning of an answer behind them.
 * errors: INFER_E_INPUT (the template's), INFER_E_UNSUPPORTED (no tokenizer), INFER_E_MEMORY */
enum infer_status prompt_messages(struct prompt *p, const struct session *s, const struct chat_template *t,
                                  json_t *messages);
/* The same, with the beginning of an answer or (generate false) without it. */
enum infer_status prompt_render(struct prompt *p, const struct session *s, const struct chat_template *t,
                                json_t *messages, bool generate);
/* Text as it is; special tokens in it are text, what the model adds in front is added. */
enum infer_status prompt_text(struct prompt *p, const struct session *s, const char *text, size_t n);

/* Appends {role, content[n]}; errors: INFER_E_INPUT (no UTF-8: names the byte), INFER_E_MEMORY */
enum infer_status prompt_add_message(json_t *messages, const char *role, const char *content, size_t n);

/* --show-prompt: text, ids, pieces and special tokens on stderr, with what looks wrong about them (prompt_check.h). */
void prompt_show(const struct prompt *p, const struct session *s, const struct chat_template *t);

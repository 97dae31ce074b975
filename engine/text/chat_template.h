/* Chat templates: messages -> prompt text with marks, by our Jinja interpreter (jinja.h).
 *
 * Strings carry marks: one byte beside each byte of text, non-zero where it came from the content of a user,
 * tool or document message. The marks go to tok_encode, which parses special tokens in unmarked bytes only.
 */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"

struct chat_text {
    char *text;     /* text[n], ended by 0 */
    uint8_t *marks; /* marks[n] */
    size_t n;
};

/* Renders a template with the variables of vars, an object (messages, tools, documents, add_generation_prompt,
 * bos_token, eos_token, now, and any further ones). Free the result with chat_text_free.
 * errors: INFER_E_INPUT (template syntax with line, undefined call, raise_exception with its message,
 * budgets), INFER_E_MEMORY. */
enum infer_status chat_render(struct chat_text *out, const char *template_text, size_t template_len,
                              const json_t *vars);
void chat_text_free(struct chat_text *t);

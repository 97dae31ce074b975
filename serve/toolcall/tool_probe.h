/* What a model's chat template says about tools and reasoning, found once when the model is opened: by rendering it, and by the marks
 * that stand in its text. */
#pragma once
#include "serve/toolcall/tool_int.h"

struct tool_template {
    const char *text; /* text[n]; NULL: none */
    size_t n;
    const char *bos, *eos; /* NULL: none */
    /* As in tool_format_set. */
    int32_t (*control)(void *user, const char *s, size_t n);
    void *user;
};
struct tool_probe {
    struct tool_format format; /* format.row NULL: none is known */
    bool rendered;             /* the template renders a call, and the parser gives it back */
    bool offers;               /* it shows tools to the model */
    bool described;            /* it does not: tools have to be told in a system message (tool_tell) */
    const char *thinking;      /* the switch that turns reasoning on and off, "enable_thinking"; NULL: none */
    bool effort;               /* it reads reasoning_effort */
    const char *think[2];      /* what stands around reasoning; NULL: it shows nothing of it */
};
/* errors: INFER_E_MEMORY; a template that cannot be rendered is one without tools */
enum infer_status tool_probe(struct tool_probe *out, const struct tool_template *t);
/* Where the prompt leaves off, prompt[n] ending with the beginning of an answer. */
enum tool_start tool_start(const struct tool_probe *p, const char *prompt, size_t n);
/* For a template that shows no tools (described): they go into the first system message, and calls and their results that the template
 * would leave out become text. Contents are texts. errors: INFER_E_MEMORY */
enum infer_status tool_tell(const struct tool_probe *p, json_t *messages, const json_t *tools);

/* tool_grammar.c: the grammar of an answer that is a call, GBNF: of the function `name`, or (NULL) of any; several calls. Free with
 * mem_free. errors: INFER_E_INPUT and INFER_E_UNSUPPORTED (a schema, *bad is which tool), INFER_E_MEMORY */
enum infer_status tool_gbnf(char **out, const struct tool_row *row, const json_t *tools, const char *name,
                            bool several, size_t *bad);

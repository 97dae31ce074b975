/* What a model writes, taken apart as it comes: reasoning, content and tool calls. One machine for all formats; a format is a
 * row of tool_shapes.def.
 *
 *     tool_open(&p, &options);
 *     for each token: tool_push(p, id, piece, n);   // events come out of here
 *     tool_finish(p);                               // and what was held back, out of here
 *     tool_close(p);
 *
 * What the events say, added up, does not depend on how the text was cut into tokens. Text is held back only as long as it
 * could become a mark of the format, or is white space that a call may follow. Any bytes may come: broken UTF-8 becomes
 * U+FFFD. Work is linear in the text, memory the longest part that has to be held. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum tool_event_kind {
    TOOL_REASONING, /* text[n] more of what the model thinks */
    TOOL_CONTENT,   /* text[n] more of the answer */
    TOOL_CALL,      /* a call begins: text[n] its function's name; id as the model wrote it, or NULL */
    TOOL_ARGS,      /* text[n] more of the call's arguments, a JSON object in the end */
    TOOL_END,       /* the call has ended; cut: the answer ended inside it, its arguments are incomplete */
};
struct tool_event {
    enum tool_event_kind kind;
    int call; /* which call, from 0; not of reasoning and content */
    const char
        *text; /* text[n], whole UTF-8 characters; valid during the callback, ended by 0 for TOOL_CALL */
    size_t n;
    const char *id;
    bool cut;
};

/* Where in an answer the prompt has left off (tool_start). */
enum tool_start {
    TOOL_START_ANSWER,    /* the answer begins, and may open a reasoning part */
    TOOL_START_REASONING, /* the prompt has opened it */
    TOOL_START_CONTENT,   /* the prompt has closed it, or content is continued: none comes */
    TOOL_START_HEADER,    /* harmony: the header of a message comes first */
};

struct tool_format; /* a model's: tool_probe.h; or a row's alone: tool_format_row */
struct tool_parser;

struct tool_options {
    const struct tool_format *format;
    /* [{type function, function {name, parameters}}]: names and types of arguments; NULL: nothing is a call */
    const json_t *tools;
    bool single;         /* no second call (parallel_tool_calls false): tool_done once the first has ended */
    bool keep_reasoning; /* reasoning stays in the content, tags and all (reasoning_format none) */
    /* marks may also come spelt out where the vocabulary has a control token for them: under a grammar */
    bool by_text;
    enum tool_start start;
    const char *const *stop; /* stop[n_stop]: content ends before any of these */
    int n_stop;
    enum infer_status (*on_event)(void *user, const struct tool_event *e);
    void *user;
};
/* What options points to outlives the parser. errors: INFER_E_MEMORY */
enum infer_status tool_open(struct tool_parser **out, const struct tool_options *o);
void tool_close(struct tool_parser *p);
/* The next token: its id (-1: text alone) and its bytes as they are shown, none for a control token.
 * errors: INFER_E_MEMORY, those of on_event */
enum infer_status tool_push(struct tool_parser *p, int32_t id, const char *piece, size_t n);
/* The answer has ended. */
enum infer_status tool_finish(struct tool_parser *p);
/* Nothing more will come out: a stop string was found, or the first call of `single` has ended. */
bool tool_done(const struct tool_parser *p);
/* Which of stop ended the content; -1: none. */
int tool_stop(const struct tool_parser *p);
/* Calls that have begun. */
int tool_calls(const struct tool_parser *p);
/* A call has begun and is not named yet: what it was made of so far, marks spelt out; else NULL. Valid until the next token. */
const char *tool_opened(struct tool_parser *p);
/* What comes now is reasoning. */
bool tool_reasons(const struct tool_parser *p);

/* Inside of the API of responses: what a request has said, and what its answer is made of. */
#pragma once
#include "serve/api/openai.h"

enum item { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };
struct responses_state {
    json_t *echo;   /* fields that the response object repeats */
    json_t *custom; /* names of custom tools */
    json_t *spaces; /* name -> {namespace, name} of tools in a namespace */
    json_t *names;  /* of the functions of calls, by call_id */
    bool summary, logprobs;
    int top_logprobs, sequence;
    bool ended; /* the response is complete */
    /* items[..]: those that are done, JSON with commas between; the one that is open */
    struct buf items, text, name, call_id;
    int n_item;
    enum item item;
    char id[40];
};

/* responses_read.c */
enum infer_status responses_read(struct job *j, const json_t *body);

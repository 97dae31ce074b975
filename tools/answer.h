/* The answer as text: pieces of tokens go in, text to show comes out; never half a character, never a stop
 * string or its beginning. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "options.h"
#include "tok.h"

struct answer {
    const struct option_texts *stop;
    struct tok_stream stream;
    char *text; /* text[n]: all of the answer without a stop string, ended by 0 */
    size_t n, cap;
    size_t shown; /* bytes that answer_take has handed out */
    bool stopped; /* a stop string was found */
    bool cut;     /* text ends in the middle of a character: the last answer_finish found bytes held back */
};

/* stop: may be NULL. Frees what an earlier answer held. */
void answer_start(struct answer *a, const struct option_texts *stop);
void answer_free(struct answer *a);
/* Adds the bytes of one token. errors: INFER_E_MEMORY */
enum infer_status answer_push(struct answer *a, const char *piece, size_t n);
/* The answer has ended: what was held back becomes text. */
enum infer_status answer_finish(struct answer *a);
/* Text that is new and can be shown; *n_out may be 0. finished: also what could begin a stop string. */
const char *answer_take(struct answer *a, bool finished, size_t *n_out);

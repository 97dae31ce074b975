/* The answer as text: pieces of tokens go in, text to show comes out; never half a character, never a stop
 * string or its beginning. What a model thinks before it answers (<think>..</think> and its kin) comes out apart. */
#pragma once
#include "infer_request.h"
#include "text/tok/tok.h"

struct answer {
    const char *const *stop; /* stop[n_stop] */
    int n_stop;
    struct tok_stream stream;
    char *text; /* text[n]: all that came, without a stop string, ended by 0 */
    size_t n, cap;
    size_t thought;   /* where the thinking part begins: behind its tag */
    size_t thought_n; /* its bytes, once it has ended */
    size_t begin;     /* where the answer begins, once it has */
    size_t shown;     /* up to where answer_take has handed out */
    int phase;
    bool stopped;   /* a stop string was found */
    int stopped_by; /* which */
    bool cut;       /* the text ended in the middle of a character */
};

/* The answer ends before any of stop[n_stop], which live as long. Frees what an earlier answer held. */
void answer_start(struct answer *a, const char *const *stop, int n_stop, enum infer_answer_start start);
void answer_free(struct answer *a);
/* Adds the bytes of one token. errors: INFER_E_MEMORY */
enum infer_status answer_push(struct answer *a, const char *piece, size_t n);
/* The answer has ended: what was held back becomes text. */
enum infer_status answer_finish(struct answer *a);
/* The next text that can be shown, all of it answer or all of it *thinking; *n_out 0: none for now. */
const char *answer_take(struct answer *a, size_t *n_out, bool *thinking);

/* The answer and the thinking part, complete after answer_finish; views into a. */
const char *answer_text(const struct answer *a, size_t *n_out);
const char *answer_thinking(const struct answer *a, size_t *n_out);

/* What opens the thinking that piece[n] closes, NULL: it closes none; and number i of all that close some, NULL behind the last. */
const char *answer_opener(const char *piece, size_t n);
const char *answer_closing(int i);
/* True where a sentence ends, or a line, as far as the text goes. */
bool answer_sentence(const struct answer *a);
/* True while what comes is thinking. */
bool answer_thinks(const struct answer *a);
/* True for a token's text that opens or closes a thinking part, which is let through even if it is a control
 * token. */
bool answer_is_tag(const char *piece, size_t n);

/* The answer so far, complete when it has ended. */
const struct answer *request_answer(const struct infer_request *r);

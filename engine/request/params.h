/* What a request asks for: a plain struct, that a command line, a server or a test fills in. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "infer.h"
#include "request/answer.h"
#include "request/avoid.h"
#include "text/sample/sample.h"

enum { REQUEST_DRAFT = 6 }; /* most tokens that are guessed at once */

/* Who guesses what follows, so that several tokens are checked in one step. */
enum request_drafter {
    DRAFT_NONE,
    DRAFT_LOOKUP, /* the text so far: what stood behind its last three tokens before */
    DRAFT_MODEL,  /* the model of sched_draft_with */
};

/* What becomes of the prompt: an answer, or numbers alone (request_made), after which the request is done (REQUEST_LIMIT). */
enum request_make {
    MAKE_ANSWER,
    MAKE_LAST, /* the hidden row of its last token, [n_embd]; as the next two with an engine that was made with .hidden */
    MAKE_FIRST,  /* of its first */
    MAKE_MEAN,   /* the mean of all of them */
    MAKE_LOGITS, /* the logits of make_id[n_make_id] behind its last token */
};

/* What happens when the context is full. */
enum request_overflow {
    OVERFLOW_END,   /* the answer ends (REQUEST_FULL) */
    OVERFLOW_SHIFT, /* its older half, but for its first token, is dropped and the rest computed again */
};

/* Texts, lists and the constraint are the caller's and have to live until request_free; ids are copied. */
struct request_params {
    int seq; /* an open sequence of the engine, of this request alone until it is done; -1: one that is taken when there is a slot and
                pages for it, and given back when it is done */
    /* of seq -1 and of what is put aside: among whose pages the beginning of the prompt is looked for */
    struct infer_prefix prefix;
    int priority; /* who waits, the greatest first; the least are put aside when pages run out */
    const int32_t
        *ids; /* the prompt, ids[n_id]: what the sequence holds of it already is not computed again */
    int n_id;
    struct sample_params sample;   /* without dry_breaker, which the vocabulary gives */
    struct constraint *constraint; /* NULL: every token may come */
    const struct avoid *avoid;     /* NULL: every text may come */
    const char *const *stop;       /* stop[n_stop]: the answer ends before any of these texts */
    int n_stop;
    int32_t end_id;         /* a token that ends the answer beside those of the model; -1: none */
    const int32_t *end_ids; /* further such tokens, end_ids[n_end_id] */
    int n_end_id;
    bool special;            /* control tokens are part of the text */
    enum answer_start start; /* how the answer begins, which the prompt decides */
    bool first;              /* its first token begins a text: a leading space of SentencePiece is dropped */
    enum request_make make;
    const int32_t *make_id; /* make_id[n_make_id] */
    int n_make_id;
    int min_tokens; /* before so many nothing but a limit ends the answer; not under a grammar */
    int n_predict;  /* most tokens of the answer; -1: no limit */
    enum request_overflow overflow;
    bool loop_stop; /* an answer that repeats itself ends (loop.h) */
    /* greedy answers, and with lookup all answers, have the tokens that they have without */
    enum request_drafter drafter;
    int n_draft;   /* most tokens guessed at once; 0: REQUEST_DRAFT */
    int n_logprob; /* log probabilities with so many alternatives; -1: none */
    /* the prompt's tokens have them, too (request_scores); slow: a step gives few rows of logits */
    bool score;
    /* Thinking may have about n_think tokens, think_end then ends it: its tokens are the answer's next ones. thinks tells whether a
     * token that was told to on_token is one of thinking, for a reader that takes them apart itself (start ANSWER_PLAIN); NULL: by start. */
    int n_think;              /* 0: no limit */
    const int32_t *think_end; /* think_end[n_think_end] */
    int n_think_end;
    bool (*thinks)(void *user);
    /* With a constraint: it does not hold until this, asked behind each token, gives a text; then for what follows, as if that text had
     * come first. NULL: from the beginning. */
    const char *(*wakes)(void *user);
    /* Called by sched_step, and none after the request is done; each may be NULL. token: one of the answer, before its text. text:
     * the next part that can be shown, all of it answer or all of it thinking; an error ends the request with it. prompt: tokens of
     * the prompt computed now, of those that have to be: from 0 to n. */
    void (*on_token)(void *user, int32_t id);
    enum infer_status (*on_text)(void *user, const char *text, size_t n, bool thinking);
    void (*on_prompt)(void *user, int done, int n);
    void *user;
};

/* A greedy request without limits for sequence 0, without a prompt. */
struct request_params request_defaults(void);
/* True when the device chooses the tokens: nothing needs a row of logits. */
bool request_is_greedy(const struct request_params *p);

/* What an answer has given so far and nobody has read yet: the engine thread adds, the HTTP thread of the connection takes. A reader that
 * is slow makes nobody wait: a log grows to at most what an answer in one context can have. */
#pragma once
#include "serve/core/frontend.h"

/* kind: of event_kind, or a token. */
enum { PIECE_TOKEN = 100 };
struct piece {
    uint8_t kind;
    bool flag;  /* EVENT_CALL: the id is the model's own */
    int32_t a;  /* token id; call; tokens of the prompt that are computed */
    uint32_t n; /* bytes of text; with EVENT_PROGRESS tokens of the prompt */
    /* EVENT_CALL: bytes of the id, which stands behind the name; EVENT_PROGRESS: cached tokens */
    uint32_t id;
    float logprob;
};
struct answer_log {
    /* bytes; struct piece; struct infer_logprob, as many a token as are asked for */
    struct buf text, piece, top;
};
void log_free(struct answer_log *l);

/* A choice: from its job and the seed to the state of its answer. */
struct choice {
    struct job *job;
    int index;
    const struct infer_prompt *prompt;
    struct choice *before; /* whose prompt is the same and is computed first; NULL: none */
    struct infer_constraint *constraint;
    struct tool_parser *parser; /* NULL: the answer is text, and reasoning */
    uint64_t seed;

    /* the engine thread's */
    enum choice_state { CHOICE_WAITS, CHOICE_RUNS, CHOICE_ENDED } state;
    void *run; /* the port's */
    int n_token, n_cached, n_reasoned, n_prompt_done;
    int lane;                           /* where it was noted, -1: nowhere; set before log_end */
    bool looped;                        /* it repeated itself, and was stopped; set before log_end */
    bool stopped;                       /* by what came: nothing more is wanted */
    bool call_cut;                      /* the last call is not whole */
    double began, first, latest, ended; /* host_seconds */
    double prompt_seconds, answer_seconds;
    int n_decoded, n_guessed, n_right;
    float *made; /* made[n_made], with ask.make; complete when the choice has ended */
    int n_made;
    bool told; /* something since the last wake */

    /* under the job's lock */
    struct answer_log log;
    enum job_finish finish; /* FINISH_NONE: not yet */
    const char *stop_text;
    int32_t stop_id;

    /* the HTTP thread's */
    struct answer_log read;
    size_t at_piece, at_text, at_top;
    bool end_told;
    struct job_answer answer;
};

/* The engine thread's side. Each takes the job's lock. */
void log_token(struct choice *c, int32_t id, const struct infer_logprob *top);
void log_text(struct choice *c, enum event_kind kind, int call, const char *text, size_t n);
void request_line(struct choice *c, int call, const char *name, const char *id);
void log_progress(struct choice *c, int done, int total);
/* The choice has ended, for a reason other than an error; the job has when all of its choices have. */
void log_end(struct choice *c, enum job_finish finish, const char *stop_text, int32_t stop_id);

/* The HTTP thread's side: hands what is new of all choices to tell, in order, after adding it up in job_answer; true: all have ended, and
 * EVENT_DONE was told. joined: pieces of a kind are told as one where several wait. */
typedef void log_tell(struct job *j, const struct event *e, void *user);
bool log_read(struct job *j, log_tell *tell, void *user);

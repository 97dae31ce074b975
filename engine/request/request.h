/* Requests: a prompt goes in, an answer comes out, token by token. Any number of them run side by side in one engine, each in a
 * sequence of its own:
 *
 *     sched_open(&s, engine, model);
 *     request_new(&a, s, &params_a);   // at any time between two steps
 *     request_new(&b, s, &params_b);
 *     while (sched_step(s)) ...;       // a step of all that are not done; the callbacks of the parameters get what comes
 *     if (request_status(a)) ...       // what failed, alone; request_why and the text tell the rest
 *     request_free(a);
 *
 * An answer is the same whoever else is there. One thread calls these functions for one engine; request_cancel alone may come from
 * another thread or a signal handler. docs/requests.md is a program of two. */
#pragma once
#include "infer.h"
#include "request/logprobs.h"
#include "request/params.h"

struct sched; /* what the requests of one engine share */
struct request;

/* errors: INFER_E_MEMORY */
enum infer_status sched_open(struct sched **out, struct infer_engine *e, const struct infer_model *m);
/* Its requests have to be freed before. */
void sched_close(struct sched *s);
/* Requests with DRAFT_MODEL have their guesses from this engine, of a model with the same vocabulary (infer_vocab_same) or of layers that
 * draft (infer_model_draft; s's engine was made with .hidden then), with as many slots and REQUEST_DRAFT + 1 decode rows; it serves nobody
 * else and outlives s. errors: INFER_E_MEMORY */
enum infer_status sched_draft_with(struct sched *s, struct infer_engine *e, const struct infer_model *m);
/* One step: rows of every request that is not done go to the engine together, results come back. False: nothing was left to do. What
 * fails ends the requests in question (REQUEST_FAILED). */
bool sched_step(struct sched *s);

/* Rows of prompts in a step in which others decode: at most `rows` (0: as many as a step has), and no more than keep it, as measured so
 * far, under so many milliseconds (0: no matter), at least 64. What no prompt may hold up for long is the tokens of the others. */
void sched_pace(struct sched *s, int rows, double milliseconds);

/* errors: INFER_E_INPUT (no prompt, a token outside of the vocabulary, parameters out of range, the sequence is not open or is another request's), INFER_E_FULL (a
 * prompt longer than the context or than all pages: both numbers), INFER_E_MEMORY, those of infer_seq_rewind */
enum infer_status request_new(struct request **out, struct sched *s, const struct request_params *p);
/* Of a request that is not done too; a step that it is in is waited for, and may call back others. r NULL: nothing. */
void request_free(struct request *r);
/* Steps until this one is done; request_status. */
enum infer_status request_run(struct request *r);

/* Ends it before its next row; what was answered is kept. Async-signal-safe; infer_cancel beside it stops the step that runs, which
 * is repeated for the other requests. */
void request_cancel(struct request *r);

/* Why an answer ended. */
enum request_why {
    REQUEST_RUNS,      /* it has not */
    REQUEST_TURN,      /* the model ended its turn */
    REQUEST_STOP,      /* a stop text */
    REQUEST_LIMIT,     /* n_predict */
    REQUEST_FULL,      /* the context is full, or no page is left and nobody else has one */
    REQUEST_CANCELLED, /* request_cancel */
    REQUEST_LOOP,      /* it repeats itself */
    REQUEST_FAILED,    /* request_status says how */
};
enum request_why request_why(const struct request *r);
/* It has ended and no step has anything of it: its sequence holds the prompt and the answer but for its last tokens. */
bool request_done(const struct request *r);
/* INFER_OK, or what ended it, with its message as this thread's. */
enum infer_status request_status(const struct request *r);

/* The answer so far, complete when it has ended. */
const struct answer *request_answer(const struct request *r);
/* Of the answer's tokens; n_top -1 without n_logprob. */
const struct logprobs *request_logprobs(const struct request *r);

/* Of the prompt's tokens from the second on (score), once the prompt is computed. */
const struct logprobs *request_scores(const struct request *r);

/* Of a request that makes numbers alone (make), made[n], once it is done with REQUEST_LIMIT. */
const float *request_made(const struct request *r, int *n);

struct request_figures {
    int n_reused, n_prompt;  /* tokens of the prompt: found in the sequence, computed */
    int n_answer, n_decoded; /* tokens of the answer; those that decoding made, all but the first */
    int n_held;              /* tokens that the sequence holds */
    int n_step;              /* decode steps */
    int n_guessed, n_right;  /* tokens that were guessed, and those of them that were right */
    int n_aside;             /* how often it gave its pages to others, and was computed again */
    int n_shift;             /* how often a full context was shortened */
    int32_t end_id;          /* the token that ended the turn; -1: none did */
    int cycle;               /* tokens of the cycle that the answer repeated in the end; 0: none */
    double prompt_seconds, answer_seconds; /* in steps that it was in, and in guessing for it */
    int n_even, n_even_step; /* of n_decoded and n_step: but for steps in which a host copied weights */
    double even_seconds;     /* and of answer_seconds */
    double plain_seconds;    /* the shortest step without guesses behind the first ones; 0: there was none */
};
const struct request_figures *request_figures(const struct request *r);

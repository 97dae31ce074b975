/* Generation: a prompt goes in, tokens come out one by one; what the sequence already holds is not computed
 * again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "request/answer.h"
#include "request/constrain.h"
#include "request/logprobs.h"
#include "request/loop.h"
#include "text/sample/sample.h"
#include "tools/session.h"

enum { GENERATE_GUESS = 6 }; /* most tokens that --lookup guesses at once */

struct generator {
    struct session *session;
    struct sampler *sampler;
    struct constraint *constraint; /* NULL: every token may come */
    struct sample_params params;
    struct logprobs logprobs; /* of the answer */
    int seq;
    int32_t *ids; /* ids[n_ids]: what the sequence holds, room for n_ctx + 1 */
    int n_ids;
    int32_t next; /* sampled, not yet fed */
    bool ahead;   /* a step that feeds next is in flight */
    bool lookup;  /* guess tokens from the text so far and check several at once */
    int32_t ready[GENERATE_GUESS +
                  1]; /* ready[first_ready ..]: n_ready tokens of the answer that are known already */
    int n_ready, first_ready;
    bool shift;             /* a full context drops its older half instead of ending the answer */
    int n_shift;            /* how often it did in this answer */
    struct infer_row *rows; /* rows[n_batch] */
    int32_t *spare;         /* spare[n_ctx + 1] */
    /* of the last prompt and the answer to it */
    int n_reused, n_prompt;  /* tokens of the prompt: found in the sequence, computed */
    int n_answer, n_decoded; /* tokens of the answer; those that decoding made, all but the first */
    int n_step;              /* decode steps */
    int n_guessed, n_right;  /* tokens that --lookup guessed, and those that were right */
    double prompt_seconds, answer_seconds;
    struct loop loop;
    int cycle; /* tokens of the cycle that ended the answer (GENERATE_LOOP) */
};

/* The sampling parameters of the options. errors: INFER_E_INPUT (--samplers, --logit-bias) */
enum infer_status generate_params(const struct options *o, struct sample_params *out);
enum infer_status generate_open(struct generator *g, struct session *s, const struct options *o,
                                const struct sample_params *p);
/* What a session needs for it. */
struct session_need generate_need(const struct options *o);
void generate_close(struct generator *g);
/* Other parameters from the next token on. */
enum infer_status generate_set(struct generator *g, const struct sample_params *p);

/* Makes the sequence hold ids[n], computes what is new and samples the first token of the answer. Only the part
 * behind the longest common prefix is computed. errors: INFER_E_FULL (longer than the context: both numbers),
 * INFER_E_INPUT (empty), INFER_E_CANCEL (the sequence keeps what was computed) and those of infer_step. */
enum infer_status generate_prompt(struct generator *g, const int32_t *ids, int n, int32_t *token);
/* Feeds the token before and samples the next. errors: INFER_E_FULL (context full), INFER_E_CANCEL. */
enum infer_status generate_next(struct generator *g, int32_t *token);
/* Ends the answer: what was computed ahead is dropped. To be called after the last generate_next. */
enum infer_status generate_end(struct generator *g);

/* Writes what the sequence holds, keys and values too, to path; takes it back. After a failed load the sequence is empty,
 * and the next prompt is computed whole. errors: those of infer_seq_save and infer_seq_load */
enum infer_status generate_save(struct generator *g, const char *path);
enum infer_status generate_load(struct generator *g, const char *path);

/* Why an answer ended. */
enum generate_why {
    GENERATE_TURN,   /* the model ended its turn */
    GENERATE_STOP,   /* a stop string */
    GENERATE_LIMIT,  /* -n */
    GENERATE_FULL,   /* the context is full */
    GENERATE_CANCEL, /* Ctrl-C */
    GENERATE_LOOP,   /* it repeats itself (loop.h) */
};
/* How an answer is made: most tokens of it (-1: no limit); first: its first token begins a text (a leading space
 * of SentencePiece is dropped); show gets text as it comes. */
struct generate_how {
    int limit;
    bool first;
    int32_t end;    /* a token that ends the answer beside those of the file; -1: none */
    bool loop_stop; /* an answer that repeats itself ends */
    enum infer_status (*show)(void *user, const char *text, size_t n, bool thinking);
    void *user;
};
/* Whether the options want an answer that repeats itself to end: not with -n, which says how long it may get. */
bool generate_loop_stop(const struct options *o);
/* Answers ids[n] into a (started by the caller). A full context and Ctrl-C are no errors: *why says so, and what
 * was answered is kept. errors: those of generate_prompt, generate_next and show. */
enum infer_status generate_answer(struct generator *g, const int32_t *ids, int n,
                                  const struct generate_how *how, struct answer *a, enum generate_why *why);

/* The line "prompt 31 tokens at 800 tok/s; answer ..." of the last answer, without a newline. */
void generate_summary(const struct generator *g, char *buf, size_t n);
/* Bytes that one decoded token reads at the middle of the last answer: weights, and keys and values. */
double generate_token_bytes(const struct generator *g);

/* Inside of a request and of what schedules it. */
#pragma once
#include <stdatomic.h>
#include "request/constrain.h"
#include "request/loop.h"
#include "request/request.h"

enum { SCHED_FLIGHTS = 2 }; /* steps that the engine takes before one is read */

/* What a step in flight has of a request. */
struct request_part {
    unsigned step;    /* sched.n_submit at that time */
    int row;          /* its first one among those of its class in the step */
    int n_row;        /* in flight together: of the prompt, or a token and the guesses behind it */
    int first, n_out; /* its outputs in those of the step */
    enum sample_by by;
};

/* How many tokens are worth guessing: by how many were right, not by clocks, so that one seed gives one answer. */
struct draft_pace {
    int most;   /* guesses of the next step */
    int rest;   /* steps without any */
    float rate; /* share of the right ones lately */
};

/* A sequence of the engine that guesses, for one of the engine that answers. */
struct draft_seq {
    int seq; /* -1: not open */
    /* Of a model that wants hidden rows: those rows that are no guesses, seq's first ones; the position of each row's token; and what was
     * made of tokens h_at .. h_at + n_h - 1, h[n_h][n_embd], which no row has had yet. */
    int n_true;
    int32_t *at; /* at[n_ctx] */
    float *h;    /* of REQUEST_DRAFT + 1 at most */
    int n_h, h_at;
};
struct drafter {
    struct infer_engine *engine;
    int n_ctx, n_batch, n_decode_rows;
    int n_embd;             /* of hidden rows, which it wants; 0: it does not */
    bool same_ids;          /* it has as many logits as the one that answers */
    struct draft_seq *of;   /* of[n_slot] */
    struct infer_row *rows; /* rows[n_batch + n_decode_rows] */
};

struct request {
    struct sched *sched;
    struct request *next; /* of sched */
    struct request_params p;
    struct sampler *sampler;
    struct logprobs logprobs;
    struct answer answer;
    struct loop loop;
    int32_t *
        feed; /* feed[n_feed]: what the sequence has to hold before a token comes: the prompt, or what a shift left of it all */
    int n_feed, n_begin;                      /* feed[0 .. n_begin) was there */
    bool decodes;                             /* all of it is computed */
    struct infer_draw draw;                   /* of the row that is being queued */
    int32_t last;                             /* the token that was chosen, and not fed yet */
    int n_token;                              /* chosen so far */
    int32_t draft[REQUEST_DRAFT];             /* guessed behind last, in flight */
    struct sample_guess guess[REQUEST_DRAFT]; /* what they were drawn from */
    struct draft_pace pace;
    struct request_part part[SCHED_FLIGHTS]; /* part[n_part], oldest first */
    int n_part;
    atomic_bool cancelled;
    enum request_why why;
    enum infer_status status;
    char message[512];
    struct request_figures figures;
};

struct sched {
    struct infer_engine *engine;
    const struct infer_model *model;
    int n_ctx, n_batch, n_decode_rows, n_logits, n_vocab, n_slot;
    bool
        ahead; /* the device works while the host does other things, so a step is queued before the one in front is read */
    int grid, state_step;      /* of models with states: where parts of prompts end, 0: anywhere */
    struct drafter *drafter;   /* NULL: none */
    struct request *first;     /* in the order they came */
    struct infer_row *rows;    /* rows[n_batch + n_decode_rows] */
    unsigned n_submit, n_wait; /* steps */
};

/* Puts r's rows for the next step, at most of these numbers, into rows; how many. It may end instead. With a part in flight it is asked
 * only after request_follows. */
struct request_room {
    int prompt, decode, logits;
};
int request_rows(struct request *r, struct infer_row *rows, const struct request_room *room);
/* True when r can queue a row behind its part in flight without knowing what that gives. */
bool request_follows(const struct request *r);
/* The oldest part's step has ended with st and, where that is INFER_OK, out; begin: when it was asked for, seconds. */
void request_take(struct request *r, enum infer_status st, const struct infer_output *out, double begin);
/* Guesses what follows r->last: at most `most` tokens into r->draft; *n: how many. errors: those of the engine that guesses */
enum infer_status request_guess(struct request *r, int most, int *n);
/* How a step went: so many guesses, so many of them right. */
void request_guessed(struct request *r, int n, int right, double seconds);
/* drafter.c: guesses by an engine, as request_guess; and what the step of a part made of n tokens from position pos on, which it may want
 * to know. */
enum infer_status drafter_guess(struct request *r, int most, int *n);
enum infer_status drafter_saw(struct request *r, const struct request_part *part, bool decode, int pos,
                              int n);
void drafter_close(struct drafter *d, int n_slot);
/* seconds of a monotonic clock */
double request_seconds(void);

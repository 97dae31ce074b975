/* Inside of a request and of what schedules it. */
#pragma once
#include <stdatomic.h>
#include "request/answer.h"
#include "request/avoid.h"
#include "request/constrain.h"
#include "request/logprobs.h"
#include "request/loop.h"
#include "text/sample/sample.h"

enum {
    SCHED_FLIGHTS = 2,  /* steps that the engine takes before one is read */
    SCHED_PAGE = 64,    /* positions of a page (infer_kv_free) */
    SCHED_EXPECTED = 64 /* tokens of an answer, until some have been seen */
};

/* What a step in flight has of a request. */
struct request_part {
    unsigned step;    /* sched.n_submit at that time */
    int row;          /* its first one among those of its class in the step */
    int n_row;        /* in flight together: of the prompt, or a token and the guesses behind it */
    int first, n_out; /* its outputs in those of the step */
    enum sample_by by;
};

/* How long steps with so many rows that decode take, seconds; what was not seen lately lies between, or beyond, what was. */
enum { TIMES_ROWS = 256 };
struct step_times {
    float seconds[TIMES_ROWS + 1]; /* 0: never seen; */
    unsigned seen[TIMES_ROWS + 1]; /* in which step, of n_step, last, */
    bool twice[TIMES_ROWS + 1];    /* and more than once */
    unsigned n_step;
    bool fixed; /* nothing more is learned: tests */
};

/* How many tokens are worth guessing for a request. */
enum { DRAFT_SURE = 3 };
struct draft_pace {
    float rate[DRAFT_SURE];      /* share of right guesses lately, by how sure they seem: */
    int sure;                    /* by how much of the text the next ones go on as before */
    int offer, planned;          /* of the next step: guesses that can be had, and as far as it is planned */
    int at[INFER_REQUEST_DRAFT]; /* with so many rows in all */
    int idle, pause;             /* steps without guesses so far; after how many they are tried again */
    bool on;                     /* there is something to guess: its next row waits for that */
};

/* What an answer is thought to be. */
struct draft_told {
    int32_t *ids;
    int n;
    int at;   /* ids[at] is thought to come next; below 0: the answer left it at -1 - at */
    int seen; /* tokens of the answer that were compared */
    int run;  /* of them the last so many were as told */
};

/* A sequence of the engine that guesses, for one of the engine that answers. */
struct draft_seq {
    int seq; /* -1: not open */
    /* Of a model that wants hidden rows: those rows that are no guesses, seq's first ones; the position of each row's token; and what was
     * made of tokens h_at .. h_at + n_h - 1, h[n_h][n_given], which no row has had yet. */
    int n_true;
    int32_t *at; /* at[n_ctx] */
    float *h;    /* of INFER_REQUEST_DRAFT + 1 at most */
    int n_h, h_at;
    int n_made; /* guesses for the step that is put together */
};
struct drafter {
    struct infer_engine *engine;
    int n_ctx, n_batch, n_decode_rows;
    int n_embd;             /* of hidden rows, which it wants; 0: it does not */
    int n_given, n_tapped;  /* struct infer_model_info */
    bool same_ids;          /* it has as many logits as the one that answers */
    struct draft_seq *of;   /* of[n_slot] */
    struct infer_row *rows; /* rows[n_batch + n_decode_rows] */
    /* Of the step that is put together: its rows, hidden rows in[n_decode_rows][n_given] of them, and whose guesses it makes, by its
     * outputs, in which rows. */
    int n_row, n_out;
    float *in;
    struct infer_request **who;
    int *at;
    struct step_times times;
};

struct infer_request {
    struct infer_sched *sched;
    struct infer_request *next; /* of sched */
    struct infer_request_params p;
    struct sampler *sampler;
    struct infer_logprobs logprobs, scores;
    struct answer answer;
    struct loop loop;
    /* feed[n_feed]: what the sequence has to hold before a token comes: the prompt, or what a shift left of it all */
    int32_t *feed;
    int n_feed, n_begin; /* feed[0 .. n_begin) was there */
    bool decodes;        /* all of it is computed */
    /* of the rows that are being queued; with guesses their edits, edit[][INFER_EDITS_MAX]; NULL: they have none */
    struct infer_draw draw[INFER_REQUEST_DRAFT + 1];
    struct infer_edit *edit;
    bool by_row; /* its tokens are chosen from rows of logits */
    /* again[n_again]: rows of the answer behind those of feed, which are computed once more */
    int32_t *again;
    int n_again;
    bool chosen;       /* last stands, and what is computed once more chooses nothing */
    bool waits;        /* for a slot and pages: not begun, or put aside */
    bool loads;        /* it begins with what infer_seq_kept brings, and has no rows before */
    bool own_seq;      /* p.seq is opened when it begins, and closed when it ends; -1 while it waits */
    bool skip, passed; /* of sched_admit: not now; since another one computes the same prompt */
    bool taken;        /* of a step that is being put together: it has rows in it */
    unsigned looked;   /* when it was seen that it has to wait, with so many free pages */
    int looked_free;
    int reached;                          /* positions of feed that were computed once, or were there */
    uint64_t order;                       /* of arrival */
    int32_t last;                         /* the token that was chosen, and not fed yet */
    int n_token;                          /* chosen so far */
    const struct infer_sample_bias *bias; /* bias[n_bias]: those that were asked for */
    int n_bias;
    struct infer_sample_bias *barred; /* those that hold now: of them all, of tokens that end an answer
                                   until min_tokens, and of tokens that p.avoid forbids; NULL: bias holds */
    bool endless;                     /* nothing may end it yet */
    char tail[INFER_AVOID_BYTES];     /* tail[n_tail]: the end of the answer, with p.avoid */
    size_t n_tail;
    int32_t *shut;        /* ids that p.avoid forbids now */
    int n_told;           /* tokens of think_end that were told */
    bool telling, awake;  /* think_end is being told; the constraint holds */
    bool thinks, closed;  /* the last token was one of thinking; think_end was told, */
    bool left;            /* and behind it something that is none */
    double thought_from;  /* host_seconds */
    int32_t mark, opener; /* of think_end's tokens the one that ends thinking, and what begins it; -1: none */
    float weight;         /* of mark now */
    double *sum;          /* of hidden rows, sum[n_embd] */
    int n_sum;            /* positions in it */
    float *made;          /* made[n_made] */
    int n_made;
    int32_t draft[INFER_REQUEST_DRAFT]; /* draft[n_draft]: guessed behind last, in flight */
    int n_draft;
    struct draft_pace pace;
    struct draft_told told;
    struct request_part part[SCHED_FLIGHTS]; /* part[n_part], oldest first */
    int n_part;
    atomic_bool cancelled;
    enum infer_request_why why;
    enum infer_status status;
    char message[512];
    struct infer_request_figures figures;
};

/* What steps with rows of prompts took, of the last ones the most: sums over their rows x and the seconds y beyond decoding. */
struct step_pace {
    int rows;      /* most of them beside rows that decode; 0: n_batch */
    double goal;   /* seconds of a step; 0: none */
    double decode; /* seconds of a step without them */
    double began;  /* host_seconds: the last step with such rows */
    double n, x, y, xx, xy;
};

struct infer_sched {
    struct infer_engine *engine;
    const struct infer_model *model;
    int n_ctx, n_batch, n_decode_rows, n_logits, n_vocab, n_slot, n_embd, n_adapter;
    /* the device works while the host does other things, so a step is queued before the one in front is read */
    bool ahead;
    int grid, state_step;      /* of models with states: where parts of prompts end, 0: anywhere */
    struct drafter *drafter;   /* NULL: none */
    struct step_times times;   /* of steps without rows of prompts */
    float rate[3][DRAFT_SURE]; /* of all requests, by enum infer_request_drafter; 0: not known */
    bool no_head;              /* vectors alone */
    bool encoder;              /* a prompt is one step, and nothing comes behind it */
    bool drafts_pay;           /* more rows could, now */
    bool prompts_next; /* steps have rows that decode or of prompts, in turns: the next one of prompts */
    struct infer_request *first; /* in the order they came */
    uint64_t n_come, turn;       /* requests so far; the first one that had no room in a step */
    int n_page;                  /* of the engine */
    double expected;             /* tokens of an answer that three of four do not exceed */
    struct step_pace pace;
    struct {
        int prompt, decode; /* rows */
        double begin;
    } flight[SCHED_FLIGHTS];
    double last_end;           /* when a step was read */
    bool rests;                /* no step is queued behind one in flight */
    bool keeps;                /* the engine has files of pages; */
    double may_keep;           /* seconds that infer_keep may take */
    struct infer_row *rows;    /* rows[n_batch + n_decode_rows] */
    int32_t (*axis)[3];        /* of rows that have such */
    struct sample_room *room;  /* of all samplers: a vocabulary each would be megabytes to clear */
    unsigned n_submit, n_wait; /* steps */
    /* steps that decoded so far; those of them in which a host copies weights */
    int n_decoding, repack_from, repack_to;
};

/* Puts r's rows for the next step, at most of these numbers, into rows; how many. It may end instead. With a part in flight it is asked
 * only after request_follows. */
struct request_room {
    int prompt, decode, logits;
};
int request_rows(struct infer_request *r, struct infer_row *rows, const struct request_room *room);
/* True while it has not ended and need not: a infer_request_cancel ends it here. */
bool request_goes_on(struct infer_request *r);
/* It ends with st and this thread's message. */
void request_fail(struct infer_request *r, enum infer_status st);
/* It ends since there is no page for its next row. */
void request_starves(struct infer_request *r);
/* What was answered is to be computed once more, as rows of the class that they had. errors: INFER_E_MEMORY */
enum infer_status request_keeps_answer(struct infer_request *r);
/* Rows of it that are in flight, and tokens that these give. */
int request_queued(const struct infer_request *r, int *tokens);
/* True when r can queue a row behind its part in flight without knowing what that gives. */
bool request_follows(const struct infer_request *r);
/* The oldest part's step has ended with st and, where that is INFER_OK, out; begin: when it was asked for, seconds. */
void request_take(struct infer_request *r, enum infer_status st, const struct infer_output *out,
                  double begin);
/* draft.c: guesses for the next step, which has n requests that decode and room for so many rows more; first: it is not behind another
 * one, else nobody guesses. Those who draft find r->draft[n_draft]. */
void draft_plan(struct infer_sched *s, int n, int room, bool first);
/* Whether r's next row has to wait until it is known what the one in flight gives, since guesses come behind that. */
bool draft_waits(const struct infer_request *r);
/* Whether what steps make of r's tokens is of use to who drafts. */
bool draft_reads(const struct infer_request *r);
/* How a step went: so many guesses, so many of them right. */
void request_guessed(struct infer_request *r, int n, int right, double seconds);
/* times.c: what a step with so many rows took; what one would take, 0: nothing is known. n at least 1 */
void times_saw(struct step_times *t, int n, double seconds);
double times_of(const struct step_times *t, int n);
/* sched.c: r has a row that decodes in the step that is put together. */
bool sched_decodes(const struct infer_request *r);
/* admit.c: requests that wait begin, as far as there is room. */
void sched_admit(struct infer_sched *s);
/* The youngest request of the least priority gives its pages up and waits; false: no other one runs. None of its rows is in flight. */
bool sched_put_aside(struct infer_sched *s);
/* What those that load find in files: all of it, or beside others (busy) a part; true while one of them has more to come. */
bool sched_load(struct infer_sched *s, bool busy);
/* sched.c: the pages that those who decode need for their next tokens. */
int decode_pages(const struct infer_sched *s);
/* How long an answer was. */
void admit_saw(struct infer_sched *s, int n_answer);
bool request_runs(const struct infer_request *r);
int pages_free(const struct infer_sched *s);
/* Pages that a sequence takes for so many rows more, or (rows 0) to reach a length; less than 0: it has more. */
int pages_more(const struct infer_request *r, int rows, int length);
/* Rows that a sequence has room for in its last page and so many more. */
int rows_that_fit(const struct infer_request *r, int pages);
/* steer.c: what steers an answer beside its sampler: no end before min_tokens, a budget of thinking, a constraint that sleeps.
 * errors: INFER_E_MEMORY, those of sample_set */
enum infer_status steer_open(struct infer_request *r);
void steer_close(struct infer_request *r);
/* The constraint that holds now; NULL: none. */
struct infer_constraint *steer_constraint(const struct infer_request *r);
/* A token was drawn: r->last is it, or the one that has to come. */
enum infer_status steer_chosen(struct infer_request *r);
/* A token was told to the reader. errors: that of a constraint which does not fit */
enum infer_status steer_told(struct infer_request *r);
/* The next token hangs on what is told of the one before, or (n) one of the next n could. */
bool steer_waits(const struct infer_request *r);
bool steer_near(const struct infer_request *r, int n);
/* The answer goes in circles, cycle > 0, or (0) is looked at for a thought that does: true when that ends the thought. */
bool steer_loops(struct infer_request *r, int cycle);
/* request_embed.c: tokens of the prompt that sequences of others may give it; what a part of it has made, from position `from` on.
 * errors: INFER_E_MEMORY, those of infer_hidden */
int embed_shares(const struct infer_request *r);
bool embed_of_rows(const struct infer_request *r);
enum infer_status embed_saw(struct infer_request *r, const struct request_part *part,
                            const struct infer_output *out, int from);
/* pace.c: most rows of prompts for the next step; and what a step took. */
int pace_rows(const struct infer_sched *s, bool decoding);
/* Whether so many rows of prompts, all that there are, wait for others beside n_decode that decode. */
bool pace_waits(const struct infer_sched *s, int rows, int n_decode, double now);
void pace_saw(struct infer_sched *s, int n_prompt, int n_decode, double seconds);
/* given.c: rows of the prompt that are no tokens. Whether they are in it; the ids that stand for them into feed; and what rows[n] of
 * sched->rows have of them: embeddings, and behind them other positions. errors: INFER_E_INPUT */
enum infer_status given_check(const struct infer_sched *s, const struct infer_request_params *p);
void given_ids(struct infer_request *r);
void given_fill(const struct infer_request *r, struct infer_row *rows, int n);
/* Of n rows from place `from` on, those that a part may have: it ends in no picture whose rows see each other; and the fewest that it has to
 * have. */
int given_part(const struct infer_request *r, int from, int n);
int given_least(const struct infer_request *r, int from);
/* drafter.c: guesses by an engine. Of at most so many tokens, how many can be had for r; the guesses of all requests that plan some, side by
 * side; and what the step of a part made of n tokens from position pos on, which it may want to know. */
int drafter_can(const struct infer_request *r, int most);
void drafter_guess(struct infer_sched *s);
/* r's sequence is about to be closed: so is that which guessed for it. */
void drafter_leaves(struct infer_request *r);
enum infer_status drafter_saw(struct infer_request *r, const struct request_part *part, bool decode, int pos,
                              int n);
void drafter_close(struct drafter *d, int n_slot);

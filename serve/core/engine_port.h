/* Who computes answers, behind the scheduler (scheduler.c): the engine (engine_port.c), or in tests one that recites a script. One thread
 * calls all of it. A port tells what comes by the functions below. */
#pragma once
#include "serve/core/answer_log.h"

struct port_end {
    enum infer_request_why why;
    int n_prompt, n_reused, n_answer,
        n_decoded; /* tokens: of the prompt, computed and not; of the answer; all of it but the first */
    int stop;      /* which of job.stop was found; -1: none */
    int n_guessed, n_right; /* tokens that were guessed, and those of them that were right */
    int n_aside;            /* how often it gave its pages to others */
    int32_t stop_id;        /* the token that ended the turn; -1: none did */
    double prompt_seconds, answer_seconds;
    int lane;  /* where it was noted; -1: nowhere */
    bool lost; /* the device is */
};

struct lane_order;
struct engine_port {
    int n_slot, n_ctx;
    int kv_tokens; /* positions of all sequences */
    bool guesses;  /* steps have room for tokens that are guessed */
    int n_embd;    /* of hidden rows; 0: there are none */
    void *state;
    /* Begins a choice (c->run); less than n_slot run. errors: those of infer_request_new */
    enum infer_status (*start)(struct engine_port *m, struct choice *c);
    /* Computes one step of all; false: nothing was left to do. */
    bool (*step)(struct engine_port *m);
    /* Computes a part of a picture that waits for its rows, beside answers as much as --itl-goal leaves; false: none waits any more. NULL:
     * it never does. */
    bool (*see)(struct engine_port *m, bool beside);
    /* Saves, restores or erases what a lane holds; false: not now, a step is in flight or all sequences are taken. NULL: there are no lanes. */
    bool (*order)(struct engine_port *m, struct lane_order *o);
    /* Something that can be done when nothing runs; false: nothing is left of that. NULL: there never is any. */
    bool (*idle)(struct engine_port *m);
    /* What is kept in files; NULL: not known. */
    void (*kept)(struct engine_port *m, struct infer_kept_info *out);
    /* Positions that are free; NULL: not known. */
    int (*kv_free)(struct engine_port *m);
    /* The choice is to end before its next row. */
    void (*cancel)(struct engine_port *m, struct choice *c);
    /* True when it has ended; a failure is returned in *st with this thread's message. */
    bool (*ended)(struct engine_port *m, struct choice *c, struct port_end *end, enum infer_status *st);
    /* Gives its slot back. */
    void (*close)(struct engine_port *m, struct choice *c);
    void (*free)(struct engine_port *m);
};

/* A token of the answer: top has it and the likeliest at its place, NULL unless log probabilities are asked for. Then its text, if any. */
void port_token(struct choice *c, int32_t id, const struct infer_logprob *top);
enum infer_status port_text(struct choice *c, const char *text, size_t n, bool thinking);
/* Of a prompt's `total` tokens to compute, `done` are. */
void port_prompt(struct choice *c, int done, int total);

/* What computes; all of it stays the caller's. */
struct port_engine {
    struct infer_engine *engine;
    const struct infer_model *model;
    struct infer_vision *vision; /* NULL: nothing sees */
    double gap_ms;               /* infer_sched_pace */
    /* who guesses for requests that do not say otherwise, at most so many tokens (0: no limit of its own); with INFER_DRAFT_MODEL by these */
    enum infer_request_drafter draft;
    int most;
    struct infer_engine *drafter;
    const struct infer_model *draft_model;
    bool lanes; /* what is answered is noted in them */
};
/* errors: INFER_E_MEMORY */
enum infer_status engine_port_open(struct engine_port **out, const struct port_engine *of);

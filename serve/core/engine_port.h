/* Who computes answers, behind the scheduler (scheduler.c): the engine (engine_port.c), or in tests one that recites a script. One thread
 * calls all of it. A port tells what comes by the functions below. */
#pragma once
#include "serve/core/answer_log.h"

struct port_end {
    enum infer_request_why why;
    int n_prompt, n_reused, n_answer,
        n_decoded;   /* tokens: of the prompt, computed and not; of the answer; all of it but the first */
    int stop;        /* which of job.stop was found; -1: none */
    int n_aside;     /* how often it gave its pages to others */
    int32_t stop_id; /* the token that ended the turn; -1: none did */
    double prompt_seconds, answer_seconds;
    bool lost; /* the device is */
};

struct engine_port {
    int n_slot, n_ctx;
    int kv_tokens; /* positions of all sequences */
    int n_embd;    /* of hidden rows; 0: there are none */
    void *state;
    /* Begins a choice (c->run); less than n_slot run. errors: those of infer_request_new */
    enum infer_status (*start)(struct engine_port *m, struct choice *c);
    /* Computes one step of all; false: nothing was left to do. */
    bool (*step)(struct engine_port *m);
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

/* The engine's; it and the model stay the caller's. gap_ms: infer_sched_pace. errors: INFER_E_MEMORY */
enum infer_status engine_port_open(struct engine_port **out, struct infer_engine *e,
                                   const struct infer_model *m, double gap_ms);

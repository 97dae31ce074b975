/* Where the time of an engine's steps goes: sums of each operation, and the newest single ones for a trace. An engine that is given a profile
 * (infer_engine_options.profile) fills it; one without asks a pointer. Of ranks the first one does so. On a card, where several operations run
 * as one (a link), links are timed, and those of some steps alone, so that it costs little: their sums stand for all steps. Every function may
 * be called beside a step. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "infer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct infer_profile;

/* spans: of single operations so many are kept, the newest; 0: sums alone. It outlives the engine, which is the only one that has it. errors:
 * INFER_E_MEMORY */
enum infer_status infer_profile_new(struct infer_profile **out, size_t spans);
void infer_profile_free(struct infer_profile *p);
/* On the processor each thread is to tell of its part of every operation, too (infer_profile_parts); so many are kept, the newest. Before the engine
 * is made. errors: INFER_E_MEMORY */
enum infer_status infer_profile_threads(struct infer_profile *p, size_t parts);
/* Forgets what was measured. */
void infer_profile_reset(struct infer_profile *p);

/* What an operation has written for one row: infer_engine_options.watch. */
struct infer_watched {
    const char *name, *kind; /* "ffn_down", "matmul" */
    int layer;               /* -1: outside of the layers */
    bool decode;             /* in the list of decode rows; else of prompt rows */
    int pos;                 /* the row's position */
    const float *x;          /* x[width]; NULL: not in a step, the operation is in the list */
    int width;
};

/* What operations of one name took together. On the processor an operation may have neighbours in it (a norm, an activation); where threads
 * need not wait for each other between two, the first one's time ends when one thread is through with it. */
struct infer_profile_row {
    const char *name,
        *kind;   /* "ffn_down", "matmul"; "(team)": threads that come together, rotations of the step */
    bool decode; /* rows that were generated, drafted or verified; else of prompts */
    uint64_t calls;
    double seconds;
    /* what these calls read and write at least once: weights (of experts those that such rows are likely to choose), keys and values, rows */
    double bytes;
    double flops; /* 2 per multiply-add of products; 0: none */
    /* of a link: the operations that it is, "attn_norm + attn_qkv"; NULL: one */
    const char *covers;
};
/* In the order of the model's first layer that has them, prompts first. Returns how many there are; at most `most` are written. */
size_t infer_profile_rows(const struct infer_profile *p, struct infer_profile_row *out, size_t most);

/* Steps of a class as the engine saw them, from before the first operation until behind the last one; those of a card, which are queued, from
 * then or from the end of the one in front until they are waited for. */
struct infer_profile_steps {
    uint64_t steps, rows;
    double seconds;
    /* of these, the steps whose links a card timed; 0: none did */
    uint64_t timed_steps;
    double timed_seconds;
};
void infer_profile_steps(const struct infer_profile *p, bool decode, struct infer_profile_steps *out);

struct infer_profile_span {
    const char *name; /* NULL: a step */
    int layer, rows;  /* layer -1: outside of the layers */
    bool decode;
    int64_t begin, end; /* ns of CLOCK_MONOTONIC */
    int thread; /* whose part of it this is, without waiting for others: 1 for the first; 0: all of it */
};
/* The newest ones that ended at or behind `since`, oldest first. Returns how many were written, at most `most`; out NULL: how many
 * there are. */
size_t infer_profile_spans(const struct infer_profile *p, int64_t since, struct infer_profile_span *out,
                           size_t most);
/* The same of what threads did. */
size_t infer_profile_parts(const struct infer_profile *p, int64_t since, struct infer_profile_span *out,
                           size_t most);

#ifdef __cplusplus
}
#endif

/* Inside of the sampler: what sample.c and its steps share. */
#pragma once
#include "text/sample/sample.h"

struct sample_room {
    int n_vocab;
    struct sample_candidate *c, *other; /* of n_vocab */
    int32_t *count;                     /* count[n_vocab]: zero between calls */
    int32_t *edit_of;                   /* edit_of[n_vocab]: zero between calls: 1 + the edit of a token */
};

struct sampler {
    struct infer_sample_params params;
    int n_vocab;
    struct sample_room *own; /* NULL: another's */
    uint64_t n_drawn;        /* tokens since the last reset: the place in the random streams */
    float mu;                /* mirostat: the most surprise allowed, in bits */
    /* of the room: the candidates c[n] and a second array; the steps swap them */
    struct sample_candidate *c, *other;
    int n;
    bool sorted;                         /* c is likeliest first */
    int32_t last[INFER_SAMPLE_MAX_LAST]; /* ring of recent tokens */
    int n_last, next;
    int32_t was[SAMPLE_SUPPOSED]; /* what was[n_supposed] has pushed out of last */
    int n_supposed, n_last_before;
    int32_t *count, *edit_of; /* of the room */
    struct infer_edit edit[INFER_EDITS_MAX];
    int32_t back[INFER_SAMPLE_MAX_LAST]; /* scratch: recent tokens, newest first */
    int32_t match[INFER_SAMPLE_MAX_LAST];
};

/* Uniform in [0, 1) with 53 bits: one number of each stream for a token. */
enum sample_stream { SAMPLE_STREAM_TOKEN, SAMPLE_STREAM_XTC };
double sample_uniform(const struct sampler *s, enum sample_stream stream, int ahead);
/* Whether the step does anything. */
bool sample_is_active(const struct infer_sample_params *p, enum infer_sample_step step);
/* Sets p of all candidates, their sum is 1. */
void sample_softmax(struct sampler *s);
void sample_take_step(struct sampler *s, enum infer_sample_step step);
/* True when the chain ends in its likeliest candidate. */
bool sample_takes_first(const struct infer_sample_params *p);

/* Biases, penalties and DRY as edits of the logits, in s->edit; how many, -1: more than fit. */
int sample_edits(struct sampler *s);

/* The likeliest k. */
void sample_keep(struct sampler *s, int k);
/* the steps */
#define INFER_STEP(ID, name, active) void sample_##name(struct sampler *s);
#include "infer_sample.def"
/* Drops what surprises more than mu. */
void sample_mirostat(struct sampler *s);

/* How an answer's tokens are chosen from the logits: part of infer_request.h.
 *
 * Logit biases come first, then the steps in .order, then the draw. Everything is decided by the logits, the parameters and the seed,
 * so one seed gives one answer whatever the number of threads. A step whose parameter has its default does nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "infer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The steps a sampler is made of, rows of infer_sample.def; ended by INFER_SAMPLE_END in an order. */
enum infer_sample_step {
    INFER_SAMPLE_END,
#define INFER_STEP(ID, name, active) INFER_SAMPLE_##ID,
#include "infer_sample.def"
    INFER_SAMPLE_STEPS
};
enum { INFER_SAMPLE_MAX_LAST = 4096, INFER_SAMPLE_MAX_BREAKER = 32 };

struct infer_sample_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

/* A field for each row of infer_sample.def, which says what it means. */
struct infer_sample_params {
#define INFER_SAMPLE(type, field, ...) INFER_SAMPLE_##type field;
#define INFER_SAMPLE_NUMBER            float
#define INFER_SAMPLE_INT               int
#include "infer_sample.def"
    uint64_t seed;
    int32_t dry_breaker[INFER_SAMPLE_MAX_BREAKER]; /* tokens that no repeat reaches across */
    int n_dry_breaker;
    const struct infer_sample_bias *bias; /* bias[n_bias], kept by the caller while the sampler has it */
    int n_bias;
    uint8_t order[INFER_SAMPLE_STEPS]; /* enum infer_sample_step, ended by INFER_SAMPLE_END */
};

/* Greedy, nothing else on; the order of enum infer_sample_step. */
struct infer_sample_params infer_sample_defaults(void);
/* Sets p->order from the names of steps with ; between them ("top_k;temp"), any of them in any order.
 * errors: INFER_E_INPUT (an unknown name, one given twice) */
enum infer_status infer_sample_set_order(struct infer_sample_params *p, const char *names);
/* errors: INFER_E_INPUT (a parameter out of range: the message names it) */
enum infer_status infer_sample_check(const struct infer_sample_params *p);

#ifdef __cplusplus
}
#endif

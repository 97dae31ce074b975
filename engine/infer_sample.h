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

/* The steps a sampler is made of; ended by INFER_SAMPLE_END in an order. */
enum infer_sample_step {
    INFER_SAMPLE_END,
    INFER_SAMPLE_PENALTIES,   /* repetition, frequency, presence */
    INFER_SAMPLE_DRY,         /* don't repeat yourself: sequences that go on as before */
    INFER_SAMPLE_TOP_N_SIGMA, /* logits within n standard deviations of the greatest; Tang et al. 2024 */
    INFER_SAMPLE_TOP_K,
    INFER_SAMPLE_TYPICAL, /* locally typical sampling; Meister et al. 2022 */
    INFER_SAMPLE_TOP_P,   /* nucleus; Holtzman et al. 2019 */
    INFER_SAMPLE_MIN_P,   /* Nguyen et al. 2024 */
    INFER_SAMPLE_XTC,     /* exclude top choices: likely ones but the least of them, now and then */
    INFER_SAMPLE_TEMP,    /* temperature, also the dynamic one */
    INFER_SAMPLE_STEPS
};
enum { INFER_SAMPLE_MAX_LAST = 4096, INFER_SAMPLE_MAX_BREAKER = 32 };

struct infer_sample_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

struct infer_sample_params {
    float temp;           /* 0: greedy, the lowest id on ties */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off. Logits of recent tokens: divided when positive, multiplied when negative;
                             source: Keskar et al. 2019 (CTRL), section 4.1 */
    int repeat_last;      /* how many tokens back the penalties look, at most INFER_SAMPLE_MAX_LAST */
    uint64_t seed;
    float frequency_penalty; /* 0: off; times the count of the token among the recent ones */
    float presence_penalty;  /* 0: off; once for each token among the recent ones */
    float temp_range;        /* 0: off; temperature from temp - range to temp + range by the entropy */
    float temp_exponent;     /* 1: linear in the entropy over its greatest value */
    float typical_p;         /* 1: off */
    float top_n_sigma;       /* 0: off */
    float xtc_probability;   /* 0: off; how often the step is taken */
    float xtc_threshold;     /* above 0.5: off */
    float dry_multiplier;    /* 0: off; penalty multiplier * base^(length - allowed) */
    float dry_base;
    int dry_allowed; /* repeats shorter than this are free */
    int dry_last;    /* how far back it looks, at most INFER_SAMPLE_MAX_LAST */
    int32_t dry_breaker
        [INFER_SAMPLE_MAX_BREAKER]; /* tokens that no repeat reaches across, dry_breaker[n_dry_breaker] */
    int n_dry_breaker;
    int mirostat; /* 0: off; 2: steers the surprise of the answer; Basu et al. 2020. Only penalties, DRY and temperature
                     come before it */
    float mirostat_tau, mirostat_eta;     /* wanted surprise in bits; step of the steering */
    const struct infer_sample_bias *bias; /* bias[n_bias], kept by the caller while the sampler has it */
    int n_bias;
    uint8_t order[INFER_SAMPLE_STEPS]; /* enum infer_sample_step, ended by INFER_SAMPLE_END */
};

/* Greedy, nothing else on; the order of enum infer_sample_step. */
struct infer_sample_params infer_sample_defaults(void);
/* Sets p->order from names: "penalties;dry;top_n_sigma;top_k;typical;top_p;min_p;xtc;temp" or any part of it in any order.
 * errors: INFER_E_INPUT (an unknown name, one given twice) */
enum infer_status infer_sample_set_order(struct infer_sample_params *p, const char *names);
/* errors: INFER_E_INPUT (a parameter out of range: the message names it) */
enum infer_status infer_sample_check(const struct infer_sample_params *p);

#ifdef __cplusplus
}
#endif

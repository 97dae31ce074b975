/* Sampling: a row of logits -> one token.
 *
 * The order is fixed: repetition penalty, top-k, top-p, min-p, temperature, draw. Everything is decided by the
 * logits, the parameters and the seed, so one seed gives one answer whatever the number of threads. Nothing
 * allocates after sample_open. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "status.h"

struct sample_params {
    float temp;           /* 0: greedy, the lowest id on ties */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off. Logits of recent tokens: divided when positive, multiplied when negative;
                             source: Keskar et al. 2019 (CTRL), section 4.1 */
    int repeat_last;      /* how many tokens back it looks, at most SAMPLE_MAX_LAST */
    uint64_t seed;
};
enum { SAMPLE_MAX_LAST = 4096 };

/* Greedy, nothing else on. */
struct sample_params sample_defaults(void);
/* True when the token is the plain argmax of the logits, so a backend may choose it. */
bool sample_is_greedy(const struct sample_params *p);

struct sample_candidate {
    int32_t id;
    float logit;
    float p; /* probability after the last sample_distribution */
};

struct sampler;
/* errors: INFER_E_INPUT (a parameter out of range), INFER_E_MEMORY */
enum infer_status sample_open(struct sampler **out, int n_vocab, const struct sample_params *p);
void sample_close(struct sampler *s);
/* New parameters for the next token; the random stream goes on unless the seed changed. */
enum infer_status sample_set(struct sampler *s, const struct sample_params *p);
/* Starts the random stream and the list of recent tokens anew. */
void sample_reset(struct sampler *s);
/* Tells the sampler about a token of the prompt or the answer (for the repetition penalty). */
void sample_accept(struct sampler *s, int32_t id);

/* The tokens that can be drawn and their probabilities (they add up to 1), likeliest first when a filter is on.
 * logits[n_vocab]. Returns how many; *out is a view valid until the next call. Greedy gives one. */
int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out);
/* Draws one. logits[n_vocab]; a row without one finite value gives id 0. */
int32_t sample_token(struct sampler *s, const float *logits);

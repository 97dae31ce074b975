/* Sampling: a row of logits -> one token.
 *
 * Logit biases come first, then the steps in params.order, then the draw. Everything is decided by the logits, the
 * parameters and the seed, so one seed gives one answer whatever the number of threads. Nothing allocates after
 * sample_open. A step whose parameter has its default does nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "infer_draw.h"

/* The steps a sampler is made of; ended by SAMPLE_END in an order. */
enum sample_step {
    SAMPLE_END,
    SAMPLE_PENALTIES,   /* repetition, frequency, presence */
    SAMPLE_DRY,         /* don't repeat yourself: sequences that go on as before */
    SAMPLE_TOP_N_SIGMA, /* logits within n standard deviations of the greatest; Tang et al. 2024 */
    SAMPLE_TOP_K,
    SAMPLE_TYPICAL, /* locally typical sampling; Meister et al. 2022 */
    SAMPLE_TOP_P,   /* nucleus; Holtzman et al. 2019 */
    SAMPLE_MIN_P,   /* Nguyen et al. 2024 */
    SAMPLE_XTC,     /* exclude top choices: likely ones but the least of them, now and then */
    SAMPLE_TEMP,    /* temperature, also the dynamic one */
    SAMPLE_STEPS
};
enum { SAMPLE_MAX_LAST = 4096, SAMPLE_MAX_BREAKER = 32 };

struct sample_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

struct sample_params {
    float temp;           /* 0: greedy, the lowest id on ties */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off. Logits of recent tokens: divided when positive, multiplied when negative;
                             source: Keskar et al. 2019 (CTRL), section 4.1 */
    int repeat_last;      /* how many tokens back the penalties look, at most SAMPLE_MAX_LAST */
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
    int dry_last;    /* how far back it looks, at most SAMPLE_MAX_LAST */
    int32_t dry_breaker
        [SAMPLE_MAX_BREAKER]; /* tokens that no repeat reaches across, dry_breaker[n_dry_breaker] */
    int n_dry_breaker;
    int mirostat; /* 0: off; 2: steers the surprise of the answer; Basu et al. 2020. Only penalties, DRY and temperature
                     come before it */
    float mirostat_tau, mirostat_eta; /* wanted surprise in bits; step of the steering */
    const struct sample_bias *bias;   /* bias[n_bias], kept by the caller while the sampler has it */
    int n_bias;
    uint8_t order[SAMPLE_STEPS]; /* enum sample_step, ended by SAMPLE_END */
};

/* Greedy, nothing else on; the order of enum sample_step. */
struct sample_params sample_defaults(void);
/* Sets p->order from names: "penalties;dry;top_n_sigma;top_k;typical;top_p;min_p;xtc;temp" or any part of it in any order.
 * errors: INFER_E_INPUT (an unknown name, one given twice) */
enum infer_status sample_set_order(struct sample_params *p, const char *names);
/* True when the token is the plain argmax of the logits, so a backend may choose it. */
bool sample_is_greedy(const struct sample_params *p);

struct sample_candidate {
    int32_t id;
    float logit;
    float p; /* probability after the last sample_distribution */
};

/* errors: INFER_E_INPUT (a parameter out of range: the message names it) */
enum infer_status sample_check(const struct sample_params *p);

struct sampler;
/* errors: INFER_E_INPUT (a parameter out of range), INFER_E_MEMORY */
enum infer_status sample_open(struct sampler **out, int n_vocab, const struct sample_params *p);
/* Memory in which tokens are chosen, 32 bytes for each of n_vocab: samplers of one thread may share it, and it outlives them. errors:
 * INFER_E_INPUT (no vocabulary), INFER_E_MEMORY */
struct sample_room;
enum infer_status sample_room_open(struct sample_room **out, int n_vocab);
void sample_room_close(struct sample_room *room);
enum infer_status sample_open_in(struct sampler **out, struct sample_room *room,
                                 const struct sample_params *p);
void sample_close(struct sampler *s);
/* New parameters for the next token; the random numbers go on unless the seed changed. */
enum infer_status sample_set(struct sampler *s, const struct sample_params *p);
/* Starts the random numbers, the list of recent tokens and mirostat anew. Token k from here on is drawn by number k of the
 * seed, so it can be told before the tokens in front of it are known. */
void sample_reset(struct sampler *s);
/* Tells the sampler about a token of the prompt or the answer (for penalties and DRY). */
void sample_accept(struct sampler *s, int32_t id);

/* ---- a token that is drawn where the logits are (infer_draw.h), or from the greatest of them ---- */

enum sample_by {
    SAMPLE_BY_DRAW, /* by whoever has the logits */
    SAMPLE_BY_TOP,  /* by sample_from_top from the greatest logits under the draw's edits */
    SAMPLE_BY_ROW,  /* by sample_token alone */
};
/* The draw of the next token, or of the one so many tokens later (ahead > 0 only where sample_ignores_text). Its edits are valid
 * until the next call; mask is the caller's to set. */
enum sample_by sample_draw(struct sampler *s, int ahead, struct infer_draw *d);
/* The next token was drawn by such a draw. */
void sample_was_drawn(struct sampler *s);
/* Whether all tokens are drawn by SAMPLE_BY_DRAW, and none depends on those before it. */
bool sample_ignores_text(const struct sample_params *p);
/* Draws one where sample_draw gave SAMPLE_BY_TOP, from what came back under its draw. */
int32_t sample_from_top(struct sampler *s, const struct infer_top *t);

/* ---- a token that was guessed before (speculative decoding) ---- */

/* What a guess was drawn from: id[n], each at most once, with probabilities p[n] that add up to 1. */
struct sample_guess {
    int n;
    int32_t id[INFER_TOP];
    float p[INFER_TOP];
};
/* Draws a guess of the next token, or of the one so many tokens later, from the greatest logits of another model under sample_draw's
 * edits, with top-k, top-p, min-p and the temperature of the parameters; *g: what it was drawn from, of one candidate where the parameters are greedy. */
int32_t sample_guess(struct sampler *s, const struct infer_top *t, int ahead, struct sample_guess *g);
/* Draws the next token, which was guessed from *g: the guess with probability min(1, p / q) of its probabilities here (p) and there (q),
 * else from max(p - q, 0). So the token has the distribution of sample_distribution, whatever g is, as long as the guess was drawn from
 * it; it is the guess as often as that allows. A guess that could be no other (n 1): sample_token, which comes to the same, and gives
 * the token that it gives without guesses. logits[n_vocab] */
int32_t sample_guessed(struct sampler *s, const float *logits, int32_t guess, const struct sample_guess *g);

/* ---- a row of logits on the host ---- */

/* The tokens that can be drawn and their probabilities (they add up to 1), likeliest first when a filter is on.
 * logits[n_vocab]. Returns how many; *out is a view valid until the next call. Greedy gives one. */
int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out);
/* Draws one: the token of any of the ways above. logits[n_vocab]; a row without one finite value gives id 0. */
int32_t sample_token(struct sampler *s, const float *logits);

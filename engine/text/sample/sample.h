/* Sampling: a row of logits -> one token, as infer_sample.h says it. Nothing allocates after sample_open. */
#pragma once
#include "base/status.h"
#include "infer_draw.h"
#include "infer_sample.h"

/* True when the token is the plain argmax of the logits, so a backend may choose it. */
bool sample_is_greedy(const struct infer_sample_params *p);

struct sample_candidate {
    int32_t id;
    float logit;
    float p; /* probability after the last sample_distribution */
};

struct sampler;
/* errors: INFER_E_INPUT (a parameter out of range), INFER_E_MEMORY */
enum infer_status sample_open(struct sampler **out, int n_vocab, const struct infer_sample_params *p);
/* Memory in which tokens are chosen, 32 bytes for each of n_vocab: samplers of one thread may share it, and it outlives them. errors:
 * INFER_E_INPUT (no vocabulary), INFER_E_MEMORY */
struct sample_room;
enum infer_status sample_room_open(struct sample_room **out, int n_vocab);
void sample_room_close(struct sample_room *room);
enum infer_status sample_open_in(struct sampler **out, struct sample_room *room,
                                 const struct infer_sample_params *p);
void sample_close(struct sampler *s);
/* New parameters for the next token; the random numbers go on unless the seed changed. */
enum infer_status sample_set(struct sampler *s, const struct infer_sample_params *p);
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
bool sample_ignores_text(const struct infer_sample_params *p);
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

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
/* The draw of the next token, or of the one so many tokens later (ahead > 0 only where sample_ignores_text, or where so many are supposed).
 * Its edits are valid until the next call; mask is the caller's to set. */
enum sample_by sample_draw(struct sampler *s, int ahead, struct infer_draw *d);
/* The next token was drawn by such a draw. */
void sample_was_drawn(struct sampler *s);
/* Whether all tokens are drawn by SAMPLE_BY_DRAW, and none depends on those before it. */
bool sample_ignores_text(const struct infer_sample_params *p);
/* Draws one where sample_draw gave SAMPLE_BY_TOP, from what came back under its draw. */
int32_t sample_from_top(struct sampler *s, const struct infer_top *t);

/* ---- tokens that are guessed before they are drawn (speculative decoding) ---- */

/* A guess of the next token, or of the one so many tokens later, from the greatest logits of another model under sample_draw's edits: drawn
 * with top-k, top-p, min-p and the temperature of the parameters by the random number that the token itself will be drawn by. So it is that
 * token where both models hold the same likely, and the token is what it would be had nobody guessed. */
int32_t sample_guess(struct sampler *s, const struct infer_top *t, int ahead);
/* Draws ahead of it are made as if this token had come, behind others that are supposed, until sample_forget. */
enum { SAMPLE_SUPPOSED = 8 }; /* at most */
void sample_suppose(struct sampler *s, int32_t id);
void sample_forget(struct sampler *s);

/* ---- a row of logits on the host ---- */

/* The tokens that can be drawn and their probabilities (they add up to 1), likeliest first when a filter is on.
 * logits[n_vocab]. Returns how many; *out is a view valid until the next call. Greedy gives one. */
int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out);
/* Draws one: the token of any of the ways above. logits[n_vocab]; a row without one finite value gives id 0. */
int32_t sample_token(struct sampler *s, const float *logits);

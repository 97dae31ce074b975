/* Where STEP_LAST becomes an id: the token that each slot selected last, for backends whose steps the host runs. (The
 * engine gives the id itself where it knows it; on a card the tokens stay on the card, dev_tables.slot_last.) */
#pragma once
#include "seam/backend.h"

struct last_tokens {
    int32_t *token; /* token[n_slot], -1: none yet */
    int32_t *id;    /* id[max_rows]: ids of the step that runs */
};

size_t last_tokens_bytes(int n_slot, int max_rows);
/* memory: last_tokens_bytes of them, aligned to 4; stays the caller's. */
void last_tokens_open(struct last_tokens *l, void *memory, int n_slot);
/* Makes the step's ids those of tokens, in l->id, until the next call.
 * errors: INFER_E_INPUT: a slot of such a row selected none; the step is as before */
enum infer_status last_tokens_resolve(const struct last_tokens *l, struct step *s);
/* That error, for a backend that says it in wait. */
enum infer_status last_tokens_missing(void);

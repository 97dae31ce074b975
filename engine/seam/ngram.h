/* The hash of OP_NGRAM (backend.h), the same on every backend that has it. */
#pragma once
#include "seam/backend.h"

/* The row of the table that head h < n_head reads: of a run of n ids, (a[0] mult[0] xor .. xor a[n - 1] mult[n - 1]) mod rows[h] + first[h]. */
int64_t ngram_row(const struct ngram *by, int h, const int32_t *a);
/* a[size] of row t, which is row i of its sequence in the step; state[size - 1]: the ids before those. */
void ngram_ids(const struct ngram *by, const struct step *s, int t, int i, const float *state, int32_t *a);
/* state behind row t. */
void ngram_keep(const struct ngram *by, const struct step *s, int t, int i, float *state);

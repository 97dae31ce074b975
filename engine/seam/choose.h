/* The choice that OP_INDEX makes of scores (backend.h): whole numbers decide, so that it is the same on every backend. */
#pragma once
#include <stdint.h>
#include "seam/backend.h"

/* out[k]: the places of the k greatest of score[n], the lower place first where they are equal, ascending; of n < k all, and -1 behind them.
 * -0 is 0, a NaN below all. */
void choose_top(const float *score, int n, float *out, int k);
/* The list of positions of a row (struct choice) in out[choice_room], by score[pos + 1], which it changes. */
void choose_positions(const struct choice *c, float *score, int pos, float *out);

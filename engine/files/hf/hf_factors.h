/* Factors that config.json has and GGUF's matrices hold. */
#pragma once
#include "files/tensorfile.h"

/* Sets t->row_factor, in the arena, where factor (struct hf_config) says one of its rows; part: rows of the five parts of a mixer's input.
 * errors: INFER_E_MEMORY */
enum infer_status hf_factor_rows(struct tensor *t, const float *factor, const int *part, struct arena *arena);

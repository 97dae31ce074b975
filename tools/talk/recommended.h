#pragma once
#include "infer.h"
#include "tools/options.h"

/* Sets the options of sampling that the user did not give to those of sampling.h; --temp 0 asks for greedy, and nothing is changed. line[n]
 * gets what was taken, for people; "" when nothing was. */
void sampling_recommended(struct options *o, const struct infer_model *m, char *line, size_t n);

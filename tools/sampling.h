/* How tokens are chosen where the user does not say, in chat, serve and its page alike: as the file recommends
 * (general.sampling.*), else by defaults of our own. */
#pragma once
#include "infer.h"
#include "infer_request.h"

/* Whether the file recommends anything. */
bool sampling_from_file(const struct infer_model *m);
/* The i-th setting: the name of its option, NULL behind the last; its value as text, "" where nothing is said. */
const char *sampling_setting(const struct infer_model *m, int i, char text[32]);
/* All of them as parameters; greedy where one is out of range. */
struct infer_sample_params sampling_params(const struct infer_model *m);
/* A seed that nobody chose, below 2^53: programs that read JSON numbers as doubles can send it back. */
uint64_t sampling_seed(void);

// A share of the prompt matmul: Q5K, Q8M, Q2K.
#include "prompt_part.cuh"

PROMPT_INSTANCES(c, PROMPT_CASE(Q5K) PROMPT_CASE(Q8M) PROMPT_CASE(Q2K))

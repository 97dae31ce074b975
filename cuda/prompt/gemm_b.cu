// A share of the prompt matmul: Q4K, Q6K, Q4M.
#include "prompt_part.cuh"

PROMPT_INSTANCES(b, PROMPT_CASE(Q4K) PROMPT_CASE(Q6K) PROMPT_CASE(Q4M))

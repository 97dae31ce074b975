// A share of the prompt matmul: Q5K, Q8M, Q2K.
#include "cuda/prompt/gemm_instances.cuh"

PROMPT_INSTANCES(c, PROMPT_CASE(Q5K) PROMPT_CASE(Q8M) PROMPT_CASE(Q2K))

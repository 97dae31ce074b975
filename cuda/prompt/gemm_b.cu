// A share of the prompt matmul: Q4K, Q6K, Q4M.
#include "cuda/prompt/gemm_instances.cuh"

PROMPT_INSTANCES(b, PROMPT_CASE(Q4K) PROMPT_CASE(Q6K) PROMPT_CASE(Q4M))

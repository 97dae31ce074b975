// A share of the prompt matmul: F32, BF16, Q3K, IQ4.
#include "cuda/prompt/gemm_instances.cuh"

PROMPT_INSTANCES(d, PROMPT_CASE(F32) PROMPT_CASE(BF16) PROMPT_CASE(Q3K) PROMPT_CASE(IQ4))

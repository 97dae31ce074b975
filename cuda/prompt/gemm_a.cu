// A share of the prompt matmul: F16, Q8, Q4.
#include "cuda/prompt/gemm_instances.cuh"

PROMPT_INSTANCES(a, PROMPT_CASE(F16) PROMPT_CASE(Q8) PROMPT_CASE(Q4))

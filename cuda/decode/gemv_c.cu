#include "cuda/decode/gemv.cuh"
#include "cuda/decode/gemv_instances.h"
MM_CODES(q5k, LAYOUT_Q5K, 8, 1)
MM_TWO(q5k_q6k, LAYOUT_Q5K, LAYOUT_Q6K, 8, 3, 3)
MM_HALF(f16, LAYOUT_F16, 4, 2)
MM_HALF(bf16, LAYOUT_BF16, 4, 2)

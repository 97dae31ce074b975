#include "cuda/decode/gemv.cuh"
#include "cuda/decode/gemv_instances.h"
MM_CODES(q4k, LAYOUT_Q4K, 8, 2)
MM_CODES(q6k, LAYOUT_Q6K, 8, 1)
MM_TWO(q4k_q6k, LAYOUT_Q4K, LAYOUT_Q6K, 8, 4, 3)

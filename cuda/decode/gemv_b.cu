#include "cuda/decode/gemv.cuh"
#include "cuda/decode/gemv_instances.h"
MM_CODES(q4, LAYOUT_Q4, 8, 2)
MM_CODES(q4m, LAYOUT_Q4M, 8, 2)
MM_CODES(q8, LAYOUT_Q8, 8, 1)
MM_CODES(q8m, LAYOUT_Q8M, 8, 1)

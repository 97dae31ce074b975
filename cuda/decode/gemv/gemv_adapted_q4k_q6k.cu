#include "cuda/decode/gemv/gemv_adapted.cuh"

extern const struct gemv_adapted_kernel gemv_adapted_q4k_q6k[1];
const struct gemv_adapted_kernel gemv_adapted_q4k_q6k[1] = {ADAPTED_PAIR(LAYOUT_Q4K, LAYOUT_Q6K, 4, 3)};

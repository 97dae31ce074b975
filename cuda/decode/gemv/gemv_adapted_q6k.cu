#include "cuda/decode/gemv/gemv_adapted.cuh"

extern const struct gemv_adapted_kernel gemv_adapted_q6k[4];
const struct gemv_adapted_kernel gemv_adapted_q6k[4] = {ADAPTED_CODES(LAYOUT_Q6K)};

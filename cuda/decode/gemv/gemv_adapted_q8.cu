#include "cuda/decode/gemv/gemv_adapted.cuh"

extern const struct gemv_adapted_kernel gemv_adapted_q8[4];
const struct gemv_adapted_kernel gemv_adapted_q8[4] = {ADAPTED_CODES(LAYOUT_Q8)};

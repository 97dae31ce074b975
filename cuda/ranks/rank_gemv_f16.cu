#include "cuda/ranks/rank_gemv.cuh"

extern const struct rank_gemv_kernel rank_gemv_f16[1];
const struct rank_gemv_kernel rank_gemv_f16[1] = {RANK_GEMV(LAYOUT_F16, 0, 1, 4, 2)};

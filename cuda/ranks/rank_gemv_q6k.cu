#include "cuda/ranks/rank_gemv.cuh"

extern const struct rank_gemv_kernel rank_gemv_q6k[2];
const struct rank_gemv_kernel rank_gemv_q6k[2] = {RANK_GEMV_CODES(LAYOUT_Q6K)};

#include "cuda/decode/gemv/gemv_streamk.cuh"

extern const struct streamk_kernel streamk_q4k[5];
const struct streamk_kernel streamk_q4k[5] = {
    STREAMK_ONE(LAYOUT_Q4K, 32, 1, 4, EPI_STORE), STREAMK_ONE(LAYOUT_Q4K, 32, 2, 2, EPI_GLU),
    STREAMK_ONE(LAYOUT_Q4K, 32, 2, 2, EPI_POST), STREAMK_ONE(LAYOUT_Q4K, 16, 2, 2, EPI_POST),
    STREAMK_ONE(LAYOUT_Q4K, 16, 2, 2, EPI_ADD)};

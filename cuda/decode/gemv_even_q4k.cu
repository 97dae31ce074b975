#include "cuda/decode/gemv_even.cuh"

extern const struct even_kernel even_q4k[4];
const struct even_kernel even_q4k[4] = {
    EVEN_ONE(LAYOUT_Q4K, 32, 1, 4, EPI_STORE), EVEN_ONE(LAYOUT_Q4K, 32, 2, 2, EPI_GLU),
    EVEN_ONE(LAYOUT_Q4K, 32, 2, 2, EPI_POST), EVEN_ONE(LAYOUT_Q4K, 16, 2, 2, EPI_POST)};

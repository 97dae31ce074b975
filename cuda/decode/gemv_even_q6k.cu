#include "cuda/decode/gemv_even.cuh"

extern const struct even_kernel even_q6k[3];
const struct even_kernel even_q6k[3] = {
    EVEN_ENTRY(LAYOUT_Q4K, LAYOUT_Q6K, LAYOUT_Q6K, 32, 1, 4, 3, EPI_STORE,
               MM_MAX(4 * layout_unit_bytes(LAYOUT_Q4K), 3 * layout_unit_bytes(LAYOUT_Q6K))),
    EVEN_ONE(LAYOUT_Q6K, 32, 2, 1, EPI_POST), EVEN_ONE(LAYOUT_Q6K, 16, 2, 1, EPI_POST)};

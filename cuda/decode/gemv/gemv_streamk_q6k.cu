#include "cuda/decode/gemv/gemv_streamk.cuh"

extern const struct streamk_kernel streamk_q6k[4];
const struct streamk_kernel streamk_q6k[4] = {
    STREAMK_ENTRY(LAYOUT_Q4K, LAYOUT_Q6K, LAYOUT_Q6K, 32, 1, 4, 3, EPI_STORE,
                  MM_MAX(4 * layout_unit_bytes(LAYOUT_Q4K), 3 * layout_unit_bytes(LAYOUT_Q6K))),
    STREAMK_ONE(LAYOUT_Q6K, 32, 2, 1, EPI_POST), STREAMK_ONE(LAYOUT_Q6K, 16, 2, 1, EPI_POST),
    STREAMK_ONE(LAYOUT_Q6K, 16, 2, 1, EPI_ADD)};

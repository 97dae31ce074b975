/* The same numbers in another order:
 *
 *     X_blocks, byte i of 16       low four bits: element 2 i, high: element 2 i + 1
 *     block_MXFP4, byte j of 16    low four bits: element j, high: element j + 16
 *
 * So bytes 2 i and 2 i + 1 of a block are made of bytes i and i + 8. source: transformers' integration of MXFP4. */
#include "files/hf/hf_mxfp4.h"

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static void one_row(struct block_MXFP4 *out, const uint8_t *blocks, const uint8_t *scales, size_t n) {
    for (size_t b = 0; b < n; b++) {
        bytes16 v;
        memcpy(&v, blocks + 16 * b, 16);
        bytes16 low = v & 15, high = v >> 4; /* elements 0 2 .. 30, 1 3 .. 31 */
        bytes16 first =
            __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        bytes16 second =
            __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        v = first | second << 4;
        out[b].e = scales[b];
        memcpy(out[b].q, &v, 16);
    }
}

void hf_mxfp4_rows(struct block_MXFP4 *out, const uint8_t *blocks, const uint8_t *scales, size_t n_row,
                   size_t row_blocks, size_t step, int n_thread) {
#pragma omp parallel for schedule(static) num_threads(n_thread)
    for (size_t r = 0; r < n_row; r++)
        one_row(out + r * row_blocks, blocks + r * step * row_blocks * 16, scales + r * step * row_blocks,
                row_blocks);
}

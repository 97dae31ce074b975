/* Prompt matmuls in 16-bit integers with AVX2. */
#include "cpu/kernels/gemm_int8.h"
#include "cpu/kernels/gemm_int16.h"

ROWS16_CODES(IQ4_NL)
cpu_row_fn *const cpu_gemm_int16_avx2[QUANT_COUNT] = {[QUANT_F16] = rows16_F16,
                                                      [QUANT_BF16] = rows16_BF16,
                                                      [QUANT_Q8_0] = rows16_Q8_0,
                                                      [QUANT_IQ4_NL] = rows16_IQ4_NL};
cpu_row_fn *const cpu_fine_int16_avx2[QUANT_COUNT] = FINE16_ENTRIES;

/* Prompt matmuls in 16-bit integers with AVX2 with VNNI in its VEX form. */
#include "cpu/kernels/gemm_int8.h"
#include "cpu/kernels/gemm_int16.h"

cpu_row_fn *const cpu_gemm_int16_avxvnni[QUANT_COUNT] = {
    [QUANT_F16] = rows16_F16, [QUANT_BF16] = rows16_BF16};
cpu_row_fn *const cpu_fine_int16_avxvnni[QUANT_COUNT] = FINE16_ENTRIES;

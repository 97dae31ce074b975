/* Decode rows on float weights with AVX2. */
#include "cpu/kernels/gemv_float.h"

cpu_row_fn *const cpu_gemv_float_avx2[QUANT_COUNT] = ROW_ENTRIES;
cpu_row_fn *const cpu_gemv_fine_avx2[QUANT_COUNT] = FINE_ENTRIES;

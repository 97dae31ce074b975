/* Decode rows on float weights with AVX-512. */
#include "cpu/kernels/gemv_float.h"

cpu_row_fn *const cpu_gemv_float_avx512[QUANT_COUNT] = ROW_ENTRIES;
cpu_row_fn *const cpu_gemv_fine_avx512[QUANT_COUNT] = FINE_ENTRIES;

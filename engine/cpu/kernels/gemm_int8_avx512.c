/* Matmuls on panels of weight rows with AVX-512 VNNI. */
#include "cpu/kernels/gemm_int8.h"
#include "cpu/kernels/gemm_int16.h"

PANEL_QUANTS(ROWS_OF)
cpu_row_fn *const cpu_gemm_int8_avx512[QUANT_COUNT] = {PANEL_QUANTS(PANEL_ENTRY)};
cpu_row_fn *const cpu_gemm_int16_avx512[QUANT_COUNT] = {PANEL16_QUANTS(PANEL16_ENTRY)};

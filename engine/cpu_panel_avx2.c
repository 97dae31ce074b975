/* Matmuls on quantised weights with AVX2. */
#include "cpu_panel_impl.h"

cpu_row_fn *const cpu_panels_avx2[QUANT_COUNT] = {PANEL_QUANTS(PANEL_ENTRY)};

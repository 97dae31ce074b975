/* Matmuls on quantised weights with AVX2 with VNNI in its VEX form. */
#include "cpu_panel_impl.h"

cpu_row_fn *const cpu_panels_avxvnni[QUANT_COUNT] = {PANEL_QUANTS(PANEL_ENTRY)};

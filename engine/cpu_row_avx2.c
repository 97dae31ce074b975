/* Decode rows on float weights with AVX2. */
#include "cpu_row_impl.h"

cpu_row_fn *const cpu_rows_avx2[QUANT_COUNT] = ROW_ENTRIES;

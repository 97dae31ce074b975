/* Decode rows on float weights with AVX-512. */
#include "cpu_row_impl.h"

cpu_row_fn *const cpu_rows_avx512[QUANT_COUNT] = ROW_ENTRIES;

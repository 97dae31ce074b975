#include "wide_codes_table.h"
CODES(q8, LAYOUT_Q8)
CODES_FEW(q4m, LAYOUT_Q4M)
CODES_FEW(q8m, LAYOUT_Q8M)

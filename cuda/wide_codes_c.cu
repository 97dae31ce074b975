#include "wide_codes_table.h"
CODES(q8, LAYOUT_Q8)
CODES(q4, LAYOUT_Q4)
CODES(q4m, LAYOUT_Q4M)

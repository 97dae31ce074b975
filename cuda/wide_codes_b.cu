#include "wide_codes_table.h"
CODES(q6k, LAYOUT_Q6K)
CODES(q4, LAYOUT_Q4)

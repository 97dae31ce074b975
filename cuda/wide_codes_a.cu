#include "wide_codes_table.h"
CODES(q4k, LAYOUT_Q4K)
CODES_TWO(q4k_q6k, LAYOUT_Q4K, LAYOUT_Q6K)

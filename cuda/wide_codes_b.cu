#include "wide_codes_table.h"
CODES(q6k, LAYOUT_Q6K)
CODES_TWO(q4k_q6k, LAYOUT_Q4K, LAYOUT_Q6K)

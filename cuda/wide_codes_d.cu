#include "wide_codes_table.h"
CODES(q8m, LAYOUT_Q8M)
CODES(q5k, LAYOUT_Q5K)
CODES_TWO(q5k_q6k, LAYOUT_Q5K, LAYOUT_Q6K)

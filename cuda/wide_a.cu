#include "wide_table.h"
WIDE(q4k, LAYOUT_Q4K)
WIDE_TWO(q4k_q6k, LAYOUT_Q4K, LAYOUT_Q6K)

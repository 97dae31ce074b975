#include "wide_table.h"
WIDE(q6k, LAYOUT_Q6K)
WIDE(q4, LAYOUT_Q4)
WIDE(q8, LAYOUT_Q8)

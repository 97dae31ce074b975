#include "wide_codes_table.h"
CODES(q4k, LAYOUT_Q4K)

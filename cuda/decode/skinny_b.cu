#include "wide_half_table.h"
HALF_HALVES(bf16, LAYOUT_BF16)

#include "wide_half_table.h"
HALF_HALVES(f16, LAYOUT_F16)

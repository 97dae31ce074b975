#include "wide_half_table.h"
extern const struct half_entry half_f16[4];
const struct half_entry half_f16[4] = {HALF_ENTRY(LAYOUT_F16, 2), HALF_ENTRY(LAYOUT_F16, 4),
                                       HALF_ENTRY(LAYOUT_F16, 8), HALF_ENTRY(LAYOUT_F16, 16)};

#include "wide_half_table.h"
extern const struct half_entry half_bf16[4];
const struct half_entry half_bf16[4] = {HALF_ENTRY(LAYOUT_BF16, 2), HALF_ENTRY(LAYOUT_BF16, 4),
                                        HALF_ENTRY(LAYOUT_BF16, 8), HALF_ENTRY(LAYOUT_BF16, 16)};

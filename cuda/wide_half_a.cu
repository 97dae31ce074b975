#include "wide_half_table.h"
#define ENTRY(shared, nt) HALF_ENTRY(LAYOUT_F16, shared, nt)
extern const struct half_entry half_f16[HALF_ENTRIES];
const struct half_entry half_f16[HALF_ENTRIES] = {ENTRY(false, 2), ENTRY(true, 2),  ENTRY(false, 4),
                                                  ENTRY(true, 4),  ENTRY(false, 8), ENTRY(false, 16)};

#include "arch/arch.h"

const struct slot_info slot_info[SLOT_COUNT] = {
#define SLOT(id, name, rows, cols) [SLOT_##id] = {name, DIM_##rows, DIM_##cols},
#include "arch/slots.def"
#undef SLOT
};
static_assert(SLOT_COUNT <= 64, "struct arch keeps slots in 64-bit masks");

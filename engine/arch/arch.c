#include "arch/arch.h"

const struct slot_info slot_info[SLOT_COUNT] = {
#define SLOT(id, name, rows, cols) [SLOT_##id] = {name, DIM_##rows, DIM_##cols},
#include "arch/slots.def"
#undef SLOT
};

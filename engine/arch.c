#include "arch.h"

const struct slot_info slot_info[SLOT_COUNT] = {
#define SLOT(id, name, rows, cols) [SLOT_##id] = {name, DIM_##rows, DIM_##cols},
#include "slots.def"
#undef SLOT
};
static_assert(SLOT_COUNT <= 64, "struct arch keeps slots in 64-bit masks");

#define ARCH(id) extern const struct arch arch_##id;
#include "../models/registry.def"
#undef ARCH

static const struct arch *const table[] = {
#define ARCH(id) &arch_##id,
#include "../models/registry.def"
#undef ARCH
};
enum { N_ARCH = sizeof table / sizeof *table };

const struct arch *arch_at(int i) { return i >= 0 && i < (int)N_ARCH ? table[i] : NULL; }

const struct arch *arch_find(const char *name, size_t len) {
    for (int i = 0; i < (int)N_ARCH; i++)
        if (strlen(table[i]->name) == len && memcmp(table[i]->name, name, len) == 0) return table[i];
    return NULL;
}

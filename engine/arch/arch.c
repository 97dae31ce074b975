#include "arch/arch.h"
#include <string.h>

const struct slot_info slot_info[SLOT_COUNT] = {
#define SLOT(id, name, rows, cols)  [SLOT_##id] = {name, DIM_##rows, DIM_##cols, SLOT_ONE},
#define STACK(id, name, rows, cols) [SLOT_##id] = {name, DIM_##rows, DIM_##cols, SLOT_EACH_EXPERT},
#define HEADS(id, name, rows, cols) [SLOT_##id] = {name, DIM_##rows, DIM_##cols, SLOT_EACH_HEAD},
#include "arch/slots.def"
#undef SLOT
};

double arch_default(const struct arch *a, const char *key, double fallback) {
    for (const struct arch_default *d = a->defaults; d && d->key; d++)
        if (strcmp(d->key, key) == 0) return d->value;
    return fallback;
}

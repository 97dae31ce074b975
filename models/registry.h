/* The architectures by name. */
#pragma once
#include "arch/arch.h"

/* The table of registry.def, in its order, and behind it of heads that draft for another model, which arch_at and arch_find_hf leave out; NULL
 * when the name is unknown. */
const struct arch *arch_find(const char *name, size_t len);
const struct arch *arch_at(int i); /* NULL past the end */
const struct arch *arch_find_hf(const char *model_type, const char *inner, const char *class);
extern const struct arch arch_eagle3;
/* Sets the message for a name that neither finds: the nearest that does, and where the list is.
 * Returns INFER_E_UNSUPPORTED. */
enum infer_status arch_unsupported(const char *path, const char *name, size_t len);

/* THE data flow: emits a model as one flat list of operations, the same text for every model, class and backend. */
#pragma once
#include "backend.h"
#include "mem.h"
#include "model.h"

/* Writes the list of one row class into the arena. max_rows, max_out: rows and outputs of the largest step.
 * errors: INFER_E_MEMORY */
enum infer_status forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                               enum row_class cls, int max_rows, int max_out);

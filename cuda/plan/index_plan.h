/* OP_INDEX on a card: scores of some rows at a time lie in the workspace, at kv_v[n_store] of struct cuda_plan, until the rows' positions are
 * chosen. Plain C. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the scores of as many rows as are chosen for at once; 0: no list chooses. */
size_t index_bytes(const struct backend_config *c);
/* Scores of one list of a row: of every position that there may be. */
size_t index_positions(const struct backend_config *c, const struct op_index *o);
/* Rows whose lists are chosen at once, of n. */
int index_rows(const struct backend_config *c, const struct op_index *o, int n);

#ifdef __cplusplus
}
#endif

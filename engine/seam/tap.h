/* What matrices are multiplied with, and what operations have written, handed to somebody who looks: importance matrices and records
 * (infer verify) are made of it. A backend that is configured with a tap (struct backend_config) calls tap_op before each operation and
 * tap_wrote behind it; without one it asks a pointer. */
#pragma once
#include "infer_profile.h"
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tap {
    /* x[k] is about to be multiplied with matrix of the n_matrix that tensor name holds (1, or experts, or heads); one thread calls, and
     * nothing may be allocated then (tap_op does for columns that are not in the file's order). x NULL: not in a step; such rows will come. */
    void (*row)(void *user, const char *name, int n_matrix, int matrix, const float *x, int k);
    void *user;
    /* as infer_engine_options.watch has it; either function may be NULL */
    void (*wrote)(void *wrote_user, const struct infer_watched *w);
    void *wrote_user;
};

/* Row t of a view, float32. */
typedef const float *tap_read(void *from, struct view v, int t);
/* Calls row once for every tensor that the list multiplies with, and wrote for every operation that writes a view, x NULL. */
void tap_list(const struct tap *tap, const struct op_list *l);
/* The inputs of op in n_row rows; an operation without matrices has none. Members of a group that are slices of one tensor are one. */
void tap_op(const struct tap *tap, const struct op *op, int n_row, tap_read *read, void *from);
/* What op of list l has written in step s. */
void tap_wrote(const struct tap *tap, const struct op_list *l, const struct op *op, const struct step *s,
               tap_read *read, void *from);

#ifdef __cplusplus
}
#endif

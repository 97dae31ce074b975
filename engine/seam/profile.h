/* A profile as backends fill it (struct backend_config); infer_profile.h is how others read it. */
#pragma once
#include "infer_profile.h"
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Before the first step: the operations of a list, which must stay. errors: INFER_E_MEMORY */
enum infer_status profile_list(struct infer_profile *p, const struct op_list *l,
                               const struct backend_config *c);
int64_t profile_now(void); /* ns of CLOCK_MONOTONIC */
/* op of list l, with those that became one with it, in step s from begin to now, which is returned. op NULL: between operations. */
int64_t profile_op(struct infer_profile *p, const struct op_list *l, const struct op *op,
                   const struct step *s, int64_t begin);
/* A whole step of a class, from begin to now. */
void profile_step(struct infer_profile *p, enum row_class cls, int n_row, int64_t begin);

#ifdef __cplusplus
}
#endif

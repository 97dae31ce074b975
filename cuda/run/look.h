// What operations wrote: for who watches (infer_engine_options.watch), and to name the operation that first wrote what is not finite.
#pragma once
#include "cuda/run/program.h"

// *out: for a backend with or without somebody who watches. errors: INFER_E_MEMORY, INFER_E_DEVICE
enum infer_status look_open(struct look **out, const cuda_backend *b);
void look_close(struct look *k);
// Whether somebody watches: then links run one by one, and steps are no graph.
bool look_watches(const cuda_backend *b);
// The step that is queued from now on; NULL: of nobody.
void look_step(const cuda_backend *b, const struct step *s);
// Behind a link, or n_op operations that ran by plain kernels: waits for it, and tells its rows if they are there as float32.
enum infer_status look_link(cuda_backend *b, const struct op_list *l, const program_link *d);
enum infer_status look_ops(cuda_backend *b, const struct op_list *l, int first, int n_op);
// Once more a step of the class, as it was sent (blob), operation by operation with the plain kernels, until one has written what is not
// finite. errors: INFER_E_NAN, with the place where there is one
enum infer_status look_for_fault(cuda_backend *b, enum row_class cls, const uint8_t *blob);

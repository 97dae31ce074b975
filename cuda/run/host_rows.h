// Experts that the host computes for a card's lists (op_remote): queueing such an operation waits for what is queued before it, so
// a list that has one is no graph.
#pragma once
#include "cuda/run/cuda_impl.h"

// *out: NULL where no list asks the host.
enum infer_status host_rows_open(struct host_rows **out, const struct backend_config *c);
void host_rows_close(struct host_rows *h);
// An operation of a list for n rows. What the host says of it is the step's status, not an error of this call.
enum infer_status host_rows_run(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s);
// Around the operations of a step, the f-th in flight; and what came of it.
void host_rows_begin(struct host_rows *h);
void host_rows_end(struct host_rows *h, unsigned f);
enum infer_status host_rows_status(const struct host_rows *h, unsigned f);

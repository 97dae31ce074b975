// A rank that is a card: how it and the others, threads of this process, come to their sums. Cards that all reach each other's memory
// speak inside of their kernels (rank_wires.h), so that decode rows are a graph; prompt rows, ranks that share a card and cards that do
// not reach each other wait for each other's events, in the order in which their threads meet.
#pragma once
#include "cuda/ranks/rank_wires.h"
#include "cuda/run/cuda_impl.h"

struct cuda_ranks; // NULL: no other ranks

// All ranks come to these two. open: before anything else of upload. same: whether all say so.
enum infer_status cuda_ranks_open(cuda_backend *b);
enum infer_status cuda_ranks_same(cuda_backend *b, bool *so);
void cuda_ranks_close(struct cuda_ranks *r);
// Whether decode rows speak inside of their kernels: then they can be a graph.
bool cuda_ranks_wired(const cuda_backend *b);
// For jobs of kernels, of an operation of the decode list.
struct rank_wires cuda_ranks_wires(const cuda_backend *b);
// x = the sum of all ranks' x, by events; n rows.
enum infer_status cuda_ranks_sum(const cuda_backend *b, rows x, int n, cudaStream_t s);
// x += the sum of what all ranks have put where cuda_ranks_mail says, rows behind each other.
float *cuda_ranks_mail(const cuda_backend *b);
enum infer_status cuda_ranks_add(const cuda_backend *b, rows x, int n, cudaStream_t s);
// run_list.cu: one operation
enum infer_status cuda_ranks_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s);
// Behind a call of the backend: where it failed the other ranks are told, and nothing of this one runs any more.
enum infer_status cuda_ranks_leave(cuda_backend *b, enum infer_status of_call);
// Of a step that was waited for. errors: INFER_E_CANCEL: another rank left it; INFER_E_DEVICE: a rank did not come
enum infer_status cuda_ranks_status(cuda_backend *b);

#ifdef __cplusplus
extern "C" {
#endif
// For tests: cards that reach each other wait by events, too.
void cuda_ranks_by_events(bool always);
#ifdef __cplusplus
}
#endif

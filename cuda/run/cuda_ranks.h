// A rank that is a card: how it and the others come to their sums. Cards that all reach each other's memory speak inside of their kernels
// (rank_wires.h), so that decode rows are a graph. For prompt rows, and where ranks share a card or do not reach each other, threads of a
// process wait for each other's events, in the order in which they meet. Processes have handles of each other's memory, and flags there;
// else NCCL, also in a graph; else their rows go through the host's memory and its communicator.
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
// Whether decode rows may be a graph.
bool cuda_ranks_graph(const cuda_backend *b);
// For jobs of kernels, of an operation of the decode list.
struct rank_wires cuda_ranks_wires(const cuda_backend *b);
// rank_carry.cu: x = the sum of all ranks' x; n rows.
enum infer_status cuda_ranks_sum(const cuda_backend *b, rows x, int n, cudaStream_t s);
// x += the sum of all ranks' y
enum infer_status cuda_ranks_sum_to(const cuda_backend *b, rows y, rows x, int n, cudaStream_t s);
// x += the sum of what all ranks have put where cuda_ranks_mail says, rows behind each other.
float *cuda_ranks_mail(const cuda_backend *b);
enum infer_status cuda_ranks_add(const cuda_backend *b, rows x, int n, cudaStream_t s);
// out = x of all ranks, columns col[r] .. of rank r
enum infer_status cuda_ranks_gather(const cuda_backend *b, rows x, rows out, const int *col, int n,
                                    cudaStream_t s);
// run_list.cu: one operation
enum infer_status cuda_ranks_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s);
// Behind a call of the backend: where it failed the other ranks are told, and nothing of this one runs any more.
enum infer_status cuda_ranks_leave(cuda_backend *b, enum infer_status of_call);
// errors: INFER_E_DEVICE: ranks add up no more
enum infer_status cuda_ranks_there(const cuda_backend *b);
// Until what the event was recorded behind is done. errors: INFER_E_DEVICE (a rank is gone)
enum infer_status cuda_ranks_await(cuda_backend *b, cudaEvent_t done);
// Of a step that was waited for. errors: INFER_E_CANCEL: another rank left it; INFER_E_DEVICE: a rank did not come
enum infer_status cuda_ranks_status(cuda_backend *b);

#ifdef __cplusplus
extern "C" {
#endif
// For tests: cards that reach each other wait by events, too.
void cuda_ranks_by_events(bool always);
// For tests: bytes of a vector of more than two ranks from which on each adds up a part.
void cuda_ranks_one_shot(size_t bytes);
#ifdef __cplusplus
}
#endif

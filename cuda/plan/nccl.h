/* NCCL, found at run time: what ranks on cards of several processes add up with where the cards do not reach each other's memory. Numbers
 * are float32; calls are queued on a stream (a cudaStream_t), of the device that is current. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nccl;
enum { NCCL_ID_BYTES = 128 };

/* libnccl.so.2 as the loader finds it. errors: INFER_E_UNSUPPORTED (not there, or too old) */
enum infer_status nccl_open(struct nccl **out);
/* abort: kernels that wait for ranks end. */
void nccl_close(struct nccl *n, bool abort);
/* "2.27.3" */
void nccl_version(const struct nccl *n, char *out, size_t size);
/* What one rank makes and all join with; comes back when all are there. errors: INFER_E_DEVICE with the library's words */
enum infer_status nccl_id(const struct nccl *n, void *id);
enum infer_status nccl_join(struct nccl *n, const void *id, int rank, int n_rank);

/* x[count] = the sum over all ranks, in the library's order: of two ranks there is one. */
enum infer_status nccl_sum(const struct nccl *n, float *x, size_t count, void *stream);
/* all[n_rank][count]: own[count] of each */
enum infer_status nccl_all(const struct nccl *n, const float *own, float *all, size_t count, void *stream);
/* x[at[r]] .. to rank r, of every rank: to[n_rank][at[rank + 1] - at[rank]] */
enum infer_status nccl_parts(const struct nccl *n, const float *x, float *to, const size_t *at, void *stream);
/* all[at[r]] .. is what rank r has in own, for every rank; own may be all + at[rank]. */
enum infer_status nccl_columns(const struct nccl *n, const float *own, float *all, const size_t *at,
                               void *stream);

#ifdef __cplusplus
}
#endif

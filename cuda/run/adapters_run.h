// Adapters of a backend: matrices as halves on the card, the rows of a step that have some, the operation. Where no list has any, nothing
// is taken, sent or launched.
#pragma once
#include "cuda/plain/lowrank.h"
#include "cuda/run/cuda_impl.h"

enum infer_status cuda_adapters_open(struct cuda_adapters **out, const struct cuda_backend *b);
void cuda_adapters_close(struct cuda_adapters *a);
// After weights: the matrices, and parts of all operations. Blocks: uses the pinned memory and no step is under way.
enum infer_status cuda_adapters_upload(struct cuda_backend *b);
// Which rows of a step have which, where that is not what the card knows already. f: of CUDA_FLIGHT.
enum infer_status cuda_adapters_send(struct cuda_backend *b, enum row_class cls, const struct step *s,
                                     unsigned f);
// After the upload: the operation's, for any step. Tiles that n decode rows have at most.
lowrank_job cuda_adapters_job(const struct cuda_backend *b, const struct op_list *l, const struct op *op);
// Its parts, n_part of them, and the scales of the first decode row of a step.
const lowrank_dev_part *cuda_adapters_parts(const struct cuda_backend *b, const struct op_list *l,
                                            const struct op *op);
const float *cuda_adapters_one(const struct cuda_backend *b);
int cuda_adapters_tiles(const struct cuda_backend *b, int n);
// Both kernels for the prompt rows that were sent last.
enum infer_status cuda_adapters_prompt(const struct cuda_backend *b, const lowrank_job &j, bool outs,
                                       cudaStream_t s);
enum infer_status cuda_adapters_op(struct cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                   op_queue s);

// Attention by a latent: its jobs.
#pragma once
#include "cuda/decode/mla/mla_attend.h"
#include "cuda/decode/mla/mla_heads.h"
#include "cuda/plain/mla.h"
#include "cuda/plan/links.h"
#include "cuda/run/cuda_impl.h"

// The job of an attention that tensor cores take; false: the plain kernel.
bool mla_make(const cuda_backend *b, const struct op_list *l, const struct op_attend *o, mla_job *j);
// Its attention of n rows, with what the type of the cache asks for: of decode rows queries and sums are turned, of prompt rows keys
// become halves.
cudaError_t mla_decode_run(const mla_job &j, int n, bool overlap, cudaStream_t s);
cudaError_t mla_prompt_run(const cuda_backend *b, const struct op_attend *o, mla_job j, int n,
                           cudaStream_t s);
stack_job mla_stack(const cuda_backend *b, const struct op_list *l, const struct op_heads *o);
// Whether tensor cores take its matrices and rows, too.
bool mla_heads_take(const cuda_backend *b, const struct op_heads *o, const stack_job &j);

// Attention by a latent: its jobs.
#pragma once
#include "cuda/decode/mla/mla_attend.h"
#include "cuda/decode/mla/mla_heads.h"
#include "cuda/plain/mla.h"
#include "cuda/plan/links.h"
#include "cuda/run/cuda_impl.h"

// The job of an attention that tensor cores take; false: the plain kernel.
bool mla_make(const cuda_backend *b, const struct op_list *l, const struct op_attend *o, mla_job *j);
stack_job mla_stack(const cuda_backend *b, const struct op_list *l, const struct op_heads *o);
// Whether tensor cores take its matrices and rows, too.
bool mla_heads_take(const cuda_backend *b, const struct op_heads *o, const stack_job &j);

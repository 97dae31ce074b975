// Attention by a latent: its jobs.
#pragma once
#include "cuda/decode/latent_attend.h"
#include "cuda/decode/latent_heads.h"
#include "cuda/plain/latent.h"
#include "cuda/plan/links.h"
#include "cuda/run/cuda_impl.h"

// The job of an attention that tensor cores take; false: the plain kernel.
bool latent_make(const cuda_backend *b, const struct op_list *l, const struct op_attend *o, latent_job *j);
stack_job latent_stack(const cuda_backend *b, const struct op_list *l, const struct op_heads *o);
// Whether tensor cores take its matrices and rows, too.
bool latent_heads_take(const cuda_backend *b, const struct op_heads *o, const stack_job &j);

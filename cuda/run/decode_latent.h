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
// LINK_LATENT: keys and queries, attention, values
struct latent_link {
    latent_heads_job front, values;
    latent_job attend;
};
// false: no kernel takes it. values.give: not filled
bool latent_link_make(const cuda_backend *b, const struct cuda_link *k, latent_link *e);
// pitch: of what it hands on
enum infer_status latent_link_run(const latent_link *e, int rows, int pitch, bool overlap, cudaStream_t s);

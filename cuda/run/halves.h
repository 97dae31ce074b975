// Keys and values of prompt rows as halves: the pools that the plan has for them.
#pragma once
#include "cuda/prompt/kv_halves.h"
#include "cuda/run/cuda_impl.h"

// The job that fills them from a store for an operation's attention. The pools are the next operation's when the next kernels run.
kv_halves_job cuda_halves(const cuda_backend *b, const struct op_attend *o);

// As act_rows.h, with something done to the rows on their way.
#pragma once
#include "cuda/common/front.h"
#include "cuda/decode/gemv/act_rows.h"

// n rows of j.x through f to j.xo; j.norm is not looked at.
cudaError_t act_front_give(const act_rows_job &j, const front_job &f, int n, bool overlap, cudaStream_t s);

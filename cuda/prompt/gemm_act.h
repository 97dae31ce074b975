// Products of prompt rows whose activation is what others read (a feed-forward part without a gate), on sm_90: tiles of
// halves of act(W x + bias), as gemm_wgmma.cuh makes sums.
#pragma once
#include "cuda/plan/cuda_routes.h"
#include "cuda/prompt/prompt_kernels.h"

// j.glu, j.glu_k_tiles, j.glu_order: the result's tiles, no floats; j.act: up to ACT_RELU2 (erff beside the sums of 256 rows takes more registers than there are); one member. l: one of which route_has_act says so.
// tokens: of a tile, as those of a route.
cudaError_t prompt_act_launch(const prompt_job &j, enum layout l, int tokens, int n, int sm_count,
                              cudaStream_t s);

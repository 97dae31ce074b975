// Heads' matrices of MLA on tensor cores: what is multiplied before attention and behind it. Weights become halves, as do the rows.
#pragma once
#include "cuda/common/stack.h"
#include "cuda/decode/gemv/act_rows.h"
#include "cuda/plan/mla_plan.h"

struct mla_heads_job {
    stack_job stack;
    // in front of attention, decode rows: what a head has behind its columns is rotated on its way, and one block of heads more puts the
    // key [latent | rest], normed and rotated, into the cache. norm NULL: none of this
    rows key;
    const float *norm;
    float eps;
    bool neox;
    const float2 *table; // [row][rest / 2]
    dev_kv kv;
    // behind it, decode rows: the form in which a matmul wants the result; xo NULL: float32 rows
    act_rows_job give;
};
// Whether the kernels take a group's matrices: those of latents of 512 numbers.
bool mla_heads_has(const struct cuda_group *g, int rest);
cudaError_t mla_heads_prepare(void);
cudaError_t mla_heads_launch(dev_tables t, const mla_heads_job &j, int n, bool overlap, cudaStream_t s);
cudaError_t mla_heads_prompt(dev_tables t, const stack_job &j, int n, cudaStream_t s);

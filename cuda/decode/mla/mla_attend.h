// MLA (attention by a latent), absorbed form, on tensor cores: for keys of 576 numbers whose first 512 are the values.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/plan/mla_plan.h"

struct mla_job {
    dev_tables t;
    dev_kv kv;
    const float *q; // [row][n_head][LATENT_K]
    size_t q_row;   // floats
    float *out;     // [row][n_head][LATENT_V]
    size_t out_row;
    int n_head;
    float scale, temp_beta; // score = scale q k; temp_beta 0: none
    int temp_len, temp_offset;
    // decode rows: sums of parts [row][max_split][n_head][LATENT_V], their maximums and weights [row][max_split][n_head]
    float *part;
    float2 *weight;
    int max_split;
};
cudaError_t mla_prepare(void);
// Of caches that are turned, queries are turned, too, and so are the sums that it leaves.
cudaError_t mla_decode_launch(const mla_job &j, int rows, bool overlap, cudaStream_t s);
// Keys in halves (kv.type F16) alone.
cudaError_t mla_prompt_launch(const mla_job &j, int rows, cudaStream_t s);

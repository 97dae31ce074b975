// The program of prompt rows, for the files that build, run and tune it.
#pragma once
#include "cuda/plan/links.h"
#include "cuda/prompt/delta_prompt.h"
#include "cuda/prompt/pairs.h"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/prompt_more.h"
#include "cuda/run/cuda_impl.h"
#include "cuda/run/prompt_program.h"

struct prompt_gemm { // one group: a launch per region
    prompt_job job[CUDA_REGION_MAX];
    enum layout layout[CUDA_REGION_MAX];
    int8_t tuned[CUDA_REGION_MAX][ROUTE_BUCKETS]; // entry of the table, -1: the default rule
    enum route_group group[CUDA_REGION_MAX];      // of kernels
    enum prompt_epilogue epilogue;
    int weights, n_job; // weight group
};
struct prompt_tiles { // rows, and the tiles of a slot that hold them or will
    rows x;
    const float *w; // of a norm; NULL: none
    float eps;
    uint8_t *tiles;
    int order, k_tiles;
};
struct prompt_experts { // and the sum of their results
    pair_order order;
    pair_gemm gated, down;
    rows x; // what becomes activations in this order:
    int x_order;
    enum layout layout[2];
    pair_mix mix;
};
struct prompt_link {
    struct cuda_link is;
    bool out_rows; // works on the rows that want an output
    struct prompt_gemm gemm;
    struct prompt_more_job put;
    struct prompt_post_job post; // POST: behind the products
    float factor;                // MATMUL: what rows, its result, are times; 1: none
    rows scaled;
    struct prompt_attend_job attend;
    struct prompt_experts experts;
    delta_prompt_job delta; // DELTA: what is in front of its norm
    delta_norm_job delta_norm;
    bool mma;                // attention by the kernels that every chip has
    bool from_rows, to_rows; // makes tiles of rows first; makes rows of its tiles at the end
    struct prompt_tiles input, output;
    front_job front; // of .before, done to the input on its way
};
struct prompt_program {
    struct prompt_link *link;
    int n_link;
    struct route_case route;
    int mx_kind;
    bool has_delta;
};

// prompt_gemm.cu: takes over what an earlier run measured; one matmul of n rows
void prompt_tuned_load(const cuda_backend *b, prompt_program *p);
enum infer_status prompt_gemm_run(const cuda_backend *b, const prompt_program *p, const prompt_gemm *l, int n,
                                  cudaStream_t s);
// prompt_experts.cu: LINK_PAIRS and LINK_PAIRS_MIX
void prompt_experts_build(const cuda_backend *b, prompt_link *d);
enum infer_status prompt_experts_run(const cuda_backend *b, const prompt_link *d, int n, cudaStream_t s);
// prompt_delta.cu: LINK_DELTA, whose result goes to tiles; the cuts of a step, before the first of them
void prompt_delta_build(const cuda_backend *b, prompt_link *d, prompt_tiles out);
enum infer_status prompt_delta_cut(const cuda_backend *b, cudaStream_t s);
enum infer_status prompt_delta_run(const cuda_backend *b, const prompt_link *d, int n, cudaStream_t s);

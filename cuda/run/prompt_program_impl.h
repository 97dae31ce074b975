// The program of prompt rows, for the files that build, run and tune it.
#pragma once
#include "cuda/run/cuda_impl.h"
#include "cuda/run/prompt_program.h"
#include "cuda/prompt/prompt_kernels.h"

struct prompt_link { // one group: a launch per region
    prompt_job job[CUDA_REGION_MAX];
    enum layout layout[CUDA_REGION_MAX];
    int8_t tuned[CUDA_REGION_MAX][ROUTE_BUCKETS]; // entry of the table, -1: the default rule
    enum route_group group[CUDA_REGION_MAX];      // of kernels
    enum prompt_epilogue epilogue;
    int weights, n_job; // weight group
};
struct prompt_norm {
    rows x;
    const float *w;
    float eps;
    int order, k_tiles;
};
struct prompt_layer {
    prompt_norm attn_norm, ffn_norm;
    prompt_link qkv, out, gate_up, down;
    prompt_put_job put;
    prompt_attend_job attend;
};
struct prompt_program {
    const struct op *embed, *pick, *select;
    struct prompt_layer *layer;
    int n_layer;
    prompt_norm norm;
    prompt_link head;
    uint8_t *tiles[3];
    struct route_case route;
    int mx_kind;
};

// prompt_link.cu: takes over what an earlier run measured; one matmul of n rows
void prompt_tuned_load(const cuda_backend *b, prompt_program *p);
enum infer_status prompt_link_run(const cuda_backend *b, const prompt_program *p, const prompt_link *l, int n,
                                  cudaStream_t s);

// The program of prompt rows, for the files that build, run and tune it.
#pragma once
#include "cuda/prompt/delta_prompt.h"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/prompt_qkv_post.h"
#include "cuda/run/program.h"
#include "cuda/run/prompt_program.h"

struct prompt_gemm { // one group: a launch per region
    prompt_job job[CUDA_REGION_MAX];
    enum layout layout[CUDA_REGION_MAX];
    int8_t tuned[CUDA_REGION_MAX][ROUTE_BUCKETS]; // entry of the table, -1: the default rule
    enum route_group group[CUDA_REGION_MAX];      // of kernels
    enum prompt_epilogue epilogue;
    bool acted;         // an activation of the sums instead (gemm_act.h)
    int weights, n_job; // weight group
};
struct prompt_tiles { // rows, and the tiles of a slot that hold them or will
    rows x;
    const float *w; // of a norm; NULL: none
    float eps;
    uint8_t *tiles;
    int order, k_tiles;
};
struct prompt_link : program_link {
    // Kinds with a matmul.
    struct prompt_gemm gemm;
    float factor; // MATMUL: what rows, its result, are times; 1: none
    rows scaled;
    struct prompt_tiles input, output;
};
struct prompt_program {
    struct prompt_link *link;
    int n_link;
    struct route_case route;
    int mx_kind;
    bool has_delta, has_ssm; // links in chunks
};

// What a kind of link does with prompt rows; run: n of them.
struct prompt_code {
    void (*make)(prompt_program *p, cuda_backend *b, prompt_link *d);
    enum infer_status (*run)(const cuda_backend *b, const prompt_program *p, const prompt_link *d, int n,
                             cudaStream_t s);
};
#define LINK(id, name, file) extern const struct prompt_code prompt_##name;
#include "cuda/plan/links.def"

// Where a link leaves its result: the tiles that the next one reads, or those that become rows.
prompt_tiles prompt_output(const cuda_backend *b, prompt_link *d, enum act_slot slot);
// prompt_gemm.cu: takes over what an earlier run measured; one matmul of n rows
void prompt_tuned_load(const cuda_backend *b, prompt_program *p);
// made: its activations are e4m3 already
enum infer_status prompt_gemm_run(const cuda_backend *b, const prompt_program *p, const prompt_gemm *l,
                                  bool made, int n, cudaStream_t s);
// The same with its input; what it is made of.
void prompt_matmul_make(prompt_program *p, cuda_backend *b, prompt_link *d);
// Of a region of a group: weights, members, and where e4m3 activations lie. glu: gate and up, whose rows lie in turns.
void prompt_place_weights(const cuda_backend *b, int group, int region, bool glu, prompt_job *j);
enum infer_status prompt_matmul_run(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                    int n, cudaStream_t s);
// link_delta.cu: the cuts of a step, before the first LINK_DELTA or LINK_SSM, and where they are
struct delta_cuts prompt_cuts(const cuda_backend *b);
enum infer_status prompt_delta_cut(const cuda_backend *b, cudaStream_t s);

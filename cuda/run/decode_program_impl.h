// The program of decode rows, for the files that build and run it.
#pragma once
#include "cuda/decode/act_front.h"
#include "cuda/decode/attend_decode.h"
#include "cuda/decode/delta_decode.h"
#include "cuda/decode/experts_batch.h"
#include "cuda/decode/experts_one.h"
#include "cuda/decode/gemv_even.h"
#include "cuda/decode/mix_give.h"
#include "cuda/decode/post_norm.h"
#include "cuda/decode/skinny.h"
#include "cuda/plan/links.h"
#include "cuda/run/decode_latent.h"
#include "cuda/run/decode_program.h"

struct matmul_link {
    const struct mm_kernel *k;
    mm_job job;
    size_t x_bytes;                 // shared memory for the input of one row
    int blocks;                     // one row
    bool few[3];                    // the kernels for up to 2, 4 and 8 rows fit
    const struct even_kernel *even; // one row of codes: instead of k; NULL: not
    even_job even_job;
    int nth; // of a norm: those that handed the residual stream on before it
};
// LINK_EXPERTS of engines of more than one row
struct batch_link {
    batch_router_job router;
    batch_job gated, down;
    const struct batch_kernel *of_gated, *of_down;
    batch_mix_job mix;
    bool mixes;
};
// LINK_EXPERTS of engines of one row
struct experts_link {
    experts_one_job job;
    struct experts_plan plan;
};
struct decode_link {
    struct cuda_link is;
    const char *name;
    bool out_rows; // works on the rows that want an output
    union {
        struct matmul_link mm; // MATMUL, GATED, RESIDUAL, HEAD, POST
        embed_job embed;
        attend_job attend;
        delta_decode_job delta;
        latent_link latent;
        mix_give_job mix;
        experts_link experts;
        batch_link batch;
    };
    matmul_link other; // MATMUL: another launch, of the second region; k NULL: none
    // Of a matmul behind an edge of rows: what makes its input of them; in front of one: what makes rows of a result.
    bool from_rows, to_rows;
    act_rows_job input, output;
    front_job front; // of .before, done to the input on its way
    post_job post;   // POST: behind the matmul
    float factor;    // MATMUL: what rows, its result, are times; 1: none
    rows scaled;
};
struct decode_program {
    struct decode_link *link;
    int n_link, settled; // settled: first link that begins when all that wrote the step is done for sure
    float (*up)[2];      // of each region of a group: what scales are multiplied by, see unit_halves.cuh
    float2 *cand;
    int n_cand; // a row, as the head's launch leaves them
};

// Shared memory that a block may have on the chip, or on the one that is emulated.
static inline size_t decode_shared_memory(const cuda_backend *b) {
    return b->c.sm_emulate == 120 ? 99 << 10 : b->prop.sharedMemPerBlockOptin;
}
static inline int skinny_chip(const cuda_backend *b) { return cuda_only_mma(b) ? 80 : 90; }
// decode_build.cu: splits the blocks between two regions so that the slower half is fastest.
int decode_best_split(const mm_job &j, const struct mm_kernel *k, int blocks);
// decode_even.cu: gives the link i, a matmul whose packets and stream are known, a kernel of gemv_even.cuh where that is faster.
void decode_even(const cuda_backend *b, decode_link *d, int i);
// decode_experts.cu: the job of a LINK_EXPERTS but for whom it hands its result; false: no kernel takes it.
bool experts_one_make(const cuda_backend *b, const struct cuda_link *k, experts_link *e);
// decode_experts_batch.cu: the same for engines of more than one row; its launches, pitch: of what it hands on.
bool batch_make(const cuda_backend *b, const float (*up)[2], const struct cuda_link *k, batch_link *e);
enum infer_status batch_run(const cuda_backend *b, const batch_link *e, int rows, int pitch, cudaStream_t s);
// decode_delta.cu: the job of a LINK_DELTA but for whom it hands its result.
void mix_make(const cuda_backend *b, const struct cuda_link *k, mix_give_job *j); // the same of a LINK_MIX
void delta_make(const cuda_backend *b, const struct cuda_link *k, delta_decode_job *j);

// A mixture of experts for one decode row: three kernels that run beside each other. The router's leaves its logits as packets; each
// block of the other two chooses from them by itself and fetches weights from then on; gate and up leave packets for down.
#pragma once
#include "cuda/decode/gemv.h"

enum experts_out {
    EXPERTS_EACH, // the products of each choice, and the choice: float32 rows
    EXPERTS_MIX,  // their weighted sum
    EXPERTS_ADD   // that added to the residual stream, handed on as EPI_ADD does
};

// A stack of matrices, in units: row tile t of matrix e is at first + e * stack + t * tile.
struct experts_stack {
    enum layout layout;
    const uint8_t *first;
    size_t stack, tile;
    int u;
    float factor;
    const float *bias; // of matrix e: bias + e * n, NULL: none
};

struct experts_one_job {
    // [norm] matmul, route
    const float *x_router, *x; // rows; the same where a norm is part of it
    const float *norm;         // NULL: none
    float eps;
    int k_router, k;
    enum layout router_layout; // halves or floats
    const uint8_t *router;
    int router_u;
    float router_factor;
    const float *router_bias;
    struct router route; // addresses on the device
    // experts, glu: a step is 16 columns of a choice; rows of gate and up lie in turns (paired) or apart
    struct experts_stack gate, up; // tile: bytes of a step
    bool paired;
    int n_ff, act;
    float limit, alpha;
    // experts, mix, add: a block a row tile; parts: warps that share a choice
    struct experts_stack down;
    int d, parts;
    enum experts_out out_kind;
    float *out, *choice; // rows; EXPERTS_ADD: out is the residual stream
    const float *next_norm, *scale;
    float *square_out;
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch;
    // packets
    uint2 *
        logits; // [copies][n_expert + 1], so that not all blocks ask the same lines; the last: the sum of squares of x
    uint8_t *codes; // of x, times the norm's weights
    int copies;
    uint8_t *glu; // [n_used][steps][32]
    const int *seq;
    uint32_t tag;
    bool beside; // kernels may run while those in front do
    // shape of the blocks
    bool together; // a thread of each block has an expert
    int gated_blocks, gated_warps, gated_slots, down_warps, down_slots;
};

enum { EXPERTS_COPIES = 8, EXPERTS_UNIT_PACKETS = 512 }; // bytes of 256 columns
LAYOUT_FN int experts_steps(int n_ff) { return (n_ff + 15) / 16; }
LAYOUT_FN size_t experts_glu_bytes(int n_ff) { return (size_t)experts_steps(n_ff) * 32; } // of a choice

// Chooses the shape of the blocks for sm_count multiprocessors with so much shared memory; false: no kernel takes the job.
bool experts_one_plan(struct experts_one_job *j, int sm_count, size_t most);
cudaError_t experts_one_launch(const struct experts_one_job &j, bool overlap, cudaStream_t s);
cudaError_t experts_one_prepare(void); // attributes of every kernel, once a device

// Kernels of a layout of codes.
struct experts_kernels {
    enum layout l;
    void (*gated)(const experts_one_job), (*down)(const experts_one_job);
};

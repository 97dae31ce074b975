// MoE of one decode row: two kernels that run beside each other. The router's leaves its logits as packets; each
// block of the other one chooses from them by itself and fetches all of its weights at once, of gate and up and of down. What gate and
// up give goes to all blocks as packets.
#pragma once
#include "cuda/decode/gemv/gemv.h"

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
    bool paired, single;           // single: gate alone, and its activation
    int n_ff, act;
    float limit, alpha;
    // experts, mix, add
    struct experts_stack down;
    int d;
    // An expert that every row takes, whose choice is the first; its weight is sigmoid(weigh x), 1 without. It may have another width.
    bool shared;
    int n_ff_shared;
    struct experts_stack gate_shared, up_shared, down_shared; // of one matrix each
    struct {
        const uint8_t *w; // NULL: none; its row tile
        enum layout layout;
        int row;
        float factor;
        const float *bias;
    } weigh;
    enum experts_out out_kind;
    float *out, *choice; // rows; EXPERTS_ADD: out is the residual stream
    const float *next_norm, *scale;
    float *square_out;
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch;
    // packets
    // [copies][n_expert + 2], so that not all blocks ask the same lines; behind them the sum of squares of x, and what weighs the shared one
    uint2 *logits;
    uint8_t *codes; // of x, times the norm's weights
    int copies;
    uint8_t *glu; // of the choices one after the other, [steps][32]
    const int *seq;
    uint32_t tag;
    bool beside; // kernels may run while those in front do
};

enum {
    EXPERTS_COPIES = 8,
    EXPERTS_UNIT_PACKETS = 512, // bytes of 256 columns
    EXPERTS_WARPS = 16,
    EXPERTS_PIECES = 64,
    EXPERTS_TILES = 8 // row tiles of down that a block may have
};
LAYOUT_FN int experts_steps(int n_ff) { return (n_ff + 15) / 16; }
LAYOUT_FN int experts_shared_steps(const struct experts_one_job *j) {
    return j->shared ? experts_steps(j->n_ff_shared) : 0;
}
LAYOUT_FN int experts_all_steps(const struct experts_one_job *j) {
    return experts_shared_steps(j) + j->route.n_used * experts_steps(j->n_ff);
}
// Units of a row of down, of all choices.
LAYOUT_FN int experts_shared_units(const struct experts_one_job *j) {
    return j->shared ? j->down_shared.u : 0;
}
LAYOUT_FN int experts_all_units(const struct experts_one_job *j) {
    return experts_shared_units(j) + j->route.n_used * j->down.u;
}
// Number i of things of which the shared expert has `shared`, the first ones, and each other choice n: whose it is, and which.
struct experts_place {
    int choice, i;
};
LAYOUT_FN struct experts_place experts_place_of(const struct experts_one_job *j, int i, int shared, int n) {
    const int of = i - shared, c = of / n;
    const struct experts_place p = {j->shared + c, of - c * n}, first = {0, i};
    return i < shared ? first : p;
}

// What a block fetches: first a piece for each of its steps, then, for each of its row tiles of down, `cut` pieces of each choice. Where
// they lie in its shared memory, and which piece every warp must be through before one may come (-1: it may at once).
struct experts_shape {
    int blocks, steps, tiles; // of a block at most; 0: nothing of that part
    int extra,
        lead; // blocks 0 .. extra - 1 have a row tile more than the others, which have `lead` steps more for that
    int cut, part;                              // pieces of a choice's row tile of down, units of a piece
    int cut_shared;                             // of the shared expert's
    int each_steps, shared_steps, shared_units; // of a choice and of the shared expert: as below
    int n_piece, late, bytes;                   // late: the first that waits for others
    int at[EXPERTS_PIECES];
    int8_t after[EXPERTS_PIECES];
};
// How a job runs: one kernel, or where there is none for both layouts one for each part.
struct experts_plan {
    struct experts_shape both, gated, down; // blocks 0: not this one
};
// For sm_count multiprocessors with so much shared memory; false: no kernel takes the job.
bool experts_one_plan(const struct experts_one_job *j, int sm_count, size_t most, struct experts_plan *p);
cudaError_t experts_one_launch(const struct experts_one_job &j, const struct experts_plan &p, bool overlap,
                               cudaStream_t s);
cudaError_t experts_one_prepare(void); // attributes of every kernel, once a device

// Whether the shared expert has another width than the others, or experts are one matrix.
LAYOUT_FN bool experts_are_odd(const struct experts_one_job *j) {
    return j->single || (j->shared && (j->n_ff_shared != j->n_ff || j->down_shared.u != j->down.u));
}
// Kernels of a layout of codes of gate and up: with down in another layout, or without. [1]: of experts that are odd.
typedef void (*experts_kernel)(const experts_one_job, const experts_shape);
struct experts_kernels {
    enum layout l, other;
    experts_kernel gated, down, same[2], both[2]; // both: down in the other one
};

// MoE of several decode rows: jobs of experts_batch.cuh and of the kernels around it.
#pragma once
#include "cuda/decode/gemv/act_rows.h"

enum {
    BATCH_WARPS = 16,
    BATCH_HEAD = 4480,     // of shared memory, of a part: barriers, items, addresses
    BATCH_ITEMS = 64,      // of one block at most
    BATCH_LIST = 512,      // that the list of items has room for at least
    BATCH_RING = 40,       // row tiles of a block's ring at most
    BATCH_MET = 4,         // row tiles of a team whose sums are in shared memory
    BATCH_PAIRS = 8,       // of an item at most
    BATCH_FEW = 8,         // rows whose experts each block chooses by itself
    BATCH_FEW_PAIRS = 128, // of them at most
    // what lies where in shared memory: the list of items of few rows, heads of both parts, sums, the ring
    BATCH_LISTS = 3200,
    BATCH_SUMS = BATCH_LISTS + 2 * BATCH_HEAD,
    BATCH_RING_AT = BATCH_SUMS + BATCH_WARPS * BATCH_MET * 512
};

// Pairs of a row and a choice, in the order of their experts. A pair is row * n_pair + choice, where an expert that all rows take, if there
// is one, is choice 0 and expert -1.
struct batch_order {
    int *pair;
    // item[0].x: how many follow; then expert, first place in pair, number of pairs, row tiles of gate and up that are there
    int4 *item;
};

// A part of a launch: the matrices of the experts that the rows of a step chose, of gate and up with what follows them, or of down.
struct batch_job {
    const uint8_t *w; // units of matrix 0
    size_t step;      // bytes from a matrix to the next
    int u, k, tiles;  // units of a row tile, columns, row tiles of a matrix
    float up, down;   // see unit_halves.cuh
    // the same of the expert that all rows take; NULL: there is none
    const uint8_t *w_shared;
    float up_shared, down_shared;
    int n_pair,
        after; // pairs of a row; down: row tiles of gate and up, of which it waits for those of its items
    // halves in the order of codes, k of each: of rows (gated), or of places in order.pair
    const uint8_t *x;
    size_t x_row;
    const float *factor; // gated: of the sums of a row; NULL: 1
    const float *bias;   // [expert][n], NULL: none; gated: that of up begins bias_up floats further
    size_t bias_up;
    int n; // gated: rows of gate; else of the matrix
    // gated: halves in the order of codes, of places
    bool single; // no up: rows of a tile are as many columns
    int act;
    float limit, alpha;
    uint8_t *xo;
    size_t xo_row;
    float *y; // else: [row][choice][n], behind the expert that all take
    size_t y_row;
    float *y_shared; // of that one: [row][n]
    size_t y_shared_row;
    // by batch_plan: warps that share the columns, units of each; teams of such warps; row tiles of the ring; what divides by tiles
    int classes, each, teams, slots;
    unsigned by_tiles;
};
// What a block does.
struct batch_run {
    batch_job gated, down;
    batch_order order;
    // by batch_plan: whether one kernel does both parts. Row tiles of down that take the place of one of gate and up; a ring's first byte
    bool both;
    int per, ring_at, bytes, first; // first: row tiles that are asked for before the columns
    int alone;                      // row tiles of down's own ring
    // see batch_over: what divides by the number of blocks, by pairs of a row, by `per` and by the ring's row tiles of gate and up
    unsigned by_blocks, by_pair, by_per, by_slots;
    // up to few_most rows, whose order is in no memory: each block chooses from their logits
    int few_most;
    bool few;
    const int *n_row;
    struct router route; // addresses on the device
    rows logits, choice; // choice: [row][2 * n_used]
};

// Kernels of one layout; both: with down in the same one, and in the other that is usual beside it (NULL: none).
typedef void (*batch_entry)(const batch_run);
struct batch_kernel {
    enum layout l, other;
    batch_entry gated, plain, both[2];
};
// Shape of a block; false where no kernel takes the layouts, or none fits in so much shared memory.
bool batch_plan(struct batch_run *r, enum layout gated, enum layout down, int sm_count, size_t shared);
cudaError_t batch_launch(const struct batch_run *r, enum layout gated, enum layout down, int sm_count,
                         cudaStream_t s);
cudaError_t batch_prepare(void); // attributes of every kernel, once a device

// choice: [row][2 * n_used]
struct batch_order_job {
    const int *n_row;
    rows choice;
    int n_used, n_expert;
    bool shared; // an expert that all rows take is in front of a row's choices
    batch_order order;
};

// [norm] matmul route of the rows, and the order of their pairs.
struct batch_router_job {
    batch_order_job o;
    struct router route; // addresses on the device
    rows x, logits;
    const float *norm; // weights; NULL: x is normed
    float inv_k, eps;
    rows other;  // what the experts read instead of x; p NULL: x, normed
    uint8_t *xo; // that as halves in the order of codes
    size_t xo_row;
    const uint8_t *router; // floats or halves
    enum layout router_layout;
    int router_u, k_router;
    float router_factor;
    const float *router_bias;
    // a row of weights more, of the same columns, whose products go to weighed; w NULL: none
    struct {
        const uint8_t *w; // its row tile
        enum layout layout;
        int row;
        float factor;
        const float *bias;
    } weigh;
    rows weighed;
    int *arrived; // BATCH_GROUPS numbers, 0 between launches
    bool few;     // as in batch_run: logits alone, and counters of the items that are 0
};
enum { BATCH_GROUPS = 33 };                   // groups of 8 rows of a step, and one
bool batch_router_fits(int k, size_t shared); // in so much of a block
cudaError_t batch_router_launch(batch_router_job j, int n, int sm_count, cudaStream_t s);

// struct op_mix, the sum with another row (add.p NULL: none), and what the next link reads of it (next.norm NULL: rows alone).
struct batch_mix_job {
    const int *n_row;
    rows x, w, shared, gate, add, out; // p NULL: absent
    int n_used;
    act_rows_job next; // its x is not read
};
cudaError_t batch_mix_launch(const batch_mix_job &j, int n, cudaStream_t s);

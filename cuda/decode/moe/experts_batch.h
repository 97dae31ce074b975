// MoE of several decode rows: jobs of experts_batch.cuh and of the kernels around it.
#pragma once
#include "cuda/decode/gemv/act_rows.h"

enum {
    BATCH_WARPS = 16,
    BATCH_HEAD = 4992, // of shared memory: barriers, items, addresses
    BATCH_ITEMS = 64,  // of one block at most
    BATCH_LIST = 512,  // that the list of items has room for at least
    BATCH_RING = 8,    // row tiles of a team's ring at most
    BATCH_MET = 4,     // row tiles of a team whose sums are in shared memory
    BATCH_PAIRS = 8    // of an item at most
};

// Pairs of a row and a choice, in the order of their experts. A pair is row * n_used + choice.
struct batch_order {
    int *pair;
    // item[0].x: how many follow; then expert, first place in pair, number of pairs, row tiles of gate and up that are there
    int4 *item;
};

// One launch: the matrices of the experts that the rows of a step chose, for gate and up with what follows them, or for down.
struct batch_job {
    const uint8_t *w; // units of matrix 0
    size_t step;      // bytes from a matrix to the next
    int u, k, tiles;  // units of a row tile, columns, row tiles of a matrix
    float up, down;   // see unit_halves.cuh
    batch_order order;
    int n_used, after; // down: row tiles of gate and up, of which it waits for those of its items
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
    float *y; // else: [row][choice][n]
    size_t y_row;
    // by batch_plan
    // warps that share the columns, units of each; teams of such warps; row tiles of a team's ring
    int classes, each, teams, slots;
    int ring_at, bytes; // of shared memory
};

// Kernels of one layout.
struct batch_kernel {
    enum layout l;
    void (*gated)(const batch_job), (*plain)(const batch_job);
};
// NULL: none for the layout.
const struct batch_kernel *batch_find(enum layout l);
// Shape of a block; false where none fits in so much shared memory.
bool batch_plan(struct batch_job *j, const struct batch_kernel *k, size_t shared);
cudaError_t batch_launch(const struct batch_job *j, const struct batch_kernel *k, bool gated, int sm_count,
                         cudaStream_t s);
cudaError_t batch_prepare(void); // attributes of every kernel, once a device

// choice: [row][2 * n_used]
struct batch_order_job {
    const int *n_row;
    rows choice;
    int n_used, n_expert;
    batch_order order;
};
cudaError_t batch_order_launch(const batch_order_job &j, cudaStream_t s);

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
    int *arrived; // BATCH_GROUPS numbers, 0 between launches
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

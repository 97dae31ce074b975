// Decode attention and the small kernels around it.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/gemv.h"

struct attend_job {
    dev_tables t;
    dev_kv kv;
    const float *qkv; // [row][q | k | v]
    size_t qkv_row;   // floats
    int q_col, k_col, v_col, n_head;
    float scale, softcap;         // score = scale q k, with softcap softcap tanh(scale q k), in powers of two
    int window;                   // 0: none
    const float *sinks;           // sinks[n_head], NULL: none
    const float *q_norm, *k_norm; // NULL: none
    float eps;
    const float2 *rope; // [row][n_rot / 2]
    int n_rot;
    bool neox, put; // put: rows of different sequences, whose keys this kernel stores itself
    bool wait;      // layer 0: the step itself is still being written
    float *part;    // [row][head][split][dv + 4]
    int max_split;
    int *arrived; // [row][item head]
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
    // one row: packets of handoff.cuh instead of qkv and xo; both or neither
    const uint2 *take_handoff;
    uint8_t *give_handoff;
    uint32_t tag;
    // set by attend_plan: heads of an item, items of a key head and of a row, log2 of a row's splits
    int rep, n_chunk, n_item_head, split_shift;
    unsigned dv_inverse; // 2^32 / dv, rounded up
    bool one;            // set by attend_launch: no block gets a second item
    int max_row;         // set by attend_launch: rows that the launch has room for
    const struct attend_kernel *kernel;
    // what the kernels of attend_decode_instances.h do beside this
    bool v_norm, late; // values are normed, without weights; norms of q and k stand behind the rotation
    bool more;         // set by attend_plan: one of these kernels
    float temp_beta;   // 0: none
    int temp_len, temp_offset;
    int fine_shift; // set by attend_launch: log2 of the items that the heads of one go to where the row is not split
};
enum { ATTEND_HEADS = 256 }; // item heads of a row: counters that the plan has
// Chooses the kernel and fills its fields; smem: bytes of shared memory a block may have. False: no kernel takes head
// sizes above 512 or not of 8, or the form in which the result is wanted.
bool attend_plan(attend_job *j, size_t smem);
// Whether one row may come and go in packets.
bool attend_takes_handoff(const attend_job &j);
// rows: the most that the step may have
cudaError_t attend_launch(attend_job j, int rows, int sm_count, bool overlap, cudaStream_t s);
// k and v of all rows to the cache, before attend_launch when rows may be of one sequence
cudaError_t attend_put_launch(const attend_job &j, int n, bool overlap, cudaStream_t s);
cudaError_t attend_prepare(void);

// embedding rows to the residual stream, and as the first reader wants them; also the rope tables
struct embed_job {
    dev_tables t;
    const uint8_t *ring; // the host's steps, ring_row bytes apart; number *next % CUDA_FLIGHT is this one
    size_t ring_row;
    const int *next;
    dev_input in;
    dev_matrix w; // region NULL: every row is given
    float scale;
    float *res;
    size_t res_row;
    const float *next_norm;
    float *square;
    size_t square_row;
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch;
    float *scale_at; // scales of gemv_args, four of each row scale_row apart, that start at 1
    int scale_row;
    int n_rope;
    struct {
        const float *inv_freq;
        const int32_t *axis; // NULL: pos turns all pairs
        int half;
        float mscale;
        float2 *table;
    } rope[4];
};
cudaError_t embed_launch(const embed_job &j, int n, cudaStream_t s);
// The largest of the weights' scales and of their minimums * 2^-24, into *most (0 before), as a float's bits.
cudaError_t scale_range(enum layout l, const uint8_t *weights, size_t n_unit, unsigned *most, cudaStream_t s);

// How kernels of cards that reach each other's memory speak: of decode rows each number goes with a tag, 8 bytes at once, into a slot of
// every other rank, which waits for the tag; many rows go whole, and a block tells those of its number when its share is there. There is no barrier: a slot is written again two operations later, and nobody comes to an
// operation before all have read what they had of the one before the last, as each waits for all in every operation.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/plan/rank_plan.h"

struct rank_wires {
    int rank, n;
    int n_op;       // operations of a step in which ranks speak
    const int *seq; // number of the step
    size_t slot_n,
        bulk_n; // numbers that one rank sends to another in one operation, at most: of few rows, of many
    uint2 *slot[CARDS_MAX];    // of each rank: slot[2][n][slot_n]
    uint32_t *flag[CARDS_MAX]; // of each rank: flag[begin, end][n][GATHER_BLOCKS]
    uint32_t *meet[CARDS_MAX]; // of each rank: meet[n], how far the others are
    int bulk_blocks;           // of many rows: as many as are on every card at once, with room to spare
    float *bulk[CARDS_MAX];    // of each rank: bulk[2][n][bulk_n]
    uint32_t *bulk_flag
        [CARDS_MAX]; // of each rank: bulk_flag[n][BULK_BLOCKS], the operation that the others' blocks have sent
    int *left;       // of the host: a rank left the step
    int *fault;      // of the host, this rank's: 1 + the rank that did not come, RANK_LEFT: one left
};
enum { RANK_ONE_SHOT = 256 << 10 /* bytes of a vector that every rank adds up whole */ };
enum { RANK_LEFT = CARDS_MAX + 1, RANK_SECONDS = 8 /* until a rank that does not come is given up */ };

// rank_reduce.cu: x = the sum of all ranks' x, in their order; nth: operation of the step. n rows.
struct rank_reduce_job {
    struct rank_wires w;
    int nth;
    rows x;
    const int *n_row;
};
cudaError_t rank_reduce_launch(const rank_reduce_job &j, int n, bool overlap, cudaStream_t s);
// rank_gather.cu: x to columns col .. of all ranks' rows, stride floats apart
struct rank_gather_job {
    struct rank_wires w;
    int nth, col;
    size_t stride;
    rows x;
    const int *n_row;
    float *to[CARDS_MAX]; // of each rank: where the columns of all come together
};
cudaError_t rank_gather_launch(const rank_gather_job &j, int n, bool overlap, cudaStream_t s);
// rank_gather.cu: nothing behind it begins before all ranks have come to it: to tag, one more than at the last one.
cudaError_t rank_meet_launch(const rank_wires &w, uint32_t tag, cudaStream_t s);

// rank_plain.cu: cards that wait for each other by events. x[t] = the sum of from[r][t] (adds: x[t] + that), out[t][col[r] ..] =
// from[r][t], whose rows follow each other.
struct rank_rows {
    int n;
    const float *from[CARDS_MAX];
    int col[CARDS_MAX + 1];
};
cudaError_t rank_sum_launch(const rank_rows &j, rows x, bool adds, int n, cudaStream_t s);
// x[t] = (adds: x[t] +) rows that lie behind each other, of which from[r] has the numbers at[r] .. at[r + 1] - 1
struct rank_parts {
    int n;
    const float *from[CARDS_MAX];
    size_t at[CARDS_MAX + 1];
};
cudaError_t rank_parts_launch(const rank_parts &j, rows x, bool adds, int n, cudaStream_t s);
cudaError_t rank_columns_launch(const rank_rows &j, rows out, int n, cudaStream_t s);

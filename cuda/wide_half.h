// Jobs of the matmul of halves for many decode rows, see wide_half.cuh.
#pragma once
#include "stream.h"

enum {
    HALF_CLASSES = 4,
    HALF_ROWS = 256,
    HALF_STAGES = 8,
    HALF_WARPS = 8,
    HALF_SHARED = 3,
    HALF_ENTRIES = 6,
    HALF_FACTOR = 128, // of shared memory: a float for each row
    HALF_RING_AT = 2048
};

// Kernels of 8 nt rows: by warpgroups or by warps; warps beside those with row tiles.
#if defined(__CUDACC__)
#define HALF_FN static __host__ __device__ inline constexpr
#else
#define HALF_FN static inline
#endif
HALF_FN bool half_by_groups(int nt) { return nt == 16; }
HALF_FN int half_helpers(int nt) { return half_by_groups(nt) ? 4 : 1; }

struct half_job {
    mm_job j; // x: tiles of half_tile.cuh
    // what the blocks tell each other: 1 / rms of each row, tagged with the step's number and tag
    uint2 *rms;
    const int *seq;
    uint32_t tag;
    enum mm_epilogue epilogue;
    int rows, pitch, groups;           // of the step at most; of a tile of x; groups of 8 nt rows
    int tiles, items, n_column;        // row tiles of 16; items: mw row tiles x a group of rows; column tiles
    int mw, span, stages, stage_bytes; // row tiles of an item, a warp each; column tiles of a stage
    int sums_at, best_at, smem;        // of shared memory; behind the best: the output of each row
    const struct half_entry *entry;
};
struct half_entry {
    enum layout l;
    bool shared; // a row tile's classes on four warps; at most HALF_SHARED row tiles then
    int nt, x;   // groups of 8 rows; bytes of rows of a column tile
    void (*run)(const half_job);
};
// Whether the kernels take a link; the other end of its output must want halves or nothing.
bool half_fits(const struct mm_kernel *k, const struct mm_job *j, int sm, size_t smem);
// Fills all but j and epilogue; sm: compute capability * 10.
bool half_plan(struct half_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem);
cudaError_t half_launch(const struct half_job *w, int sm_count, cudaStream_t s);
cudaError_t half_prepare(void);
// Rows of a tile for a step of so many rows.
static inline int half_pitch(int rows) { return (rows + 7) / 8 * 8; }

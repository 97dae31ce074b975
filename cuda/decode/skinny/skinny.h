// Jobs of the matmul for several decode rows, see skinny.cuh.
#pragma once
#include "cuda/decode/gemv/gemv.h"

enum {
    HALF_ROWS = 512, // of a launch
    HALF_BEST = 256, // of one of the head
    HALF_STAGES = 8,
    HALF_COUNTS = 512, // tiles whose classes several blocks share
    HALF_FACTOR = 128, // of shared memory: a float for each row
    HALF_RING_AT = 3072
};
// Clusters of two blocks, see skinny_wide.cuh
enum {
    WIDE_NT = 16,     // groups of 8 rows of a block
    WIDE_TILES = 8,   // row tiles of a block
    WIDE_ROWS = 1024, // of a launch
    WIDE_STAGES = 12, // of a ring at most
    WIDE_X_FULL = 0,  // of shared memory: barriers of the rings of rows and of weights
    WIDE_X_EMPTY = 96,
    WIDE_W_FULL = 192,
    WIDE_W_EMPTY = 288,
    WIDE_FACTOR = 384,
    WIDE_RING_AT = 5120
};

#if defined(__CUDACC__)
#define HALF_FN static __host__ __device__ inline constexpr
#else
#define HALF_FN static inline
#endif
// Warps beside those with row tiles: where warpgroups work, more than the producer.
HALF_FN int skinny_helpers(bool group) { return group ? 4 : 1; }
// Warps of a row tile where they have a class each, and row tiles of such a block at most.
HALF_FN int skinny_classes(enum layout l) { return layout_kind(l) == KIND_HALVES ? 4 : 8; }
HALF_FN int act_tiles_shared(enum layout l) { return skinny_classes(l) == 4 ? 3 : 2; }
// Row tiles of a block at most, a warp each.
HALF_FN int skinny_warps(enum layout l, int nt, bool group) {
    return skinny_classes(l) == 8 && group && nt <= 8 ? 16 : skinny_classes(l) == 8 && nt == 4 ? 15 : 8;
}
HALF_FN int skinny_threads(enum layout l, int nt, bool group, bool shared) {
    return ((shared ? skinny_classes(l) * act_tiles_shared(l) : skinny_warps(l, nt, group)) +
            skinny_helpers(group)) *
           32;
}

struct skinny_job {
    gemv_args j; // x: tiles of act_tile.cuh
    // what the blocks tell each other: 1 / rms of each row, tagged with the step's number and tag
    uint2 *rms;
    const int *seq;
    uint32_t tag;
    enum mm_epilogue epilogue;
    float4 *part;                      // sums of classes that several blocks share
    int *count;                        // of those blocks, two a tile, 0 between launches
    int classes;                       // warps that share the columns for one row
    int splits, split_bits;            // blocks that share them, 1 << split_bits
    int rows, pitch, groups;           // of the step at most; of a tile of x; groups of 8 nt rows
    int tiles[2], items[2], n_column;  // row tiles of 16; items: mw row tiles x a group of rows; column tiles
    int mw, span, stages, stage_bytes; // row tiles of an item, a warp each; column tiles of a stage
    int sums_at, best_at, smem;        // of shared memory; behind the best: the output of each row
    const struct skinny_entry *entry;
    int first; // row of the step that is row 0 here, a multiple of 8: what x and the others point to
    int weights_at,
        weight_stages; // wide: the weights' ring, of slots of stage_bytes; items are those of two blocks
};
struct skinny_entry {
    enum layout l, l2; // l2: LAYOUT_COUNT: one region
    bool shared;       // a row tile's classes on a warp each
    bool group;        // warpgroups
    bool wide;         // clusters of two blocks
    int nt, x;         // groups of 8 rows; bytes of rows of a column tile
    void (*run)(const skinny_job);
};
enum { SKINNY_ENTRIES = 7 }; // of a layout, or two
// Whether there are kernels for a link in every size of launch, without sharing tiles between blocks.
bool skinny_fits(const struct mm_kernel *k, const struct gemv_args *j, int sm, size_t smem);
// Rows of a launch at most.
int skinny_most(const struct mm_kernel *k, int sm);
// Fills all but j, epilogue, part, count and first; rows: of the launch; sm: compute capability * 10; part_bytes: what part has.
bool skinny_plan(struct skinny_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem,
                 size_t part_bytes);
cudaError_t skinny_launch(const struct skinny_job *w, int sm_count, cudaStream_t s);
cudaError_t skinny_prepare(void);
// Rows of a tile for a step of so many rows.
static inline int half_pitch(int rows) { return (rows + 7) / 8 * 8; }

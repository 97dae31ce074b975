// Jobs of the matmul of quantised weights for more than 16 decode rows, see wide_codes.cuh.
#pragma once
#include "stream.h"

enum {
    CODES_ROWS = 256,  // of a step at most
    CODES_STAGES = 8,  // of the ring at most
    CODES_COUNTS = 512 // counters of a region: groups of row tiles times groups of rows, two each
};

// Warps of a block at most, for 8 nt rows a warp, and those beside them. group: by warpgroups, with wgmma.
#if defined(__CUDACC__)
#define CODES_FN static __host__ __device__ inline constexpr
#else
#define CODES_FN static inline
#endif
CODES_FN int codes_warps(int nt, bool group) { return nt == 8 && group ? 8 : 14; }
CODES_FN int codes_helpers(bool group) { return group ? 4 : 1; }

struct codes_job {
    mm_job j;
    enum mm_epilogue epilogue;
    int rows, pitch, groups, n; // of the step at most; of a slab; groups of n = nw * 8 NT rows
    int mw, nw;                 // warps of a block: along the weights, a row tile each, and along the rows
    int tiles[2], items[2];
    int classes, splits;                             // of columns; an item has classes / splits of them
    int stages;                                      // of the ring
    int slot_bytes, red_at, fixed_bytes, best_pairs; // of shared memory
    float *part[2]; // [class][two row tiles][groups * n][32] where an item has not all classes
    int *count;     // 4 CODES_COUNTS, 0 between launches
};
struct codes_entry {
    enum layout l, l2;
    int ga, nt; // nt: groups of 8 rows of a warp
    bool group;
    void (*run)(const codes_job);
};
// Whether steps of that many rows go through these kernels; their input is a slab then.
bool codes_has(const struct mm_kernel *k, int rows);
// Chooses the kernel and the shares of the blocks; sm: compute capability * 10. False when none fits: w->j, epilogue, tiles, classes, part[0] and
// count are the caller's; part_bytes is the room for sums.
bool codes_plan(struct codes_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem,
                size_t part_bytes, const struct codes_entry **entry);
cudaError_t codes_launch(const struct codes_job *w, const struct codes_entry *e, int sm_count,
                         cudaStream_t s);
cudaError_t codes_prepare(void);

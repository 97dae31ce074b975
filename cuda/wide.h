// Jobs of the matmul for more than 8 decode rows, see wide.cuh.
#pragma once
#include "stream.h"

enum { WIDE_WARPS = 10, WIDE_ROWS = 256, WIDE_STAGES = 8, WIDE_STEPS = 1024 };

struct wide_job {
    mm_job j;
    enum mm_epilogue epilogue;
    int rows, groups; // of the step at most; groups of 8 NT rows
    int tiles[2], items[2];
    int classes;                         // of columns, as many as warps share them for one row
    bool split;                          // an item is one class; the last one of a row tile adds them
    int mw, stages;                      // row tiles of an item, a warp each; stages of the ring
    int slot_bytes, red_at, fixed_bytes; // of shared memory
    float *part[2];                      // sums of classes
    int *count;                          // WIDE_STEPS * groups a region, 0 between launches
};
struct wide_entry {
    enum layout l, l2;
    int ga, nt; // groups of 8 rows that a block does at once
    void (*run)(const wide_job);
};
// Chooses the kernel and the shares of the blocks. False when none fits: w->j, epilogue, tiles, classes, part and count
// are the caller's; part_bytes is the room for sums.
bool wide_plan(struct wide_job *w, const struct mm_kernel *k, int rows, int sm_count, size_t smem,
               size_t part_bytes);
cudaError_t wide_launch(const struct wide_job *w, const struct mm_kernel *k, int sm_count, cudaStream_t s);
cudaError_t wide_prepare(void);

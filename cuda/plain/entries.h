// Entries of runs of positions: how they are made, rotations that go with them, and attention to them beside a window. kv_runs.h has the
// stores that keep them.
#pragma once
#include "cuda/common/dev.h"

// struct op_compress as kernels read it. state: slot 0 of its store, slots n_elem floats apart
struct compress_job {
    rows x, gate, out;
    const float *bias;
    float *state;
    size_t n_elem;
    int ratio, span;
};
cudaError_t op_compress_run(dev_tables t, const compress_job &j, int n, op_queue s);

// As op_rope_table_run, of rotations whose positions count as the first of their runs of `every`; and a rotation back.
struct rope_runs_job {
    const float *inv_freq;
    const int32_t *axis;
    int n_rot, every;
    float mscale;
    float2 *table;
};
cudaError_t op_rope_runs_run(dev_tables t, dev_input in, const rope_runs_job &j, int n, op_queue s);
cudaError_t op_rope_back_run(dev_tables t, rows x, int n_head, int head_dim, int n_rot, bool neox,
                             const float2 *table, int n, op_queue s);

// Attention with entries: a store of keys that hold the values, and one of entries of the same sizes, whose rows are of runs of `every`.
struct attend_entries_job {
    dev_kv kv, entry;
    int every, dv, turn;
    int block, n_top; // of struct choice
    rows q, out, chosen;
    attend_rule rule;
};
cudaError_t op_attend_entries_run(dev_tables t, const attend_entries_job &j, int n, op_queue s);

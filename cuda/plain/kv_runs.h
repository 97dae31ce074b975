// Stores that keep what stands for whole runs of positions (struct kv_store.every): rows of them, whatever their type.
#pragma once
#include "cuda/common/dev.h"

struct kv_runs_job {
    dev_kv kv;
    int every, turn_k, turn_v; // kv_every, kv_turn_of
};
// As op_kv_put_run, at the last positions of runs alone; v.p NULL: none.
cudaError_t kv_runs_put_run(dev_tables t, const kv_runs_job &j, rows k, rows v, int n, op_queue s);
// As kv_page_run; a write leaves k and v turned where the type is.
cudaError_t kv_runs_page_run(const kv_runs_job &j, int page, float *k, float *v, bool write, cudaStream_t s);

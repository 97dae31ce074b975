// Attention to the positions that OP_INDEX has chosen.
#pragma once
#include "cuda/common/dev.h"

struct attend_chosen_job {
    dev_kv kv;
    bool in_k; // values are the first dv numbers of their keys
    int dv;
    int turn_k, turn_v; // kv_turn_of, of types that are turned
    rows q, out, chosen;
    int room; // places of a list, -1 behind the last position
    bool by_head;
    int n_head;
    float scale, softcap;
    const float *sinks; // NULL: none
};
cudaError_t op_attend_chosen_run(dev_tables t, const attend_chosen_job &j, int n, op_queue s);

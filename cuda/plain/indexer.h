// OP_INDEX: scores of positions, and the choice of the best (struct op_index).
#pragma once
#include "cuda/common/dev.h"

struct index_job {
    rows q, w, chosen; // w.p NULL: 1 for all heads
    dev_kv kv;         // of one head
    int n_head, turn;  // turn: kv_turn_of, of types that are turned
    int every;         // kv_every
    // struct choice; room: of a list
    int n_top, block, n_local, room;
    bool whole, ends, by_head;
    // score[row - row0][list][n_pos], of the n_row rows from row0 on
    float *score;
    size_t n_pos;
    int row0, n_row;
};
cudaError_t op_index_run(dev_tables t, const index_job &j, int sm_count, op_queue s);

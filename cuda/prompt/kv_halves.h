// Keys and values that a step's prompt rows see, as halves, for the attention kernels of prompt rows, which read nothing else.
#pragma once
#include "cuda/common/dev.h"

struct kv_halves_job {
    dev_kv kv;          // of another type than F16
    uint8_t *k, *v;     // pools of halves in the same order, [page][n_kv_head][64][dim]
    int turn_k, turn_v; // numbers that were turned together (kv_turn_of)
    int window, n_slot; // window 0: none
    const int *n_row;   // rows of the step
    const int32_t *pos, *slot;
    const int32_t *until; // until[n_row]: the last position that a row sees; NULL: its own
    int n_block;
};
// Fills the pages that hold a position that some row sees, or lie with one in a tile of KV_TILE; the others stay as they are. Turned
// rows are turned back. A row's halves depend on that row alone.
cudaError_t kv_halves_launch(const kv_halves_job &j, cudaStream_t s);

// MoE: which experts a row goes to, the products of those, their sum.
#pragma once
#include "cuda/common/dev.h"

// r: with device addresses of bias and expert_scale
cudaError_t op_route_run(dev_tables t, rows logits, rows choice, struct router r, int n, bool out_rows,
                         op_queue s);

struct experts_job { // one member of the group; of decode rows gate and up where they lie together
    dev_matrix w;    // matrix 0; matrix e: e * step rows further, its bias e * w.n floats
    int step, n_expert, n_used;
    int first, n_all;    // as of struct op_experts
    rows x, choice, out; // out.p: the member's first column
    bool by_choice, weighted, out_rows;
    // prompt rows: the pairs row * n_used + choice in the order of their experts; what a block takes of them
    int *pair;
    int4 *tile; // tile[0].x: how many follow; then expert, first and end of at most CUDA_PAIR_TILE pairs
};
// Prompt rows, before the members of a group: pair and tile for n rows.
cudaError_t op_experts_order(dev_tables t, experts_job j, int n, op_queue s);
cudaError_t op_experts_run(dev_tables t, experts_job j, int n, bool decode, op_queue s);

// shared.p, gate.p NULL: absent; w.p, the choices' weights, NULL: 1
struct mix_job {
    rows x, w, shared, gate, out;
    int n_used;
    bool out_rows;
};
cudaError_t op_mix_run(dev_tables t, mix_job j, int n, op_queue s);

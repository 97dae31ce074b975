// What the plain kernels share: rows of a step, where a kernel begins, one weight.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/common/launch.h"
#include "cuda/formats/unit_value.cuh"

DEV int row_count(const dev_tables &t, bool out_rows) { return out_rows ? t.step->n_out : t.step->n_row; }
// Where an operation begins: what it needs is there behind this. The next one's blocks may come, to wait in turn. What
// kernels of the chain write is read past L1: a block may be there before it is written.
DEV void op_begin() {
    pdl_trigger();
    pdl_wait();
}
template <class... A, class... B>
static cudaError_t op_launch(void (*k)(A...), dim3 grid, int block, op_queue s, B... args) {
    return launch_overlapped(k, grid, block, 0, s.overlap, s.stream, args...);
}
DEV float matrix_value(const dev_matrix &w, int n, int k) {
    int phys = w.base + n / w.inter * w.stride + n % w.inter;
    const uint8_t *u = w.region + ((size_t)(phys >> 4) * w.u + (k >> 8)) * layout_unit_bytes(w.layout);
    return unit_value(w.layout, u, phys & 15, k & 255);
}

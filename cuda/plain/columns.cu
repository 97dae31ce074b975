// Columns of rows in another order, in front of matrices whose columns were sorted by group. x, out [rows][width], from [width]; a
// block 256 columns of a row, a thread one of them: reads are scattered within a row, which L2 has.
#include "cuda/plain/columns.h"
#include "cuda/plain/plain.cuh"

__global__ void columns_kernel(dev_tables t, rows x, rows out, const int32_t *from, bool out_rows) {
    const int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= row_count(t, out_rows) || i >= out.width) return;
    out.p[r * out.stride + i] = __ldcg(x.p + r * x.stride + from[i]);
}
cudaError_t op_columns_run(dev_tables t, rows x, rows out, const int32_t *from, int n, bool out_rows,
                           op_queue s) {
    return op_launch(columns_kernel, dim3((out.width + 255) / 256, n), 256, s, t, x, out, from, out_rows);
}

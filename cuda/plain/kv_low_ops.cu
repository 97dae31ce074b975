// Rows of turned caches: a warp a row, or runs of 64 numbers.
#include "cuda/plain/kv_low_ops.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/common/launch.h"

// A row of keys or values lies in shared memory on its way: others may read the rows it comes from.
__global__ void __launch_bounds__(32)
    kv_low_put_kernel(dev_tables t, dev_kv kv, int turn_k, int turn_v, rows k, rows v) {
    extern __shared__ float x[];
    const int r = blockIdx.y, is_v = blockIdx.x >= kv.n_kv_head, head = blockIdx.x - is_v * kv.n_kv_head,
              dim = is_v ? kv.dv : kv.dk;
    pdl_trigger();
    pdl_wait();
    if (r >= t.step->n_row) return;
    const rows &from = is_v ? v : k;
    for (int i = threadIdx.x; i < dim; i += 32)
        x[i] = __ldcg(from.p + r * from.stride + (size_t)head * dim + i);
    const size_t row = kv_row(kv, t.slot[r], t.pos[r], head);
    kv_low_put(kv.type, (is_v ? kv.v : kv.k) + row * kv_bytes(kv.type, dim), dim, is_v ? turn_v : turn_k, x);
}
cudaError_t kv_low_put_run(dev_tables t, dev_kv kv, int turn_k, int turn_v, rows k, rows v, int n,
                           op_queue s) {
    const size_t row = (size_t)(kv.dk > kv.dv ? kv.dk : kv.dv) * sizeof(float);
    return launch_overlapped(kv_low_put_kernel, dim3(kv.n_kv_head * (kv.dv ? 2 : 1), n), 32, row, s.overlap,
                             s.stream, t, kv, turn_k, turn_v, k, v);
}

__global__ void __launch_bounds__(32)
    kv_low_page_kernel(dev_kv kv, int turn_k, int turn_v, int page, float *k, float *v, bool write) {
    const int row = blockIdx.x, lane = threadIdx.x;
    for (int is_v = 0; is_v < 2; is_v++) {
        const int dim = is_v ? kv.dv : kv.dk, turn = is_v ? turn_v : turn_k;
        uint8_t *at =
            (is_v ? kv.v : kv.k) + ((size_t)page * kv.n_kv_head * KV_PAGE + row) * kv_bytes(kv.type, dim);
        float *x = (is_v ? v : k) + (size_t)row * dim;
        if (!dim) return; // values that keys hold
        if (write)
            kv_low_put(kv.type, at, dim, turn, x);
        else {
            for (int i = lane; i < dim; i += 32) x[i] = kv_low_load(kv.type, at, i);
            kv_turn_runs(x, dim, turn, 0, 1);
        }
    }
}
cudaError_t kv_low_page_run(dev_kv kv, int turn_k, int turn_v, int page, float *k, float *v, bool write,
                            cudaStream_t s) {
    kv_low_page_kernel<<<kv.n_kv_head * KV_PAGE, 32, 0, s>>>(kv, turn_k, turn_v, page, k, v, write);
    return cudaGetLastError();
}

// (Does not let the next kernel begin early: what that reads ahead must be there when this one ends.)
__global__ void __launch_bounds__(128) kv_turn_rows_kernel(dev_tables t, rows x, int turn) {
    pdl_wait();
    const int r = blockIdx.y, warp = blockIdx.x * 4 + (threadIdx.x >> 5);
    if (r >= t.step->n_row) return;
    kv_turn_runs(x.p + r * x.stride, x.width, turn, warp, gridDim.x * 4);
}
cudaError_t kv_turn_rows_run(dev_tables t, rows x, int turn, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(kv_turn_rows_kernel, dim3((x.width + 255) / 256, n), 128, 0, overlap, s, t, x,
                             turn);
}

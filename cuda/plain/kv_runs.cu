// Rows of stores that keep something of each run of positions: a warp a row of keys or values.
#include "cuda/plain/kv_runs.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"

// x[dim] is there for the whole warp.
DEV void kv_runs_store(const kv_runs_job &j, bool is_v, size_t row, float *x) {
    const int dim = is_v ? j.kv.dv : j.kv.dk, lane = threadIdx.x;
    uint8_t *to = (is_v ? j.kv.v : j.kv.k) + row * kv_bytes(j.kv.type, dim);
    if (j.kv.type > KV_Q8_0)
        kv_low_put(j.kv.type, to, dim, is_v ? j.turn_v : j.turn_k, x);
    else
        for (int b = 0; b * 32 < dim; b++)
            kv_put32(j.kv.type, to, b, dim, b * 32 + lane < dim ? x[b * 32 + lane] : 0.f);
}
__global__ void __launch_bounds__(32)
    kv_runs_put_kernel(dev_tables t, const __grid_constant__ kv_runs_job j, rows k, rows v) {
    extern __shared__ float x[];
    const int r = blockIdx.y, lane = threadIdx.x, head = (int)blockIdx.x % j.kv.n_kv_head, every = j.every;
    const bool is_v = (int)blockIdx.x >= j.kv.n_kv_head;
    const int dim = is_v ? j.kv.dv : j.kv.dk;
    op_begin();
    if (r >= t.step->n_row || (t.pos[r] + 1) % every) return;
    const rows &from = is_v ? v : k;
    for (int i = lane; i < dim; i += 32) x[i] = __ldcg(from.p + r * from.stride + (size_t)head * dim + i);
    __syncwarp();
    const int pos = t.pos[r], page = j.kv.pages[t.slot[r] * j.kv.max_pages + pos / KV_PAGE],
              n = (KV_PAGE + every - 1) / every;
    kv_runs_store(j, is_v, ((size_t)page * j.kv.n_kv_head + head) * n + pos % KV_PAGE / every, x);
}
cudaError_t kv_runs_put_run(dev_tables t, const kv_runs_job &j, rows k, rows v, int n, op_queue s) {
    const size_t row = (size_t)(j.kv.dk > j.kv.dv ? j.kv.dk : j.kv.dv) * sizeof(float);
    return launch_overlapped(kv_runs_put_kernel, dim3(j.kv.n_kv_head * (j.kv.dv ? 2 : 1), n), 32, row,
                             s.overlap, s.stream, t, j, k, v);
}

__global__ void __launch_bounds__(32)
    kv_runs_page_kernel(const __grid_constant__ kv_runs_job j, int page, float *k, float *v, bool write) {
    const int n = j.kv.n_kv_head * ((KV_PAGE + j.every - 1) / j.every), row = (int)blockIdx.x % n;
    const bool is_v = (int)blockIdx.x >= n;
    const int dim = is_v ? j.kv.dv : j.kv.dk;
    const size_t at = (size_t)page * n + row;
    float *x = (is_v ? v : k) + (size_t)row * dim;
    if (write) {
        kv_runs_store(j, is_v, at, x);
        return;
    }
    const uint8_t *from = (is_v ? j.kv.v : j.kv.k) + at * kv_bytes(j.kv.type, dim);
    for (int i = threadIdx.x; i < dim; i += 32) x[i] = kv_load(j.kv.type, from, i);
    __syncwarp();
    if (j.kv.type > KV_Q8_0) kv_turn_runs(x, dim, is_v ? j.turn_v : j.turn_k, 0, 1);
}
cudaError_t kv_runs_page_run(const kv_runs_job &j, int page, float *k, float *v, bool write, cudaStream_t s) {
    const int n = j.kv.n_kv_head * ((KV_PAGE + j.every - 1) / j.every);
    kv_runs_page_kernel<<<n *(j.kv.dv ? 2 : 1), 32, 0, s>>>(j, page, k, v, write);
    return cudaGetLastError();
}

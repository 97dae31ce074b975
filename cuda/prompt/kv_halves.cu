// A block takes tiles, a page of one head's keys or values each, of all sequences of the step in turn. Bytes: what the cache has of the
// positions that are seen, once, and two a number written, which attention reads from the L2 cache or memory.
#include <limits.h>
#include "cuda/common/kv_pages.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/kv_halves.h"

enum { THREADS = 512 };

// The first and the last position that rows of each slot see: lo[n_slot], hi[n_slot], hi -1: it has no row. By all threads.
DEV void find_seen(const kv_halves_job &j, int *lo, int *hi) {
    const int n_row = *j.n_row, lane = threadIdx.x & 31;
    for (int i = threadIdx.x; i < j.n_slot; i += THREADS) lo[i] = INT_MAX, hi[i] = -1;
    __syncthreads();
    for (int r0 = threadIdx.x & ~31; r0 < n_row; r0 += THREADS) {
        const int r = r0 + lane;
        const bool in = r < n_row;
        const int s = in ? j.slot[r] : -1, p = in ? j.pos[r] : INT_MAX,
                  last = !in       ? -1
                         : j.until ? max(p, j.until[r])
                                   : p,
                  one = __shfl_sync(~0u, s, 0);
        if (__all_sync(~0u, !in || s == one)) { // mostly
            const int first = __reduce_min_sync(~0u, p), end = __reduce_max_sync(~0u, last);
            if (lane == 0) atomicMin(lo + one, first), atomicMax(hi + one, end);
        } else if (in)
            atomicMin(lo + s, p), atomicMax(hi + s, last);
    }
    __syncthreads();
}

// 64 rows of dim numbers, eight a thread.
template <int T> DEV void tile_halves(uint4 *to, const uint8_t *from, int dim, int turn) {
    const int chunks = dim >> 3, bytes = (int)kv_bytes((enum kv_type)T, dim);
#pragma unroll 2
    for (int i = threadIdx.x; i < KV_PAGE * chunks; i += THREADS) { // whole warps
        const int r = i / chunks, c = i - r * chunks;
        const uint8_t *row = from + r * bytes;
        if constexpr (T > KV_Q8_0) {
            float v[8];
            kv_low_eight<T>(v, row, c);
            kv_turn_eight(v, turn);
            to[i] = make_uint4(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]), pack_half2(v[4], v[5]),
                               pack_half2(v[6], v[7]));
        } else
            to[i] = kv_chunk<T>(row, c);
    }
}

template <int T>
__global__ void __launch_bounds__(THREADS) kv_halves_kernel(const __grid_constant__ kv_halves_job j) {
    extern __shared__ int seen[];
    int *lo = seen, *hi = seen + j.n_slot;
    const dev_kv &kv = j.kv;
    const int n_tile = kv.n_kv_head * (kv.dv ? 2 : 1); // of a page
    find_seen(j, lo, hi);
    int item = blockIdx.x;
    for (int s = 0; s < j.n_slot; s++) {
        if (hi[s] < 0) continue;
        const int first = j.window ? max(0, lo[s] - j.window + 1) / KV_TILE * (KV_TILE / KV_PAGE) : 0,
                  n = (hi[s] / KV_PAGE - first + 1) * n_tile;
        for (; item < n; item += gridDim.x) {
            const int tile = item % n_tile, v = tile >= kv.n_kv_head, head = tile - v * kv.n_kv_head,
                      dim = v ? kv.dv : kv.dk;
            const size_t row =
                ((size_t)kv.pages[s * kv.max_pages + first + item / n_tile] * kv.n_kv_head + head) * KV_PAGE;
            tile_halves<T>((uint4 *)((v ? j.v : j.k) + row * dim * 2),
                           (v ? kv.v : kv.k) + row * kv_bytes((enum kv_type)T, dim), dim,
                           v ? j.turn_v : j.turn_k);
        }
        item -= n;
    }
}

cudaError_t kv_halves_launch(const kv_halves_job &j, cudaStream_t s) {
    static void (*const kernels[KV_TYPES])(const kv_halves_job) = {
        kv_halves_kernel<KV_F32>,  NULL,
        kv_halves_kernel<KV_Q8_0>, kv_halves_kernel<KV_F8>,
        kv_halves_kernel<KV_Q5_0>, kv_halves_kernel<KV_Q4_0>};
    const size_t seen = (size_t)j.n_slot * 8;
    if (!kernels[j.kv.type] || seen > 48 << 10) return cudaErrorInvalidValue;
    kernels[j.kv.type]<<<j.n_block, THREADS, seen, s>>>(j);
    return cudaGetLastError();
}

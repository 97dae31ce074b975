// Sums over cards that reach each other's memory, of decode rows: a thread a column of 256, and all that a block has to send goes before
// it waits: for each number (few rows), or for the block of its number on each card (BULK: many). Blocks of one number on two cards need
// each other, so there are no more than are there at once.
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/ranks/rank_reduced.h"
#include "cuda/ranks/rank_wires.cuh"

enum { MOST_BLOCKS = 128 };

// A block's share of the rows: column of this thread and row of its i-th part, in steps of the grid.
struct rank_part {
    int row, col;
    bool in;
    MEM rank_part(int part, int width) {
        const int of_row = (width + 255) / 256;
        row = part / of_row;
        col = part % of_row * 256 + threadIdx.x;
        in = col < width;
    }
};
static dim3 blocks_of(const rank_wires &w, int width, int n) {
    const int parts = (width + 255) / 256 * n, most = n > RANK_FEW_ROWS ? w.bulk_blocks : (int)MOST_BLOCKS;
    return dim3(parts < most ? parts : most);
}
// What this block has sent to all is there, and what those of its number on all cards have. All threads come here. False: a rank left.
DEV bool bulk_meet(const rank_wires &w, uint32_t epoch) {
    const int r = threadIdx.x;
    bool there = true;
    __syncthreads();
    if (r < w.n && r != w.rank) {
        __threadfence_system();
        rank_flag_set(w.bulk_flag[r] + w.rank * BULK_BLOCKS + blockIdx.x, epoch + 1);
        const uint32_t *flag = w.bulk_flag[w.rank] + r * BULK_BLOCKS + blockIdx.x;
        rank_patience p;
        while (there && (int)(rank_flag(flag) - (epoch + 1)) < 0) there = !p.ends(w, r);
    }
    return __syncthreads_and(there);
}
// The same of many rows, then the blocks of this number on all cards have. False: a rank left.
template <class F> DEV bool bulk_send(const rank_wires &w, uint32_t epoch, int width, int parts, F get) {
    constexpr int AT_ONCE = 4;
    const size_t to = ((epoch & 1) * w.n + w.rank) * w.bulk_n;
    for (int i = blockIdx.x; i < parts; i += AT_ONCE * gridDim.x) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int part = i + k * gridDim.x;
            const rank_part p(part, width);
            v[k] = part < parts && p.in ? get(p.row, p.col) : 0.f;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int part = i + k * gridDim.x;
            const rank_part p(part, width);
            if (part >= parts || !p.in) continue;
            for (int r = 0; r < w.n; r++)
                if (r != w.rank) w.bulk[r][to + (size_t)p.row * width + p.col] = v[k];
        }
    }
    return bulk_meet(w, epoch);
}
// The sum of all ranks' number `at`, in their order; v: this rank's.
DEV float bulk_sum(const rank_wires &w, uint32_t epoch, size_t at, float v) {
    const float *own = w.bulk[w.rank] + (epoch & 1) * w.n * w.bulk_n + at;
    float sum = 0;
    for (int r = 0; r < w.n; r++) {
        const float x = r == w.rank ? v : __ldcv(own + r * w.bulk_n);
        sum = r ? __fadd_rn(sum, x) : x;
    }
    return sum;
}
// What a block sends: get(row, col) of its parts; returns that of its first.
template <class F> DEV float send_all(const rank_wires &w, uint32_t epoch, int width, int parts, F get) {
    float first = 0;
    for (int i = blockIdx.x; i < parts; i += gridDim.x) {
        const rank_part p(i, width);
        if (!p.in) continue;
        const float v = get(p.row, p.col);
        rank_send(w, epoch, (size_t)p.row * width + p.col, v);
        if (i == (int)blockIdx.x) first = v;
    }
    return first;
}

template <bool BULK>
__global__ void __launch_bounds__(256, BULK ? 4 : 1)
    rank_reduce_kernel(const __grid_constant__ rank_reduce_job j) {
    const int width = j.x.width;
    pdl_trigger();
    pdl_wait();
    const uint32_t epoch = rank_epoch(j.w, j.nth);
    const int parts = *j.n_row * ((width + 255) / 256);
    auto get = [&](int row, int col) { return __ldcg(j.x.p + row * j.x.stride + col); };
    float first = 0;
    if constexpr (BULK) {
        if (!bulk_send(j.w, epoch, width, parts, get)) return;
    } else
        first = send_all(j.w, epoch, width, parts, get);
    for (int i = blockIdx.x; i < parts; i += gridDim.x) {
        const rank_part p(i, width);
        if (!p.in) continue;
        const float v = !BULK && i == (int)blockIdx.x ? first : get(p.row, p.col);
        const size_t at = (size_t)p.row * width + p.col;
        j.x.p[p.row * j.x.stride + p.col] = BULK ? bulk_sum(j.w, epoch, at, v) : rank_sum(j.w, epoch, at, v);
    }
}
cudaError_t rank_reduce_launch(const rank_reduce_job &j, int n, bool overlap, cudaStream_t s) {
    const auto kernel = n > RANK_FEW_ROWS ? rank_reduce_kernel<true> : rank_reduce_kernel<false>;
    return launch_overlapped(kernel, blocks_of(j.w, j.x.width, n), 256, 0, overlap, s, j);
}

// The sum added to the residual stream, which goes on as its next reader wants it.
__global__ void __launch_bounds__(256) rank_reduced_kernel(const __grid_constant__ rank_reduced_job j) {
    const act_rows_job &give = j.post.give;
    const int width = give.x.width;
    pdl_trigger();
    pdl_wait();
    const uint32_t epoch = rank_epoch(j.w, j.nth);
    const int parts = *give.n_row * ((width + 255) / 256);
    auto get = [&](int row, int col) { return __ldcg(j.post.y + (size_t)row * width + col); };
    const float first = send_all(j.w, epoch, width, parts, get);
    for (int i = blockIdx.x; i < parts; i += gridDim.x) {
        const rank_part p(i, width);
        if (!p.in) continue; // whole warps: widths are multiples of 32
        const size_t of = (size_t)p.row * width + p.col;
        float *at = give.x.p + p.row * give.x.stride + p.col, *product = j.post.y + of;
        const float x = __ldcg(at), next = give.norm ? give.norm[p.col] : 1.f,
                    scale = give.norm ? __ldcg(give.scale + p.row) : 1.f,
                    y = i == (int)blockIdx.x ? first : __ldcg(product), v = x + rank_sum(j.w, epoch, of, y);
        *at = v;
        *product = 0;
        if (!j.post.gives) continue;
        __syncwarp();
        if (give.norm) {
            const float ss = sum16(__fmul_rn(v, v));
            if ((threadIdx.x & 15) == 0) give.square[p.row * give.square_row + (p.col >> 4)] = ss;
        }
        const float g = __fmul_rn(v, next);
        if (give.give == GIVE_RECORD)
            put_act_int8<32>(give, p.col, g);
        else
            put_column<true>(give, p.row, p.row, p.col, __fmul_rn(g, scale));
    }
}
// The same of many rows: four columns a thread, 1,024 a part.
DEV float4 at4(const float *p) { return __ldcg((const float4 *)p); }
DEV float4 add4(float4 a, float4 b) {
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
DEV float4 mul4(float4 a, float4 b) {
    return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
}
// sum16 of the columns of four lanes, in its order
DEV float sum16_of4(float4 v) {
    for (int o = 2; o; o >>= 1) {
        v.x += __shfl_xor_sync(~0u, v.x, o);
        v.y += __shfl_xor_sync(~0u, v.y, o);
        v.z += __shfl_xor_sync(~0u, v.z, o);
        v.w += __shfl_xor_sync(~0u, v.w, o);
    }
    return (v.x + v.z) + (v.y + v.w);
}
struct bulk_part {
    int row, col;
    bool in; // of whole groups of 8 lanes: widths are multiples of 32
    MEM bulk_part(int part, int parts, int width) {
        const int of_row = (width + 1023) / 1024;
        row = part / of_row;
        col = part % of_row * 1024 + threadIdx.x * 4;
        in = part < parts && col < width;
    }
};
DEV void bulk_finish(const rank_reduced_job &j, uint32_t epoch, const bulk_part &p) {
    const act_rows_job &give = j.post.give;
    const int width = give.x.width;
    const size_t of = (size_t)p.row * width + p.col, half = (epoch & 1) * j.w.n * j.w.bulk_n;
    float4 *at = (float4 *)(give.x.p + p.row * give.x.stride + p.col), *product = (float4 *)(j.post.y + of);
    float4 v = {}, next = {};
    float scale = 1;
    if (p.in) {
        const float4 x = __ldcg(at), own = __ldcg(product);
        if (give.norm) {
            const float *norm = give.norm + p.col;
            next = make_float4(norm[0], norm[1], norm[2], norm[3]);
            scale = __ldcg(give.scale + p.row);
        }
        float4 sum = {};
        for (int r = 0; r < j.w.n; r++) {
            const float4 y = r == j.w.rank
                                 ? own
                                 : __ldcv((const float4 *)(j.w.bulk[j.w.rank] + half + r * j.w.bulk_n + of));
            sum = r ? add4(sum, y) : y;
        }
        *at = v = add4(x, sum);
        *product = make_float4(0, 0, 0, 0);
    }
    if (!j.post.gives) return;
    if (give.norm) {
        const float ss = sum16_of4(mul4(v, v));
        if (p.in && (threadIdx.x & 3) == 0) give.square[p.row * give.square_row + (p.col >> 4)] = ss;
        v = mul4(v, next);
    }
    if (!p.in) return;
    put_column<true>(give, p.row, p.row, p.col, __fmul_rn(v.x, scale));
    put_column<true>(give, p.row, p.row, p.col + 1, __fmul_rn(v.y, scale));
    put_column<true>(give, p.row, p.row, p.col + 2, __fmul_rn(v.z, scale));
    put_column<true>(give, p.row, p.row, p.col + 3, __fmul_rn(v.w, scale));
}
__global__ void __launch_bounds__(256, 4)
    rank_reduced_bulk_kernel(const __grid_constant__ rank_reduced_job j) {
    constexpr int AT_ONCE = 4;
    const int width = j.post.give.x.width;
    pdl_trigger();
    pdl_wait();
    const uint32_t epoch = rank_epoch(j.w, j.nth);
    const int parts = *j.post.give.n_row * ((width + 1023) / 1024);
    const size_t to = ((epoch & 1) * j.w.n + j.w.rank) * j.w.bulk_n;
    for (int i = blockIdx.x; i < parts; i += AT_ONCE * gridDim.x) {
        float4 v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bulk_part p(i + k * gridDim.x, parts, width);
            v[k] = p.in ? at4(j.post.y + (size_t)p.row * width + p.col) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bulk_part p(i + k * gridDim.x, parts, width);
            for (int r = 0; p.in && r < j.w.n; r++)
                if (r != j.w.rank) *(float4 *)(j.w.bulk[r] + to + (size_t)p.row * width + p.col) = v[k];
        }
    }
    if (!bulk_meet(j.w, epoch)) return;
    for (int i = blockIdx.x; i < parts; i += gridDim.x) bulk_finish(j, epoch, bulk_part(i, parts, width));
}
cudaError_t rank_reduced_launch(const rank_reduced_job &j, int n, bool overlap, cudaStream_t s) {
    const int width = j.post.give.x.width;
    if (n <= RANK_FEW_ROWS)
        return launch_overlapped(rank_reduced_kernel, blocks_of(j.w, width, n), 256, 0, overlap, s, j);
    if (j.post.give.x.stride % 4 || width % 32)
        return cudaErrorMisalignedAddress; // no stream of a model is so
    const int parts = (width + 1023) / 1024 * n;
    return launch_overlapped(rank_reduced_bulk_kernel,
                             dim3(parts < j.w.bulk_blocks ? parts : j.w.bulk_blocks), 256, 0, overlap, s, j);
}

// Sums over cards that reach each other's memory, of decode rows: a thread a column of 256, and all that a block has to send goes before
// it waits. Blocks of one number on two cards need each other, so there are no more than are there at once.
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
static dim3 blocks_of(int width, int n) {
    const int parts = (width + 255) / 256 * n;
    return dim3(parts < MOST_BLOCKS ? parts : MOST_BLOCKS);
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

__global__ void __launch_bounds__(256) rank_reduce_kernel(const __grid_constant__ rank_reduce_job j) {
    const int width = j.x.width;
    pdl_trigger();
    pdl_wait();
    const uint32_t epoch = rank_epoch(j.w, j.nth);
    const int parts = *j.n_row * ((width + 255) / 256);
    auto get = [&](int row, int col) { return __ldcg(j.x.p + row * j.x.stride + col); };
    const float first = send_all(j.w, epoch, width, parts, get);
    for (int i = blockIdx.x; i < parts; i += gridDim.x) {
        const rank_part p(i, width);
        if (!p.in) continue;
        const float v = i == (int)blockIdx.x ? first : get(p.row, p.col);
        j.x.p[p.row * j.x.stride + p.col] = rank_sum(j.w, epoch, (size_t)p.row * width + p.col, v);
    }
}
cudaError_t rank_reduce_launch(const rank_reduce_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(rank_reduce_kernel, blocks_of(j.x.width, n), 256, 0, overlap, s, j);
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
        float *at = give.x.p + p.row * give.x.stride + p.col,
              *product = j.post.y + (size_t)p.row * width + p.col;
        const float x = __ldcg(at), next = give.norm ? give.norm[p.col] : 1.f,
                    scale = give.norm ? __ldcg(give.scale + p.row) : 1.f,
                    y = i == (int)blockIdx.x ? first : __ldcg(product),
                    v = x + rank_sum(j.w, epoch, (size_t)p.row * width + p.col, y);
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
cudaError_t rank_reduced_launch(const rank_reduced_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(rank_reduced_kernel, blocks_of(j.post.give.x.width, n), 256, 0, overlap, s, j);
}

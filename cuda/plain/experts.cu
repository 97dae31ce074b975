// Mixtures of experts on plain kernels. The choice stays on the device: decode rows take a block a (row tile of an expert's matrix, choice,
// row); prompt rows are put in the order of their experts first, and a block multiplies 64 rows of a matrix with up to 64
// pairs of a row and a choice. A pair's sums have one order, wherever it stands.
#include "cuda/plain/experts.h"
#include "cuda/plain/plain.cuh"
#include "cuda/common/route.cuh"

// ---- route: a warp a row
// Scores of ROUTE_NEAR, each among the experts that were left when it was chosen (router.c), to m.w[n_used]. A lane has a choice of its own:
// the sums go over the experts in their order.
DEV void route_near(const router &r, route_scratch &m, int lane) {
    const bool groups = r.n_group > 1;
    const int size = groups ? r.n_expert / r.n_group : r.n_expert;
    for (int j = lane; j < r.n_used; j += 32) {
        float sum = 1.f;
        for (int e = 0; e < r.n_expert; e++) {
            bool left = !groups || m.kept[e / size];
            for (int k = 0; k <= j; k++) left &= m.id[k] != e;
            if (left) sum = __fadd_rn(sum, router_near(&r, m.s[m.id[j]], m.s[e]));
        }
        m.w[j] = __fdiv_rn(1.f, sum);
    }
    __syncwarp();
}
__global__ void __launch_bounds__(32)
    route_kernel(dev_tables t, rows logits, rows choice, const __grid_constant__ router r, bool out_rows) {
    __shared__ route_scratch m;
    const int row = blockIdx.x, lane = threadIdx.x;
    op_begin();
    if (row >= row_count(t, out_rows)) return;
    const float *x = logits.p + row * logits.stride;
    float *out = choice.p + row * choice.stride;
    auto logit = [&](int e) { return __ldcg(x + e); };
    if (r.act == ROUTE_NEAR) {
        route_pick_any(r, logit, m, lane);
        route_near(r, m, lane);
        route_share(r, m, lane);
    } else
        route_row(r, logit, m, lane);
    for (int j = lane; j < r.n_used; j += 32) {
        out[j] = (float)m.id[j];
        out[r.n_used + j] = m.w[j];
    }
}
cudaError_t op_route_run(dev_tables t, rows logits, rows choice, struct router r, int n, bool out_rows,
                         op_queue s) {
    return op_launch(route_kernel, n, 32, s, t, logits, choice, r, out_rows);
}

// ---- decode rows: a block a row tile, a choice and a row; the tile's units shared out to 8 warps
template <int L> __global__ void __launch_bounds__(256) experts_few_kernel(dev_tables t, experts_job j) {
    using lane_of = few_lane<L>;
    __shared__ float part[8][16];
    const int r = blockIdx.z, c = blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (r >= row_count(t, j.out_rows)) return;
    const float *choice = j.choice.p + r * j.choice.stride;
    const int phys = blockIdx.x * 16 + threadIdx.x, in = phys % j.w.stride, up = in / j.w.inter,
              n = phys / j.w.stride * j.w.inter + in % j.w.inter; // up: a row of the other member
    const bool mine = threadIdx.x < 16 && n < j.w.n;
    float *out = j.out.p + r * j.out.stride + ((size_t)up * j.n_used + c) * j.w.n + n;
    const int e = route_matrix(choice[c], j.n_expert, j.first, j.n_all), u = j.w.u;
    if (e < 0) {
        if (mine) *out = 0.f;
        return;
    }
    const float *x = j.x.p + r * j.x.stride + (j.by_choice ? (size_t)c * j.w.k : 0);
    const uint8_t *tile = j.w.region + ((size_t)((j.w.base + e * j.step) / 16) + blockIdx.x) * u *
                                           layout_unit_bytes((enum layout)L);
    float acc[lane_of::n_row] = {};
    for (int i = warp; i < u; i += 8)
        lane_of::unit(tile + (size_t)i * layout_unit_bytes((enum layout)L), lane, [&](int n, int k, float v) {
            if (i * 256 + k < j.w.k) acc[n] = fmaf(v, x[i * 256 + k], acc[n]);
        });
#pragma unroll
    for (int n = 0; n < lane_of::n_row; n++) {
        float v = acc[n];
#pragma unroll
        for (int o = 1; o < lane_of::share; o <<= 1) v += __shfl_xor_sync(~0u, v, o);
        if (lane % lane_of::share == 0) part[warp][lane_of::row(lane, n)] = v;
    }
    __syncthreads();
    if (!mine) return;
    float v = 0.f;
    for (int k = 0; k < 8; k++) v += part[k][threadIdx.x];
    v = fmaf(v, j.w.factor, j.w.bias ? j.w.bias[((size_t)up * j.n_expert + e) * j.w.n + n] : 0.f);
    *out = j.weighted ? v * choice[j.n_used + c] : v;
}

// ---- prompt rows: one block counts, adds up and places
enum { ORDER_THREADS = 1024 };
// count[i] becomes the sum of those before it, of up to ORDER_THREADS of them; returns the sum of all.
DEV int sums_before(int *count, int n) {
    __shared__ int warp_sum[32];
    const int i = threadIdx.x, lane = i & 31, own = i < n ? count[i] : 0;
    int v = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const int w = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += w;
    }
    __syncthreads(); // all have read count and what was there before
    if (lane == 31) warp_sum[i >> 5] = v;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < 32; w++) {
        if (w < i >> 5) before += warp_sum[w];
        all += warp_sum[w];
    }
    if (i < n) count[i] = before + v - own;
    __syncthreads();
    return all;
}
__global__ void __launch_bounds__(ORDER_THREADS) experts_order_kernel(dev_tables t, experts_job j) {
    __shared__ int first[ROUTE_EXPERTS_MAX], tiles[ROUTE_EXPERTS_MAX];
    const int i = threadIdx.x, n = row_count(t, j.out_rows) * j.n_used;
    auto expert = [&](int p) {
        return route_matrix(j.choice.p[p / j.n_used * j.choice.stride + p % j.n_used], j.n_expert, j.first,
                            j.n_all);
    };
    first[i] = 0;
    __syncthreads();
    for (int p = i; p < n; p += ORDER_THREADS)
        if (expert(p) >= 0) atomicAdd(&first[expert(p)], 1);
    __syncthreads();
    const int many = first[i];
    tiles[i] = (many + CUDA_PAIR_TILE - 1) / CUDA_PAIR_TILE;
    __syncthreads();
    sums_before(first, j.n_expert);
    const int n_tile = sums_before(tiles, j.n_expert);
    if (i < j.n_expert)
        for (int k = 0; k * CUDA_PAIR_TILE < many; k++)
            j.tile[1 + tiles[i] + k] = make_int4(i, first[i] + k * CUDA_PAIR_TILE,
                                                 first[i] + min((k + 1) * CUDA_PAIR_TILE, many), 0);
    if (i == 0) j.tile[0] = make_int4(n_tile, 0, 0, 0);
    __syncthreads();
    for (int p = i; p < n; p += ORDER_THREADS)
        if (expert(p) >= 0) j.pair[atomicAdd(&first[expert(p)], 1)] = p;
}
cudaError_t op_experts_order(dev_tables t, experts_job j, int n, op_queue s) {
    (void)n;
    experts_order_kernel<<<1, ORDER_THREADS, 0, s.stream>>>(t, j);
    return cudaGetLastError();
}

// 64 x 64 outputs a block, 4 x 4 a thread, as matmul_kernel has them
enum { TILE = 64, TILE_K = 32 };
static_assert((int)TILE == (int)CUDA_PAIR_TILE, "a tile of pairs is a block's");
template <int L> __global__ void __launch_bounds__(256) experts_tile_kernel(experts_job j) {
    __shared__ float ws[TILE_K][TILE + 4], xs[TILE_K][TILE + 4];
    __shared__ int pair[TILE];
    if (blockIdx.y >= j.tile[0].x) return;
    const int4 my = j.tile[1 + blockIdx.y];
    const int e = my.x, n_pair = my.z - my.y, n0 = blockIdx.x * TILE, tn = threadIdx.x & 15,
              tt = threadIdx.x >> 4;
    dev_matrix w = j.w;
    w.layout = (enum layout)L;
    w.base += e * j.step;
    if (threadIdx.x < n_pair) pair[threadIdx.x] = j.pair[my.y + threadIdx.x];
    __syncthreads();
    float acc[4][4] = {};
    for (int k0 = 0; k0 < w.k; k0 += TILE_K) {
        for (int i = threadIdx.x; i < TILE * TILE_K; i += 256) {
            const int n = i / TILE_K, k = i % TILE_K;
            ws[k][n] = n0 + n < w.n && k0 + k < w.k ? matrix_value(w, n0 + n, k0 + k) : 0.f;
            float x = 0.f;
            if (n < n_pair && k0 + k < w.k) {
                const int p = pair[n];
                x = j.x.p[p / j.n_used * j.x.stride + (j.by_choice ? (size_t)(p % j.n_used) * w.k : 0) + k0 +
                          k];
            }
            xs[k][n] = x;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < TILE_K; k++) {
            const float4 a = *(const float4 *)&ws[k][tn * 4], b = *(const float4 *)&xs[k][tt * 4];
            const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int m = 0; m < 4; m++) acc[i][m] = fmaf(av[i], bv[m], acc[i][m]);
        }
        __syncthreads();
    }
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < 4; i++) {
            const int n = n0 + tn * 4 + i, at = tt * 4 + m;
            if (n >= w.n || at >= n_pair) continue;
            const int p = pair[at], r = p / j.n_used, c = p % j.n_used;
            const float v = fmaf(acc[i][m], w.factor, w.bias ? w.bias[(size_t)e * w.n + n] : 0.f);
            j.out.p[r * j.out.stride + (size_t)c * w.n + n] =
                j.weighted ? v * j.choice.p[r * j.choice.stride + j.n_used + c] : v;
        }
}

template <int L> static cudaError_t experts(dev_tables t, experts_job j, int n, bool decode, op_queue s) {
    if (decode) {
        experts_few_kernel<L>
            <<<dim3((j.w.n + j.w.inter - 1) / j.w.inter, j.n_used, n), 256, 0, s.stream>>>(t, j);
    } else {
        const unsigned tiles = (unsigned)cuda_pair_tiles((size_t)n * j.n_used, j.n_expert);
        experts_tile_kernel<L><<<dim3((j.w.n + TILE - 1) / TILE, tiles), 256, 0, s.stream>>>(j);
    }
    return cudaGetLastError();
}
cudaError_t op_experts_run(dev_tables t, experts_job j, int n, bool decode, op_queue s) {
    switch (j.w.layout) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return experts<LAYOUT_##id>(t, j, n, decode, s);
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
}

// ---- mix
__global__ void mix_kernel(dev_tables t, mix_job j) {
    const int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= row_count(t, j.out_rows) || i >= j.out.width) return;
    const float *x = j.x.p + r * j.x.stride + i, *w = j.w.p + r * j.w.stride;
    float y = 0.f;
    if (j.shared.p)
        y = (j.gate.p ? router_sigmoid(__ldcg(j.gate.p + r * j.gate.stride)) : 1.f) *
            __ldcg(j.shared.p + r * j.shared.stride + i);
    for (int c = 0; c < j.n_used; c++)
        y = fmaf(j.w.p ? __ldcg(w + c) : 1.f, __ldcg(x + (size_t)c * j.out.width), y);
    j.out.p[r * j.out.stride + i] = y;
}
cudaError_t op_mix_run(dev_tables t, mix_job j, int n, op_queue s) {
    return op_launch(mix_kernel, dim3((j.out.width + 255) / 256, n), 256, s, t, j);
}

// A router's logits for prompt rows: out[t][e] = sum_k W[e][k] x[t][k] + bias[e], products and sums in float32 (FMA), in one order for
// each of them. Weights F32, F16 or BF16.
#include "cuda/formats/unit_value.cuh"
#include "cuda/prompt/moe_grouped.h"

// A block makes R rows x E experts: G groups of PER threads, which take turns in K, each thread TR x 4 of them.
enum { ROUTER_K = 32 }; // columns at a time
template <int R, int E>
struct router_tiles { // value k of row r at [k][r ^ k / 4 * 4]: neither writers nor readers meet in a bank
    float x[2][ROUTER_K][R], w[2][ROUTER_K][E];
};
// Four columns from k0 of expert e.
template <int L> DEV float4 router_weights(const dev_matrix &w, int e, int k0) {
    const int phys = w.base + e;
    const uint8_t *u = w.region + ((size_t)(phys >> 4) * w.u + (k0 >> 8)) * layout_unit_bytes((enum layout)L);
    const int row = phys & 15, k = k0 & 255;
    if constexpr (L == LAYOUT_F32) return *(const float4 *)(u + layout_f32_byte(row, k));
    return make_float4(unit_value((enum layout)L, u, row, k), unit_value((enum layout)L, u, row, k + 1),
                       unit_value((enum layout)L, u, row, k + 2), unit_value((enum layout)L, u, row, k + 3));
}
template <int N> DEV void router_put(float (&to)[ROUTER_K][N], int k, int row, const float4 &v) {
    const int at = row ^ k; // k is a multiple of 4, below 32
    to[k][at] = v.x, to[k + 1][at] = v.y, to[k + 2][at] = v.z, to[k + 3][at] = v.w;
}

// Sums of G groups in the first one, the other half of them added at a time; in shared memory that is free.
template <int G, int TR> DEV void router_sum(float (&acc)[TR][4], float4 *m, int group, int thread, int per) {
#pragma unroll
    for (int half = G / 2; half; half /= 2) {
        __syncthreads();
        if (group >= half && group < 2 * half)
#pragma unroll
            for (int q = 0; q < TR; q++)
                m[((group - half) * TR + q) * per + thread] =
                    make_float4(acc[q][0], acc[q][1], acc[q][2], acc[q][3]);
        __syncthreads();
        if (group < half)
#pragma unroll
            for (int q = 0; q < TR; q++) {
                const float4 v = m[(group * TR + q) * per + thread];
                acc[q][0] += v.x, acc[q][1] += v.y, acc[q][2] += v.z, acc[q][3] += v.w;
            }
    }
}

// The products of a group's columns of a turn.
template <int R, int E, int TR, int COLUMNS>
DEV void router_multiply(float (&acc)[TR][4], const router_tiles<R, E> &m, int turn, int first, int tr,
                         int te) {
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        const int k = first + i, s = k & ~3;
        const float4 b = *(const float4 *)&m.w[turn][k][te ^ s];
#pragma unroll
        for (int q = 0; q < TR; q += 4) {
            const float4 a = *(const float4 *)&m.x[turn][k][(tr + q) ^ s];
            const float av[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                acc[q + c][0] = fmaf(av[c], b.x, acc[q + c][0]);
                acc[q + c][1] = fmaf(av[c], b.y, acc[q + c][1]);
                acc[q + c][2] = fmaf(av[c], b.z, acc[q + c][2]);
                acc[q + c][3] = fmaf(av[c], b.w, acc[q + c][3]);
            }
        }
    }
}
template <int L, int R, int E, int TR, int G>
__global__ void __launch_bounds__(R *E / TR / 4 * G)
    router_gemm_kernel(dev_matrix w, rows x, rows out, const int *n_row) {
    constexpr int PER = R * E / TR / 4, N = PER * G, XS = R * ROUTER_K / 4 / N, WS = E * ROUTER_K / 4 / N;
    static_assert(TR % 4 == 0 && XS > 0 && WS > 0 && R * E * G / 2 * 4 <= (int)sizeof(router_tiles<R, E>),
                  "whole loads, and room for half of the sums");
    __shared__ __align__(16) router_tiles<R, E> m;
    const int t0 = blockIdx.y * R, e0 = blockIdx.x * E, n = *n_row, tid = threadIdx.x;
    if (t0 >= n) return;
    const int group = tid / PER, te = tid % PER % (E / 4) * 4, tr = tid % PER / (E / 4) * TR;
    float4 xs[XS], ws[WS];
    auto fetch = [&](int k0) { // zeros beyond the columns
#pragma unroll
        for (int i = 0; i < XS; i++) {
            const int at = tid + i * N, k = k0 + at % 8 * 4, r = min(t0 + at / 8, n - 1);
            xs[i] =
                k < w.k ? *(const float4 *)(x.p + (size_t)r * x.stride + k) : make_float4(0.f, 0.f, 0.f, 0.f);
        }
#pragma unroll
        for (int i = 0; i < WS; i++) {
            const int at = tid + i * N, k = k0 + at % 8 * 4, e = min(e0 + at / 8, w.n - 1);
            ws[i] = k < w.k ? router_weights<L>(w, e, k) : make_float4(0.f, 0.f, 0.f, 0.f);
        }
    };
    auto put = [&](int turn) {
#pragma unroll
        for (int i = 0; i < XS; i++) router_put(m.x[turn], (tid + i * N) % 8 * 4, (tid + i * N) / 8, xs[i]);
#pragma unroll
        for (int i = 0; i < WS; i++) router_put(m.w[turn], (tid + i * N) % 8 * 4, (tid + i * N) / 8, ws[i]);
    };
    float acc[TR][4] = {};
    fetch(0);
    put(0);
    __syncthreads();
    for (int k0 = 0, turn = 0; k0 < w.k; k0 += ROUTER_K, turn ^= 1) {
        fetch(k0 + ROUTER_K);
        router_multiply<R, E, TR, ROUTER_K / G>(acc, m, turn, group * (ROUTER_K / G), tr, te);
        put(turn ^ 1);
        __syncthreads();
    }
    router_sum<G>(acc, (float4 *)&m, group, tid % PER, PER);
    if (group) return;
#pragma unroll
    for (int q = 0; q < TR; q++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float v = acc[q][c];
            const int t = t0 + tr + q, e = e0 + te + c;
            if (t < n && e < w.n)
                out.p[(size_t)t * out.stride + e] = fmaf(v, w.factor, w.bias ? w.bias[e] : 0.f);
        }
}
// Small blocks where large ones would be few; a sum's order is the same in both.
template <int L>
static cudaError_t router_start(const dev_matrix &w, rows x, rows out, const int *n_row, int n,
                                cudaStream_t s) {
    if (w.n <= 32 || n <= 1024)
        router_gemm_kernel<L, 32, 32, 4, 4>
            <<<dim3((w.n + 31) / 32, (n + 31) / 32), 256, 0, s>>>(w, x, out, n_row);
    else
        router_gemm_kernel<L, 64, 64, 8, 4>
            <<<dim3((w.n + 63) / 64, (n + 63) / 64), 512, 0, s>>>(w, x, out, n_row);
    return cudaGetLastError();
}
bool router_gemm_has(const dev_matrix &w, rows x) {
    return (w.layout == LAYOUT_F32 || w.layout == LAYOUT_F16 || w.layout == LAYOUT_BF16) && w.k % 4 == 0 &&
           w.inter == UNIT_ROWS && (size_t)x.p % 16 == 0 && x.stride % 4 == 0;
}
cudaError_t router_gemm_launch(dev_matrix w, rows x, rows out, const int *n_row, int n, cudaStream_t s) {
    return w.layout == LAYOUT_F32   ? router_start<LAYOUT_F32>(w, x, out, n_row, n, s)
           : w.layout == LAYOUT_F16 ? router_start<LAYOUT_F16>(w, x, out, n_row, n, s)
                                    : router_start<LAYOUT_BF16>(w, x, out, n_row, n, s);
}

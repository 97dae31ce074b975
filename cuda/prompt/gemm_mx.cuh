// Matmul of prompt rows in block-scaled formats (mx.cuh), what sm_120 multiplies fastest. Weights lie as in every other
// kernel and become blocks in registers; activations become blocks once, in a pass of their own. A block of threads takes
// 128 rows of W and 128 tokens, a warp a slab of 16 rows; sums run in the order of k.
#pragma once
#include "cuda/common/mx.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/gemm_mma.cuh"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/gemm_epilogue.cuh"

// Activations: tile k of 64 columns is rows of BYTES, all rows of the step together, then a word of scales a row. In a row
// group q of 32 columns and lane t have FP8 bytes 32 q + 16 e + 4 t + j, FP4 nibbles 32 q + 8 t + 4 e + j, where (t, e, j) is
// the place that prompt_position gives a column.
enum { MX_TOKENS = 128 };
template <int L, int KIND> struct mx_ring {
    static constexpr int row = KIND == MX_FP8 ? 64 : 32, x = MX_TOKENS * row, scales = MX_TOKENS * 4,
                         tile = operands<L>::n_piece * operands<L>::piece_bytes, codes = x + scales,
                         stage = codes + 8 * tile, fit = 98 * 1024 / stage, stages = fit > 4 ? 4 : fit,
                         smem = stages * stage;
};
// Byte of 16-byte chunk c of row r in shared memory: eight rows of one chunk lie in different banks.
template <int ROW> DEV int mx_chunk(int r, int c) {
    return r * ROW + ((ROW == 64 ? c ^ (r >> 1 & 3) : c ^ (r >> 2 & 1)) << 4);
}

template <int L, int KIND> DEV void mx_load(const prompt_job &j, uint32_t at, int slab0, int t0, int k) {
    using F = operands<L>;
    using R = mx_ring<L, KIND>;
    constexpr int C = R::row / 16;
    size_t first = (size_t)k * j.mx_rows + t0;
    for (int i = threadIdx.x; i < MX_TOKENS * C; i += 256)
        cp_async16(at + mx_chunk<R::row>(i / C, i % C), j.mx + first * R::row + (size_t)i * 16, 16);
    if (threadIdx.x < MX_TOKENS / 4)
        cp_async16(at + R::x + threadIdx.x * 16, j.mx_scale + first * 4 + threadIdx.x * 16, 16);
    constexpr int CHUNKS = F::piece_bytes / 16; // of a piece
    for (int i = threadIdx.x; i < 8 * F::n_piece * CHUNKS; i += 256) {
        int c = i % CHUNKS, piece = i / CHUNKS % F::n_piece, tile = i / CHUNKS / F::n_piece;
        const uint8_t *w = j.w + ((size_t)slab_tile(j, slab0 + tile) * j.u + k / 4) * F::unit;
        cp_async16(at + R::codes + tile * R::tile + piece * F::piece_bytes + c * 16,
                   w + F::piece(k % 4, piece) + c * 16, 16);
    }
}

// Blocks of 64 columns of a warp's 16 rows: a[q] and the scale word of this lane (mx_mma). value(q, row half, v[8]).
template <int KIND, class VALUE> DEV uint32_t mx_weights(uint32_t (&a)[2][4], VALUE value) {
    uint32_t scale[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int q = 0; q < 2; q++) {
            float v[8], top = 0.f, inverse;
            uint32_t w[2];
            value(q, h, v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] *= mx_weight_factor<KIND>;
                top = fmaxf(top, fabsf(v[i]));
            }
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            if (KIND != NV_FP4) top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            uint32_t s = mx_scale<KIND>(top, inverse);
            mx_codes<KIND>(v, inverse, w);
            if (KIND == MX_FP8) {
                a[q][h] = w[0];
                a[q][h + 2] = w[1];
            } else
                a[0][h + 2 * q] = w[0];
            if (KIND == NV_FP4) { // lanes 0 and 1 made the scale of columns 0..15, 2 and 3 that of 16..31
                uint32_t lane = threadIdx.x & 28;
                s = __shfl_sync(~0u, s, lane) | __shfl_sync(~0u, s, lane + 2) << 8;
                scale[h] |= s << (16 * q);
            } else
                scale[h] |= s << (8 * q);
        }
    return threadIdx.x & 1 ? scale[1] : scale[0];
}

#if MX_NATIVE
#define MX_PARTS _Pragma("unroll")
#else
#define MX_PARTS _Pragma("unroll 1") // plain arithmetic, which is called: compiled in half the time
#endif
template <int L, int KIND, bool GLU>
__global__ void __launch_bounds__(256, 1) gemm_mx_kernel(const __grid_constant__ prompt_job j, bool add) {
#if MX_NATIVE || defined(__CUDA_ARCH_FEAT_SM90_ALL) // elsewhere the self-test finds nothing and says so
    using F = operands<L>;
    using R = mx_ring<L, KIND>;
    extern __shared__ __align__(1024) uint8_t mx_smem[];
    uint32_t ring = smem_address(mx_smem);
    int n_row = *j.n_row, t0 = blockIdx.x * MX_TOKENS, slab0 = blockIdx.y * 8, warp = threadIdx.x >> 5,
        lane = threadIdx.x & 31;
    if (t0 >= n_row) return;
    struct slab s = slab_of<L>(j, slab0, warp, R::codes, R::tile);
    float d[MX_TOKENS / 2];
#pragma unroll
    for (int i = 0; i < MX_TOKENS / 2; i++) d[i] = 0.f;
    for (int k = 0; k < R::stages - 1; k++) {
        if (k < j.k_tiles) mx_load<L, KIND>(j, ring + k * R::stage, slab0, t0, k);
        cp_commit();
    }
    typename F::scales sc, sc_next;
    F::scale(sc, s, 0);
    for (int unit = 0; unit < j.u; unit++) {
        if (unit + 1 < j.u) F::scale(sc_next, s, (size_t)(unit + 1) * F::unit);
        MX_PARTS
        for (int p = 0; p < 4; p++) {
            int k = unit * 4 + p;
            if (k >= j.k_tiles) break;
            cp_wait<R::stages - 2>();
            __syncthreads();
            int next = k + R::stages - 1;
            if (next < j.k_tiles) mx_load<L, KIND>(j, ring + next % R::stages * R::stage, slab0, t0, next);
            cp_commit();
            uint32_t at = ring + k % R::stages * R::stage, f[4][4], a[2][4];
            typename F::raw raw;
            F::load(raw, s, at);
#pragma unroll
            for (int st = 0; st < 4; st++) F::step(raw, sc, s, p, st, f[st]);
            mx_operands o;
            o.sa = mx_weights<KIND>(a, [&](int q, int h, float(&v)[8]) {
#pragma unroll
                for (int e = 0; e < 2; e++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float2 two = half2_bits(f[2 * q + e][h + 2 * i]);
                        v[4 * e + 2 * i] = two.x;
                        v[4 * e + 2 * i + 1] = two.y;
                    }
            });
            // four matrices a load: FP8 both halves of both groups of 8 tokens' 64 bytes; FP4 two groups of 8 tokens
#pragma unroll
            for (int i = 0; i < MX_TOKENS / 8; i += KIND == MX_FP8 ? 1 : 2) {
                uint32_t b[4];
                int token = i * 8 + (lane & 7) + (KIND == MX_FP8 ? 0 : (lane >> 4) * 8),
                    chunk = KIND == MX_FP8 ? lane >> 3 : (lane >> 3) & 1;
                ldmatrix4(b, at + mx_chunk<R::row>(token, chunk));
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    int tile = i + (KIND == MX_FP8 ? 0 : q);
                    asm volatile("ld.shared.u32 %0, [%1];"
                                 : "=r"(o.sb)
                                 : "r"(at + R::x + (tile * 8 + (lane >> 2)) * 4));
                    o.b[0] = b[2 * q];
                    o.b[1] = b[2 * q + 1];
#pragma unroll
                    for (int r = 0; r < 4; r++) o.a[r] = a[KIND == MX_FP8 ? q : 0][r];
                    float(&sum)[4] = *(float(*)[4])(d + 4 * tile);
                    if (KIND == MX_FP8 && q)
                        mx_mma<KIND, 1>(sum, o);
                    else
                        mx_mma<KIND, 0>(sum, o);
                }
            }
        }
        sc = sc_next;
    }
    if (KIND == NV_FP4)
#pragma unroll
        for (int i = 0; i < MX_TOKENS / 2; i++) d[i] *= 1.f / (mx_weight_factor<KIND> * mx_x_factor<KIND>);
    if constexpr (GLU)
        prompt_store<EPILOGUE_GLU, MX_TOKENS>(j, d, slab0 + warp, t0, n_row);
    else if (add)
        prompt_store<EPILOGUE_ADD, MX_TOKENS>(j, d, slab0 + warp, t0, n_row);
    else
        prompt_store<EPILOGUE_STORE, MX_TOKENS>(j, d, slab0 + warp, t0, n_row);
#endif
}

template <int L, int KIND, bool GLU>
cudaError_t mx_start(const prompt_job &j, bool add, int n, cudaStream_t s) {
    auto kernel = gemm_mx_kernel<L, KIND, GLU>;
    constexpr int smem = mx_ring<L, KIND>::smem;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    kernel<<<dim3((n + MX_TOKENS - 1) / MX_TOKENS, (j.n_slab + 7) / 8), 256, smem, s>>>(j, add);
    return cudaGetLastError();
}
template <int L>
cudaError_t mx_layout(const prompt_job &j, enum mx_kind kind, enum prompt_epilogue e, int n, cudaStream_t s) {
    bool glu = e == EPILOGUE_GLU, add = e == EPILOGUE_ADD;
    switch (kind) {
    case MX_FP8:
        return glu ? mx_start<L, MX_FP8, true>(j, add, n, s) : mx_start<L, MX_FP8, false>(j, add, n, s);
    case MX_FP4:
        return glu ? mx_start<L, MX_FP4, true>(j, add, n, s) : mx_start<L, MX_FP4, false>(j, add, n, s);
    default:
        return glu ? mx_start<L, NV_FP4, true>(j, add, n, s) : mx_start<L, NV_FP4, false>(j, add, n, s);
    }
}

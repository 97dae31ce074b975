// A warp has a row tile of a head's matrix, which is there before the row is: its bytes in shared memory, its scales in registers.
#include "cuda/decode/mla/mla_heads.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/formats/unit_operands.cuh"

enum {
    HEADS_WARPS = 4,
    HEADS_UNITS = 2, // 512 columns
    HEADS_BLOCK = HEADS_WARPS * 16,
    TOKENS = 64, // of a block of prompt rows
    TOKEN_PITCH = 512 + 32
};
template <int L> constexpr int heads_unit = 4 * operands<L>::n_piece *operands<L>::piece_bytes;

// Codes of a unit into shared memory, 64 columns after 64.
template <int L> DEV void heads_fetch(uint32_t to, const uint8_t *unit, int lane) {
    using F = operands<L>;
    constexpr int CHUNKS = F::piece_bytes / 16;
#pragma unroll
    for (int i = 0; i < 4 * F::n_piece * CHUNKS / 32; i++) {
        const int c = (i * 32 + lane) % CHUNKS, piece = (i * 32 + lane) / CHUNKS;
        cp_async16(to + (i * 32 + lane) * 16,
                   unit + F::piece(piece / F::n_piece, piece % F::n_piece) + c * 16, 16);
    }
}
// First of a lane's four columns of a step of 16.
template <int L> DEV int heads_column(int step, int t) {
    return (step >> 1) * 32 +
           (operands<L>::order == ORDER_CODES ? (step & 1) * 16 + t * 4 : t * 8 + (step & 1) * 4);
}

// What a head has behind its columns goes behind its outputs, as it is or rotated.
DEV void copy_rest(const stack_job &j, int r, int h) {
    const float *x = j.x.p + r * j.x.stride + (size_t)h * (j.w.k + j.rest) + j.w.k;
    float *out = j.out.p + r * j.out.stride + (size_t)h * (j.w.n + j.rest) + j.w.n;
    for (int i = threadIdx.x; i < j.rest; i += blockDim.x) out[i] = __ldcg(x + i);
}
DEV void rotate_rest(const mla_heads_job &f, int r, int h) {
    const stack_job &j = f.stack;
    const float *x = j.x.p + r * j.x.stride + (size_t)h * (j.w.k + j.rest) + j.w.k;
    float *out = j.out.p + r * j.out.stride + (size_t)h * (j.w.n + j.rest) + j.w.n;
    const int half = j.rest / 2;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const int a = f.neox ? i : 2 * i, b = f.neox ? i + half : 2 * i + 1;
        const float2 c = __ldcg(f.table + (size_t)r * half + i);
        const float u = __ldcg(x + a), v = __ldcg(x + b);
        out[a] = u * c.x - v * c.y;
        out[b] = v * c.x + u * c.y;
    }
}
// Norm and rotation of a row's key, into the cache.
DEV void put_mla(dev_tables t, const mla_heads_job &f, int r, float *key) {
    __shared__ float tmp[HEADS_WARPS];
    const float *x = f.key.p + r * f.key.stride;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, half = (LATENT_K - LATENT_V) / 2;
    float ss = 0;
    for (int i = tid; i < LATENT_V; i += HEADS_WARPS * 32) {
        const float v = __ldcg(x + i);
        key[i] = v * f.norm[i];
        ss = fmaf(v, v, ss);
    }
    if (tid < half) {
        const int a = f.neox ? tid : 2 * tid, b = f.neox ? tid + half : 2 * tid + 1;
        const float2 c = __ldcg(f.table + (size_t)r * half + tid);
        const float u = __ldcg(x + LATENT_V + a), v = __ldcg(x + LATENT_V + b);
        key[LATENT_V + a] = u * c.x - v * c.y;
        key[LATENT_V + b] = v * c.x + u * c.y;
    }
    ss = warp_sum(ss);
    if (lane == 0) tmp[warp] = ss;
    __syncthreads();
    ss = (tmp[0] + tmp[1]) + (tmp[2] + tmp[3]);
    const float rs = 1.f / sqrtf(ss / LATENT_V + f.eps);
    uint8_t *to = f.kv.k + kv_row(f.kv, t.slot[r], t.pos[r], 0) * kv_bytes(f.kv.type, LATENT_K);
    if (f.kv.type > KV_Q8_0) {
        for (int i = tid; i < LATENT_V; i += HEADS_WARPS * 32) key[i] *= rs;
        __syncthreads();
        if (warp == 0) kv_low_put(f.kv.type, to, LATENT_K, LATENT_TURN, key);
        __syncthreads();
        return;
    }
    for (int b = warp; b * 32 < LATENT_K; b += HEADS_WARPS) {
        const int i = b * 32 + lane;
        kv_put32(f.kv.type, to, b, LATENT_K, i < LATENT_V ? key[i] * rs : key[i]);
    }
    __syncthreads();
}

// ---- decode rows, eight a block
// A lane's columns of row x, as operands of the steps that there are.
template <int L> DEV void heads_row(uint2 (&b)[HEADS_UNITS * 16], const float *x, int k, int lane) {
#pragma unroll
    for (int i = 0; i < HEADS_UNITS * 16; i++) {
        const int c = (i >> 4) * 256 + heads_column<L>(i & 15, lane & 3);
        b[i] = make_uint2(0, 0);
        if (!x || c >= k) continue;
        const float4 v = __ldcg((const float4 *)(x + c));
        b[i] = make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    }
}
// Products of a warp's tile: to float32 rows, or to where heads_give finds them.
DEV void heads_store(const mla_heads_job &f, const float (&d)[4][4], float (&y)[8][HEADS_BLOCK], int h,
                     int row0, int n_row) {
    const stack_job &j = f.stack;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tile = blockIdx.x * HEADS_WARPS + warp;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = 2 * (lane & 3) + (i & 1), n = (lane >> 2) + 8 * (i >> 1);
        const float v = ((d[0][i] + d[1][i]) + (d[2][i] + d[3][i])) * j.w.factor;
        if (f.give.xo)
            y[row][warp * 16 + n] = v;
        else if (row < n_row && tile * 16 + n < j.w.n)
            j.out.p[(row0 + row) * j.out.stride + (size_t)h * (j.w.n + j.rest) + tile * 16 + n] = v;
    }
}
DEV void heads_give(const mla_heads_job &f, const float (&y)[8][HEADS_BLOCK], int h, int row0, int n_row) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = f.stack.w.n;
    for (int i = warp; i < n_row * (HEADS_BLOCK / 32); i += HEADS_WARPS) {
        const int r = i / (HEADS_BLOCK / 32), c = i % (HEADS_BLOCK / 32) * 32 + lane,
                  n = blockIdx.x * HEADS_BLOCK + c;
        if (n >= width) continue; // whole warps: width is a multiple of 32
        if (f.give.give == GIVE_RECORD)
            put_act_int8<32>(f.give, h * width + n, y[r][c]);
        else
            put_column<true>(f.give, row0 + r, row0 + r, h * width + n, y[r][c]);
    }
}
template <int L>
__global__ void __launch_bounds__(HEADS_WARPS * 32)
    mla_heads_kernel(dev_tables t, const __grid_constant__ mla_heads_job f) {
    using F = operands<L>;
    extern __shared__ __align__(128) uint8_t heads_smem[];
    __shared__ float key[LATENT_K], y[8][HEADS_BLOCK];
    const stack_job &j = f.stack;
    const int h = blockIdx.y, row0 = blockIdx.z * 8, warp = threadIdx.x >> 5, lane = threadIdx.x & 31,
              g = lane >> 2, tile = blockIdx.x * HEADS_WARPS + warp, u = j.w.u,
              at = warp * HEADS_UNITS * heads_unit<L>;
    const bool own = h < j.n_head && tile * 16 < j.w.n;
    const slab s = {j.w.region + ((size_t)((j.w.base + h * j.step) / 16) + tile) * ((size_t)u * F::unit), at};
    typename F::scales scale[HEADS_UNITS];
    if (own)
        for (int i = 0; i < HEADS_UNITS && i < u; i++) {
            heads_fetch<L>(smem_address(heads_smem) + at + i * heads_unit<L>, s.first + (size_t)i * F::unit,
                           lane);
            F::scale(scale[i], s, (size_t)i * F::unit);
        }
    cp_commit();
    pdl_trigger();
    pdl_wait();
    const int n_row = min(8, t.step->n_row - row0);
    if (n_row <= 0) return;
    if (h == j.n_head) {
        for (int r = blockIdx.x; r < n_row; r += gridDim.x) put_mla(t, f, row0 + r, key);
        return;
    }
    uint2 b[HEADS_UNITS * 16];
    heads_row<L>(b, g < n_row ? j.x.p + (row0 + g) * j.x.stride + (size_t)h * (j.w.k + j.rest) : NULL, j.w.k,
                 lane);
    cp_wait<0>();
    __syncwarp();
    float d[4][4] = {};
    if (own)
#pragma unroll
        for (int i = 0; i < HEADS_UNITS * 4; i++) {
            if (i * 64 >= j.w.k) break;
            typename F::raw raw;
            F::load(raw, s, smem_address(heads_smem) + i * F::n_piece * F::piece_bytes);
#pragma unroll
            for (int st = 0; st < 4; st++) {
                uint32_t a[4];
                F::step(raw, scale[i >> 2], s, i & 3, st, a);
                mma_f16(d[st], a[0], a[1], a[2], a[3], b[i * 4 + st].x, b[i * 4 + st].y);
            }
        }
    heads_store(f, d, y, h, row0, n_row);
    if (j.rest && blockIdx.x == 0)
        for (int r = 0; r < n_row; r++) f.norm ? rotate_rest(f, row0 + r, h) : copy_rest(j, row0 + r, h);
    if (!f.give.xo) return;
    __syncthreads();
    heads_give(f, y, h, row0, n_row);
}

// ---- prompt rows: 128 rows of a head's matrix, 64 rows of the step a block
// 256 columns of the rows from t0 on, as halves.
DEV void heads_rows(uint8_t *to, const stack_job &j, const float *x, int k0, int t0, int n_row) {
#pragma unroll 8
    for (int c = threadIdx.x; c < TOKENS * 64; c += 256) {
        const int r = c >> 6, k = k0 + (c & 63) * 4;
        float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
        if (t0 + r < n_row && k < j.w.k) v = *(const float4 *)(x + (t0 + r) * j.x.stride + k);
        *(uint2 *)(to + r * TOKEN_PITCH + (c & 63) * 8) =
            make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    }
}
template <int L>
__global__ void __launch_bounds__(256)
    mla_heads_prompt_kernel(dev_tables t, const __grid_constant__ stack_job j) {
    using F = operands<L>;
    extern __shared__ __align__(128) uint8_t heads_smem[];
    const int n_row = t.step->n_row, t0 = blockIdx.x * TOKENS, h = blockIdx.z, warp = threadIdx.x >> 5,
              lane = threadIdx.x & 31, g = lane >> 2, tile = blockIdx.y * 8 + warp, u = j.w.u,
              at = TOKENS * TOKEN_PITCH + warp * heads_unit<L>;
    if (t0 >= n_row) return;
    const bool own = tile * 16 < j.w.n;
    const slab s = {
        j.w.region + ((size_t)((j.w.base + h * j.step) / 16) + (own ? tile : 0)) * ((size_t)u * F::unit), at};
    const float *x = j.x.p + (size_t)h * (j.w.k + j.rest);
    float d[TOKENS / 8][4] = {};
    for (int i = 0; i < u; i++) {
        typename F::scales scale;
        __syncthreads();
        heads_fetch<L>(smem_address(heads_smem) + at, s.first + (size_t)i * F::unit, lane);
        cp_commit();
        F::scale(scale, s, (size_t)i * F::unit);
        heads_rows(heads_smem, j, x, i * 256, t0, n_row);
        cp_wait<0>();
        __syncthreads();
#pragma unroll
        for (int p = 0; p < 4; p++) {
            if (i * 256 + p * 64 >= j.w.k) break;
            typename F::raw raw;
            F::load(raw, s, smem_address(heads_smem) + p * F::n_piece * F::piece_bytes);
#pragma unroll
            for (int st = 0; st < 4; st++) {
                uint32_t a[4];
                F::step(raw, scale, s, p, st, a);
                const uint8_t *from =
                    heads_smem + g * TOKEN_PITCH + heads_column<L>(p * 4 + st, lane & 3) * 2;
#pragma unroll
                for (int q = 0; q < TOKENS / 8; q++) {
                    const uint2 b = *(const uint2 *)(from + q * 8 * TOKEN_PITCH);
                    mma_f16(d[q], a[0], a[1], a[2], a[3], b.x, b.y);
                }
            }
        }
    }
#pragma unroll
    for (int q = 0; q < TOKENS / 8; q++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = t0 + q * 8 + 2 * (lane & 3) + (i & 1), n = tile * 16 + g + 8 * (i >> 1);
            if (own && r < n_row && n < j.w.n)
                j.out.p[r * j.out.stride + (size_t)h * (j.w.n + j.rest) + n] = d[q][i] * j.w.factor;
        }
    if (blockIdx.y || !j.rest) return;
    for (int c = threadIdx.x; c < TOKENS * j.rest; c += 256) {
        const int r = t0 + c / j.rest, i = c % j.rest;
        if (r < n_row)
            j.out.p[r * j.out.stride + (size_t)h * (j.w.n + j.rest) + j.w.n + i] =
                x[r * j.x.stride + j.w.k + i];
    }
}

// ---- host side
bool mla_heads_has(const struct cuda_group *g, int rest) {
    return g->n_region == 1 && g->n_member == 1 && layout_kind(g->region[0].layout) != KIND_FLOATS &&
           (g->k == LATENT_V || g->n == LATENT_V) && g->k <= HEADS_UNITS * 256 && g->k % 4 == 0 &&
           rest % 4 == 0 && !g->bias;
}
template <int L>
static cudaError_t decode_run(dev_tables t, const mla_heads_job &j, int n, bool overlap, cudaStream_t s) {
    const dim3 grid((j.stack.w.n + HEADS_BLOCK - 1) / HEADS_BLOCK, j.stack.n_head + (j.norm != NULL),
                    (n + 7) / 8);
    return launch_overlapped(mla_heads_kernel<L>, grid, HEADS_WARPS * 32,
                             HEADS_WARPS * HEADS_UNITS * heads_unit<L>, overlap, s, t, j);
}
template <int L> static cudaError_t prompt_run(dev_tables t, const stack_job &j, int n, cudaStream_t s) {
    const dim3 grid((n + TOKENS - 1) / TOKENS, (j.w.n + 127) / 128, j.n_head);
    return launch_overlapped(mla_heads_prompt_kernel<L>, grid, 256, TOKENS * TOKEN_PITCH + 8 * heads_unit<L>,
                             false, s, t, j);
}
template <int L> static cudaError_t prepare(void) {
    cudaError_t e = cudaFuncSetAttribute(mla_heads_kernel<L>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         HEADS_WARPS * HEADS_UNITS * heads_unit<L>);
    if (e != cudaSuccess) return e;
    return cudaFuncSetAttribute(mla_heads_prompt_kernel<L>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                TOKENS * TOKEN_PITCH + 8 * heads_unit<L>);
}
// one of an expression for each layout but floats
#define HEADS_CODES(id, expression)                                                                          \
    case LAYOUT_##id:                                                                                        \
        return expression(LAYOUT_##id);
#define HEADS_EIGHTS(id, expression) HEADS_CODES(id, expression)
#define HEADS_HALVES(id, expression) HEADS_CODES(id, expression)
#define HEADS_FLOATS(id, expression)
cudaError_t mla_heads_launch(dev_tables t, const mla_heads_job &j, int n, bool overlap, cudaStream_t s) {
    switch (j.stack.w.layout) {
#define RUN(l)                        decode_run<l>(t, j, n, overlap, s)
#define LAYOUT(id, name, bytes, kind) HEADS_##kind(id, RUN)
#include "cuda/plan/layouts.def"
#undef RUN
    default:
        return cudaErrorInvalidValue;
    }
}
cudaError_t mla_heads_prompt(dev_tables t, const stack_job &j, int n, cudaStream_t s) {
    switch (j.w.layout) {
#define RUN(l)                        prompt_run<l>(t, j, n, s)
#define LAYOUT(id, name, bytes, kind) HEADS_##kind(id, RUN)
#include "cuda/plan/layouts.def"
#undef RUN
    default:
        return cudaErrorInvalidValue;
    }
}
static cudaError_t prepare_one(enum layout l) {
    switch (l) {
#define RUN(l)                        prepare<l>()
#define LAYOUT(id, name, bytes, kind) HEADS_##kind(id, RUN)
#include "cuda/plan/layouts.def"
#undef RUN
    default:
        return cudaSuccess;
    }
}
cudaError_t mla_heads_prepare(void) {
    cudaError_t e = cudaSuccess;
    for (int l = 0; e == cudaSuccess && l < LAYOUT_COUNT; l++) e = prepare_one((enum layout)l);
    return e;
}

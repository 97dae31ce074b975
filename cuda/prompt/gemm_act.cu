// Products of prompt rows and an activation of them: gemm_wgmma.cuh's ring and sums, another end.
#include "cuda/prompt/gemm_act.h"
#include "cuda/prompt/gemm_wgmma.cuh"

// ---- sums to activations
template <int N, class A> DEV void act_each(float (&d)[N], const float (&bias)[2], A act) {
#pragma unroll
    for (int i = 0; i < N; i++) d[i] = act(d[i] + bias[i >> 1 & 1]);
}
// With the rows' bias, in place; which activation is asked once.
template <int N> DEV void act_make(const prompt_job &j, float (&d)[N], int slab) {
    const prompt_member &m = j.member[0];
    const int r = slab * 16 + ((threadIdx.x & 31) >> 2);
    const float bias[2] = {m.bias && r < m.n ? m.bias[r] : 0.f, m.bias && r + 8 < m.n ? m.bias[r + 8] : 0.f};
    if (j.act == 0)
        act_each(d, bias, [](float g) { return act_apply(0, g); });
    else if (j.act == 1) // (1 + tanh u) / 2 = 1 / (1 + exp -2u)
        act_each(d, bias, [](float g) {
            return __fdividef(g, 1.f + __expf(-1.5957691216057308f * (g + 0.044715f * g * g * g)));
        });
    else
        act_each(d, bias, [](float g) { return act_apply(2, g); });
}

// Columns behind the last are zeros.
template <int N> DEV void act_pad(const prompt_job &j, float (&d)[N], int slab) {
    const int left = j.member[0].n - slab * 16 - ((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (8 * (i >> 1 & 1) >= left) d[i] = 0.f;
}

// ---- to tiles: d[4 i + 2 h + q] is of column 16 slab + 8 h + lane / 4, row t0 + 8 i + 2 (lane % 4) + q
// A warpgroup's 64 columns of half of the tokens as they lie in a tile.
template <int BN, int PART> DEV void act_gather(const float (&d)[BN / 2], int order, int warp, uint32_t out) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const prompt_column col = prompt_column_of((warp & 3) * 16 + 8 * h + (lane >> 2), order);
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const uint32_t at =
                out + (warp >> 2) * (BN * 64) + (uint32_t)prompt_offset(2 * (lane & 3) + q, col, 1);
#pragma unroll
            for (int i = 0; i < BN / 16; i++)
                prompt_put_shared(at + i * 1024, d[4 * (PART * (BN / 16) + i) + 2 * h + q]);
        }
    }
}
// Half of the tokens, 128 columns: by both warpgroups; thread 128 waits until the piece before was read, and sends.
template <int BN, int PART>
DEV void act_send(const prompt_job &j, const float (&d)[BN / 2], int slab0, int warp, int t0, int n_row,
                  uint32_t out) {
    if (threadIdx.x == 128) bulk_wait_read();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    act_gather<BN, PART>(d, j.glu_order, warp, out);
    barrier_fence();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const int left = min(BN / 2, n_row - t0 - PART * (BN / 2));
    if (threadIdx.x != 128 || left <= 0) return;
    for (int tile = 0; tile < 2 && slab0 / 4 + tile < j.glu_k_tiles; tile++)
        prompt_send<BN>(j.glu + (size_t)(slab0 / 4 + tile) * PROMPT_TILE_BYTES, j.glu_k_tiles,
                        t0 + PART * (BN / 2), left, out + tile * (BN * 64));
}
template <int BN>
DEV void act_finish(const prompt_job &j, float (&d)[BN / 2], int slab0, int warp, int t0, int n_row,
                    uint32_t out) {
    act_make(j, d, slab0 + warp);
    if ((slab0 + 8) * 16 > j.member[0].n) act_pad(j, d, slab0 + warp);
    act_send<BN, 0>(j, d, slab0, warp, t0, n_row, out);
    act_send<BN, 1>(j, d, slab0, warp, t0, n_row, out);
}

template <int L, int BN, int CL>
__global__ void __launch_bounds__(384, 1) gemm_act_kernel(const __grid_constant__ prompt_job j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using R = prompt_ring<L, BN, EPILOGUE_GLU>; // with as many bytes for what goes out
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[2 * R::stages];
    const uint32_t ring = (smem_address(smem_raw) + 1023) & ~1023u, full = smem_address(bars),
                   empty = full + 8 * R::stages;
    const int rank = (int)cluster_rank(), n_row = *j.n_row, n_tok = (n_row + BN - 1) / BN,
              n_tile = (j.n_slab + 8 * CL - 1) / (8 * CL) * n_tok;
    int stage = 0;
    uint32_t phase = 0;
    prompt_barriers<R, CL>(full, empty);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int tile = blockIdx.x / CL; tile < n_tile; tile += gridDim.x / CL)
            prompt_produce<R, L, BN, CL, 4>(j, tile / n_tok * (8 * CL) + rank * 8, tile % n_tok * BN, n_row,
                                            ring, full, empty, rank, stage, phase);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int warp = (threadIdx.x >> 5) - 4;
        for (int tile = blockIdx.x / CL; tile < n_tile; tile += gridDim.x / CL) {
            const int slab0 = tile / n_tok * (8 * CL) + rank * 8, t0 = tile % n_tok * BN;
            float d[BN / 2];
            prompt_consume<R, L, BN, CL>(j, d, slab0, warp, ring, full, empty, stage, phase,
                                         threadIdx.x & 127);
            act_finish<BN>(j, d, slab0, warp, t0, n_row, ring + R::stages * R::stage);
        }
        if (threadIdx.x == 128) bulk_wait();
    }
    cluster_sync();
#endif
}

template <int L, int BN>
static cudaError_t act_start(const prompt_job &j, int n, int sm_count, cudaStream_t s) {
    constexpr int CL = 2, smem = prompt_ring<L, BN, EPILOGUE_GLU>::smem;
    const int clusters = min((n + BN - 1) / BN * ((j.n_slab + 8 * CL - 1) / (8 * CL)), sm_count / CL);
    auto kernel = gemm_act_kernel<L, BN, CL>;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = CL;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(clusters * CL));
    c.blockDim = dim3(384);
    c.dynamicSmemBytes = smem;
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, j);
}
template <int L>
static cudaError_t act_tokens(const prompt_job &j, int tokens, int n, int sm_count, cudaStream_t s) {
    switch (tokens) {
    case 320:
        return act_start<L, 320>(j, n, sm_count, s);
    case 288:
        return act_start<L, 288>(j, n, sm_count, s);
    case 256:
        return act_start<L, 256>(j, n, sm_count, s);
    case 224:
        return act_start<L, 224>(j, n, sm_count, s);
    case 192:
        return act_start<L, 192>(j, n, sm_count, s);
    case 128:
        return act_start<L, 128>(j, n, sm_count, s);
    default:
        return act_start<L, 64>(j, n, sm_count, s);
    }
}
cudaError_t prompt_act_launch(const prompt_job &j, enum layout l, int tokens, int n, int sm_count,
                              cudaStream_t s) {
    if (!route_has_act(GROUP_WGMMA, l)) return cudaErrorInvalidValue;
    return l == LAYOUT_F16 ? act_tokens<LAYOUT_F16>(j, tokens, n, sm_count, s)
                           : act_tokens<LAYOUT_BF16>(j, tokens, n, sm_count, s);
}

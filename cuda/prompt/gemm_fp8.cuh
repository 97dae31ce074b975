// The kernel of FP8 products of prompt rows on sm_90a. Weights come as they lie in the layout, from shared memory to A operands
// in registers; activations, from shared memory, are the B operand.
//
// A cluster of two blocks takes 256 rows of W and BN tokens. In each block one warp streams units of its row tiles and its share of the
// activations, which both blocks read, and two warpgroups of 64 rows each consume them: while the tensor cores multiply for one, the
// other adds its sums of a block of columns, scaled, to its own.
#pragma once
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/prompt/gemm_wgmma.cuh"

enum { FP8_CLUSTER = 2 };
// Tiles of a cluster.
template <int BN> static __host__ __device__ inline int fp8_tiles(const prompt_job &j, int n_row) {
    return (n_row + BN - 1) / BN * ((j.n_slab + 8 * FP8_CLUSTER - 1) / (8 * FP8_CLUSTER));
}
// Two rings: stages of activations of a block of columns, and units of 8 row tiles, which are two blocks. Behind them the block's gated
// units, see prompt_ring.
template <int BN, int EPI> struct fp8_ring {
    static constexpr int unit = layout_unit_bytes(LAYOUT_F8), w_stage = 8 * unit,
                         w_stages = BN == 256 ? 2 : 3;
    static constexpr int x_stage = BN * FP8_COLS, x_at = w_stages * w_stage,
                         out = EPI == EPILOGUE_GLU ? BN * 128 : 0,
                         x_stages = (225 * 1024 - out - x_at) / x_stage, out_at = x_at + x_stages * x_stage,
                         smem = out_at + out + 1024;
    static_assert(w_stage % 1024 == 0 && x_stages >= 3, "atoms of the swizzle");
};
// A ring of stages and its barriers: 8 bytes a stage, those of full ones first. Both sides go through it by themselves.
template <int STAGES> struct ring_place {
    uint32_t first; // barrier
    int stage = 0;
    uint32_t phase = 0;
    MEM explicit ring_place(uint32_t barriers) : first(barriers) {}
    MEM void begin(int readers) const { // by one thread
        for (int i = 0; i < STAGES; i++)
            barrier_init(first + i * 8, 1), barrier_init(first + (STAGES + i) * 8, readers);
    }
    MEM uint32_t full() const { return first + stage * 8; }
    MEM uint32_t empty() const { return first + (STAGES + stage) * 8; }
    MEM void next() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// D[64][128] += A[64][32] B[32][128], or where FIRST D = : both e4m3, K contiguous.
template <int FIRST> DEV void wgmma_e4m3(float (&d)[64], const uint32_t (&a)[4], uint32_t b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" WGMMA_DESCRIPTOR(
                     "db", "%68") "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" W64
                                  "}, {%64, %65, %66, %67}, db, p, 1, 1;\n}"
                 : D64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(!FIRST));
}
// A word of codes of LAYOUT_F8 as four e4m3 bytes.
DEV uint32_t fp8_bytes(uint32_t v) {
    return lop3<LOP_SELECT_C>(v << 1, 0x7f007f00u, lop3<LOP_SELECT_C>(v >> 7, 0x00800080u, v));
}
// 16 rows of 128 columns as a lane's operands of four products. at: its first codes in shared memory.
DEV void fp8_operands(uint32_t (&a)[4][4], uint32_t at) {
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const uint4 v = lds16(at + g * 512);
        a[g][0] = fp8_bytes(v.x);
        a[g][1] = fp8_bytes(v.y);
        a[g][2] = fp8_bytes(v.z);
        a[g][3] = fp8_bytes(v.w);
    }
}
DEV float2 lds_float2(uint32_t p) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(p));
    return v;
}
// Scales of a lane's weights in a block of columns: fragment rows 0..7 (lo) and 8..15 (hi).
struct fp8_scales {
    float lo, hi;
};

// Sums of a tile, by one warp of a warpgroup.
template <int BN, int EPI> struct fp8_consumer {
    using R = fp8_ring<BN, EPI>;
    ring_place<R::x_stages> x;
    ring_place<R::w_stages> w; // of the next block's operands
    uint32_t ring, code, own;  // this lane's codes in a unit, and scales of its rows
    int warp, x_from;          // the block that this thread tells of tokens that were read; -1: none

    // Places are kept in registers: the compiler would rather make them anew in every block.
    MEM fp8_consumer(uint32_t ring, const ring_place<R::x_stages> &tokens,
                     const ring_place<R::w_stages> &units)
        : x(tokens), w(units), ring(ring) {
        const int i = threadIdx.x & 127, lane = i & 31;
        warp = (threadIdx.x >> 5) - 4;
        x_from = i < FP8_CLUSTER ? i : -1;
        code = ring + warp * R::unit + lane * 16;
        own = ring + warp * R::unit + format<LAYOUT_F8>::scales + (lane >> 2) * 8;
        asm volatile("" : "+r"(code), "+r"(own), "+r"(x.first), "+r"(w.first));
    }
    // The next unit's first operands and all of its scales, as soon as it is there.
    MEM void begin_unit(uint32_t (&a)[4][4], fp8_scales (&s)[2]) {
        barrier_wait(w.full(), w.phase);
        const float2 lo = lds_float2(own + w.stage * R::w_stage),
                     hi = lds_float2(own + w.stage * R::w_stage + 64);
        s[0] = fp8_scales{lo.x, hi.x};
        s[1] = fp8_scales{lo.y, hi.y};
        fp8_operands(a, code + w.stage * R::w_stage);
    }
    // Its second ones, with which it is read: by this warp, so every warp says so.
    MEM void end_unit(uint32_t (&a)[4][4]) {
        fp8_operands(a, code + w.stage * R::w_stage + 2048);
        __syncwarp();
        if ((threadIdx.x & 31) == 0) barrier_arrive(w.empty());
        w.next();
    }
    // Products of a block with 128 tokens. at: the first of them.
    static MEM void multiply(float (&part)[64], const uint32_t (&a)[4][4], uint32_t at) {
        const uint32_t b = wgmma_descriptor(at);
        wgmma_fence();
        wgmma_e4m3<1>(part, a[0], b);
#pragma unroll
        for (int g = 1; g < 4; g++) wgmma_e4m3<0>(part, a[g], b + 2 * g);
        wgmma_commit();
        wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
        wgmma_pin(part);
    }
    // One block, 128 tokens at a time. next(): operands of the next block in place of a.
    template <class F> MEM void block(float (&sum)[BN / 2], uint32_t (&a)[4][4], fp8_scales s, F next) {
        float part[64];
        const uint32_t at = ring + R::x_at + x.stage * R::x_stage;
        barrier_wait(x.full(), x.phase);
#pragma unroll
        for (int g = 0; g < BN / 128; g++) {
            multiply(part, a, at + g * 128 * FP8_COLS);
            if (g + 1 == BN / 128) {
                if (x_from >= 0) cluster_arrive(x.empty(), x_from);
                x.next();
                next();
            }
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[g * 64 + i] = fmaf(part[i], i & 2 ? s.hi : s.lo, sum[g * 64 + i]);
        }
    }
    MEM void tile(float (&sum)[BN / 2], int n_block) {
        uint32_t a[4][4];
        fp8_scales s[2];
#pragma unroll
        for (int i = 0; i < BN / 2; i++) sum[i] = 0.f;
        begin_unit(a, s);
        for (int k = 0; k < n_block; k += 2) {
            block(sum, a, s[0], [&] { end_unit(a); });
            if (k + 1 < n_block)
                block(sum, a, s[1], [&] {
                    if (k + 2 < n_block) begin_unit(a, s);
                });
        }
    }
    // Times the scales of the tile's rows of activations, scale[BN].
    MEM void finish(float (&sum)[BN / 2], const float *scale) const {
        scale += 2 * (threadIdx.x & 3);
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
            const float2 v = *(const float2 *)(scale + 8 * i);
#pragma unroll
            for (int q = 0; q < 4; q++) sum[4 * i + q] *= q & 1 ? v.y : v.x;
        }
    }
};

// One warp: lane i < 8 copies units of a row tile, lane 0 also this block's share of the activations. What a block copies for both it
// copies again when both have read it.
template <int BN, int EPI> struct fp8_producer {
    using R = fp8_ring<BN, EPI>;
    static constexpr int TILES = 8, SHARE = R::x_stage / FP8_CLUSTER;
    int rank;
    uint32_t ring;
    ring_place<R::x_stages> x;
    ring_place<R::w_stages> w;

    MEM void unit(const uint8_t *from) {
        const int lane = threadIdx.x & 31;
        const uint32_t to = ring + w.stage * R::w_stage + lane * R::unit;
        barrier_wait(w.empty(), w.phase ^ 1);
        if (lane == 0) barrier_expect(w.full(), R::w_stage);
        __syncwarp();
        if (lane < TILES) bulk_copy(to, from, R::unit, w.full());
        w.next();
    }
    MEM void tokens(const uint8_t *from) {
        const uint32_t to = ring + R::x_at + x.stage * R::x_stage, bar = x.full();
        barrier_wait(x.empty(), x.phase ^ 1);
        if ((threadIdx.x & 31) == 0) {
            barrier_expect(bar, R::x_stage);
            bulk_multicast(to + rank * SHARE, from + rank * SHARE, SHARE, bar, (1 << FP8_CLUSTER) - 1);
        }
        __syncwarp();
        x.next();
    }
    MEM void tile(const prompt_job &j, int slab0, int t0, int n_block) {
        const uint8_t *from = j.w + (size_t)slab_tile(j, slab0 + (threadIdx.x & 31)) * j.u * R::unit;
        for (int k = 0; k < n_block; k++) {
            if (!(k & 1)) unit(from + (size_t)(k >> 1) * R::unit);
            tokens(j.mx + ((size_t)k * j.mx_rows + t0) * FP8_COLS);
        }
    }
};

// Sums d[4 i + 2 h + q] of rows t0 + 8 i + 2 t + q to those that are there, which are not read first: what is sent is on its way while
// the next tile begins. One sum comes to each, so the bits are those of a read, an addition and a write.
template <int BN>
DEV void fp8_add(const prompt_job &j, const float (&d)[BN / 2], int slab, int t0, int n_row) {
    if (slab >= j.n_slab) return;
    const prompt_member &m = member_of(j, slab);
    const int lane = threadIdx.x & 31, row = t0 + 2 * (lane & 3), r = (slab - m.slab) * 16 + (lane >> 2),
              left = n_row - row;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int n = r + 8 * h;
        if (n >= m.n) continue;
        const float bias = m.bias ? m.bias[n] : 0.f;
        float *p = j.out + m.col + n + (size_t)row * j.stride;
#pragma unroll
        for (int i = 0; i < BN / 4; i++) {
            if (8 * (i >> 1) + (i & 1) < left)
                atomicAdd(p + (i & 1) * j.stride, d[4 * (i >> 1) + 2 * h + (i & 1)] + bias);
            if (i & 1) p += 8 * j.stride;
        }
    }
}

template <int EPI, int BN>
__global__ void __launch_bounds__(384, 1) gemm_fp8_kernel(const __grid_constant__ prompt_job j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using R = fp8_ring<BN, EPI>;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[2 * (R::x_stages + R::w_stages)];
    const uint32_t ring = (smem_address(smem_raw) + 1023) & ~1023u;
    const ring_place<R::x_stages> x(smem_address(bars));
    const ring_place<R::w_stages> w(x.first + 16 * R::x_stages);
    const int rank = (int)cluster_rank();
    if (threadIdx.x == 0) {
        x.begin(2 * FP8_CLUSTER); // a thread of each warpgroup
        w.begin(8);               // one of each warp
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    pdl_wait();
    const int n_block = fp8_blocks(j.k_tiles), n_row = *j.n_row, n_tok = (n_row + BN - 1) / BN,
              n_tile = fp8_tiles<BN>(j, n_row), first = blockIdx.x / FP8_CLUSTER,
              step = gridDim.x / FP8_CLUSTER;
    const auto slab_at = [&](int tile) { return (tile / n_tok * FP8_CLUSTER + rank) * 8; };
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        fp8_producer<BN, EPI> p = {rank, ring, x, w};
        if (threadIdx.x < 32)
            for (int tile = first; tile < n_tile; tile += step)
                p.tile(j, slab_at(tile), tile % n_tok * BN, n_block);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        fp8_consumer<BN, EPI> own(ring, x, w);
        for (int tile = first; tile < n_tile; tile += step) {
            const int slab0 = slab_at(tile), t0 = tile % n_tok * BN;
            float d[BN / 2];
            own.tile(d, n_block);
            own.finish(d, (const float *)j.mx_scale + t0);
            if constexpr (EPI == EPILOGUE_GLU)
                prompt_finish_gated<BN>(j, d, slab0, own.warp, t0, n_row, ring + R::out_at);
            else if constexpr (EPI == EPILOGUE_ADD)
                fp8_add<BN>(j, d, slab0 + own.warp, t0, n_row);
            else
                prompt_store<EPI, BN, 16>(j, d, slab0 + own.warp, t0, n_row);
        }
        if (EPI == EPILOGUE_GLU && threadIdx.x == 128) bulk_wait();
    }
    cluster_sync();
#endif
}

template <int EPI, int BN> cudaError_t fp8_start(const prompt_job &j, int n, int sm_count, cudaStream_t s) {
    int clusters = fp8_tiles<BN>(j, n);
    if (clusters > sm_count / FP8_CLUSTER) clusters = sm_count / FP8_CLUSTER;
    auto kernel = gemm_fp8_kernel<EPI, BN>;
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, fp8_ring<BN, EPI>::smem);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = FP8_CLUSTER;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(clusters * FP8_CLUSTER));
    c.blockDim = dim3(384);
    c.dynamicSmemBytes = fp8_ring<BN, EPI>::smem;
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, j);
}
template <int EPI> cudaError_t fp8_tile(const prompt_job &j, int n, int sm_count, cudaStream_t s) {
    return n > 128 ? fp8_start<EPI, 256>(j, n, sm_count, s) : fp8_start<EPI, 128>(j, n, sm_count, s);
}

// Attention without a mask on sm_90a, DK columns of keys and DV of values: a warpgroup that copies tiles of 128 keys as they lie in memory
// (bulk copies), others of 64 rows of a head each, whose scores and probabilities stay in registers. The products of one tile's
// probabilities and of the next tile's scores are one batch, beside which the other warpgroups make probabilities.
// source: Dao 2023 (arXiv 2307.08691); Shah et al. 2024 (arXiv 2407.08608).
#pragma once
#include "cuda/common/wgmma.cuh"
#include "cuda/prompt/encode_softmax.cuh"

template <int DK, int DV> struct encode_size {
    static constexpr int groups = DV <= 72 ? 3 : 2, threads = 128 * (groups + 1), rows = 64 * groups,
                         k = ENCODE_ROWS * DK * 2, v = ENCODE_ROWS * DV * 2, query = 64 * DK * 2,
                         fit = (225 * 1024 - groups * query) / (k + v), stages = fit > 4 ? 4 : fit,
                         smem = stages * (k + v) + groups * query + 128;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A tile [chunk][rows][16 bytes] without a swizzle. Its rows are those of the product (K contiguous): chunks of 8 columns `chunk`
// bytes apart, 8 rows 128 bytes apart.
DEV uint64_t encode_descriptor(uint32_t at, uint32_t chunk) {
    return (uint64_t)8 << 32 | (uint64_t)(chunk >> 4) << 16 | at >> 4;
}
// Its rows are what is summed over (N contiguous).
DEV uint64_t encode_descriptor_n(uint32_t at, uint32_t chunk) {
    return (uint64_t)(chunk >> 4) << 32 | (uint64_t)8 << 16 | at >> 4;
}

// D = A B (first) or D += A B: scores of 64 rows and 128 keys, 16 columns of both.
template <bool FIRST> DEV void encode_scores(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" W64 "}, %64, %65, %66, 1, 1, 0, 0;\n"
                 : D64(d, 0)
                 : "l"(a), "l"(b), "n"(FIRST ? 0 : 1));
}

#define W36    W32 ", %32, %33, %34, %35"
#define W40    W36 ", %36, %37, %38, %39"
#define W44    W40 ", %40, %41, %42, %43"
#define W48    W44 ", %44, %45, %46, %47"
#define D32(d) D16(d, 0), D16(d, 16)
#define D36(d) D32(d), D4(d, 32)
#define D40(d) D36(d), D4(d, 36)
#define D44(d) D40(d), D4(d, 40)
#define D48(d) D44(d), D4(d, 44)
// O += P V of 16 keys, N columns.
#define ENCODE_SUMS(n, half, list, regs, a0, a1, a2, a3, desc)                                               \
    DEV void encode_sums(float(&d)[half], const uint32_t(&p)[4], uint64_t v) {                               \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" list "}, {%" #a0 ", %" #a1   \
                     ", %" #a2 ", %" #a3 "}, %" #desc ", 1, 1, 1, 1;\n"                                      \
                     : regs                                                                                  \
                     : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));                                  \
    }
ENCODE_SUMS(64, 32, W32, D32(d), 32, 33, 34, 35, 36)
ENCODE_SUMS(72, 36, W36, D36(d), 36, 37, 38, 39, 40)
ENCODE_SUMS(80, 40, W40, D40(d), 40, 41, 42, 43, 44)
ENCODE_SUMS(88, 44, W44, D44(d), 44, 45, 46, 47, 48)
ENCODE_SUMS(96, 48, W48, D48(d), 48, 49, 50, 51, 52)
ENCODE_SUMS(128, 64, W64, D64(d, 0), 64, 65, 66, 67, 68)

// Where tiles lie, and the barriers that say that one is there, or read.
template <int DK, int DV> struct encode_ring {
    using size = encode_size<DK, DV>;
    uint32_t at, bars; // bars: queries; full K, full V, empty K, empty V of each stage
    MEM uint32_t k(int stage) const { return at + stage * (size::k + size::v); }
    MEM uint32_t v(int stage) const { return k(stage) + size::k; }
    MEM uint32_t query(int group) const {
        return at + size::stages * (size::k + size::v) + group * size::query;
    }
    MEM uint32_t bar(int what, int stage) const { return bars + (1 + what * size::stages + stage) * 8; }
    MEM void next(int &stage, uint32_t &phase) const {
        if (++stage < size::stages) return;
        stage = 0;
        phase ^= 1;
    }
};
enum { FULL_K, FULL_V, EMPTY_K, EMPTY_V };

// One thread: the queries of n groups, then every tile.
template <int DK, int DV>
DEV void encode_copy(const encode_job &j, const encode_ring<DK, DV> &r, int row0, int n, int n_tile,
                     int head) {
    using size = encode_size<DK, DV>;
    barrier_expect(r.bars, n * size::query);
    for (int g = 0; g < n; g++) {
        const int row = row0 + 64 * g;
        const uint8_t *from =
            j.q + ((size_t)head * j.tiles + row / ENCODE_ROWS) * size::k + row % ENCODE_ROWS * 16;
        for (int c = 0; c < DK / 8; c++)
            bulk_copy(r.query(g) + c * 1024, from + c * (ENCODE_ROWS * 16), 1024, r.bars);
    }
    const size_t kv_head = head / (j.n_head / j.n_kv_head);
    const uint8_t *k = j.k + kv_head * j.tiles * size::k, *v = j.v + kv_head * j.tiles * size::k;
    int stage = 0;
    uint32_t phase = 0;
    for (int t = 0; t < n_tile; t++, k += size::k, v += size::k) {
        barrier_wait(r.bar(EMPTY_K, stage), phase ^ 1);
        barrier_expect(r.bar(FULL_K, stage), size::k);
        bulk_copy(r.k(stage), k, size::k, r.bar(FULL_K, stage));
        barrier_wait(r.bar(EMPTY_V, stage), phase ^ 1);
        barrier_expect(r.bar(FULL_V, stage), size::v);
        bulk_copy(r.v(stage), v, size::v, r.bar(FULL_V, stage)); // chunks of the first DV columns
        r.next(stage, phase);
    }
}
template <int DK> DEV void encode_multiply_scores(float (&s)[64], uint32_t query, uint32_t k) {
    encode_scores<true>(s, encode_descriptor(query, 1024), encode_descriptor(k, ENCODE_ROWS * 16));
#pragma unroll
    for (int i = 1; i < DK / 16; i++)
        encode_scores<false>(s, encode_descriptor(query + i * 2048, 1024),
                             encode_descriptor(k + i * (ENCODE_ROWS * 32), ENCODE_ROWS * 16));
}
// A warpgroup's 64 rows past all keys.
template <int DK, int DV>
DEV void encode_multiply(const encode_ring<DK, DV> &r, int group, int n_row, encode_rows &st,
                         float (&o)[DV / 2]) {
    const bool leader = (threadIdx.x & 127) == 0;
    const int n_tile = (n_row + ENCODE_ROWS - 1) / ENCODE_ROWS;
    int stage = 0;
    uint32_t phase = 0;
    float s[64];
    uint32_t p[8][4];
    barrier_wait(r.bars, 0);
    barrier_wait(r.bar(FULL_K, 0), 0);
    wgmma_pin(s);
    wgmma_fence();
    encode_multiply_scores<DK>(s, r.query(group), r.k(0));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s);
    for (int t = 0; t < n_tile; t++) {
        const int now = stage;
        const uint32_t now_phase = phase;
        if (leader) barrier_arrive(r.bar(EMPTY_K, now));
        encode_softmax<ENCODE_ROWS, DV>(st, n_row - t * ENCODE_ROWS, s, p, o);
        r.next(stage, phase);
        barrier_wait(r.bar(FULL_V, now), now_phase);
        if (t + 1 < n_tile) barrier_wait(r.bar(FULL_K, stage), phase);
        wgmma_pin(o);
        wgmma_pin(s);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < ENCODE_ROWS / 16; i++)
            encode_sums(o, p[i], encode_descriptor_n(r.v(now) + i * 256, ENCODE_ROWS * 16));
        if (t + 1 < n_tile) encode_multiply_scores<DK>(s, r.query(group), r.k(stage));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(o);
        wgmma_pin(s);
        if (leader) barrier_arrive(r.bar(EMPTY_V, now));
    }
}
#endif

template <int DK, int DV>
__global__ void __launch_bounds__(encode_size<DK, DV>::threads, 1)
    encode_wgmma_kernel(const __grid_constant__ encode_job j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using size = encode_size<DK, DV>;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[1 + 4 * size::stages];
    const encode_ring<DK, DV> ring = {(smem_address(smem_raw) + 127) & ~127u, smem_address(bars)};
    const int n_row = *j.n_row, row0 = blockIdx.x * size::rows, head = blockIdx.y, group = threadIdx.x >> 7;
    if (row0 >= n_row) return;
    const int n = min((int)size::groups, (n_row - row0 + 63) / 64); // warpgroups that have rows
    if (threadIdx.x <= 4 * size::stages)
        barrier_init(ring.bars + threadIdx.x * 8, threadIdx.x <= 2 * size::stages ? 1 : n);
    barrier_fence();
    __syncthreads();
    if (group == 0) {
        if constexpr (size::groups == 3)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        else
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            encode_copy<DK, DV>(j, ring, row0, n, (n_row + ENCODE_ROWS - 1) / ENCODE_ROWS, head);
        return;
    }
    if constexpr (size::groups == 3)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (group > n) return;
    float o[DV / 2];
    encode_rows st = {{-INFINITY, -INFINITY}, {0.f, 0.f}};
#pragma unroll
    for (int i = 0; i < DV / 2; i++) o[i] = 0.f;
    encode_multiply<DK, DV>(ring, group - 1, n_row, st, o);
    const int row = row0 + (group - 1) * 64 + ((threadIdx.x >> 5) & 3) * 16 + ((threadIdx.x & 31) >> 2);
    encode_finish<DV>(j, st, row, n_row, head, o);
#endif
}

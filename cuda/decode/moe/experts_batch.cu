// Kernels around experts_batch.cuh, and the host side of it.
#include "cuda/decode/moe/experts_batch.h"
#include "cuda/common/launch.h"
#include "cuda/common/route.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/formats/unit_halves.cuh"

// ---- pairs in the order of their experts: one block
// Number e of the experts in their order is e - 1 where one that all rows take is the first of them.
enum { ORDER_THREADS = 256, ORDER_EACH = ROUTE_EXPERTS_MAX / ORDER_THREADS + 1 };
struct order_scratch {
    int many[ROUTE_EXPERTS_MAX + 1], place[ROUTE_EXPERTS_MAX + 1];
    unsigned part[32];
};
// The sum of v of the threads before this one; all: of all.
DEV unsigned sum_before(unsigned v, unsigned *part, unsigned &all) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned s = v;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const unsigned w = __shfl_up_sync(~0u, s, o);
        if (lane >= o) s += w;
    }
    if (lane == 31) part[warp] = s;
    __syncthreads();
    const unsigned mine = lane < ORDER_THREADS / 32 ? part[lane] : 0;
    const unsigned before = __reduce_add_sync(~0u, lane < warp ? mine : 0);
    all = __reduce_add_sync(~0u, mine);
    return before + s - v;
}
DEV void order_pairs(const batch_order_job &j, order_scratch &m, int n_row) {
    const int tid = threadIdx.x, shared = j.shared, n_pair = j.n_used + shared, n = n_row * n_pair,
              n_expert = j.n_expert + shared;
    auto expert = [&](int p) {
        const int row = p / n_pair, c = p - row * n_pair - shared;
        return c < 0 ? 0 : route_expert(__ldcg(j.choice.p + row * j.choice.stride + c), j.n_expert) + shared;
    };
    for (int e = tid; e < n_expert; e += ORDER_THREADS) m.many[e] = 0;
    __syncthreads();
    const int own = tid < n ? expert(tid) : 0; // of the thread's first pair
    for (int p = tid; p < n; p += ORDER_THREADS) atomicAdd(&m.many[p == tid ? own : expert(p)], 1);
    __syncthreads();
    unsigned counted = 0, all; // pairs, and items in the high half
    for (int i = 0; i < ORDER_EACH; i++) {
        const int e = tid * ORDER_EACH + i, many = e < n_expert ? m.many[e] : 0;
        counted += (unsigned)many | (unsigned)((many + BATCH_PAIRS - 1) / BATCH_PAIRS) << 16;
    }
    unsigned before = sum_before(counted, m.part, all);
    for (int i = 0; i < ORDER_EACH; i++) {
        const int e = tid * ORDER_EACH + i, many = e < n_expert ? m.many[e] : 0, first = before & 0xffff;
        if (many) m.place[e] = first;
        for (int k = 0; k < many; k += BATCH_PAIRS, before += 1u << 16)
            j.order.item[1 + (before >> 16)] =
                make_int4(e - shared, first + k, min(BATCH_PAIRS, many - k), 0);
        before += many;
    }
    if (tid == 0) j.order.item[0] = make_int4((int)(all >> 16), 0, 0, 0);
    __syncthreads();
    for (int p = tid; p < n; p += ORDER_THREADS)
        j.order.pair[atomicAdd(&m.place[p == tid ? own : expert(p)], 1)] = p;
}
// ---- router: a block 8 rows and every chunks-th four experts; two experts and a quarter of the columns a warp. The block of a
// group of rows that comes last routes them, the last of those makes the order.
enum { ROUTER_ROWS = 8, ROUTER_AHEAD = 4 };
union router_scratch {
    route_scratch route[ROUTER_ROWS];
    order_scratch order;
};
DEV float dot4(float4 a, float4 b, float s) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}
// Four columns of a row as halves; col: the first.
DEV void router_give(const batch_router_job &j, int row, int col, const float4 &v) {
    // they lie together, the second and the third change places
    *(uint2 *)(j.xo + row * j.xo_row + ((col & ~31) + row_order(true, col)) * 2) = make_uint2(
        pack_half2(skinny_range(v.x), skinny_range(v.z)), pack_half2(skinny_range(v.y), skinny_range(v.w)));
}
// Row `row` of the step, which lies in `to`: normed there, and by one block as halves to memory. norm: the weights, in shared memory.
DEV void router_norm(const batch_router_job &j, float4 *to, const float4 *norm, int row, int n_row,
                     bool gives) {
    const int lane = threadIdx.x & 31, n = j.k_router / 4;
    float ss = 0, rs = 1;
    if (j.norm) {
#pragma unroll 8
        for (int i = lane; i < n; i += 32) ss = dot4(to[i], to[i], ss);
        rs = rsqrtf(fmaf(warp_sum(ss), j.inv_k, j.eps));
    }
#pragma unroll 4
    for (int i = lane; i < n; i += 32) {
        float4 v = to[i];
        if (j.norm) {
            const float4 w = norm[i];
            v = make_float4(v.x * rs * w.x, v.y * rs * w.y, v.z * rs * w.z, v.w * rs * w.w);
            to[i] = v;
        }
        if (gives && row < n_row && !j.other.p) router_give(j, row, i * 4, v);
    }
    if (!gives || row >= n_row || !j.other.p) return;
    const float4 *x = (const float4 *)(j.other.p + (size_t)row * j.other.stride);
    for (int i = lane; i < j.other.width / 4; i += 32) router_give(j, row, i * 4, __ldcg(x + i));
}
// Rows of the group to shared memory; of the first warp.
DEV void router_rows(const batch_router_job &j, float *xs, uint32_t bar, int row0, int n_row) {
    const int lane = threadIdx.x & 31;
    if (lane == 0) barrier_expect(bar, ROUTER_ROWS * j.k_router * 4);
    __syncwarp();
    if (lane < ROUTER_ROWS)
        bulk_copy(smem_address(xs + lane * j.k_router),
                  j.x.p + (size_t)min(row0 + lane, n_row - 1) * j.x.stride, j.k_router * 4, bar);
}
// Rows of the router, and the one that weighs what all rows take.
DEV int router_all(const batch_router_job &j) { return j.o.n_expert + (j.weigh.w != NULL); }
// Columns k .. k + 3 of one of them, of floats or halves.
DEV float4 router_load(const batch_router_job &j, int e, int k) {
    const bool weighs = e == j.o.n_expert;
    const enum layout l = weighs ? j.weigh.layout : j.router_layout;
    const uint8_t *w = weighs ? j.weigh.w : j.router;
    const int row = weighs ? j.weigh.row : e & 15;
    const size_t unit = (size_t)(weighs ? 0 : e >> 4) * j.router_u + (k >> 8);
    if (l == LAYOUT_F32) return __ldg((const float4 *)(w + unit * 16384 + layout_f32_byte(row, k & 255)));
    const uint2 h = __ldg((const uint2 *)(w + unit * 8192 + (2 * (k >> 5 & 7) + (row >> 3)) * 512 +
                                          ((row & 7) * 4 + (k >> 3 & 3)) * 16 + (k & 4) * 2));
    const float2 a = l == LAYOUT_F16 ? half2_bits(h.x) : bf16x2_bits(h.x),
                 b = l == LAYOUT_F16 ? half2_bits(h.y) : bf16x2_bits(h.y);
    return make_float4(a.x, a.y, b.x, b.y);
}
// Columns of two experts that a warp has ahead; e: the first of them
DEV void router_weights(float4 (&w)[2][ROUTER_AHEAD], const batch_router_job &j, int e, int i0) {
    const int lane = threadIdx.x & 31, part = threadIdx.x >> 5 & 3;
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++) {
        const int k = (((i0 + i) * 4 + part) * 32 + lane) * 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
            w[h][i] =
                k < j.k_router ? router_load(j, min(e + h, router_all(j) - 1), k) : make_float4(0, 0, 0, 0);
    }
}
// Sums over the warp of 16 numbers, all in the same order: number lane / 2 in v[0].
template <int N> DEV void sum_half(float (&v)[16]) {
    const bool high = threadIdx.x & 2 * N;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float low = v[i], up = v[i + N];
        v[i] = (high ? up : low) + __shfl_xor_sync(~0u, high ? low : up, 2 * N);
    }
}
DEV void sum_sixteen(float (&v)[16]) {
    sum_half<8>(v);
    sum_half<4>(v);
    sum_half<2>(v);
    sum_half<1>(v);
    v[0] += __shfl_xor_sync(~0u, v[0], 1);
}
// Whether this block is the last of n to come here; *count is 0 again then.
DEV bool router_last(int *count, int n, int *flag) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const bool last = atomicAdd(count, 1) == n - 1;
        if (last) *count = 0;
        __threadfence();
        *flag = last;
    }
    __syncthreads();
    return *flag;
}
// Products of the group's rows with experts e and e + 1 of the warp's part of the columns; w: the first columns where they are ahead.
DEV void router_product(float (&acc)[16], const batch_router_job &j, const float *xs,
                        float4 (&w)[2][ROUTER_AHEAD], int e, bool ahead) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int i0 = 0; i0 * 512 < j.k_router; i0 += ROUTER_AHEAD) {
        if (i0 || !ahead) router_weights(w, j, e, i0);
#pragma unroll
        for (int i = 0; i < ROUTER_AHEAD; i++) {
            const int k = (((i0 + i) * 4 + (warp & 3)) * 32 + lane) * 4;
            if (k >= j.k_router) continue;
#pragma unroll
            for (int r = 0; r < ROUTER_ROWS; r++) {
                const float4 x = *(const float4 *)(xs + r * j.k_router + k);
                acc[r] = dot4(w[0][i], x, acc[r]);
                acc[8 + r] = dot4(w[1][i], x, acc[8 + r]);
            }
        }
    }
    sum_sixteen(acc);
}
// The choice of a row by a warp, from logits in memory.
DEV void router_choose(const batch_router_job &j, route_scratch &s, int row) {
    const int lane = threadIdx.x & 31;
    const float *logits = j.logits.p + row * j.logits.stride;
    float *out = j.o.choice.p + row * j.o.choice.stride;
    auto logit = [&](int i) { return __ldcg(logits + i); };
    route_row(j.route, logit, s, lane);
    for (int i = lane; i < j.o.n_used; i += 32) {
        out[i] = (float)s.id[i];
        out[j.o.n_used + i] = s.w[i];
    }
}
__global__ void __launch_bounds__(256, 2) batch_router_kernel(const __grid_constant__ batch_router_job j) {
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ float part[4][2][16];
    __shared__ int flag;
    __shared__ uint64_t bar;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, pair = warp >> 2,
              row0 = blockIdx.y * ROUTER_ROWS, e0 = blockIdx.x * 4;
    float *xs = (float *)smem, *norm = xs + ROUTER_ROWS * j.k_router;
    float4 w[2][ROUTER_AHEAD];
    pdl_trigger();
    router_weights(w, j, e0 + pair * 2, 0);
    if (j.norm)
        for (int i = threadIdx.x; i < j.k_router / 4; i += 256)
            ((float4 *)norm)[i] = __ldg((const float4 *)j.norm + i);
    if (threadIdx.x == 0) barrier_init(smem_address(&bar), 1);
    barrier_fence();
    __syncthreads();
    pdl_wait();
    const int n_row = *j.o.n_row;
    if (n_row == 0 && blockIdx.x + blockIdx.y + threadIdx.x == 0) j.o.order.item[0] = make_int4(0, 0, 0, 0);
    if (j.few && blockIdx.x == 0 && threadIdx.x < BATCH_FEW_PAIRS) j.o.order.item[1 + threadIdx.x].w = 0;
    if (row0 >= n_row) return;
    if (warp == 0) router_rows(j, xs, smem_address(&bar), row0, n_row);
    barrier_wait(smem_address(&bar), 0);
    router_norm(j, (float4 *)(xs + warp * j.k_router), (const float4 *)norm, row0 + warp, n_row,
                blockIdx.x == 0);
    __syncthreads();
    for (int e = e0; e < router_all(j); e += gridDim.x * 4) {
        float acc[16] = {};
        router_product(acc, j, xs, w, e + pair * 2, e == e0);
        if (!(lane & 1)) part[warp & 3][pair][lane >> 1] = acc[0];
        __syncthreads();
        if (threadIdx.x < 32) {
            const int r = lane & 7, of = lane >> 3, at = e + of;
            float v = 0;
#pragma unroll
            for (int p = 0; p < 4; p++) v += part[p][of >> 1][(of & 1) * 8 + r];
            if (at < j.o.n_expert && row0 + r < n_row)
                j.logits.p[(row0 + r) * j.logits.stride + at] =
                    fmaf(v, j.router_factor, j.router_bias ? j.router_bias[at] : 0.f);
            else if (at == j.o.n_expert && j.weigh.w && row0 + r < n_row)
                j.weighed.p[(row0 + r) * j.weighed.stride] =
                    fmaf(v, j.weigh.factor, j.weigh.bias ? *j.weigh.bias : 0.f);
        }
        __syncthreads();
    }
    if (j.few || !router_last(j.arrived + 1 + blockIdx.y, gridDim.x, &flag)) return;
    router_scratch &m = *(router_scratch *)smem;
    if (row0 + warp < n_row) router_choose(j, m.route[warp], row0 + warp);
    const int groups = (n_row + ROUTER_ROWS - 1) / ROUTER_ROWS;
    __syncthreads();
    if (groups > 1 && !router_last(j.arrived, groups, &flag)) return;
    order_pairs(j.o, m.order, n_row);
}
static size_t router_bytes(int k) {
    const size_t rows = (size_t)(ROUTER_ROWS + 1) * k * 4;
    return rows > sizeof(router_scratch) ? rows : sizeof(router_scratch);
}
bool batch_router_fits(int k, size_t shared) { return k % 32 == 0 && router_bytes(k) + 1024 <= shared; }
cudaError_t batch_router_launch(batch_router_job j, int n, int sm_count, cudaStream_t s) {
    const int groups = (n + ROUTER_ROWS - 1) / ROUTER_ROWS,
              most = (j.o.n_expert + (j.weigh.w != NULL) + 3) / 4, chunks = sm_count / groups;
    return launch_overlapped(batch_router_kernel,
                             dim3(chunks < 1      ? 1
                                  : chunks < most ? chunks
                                                  : most,
                                  groups),
                             dim3(256), router_bytes(j.k_router), true, s, j);
}

// ---- mix, the residual and its norm for the next matmul: a block 256 columns of a row
__global__ void __launch_bounds__(256) batch_mix_kernel(const __grid_constant__ batch_mix_job j) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    const bool own = col < j.out.width;
    pdl_trigger();
    const float norm = j.next.norm && own ? __ldg(j.next.norm + col) : 0.f;
    pdl_wait();
    if (row >= *j.n_row || (col & ~31) >= j.out.width) return;
    float y = 0, add = 0;
    if (own) {
        const float *x = j.x.p + row * j.x.stride + col, *w = j.w.p + row * j.w.stride;
        add = j.add.p ? __ldcg(j.add.p + row * j.add.stride + col) : 0.f;
        if (j.shared.p)
            y = (j.gate.p ? router_sigmoid(__ldcg(j.gate.p + row * j.gate.stride)) : 1.f) *
                __ldcg(j.shared.p + row * j.shared.stride + col);
#pragma unroll 8
        for (int c = 0; c < j.n_used; c++)
            y = fmaf(j.w.p ? __ldcg(w + c) : 1.f, __ldcg(x + (size_t)c * j.out.width), y);
        y += add;
        j.out.p[row * j.out.stride + col] = y;
    }
    if (!j.next.norm) return;
    const float ss = sum16(__fmul_rn(y, y));
    if ((threadIdx.x & 15) == 0) j.next.square[row * j.next.square_row + (col >> 4)] = ss;
    put_column<true>(j.next, row, row, col, __fmul_rn(__fmul_rn(y, norm), __ldcg(j.next.scale + row)));
}
cudaError_t batch_mix_launch(const batch_mix_job &j, int n, cudaStream_t s) {
    return launch_overlapped(batch_mix_kernel, dim3((j.out.width + 255) / 256, n), dim3(256), 0, true, s, j);
}

// ---- host side
#define EACH_CODES(id)  extern const batch_kernel batch_##id;
#define EACH_EIGHTS(id) EACH_CODES(id)
#define EACH_HALVES(id)
#define EACH_FLOATS(id)
#define LAYOUT(id, name, bytes, kind) EACH_##kind(id)
#include "cuda/plan/layouts.def"
#undef EACH_CODES
#define EACH_CODES(id) &batch_##id,
static const batch_kernel *const table[] = {
#define LAYOUT(id, name, bytes, kind) EACH_##kind(id)
#include "cuda/plan/layouts.def"
};
static const batch_kernel *find(enum layout l) { // NULL: none for the layout
    for (const batch_kernel *k : table)
        if (k->l == l) return k;
    return NULL;
}
static batch_entry both(enum layout gated, enum layout down) { // NULL: each part by itself
    const batch_kernel *k = find(gated);
    return gated == down ? k->both[0] : k->other == down ? k->both[1] : NULL;
}
cudaError_t batch_prepare(void) {
    cudaError_t e = all_shared_memory((const void *)batch_router_kernel);
    for (const batch_kernel *k : table)
        for (batch_entry run : {k->gated, k->plain, k->both[0], k->both[1]})
            if (run && e == cudaSuccess) e = all_shared_memory((const void *)run);
    return e;
}
// Warps of a block, and the ring that has the room of so many bytes; its bytes.
static int shape(batch_job *j, enum layout l, int room) {
    const int bytes = j->u * layout_unit_bytes(l);
    j->each = j->u <= BATCH_WARPS ? 1 : 2;
    j->classes = (j->u + j->each - 1) / j->each;
    j->teams = j->classes > BATCH_WARPS ? 0 : BATCH_WARPS / j->classes;
    j->slots = room / bytes < BATCH_RING ? room / bytes : BATCH_RING;
    return j->slots * bytes;
}
static bool fits(const batch_job *j) { return j->teams > 0 && j->slots >= 2 * j->teams; }
static unsigned by(int d) { return d > 1 ? (unsigned)((1ull << 32) / (unsigned)d) + 1 : 0; }
bool batch_plan(struct batch_run *r, enum layout gated, enum layout down, int sm_count, size_t shared) {
    const int room = (int)shared - BATCH_RING_AT, scratch = BATCH_FEW * (int)sizeof(route_scratch);
    if (!find(gated) || !find(down) || room <= 0) return false;
    const int a = shape(&r->gated, gated, room), b = shape(&r->down, down, room);
    if (!fits(&r->gated) || !fits(&r->down)) return false;
    r->first = 2 * r->gated.teams;
    const int tile = a / r->gated.slots;
    r->per = r->gated.u * layout_unit_bytes(gated) / (r->down.u * layout_unit_bytes(down));
    const int slots = r->gated.slots * r->per < BATCH_RING ? r->gated.slots * r->per : BATCH_RING;
    r->both = both(gated, down) && slots >= 2 * r->down.teams;
    r->alone = r->down.slots;
    if (r->both) r->down.slots = slots;
    r->few_most = r->both && r->first * tile + scratch <= room ? BATCH_FEW : 0;
    r->ring_at = BATCH_RING_AT;
    r->bytes = BATCH_RING_AT + (a > b ? a : b);
    // at the ring's end, behind the row tiles that are asked for first
    const int least = BATCH_RING_AT + r->first * tile + scratch;
    if (r->few_most && r->bytes < least) r->bytes = least;
    r->by_blocks = by(sm_count);
    r->by_pair = by(r->gated.n_pair);
    r->by_per = by(r->per);
    r->by_slots = by(r->gated.slots);
    r->gated.by_tiles = by(r->gated.tiles);
    r->down.by_tiles = by(r->down.tiles);
    return true;
}
cudaError_t batch_launch(const struct batch_run *r, enum layout gated, enum layout down, int sm_count,
                         cudaStream_t s) {
    const dim3 grid(sm_count), block(BATCH_WARPS * 32);
    if (r->both) return launch_overlapped(both(gated, down), grid, block, (size_t)r->bytes, true, s, *r);
    const cudaError_t e = launch_overlapped(find(gated)->gated, grid, block, (size_t)r->bytes, true, s, *r);
    batch_run later = *r;
    later.first = 2 * r->down.teams;
    later.down.slots = r->alone;
    return e != cudaSuccess
               ? e
               : launch_overlapped(find(down)->plain, grid, block, (size_t)r->bytes, true, s, later);
}

// The router of one row, and the launches of the kernels of a mixture of experts.
#include "cuda/common/launch.h"
#include "cuda/decode/experts_one.cuh"

// ---- the router: a block an expert, 8 columns a thread at a time
enum { ROUTER_THREADS = 256, ROUTER_STEP = ROUTER_THREADS * 8, ROUTER_AHEAD = 2 };
struct eight {
    float v[8];
};
// Columns k .. k + 7 of a row of a matrix of floats or halves; zeros from end on.
DEV eight router_weights(const experts_one_job &j, int e, int k) {
    const int row = e & 15, g = k >> 5 & 7;
    const uint8_t *u = j.router + ((size_t)(e >> 4) * j.router_u + (k >> 8)) *
                                      (j.router_layout == LAYOUT_F32 ? 16384 : 8192);
    eight r;
    if (j.router_layout == LAYOUT_F32) {
        const float4 a = *(const float4 *)(u + layout_f32_byte(row, k & 255)),
                     b = *(const float4 *)(u + layout_f32_byte(row, (k & 255) + 4));
        r.v[0] = a.x, r.v[1] = a.y, r.v[2] = a.z, r.v[3] = a.w;
        r.v[4] = b.x, r.v[5] = b.y, r.v[6] = b.z, r.v[7] = b.w;
        return r;
    }
    const uint4 h = *(const uint4 *)(u + (2 * g + (row >> 3)) * 512 + ((row & 7) * 4 + (k >> 3 & 3)) * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t w = word_of(h, i >> 1) >> (16 * (i & 1)) & 0xffff;
        r.v[i] = j.router_layout == LAYOUT_F16 ? half_bits(w) : bf16_bits(w);
    }
    return r;
}
// The same times the norm's weights.
DEV eight router_normed(const experts_one_job &j, int e, int k) {
    eight r = router_weights(j, e, k);
    if (!j.norm) return r;
#pragma unroll
    for (int i = 0; i < 8; i++) r.v[i] *= j.norm[k + i];
    return r;
}
DEV void router_add(const experts_one_job &j, const eight &w, int k, float &dot, float &ss) {
    const float4 a = __ldcg((const float4 *)(j.x_router + k)),
                 b = __ldcg((const float4 *)(j.x_router + k + 4));
    const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        ss = fmaf(x[i], x[i], ss);
        dot = fmaf(w.v[i], x[i], dot);
    }
}
// The codes of x for gate and up, 32 columns a block in turns; of one warp.
DEV void router_codes(const experts_one_job &j, uint32_t tag, int lane) {
#pragma unroll 1
    for (int g = blockIdx.x; g < j.gate.u * 8; g += gridDim.x) {
        const int col = g * 32 + lane;
        const float n = j.norm && col < j.k ? j.norm[col] : 1.f;
        give_act_int8<32>(j.codes, g * 32, col < j.k ? __fmul_rn(__ldcg(j.x + col), n) : 0.f, tag);
    }
}
// A logit's block.
__global__ void __maxnreg__(40) experts_router_kernel(const __grid_constant__ experts_one_job j) {
    __shared__ float2 part[ROUTER_THREADS / 32];
    const int e = blockIdx.x, k0 = threadIdx.x * 8, w = threadIdx.x >> 5, n = j.route.n_expert;
    eight ahead[ROUTER_AHEAD];
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        if (k0 + i * ROUTER_STEP < j.k_router) ahead[i] = router_normed(j, e, k0 + i * ROUTER_STEP);
    pdl_trigger();
    pdl_wait();
    float dot = 0, ss = 0;
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        if (k0 + i * ROUTER_STEP < j.k_router) router_add(j, ahead[i], k0 + i * ROUTER_STEP, dot, ss);
    for (int k = k0 + ROUTER_AHEAD * ROUTER_STEP; k < j.k_router; k += ROUTER_STEP)
        router_add(j, router_normed(j, e, k), k, dot, ss);
    dot = warp_sum(dot);
    ss = warp_sum(ss);
    if ((threadIdx.x & 31) == 0) part[w] = make_float2(dot, ss);
    const uint32_t tag = handoff_tag(j.seq, j.tag);
    __syncthreads();
    if (w == 1) router_codes(j, tag, threadIdx.x & 31);
    if (threadIdx.x >= j.copies) return;
    dot = ss = 0;
#pragma unroll
    for (int i = 0; i < ROUTER_THREADS / 32; i++) dot += part[i].x, ss += part[i].y;
    if (j.norm) dot *= 1.f / sqrtf(ss / (float)j.k_router + j.eps);
    dot = fmaf(dot, j.router_factor, j.router_bias ? j.router_bias[e] : 0.f);
    uint2 *to = j.logits + threadIdx.x * (n + 1);
    tagged_store(to + e, dot, tag);
    if (e == 0) tagged_store(to + n, ss, tag);
}

// ---- the table
#define EACH_CODES(id) extern const experts_kernels experts_##id;
#define EACH_HALVES(id)
#define EACH_FLOATS(id)
#define LAYOUT(id, name, bytes, kind) EACH_##kind(id)
#include "cuda/plan/layouts.def"
#undef EACH_CODES
#define EACH_CODES(id) &experts_##id,
static const experts_kernels *const table[] = {
#define LAYOUT(id, name, bytes, kind) EACH_##kind(id)
#include "cuda/plan/layouts.def"
};
static const experts_kernels *kernels_of(enum layout l) {
    for (const experts_kernels *k : table)
        if (k->l == l) return k;
    return NULL;
}
cudaError_t experts_one_prepare(void) {
    cudaError_t e = all_shared_memory((const void *)experts_router_kernel);
    for (const experts_kernels *k : table) {
        if (e == cudaSuccess) e = all_shared_memory((const void *)k->gated);
        if (e == cudaSuccess) e = all_shared_memory((const void *)k->down);
    }
    return e;
}

// ---- shapes of blocks
// Both kernels of a layer and a small one beside them are to fit into a multiprocessor together.
enum { MOST_WARPS = 8, GATED_SLOTS = 4, GATED_BYTES = 120 << 10, DOWN_SLOTS = 14, DOWN_BYTES = 96 << 10 };
static int over(int n, int by) { return (n + by - 1) / by; }

bool experts_one_plan(experts_one_job *j, int sm_count, size_t most) {
    const int n_used = j->route.n_used, steps = n_used * experts_steps(j->n_ff);
    if (!kernels_of(j->gate.layout) || !kernels_of(j->down.layout)) return false;
    j->gated_blocks = steps < sm_count ? steps : sm_count;
    j->gated_warps = 1;
    for (int w = 2; w <= MOST_WARPS; w++)
        if (over(j->gate.u, w) < over(j->gate.u, j->gated_warps)) j->gated_warps = w;
    const int gated = over(steps, j->gated_blocks) * over(j->gate.u, j->gated_warps);
    j->gated_slots = gated < GATED_SLOTS ? gated : GATED_SLOTS;
    const int unit = layout_unit_bytes(j->gate.layout), unit_down = layout_unit_bytes(j->down.layout);
    const int gated_most = most < GATED_BYTES ? (int)most : GATED_BYTES,
              down_most = most < DOWN_BYTES ? (int)most : DOWN_BYTES;
    while (j->gated_slots > 1 && experts_gated_smem(*j, unit).bytes > gated_most) j->gated_slots--;

    j->parts = n_used < MOST_WARPS ? MOST_WARPS / n_used : 1;
    if (j->parts > j->down.u) j->parts = j->down.u;
    const int turns = over(n_used * j->parts, MOST_WARPS), down = turns * over(j->down.u, j->parts);
    j->down_warps = over(n_used * j->parts, turns);
    j->down_slots = down < DOWN_SLOTS ? down : DOWN_SLOTS;
    while (j->down_slots > 1 && experts_down_smem(*j, unit_down).bytes > down_most) j->down_slots--;
    const int warps = j->gated_warps < j->down_warps ? j->gated_warps : j->down_warps;
    j->together = router_by_logit(&j->route) && j->route.n_expert <= 32 * warps;
    return (size_t)experts_gated_smem(*j, unit).bytes <= most &&
           (size_t)experts_down_smem(*j, unit_down).bytes <= most;
}

// ---- launches
static cudaError_t launch_down(const experts_one_job &j, void (*k)(const experts_one_job), cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2];
    c.gridDim = (unsigned)(j.d + 31) / 32 * 2;
    c.blockDim = (unsigned)j.down_warps * 32;
    c.dynamicSmemBytes = (size_t)experts_down_smem(j, layout_unit_bytes(j.down.layout)).bytes;
    c.stream = s;
    c.attrs = at;
    c.numAttrs = 2;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    at[1].id = cudaLaunchAttributeClusterDimension; // 32 columns are a group of codes
    at[1].val.clusterDim.x = 2;
    at[1].val.clusterDim.y = at[1].val.clusterDim.z = 1;
    return cudaLaunchKernelEx(&c, k, j);
}
cudaError_t experts_one_launch(const experts_one_job &j, bool overlap, cudaStream_t s) {
    const int bytes = experts_gated_smem(j, layout_unit_bytes(j.gate.layout)).bytes;
    cudaError_t e =
        launch_overlapped(experts_router_kernel, j.route.n_expert, ROUTER_THREADS, 0, overlap, s, j);
    if (e == cudaSuccess)
        e = launch_overlapped(kernels_of(j.gate.layout)->gated, j.gated_blocks, j.gated_warps * 32,
                              (size_t)bytes, true, s, j);
    return e == cudaSuccess ? launch_down(j, kernels_of(j.down.layout)->down, s) : e;
}

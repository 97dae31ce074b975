// The router of one row, and the launches of the kernels of a mixture of experts.
#include "cuda/common/launch.h"
#include "cuda/decode/moe/experts_one.cuh"

// ---- the router: a block an expert and one for what weighs the shared one, 8 columns a thread at a time
enum { ROUTER_THREADS = 256, ROUTER_STEP = ROUTER_THREADS * 8, ROUTER_AHEAD = 2 };
struct eight {
    float v[8];
};
// A row of a matrix of floats or halves, and what is multiplied by it.
struct logit_row {
    const uint8_t *w; // its row tile
    enum layout layout;
    int row;
    const float *x;
    float factor;
    const float *bias;
};
DEV logit_row row_of(const experts_one_job &j, int e) {
    if (e == j.route.n_expert)
        return logit_row{j.weigh.w, j.weigh.layout, j.weigh.row, j.x, j.weigh.factor, j.weigh.bias};
    const size_t tile = (size_t)j.router_u * (j.router_layout == LAYOUT_F32 ? 16384 : 8192);
    return logit_row{
        j.router + (size_t)(e >> 4) * tile,      j.router_layout, e & 15, j.x_router, j.router_factor,
        j.router_bias ? j.router_bias + e : NULL};
}
// Columns k .. k + 7; zeros from end on.
DEV eight router_weights(const logit_row &w, int k) {
    const int row = w.row, g = k >> 5 & 7;
    const uint8_t *u = w.w + (size_t)(k >> 8) * (w.layout == LAYOUT_F32 ? 16384 : 8192);
    eight r;
    if (w.layout == LAYOUT_F32) {
        const float4 a = *(const float4 *)(u + layout_f32_byte(row, k & 255)),
                     b = *(const float4 *)(u + layout_f32_byte(row, (k & 255) + 4));
        r.v[0] = a.x, r.v[1] = a.y, r.v[2] = a.z, r.v[3] = a.w;
        r.v[4] = b.x, r.v[5] = b.y, r.v[6] = b.z, r.v[7] = b.w;
        return r;
    }
    const uint4 h = *(const uint4 *)(u + (2 * g + (row >> 3)) * 512 + ((row & 7) * 4 + (k >> 3 & 3)) * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t v = word_of(h, i >> 1) >> (16 * (i & 1)) & 0xffff;
        r.v[i] = w.layout == LAYOUT_F16 ? half_bits(v) : bf16_bits(v);
    }
    return r;
}
// The same times the norm's weights.
DEV eight router_normed(const experts_one_job &j, const logit_row &w, int k) {
    eight r = router_weights(w, k);
    if (!j.norm) return r;
#pragma unroll
    for (int i = 0; i < 8; i++) r.v[i] *= j.norm[k + i];
    return r;
}
DEV void router_add(const float *row, const eight &w, int k, float &dot, float &ss) {
    const float4 a = __ldcg((const float4 *)(row + k)), b = __ldcg((const float4 *)(row + k + 4));
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
    const logit_row r = row_of(j, e);
    const int width = e == n ? j.k : j.k_router;
    eight ahead[ROUTER_AHEAD];
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        if (k0 + i * ROUTER_STEP < width) ahead[i] = router_normed(j, r, k0 + i * ROUTER_STEP);
    pdl_trigger();
    pdl_wait();
    float dot = 0, ss = 0;
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        if (k0 + i * ROUTER_STEP < width) router_add(r.x, ahead[i], k0 + i * ROUTER_STEP, dot, ss);
    for (int k = k0 + ROUTER_AHEAD * ROUTER_STEP; k < width; k += ROUTER_STEP)
        router_add(r.x, router_normed(j, r, k), k, dot, ss);
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
    if (j.norm) dot *= 1.f / sqrtf(ss / (float)width + j.eps);
    dot = fmaf(dot, r.factor, r.bias ? *r.bias : 0.f);
    uint2 *to = j.logits + threadIdx.x * (n + 2);
    tagged_store(to + (e == n ? n + 1 : e), dot, tag);
    if (e == 0) tagged_store(to + n, ss, tag);
}

// ---- the table
#define EACH_CODES(id) extern const experts_kernels experts_##id;
#define EACH_EIGHTS(id)
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
// NULL: each part by itself
static experts_kernel kernel_of_both(const experts_one_job *j) {
    const enum layout gate = j->gate.layout, down = j->down.layout;
    const experts_kernels *k = kernels_of(gate);
    const int odd = experts_are_odd(j);
    return gate == down ? k->same[odd] : k->other == down ? k->both[odd] : NULL;
}
cudaError_t experts_one_prepare(void) {
    cudaError_t e = all_shared_memory((const void *)experts_router_kernel);
    for (const experts_kernels *k : table)
        for (experts_kernel run : {k->gated, k->down, k->same[0], k->same[1], k->both[0], k->both[1]})
            if (e == cudaSuccess) e = all_shared_memory((const void *)run);
    return e;
}

// ---- shapes of blocks
enum { EXPERTS_MOST_BYTES = 224 << 10, PIECE_MOST_BYTES = 96 << 10 }; // blocks of the router stand beside
static int over(int n, int by) { return (n + by - 1) / by; }

// Where each piece lies: one behind the other, from the start again where the end is reached.
static bool place_pieces(const experts_one_job *j, experts_shape *s, int room) {
    const int each = s->cut_shared + j->route.n_used * s->cut, first = experts_areas(*j, *s).pieces,
              gate = (j->single ? 1 : 2) * j->gate.u * layout_unit_bytes(j->gate.layout),
              down = s->part * layout_unit_bytes(j->down.layout);
    int size[EXPERTS_PIECES], to = first;
    s->n_piece = s->steps + s->tiles * each;
    if (s->n_piece > EXPERTS_PIECES || s->tiles > EXPERTS_TILES) return false;
    s->late = s->n_piece;
    s->bytes = first;
    for (int i = 0; i < s->n_piece; i++) {
        size[i] = (i < s->steps ? gate : down) / 128 * 128 + 128;
        if (first + size[i] > room) return false;
        if (to + size[i] > room) to = first;
        s->at[i] = to;
        s->after[i] = -1;
        for (int k = 0; k < i; k++)
            if (s->at[k] < to + size[i] && to < s->at[k] + size[k]) s->after[i] = (int8_t)k;
        if (s->after[i] >= 0 && i < s->late) s->late = i;
        to += size[i];
        if (to > s->bytes) s->bytes = to;
    }
    return true;
}
// Steps and row tiles for the blocks, as evenly as bytes go; gated, down: which parts.
static bool make_shape(const experts_one_job *j, experts_shape *s, int sm_count, int room, bool gated,
                       bool down) {
    const int steps = gated ? experts_all_steps(j) : 0, tiles = down ? over(j->d, 32) * 2 : 0,
              most = steps > tiles ? steps : tiles;
    memset(s, 0, sizeof *s);
    s->blocks = over(most < sm_count ? most : sm_count & ~1, 2) * 2;
    s->tiles = over(tiles, s->blocks);
    s->cut = over(j->down.u * layout_unit_bytes(j->down.layout), PIECE_MOST_BYTES);
    s->part = over(j->down.u, s->cut);
    s->cut = over(j->down.u, s->part);
    s->shared_units = experts_shared_units(j);
    s->cut_shared = over(s->shared_units, s->part);
    s->shared_steps = experts_shared_steps(j);
    s->each_steps = experts_steps(j->n_ff);
    if (s->tiles > 1 && tiles % s->blocks && gated) {
        const double step = (j->single ? 1. : 2.) * j->gate.u * layout_unit_bytes(j->gate.layout),
                     tile = (double)experts_all_units(j) * layout_unit_bytes(j->down.layout);
        s->extra = tiles % s->blocks;
        s->lead = (int)(tile / step);
        while (s->lead && s->lead * (s->blocks - s->extra) > steps) s->lead--;
    }
    s->steps = s->lead + over(steps - s->lead * (s->blocks - s->extra), s->blocks);
    return place_pieces(j, s, room);
}
bool experts_one_plan(const experts_one_job *j, int sm_count, size_t most, experts_plan *p) {
    const int room = most < EXPERTS_MOST_BYTES ? (int)most : EXPERTS_MOST_BYTES;
    memset(p, 0, sizeof *p);
    if (!kernels_of(j->gate.layout) || !kernels_of(j->down.layout)) return false;
    const experts_kernel both = kernel_of_both(j);
    if (j->shared && j->route.n_used == ROUTE_USED_MAX) return false;
    if ((j->shared || j->single) && !both) return false;
    if (both) return make_shape(j, &p->both, sm_count, room, true, true);
    return make_shape(j, &p->gated, sm_count, room / 2, true, false) &&
           make_shape(j, &p->down, sm_count, room / 2, false, true);
}

// ---- launches
static cudaError_t launch(const experts_one_job &j, const experts_shape &shape, experts_kernel k,
                          cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2];
    c.gridDim = (unsigned)shape.blocks;
    c.blockDim = EXPERTS_WARPS * 32;
    c.dynamicSmemBytes = (size_t)shape.bytes;
    c.stream = s;
    c.attrs = at;
    c.numAttrs = 2;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    at[1].id = cudaLaunchAttributeClusterDimension; // 32 columns are a group of codes
    at[1].val.clusterDim.x = 2;
    at[1].val.clusterDim.y = at[1].val.clusterDim.z = 1;
    return cudaLaunchKernelEx(&c, k, j, shape);
}
cudaError_t experts_one_launch(const experts_one_job &j, const experts_plan &p, bool overlap,
                               cudaStream_t s) {
    const experts_kernels *gate = kernels_of(j.gate.layout), *down = kernels_of(j.down.layout);
    cudaError_t e = launch_overlapped(experts_router_kernel, j.route.n_expert + (j.weigh.w != NULL),
                                      ROUTER_THREADS, 0, overlap, s, j);
    if (e == cudaSuccess && p.both.blocks) e = launch(j, p.both, kernel_of_both(&j), s);
    if (e == cudaSuccess && p.gated.blocks) e = launch(j, p.gated, gate->gated, s);
    return e == cudaSuccess && p.down.blocks ? launch(j, p.down, down->down, s) : e;
}

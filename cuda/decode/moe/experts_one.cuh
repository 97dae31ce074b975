// Experts of one row on int8 products (gemv_int8.cuh). A block takes steps of 16 columns of a choice, all of its warps a step together: of
// gate and up, or of their two row tiles, half of the warps each, a unit a warp in turns. Then a row tile of down of all choices, whose units
// are dealt to the warps in turns. Nothing depends on which experts are chosen but what is read.
#pragma once
#include "cuda/common/route.cuh"
#include "cuda/decode/moe/experts_one.h"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/decode/gemv/gemv_int8.cuh"

// ---- shared memory: this, records of the input, records of gate and up's result, sums, pieces
enum { EXPERTS_ASKED = 2 }; // units whose packets a warp of down asks for at once
struct experts_head {
    uint64_t full[EXPERTS_PIECES], done[EXPERTS_PIECES], met[EXPERTS_TILES], weighed;
    float squares, shared; // of the input; the weight of the shared expert
    float meet[EXPERTS_TILES][16];
    int at[EXPERTS_PIECES];
    int8_t after[EXPERTS_PIECES];
    route_scratch m;
};
struct experts_smem {
    int rec, glu, red, sum, pieces; // red: of a step, sum: of a row tile
};
LAYOUT_FN experts_smem experts_areas(const experts_one_job &j, const experts_shape &s) {
    experts_smem m = {};
    const int sums = j.out_kind == EXPERTS_EACH ? experts_all_units(&j) : EXPERTS_WARPS;
    m.rec = ((int)sizeof(experts_head) + 127) / 128 * 128;
    m.glu = m.rec + (s.steps ? j.gate.u * REC_BYTES_32 : 0);
    m.red = m.glu + (s.tiles ? EXPERTS_WARPS * EXPERTS_ASKED * REC_BYTES_16 : 0);
    m.sum = m.red + s.steps * EXPERTS_WARPS * 64;
    m.pieces = (m.sum + (s.tiles > 1 ? 2 : s.tiles) * sums * 64 + 127) / 128 * 128;
    return m;
}
// ODD: the shared expert has another width than the others, or experts are one matrix. What is asked of that at run time costs a model
// without 1.4% of its time (code that runs once), so there are kernels of both kinds.
template <bool ODD> struct experts_block {
    const experts_one_job &j;
    const experts_shape &s;
    uint8_t *smem;
    experts_head &h;
    experts_smem at;
    uint32_t tag;
    int w, lane;
    MEM uint32_t full(int i) const { return smem_address(h.full + i); }
    MEM uint32_t done(int i) const { return smem_address(h.done + i); }
    MEM int id(int choice) const { return choice < j.shared ? 0 : h.m.id[choice - j.shared]; }
    MEM const uint8_t *piece(int i) const { return smem + h.at[i]; }
    // Number i of things of which a choice has n, and the shared expert `shared`: whose it is, and which.
    MEM experts_place place(int i, int shared, int n) const {
        if constexpr (ODD) return experts_place_of(&j, i, shared, n);
        const int c = i / n;
        return experts_place{c, i - c * n};
    }
    // Things of all choices; those in front of a choice.
    MEM int all(int shared, int n) const {
        return ODD ? shared + j.route.n_used * n : (j.route.n_used + j.shared) * n;
    }
    MEM int before(int choice, int shared, int n) const {
        return !ODD ? choice * n : choice < j.shared ? 0 : shared + (choice - j.shared) * n;
    }
    MEM experts_place step(int i) const { return place(i, s.shared_steps, s.each_steps); }
    MEM experts_place unit(int i) const { return place(i, s.shared_units, j.down.u); }
    MEM int pieces() const { return all(s.cut_shared, s.cut); } // of a row tile
    MEM bool single() const { return ODD && j.single; }
    // What gate and up give of a choice: where, and how many steps.
    MEM uint8_t *glu(int choice) const { return j.glu + before(choice, s.shared_steps, s.each_steps) * 32; }
    MEM int steps(int choice) const { return ODD && choice < j.shared ? s.shared_steps : s.each_steps; }
    MEM int width(int choice) const { return ODD && choice < j.shared ? j.n_ff_shared : j.n_ff; }
};
// The step that a block takes in its nth turn; -1: none.
template <bool ODD> DEV int experts_step(const experts_block<ODD> &b, int n) {
    const int all = b.all(b.s.shared_steps, b.s.each_steps), own = blockIdx.x - b.s.extra,
              rest = b.s.blocks - b.s.extra;
    if (n < b.s.lead && own < 0) return -1;
    const int i =
        n < b.s.lead ? n * rest + own : b.s.lead * rest + (n - b.s.lead) * b.s.blocks + (int)blockIdx.x;
    return i < all ? i : -1;
}
template <bool ODD> DEV void experts_begin(const experts_block<ODD> &b) {
    const int i = threadIdx.x;
    if (i < b.s.n_piece) {
        barrier_init(b.full(i), 1);
        barrier_init(b.done(i), EXPERTS_WARPS);
        b.h.at[i] = b.s.at[i];
        b.h.after[i] = b.s.after[i];
    }
    if (i == 0) barrier_init(smem_address(&b.h.weighed), 1);
    if (i < b.s.tiles) {
        barrier_init(smem_address(b.h.met + i), 1);
        barrier_expect(smem_address(b.h.met + i), 64);
    }
    barrier_fence();
    __syncthreads();
}

// ---- fetching
struct experts_source {
    const uint8_t *p[2]; // of expert 0; p[1] NULL: there is one
    size_t stack[2];
    uint32_t bytes; // of each
    int choice;     // -1: nothing comes
};
// Where piece i comes from.
template <int LG, int LD, bool ODD> DEV experts_source experts_find(const experts_block<ODD> &b, int i) {
    const experts_one_job &j = b.j;
    experts_source from = {{NULL, NULL}, {0, 0}, 0, -1};
    if (i >= b.s.n_piece) return from;
    if (i < b.s.steps) {
        const int step = experts_step(b, i);
        if (step < 0) return from;
        const experts_place at = b.step(step);
        const int c = at.choice;
        const experts_stack &g = c < j.shared ? j.gate_shared : j.gate,
                            &u = c < j.shared ? j.up_shared : j.up;
        const size_t t = (size_t)at.i;
        from.bytes = (uint32_t)g.u * layout_unit_bytes((enum layout)(LG < 0 ? 0 : LG)) * (j.paired ? 2 : 1);
        from.p[0] = g.first + t * g.tile;
        from.stack[0] = g.stack;
        if (!j.paired && !b.single()) from.p[1] = u.first + t * u.tile, from.stack[1] = u.stack;
        from.choice = c;
        return from;
    }
    const int of = i - b.s.steps, n = b.pieces(), r = of / n, tile = blockIdx.x + r * b.s.blocks;
    const experts_place at = b.place(of - r * n, b.s.cut_shared, b.s.cut);
    const int c = at.choice, first = at.i * b.s.part;
    if (tile * 16 >= j.d) return from;
    const experts_stack &d = c < j.shared ? j.down_shared : j.down;
    constexpr int UB = layout_unit_bytes((enum layout)(LD < 0 ? 0 : LD));
    from.bytes = (uint32_t)min(b.s.part, d.u - first) * UB;
    from.p[0] = d.first + (size_t)tile * d.tile + (size_t)first * UB;
    from.stack[0] = d.stack;
    from.choice = c;
    return from;
}
// Asks for piece i. Of a warp.
template <bool ODD> DEV void experts_fetch(const experts_block<ODD> &b, int i, const experts_source &from) {
    const size_t e = (size_t)b.id(from.choice);
    const uint32_t bar = b.full(i), to = smem_address(b.piece(i));
    const uint64_t policy = policy_evict_first();
    if (!elect_one()) return;
    barrier_expect(bar, from.p[1] ? 2 * from.bytes : from.bytes);
    bulk_copy(to, from.p[0] + e * from.stack[0], from.bytes, bar, policy);
    if (from.p[1]) bulk_copy(to + from.bytes, from.p[1] + e * from.stack[1], from.bytes, bar, policy);
}
// Whether a warp's first piece is one of down, which is asked for when the first two steps are there, so that it does not delay them.
template <bool ODD> DEV bool experts_late(const experts_block<ODD> &b, const experts_source &own) {
    return b.s.steps && b.w >= b.s.steps && own.choice >= b.j.shared && b.h.after[b.w] < 0;
}
// A warp's pieces among those that may come at once, behind the choice; own: its first, which has come if it is the shared expert's.
template <int LG, int LD, bool ODD>
DEV void experts_fetch_own(const experts_block<ODD> &b, const experts_source &own) {
    if (own.choice >= b.j.shared && b.h.after[b.w] < 0 && !experts_late(b, own)) experts_fetch(b, b.w, own);
#pragma unroll 1
    for (int i = b.w + EXPERTS_WARPS; i < b.s.n_piece; i += EXPERTS_WARPS) {
        const experts_source from = experts_find<LG, LD>(b, i);
        if (from.choice >= 0 && b.h.after[i] < 0) experts_fetch(b, i, from);
    }
}
// Those that wait for others, for a warp that is through with `passed` pieces; next: the first that has not come.
template <int LG, int LD, bool ODD>
DEV void experts_fetch_more(const experts_block<ODD> &b, int passed, int &next) {
#pragma unroll 1
    for (; next < b.s.n_piece && b.h.after[next] < passed; next++) {
        if (b.h.after[next] < 0) continue;
        barrier_wait(b.done(b.h.after[next]), 0);
        const experts_source from = experts_find<LG, LD>(b, next);
        if (from.choice >= 0) experts_fetch(b, next, from);
    }
}

// ---- the choice: of the first warp
template <int N, bool ODD>
DEV void experts_logits(const experts_block<ODD> &b, float (&v)[N], int first, int lane) {
    const experts_one_job &j = b.j;
    const int n = j.route.n_expert, more = lane == 0 && j.norm ? n : lane == 1 && j.weigh.w ? n + 1 : -1;
    const uint2 *at = j.logits + blockIdx.x % (unsigned)j.copies * (unsigned)(n + 2);
    uint2 p[N], q = make_uint2(0, b.tag);
    bool again;
    do {
        again = false;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int e = first + lane + 32 * i;
            p[i] = e < n ? tagged_load(at + e) : make_uint2(0xff800000u, b.tag);
        }
        if (more >= 0) q = tagged_load(at + more);
#pragma unroll
        for (int i = 0; i < N; i++) again |= p[i].y != b.tag;
    } while (__any_sync(~0u, again || q.y != b.tag));
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = __uint_as_float(p[i].x);
    if (lane == 0) b.h.squares = __uint_as_float(q.x);
    if (lane == 1) b.h.shared = more >= 0 ? 1.f / (1.f + expf(-__uint_as_float(q.x))) : 1.f;
    __syncwarp();
}
template <bool ODD> DEV void experts_choose(const experts_block<ODD> &b) {
    const router &r = b.j.route;
    auto ask = [&](auto &v, int, int lane) { experts_logits(b, v, 0, lane); };
    if (route_is_few(r) && r.n_expert <= ROUTE_FEW / 2)
        route_few<ROUTE_FEW / 64>(r, ask, b.h.m, b.lane);
    else if (route_is_few(r))
        route_few<ROUTE_FEW / 32>(r, ask, b.h.m, b.lane);
    else {
#pragma unroll 1
        for (int e = 0; e < r.n_expert; e += 32) {
            float v[1];
            experts_logits(b, v, e, b.lane);
            if (e + b.lane < r.n_expert) b.h.m.s[e + b.lane] = v[0];
        }
        __syncwarp();
        route_scores(
            r, [&](int e) { return b.h.m.s[e]; }, b.h.m, b.lane);
        if (r.n_group > 1) route_groups(r, b.h.m, b.lane);
        route_choose(r, b.h.m, b.lane);
    }
}

// ---- gate and up
// Units of the input's codes, from packets to records: of all warps but the first.
template <int L, bool ODD> DEV void experts_codes(const experts_block<ODD> &b) {
    act_int8_reader<32> in;
    one_row<L, 32, 1> p; // (nothing but prepare)
    in.at = b.j.codes;
    in.tag = b.tag;
    in.columns = b.j.gate.u * 256;
#pragma unroll 1
    for (int u = b.w - 1; u < b.j.gate.u; u += EXPERTS_WARPS - 1) {
        uint8_t *rec = b.smem + b.at.rec + u * REC_BYTES_32;
        for (in.ask(u, b.lane); __any_sync(~0u, in.v.w != b.tag); in.ask(u, b.lane)) __nanosleep(20);
        in.take(u, rec, b.lane);
        p.template prepare<1>(rec, 0, 1, b.lane);
    }
}
template <bool ODD> DEV float experts_act(const experts_one_job &j, float g, float u) {
    if (j.act == ACT_SWIGLU_OAI) {
        g = g > j.limit ? j.limit : g;
        u = u > j.limit ? j.limit : u < -j.limit ? -j.limit : u;
        return __fdividef(g, 1.f + __expf(-j.alpha * g)) * (u + 1.f);
    }
    const float y =
        j.act == ACT_GELU_ERF ? 0.5f * g * (1.f + erff(g * 0.7071067811865476f)) : act_apply(j.act, g);
    return ODD && j.single ? y : y * u;
}
// Of a warp: waits for all warps' sums of its nth step and leaves the product of 16 columns as packets.
template <bool ODD> DEV void experts_finish(const experts_block<ODD> &b, int n, int step, float rs) {
    const experts_one_job &j = b.j;
    const experts_place at = b.step(step);
    const int c = at.choice, t = at.i, of = b.lane & 15, col = t * 16 + of, n_ff = b.width(c);
    const experts_stack &gate = c < j.shared ? j.gate_shared : j.gate,
                        &up = c < j.shared ? j.up_shared : j.up;
    const float *sum = (const float *)(b.smem + b.at.red) + n * EXPERTS_WARPS * 16 + b.lane;
    const size_t row = (size_t)b.id(c) * j.n_ff + col;
    const float gate_bias = gate.bias && col < n_ff ? gate.bias[row] : 0.f,
                up_bias = up.bias && col < n_ff ? up.bias[row] : 0.f;
    const int g = j.paired ? (of >> 3) * 16 + (of & 7) : of, u = j.paired ? g + 8 : b.single() ? of : of + 16;
    float v = 0;
    barrier_wait(b.done(n), 0);
#pragma unroll
    for (int k = 0; k < EXPERTS_WARPS / 2; k++) v += sum[k * 32];
    if (b.single()) v += __shfl_xor_sync(~0u, v, 16); // of both halves of the warps
    const float a = fmaf(__shfl_sync(~0u, v, g), rs * gate.factor, gate_bias),
                m = fmaf(__shfl_sync(~0u, v, u), rs * up.factor, up_bias),
                y = col < n_ff ? experts_act<ODD>(j, a, m) : 0.f;
    give_act_int8<16>(b.glu(c), t * 16, y, b.tag);
}
template <int L, int LD, bool ODD>
DEV void experts_gated(const experts_block<ODD> &b, const experts_source &own, int &next) {
    bool late = experts_late(b, own);
    constexpr int UB = layout_unit_bytes((enum layout)L);
    const experts_one_job &j = b.j;
    const int tile = b.single() ? 0 : b.w & 1, first = b.single() ? b.w : b.w >> 1,
              stride = b.single() ? EXPERTS_WARPS : EXPERTS_WARPS / 2;
    const float rs = j.norm ? rsqrtf(b.h.squares / (float)j.k_router + j.eps) : 1.f;
    float *red = (float *)(b.smem + b.at.red) + b.w * 16;
    one_row<L, 32, 1> p;
    p.start(b.lane);
#pragma unroll 1
    for (int n = 0; n < b.s.steps; n++) {
        const int step = experts_step(b, n);
        if (step >= 0) {
            const uint8_t *at = b.piece(n) + tile * j.gate.u * UB;
            barrier_wait(b.full(n), 0);
            if (late && n == 1) {
                experts_fetch(b, b.w, own);
                late = false;
            }
            p.clear();
#pragma unroll 1
            for (int u = first; u < j.gate.u; u += stride) {
                int_frag<L> f[1];
                f[0].load(at + u * UB, b.lane, 1.f);
                p.unit(f, b.smem + b.at.rec + u * REC_BYTES_32, b.lane);
            }
            p.leave(red + n * EXPERTS_WARPS * 16, b.lane);
        }
        __syncwarp();
        if (b.lane == 0) barrier_arrive(b.done(n));
        if (step >= 0 && b.w == n % EXPERTS_WARPS) experts_finish(b, n, step, rs);
        if (b.w == 0) experts_fetch_more<L, LD>(b, n + 1, next);
    }
    if (late) experts_fetch(b, b.w, own);
}

// ---- down
// y, a column a lane of the first warp; in the first block of a cluster the second's 16 columns follow. Of the first warp.
#if __CUDA_ARCH__ >= 900
template <bool ODD> DEV float of_both_blocks(const experts_block<ODD> &b, int r, float y, uint32_t rank) {
    float *meet = b.h.meet[r];
    if (rank) {
        uint32_t to, bar;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(to) : "r"(smem_address(meet + (b.lane & 15))));
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(bar) : "r"(smem_address(b.h.met + r)));
        if (b.lane < 16)
            asm volatile(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                "r"(__float_as_uint(y)), "r"(bar)
                : "memory");
        return y;
    }
    barrier_wait(smem_address(b.h.met + r), 0);
    return b.lane < 16 ? y : meet[b.lane - 16];
}
#endif
DEV void experts_cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
DEV void experts_cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// What follows a row tile's sums reads, of the first warp, fetched before these are waited for; x: the residual stream and the
// weighted biases of the choices.
struct experts_ahead {
    float x, norm, scale;
};
template <bool ODD> DEV experts_ahead experts_look_ahead(const experts_block<ODD> &b, int tile) {
    const experts_one_job &j = b.j;
    const int row = tile * 16 + (b.lane & 15);
    experts_ahead a = {};
    if (b.w || row >= j.d) return a;
    if (j.out_kind == EXPERTS_ADD) {
        a.x = __ldcg(j.out + row);
        a.norm = j.next_norm[row];
        a.scale = __ldcg(j.scale);
    }
    if (j.down.bias && j.out_kind != EXPERTS_EACH)
#pragma unroll 1
        for (int c = 0; c < j.route.n_used; c++)
            a.x = fmaf(b.h.m.w[c], j.down.bias[(size_t)b.h.m.id[c] * j.d + row], a.x);
    return a;
}
// The rows of all choices. Of all threads.
template <bool ODD> DEV void experts_each(const experts_block<ODD> &b, const float *sum, int tile) {
    const experts_one_job &j = b.j;
    const int of = threadIdx.x & 15, row = tile * 16 + of;
#pragma unroll 1
    for (int c = threadIdx.x >> 4; c < j.route.n_used && row < j.d; c += EXPERTS_WARPS * 2) {
        float v = 0;
#pragma unroll 1
        for (int k = 0; k < j.down.u; k++) v += sum[(c * j.down.u + k) * 16 + of];
        const float bias = j.down.bias ? j.down.bias[(size_t)b.h.m.id[c] * j.d + row] : 0.f;
        j.out[(size_t)c * j.d + row] = fmaf(v, j.down.factor, bias);
    }
}
// The sum of all warps, and what becomes of it. Of the first warp.
template <bool ODD>
DEV void experts_leave(const experts_block<ODD> &b, const float *sum, int r, int tile,
                       const experts_ahead &a) {
    const experts_one_job &j = b.j;
    const int row = tile * 16 + (b.lane & 15);
    float y = 0;
#pragma unroll
    for (int w = 0; w < EXPERTS_WARPS; w += 2) y += sum[w * 16 + b.lane];
    y += __shfl_xor_sync(~0u, y, 16);
    y += a.x;
    if (b.lane < 16 && row < j.d) j.out[row] = y;
    if (j.out_kind == EXPERTS_MIX) return;
    const float ss = sum16(__fmul_rn(y, y)); // d is a multiple of 32
    if (b.lane == 0) j.square_out[tile] = ss;
    y = __fmul_rn(y, a.norm);
    if (j.give == GIVE_RECORD) {
#if __CUDA_ARCH__ >= 900
        uint32_t rank;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        y = of_both_blocks(b, r, y, rank);
        if (!rank) put_act_int8<32>(j, tile * 16 + b.lane, y);
#endif
    } else if (b.lane < 16)
        put_column<false>(j, 0, 0, row, __fmul_rn(y, a.scale));
}
// Up to EXPERTS_ASKED items first, first + 16, .. (units of the choices one after the other), from packets to records; how many. Of a warp.
template <bool ODD> DEV int experts_take(const experts_block<ODD> &b, uint8_t *rec, int first, int items) {
    const experts_one_job &j = b.j;
    act_int8_reader<16> in[EXPERTS_ASKED];
    int n = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_ASKED; i++) {
        const int item = first + i * EXPERTS_WARPS;
        const experts_place at = b.unit(item);
        in[i].at = b.glu(at.choice);
        in[i].tag = b.tag;
        in[i].columns = b.steps(at.choice) * 16;
        if (item < items) in[i].ask(at.i, b.lane);
    }
#pragma unroll
    for (int i = 0; i < EXPERTS_ASKED; i++) {
        const int item = first + i * EXPERTS_WARPS, k = b.unit(item).i;
        if (item >= items) break;
        while (in[i].v.w != b.tag) in[i].ask(k, b.lane);
        in[i].take(k, rec + i * REC_BYTES_16, b.lane);
        n++;
    }
    return n;
}
// Says that a warp is through with pieces up to `to`, the first warp fetches what waits for that.
template <int LG, int LD, bool ODD>
DEV void experts_pass(const experts_block<ODD> &b, int &passed, int to, int &next) {
    if (b.lane == 0)
        for (int i = passed; i < to; i++) barrier_arrive(b.done(i));
    passed = to;
    if (b.w == 0) experts_fetch_more<LG, LD>(b, passed, next);
}
template <int LG, int L, bool ODD> DEV void experts_down(const experts_block<ODD> &b, int &next) {
    constexpr int UB = layout_unit_bytes((enum layout)L);
    const experts_one_job &j = b.j;
    const int items = b.all(b.s.shared_units, j.down.u), each = b.pieces();
    const bool apart = j.out_kind == EXPERTS_EACH;
    uint8_t *rec = b.smem + b.at.glu + b.w * EXPERTS_ASKED * REC_BYTES_16;
    one_row<L, 16, 1> p, all;
    p.start(b.lane);
    int passed = b.s.steps;
    barrier_wait(smem_address(&b.h.weighed), 0);
#pragma unroll 1
    for (int r = 0, tile = blockIdx.x; tile * 16 < j.d; r++, tile += b.s.blocks) {
        float *sum = (float *)(b.smem + b.at.sum) + (r & 1) * (apart ? items : EXPERTS_WARPS) * 16;
        const experts_ahead a = experts_look_ahead(b, tile);
        all.clear();
#pragma unroll 1
        for (int first = b.w; first == b.w || first < items; first += EXPERTS_WARPS * EXPERTS_ASKED) {
            const int n = experts_take(b, rec, first, items);
#pragma unroll 1
            for (int i = 0; i <= n; i++) { // the last: what comes next
                const int item = first + i * EXPERTS_WARPS;
                const experts_place at = b.unit(item);
                const int c = at.choice, k = at.i, part = k / b.s.part,
                          own = b.before(c, b.s.cut_shared, b.s.cut),
                          piece = b.s.steps + r * each + (item < items ? own + part : each);
                experts_pass<LG, L>(b, passed, piece, next);
                if (i == n) break;
                barrier_wait(b.full(piece), 0);
                int_frag<L> f[1];
                p.clear();
                f[0].load(b.piece(piece) + (k - part * b.s.part) * UB, b.lane, 1.f);
                p.unit(f, rec + i * REC_BYTES_16, b.lane);
                if (apart) {
                    p.leave(sum + item * 16, b.lane);
                    continue;
                }
                const float weight =
                    c < j.shared ? b.h.shared * j.down_shared.factor : b.h.m.w[c - j.shared] * j.down.factor;
                all.acc[0][0] = fmaf(weight, p.acc[0][0], all.acc[0][0]);
                all.acc[0][1] = fmaf(weight, p.acc[0][1], all.acc[0][1]);
            }
        }
        if (!apart) all.leave(sum + b.w * 16, b.lane);
        __syncthreads();
        if (apart)
            experts_each(b, sum, tile);
        else if (b.w == 0)
            experts_leave(b, sum, r, tile, a);
    }
}

// LG or LD -1: without that part
template <int LG, int LD, bool ODD>
__global__ void __maxnreg__(104)
    experts_one_kernel(const __grid_constant__ experts_one_job j, const __grid_constant__ experts_shape s) {
    extern __shared__ __align__(1024) uint8_t smem[];
    experts_block<ODD> b = {j,
                            s,
                            smem,
                            *(experts_head *)smem,
                            experts_areas(j, s),
                            0,
                            (int)threadIdx.x >> 5,
                            (int)threadIdx.x & 31};
    experts_begin(b);
    if (LD >= 0) experts_cluster_arrive(); // barriers are there
    pdl_trigger();
    if (!j.beside) pdl_wait();
    b.tag = handoff_tag(j.seq, j.tag);
    int next = s.late;
    const experts_source own = experts_find<LG, LD>(b, b.w);
    if (own.choice >= 0 && own.choice < j.shared && b.h.after[b.w] < 0) experts_fetch(b, b.w, own);
    if (b.w == 0)
        experts_choose(b);
    else if constexpr (LG >= 0)
        experts_codes<LG>(b);
    __syncthreads();
    experts_fetch_own<LG, LD>(b, own);
    if (LD >= 0 && b.w == EXPERTS_WARPS - 1) { // while weights are on their way
        route_weights(j.route, b.h.m, b.lane);
        if (b.lane == 0) barrier_arrive(smem_address(&b.h.weighed));
    }
    if constexpr (LG >= 0) experts_gated<LG, LD>(b, own, next);
    if constexpr (LD >= 0) {
        experts_cluster_wait();
        experts_down<LG, LD>(b, next);
        if (blockIdx.x == 0 && j.choice)
#pragma unroll 1
            for (int i = threadIdx.x; i < 2 * j.route.n_used; i += blockDim.x)
                j.choice[i] = i < j.route.n_used ? (float)b.h.m.id[i] : b.h.m.w[i - j.route.n_used];
    }
    pdl_wait(); // what follows this kernel follows the one before, too
}

// The other layout that down has beside gate and up in mixtures of types.
template <int L> constexpr int experts_other() {
    return L == LAYOUT_Q4K || L == LAYOUT_Q5K    ? LAYOUT_Q6K
           : L == LAYOUT_Q3K || L == LAYOUT_IQ4X ? LAYOUT_Q5K
           : L == LAYOUT_Q2K                     ? LAYOUT_Q3K
                                                 : L;
}
#define EXPERTS_CODES(id)                                                                                    \
    extern const experts_kernels experts_##id;                                                               \
    const experts_kernels experts_##id = {                                                                   \
        LAYOUT_##id,                                                                                         \
        (enum layout)experts_other<LAYOUT_##id>(),                                                           \
        experts_one_kernel<LAYOUT_##id, -1, false>,                                                          \
        experts_one_kernel<-1, LAYOUT_##id, false>,                                                          \
        {experts_one_kernel<LAYOUT_##id, LAYOUT_##id, false>,                                                \
         experts_one_kernel<LAYOUT_##id, LAYOUT_##id, true>},                                                \
        {experts_one_kernel<LAYOUT_##id, experts_other<LAYOUT_##id>(), false>,                               \
         experts_one_kernel<LAYOUT_##id, experts_other<LAYOUT_##id>(), true>}};

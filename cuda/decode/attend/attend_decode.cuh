// Decode attention: one query row a sequence over paged keys and values.
//
// A work item is (row, key head, split): up to 8 query heads that share a key head, over some of the row's keys. Every
// warp has a ring of its own in shared memory, filled by cp.async, and takes tiles of 16 keys: first the keys, then the
// values. The ring runs on into the warp's next items, and starts before the dependency wait, because the keys of
// earlier steps depend on nothing that is under way. Keys are rows and query heads columns of the mma; caches that are
// not halves are widened to them, tile by tile (F32 to two). Of types that are turned (kv_turned.cuh), queries are turned, too, and
// the sums of values turned back.
//
// How a row is split depends on its own length alone (attend_range), warps and splits are added in order, so a row's bits
// depend on nothing else. Norm and rotation of q and k happen here too, and the cache write for rows of different
// sequences.
#pragma once
#include "cuda/decode/attend/attend_decode.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/decode/gemv/gemv.cuh"

// Shared memory of a kernel, in this order: rings, q, the row's own key and value, maxima and sums of the warps, what a
// part counts in its head [8][32], outputs of the warps [warp][head][D + 4], of each row its position and splits.
// CROWD: where there are many items, blocks of four warps, four a multiprocessor; each does the work of two of the eight, one after the
// other, so that the bits stay. There the rows have no place in shared memory.
template <int D, int T, bool CROWD = false> struct attend_shape {
    static constexpr int width = D * (T == KV_F32 ? 2 : 1), warps = D > 256       ? (T == KV_F32 ? 2 : 4)
                                                                    : width > 256 ? 2
                                                                    : width > 128 ? 4
                                                                                  : 8;
    static constexpr enum kv_type type = (enum kv_type)T;
    static constexpr int real = CROWD ? 4 : warps;             // warps of a block
    static constexpr int blocks = D > 256 ? 1 : CROWD ? 4 : 2; // of a multiprocessor
    static constexpr int stages = T == KV_F32 ? 1 : 2;         // tiles of a ring
    static constexpr int row = D * 2 + 16, tile = 16 * row;    // halves; rows out of step with the banks
    static constexpr int raw_row = T == KV_F32    ? D * 4
                                   : T == KV_F8   ? D + 2
                                   : T == KV_Q5_0 ? D / 32 * QUANT_Q5_0_BYTES
                                   : T == KV_Q4_0 ? D / 32 * QUANT_Q4_0_BYTES
                                                  : D / 32 * QUANT_Q8_0_BYTES;
    static constexpr int raw = T == KV_F16 ? tile : 16 * raw_row; // a tile as it lies in the cache
    static constexpr int parts = T == KV_F32 ? 2 : 1;             // a value is the sum of that many halves
    static constexpr int ring = stages * raw + (T == KV_F16 ? 0 : parts * tile);
    static constexpr int own_row = (T == KV_F16 ? D * 2 : raw_row + 15) & ~15;
    static constexpr int q = real * ring, own = q + parts * 8 * row, stat = own + 2 * own_row,
                         share = stat + 2 * 8 * warps * 4, out = share + 8 * 32 * 4;
    // What follows depends on the launch: the outputs of the warps, at `outs`, `out_warp` floats from one to the next, and
    // the rows, at `rows`. one: no block gets a second item, so that a warp's output may lie in its ring.
    struct areas {
        int outs, out_warp, rows, bytes;
    };
    static __host__ __device__ constexpr areas lay_out(int rep, int n_row, bool one) {
        const int out_warp = one ? ring / 4 : rep * (D + 4), rows = out + (one ? 0 : warps * out_warp * 4);
        return {one ? 0 : out, out_warp, rows, rows + (CROWD ? 0 : n_row * 8)};
    }
    static size_t bytes(int rep, int n_row, bool one) { return (size_t)lay_out(rep, n_row, one).bytes; }
    static constexpr bool apart =
        D > 256; // splits are added by a kernel of their own: there is too much for one block
    static_assert(ring >= 8 * (D + 4) * 4, "a warp's output in its ring");
};

// Transposes an 8 x 8 matrix of halves over the warp.
DEV uint32_t transpose8(uint32_t v) {
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}
// tanh to about 1e-6
DEV float tanh_fast(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(2.f * x)); }

// ---- one head of q, k or v
// Values a of columns d and b of columns other(d) that come as packets; 0 where they are not wanted.
template <int D, class Other, class Turns>
DEV void take_values(float (&a)[D / 32], float (&b)[D / 32], const uint2 *p, uint32_t tag, int dim,
                     const Other &other, const Turns &turns) {
    bool missing;
    do {
        missing = false;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            const int d = i * 32 + (threadIdx.x & 31);
            const uint2 x = d < dim ? tagged_load(p + d) : make_uint2(0, tag),
                        y = turns(d) ? tagged_load(p + other(d)) : make_uint2(0, tag);
            a[i] = __uint_as_float(x.x);
            b[i] = __uint_as_float(y.x);
            missing |= x.y != tag || y.y != tag;
        }
    } while (__any_sync(~0u, missing));
}
// y[i] = value i * 32 + lane of the head at column col of q k v, normed and rotated; 0 from dim on. MORE: normed behind the
// rotation where the job says so; unit: normed without weights; times by.
template <int D, bool PACKETS, bool MORE>
DEV void head_values(float (&y)[D / 32], const attend_job &j, int col, const float *norm, bool turn, int row,
                     int dim, uint32_t tag, bool unit = false, float by = 1) {
    const bool normed = norm || (MORE && unit);
    const int lane = threadIdx.x & 31, half = j.n_rot / 2;
    float partner[D / 32], ss = 0;
    float2 angle[D / 32]; // asked for together with the head: one round trip
    constexpr bool EARLY = MORE && D > 128;
    float weight[EARLY ? D / 32 : 1], of_partner[EARLY ? D / 32 : 1]; // the same, where there are registers
    auto second = [&](int d) { return j.neox ? d >= half : d & 1; };
    auto other = [&](int d) { return !j.neox ? d ^ 1 : second(d) ? d - half : d + half; };
    auto turns = [&](int d) { return turn && d < j.n_rot; };
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const int d = i * 32 + lane, pair = !j.neox ? d >> 1 : second(d) ? d - half : d;
        angle[i] = turns(d) ? __ldcg(j.rope + (size_t)row * half + pair) : make_float2(1, 0);
        if constexpr (EARLY) {
            weight[i] = norm && d < dim ? norm[d] : 1.f;
            of_partner[i] = norm && turns(d) ? norm[other(d)] : 1.f;
        }
    }
    if constexpr (PACKETS)
        take_values<D>(y, partner, j.take_handoff + col, tag, dim, other, turns);
    else {
        const float *src = j.qkv + row * j.qkv_row + col;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            const int d = i * 32 + lane;
            y[i] = d < dim ? __ldcg(src + d) : 0.f;
            partner[i] = turns(d) ? __ldcg(src + other(d)) : 0.f;
        }
    }
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const int d = i * 32 + lane;
        if (!second(d)) angle[i].y = -angle[i].y;
        if (normed) {
            ss += y[i] * y[i];
            if constexpr (EARLY) {
                if (!j.late) y[i] *= weight[i], partner[i] *= of_partner[i];
                continue;
            }
            if (MORE && (j.late || !norm)) continue;
            y[i] *= d < dim ? norm[d] : 0.f;
            partner[i] *= turns(d) ? norm[other(d)] : 0.f;
        }
    }
    float scale = 1;
    if (normed)
        scale = MORE ? rsqrtf(__fdividef(warp_sum(ss), (float)dim) + j.eps)
                     : 1.f / sqrtf(warp_sum(ss) / dim + j.eps);
#pragma unroll
    for (int i = 0; i < D / 32; i++) y[i] = (y[i] * angle[i].x + partner[i] * angle[i].y) * scale;
    if constexpr (MORE) {
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            y[i] *= EARLY                                   ? (j.late ? weight[EARLY ? i : 0] * by : by)
                    : norm && j.late && i * 32 + lane < dim ? norm[i * 32 + lane] * by
                                                            : by;
    }
}
// What temperature makes of the query at position p.
DEV float query_factor(const attend_job &j, int p) {
    return j.temp_beta != 0 ? 1.f + j.temp_beta * logf((float)(1 + (p + j.temp_offset) / j.temp_len)) : 1.f;
}
// The values as a row of the cache. Turned ones are left so.
template <int D, int T> DEV void put_row(uint8_t *to, float (&y)[D / 32], int dim) {
    if constexpr (T > KV_Q8_0)
        kv_low_put_head((enum kv_type)T, to, dim, kv_block(dim), y);
    else {
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            if (i * 32 < dim) kv_put32((enum kv_type)T, to, i, dim, y[i]);
    }
}
// Bytes of a row of the cache, in pieces that divide it.
template <int T> DEV void copy_row(uint8_t *to, const uint8_t *from, int bytes, int i, int n) {
    using piece = conditional_t<(T >= KV_Q8_0), uint16_t, uint4>;
#pragma unroll 1
    for (; i < bytes / (int)sizeof(piece); i += n) ((piece *)to)[i] = ((const piece *)from)[i];
}

// ---- which keys
struct attend_item {
    int row, head, split, n_split, p, key, end; // keys key .. end - 1 of the row at position p
    int part;                                   // FINE: of the item's heads, where the row is not split
};
// The keys of a row at position p: the first one's tile, keys of a split.
struct attend_range {
    int first, size;
};
template <int LEAST> DEV attend_range range_of(const attend_job &j, int p) {
    const int first = j.window ? max(0, p - j.window + 1) & ~15 : 0, n = p + 1 - first,
              share = ((n - 1) >> j.split_shift) + 1;
    return {first, max(LEAST, (share + 15) & ~15)};
}
// Keys of a split at least.
template <int D, bool MORE> DEV constexpr int least_split() {
    return MORE && D > 128 ? CUDA_SPLIT_WIDE : CUDA_SPLIT;
}
// The item i of n or, where that is empty, the next of this block; false past the end. FINE: the heads of an item of a row
// that is not split go to several.
template <int LEAST, bool FINE, bool CROWD>
DEV bool find_item(const attend_job &j, const int2 *rows, unsigned n_row, unsigned n, unsigned &i,
                   attend_item &it) {
#pragma unroll 1
    for (; i < n; i += gridDim.x) {
        const unsigned heads = j.n_item_head, k = i / heads;
        it.head = i % heads;
        it.row = k % n_row;
        it.split = k / n_row;
        const int2 row = CROWD ? make_int2(__ldcg(j.t.pos + it.row), 0) : rows[it.row];
        const attend_range r = range_of<LEAST>(j, row.x);
        it.p = row.x;
        it.n_split = CROWD ? (row.x - r.first) / r.size + 1 : row.y;
        it.part = 0;
        if (FINE && it.n_split == 1 && it.split >> j.fine_shift == 0) {
            it.part = it.split;
            it.split = 0;
        }
        it.key = r.first + it.split * r.size;
        it.end = min(it.p + 1, it.key + r.size);
        if (it.split < it.n_split) return true;
    }
    return false;
}

// ---- tiles
// 16 rows of dim halves to rows of shared memory; zeros beyond dim and from row valid on.
template <int D> DEV void fetch_halves(uint32_t to, const uint8_t *from, int dim, int valid) {
    constexpr int CHUNKS = D / 8, ROWS = CHUNKS > 32 ? 1 : 32 / CHUNKS, STRIDE = D * 2 + 16;
    const int lane = threadIdx.x & 31, c = lane % CHUNKS, r = lane / CHUNKS;
    if constexpr (CHUNKS > 32) { // two pieces of a row a lane
#pragma unroll
        for (int h = 0; h < CHUNKS; h += 32) {
            const uint32_t piece = (c + h) * 8 < dim ? 16 : 0;
            const uint8_t *at = from + (piece ? (c + h) * 16 : 0);
#pragma unroll
            for (int i = 0; i < 16; i++)
                cp_async16(to + i * STRIDE + (c + h) * 16, at + (size_t)i * dim * 2, i < valid ? piece : 0);
        }
        return;
    }
    const uint32_t bytes = c * 8 < dim ? 16 : 0;
    to += r * STRIDE + c * 16;
    from += r * dim * 2 + (bytes ? c * 16 : 0);
#pragma unroll
    for (int i = 0; i < 16; i += ROWS)
        cp_async16(to + i * STRIDE, from + (size_t)i * dim * 2, r + i < valid ? bytes : 0);
}
// 16 rows of bytes as they lie; zeros from row valid on.
DEV void fetch_bytes(uint32_t to, const uint8_t *from, int row, int valid) {
#pragma unroll 1
    for (int c = threadIdx.x & 31; c < row; c += 32)
        cp_async16(to + c * 16, from + c * 16, max(0, min(16, valid * row - c * 16)));
}
// 16 rows of the cache to rows of halves (F32: the highest bits, then, a tile further, what is left).
template <int D> DEV void widen_q8(uint8_t *to, const uint8_t *from, int dim) {
    constexpr int BLOCKS = D / 32, ROW = D * 2 + 16;
    const int n = (dim + 31) / 32;
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < 16 * BLOCKS; i += 32) {
        const int r = i / BLOCKS, b = i % BLOCKS;
#pragma unroll
        for (int c = 0; c < 4; c++)
            *(uint4 *)(to + r * ROW + b * 64 + c * 16) =
                b < n ? kv_chunk<KV_Q8_0>(from + (r * n + b) * QUANT_Q8_0_BYTES, c) : make_uint4(0, 0, 0, 0);
    }
}
// (As they are: turned.)
template <int D, int T> DEV void widen_low(uint8_t *to, const uint8_t *from, int dim, int bytes) {
    constexpr int BLOCKS = D / 32, ROW = D * 2 + 16;
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < 16 * BLOCKS; i += 32) {
        const int r = i / BLOCKS, b = i % BLOCKS;
#pragma unroll
        for (int c = 0; c < 4; c++)
            *(uint4 *)(to + r * ROW + b * 64 + c * 16) =
                b * 32 + c * 8 < dim ? kv_low_chunk<T>(from + r * bytes, b * 4 + c) : make_uint4(0, 0, 0, 0);
    }
}
// Turns sums of 16 dims each (o[i]: dims 16 i + g and 16 i + g + 8 of two heads, g in lane bits 2 to 4) in blocks of 8 to 64.
template <int N> DEV void turn_sums(float (&o)[N][4], int block) {
    const int lane = threadIdx.x & 31;
    const float scale = kv_turn_scale(block);
#pragma unroll
    for (int half = 1; half < 8; half *= 2)
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float p = __shfl_xor_sync(~0u, o[i][e], half * 4);
                o[i][e] = lane & half * 4 ? p - o[i][e] : o[i][e] + p;
            }
    auto pair = [](float &a, float &b) {
        const float d = a - b;
        a += b;
        b = d;
    };
    if (block > 8)
#pragma unroll
        for (int i = 0; i < N; i++) pair(o[i][0], o[i][2]), pair(o[i][1], o[i][3]);
#pragma unroll
    for (int half = 1; half < 4; half *= 2) {
        if (half * 16 >= block) break;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (!(i & half))
#pragma unroll
                for (int e = 0; e < 4; e++) pair(o[i][e], o[i + half][e]);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[i][e] *= scale;
}
template <int D> DEV void widen_f32(uint8_t *to, const uint8_t *from, int dim) {
    constexpr int ROW = D * 2 + 16;
#pragma unroll 1
    for (int i = (threadIdx.x & 31) * 2; i < 16 * D; i += 64) {
        const int r = i / D, d = i % D;
        const float2 v = d < dim ? *(const float2 *)(from + (r * dim + d) * 4) : make_float2(0, 0);
        const uint32_t high = pack_half2(v.x, v.y);
        const float2 h = half2_bits(high);
        *(uint32_t *)(to + r * ROW + d * 2) = high;
        *(uint32_t *)(to + 16 * ROW + r * ROW + d * 2) = pack_half2(v.x - h.x, v.y - h.y);
    }
}
template <int D, int T> DEV void widen(uint8_t *to, const uint8_t *from, int dim, int bytes) {
    if constexpr (T == KV_Q8_0) widen_q8<D>(to, from, dim);
    if constexpr (T == KV_F32) widen_f32<D>(to, from, dim);
    if constexpr (T > KV_Q8_0) widen_low<D, T>(to, from, dim, bytes);
    if (T != KV_F16) __syncwarp();
}
// Of the lanes' parts of a softmax (largest score, sum of the weights) the whole's; returns what this part's output counts.
// The lanes repeat width parts.
DEV float merge_parts(float &m, float &l, int width) {
    float top = m;
#pragma unroll 1
    for (int o = width >> 1; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
    const float f = exp2_fast(m - top);
    m = top;
    l *= f;
#pragma unroll 1
    for (int o = width >> 1; o; o >>= 1) l += __shfl_xor_sync(~0u, l, o);
    return f;
}

// Splits of the rows at most, and what shared memory keeps of each row. A crowd's warps share the rows, by way of at[warp].
template <class A, int LEAST, bool FINE, bool CROWD>
DEV unsigned most_splits(const attend_job &j, int2 *rows, int n_row, int *at) {
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int most = 0;
#pragma unroll 1
    for (int i = CROWD ? threadIdx.x : lane; i < n_row; i += CROWD ? A::real * 32 : 32) {
        const int p = j.t.pos[i];
        const attend_range r = range_of<LEAST>(j, p);
        const int splits = (p - r.first) / r.size + 1;
        if (!CROWD && w == 0) rows[i] = make_int2(p, splits);
        most = max(most, FINE && splits == 1 ? 1 << j.fine_shift : splits);
    }
    if constexpr (CROWD) {
        at[w] = __reduce_max_sync(~0u, most);
        __syncthreads();
        most = at[lane & (A::real - 1)];
    }
    return __reduce_max_sync(~0u, most);
}

// MORE: what a plain Llama does not have: norms behind the rotation, a norm of values, a temperature of scores.
template <int D, int T, bool PACKETS, bool MORE, bool CROWD = false>
__global__ void __launch_bounds__(attend_shape<D, T, CROWD>::real * 32, attend_shape<D, T, CROWD>::blocks)
    attend_decode_kernel(const __grid_constant__ attend_job j) {
    using A = attend_shape<D, T, CROWD>;
    constexpr bool FINE = MORE && D > 128;
    constexpr int W = A::warps, R = A::real, S = A::stages, P = D + 4, LEAST = least_split<D, MORE>();
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ int last;
    __shared__ uint32_t tag;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, gid = lane >> 2, tig = lane & 3;
    uint8_t *ring = smem + w * A::ring, *wide = ring + S * A::raw, *qs = smem + A::q, *own = smem + A::own;
    const typename A::areas lay = A::lay_out(j.rep, j.max_row, j.one);
    float *ms = (float *)(smem + A::stat), *ls = ms + 8 * W, *share = (float *)(smem + A::share),
          *so = (float *)(smem + lay.outs);
    int2 *rows = (int2 *)(smem + lay.rows);
    const int dk = j.kv.dk, dv = j.kv.dv, row_k = kv_bytes(A::type, dk), row_v = kv_bytes(A::type, dv);
    if (j.wait)
        pdl_wait(); // and only then may those behind begin: they look at the step without waiting for it
    pdl_trigger();
    if (PACKETS && threadIdx.x == 0) tag = handoff_tag(&j.t.step->seq, j.tag);
    const int n_row = min(j.t.step->n_row, j.max_row); // never more than there is shared memory for
    const unsigned n_item =
        most_splits<A, LEAST, FINE, CROWD>(j, rows, n_row, (int *)ms) * n_row * j.n_item_head;
    __syncthreads();

    // what the warp fetches next: keys, then values of a tile, then the next tile
    attend_item to;
    unsigned ahead = blockIdx.x - gridDim.x;
    int key_at = 0, key_end = 0, page = 0, to_as = W; // to_as: CROWD: which of the W warps
    size_t place = 0;
    bool fetch_v = false, more = true;
    const int32_t *table = NULL;
    auto fetch = [&](int slot) {
        if (!fetch_v) {
            key_at += W * 16;
#pragma unroll 1
            while (key_at >= key_end && more) {
                if (!CROWD || (to_as += R) >= W) {
                    ahead += gridDim.x;
                    more = find_item<LEAST, FINE, CROWD>(j, rows, n_row, n_item, ahead, to);
                    if (!more) break;
                    to_as = w;
                }
                key_at = to.key + (CROWD ? to_as : w) * 16;
                key_end = to.end;
                table = j.kv.pages + j.t.slot[to.row] * j.kv.max_pages;
                if (key_at < key_end) page = table[key_at >> 6];
            }
        }
        if (more) {
            if (!fetch_v) {
                place = ((size_t)page * j.kv.n_kv_head + to.head / j.n_chunk) * KV_PAGE + (key_at & 63);
                if (key_at + W * 16 < key_end) page = table[(key_at + W * 16) >> 6];
            }
            const uint32_t at = smem_address(ring + slot * A::raw);
            const int valid = to.p + !j.put - key_at, dim = fetch_v ? dv : dk,
                      bytes = fetch_v ? row_v : row_k;
            const uint8_t *from = (fetch_v ? j.kv.v : j.kv.k) + place * bytes;
            if constexpr (T == KV_F16)
                fetch_halves<D>(at, from, dim, valid);
            else
                fetch_bytes(at, from, bytes, valid);
        }
        cp_commit();
        fetch_v = !fetch_v;
    };
    bool waited = j.wait;
    if (!waited && !j.put) { // other rows' keys may be on their way
        pdl_wait();
        waited = true;
    }
#pragma unroll 1
    for (int i = 0; i < S; i++) fetch(i);

    attend_item it;
    int slot = 0;
#pragma unroll 1
    for (unsigned item = blockIdx.x; find_item<LEAST, FINE, CROWD>(j, rows, n_row, n_item, item, it);
         item += gridDim.x) {
        const int p = it.p, chunk = it.head % j.n_chunk, kv_head = it.head / j.n_chunk,
                  n = FINE && it.n_split == 1 ? j.rep >> j.fine_shift : j.rep,
                  head0 = it.head * j.rep + it.part * n;
        const int first = j.window ? max(0, p - j.window + 1) : 0;
        const bool tail = it.end == p + 1 && j.put; // holds the row's own key, which is not in the cache yet
        size_t own_place = 0;
        if (tail) {
            const int own_page = j.kv.pages[j.t.slot[it.row] * j.kv.max_pages + (p >> 6)];
            own_place = ((size_t)own_page * j.kv.n_kv_head + kv_head) * KV_PAGE + (p & 63);
        }
        if (!waited && !PACKETS) {
            pdl_wait();
            waited = true;
        }
#pragma unroll 1
        for (int h = w; h < n + 2 * tail; h += R) {
            float y[D / 32];
            head_values<D, PACKETS, MORE>(y, j,
                                          h < n    ? j.q_col + (head0 + h) * dk
                                          : h == n ? j.k_col + kv_head * dk
                                                   : j.v_col + kv_head * dv,
                                          h < n    ? j.q_norm
                                          : h == n ? j.k_norm
                                                   : NULL,
                                          h <= n, it.row, h <= n ? dk : dv, PACKETS ? tag : 0,
                                          MORE && j.v_norm && h > n,
                                          MORE && h < n ? query_factor(j, p) : 1.f);
            if (h < n) {
                if constexpr (T > KV_Q8_0) kv_turn_head(y, kv_block(dk));
#pragma unroll
                for (int i = 0; i < D / 32; i++) {
                    __half *to_q = (__half *)(qs + h * A::row) + i * 32 + lane;
                    *to_q = __float2half(y[i]);
                    if (A::parts == 2) to_q[8 * A::row / 2] = __float2half(y[i] - __half2float(*to_q));
                }
            } else
                put_row<D, T>(own + (h - n) * A::own_row, y, h == n ? dk : dv);
        }
        __syncthreads();
        if (tail && chunk == 0 && it.part == 0) {
            copy_row<KV_Q8_0>(j.kv.k + own_place * row_k, own, row_k, threadIdx.x, R * 32);
            copy_row<KV_Q8_0>(j.kv.v + own_place * row_v, own + A::own_row, row_v, threadIdx.x, R * 32);
        }
        // columns beyond the item's heads are never read back: any values do
        uint32_t q[A::parts][D / 32][4];
#pragma unroll
        for (int h = 0; h < A::parts; h++)
#pragma unroll
            for (int i = 0; i < D / 32; i++)
                ldmatrix4(q[h][i],
                          smem_address(qs) + (h * 8 + (lane & 7)) * A::row + (lane >> 3) * 16 + i * 64);
        // as the warps w, w + R, ..; those without keys are left out of a crowd's sums
        const int n_as = CROWD ? min(W, (it.end - it.key + 15) >> 4) : W;
        int as = w;
#pragma unroll 1
        do {
            float o[D / 16][4], m0 = -1e30f, m1 = -1e30f, l0 = 0, l1 = 0; // of heads 2 tig and 2 tig + 1
            uint32_t pr[A::parts][2];
#pragma unroll
            for (int i = 0; i < D / 16; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
#pragma unroll 1
            for (int key = it.key + as * 16; key < it.end; key += W * 16)
#pragma unroll 1
                for (int v = 0; v < 2; v++) {
                    cp_wait<S - 1>();
                    __syncwarp();
                    uint8_t *raw = ring + slot * A::raw;
                    const int bytes = v ? row_v : row_k;
                    if (tail && key + 16 > p) {
                        copy_row<T>(raw + (p & 15) * (T == KV_F16 ? A::row : bytes), own + v * A::own_row,
                                    bytes, lane, 32);
                        __syncwarp();
                    }
                    widen<D, T>(wide, raw, v ? dv : dk, bytes);
                    const uint32_t tile = smem_address(T == KV_F16 ? raw : wide);
                    float s[2][4] = {};
                    if (!v) { // scores: keys are the rows of A, heads the columns of B
                        const uint32_t at = tile + (lane & 15) * A::row + (lane >> 4) * 16;
#pragma unroll
                        for (int i = 0; i < D / 16; i++)
#pragma unroll
                            for (int h = 0; h < A::parts; h++) {
                                uint32_t a[4];
                                ldmatrix4(a, at + h * A::tile + i * 32);
#pragma unroll
                                for (int k = 0; k < A::parts - h; k++)
                                    mma_f16(s[i & 1], a[0], a[1], a[2], a[3], q[k][i >> 1][(i & 1) * 2],
                                            q[k][i >> 1][(i & 1) * 2 + 1]);
                            }
                    } else { // out: dims are the rows of A
                        const uint32_t at =
                            tile + ((lane & 7) + (lane >> 4) * 8) * A::row + (lane >> 3 & 1) * 16;
#pragma unroll
                        for (int i = 0; i < D / 16; i++)
#pragma unroll
                            for (int h = 0; h < A::parts; h++) {
                                uint32_t a[4];
                                ldmatrix4_t(a, at + h * A::tile + i * 32);
#pragma unroll
                                for (int k = 0; k < A::parts - h; k++)
                                    mma_f16(o[i], a[0], a[1], a[2], a[3], pr[k][0], pr[k][1]);
                            }
                    }
                    __syncwarp();
                    fetch(slot);
                    slot = slot + 1 == S ? 0 : slot + 1;
                    if (v) continue;
                    float x[4];
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int at = key + (e >> 1) * 8 + gid;
                        x[e] = (s[0][e] + s[1][e]) * j.scale;
                        if (j.softcap > 0) x[e] = j.softcap * tanh_fast(x[e]);
                        x[e] = at <= p && at >= first ? x[e] : -1e30f;
                    }
                    float x0 = fmaxf(x[0], x[2]), x1 = fmaxf(x[1], x[3]);
                    if (__any_sync(~0u, x0 > m0 || x1 > m1)) {
#pragma unroll
                        for (int b = 4; b < 32; b <<= 1) {
                            x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, b));
                            x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, b));
                        }
                        x0 = fmaxf(m0, x0);
                        x1 = fmaxf(m1, x1);
                        const float f0 = exp2_fast(m0 - x0), f1 = exp2_fast(m1 - x1);
                        m0 = x0, m1 = x1;
                        l0 *= f0, l1 *= f1;
#pragma unroll
                        for (int i = 0; i < D / 16; i++)
                            o[i][0] *= f0, o[i][1] *= f1, o[i][2] *= f0, o[i][3] *= f1;
                    }
#pragma unroll
                    for (int t = 0; t < 2; t++) { // weights: keys to the rows of B
                        const float a = exp2_fast(x[2 * t] - m0), c = exp2_fast(x[2 * t + 1] - m1);
                        l0 += a, l1 += c;
                        const uint32_t high = pack_half2(a, c);
                        pr[0][t] = transpose8(high);
                        if (A::parts == 2) {
                            const float2 h = half2_bits(high);
                            pr[A::parts - 1][t] = transpose8(pack_half2(a - h.x, c - h.y));
                        }
                    }
                }
#pragma unroll
            for (int b = 4; b < 32; b <<= 1) {
                l0 += __shfl_xor_sync(~0u, l0, b);
                l1 += __shfl_xor_sync(~0u, l1, b);
            }
            if constexpr (T > KV_Q8_0) turn_sums(o, kv_block(dv));
            float *st = ms + 2 * tig * W + as;
            if (gid == 0) st[0] = m0, st[W] = m1, st[8 * W] = l0, st[9 * W] = l1;
            float *r = so + as * lay.out_warp + 2 * tig * P + gid;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                if (2 * tig < n) r[i * 16] = o[i][0], r[i * 16 + 8] = o[i][2];
                if (2 * tig + 1 < n) r[P + i * 16] = o[i][1], r[P + i * 16 + 8] = o[i][3];
            }
        } while (CROWD && (as += R) < n_as);
        __syncthreads();

        // the warps' parts in order; then, if there are several splits, the splits in order
        const bool whole = it.n_split == 1;
        const int part_row = dv + 4, cols = n * dv;
        float *part = j.part + ((size_t)it.row * j.n_head + head0) * j.max_split * part_row;
        auto sink = [&](int h, float m) {
            return j.sinks ? exp2_fast(j.sinks[head0 + h] * 1.4426950408889634f - m) : 0.f;
        };
        auto give = [&](int i, float y) {
            const int col = head0 * dv + i;
            if (PACKETS)
                give_one<32>(j, col & ~31, y, tag);
            else if (j.give == GIVE_RECORD)
                put_act_int8<32>(j, col, y);
            else
                put_column<true>(j, it.row, it.row, col, y);
        };
#pragma unroll 1
        for (int h = w; h < n; h += R) {
            const bool has = !CROWD || (lane & (W - 1)) < n_as;
            float m = has ? ms[h * W + (lane & (W - 1))] : -1e30f, l = has ? ls[h * W + (lane & (W - 1))] : 0;
            const float f = merge_parts(m, l, W);
            share[h * 32 + lane] = whole ? __fdividef(f, l + sink(h, m)) : f;
            if (!whole && lane == 0)
                __stcg((float2 *)(part + (h * j.max_split + it.split) * part_row + dv), make_float2(m, l));
        }
        __syncthreads();
        constexpr int STEP = R * 32, PAIR = 2; // columns of a thread at a time
#pragma unroll 1
        for (int i = threadIdx.x; i < cols; i += PAIR * STEP) {
            float y[PAIR] = {};
#pragma unroll
            for (int u = 0; u < PAIR; u++) {
                const int c = i + u * STEP < cols ? i + u * STEP : i, h = __umulhi(c, j.dv_inverse);
                const float *f = share + h * 32, *from = so + h * P + c - h * dv;
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (!CROWD || k < n_as) y[u] = fmaf(f[k], from[k * lay.out_warp], y[u]);
                if (!whole && i + u * STEP < cols)
                    __stcg(part + (h * j.max_split + it.split) * part_row + c - h * dv, y[u]);
            }
#pragma unroll
            for (int u = 0; u < PAIR; u++)
                if (whole && i + u * STEP < cols) give(i + u * STEP, y[u]);
        }
        if (whole || A::apart) continue;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            int *a = j.arrived + it.row * j.n_item_head + it.head;
            last = atomicAdd(a, 1) == it.n_split - 1;
            if (last) *a = 0;
            __threadfence();
        }
        __syncthreads();
        if (!last) continue;
        bool known = false;
#pragma unroll 1
        for (int i0 = 0; i0 < cols; i0 += PAIR * STEP) {
            constexpr int GROUP = 16; // splits that are asked for at once
            float y[PAIR] = {};
#pragma unroll 1
            for (int k0 = 0; k0 < it.n_split; k0 += GROUP) {
                float v[PAIR][GROUP];
                const float *f[PAIR];
#pragma unroll
                for (int u = 0; u < PAIR; u++) {
                    const int i = i0 + threadIdx.x + u * STEP, c = i < cols ? i : 0,
                              h = __umulhi(c, j.dv_inverse);
                    const float *from = part + (h * j.max_split + k0) * part_row + c - h * dv;
                    f[u] = share + h * 32 + k0;
#pragma unroll
                    for (int k = 0; k < GROUP; k++)
                        v[u][k] = k0 + k < it.n_split ? __ldcg(from + k * part_row) : 0.f;
                }
                if (!known) {
#pragma unroll 1
                    for (int h = w; h < n; h += R) {
                        float2 ml = make_float2(-1e30f, 0);
                        if (lane < it.n_split)
                            ml = __ldcg((const float2 *)(part + (h * j.max_split + lane) * part_row + dv));
                        const float f = merge_parts(ml.x, ml.y, 32);
                        share[h * 32 + lane] = __fdividef(f, ml.y + sink(h, ml.x));
                    }
                    __syncthreads();
                    known = true;
                }
#pragma unroll
                for (int u = 0; u < PAIR; u++)
#pragma unroll
                    for (int k = 0; k < GROUP; k++) y[u] = fmaf(f[u][k], v[u][k], y[u]);
            }
#pragma unroll
            for (int u = 0; u < PAIR; u++)
                if (i0 + (int)threadIdx.x + u * STEP < cols) give(i0 + threadIdx.x + u * STEP, y[u]);
        }
    }
    if (!waited) pdl_wait();
}

template <int D, int T, bool MORE>
__global__ void __launch_bounds__(64) attend_put_kernel(const __grid_constant__ attend_job j) {
    __shared__ __align__(16) uint8_t own[2][attend_shape<D, T>::own_row];
    const int row = blockIdx.y, head = blockIdx.x, v = threadIdx.x >> 5, dim = v ? j.kv.dv : j.kv.dk;
    pdl_trigger();
    pdl_wait();
    if (row >= j.t.step->n_row) return;
    const int bytes = kv_bytes((enum kv_type)T, dim);
    float y[D / 32];
    head_values<D, false, MORE>(y, j, (v ? j.v_col : j.k_col) + head * dim, v ? NULL : j.k_norm, !v, row, dim,
                                0, MORE && v && j.v_norm);
    put_row<D, T>(own[v], y, dim);
    __syncwarp();
    copy_row<KV_Q8_0>((v ? j.kv.v : j.kv.k) + kv_row(j.kv, j.t.slot[row], j.t.pos[row], head) * bytes, own[v],
                      bytes, threadIdx.x & 31, 32);
}

// What the host knows of an instance.
struct attend_kernel {
    int d;
    enum kv_type type;
    int warps;
    bool apart;                                                    // attend_merge_launch follows
    void (*decode[2])(const attend_job), (*put)(const attend_job); // decode: without and with packets
    size_t (*bytes)(int rep, int n_row, bool one);
    void (*crowd)(const attend_job); // for many items; NULL: none
    size_t (*crowd_bytes)(int rep, int n_row, bool one);
};

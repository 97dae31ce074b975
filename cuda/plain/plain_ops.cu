// The plain kernels: one operation of backend.h each, float32 rows, any shape and format. They carry what no fused
// kernel takes and are what --no-fuse runs. A row's sums have one order, whatever the number of rows.
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"

DEV int row_id(const dev_tables &t, int r) {
    int id = t.id[r];
    return id < 0 ? t.slot_last[t.slot[r]] : id;
}
template <int W>
DEV float block_sum(float v, float *tmp) // W warps
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) tmp[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < W; i++) v += tmp[i];
    __syncthreads();
    return v;
}

// ---- embed
__global__ void embed_kernel(dev_tables t, dev_input in, dev_matrix w, rows out, float scale) {
    int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= t.step->n_row || i >= out.width) return;
    const int at = in.at ? in.at[r] : -1, id = row_id(t, r);
    out.p[r * out.stride + i] = at >= 0    ? in.rows[at * in.width + i]
                                : w.region ? scale * matrix_value(w, id < w.n ? id : 0, i)
                                           : 0.f; // a first step, of warm.cu
}
cudaError_t op_embed_run(dev_tables t, dev_input in, dev_matrix w, rows out, float scale, int n, op_queue s) {
    return op_launch(embed_kernel, dim3((out.width + 255) / 256, n), 256, s, t, in, w, out, scale);
}

// ---- norm: a block a group of dim elements, the first NORM_KEEP of each thread's in registers
enum { NORM_THREADS = 512, NORM_KEEP = 8 };
template <class F> DEV float norm_sum(const float (&v)[NORM_KEEP], const float *x, int dim, float *tmp, F f) {
    float a = 0;
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++)
        if (threadIdx.x + k * NORM_THREADS < dim) a += f(v[k]);
    for (int i = threadIdx.x + NORM_KEEP * NORM_THREADS; i < dim; i += NORM_THREADS) a += f(__ldcg(x + i));
    return block_sum<NORM_THREADS / 32>(a, tmp) / dim;
}
__global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(dev_tables t, rows x, rows out, enum norm_kind kind, int dim, float eps, const float *w,
                const float *b, int n_w, bool out_rows) {
    __shared__ float tmp[NORM_THREADS / 32];
    const int r = blockIdx.y, g = blockIdx.x, tid = threadIdx.x;
    if (w) w += g * dim % n_w;
    if (b) b += g * dim % n_w;
    float v[NORM_KEEP], wv[NORM_KEEP]; // weights depend on nothing
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        const int i = tid + k * NORM_THREADS;
        wv[k] = w && i < dim ? w[i] : 1.f;
    }
    op_begin();
    if (r >= row_count(t, out_rows)) return;
    const float *xp = x.p + r * x.stride + (size_t)g * dim;
    float *op = out.p + r * out.stride + (size_t)g * dim;
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        const int i = tid + k * NORM_THREADS;
        v[k] = i < dim ? __ldcg(xp + i) : 0.f;
    }
    const float mean = kind == NORM_LAYER ? norm_sum(v, xp, dim, tmp, [](float a) { return a; }) : 0.f;
    const float ss = norm_sum(v, xp, dim, tmp, [&](float a) { return (a - mean) * (a - mean); });
    const float rs = kind == NORM_NONE ? 1.f : 1.f / sqrtf(ss + eps);
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        const int i = tid + k * NORM_THREADS;
        if (i < dim) op[i] = (v[k] - mean) * rs * wv[k] + (b ? b[i] : 0.f);
    }
    for (int i = tid + NORM_KEEP * NORM_THREADS; i < dim; i += NORM_THREADS)
        op[i] = (__ldcg(xp + i) - mean) * rs * (w ? w[i] : 1.f) + (b ? b[i] : 0.f);
}
cudaError_t op_norm_run(dev_tables t, rows x, rows out, enum norm_kind kind, int dim, float eps,
                        const float *w, const float *b, int n_w, int n, bool out_rows, op_queue s) {
    return op_launch(norm_kernel, dim3(x.width / dim, n), NORM_THREADS, s, t, x, out, kind, dim, eps, w, b,
                     n_w, out_rows);
}

// ---- matmul: 64 x 64 outputs a block, 4 x 4 a thread, float32
enum { TILE = 64, TILE_K = 32 };
template <int L>
__global__ void __launch_bounds__(256)
    matmul_kernel(dev_tables t, dev_matrix w, rows x, rows out, bool out_rows) {
    __shared__ float ws[TILE_K][TILE + 4], xs[TILE_K][TILE + 4];
    const int n_row = row_count(t, out_rows), n0 = blockIdx.x * TILE, t0 = blockIdx.y * TILE;
    if (t0 >= n_row) return;
    const int tn = threadIdx.x & 15, tt = threadIdx.x >> 4;
    float acc[4][4] = {};
    w.layout = (enum layout)L;
    for (int k0 = 0; k0 < w.k; k0 += TILE_K) {
        for (int i = threadIdx.x; i < TILE * TILE_K; i += 256) {
            int n = i / TILE_K, k = i % TILE_K;
            ws[k][n] = n0 + n < w.n && k0 + k < w.k ? matrix_value(w, n0 + n, k0 + k) : 0.f;
            xs[k][n] = t0 + n < n_row && k0 + k < w.k ? x.p[(t0 + n) * x.stride + k0 + k] : 0.f;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < TILE_K; k++) {
            float4 a = *(const float4 *)&ws[k][tn * 4], b = *(const float4 *)&xs[k][tt * 4];
            const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(av[i], bv[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            int n = n0 + tn * 4 + i, r = t0 + tt * 4 + j;
            if (n < w.n && r < n_row)
                out.p[r * out.stride + n] = fmaf(acc[i][j], w.factor, w.bias ? w.bias[n] : 0.f);
        }
}
// ---- matmul of few rows: a block a row tile of W, its units shared out to 8 warps, T rows of x a launch
template <int L, int T>
__global__ void __launch_bounds__(256)
    few_kernel(dev_tables t, dev_matrix w, rows x, rows out, int first, int row0, bool out_rows) {
    using lane_of = few_lane<L>;
    __shared__ float part[8][16][T];
    const int n_row = row_count(t, out_rows) - row0, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (n_row <= 0) return;
    float acc[lane_of::n_row][T] = {};
    const uint8_t *tile = w.region + (size_t)(first + blockIdx.x) * w.u * layout_unit_bytes((enum layout)L);
    const float *at[T];
#pragma unroll
    for (int i = 0; i < T; i++) at[i] = x.p + (row0 + (i < n_row ? i : 0)) * x.stride;
    for (int u = warp; u < w.u; u += 8) {
        const int k0 = u * 256;
        lane_of::unit(tile + (size_t)u * layout_unit_bytes((enum layout)L), lane, [&](int n, int k, float v) {
            if (k0 + k < w.k)
#pragma unroll
                for (int i = 0; i < T; i++) acc[n][i] = fmaf(v, at[i][k0 + k], acc[n][i]);
        });
    }
#pragma unroll
    for (int n = 0; n < lane_of::n_row; n++)
#pragma unroll
        for (int i = 0; i < T; i++) {
            float v = acc[n][i];
#pragma unroll
            for (int o = 1; o < lane_of::share; o <<= 1) v += __shfl_xor_sync(~0u, v, o);
            if (lane % lane_of::share == 0) part[warp][lane_of::row(lane, n)][i] = v;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * T; i += 256) {
        int phys = (first + blockIdx.x) * 16 + i % 16 - w.base, in = phys % w.stride, r = i / 16;
        int n = phys / w.stride * w.inter + in % w.inter; // of gate and up together: up's rows behind gate's
        if (n >= w.n || r >= n_row) continue;
        n += in / w.inter * w.n;
        float v = 0.f;
        for (int k = 0; k < 8; k++) v += part[k][i % 16][r];
        out.p[(row0 + r) * out.stride + n] = fmaf(v, w.factor, w.bias ? w.bias[n] : 0.f);
    }
}
// Row tiles of the member; of gate and up, both.
template <int L>
static cudaError_t few(dev_tables t, dev_matrix w, rows x, rows out, int n, bool out_rows, op_queue s) {
    const int first = w.base / 16, last = w.base + (w.n - 1) / w.inter * w.stride + w.stride - 1;
    const unsigned tiles = (unsigned)(last / 16 - first + 1);
    for (int r = 0; r < n; r += 8) {
        if (n - r > 1)
            few_kernel<L, 8><<<tiles, 256, 0, s.stream>>>(t, w, x, out, first, r, out_rows);
        else
            few_kernel<L, 1><<<tiles, 256, 0, s.stream>>>(t, w, x, out, first, r, out_rows);
    }
    return cudaGetLastError();
}

cudaError_t op_matmul_run(dev_tables t, dev_matrix w, rows x, rows out, int n, bool out_rows, bool decode,
                          op_queue s) {
    dim3 grid((w.n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    switch (w.layout) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        if (decode) return few<LAYOUT_##id>(t, w, x, out, n, out_rows, s);                                   \
        matmul_kernel<LAYOUT_##id><<<grid, 256, 0, s.stream>>>(t, w, x, out, out_rows);                      \
        break;
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

// ---- rope: table[t][i] = mscale (cos, sin)(p * inv_freq[i]), p the row's position on the pair's axis
__global__ void rope_table_kernel(dev_tables t, dev_input in, const float *inv_freq, const int32_t *axis,
                                  int half, float mscale, float2 *table) {
    int r = blockIdx.x;
    op_begin();
    if (r >= t.step->n_row) return;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        double s, c;
        const int a = axis ? axis[i] : 0;
        sincos((double)(a ? in.axis[a - 1][r] : t.pos[r]) * (double)inv_freq[i], &s, &c);
        table[(size_t)r * half + i] = make_float2((float)(c * mscale), (float)(s * mscale));
    }
}
cudaError_t op_rope_table_run(dev_tables t, dev_input in, const float *inv_freq, const int32_t *axis,
                              int n_rot, float mscale, float2 *table, int n, op_queue s) {
    return op_launch(rope_table_kernel, n, 64, s, t, in, inv_freq, axis, n_rot / 2, mscale, table);
}
DEV void rope_pair(float *p, int i, int n_rot, bool neox, const float2 *table, int r) {
    const float2 c = __ldcg(table + (size_t)r * (n_rot / 2) + i);
    const int a = neox ? i : 2 * i, b = neox ? i + n_rot / 2 : 2 * i + 1;
    const float u = __ldcg(p + a), v = __ldcg(p + b);
    p[a] = u * c.x - v * c.y;
    p[b] = v * c.x + u * c.y;
}
__global__ void rope_kernel(dev_tables t, rows x, int head_dim, int n_rot, bool neox, const float2 *table) {
    int r = blockIdx.y, h = blockIdx.x;
    op_begin();
    if (r >= t.step->n_row) return;
    float *p = x.p + r * x.stride + (size_t)h * head_dim;
    for (int i = threadIdx.x; i < n_rot / 2; i += blockDim.x) rope_pair(p, i, n_rot, neox, table, r);
}
cudaError_t op_rope_run(dev_tables t, rows x, int n_head, int head_dim, int n_rot, bool neox,
                        const float2 *table, int n, op_queue s) {
    return op_launch(rope_kernel, dim3(n_head, n), 64, s, t, x, head_dim, n_rot, neox, table);
}

// ---- kv_put: a thread 32 elements
__global__ void kv_put_kernel(dev_tables t, dev_kv kv, rows k, rows v) {
    int r = blockIdx.x, nk = (kv.dk + 31) / 32, nv = (kv.dv + 31) / 32;
    op_begin();
    if (r >= t.step->n_row) return;
    for (int i = threadIdx.x; i < kv.n_kv_head * (nk + nv); i += blockDim.x) {
        int h = i / (nk + nv), b = i % (nk + nv);
        size_t row = kv_row(kv, t.slot[r], t.pos[r], h);
        if (b < nk)
            kv_store32(kv.type, kv.k + row * kv_bytes(kv.type, kv.dk), b, kv.dk,
                       k.p + r * k.stride + (size_t)h * kv.dk + b * 32);
        else
            kv_store32(kv.type, kv.v + row * kv_bytes(kv.type, kv.dv), b - nk, kv.dv,
                       v.p + r * v.stride + (size_t)h * kv.dv + (b - nk) * 32);
    }
}
cudaError_t op_kv_put_run(dev_tables t, dev_kv kv, rows k, rows v, int n, op_queue s) {
    return op_launch(kv_put_kernel, n, 128, s, t, kv, k, v);
}

// ---- rope of q and k and kv_put in one: a block a head of q, k or v
__global__ void heads_kernel(dev_tables t, heads_job j) {
    const int r = blockIdx.y, n_rot = j.n_rot, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int h = blockIdx.x;
    op_begin();
    if (r >= t.step->n_row) return;
    const bool is_q = h < j.n_head, is_v = h >= j.n_head + j.n_kv_head;
    if (!is_q) h -= is_v ? j.n_head + j.n_kv_head : j.n_head;
    const rows x = is_q ? j.q : is_v ? j.v : j.k;
    const int dim = is_v ? j.kv.dv : j.head_dim;
    float *p = x.p + r * x.stride + (size_t)h * dim;
    if (!is_v) {
        for (int i = threadIdx.x; i < n_rot / 2; i += blockDim.x) rope_pair(p, i, n_rot, j.neox, j.table, r);
        __syncthreads();
    }
    if (is_q) return;
    const size_t row = kv_row(j.kv, t.slot[r], t.pos[r], h);
    uint8_t *to = (is_v ? j.kv.v : j.kv.k) + row * kv_bytes(j.kv.type, dim);
    for (int b = warp; b * 32 < dim; b += blockDim.x / 32)
        kv_put32(j.kv.type, to, b, dim, b * 32 + lane < dim ? __ldcg(p + b * 32 + lane) : 0.f);
}
cudaError_t op_heads_run(dev_tables t, heads_job j, int n, op_queue s) {
    return op_launch(heads_kernel, dim3(j.n_head + 2 * j.n_kv_head, n), 64, s, t, j);
}

// ---- attend: a block a (row, head); running softmax over 128 keys at a time, dims up to 512. Scores: a thread a key;
// outputs: a warp every fourth key, added in the warps' order. Of types that are turned, so are the query and then the sums.
enum { ATTEND_KEYS = 128, ATTEND_WARPS = ATTEND_KEYS / 32, ATTEND_DIM = 512 };
// Elements 8 c .. of a row of a multiple of 8.
template <int T> DEV void kv_eight(float (&v)[8], const uint8_t *row, int c) {
    if (T == KV_F32) {
        *(float4 *)v = ((const float4 *)row)[2 * c];
        *(float4 *)(v + 4) = ((const float4 *)row)[2 * c + 1];
    } else if (T == KV_F16) {
        const uint4 x = ((const uint4 *)row)[c];
        const uint32_t two[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; i++) *(float2 *)(v + 2 * i) = half2_bits(two[i]);
    } else if constexpr (T > KV_Q8_0)
        kv_low_eight<T>(v, row, c);
    else
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = kv_load((enum kv_type)T, row, c * 8 + i);
}
// q times the key of one row
template <int T> DEV float key_score(const float *q, const uint8_t *row, int dk) {
    float s = 0;
    int i = 0;
    if (dk % 8 == 0)
#pragma unroll 4
        for (; i < dk; i += 8) {
            float k[8];
            kv_eight<T>(k, row, i >> 3);
#pragma unroll
            for (int e = 0; e < 8; e++) s = fmaf(q[i + e], k[e], s);
        }
    for (; i < dk; i++) s = fmaf(q[i], kv_load((enum kv_type)T, row, i), s);
    return s;
}
// The warps' sums over l.
template <int T> DEV void give_sums(float *out, float (&acc)[ATTEND_WARPS][ATTEND_DIM], int dv, float l) {
    float *to = T > KV_Q8_0 ? acc[0] : out;
    for (int d = threadIdx.x; d < dv; d += ATTEND_KEYS) {
        float s = 0;
        for (int i = 0; i < ATTEND_WARPS; i++) s += acc[i][d];
        to[d] = s / l;
    }
    if constexpr (T > KV_Q8_0) {
        __syncthreads();
        kv_turn_runs(to, dv, kv_block(dv), threadIdx.x >> 5, ATTEND_WARPS);
        __syncthreads();
        for (int d = threadIdx.x; d < dv; d += ATTEND_KEYS) out[d] = to[d];
    }
}
template <int T, bool BOTH> // BOTH: until is there
__global__ void __launch_bounds__(ATTEND_KEYS)
    attend_kernel(dev_tables t, dev_kv kv, rows q, rows out, attend_rule o, const int32_t *until) {
    __shared__ float qs[ATTEND_DIM], ps[ATTEND_KEYS], tmp[ATTEND_WARPS], acc[ATTEND_WARPS][ATTEND_DIM];
    __shared__ size_t place[ATTEND_KEYS];
    __shared__ int begin; // the first position that the row sees
    const int r = blockIdx.y, h = blockIdx.x, g = h / (o.n_head / kv.n_kv_head), tid = threadIdx.x,
              w = tid >> 5;
    op_begin();
    if (r >= t.step->n_row) return;
    const int slot = t.slot[r], pos = t.pos[r], last = BOTH ? max(pos, until[r]) : pos;
    if (!tid) // a division, whose registers the loop has no room for
        begin = o.window <= 0 ? 0 : o.chunked ? pos - pos % o.window : max(0, pos - o.window + 1);
    float scale = o.scale;
    if (o.temp_beta != 0.f)
        scale *= 1.f + o.temp_beta * logf((float)(1 + (pos + o.temp_offset) / o.temp_len));
    for (int i = tid; i < kv.dk; i += ATTEND_KEYS)
        qs[i] = __ldcg(q.p + r * q.stride + (size_t)h * kv.dk + i) * scale;
    for (int d = tid & 31; d < kv.dv; d += 32) acc[w][d] = 0;
    float m = o.sinks ? o.sinks[h] : -INFINITY, l = o.sinks ? 1.f : 0.f;
    __syncthreads();
    if constexpr (T > KV_Q8_0) {
        kv_turn_runs(qs, kv.dk, kv_block(kv.dk), w, ATTEND_WARPS);
        __syncthreads();
    }
    const size_t bk = kv_bytes((enum kv_type)T, kv.dk), bv = kv_bytes((enum kv_type)T, kv.dv);
    for (int p0 = begin; p0 <= last; p0 += ATTEND_KEYS) {
        const int p = p0 + tid, n = min((int)ATTEND_KEYS, last - p0 + 1);
        float a = -INFINITY;
        if (p <= last) {
            const size_t at = kv_row(kv, slot, p, g);
            const float s = key_score<T>(qs, kv.k + at * bk, kv.dk);
            a = o.softcap > 0 ? o.softcap * tanhf(s / o.softcap) : s;
            place[tid] = at;
        }
        float mx = warp_max(a);
        if ((tid & 31) == 0) tmp[w] = mx;
        __syncthreads();
        mx = fmaxf(fmaxf(tmp[0], tmp[1]), fmaxf(tmp[2], tmp[3]));
        __syncthreads();
        const float mn = fmaxf(m, mx), f = m == -INFINITY ? 0.f : expf(m - mn),
                    e = p <= last ? expf(a - mn) : 0.f;
        ps[tid] = e;
        l = l * f + block_sum<ATTEND_WARPS>(e, tmp); // the barriers inside also order ps and place
        m = mn;
        for (int d = tid & 31; d < kv.dv; d += 32) {
            float s = acc[w][d] * f;
#pragma unroll 8
            for (int k = w; k < n; k += ATTEND_WARPS)
                s = fmaf(ps[k], kv_load((enum kv_type)T, kv.v + place[k] * bv, d), s);
            acc[w][d] = s;
        }
        __syncthreads();
    }
    give_sums<T>(out.p + r * out.stride + (size_t)h * kv.dv, acc, kv.dv, l);
}
template <bool BOTH>
static cudaError_t attend(dev_tables t, dev_kv kv, rows q, rows out, attend_rule a, const int32_t *until,
                          int n, op_queue s) {
    static void (*const kernels[])(dev_tables, dev_kv, rows, rows, attend_rule, const int32_t *) = {
        attend_kernel<KV_F32, BOTH>, attend_kernel<KV_F16, BOTH>,  attend_kernel<KV_Q8_0, BOTH>,
        attend_kernel<KV_F8, BOTH>,  attend_kernel<KV_Q5_0, BOTH>, attend_kernel<KV_Q4_0, BOTH>};
    return op_launch(kernels[kv.type], dim3(a.n_head, n), ATTEND_KEYS, s, t, kv, q, out, a, until);
}
cudaError_t op_attend_run(dev_tables t, dev_kv kv, rows q, rows out, attend_rule a, int n, op_queue s) {
    return attend<false>(t, kv, q, out, a, NULL, n, s);
}
cudaError_t op_attend_both_run(dev_tables t, dev_kv kv, rows q, rows out, attend_rule a, const int32_t *until,
                               int n, op_queue s) {
    return attend<true>(t, kv, q, out, a, until, n, s);
}

// ---- glu, add, rows
// of those that no fused kernel knows, too
DEV float act_any(int act, const act_numbers &k, float x) {
    if (act == ACT_ROOT) return x == 0 ? x : copysignf(sqrtf(fmaxf(fabsf(x), k.eps)), x);
    if (act == ACT_CAP) return k.limit * tanhf(x / k.limit);
    if (act == ACT_SCALE) return k.limit * x;
    if (act == ACT_SIGMOID) return 1.f / (1.f + expf(-x));
    if (act == ACT_CLAMP) return x > k.limit ? k.limit : x < k.beta ? k.beta : x;
    if (act == ACT_XIELU)
        return fmaf(k.beta, x, x > 0 ? k.alpha * x * x : k.alpha_n * (expm1f(x > k.eps ? k.eps : x) - x));
    if (act == ACT_SILU_LIMIT) {
        x = x > k.limit ? k.limit : x;
        return x / (1.f + expf(-x));
    }
    if (act == ACT_GELU_ERF) return 0.5f * x * (1.f + erff(x * 0.7071067811865476f));
    if (act == ACT_SOFTPLUS) return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    if (act == ACT_SILU_CLAMP) {
        const float y = x / (1.f + expf(-x));
        return y > k.limit ? k.limit : y;
    }
    return act_apply(act, x);
}
// x between -limit and limit; NaN stays
DEV float act_within(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }
__global__ void glu_kernel(dev_tables t, rows gate, rows up, rows out, int act, act_numbers k,
                           bool out_rows) {
    int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= row_count(t, out_rows) || i >= out.width) return;
    const int each = gate.width < out.width ? out.width / gate.width : 1; // of out for a number of the gate
    const float x = __ldcg(gate.p + r * gate.stride + i / each);
    float u = up.p ? __ldcg(up.p + r * up.stride + i) : 1.f;
    if (act == ACT_SWIGLU_OAI) {
        const float g = x > k.limit ? k.limit : x;
        out.p[r * out.stride + i] =
            g / (1.f + expf(-k.alpha * g)) * (up.p ? act_within(u, k.limit) + 1.f : 1.f);
        return;
    }
    if ((act == ACT_SILU_CLAMP || act == ACT_SILU_LIMIT) && up.p) u = act_within(u, k.limit);
    out.p[r * out.stride + i] = act_any(act, k, x) * u;
}
cudaError_t op_glu_run(dev_tables t, rows gate, rows up, rows out, int act, act_numbers k, int n,
                       bool out_rows, op_queue s) {
    return op_launch(glu_kernel, dim3((out.width + 255) / 256, n), 256, s, t, gate, up, out, act, k,
                     out_rows);
}
__global__ void position_kernel(dev_tables t, rows x, const float *table) {
    int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= t.step->n_row || i >= x.width) return;
    float *p = x.p + r * x.stride + i;
    *p = __ldcg(p) + table[(size_t)t.pos[r] * x.width + i];
}
cudaError_t op_position_run(dev_tables t, rows x, const float *table, int n, op_queue s) {
    return op_launch(position_kernel, dim3((x.width + 255) / 256, n), 256, s, t, x, table);
}
__global__ void add_kernel(dev_tables t, rows a, rows b, rows out, bool out_rows) {
    int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= row_count(t, out_rows) || i >= out.width) return;
    out.p[r * out.stride + i] = __ldcg(a.p + r * a.stride + i) + __ldcg(b.p + r * b.stride + i);
}
cudaError_t op_add_run(dev_tables t, rows a, rows b, rows out, int n, bool out_rows, op_queue s) {
    return op_launch(add_kernel, dim3((out.width + 255) / 256, n), 256, s, t, a, b, out, out_rows);
}
__global__ void rows_kernel(dev_tables t, rows x, rows out) {
    int j = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (j >= t.step->n_out || i >= out.width) return;
    out.p[j * out.stride + i] = __ldcg(x.p + t.out_row[j] * x.stride + i);
}
cudaError_t op_rows_run(dev_tables t, rows x, rows out, int n, op_queue s) {
    return op_launch(rows_kernel, dim3((out.width + 255) / 256, n), 256, s, t, x, out);
}

__global__ void input_kernel(dev_tables t, dev_input in, int from, rows out) {
    int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (r >= t.step->n_row || i >= out.width) return;
    out.p[r * out.stride + i] = in.at[r] < 0 ? 0.f : in.rows[in.at[r] * in.width + from + i];
}
cudaError_t op_input_run(dev_tables t, dev_input in, int from, rows out, int n, op_queue s) {
    return op_launch(input_kernel, dim3((out.width + 255) / 256, n), 256, s, t, in, from, out);
}
__global__ void merge_kernel(dev_tables t, rows x, rows out, int n, bool mean) {
    int j = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    op_begin();
    if (j >= t.step->n_out || i >= out.width) return;
    const int from = mean ? 0 : i / x.width, at = mean ? i : i % x.width;
    const float *p = x.p + (size_t)(j * n + from) * x.stride + at;
    float sum = __ldcg(p);
    for (int k = 1; mean && k < n; k++) sum += __ldcg(p + k * x.stride);
    out.p[j * out.stride + i] = mean ? sum / (float)n : sum;
}
cudaError_t op_merge_run(dev_tables t, rows x, rows out, int n_merged, bool mean, int n, op_queue s) {
    return op_launch(merge_kernel, dim3((out.width + 255) / 256, n), 256, s, t, x, out, n_merged, mean);
}

// ---- a page of a store
__global__ void kv_page_kernel(dev_kv kv, int page, float *k, float *v, bool write) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rows = kv.n_kv_head * KV_PAGE;
    if (i >= rows) return;
    size_t row = (size_t)page * rows + i;
    uint8_t *kp = kv.k + row * kv_bytes(kv.type, kv.dk), *vp = kv.v + row * kv_bytes(kv.type, kv.dv);
    if (write) {
        for (int b = 0; b < (kv.dk + 31) / 32; b++)
            kv_store32(kv.type, kp, b, kv.dk, k + (size_t)i * kv.dk + b * 32);
        for (int b = 0; b < (kv.dv + 31) / 32; b++)
            kv_store32(kv.type, vp, b, kv.dv, v + (size_t)i * kv.dv + b * 32);
    } else {
        for (int j = 0; j < kv.dk; j++) k[(size_t)i * kv.dk + j] = kv_load(kv.type, kp, j);
        for (int j = 0; j < kv.dv; j++) v[(size_t)i * kv.dv + j] = kv_load(kv.type, vp, j);
    }
}
cudaError_t kv_page_run(dev_kv kv, int page, float *k, float *v, bool write, cudaStream_t s) {
    kv_page_kernel<<<(kv.n_kv_head * KV_PAGE + 127) / 128, 128, 0, s>>>(kv, page, k, v, write);
    return cudaGetLastError();
}

// Decode attention: one query row a sequence over paged F16 keys and values.
//
// A work item is (row, key head, split of 512 positions); its warps take 16 keys at a time straight from the pages in
// mma fragment order: the query heads of the key head are rows of the A operand. Splits are cut at absolute positions,
// each leaves (max, sum, out); the last of a row's splits to arrive adds them in order, so the bits do not depend on
// who was last. Rope, QK-norm and, for a single row, the cache write happen here too: the keys of earlier steps are
// fetched before the dependency wait.
#include "attend.h"
#include "stream.cuh"
#include "weights.cuh"

enum { ATTEND_WARPS = 8, ATTEND_MAX_ROWS = 1024 };

struct kv_frag {
    uint4 k[8], v[8];
};
DEV uint4 load_kv(const void *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
// 16 keys from key on (all in one page); k: pool at this head's first page row, page_rows apart
template <int D> DEV void load_k(uint4 (&k)[D / 16], const uint8_t *rows, int key, int lane) {
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int j = 0; j < D / 32; j++)
            k[t * (D / 32) + j] = load_kv(rows + (size_t)((key & 63) + t * 8 + (lane >> 2)) * D * 2 +
                                          (j * 32 + (lane & 3) * 8) * 2);
}
template <int D> DEV void load_v(uint4 (&v)[D / 16], const uint8_t *rows, int key, int lane) {
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int h = 0; h < D / 64; h++)
            v[t * (D / 64) + h] =
                load_kv(rows + (size_t)((key & 63) + (t >> 1) * 8 + 2 * (lane & 3) + (t & 1)) * D * 2 +
                        (h * 64 + (lane >> 2) * 8) * 2);
}
// D rows 0..7 alone: rows 8..15 of A are zero
DEV void mma_top(float &c0, float &c1, uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1) {
    asm("{\n.reg .f32 x, y;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,x,y}, {%2,%3,%4,%5}, {%6,%7}, "
        "{%0,%1,%8,%8};\n}"
        : "+f"(c0), "+f"(c1)
        : "r"(a0), "r"(0), "r"(a2), "r"(0), "r"(b0), "r"(b1), "f"(0.f));
}

// One head of q or k: norm, rope, as halves to shared memory. tmp: D floats of this warp.
template <int D>
DEV void prepare_head(const attend_job &j, const float *src, const float *norm, int row, float *tmp,
                      __half *out) {
    const int lane = threadIdx.x & 31;
    const int half = j.n_rot / 2;
    float v[D / 32], ss = 0;
    float2 turn[D / 32]; // asked for together with the head: one round trip
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const int d = i * 32 + lane;
        v[i] = __ldcg(src + d);
        turn[i] = d < j.n_rot ? __ldcg(j.rope + (size_t)row * half + (j.neox ? d % half : d >> 1))
                              : make_float2(1, 0);
    }
#pragma unroll
    for (int i = 0; i < D / 32; i++) ss += v[i] * v[i];
    if (norm) {
        const float rs = 1.f / sqrtf(warp_sum(ss) / D + j.eps);
#pragma unroll
        for (int i = 0; i < D / 32; i++) v[i] = v[i] * rs * norm[i * 32 + lane];
    }
#pragma unroll
    for (int i = 0; i < D / 32; i++) tmp[i * 32 + lane] = v[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const int d = i * 32 + lane;
        float y = tmp[d];
        if (d < j.n_rot) {
            const int a = j.neox ? d % half : d >> 1;
            const bool second = j.neox ? d >= half : d & 1;
            const float2 c = turn[i];
            const float u = tmp[j.neox ? a : 2 * a], w = tmp[j.neox ? a + half : 2 * a + 1];
            y = second ? w * c.x + u * c.y : u * c.x - w * c.y;
        }
        out[d] = __float2half(y);
    }
    __syncwarp();
}

struct attend_item {
    int row, split, head;
};
// Work item i; false past the end. pos: positions of all rows.
DEV bool find_item(const attend_job &j, const int *pos, int n_row, int i, attend_item &it) {
    it.head = i % j.kv.n_kv_head;
    i /= j.kv.n_kv_head;
    for (int r = 0; r < n_row; r++) {
        const int n = pos[r] / CUDA_SPLIT + 1;
        if (i < n) {
            it.row = r;
            it.split = i;
            return true;
        }
        i -= n;
    }
    return false;
}

template <int D>
__global__ void __launch_bounds__(ATTEND_WARPS * 32, 2)
    attend_decode_kernel(const __grid_constant__ attend_job j) {
    constexpr int W = ATTEND_WARPS, P = D + 4; // P: floats of a partial result
    __shared__ __align__(16) float so[W][8][P];
    __shared__ __align__(16) __half qs[8][D], ks[D], vs[D];
    __shared__ int pos[ATTEND_MAX_ROWS];
    __shared__ int last;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, gid = lane >> 2, tig = lane & 3;
    pdl_trigger();
    const int n_row = j.put ? 1 : j.t.step->n_row;
    for (int i = threadIdx.x; i < n_row; i += W * 32) pos[i] = j.t.pos[i];
    __syncthreads();

    attend_item it;
    uint4 kr[D / 16], vr[D / 16];
    int item = blockIdx.x;
    bool more = find_item(j, pos, n_row, item, it), waited = false;
    const size_t page_bytes = (size_t)j.kv.n_kv_head * KV_PAGE * D * 2;
    auto k_rows = [&](int key) {
        const int page = j.kv.pages[j.t.slot[it.row] * j.kv.max_pages + (key >> 6)];
        return (size_t)page * page_bytes + (size_t)it.head * KV_PAGE * D * 2;
    };
    for (; more; item += gridDim.x, more = find_item(j, pos, n_row, item, it)) {
        const int p = pos[it.row], k0 = it.split * CUDA_SPLIT,
                  k1 = min(p + 1, k0 + CUDA_SPLIT); // keys k0 .. k1 - 1
        const bool tail = p < k0 + CUDA_SPLIT;      // holds the row's own key
        int key = k0 + w * 16;
        const bool early = waited || j.put; // other rows' keys may be on their way
        if (!early) {
            pdl_wait();
            waited = true;
        }
        if (key < k1) {
            const size_t at = k_rows(key);
            load_k<D>(kr, j.kv.k + at, key, lane);
            load_v<D>(vr, j.kv.v + at, key, lane);
        }
        if (!waited) {
            pdl_wait();
            waited = true;
        }
        // q, and the row's own k and v
        const float *src = j.qkv + it.row * j.qkv_row;
        const bool own = tail && j.put && threadIdx.x < D;
        const float own_v = own ? __ldcg(src + j.v_col + it.head * D + threadIdx.x) : 0.f;
        for (int h = w; h < j.n_rep + 1; h += W) {
            if (h < j.n_rep)
                prepare_head<D>(j, src + j.q_col + (it.head * j.n_rep + h) * D, j.q_norm, it.row,
                                &so[w][0][0], qs[h]);
            else if (tail && j.put)
                prepare_head<D>(j, src + j.k_col + it.head * D, j.k_norm, it.row, &so[w][0][0], ks);
        }
        if (own) vs[threadIdx.x] = __float2half(own_v);
        __syncthreads();
        if (own) {
            const size_t at = k_rows(p) + (size_t)((p & 63) * D + threadIdx.x) * 2;
            *(__half *)(j.kv.k + at) = ks[threadIdx.x];
            *(__half *)(j.kv.v + at) = vs[threadIdx.x];
        }
        // rows of A beyond the query heads are never read back: any finite values do
        const __half *q = qs[gid < j.n_rep ? gid : 0] + tig * 8;
        float o[D / 8][2], m = -1e30f, l = 0;
#pragma unroll
        for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = 0;
        for (; key < k1; key += W * 16) {
            if (key + 16 >
                p) { // the last keys of the row: its own comes from shared memory, nothing behind it counts
#pragma unroll
                for (int t = 0; t < 2; t++)
                    if (j.put && key + t * 8 + gid == p)
#pragma unroll
                        for (int i = 0; i < D / 32; i++)
                            kr[t * (D / 32) + i] = *(const uint4 *)&ks[i * 32 + tig * 8];
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    const int mine = key + (t >> 1) * 8 + 2 * tig + (t & 1);
#pragma unroll
                    for (int h = 0; h < D / 64; h++) {
                        if (j.put && mine == p) vr[t * (D / 64) + h] = *(const uint4 *)&vs[h * 64 + gid * 8];
                        if (mine > p) vr[t * (D / 64) + h] = make_uint4(0, 0, 0, 0);
                    }
                }
            }
            float s[2][2];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                s[t][0] = s[t][1] = 0;
#pragma unroll
                for (int i = 0; i < D / 32; i++) {
                    const uint4 k = kr[t * (D / 32) + i], a = *(const uint4 *)(q + i * 32);
                    mma_top(s[t][0], s[t][1], a.x, a.y, k.x, k.y);
                    mma_top(s[t][0], s[t][1], a.z, a.w, k.z, k.w);
                }
#pragma unroll
                for (int e = 0; e < 2; e++)
                    s[t][e] = key + t * 8 + 2 * tig + e <= p ? s[t][e] * j.scale : -1e30f;
            }
            const int next = key + W * 16;
            size_t at = 0;
            if (next < k1) {
                at = k_rows(next);
                load_k<D>(kr, j.kv.k + at, next, lane);
            }
            float mx = fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][0], s[1][1]));
            mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 1));
            mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 2));
            if (__any_sync(~0u, mx > m)) {
                const float mn = fmaxf(m, mx), f = exp2f(m - mn);
                m = mn;
                l *= f;
#pragma unroll
                for (int i = 0; i < D / 8; i++) o[i][0] *= f, o[i][1] *= f;
            }
            uint32_t pr[2];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const float a = exp2f(s[t][0] - m), c = exp2f(s[t][1] - m);
                l += a + c;
                pr[t] = pack_half2(a, c);
            }
#pragma unroll
            for (int h = 0; h < D / 64; h++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const uint32_t sel = i & 1 ? 0x7632 : 0x5410;
                    constexpr int N = D / 64;
                    mma_top(o[h * 8 + i][0], o[h * 8 + i][1], pr[0], pr[1],
                            __byte_perm(word_of(vr[0 * N + h], i >> 1), word_of(vr[1 * N + h], i >> 1), sel),
                            __byte_perm(word_of(vr[2 * N + h], i >> 1), word_of(vr[3 * N + h], i >> 1), sel));
                }
            if (next < k1) load_v<D>(vr, j.kv.v + at, next, lane);
        }
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        float *r = so[w][gid];
        if (tig == 0) r[D] = m, r[D + 1] = l;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) r[(i >> 3) * 64 + 8 * (2 * tig + e) + (i & 7)] = o[i][e];
        __syncthreads();

        // the warps' parts in order; then, if there are several splits, the splits in order
        const int n_split = p / CUDA_SPLIT + 1;
        float *part = j.part + ((size_t)it.row * j.n_head + it.head * j.n_rep) * j.max_split * P;
        bool finish = n_split == 1;
        for (int i = threadIdx.x; i < j.n_rep * D; i += W * 32) {
            const int h = i / D, d = i % D;
            float M = -1e30f, L = 0, O = 0;
            for (int k = 0; k < W; k++) M = fmaxf(M, so[k][h][D]);
            for (int k = 0; k < W; k++) {
                const float f = exp2f(so[k][h][D] - M);
                L += f * so[k][h][D + 1];
                O += f * so[k][h][d];
            }
            if (finish) {
                so[0][h][d] = O / L; // this thread alone reads and writes (h, d)
                continue;
            }
            float *pt = part + ((size_t)h * j.max_split + it.split) * P;
            __stcg(pt + d, O);
            if (d == 0) {
                __stcg(pt + D, M);
                __stcg(pt + D + 1, L);
            }
        }
        if (!finish) {
            __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                int *a = j.arrived + it.row * j.kv.n_kv_head + it.head;
                last = atomicAdd(a, 1) == n_split - 1;
                if (last) *a = 0;
                __threadfence();
            }
            __syncthreads();
            finish = last;
            for (int i = threadIdx.x; finish && i < j.n_rep * D; i += W * 32) {
                const int h = i / D, d = i % D;
                const float *pt = part + (size_t)h * j.max_split * P;
                float M = -1e30f, L = 0, O = 0;
                for (int k = 0; k < n_split; k++) M = fmaxf(M, __ldcg(pt + k * P + D));
#pragma unroll 4
                for (int k = 0; k < n_split; k++) {
                    const float f = exp2f(__ldcg(pt + k * P + D) - M);
                    L += f * __ldcg(pt + k * P + D + 1);
                    O += f * __ldcg(pt + k * P + d);
                }
                so[0][h][d] = O / L;
            }
        }
        __syncthreads();
        if (finish)
            for (int g = w; g < j.n_rep * D / 32; g += W) {
                const int h = g / (D / 32), d = g % (D / 32) * 32 + lane,
                          col = (it.head * j.n_rep + h) * D + d;
                const float y = so[0][h][d];
                uint8_t *xo = j.xo + it.row * j.xo_row;
                if (j.give == GIVE_RECORD)
                    put_record<32>(xo, col, y);
                else if (j.give == GIVE_HALF)
                    put_half(xo, col, y);
                else
                    put_bf16(xo, col, y);
            }
        __syncthreads();
    }
    if (!waited) pdl_wait();
}

template <int D>
__global__ void __launch_bounds__(64) attend_put_kernel(const __grid_constant__ attend_job j) {
    __shared__ float tmp[D];
    __shared__ __align__(16) __half ks[D];
    const int row = blockIdx.y, head = blockIdx.x, lane = threadIdx.x & 31;
    pdl_trigger();
    pdl_wait();
    if (row >= j.t.step->n_row) return;
    const float *src = j.qkv + row * j.qkv_row;
    const int p = j.t.pos[row], page = j.kv.pages[j.t.slot[row] * j.kv.max_pages + (p >> 6)];
    const size_t at = (((size_t)page * j.kv.n_kv_head + head) * KV_PAGE + (p & 63)) * D * 2;
    if (threadIdx.x < 32) {
        prepare_head<D>(j, src + j.k_col + head * D, j.k_norm, row, tmp, ks);
        for (int d = lane; d < D; d += 32) *(__half *)(j.kv.k + at + d * 2) = ks[d];
    } else
        for (int d = lane; d < D; d += 32)
            *(__half *)(j.kv.v + at + d * 2) = __float2half(__ldcg(src + j.v_col + head * D + d));
}

bool attend_fits(int dk, int dv, int n_rep, enum kv_type type, int n_rot) {
    return dk == dv && (dk == 64 || dk == 128) && n_rep <= 8 && type == KV_F16 && n_rot <= dk &&
           n_rot % 2 == 0;
}
cudaError_t attend_launch(const attend_job &j, int blocks, bool overlap, cudaStream_t s) {
    return launch_overlapped(j.kv.dk == 64 ? attend_decode_kernel<64> : attend_decode_kernel<128>, blocks,
                             ATTEND_WARPS * 32, 0, overlap, s, j);
}
cudaError_t attend_put_launch(const attend_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(j.kv.dk == 64 ? attend_put_kernel<64> : attend_put_kernel<128>,
                             dim3(j.kv.n_kv_head, n), 64, 0, overlap, s, j);
}
cudaError_t attend_prepare(void) {
    const void *k[] = {(const void *)attend_decode_kernel<64>, (const void *)attend_decode_kernel<128>,
                       (const void *)attend_put_kernel<64>, (const void *)attend_put_kernel<128>};
    for (const void *f : k) {
        cudaError_t e = cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}

// ---- embedding: a warp 32 columns; block x = units: the rope tables of the row
__global__ void embed_decode_kernel(const __grid_constant__ embed_job j) {
    const int row = blockIdx.y, units = gridDim.x - 1, lane = threadIdx.x & 31;
    if (row >= j.t.step->n_row) return;
    if ((int)blockIdx.x == units) {
        for (int r = 0; r < j.n_rope; r++)
            for (int i = threadIdx.x; i < j.rope[r].half; i += blockDim.x) {
                double s, c;
                sincos((double)j.t.pos[row] * (double)j.rope[r].inv_freq[i], &s, &c);
                j.rope[r].table[(size_t)row * j.rope[r].half + i] =
                    make_float2((float)(c * j.rope[r].mscale), (float)(s * j.rope[r].mscale));
            }
        return;
    }
    const int col = blockIdx.x * 256 + threadIdx.x, group = col >> 5;
    if (group * 32 >= j.w.k) return;
    int id = j.t.id[row];
    if (id < 0) id = j.t.slot_last[j.t.slot[row]];
    const int phys = j.w.base + id / j.w.inter * j.w.stride + id % j.w.inter;
    const uint8_t *u =
        j.w.region + ((size_t)(phys >> 4) * j.w.u + blockIdx.x) * layout_unit_bytes(j.w.layout);
    const float v = j.scale * unit_value(j.w.layout, u, phys & 15, threadIdx.x);
    j.res[row * j.res_row + col] = v;
    const float ss = warp_sum(v * v);
    if (lane == 0) j.square[row * j.square_row + group] = ss;
    if (j.give == GIVE_RECORD) put_record<32>(j.xo + row * j.xo_row, col, v * j.next_norm[col]);
}
cudaError_t embed_launch(const embed_job &j, int n, cudaStream_t s) {
    return launch_overlapped(embed_decode_kernel, dim3(j.w.u + 1, n), 256, 0, false, s, j);
}

// ---- norm of many rows to halves: the same arithmetic as the prologue of one row
template <int L>
__global__ void __launch_bounds__(256)
    norm_half_kernel(const __grid_constant__ mm_job j, uint8_t *out, size_t out_row) {
    __shared__ float rs_at;
    pdl_trigger();
    pdl_wait();
    const int t = blockIdx.x;
    if (j.row0 + t >= *j.n_row) return;
    const int row = j.rowmap ? j.rowmap[t] : t;
    if (threadIdx.x < 32) {
        const float v = rms_factor<4>(j, row);
        if (threadIdx.x == 0) rs_at = v;
    }
    __syncthreads();
    const float rs = rs_at;
    for (int c = threadIdx.x; c < j.k / 8; c += 256) norm_half8<L>(j, row, c, rs, out + t * out_row);
}
cudaError_t norm_half_launch(const mm_job &j, enum layout l, uint8_t *out, size_t out_row, int n,
                             cudaStream_t s) {
    return launch_overlapped(l == LAYOUT_F16 ? norm_half_kernel<LAYOUT_F16> : norm_half_kernel<LAYOUT_BF16>,
                             n, 256, 0, true, s, j, out, out_row);
}

// ---- the best of each row's candidates
__global__ void select_decode_kernel(dev_tables t, const float2 *cand, int n_cand, size_t cand_row,
                                     int32_t *token) {
    __shared__ float sv[8];
    __shared__ int si[8];
    pdl_trigger();
    pdl_wait();
    const int jr = blockIdx.x;
    if (jr >= t.step->n_out) return;
    float v = -INFINITY;
    int best = 0x7fffffff;
    for (int i = threadIdx.x; i < n_cand; i += 256) {
        const float2 c = __ldcg(cand + jr * cand_row + i);
        const int k = __float_as_int(c.y);
        if (c.x > v || (c.x == v && k < best)) v = c.x, best = k;
    }
    for (int o = 16; o; o >>= 1) {
        const float v2 = __shfl_xor_sync(~0u, v, o);
        const int k = __shfl_xor_sync(~0u, best, o);
        if (v2 > v || (v2 == v && k < best)) v = v2, best = k;
    }
    if ((threadIdx.x & 31) == 0) sv[threadIdx.x >> 5] = v, si[threadIdx.x >> 5] = best;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; i++)
        if (sv[i] > v || (sv[i] == v && si[i] < best)) v = sv[i], best = si[i];
    if (best == 0x7fffffff) best = 0; // no finite logit
    const bool wanted = t.want[jr] & 1;
    token[jr] = wanted ? best : -1;
    if (wanted) t.slot_last[t.slot[t.out_row[jr]]] = best;
}
cudaError_t select_launch(dev_tables t, const float2 *cand, int n_cand, size_t cand_row, int32_t *token,
                          int n, cudaStream_t s) {
    return launch_overlapped(select_decode_kernel, n, 256, 0, true, s, t, cand, n_cand, cand_row, token);
}

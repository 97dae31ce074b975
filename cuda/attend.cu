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
template <int OFFSET> DEV uint4 load_kv(const uint8_t *p) { // one address for all loads of a block of keys
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4 + %5];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "n"(OFFSET));
    return v;
}
// 16 keys from key on, all in one page; rows: this head's rows of the page. N: what is still to load
template <int D, int N = 0> DEV void load_k_at(uint4 (&k)[D / 16], const uint8_t *p) {
    if constexpr (N < D / 16) {
        k[N] = load_kv<N / (D / 32) * 8 * D * 2 + N % (D / 32) * 64>(p);
        load_k_at<D, N + 1>(k, p);
    }
}
template <int D> DEV void load_k(uint4 (&k)[D / 16], const uint8_t *rows, int key, int lane) {
    load_k_at<D>(k, rows + ((key & 63) + (lane >> 2)) * D * 2 + (lane & 3) * 16);
}
template <int D, int N = 0> DEV void load_v_at(uint4 (&v)[D / 16], const uint8_t *p) {
    if constexpr (N < D / 16) {
        constexpr int t = N / (D / 64), h = N % (D / 64);
        v[N] = load_kv<((t >> 1) * 8 + (t & 1)) * D * 2 + h * 128>(p);
        load_v_at<D, N + 1>(v, p);
    }
}
template <int D> DEV void load_v(uint4 (&v)[D / 16], const uint8_t *rows, int key, int lane) {
    load_v_at<D>(v, rows + ((key & 63) + 2 * (lane & 3)) * D * 2 + (lane >> 2) * 16);
}
// Transposes an 8 x 8 matrix of halves over the warp.
DEV uint32_t transpose8(uint32_t v) {
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
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
    if (j.wait) pdl_wait();
    const int n_row = j.t.step->n_row;
    for (int i = threadIdx.x; i < n_row; i += W * 32) pos[i] = j.t.pos[i];
    __syncthreads();

    attend_item it;
    uint4 kr[D / 16], vr[D / 16];
    int item = blockIdx.x;
    bool more = find_item(j, pos, n_row, item, it), waited = j.wait;
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
        size_t at = 0;
        if (key < k1) {
            at = k_rows(key);
            load_k<D>(kr, j.kv.k + at, key, lane);
            // V only to L2: its registers are wanted for q first
            if (lane * 128 < 16 * D * 2)
                prefetch_l2_line(j.kv.v + at + (size_t)(key & 63) * D * 2 + lane * 128);
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
        if (key < k1) load_v<D>(vr, j.kv.v + at, key, lane);
        // columns beyond the query heads are never read back: any finite values do
        const __half *q = qs[gid < j.n_rep ? gid : 0] + tig * 8;
        float o[D / 16][4], m0 = -1e30f, m1 = -1e30f, l0 = 0, l1 = 0; // of heads 2 tig and 2 tig + 1
#pragma unroll
        for (int i = 0; i < D / 16; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
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
            // scores: keys are the rows of A, heads the columns of B
            float s[4] = {};
#pragma unroll
            for (int i = 0; i < D / 32; i++) {
                const uint4 a = kr[i], c = kr[D / 32 + i], b = *(const uint4 *)(q + i * 32);
                mma_f16(s, a.x, c.x, a.y, c.y, b.x, b.y);
                mma_f16(s, a.z, c.z, a.w, c.w, b.z, b.w);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) s[e] = key + (e >> 1) * 8 + gid <= p ? s[e] * j.scale : -1e30f;
            const int next = key + W * 16;
            if (next < k1) {
                at = k_rows(next);
                load_k<D>(kr, j.kv.k + at, next, lane);
            }
            float x0 = fmaxf(s[0], s[2]), x1 = fmaxf(s[1], s[3]);
            if (__any_sync(~0u, x0 > m0 || x1 > m1)) {
#pragma unroll
                for (int b = 4; b < 32; b <<= 1) {
                    x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, b));
                    x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, b));
                }
                x0 = fmaxf(m0, x0);
                x1 = fmaxf(m1, x1);
                const float f0 = exp2f(m0 - x0), f1 = exp2f(m1 - x1);
                m0 = x0, m1 = x1;
                l0 *= f0, l1 *= f1;
#pragma unroll
                for (int i = 0; i < D / 16; i++) o[i][0] *= f0, o[i][1] *= f1, o[i][2] *= f0, o[i][3] *= f1;
            }
            uint32_t pr[2]; // weights: keys to the rows of B
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const float a = exp2f(s[2 * t] - m0), c = exp2f(s[2 * t + 1] - m1);
                l0 += a, l1 += c;
                pr[t] = transpose8(pack_half2(a, c));
            }
            // out: dims are the rows of A, i and i + 1 of 8 neighbours a tile
#pragma unroll
            for (int h = 0; h < D / 64; h++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    constexpr int N = D / 64;
                    const uint32_t a = word_of(vr[0 * N + h], i), b = word_of(vr[1 * N + h], i),
                                   c = word_of(vr[2 * N + h], i), d = word_of(vr[3 * N + h], i);
                    mma_f16(o[h * 4 + i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                            __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), pr[0], pr[1]);
                }
            if (next < k1) load_v<D>(vr, j.kv.v + at, next, lane);
        }
#pragma unroll
        for (int b = 4; b < 32; b <<= 1) {
            l0 += __shfl_xor_sync(~0u, l0, b);
            l1 += __shfl_xor_sync(~0u, l1, b);
        }
        float *r = so[w][2 * tig];
        if (gid == 0) r[D] = m0, r[D + 1] = l0, r[P + D] = m1, r[P + D + 1] = l1;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int d = (i >> 2) * 64 + gid * 8 + (i & 3) * 2;
            *(float2 *)(r + d) = make_float2(o[i][0], o[i][2]);
            *(float2 *)(r + P + d) = make_float2(o[i][1], o[i][3]);
        }
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
    // The step is read from the host's memory, where it was written just before this launch.
    const int seq = *j.next;
    const uint8_t *blob = j.ring + (size_t)(seq % CUDA_FLIGHT) * j.ring_row;
    auto host = [&](const void *dev) {
        return (const int32_t *)(blob + ((const uint8_t *)dev - (const uint8_t *)j.t.step));
    };
    const int row = blockIdx.y, units = gridDim.x - 1, lane = threadIdx.x & 31;
    const int n_row = ((const dev_step *)blob)->n_row, id_given = host(j.t.id)[row];
    if (row >= n_row) return;
    if ((int)blockIdx.x == units) {
        const int pos = host(j.t.pos)[row];
        if (threadIdx.x == 0) {
            dev_step *to = (dev_step *)j.t.step;
            const int n_out = ((const dev_step *)blob)->n_out;
            if (row == 0) *to = dev_step{n_row, n_out, seq};
            ((int32_t *)j.t.id)[row] = id_given;
            ((int32_t *)j.t.pos)[row] = pos;
            ((int32_t *)j.t.slot)[row] = host(j.t.slot)[row];
            if (row < n_out) {
                ((int32_t *)j.t.out_row)[row] = host(j.t.out_row)[row];
                ((int32_t *)j.t.want)[row] = host(j.t.want)[row];
            }
        }
        for (int r = 0; r < j.n_rope; r++)
            for (int i = threadIdx.x; i < j.rope[r].half; i += blockDim.x) {
                double s, c;
                sincos((double)pos * (double)j.rope[r].inv_freq[i], &s, &c);
                j.rope[r].table[(size_t)row * j.rope[r].half + i] =
                    make_float2((float)(c * j.rope[r].mscale), (float)(s * j.rope[r].mscale));
            }
        return;
    }
    const int col = blockIdx.x * 256 + threadIdx.x, group = col >> 5;
    if (group * 32 >= j.w.k) return;
    const int id = id_given < 0 ? j.t.slot_last[host(j.t.slot)[row]] : id_given;
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
    for (int c = threadIdx.x; c < j.k / 8; c += 256) {
        const float4 *a = (const float4 *)(j.res_in + row * j.res_row) + c * 2;
        norm_half8<L>(__ldcg(a), __ldcg(a + 1), (const float4 *)j.norm + c * 2, c, rs, out + t * out_row);
    }
}
cudaError_t norm_half_launch(const mm_job &j, enum layout l, uint8_t *out, size_t out_row, int n,
                             cudaStream_t s) {
    return launch_overlapped(l == LAYOUT_F16 ? norm_half_kernel<LAYOUT_F16> : norm_half_kernel<LAYOUT_BF16>,
                             n, 256, 0, true, s, j, out, out_row);
}

// ---- the best of each row's candidates
__global__ void select_decode_kernel(dev_tables t, const float2 *cand, int n_cand, size_t cand_row,
                                     int32_t *token, result_ring ring) {
    __shared__ float sv[8];
    __shared__ int si[8];
    pdl_trigger();
    pdl_wait();
    const int jr = blockIdx.x, seq = t.step->seq;
    if (jr == 0 && threadIdx.x == 0) *ring.next = seq + 1;
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
    ((int32_t *)(ring.host + (size_t)(seq % CUDA_FLIGHT) * ring.row))[jr] = wanted ? best : -1;
    if (wanted) t.slot_last[t.slot[t.out_row[jr]]] = best;
}
cudaError_t select_launch(dev_tables t, const float2 *cand, int n_cand, size_t cand_row, int32_t *token,
                          result_ring ring, int n, cudaStream_t s) {
    return launch_overlapped(select_decode_kernel, n, 256, 0, true, s, t, cand, n_cand, cand_row, token,
                             ring);
}

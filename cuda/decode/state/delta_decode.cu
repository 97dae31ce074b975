// One block a value head and sequence, or a cluster of four, each with 32 columns of the state: columns are independent of each other but
// for the norm behind them. A block has its part of the state in registers from before its wait to its end, through all rows of the
// sequence in the step; it is read once and written once. q and k are made in each block that needs them. Their channels' past is replaced
// by the last block of a key head to have read it, those of v by the block whose columns they are. Sums have the same order either way.
#include "cuda/decode/state/delta_decode.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/state/state_decode.cuh"

enum {
    DELTA_THREADS = 256,
    DELTA_COLS = 32,
    DELTA_SLICES = DELTA_DIM / DELTA_COLS,
    DELTA_PART = DELTA_DIM / 32
};

// SL: slices of 32 columns that a block has.
template <int SL> struct delta_shared {
    float q[DELTA_DIM], k[DELTA_DIM], v[SL * DELTA_COLS];
    float d[SL * DELTA_COLS]; // what the state gets is k' d^T
    float square[8], product[4];
    float4 part[2][8][SL * DELTA_COLS / 4];
    float norm[2][DELTA_SLICES]; // sums of squares of slices, of a row and of the one after it
    int last;
};
// The warps' parts of a column, in order.
template <int SL> DEV float delta_column(const delta_shared<SL> &m, int which, int col) {
    float y = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) y += ((const float *)m.part[which][w])[col];
    return y;
}
// Of the row in m: S^T k and S^T q of this thread's rows of the state, summed over the warp, for its four columns of a slice.
template <int SL> DEV void delta_products(delta_shared<SL> &m, const float4 (&s)[DELTA_PART], int slice) {
    const int tid = threadIdx.x, row = tid >> 3;
    float4 sum[2] = {};
#pragma unroll
    for (int i = 0; i < DELTA_PART; i++) {
        const float k = m.k[row + i * 32], q = m.q[row + i * 32];
        sum[0].x = fmaf(s[i].x, k, sum[0].x), sum[0].y = fmaf(s[i].y, k, sum[0].y);
        sum[0].z = fmaf(s[i].z, k, sum[0].z), sum[0].w = fmaf(s[i].w, k, sum[0].w);
        sum[1].x = fmaf(s[i].x, q, sum[1].x), sum[1].y = fmaf(s[i].y, q, sum[1].y);
        sum[1].z = fmaf(s[i].z, q, sum[1].z), sum[1].w = fmaf(s[i].w, q, sum[1].w);
    }
#pragma unroll
    for (int o = 8; o < 32; o <<= 1)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            sum[e].x += __shfl_xor_sync(~0u, sum[e].x, o);
            sum[e].y += __shfl_xor_sync(~0u, sum[e].y, o);
            sum[e].z += __shfl_xor_sync(~0u, sum[e].z, o);
            sum[e].w += __shfl_xor_sync(~0u, sum[e].w, o);
        }
    if ((tid & 31) < 8) {
        m.part[0][tid >> 5][slice * 8 + (tid & 7)] = sum[0];
        m.part[1][tid >> 5][slice * 8 + (tid & 7)] = sum[1];
    }
}

struct delta_row {
    float a, b, x, xv, z;
};
// What a block has of a value head h and of a sequence.
template <int SL> struct delta_block {
    static constexpr int blocks = DELTA_SLICES / SL; // of a head
    const delta_decode_job &j;
    delta_shared<SL> &m;
    int g, h, C, key_channel, col0, col; // col: of the first warps
    float4 s[SL][DELTA_PART];            // rows tid / 8 + 32 i, columns col0 + 32 slice + 4 (tid % 8) ..
    state_channel qk, v;

    MEM delta_block(const delta_decode_job &job, delta_shared<SL> &shared) : j(job), m(shared) {
        const int rep = j.n_value / j.n_key, tid = threadIdx.x;
        g = blockIdx.y / rep;
        h = j.tiled ? blockIdx.y % rep * j.n_key + g : blockIdx.y;
        C = (2 * j.n_key + j.n_value) * DELTA_DIM;
        key_channel = (tid < DELTA_DIM ? g : j.n_key + g) * DELTA_DIM + (tid & (DELTA_DIM - 1));
        col0 = blockIdx.x * SL * DELTA_COLS;
        col = h * DELTA_DIM + col0 + tid;
    }
    MEM bool writes() const { return threadIdx.x < SL * DELTA_COLS; }
    MEM int v_channel() const { return 2 * j.n_key * DELTA_DIM + col; }
    MEM float *conv(int slot) const { return j.conv + slot * j.conv_elem; }
    MEM float *state(int slot, int x, int i) const {
        return j.state + slot * j.state_elem +
               (size_t)(h * DELTA_DIM + (threadIdx.x >> 3) + i * 32) * DELTA_DIM + col0 + x * DELTA_COLS +
               (threadIdx.x & 7) * 4;
    }
    MEM void load(int slot, bool none) {
#pragma unroll
        for (int x = 0; x < SL; x++)
#pragma unroll
            for (int i = 0; i < DELTA_PART; i++)
                s[x][i] = none ? make_float4(0, 0, 0, 0) : __ldcg((const float4 *)state(slot, x, i));
        qk.load(j.conv_w, key_channel, conv(slot), C, none);
        if (writes()) v.load(j.conv_w, v_channel(), conv(slot), C, none);
    }
    // q, k and v of row r; x: its q or k, xv: its v.
    MEM void inputs(float x, float xv) {
        const int tid = threadIdx.x;
        const float y = qk.step(j.conv_w, j.conv_bias, key_channel, x), square = warp_sum(y * y);
        (tid < DELTA_DIM ? m.q : m.k)[tid & (DELTA_DIM - 1)] = y;
        if (writes()) m.v[tid] = v.step(j.conv_w, j.conv_bias, v_channel(), xv);
        if ((tid & 31) == 0) m.square[tid >> 5] = square;
    }
    // Behind the first row's inputs: the past of q and k is read.
    MEM void arrive(int first) {
        int *arrived = j.arrived + first * j.n_key + g;
        m.last = atomicAdd(arrived, 1) == j.n_value / j.n_key * blocks - 1;
        if (m.last) *arrived = 0;
    }
    MEM void products() {
        const int tid = threadIdx.x;
#pragma unroll
        for (int x = 0; x < SL; x++) delta_products<SL>(m, s[x], x);
        if (tid >= DELTA_DIM) return;
        const float p = warp_sum(m.q[tid] * m.k[tid]);
        if ((tid & 31) == 0) m.product[tid >> 5] = p;
    }
    // What the state gets and, returned, the output, of this thread's column; the sum of its warp's squares for the norm.
    MEM float output(int r, float decay, float beta) {
        const int tid = threadIdx.x, lane = tid & 31, slice = blockIdx.x * SL + (tid >> 5);
        const float *n = m.square;
        const float over_q = rsqrtf(n[0] + n[1] + n[2] + n[3] + 1e-6f) * 0.08838834764831845f,
                    over_k = rsqrtf(n[4] + n[5] + n[6] + n[7] + 1e-6f);
        const float d = (m.v[tid] - decay * over_k * delta_column<SL>(m, 0, tid)) * (over_k * beta),
                    product = m.product[0] + m.product[1] + m.product[2] + m.product[3];
        m.d[tid] = d;
        const float out = (decay * delta_column<SL>(m, 1, tid) + product * d) * over_q;
        const float sum = warp_sum(out * out);
        if (blocks > 1 && lane < blocks)
            cluster_store(smem_address(&m.norm[r & 1][slice]), lane, sum);
        else if (lane == 0)
            m.norm[r & 1][slice] = sum;
        return out;
    }
    // S = decay S + k d^T; into the slot, if it is not below 0.
    MEM void update(float decay, int slot) {
#pragma unroll
        for (int x = 0; x < SL; x++) {
            const float4 d = *(const float4 *)&m.d[x * DELTA_COLS + (threadIdx.x & 7) * 4];
#pragma unroll
            for (int i = 0; i < DELTA_PART; i++) {
                const float k = m.k[(threadIdx.x >> 3) + i * 32];
                s[x][i].x = fmaf(k, d.x, decay * s[x][i].x), s[x][i].y = fmaf(k, d.y, decay * s[x][i].y);
                s[x][i].z = fmaf(k, d.z, decay * s[x][i].z), s[x][i].w = fmaf(k, d.w, decay * s[x][i].w);
                if (slot >= 0) *(float4 *)state(slot, x, i) = s[x][i];
            }
        }
    }
    // What this thread reads of row r.
    MEM delta_row ask(int r) const {
        return delta_row{__ldcg(j.a + r * j.a_row + h), __ldcg(j.b + r * j.b_row + h),
                         __ldcg(j.x + r * j.x_row + key_channel),
                         writes() ? __ldcg(j.x + r * j.x_row + v_channel()) : 0.f,
                         writes() ? __ldcg(j.z + r * j.z_row + col) : 0.f};
    }
    // Row r, whose numbers are `in`; keep: the slot, if it is the sequence's last in the step, else -1.
    MEM void row(int r, const delta_row &in, bool first, int keep, float A, float dt) {
        const float a = in.a + dt, b = in.b, z = in.z;
        inputs(in.x, in.xv);
        __syncthreads();
        if (first && threadIdx.x == 0) arrive(r);
        products();
        const float decay = expf(A * (a > 20.f ? a : log1pf(__expf(a))));
        __syncthreads();
        const float out = writes() ? output(r, decay, __fdividef(1.f, 1.f + __expf(-b))) : 0.f;
        if (blocks > 1) cluster_arrive();
        __syncthreads();
        update(decay, keep);
        if (blocks > 1) cluster_wait();
        if (writes()) {
            const float *n = m.norm[r & 1], mean = (n[0] + n[1] + n[2] + n[3]) * (1.f / DELTA_DIM);
            state_give(j, r, col, out * rsqrtf(mean + j.eps) * j.norm[col0 + threadIdx.x] * state_silu(z));
        }
        if (keep < 0) __syncthreads();
    }
};

template <int SL>
__global__ void __launch_bounds__(DELTA_THREADS, SL == 1 ? 3 : 2)
    delta_decode_kernel(const __grid_constant__ delta_decode_job j) {
    __shared__ delta_shared<SL> m;
    delta_block<SL> d(j, m);
    int r = blockIdx.z;
    if (j.wait)
        pdl_wait(); // and only then may those behind begin: they look at the step without waiting for it
    pdl_trigger();
    const int n = j.t.step->n_row;
    if (r >= n || (r && j.t.slot[r - 1] == j.t.slot[r]))
        return;                         // the blocks of a sequence's first row do all
    if (d.blocks > 1) cluster_arrive(); // nobody writes into a block that has not begun
    const int slot = j.t.slot[r];
    d.load(slot, j.t.pos[r] == 0);
    const float A = j.A[d.h], dt = j.dt_bias[d.h];
    if (!j.wait) pdl_wait();
    if (d.blocks > 1) cluster_wait();
    delta_row in = d.ask(r);
    for (bool first = true, more = true; more; r++, first = false) {
        more = r + 1 < n && j.t.slot[r + 1] == slot;
        const delta_row next = more ? d.ask(r + 1) : in; // on its way while this one is computed
        d.row(r, in, first, more ? -1 : slot, A, dt);
        in = next;
    }
    if (d.writes()) d.v.store(d.conv(slot), d.v_channel(), d.C);
    if (m.last) d.qk.store(d.conv(slot), d.key_channel, d.C);
}

template <int SL>
static cudaError_t decode_launch(const delta_decode_job &j, int rows, bool overlap, cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2];
    c.gridDim = dim3(DELTA_SLICES / SL, j.n_value, rows);
    c.blockDim = DELTA_THREADS;
    c.stream = s;
    c.attrs = at;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = overlap;
    at[1].id = cudaLaunchAttributeClusterDimension;
    at[1].val.clusterDim.x = DELTA_SLICES / SL;
    at[1].val.clusterDim.y = at[1].val.clusterDim.z = 1;
    c.numAttrs = SL == DELTA_SLICES ? 1 : 2;
    return cudaLaunchKernelEx(&c, delta_decode_kernel<SL>, delta_decode_job(j));
}
cudaError_t delta_decode_launch(const delta_decode_job &j, int rows, int n_seq, bool overlap, int sm_count,
                                cudaStream_t s) {
    const int work = rows < n_seq ? rows : n_seq; // a sequence's rows come one after the other
    return work * j.n_value > sm_count ? decode_launch<4>(j, rows, overlap, s)
                                       : decode_launch<1>(j, rows, overlap, s);
}

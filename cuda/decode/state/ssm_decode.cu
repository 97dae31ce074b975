// One block a head and sequence; with a norm the heads of a group are a cluster, which tell each other their sums of squares. A block has its
// head's state [128][64] in registers from before its wait to its end, through all rows of the sequence in the step; it is read once and
// written once. B and C are made in each block that needs them; their channels' past is replaced by the last block of a group to have read it,
// that of x by the block whose columns they are.
#include "cuda/decode/state/ssm_decode.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/state/state_decode.cuh"

enum { SSM_THREADS = 256, SSM_QUADS = SSM_COLS / 4, SSM_ROWS = DELTA_DIM / (SSM_THREADS / SSM_QUADS) };

struct ssm_shared {
    float b[DELTA_DIM], c[DELTA_DIM], v[SSM_COLS];
    float4 part[SSM_THREADS / 32][SSM_QUADS];
    float norm[2][SSM_CLUSTER]; // sums of squares of heads, of a row and of the one after it
    float half[2];
    int last;
};

// What a block has of head h and of a sequence. A thread has four columns, and every 16th row of the state from tid / 16 on.
struct ssm_block {
    const ssm_decode_job &j;
    ssm_shared &m;
    int h, g, each, C, bc_channel, col; // each: heads of a group; col: of the first two warps
    float4 s[SSM_ROWS];
    state_channel bc, x;
    float4 bc_w, x_w; // of the convolution; read before the wait, as what follows
    float bc_bias, x_bias, norm;

    MEM ssm_block(const ssm_decode_job &job, ssm_shared &shared) : j(job), m(shared) {
        const int tid = threadIdx.x;
        h = blockIdx.x;
        each = j.n_head / j.n_group;
        g = h / each;
        C = j.n_head * SSM_COLS + 2 * j.n_group * DELTA_DIM;
        bc_channel =
            j.n_head * SSM_COLS + (tid < DELTA_DIM ? g : j.n_group + g) * DELTA_DIM + (tid & (DELTA_DIM - 1));
        col = h * SSM_COLS + tid;
    }
    MEM bool writes() const { return threadIdx.x < SSM_COLS; }
    MEM float *conv(int slot) const { return j.conv + slot * j.conv_elem; }
    MEM float4 *state(int slot, int i) const {
        return (float4 *)(j.state + slot * j.state_elem +
                          (size_t)(h * DELTA_DIM + threadIdx.x / SSM_QUADS + i * (SSM_THREADS / SSM_QUADS)) *
                              SSM_COLS) +
               threadIdx.x % SSM_QUADS;
    }
    MEM int row_of(int i) const { return threadIdx.x / SSM_QUADS + i * (SSM_THREADS / SSM_QUADS); }
    MEM void load(int slot, bool none) {
#pragma unroll
        for (int i = 0; i < SSM_ROWS; i++) s[i] = none ? make_float4(0, 0, 0, 0) : __ldcg(state(slot, i));
        bc.load(j.conv_w, bc_channel, conv(slot), C, none);
        bc_w = *(const float4 *)(j.conv_w + bc_channel * DELTA_TAPS);
        bc_bias = j.conv_bias ? j.conv_bias[bc_channel] : 0.f;
        x_w = make_float4(0, 0, 0, 0);
        x_bias = norm = 0;
        if (!writes()) return;
        x.load(j.conv_w, col, conv(slot), C, none);
        x_w = *(const float4 *)(j.conv_w + col * DELTA_TAPS);
        x_bias = j.conv_bias ? j.conv_bias[col] : 0.f;
        if (j.norm) norm = j.norm[g * j.norm_step + h % each * SSM_COLS + threadIdx.x];
    }
    // Behind the first row's inputs: the past of B and C is read.
    MEM void arrive(int first) {
        int *arrived = j.arrived + first * j.n_group + g;
        m.last = atomicAdd(arrived, 1) == each - 1;
        if (m.last) *arrived = 0;
    }
    // S = decay S + B v^T, and what C makes of it, summed over the warp.
    MEM void update(float decay, int slot) {
        const float4 v = *(const float4 *)&m.v[threadIdx.x % SSM_QUADS * 4];
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < SSM_ROWS; i++) {
            const float b = m.b[row_of(i)], c = m.c[row_of(i)];
            s[i].x = fmaf(b, v.x, decay * s[i].x), s[i].y = fmaf(b, v.y, decay * s[i].y);
            s[i].z = fmaf(b, v.z, decay * s[i].z), s[i].w = fmaf(b, v.w, decay * s[i].w);
            y.x = fmaf(s[i].x, c, y.x), y.y = fmaf(s[i].y, c, y.y);
            y.z = fmaf(s[i].z, c, y.z), y.w = fmaf(s[i].w, c, y.w);
            if (slot >= 0) *state(slot, i) = s[i];
        }
        y.x += __shfl_xor_sync(~0u, y.x, 16), y.y += __shfl_xor_sync(~0u, y.y, 16);
        y.z += __shfl_xor_sync(~0u, y.z, 16), y.w += __shfl_xor_sync(~0u, y.w, 16);
        if ((threadIdx.x & 31) < SSM_QUADS) m.part[threadIdx.x >> 5][threadIdx.x & 15] = y;
    }
    MEM float column() const {
        float y = 0;
#pragma unroll
        for (int w = 0; w < SSM_THREADS / 32; w++) y += ((const float *)m.part[w])[threadIdx.x];
        return y;
    }
    // The root mean square of the group's columns, of all of which this block has y; of all threads.
    MEM float over_rms(int r, float y) {
        const int tid = threadIdx.x;
        if (writes()) {
            const float sum = warp_sum(y * y);
            if ((tid & 31) == 0) m.half[tid >> 5] = sum;
        }
        __syncthreads();
        if (tid < each) cluster_store(smem_address(&m.norm[r & 1][h % each]), tid, m.half[0] + m.half[1]);
        cluster_arrive();
        cluster_wait();
        float sum = 0;
        for (int i = 0; i < each; i++) sum += m.norm[r & 1][i];
        return rsqrtf(sum / (float)(each * SSM_COLS) + j.eps);
    }
    // Row r; keep: the slot, if it is the sequence's last in the step, else -1.
    MEM void row(int r, bool first, int keep, float A, float bias, float skip) {
        const int tid = threadIdx.x;
        const float dt = __ldcg(j.dt + r * j.dt_row + h) + bias, in = __ldcg(j.x + r * j.x_row + bc_channel),
                    xv = writes() ? __ldcg(j.x + r * j.x_row + col) : 0.f,
                    z = writes() ? __ldcg(j.z + r * j.z_row + col) : 0.f;
        const float step = fminf(fmaxf(dt > 20.f ? dt : log1pf(__expf(dt)), j.lo), j.hi);
        (tid < DELTA_DIM ? m.b : m.c)[tid & (DELTA_DIM - 1)] = bc.step(bc_w, bc_bias, in);
        float own = 0;
        if (writes()) {
            own = x.step(x_w, x_bias, xv);
            m.v[tid] = step * own;
        }
        __syncthreads();
        if (first && tid == 0) arrive(r);
        update(expf(A * step), keep);
        __syncthreads();
        float y = writes() ? fmaf(skip, own, column()) * state_silu(z) : 0.f;
        if (j.norm) {
            const float f = over_rms(r, y);
            if (writes()) y *= f * norm;
        }
        if (writes()) state_give(j, r, col, y);
        if (keep < 0) __syncthreads();
    }
};

__global__ void __launch_bounds__(SSM_THREADS, 2)
    ssm_decode_kernel(const __grid_constant__ ssm_decode_job j) {
    __shared__ ssm_shared m;
    ssm_block d(j, m);
    int r = blockIdx.z;
    if (j.wait)
        pdl_wait(); // and only then may those behind begin: they look at the step without waiting for it
    pdl_trigger();
    const int n = j.t.step->n_row;
    if (r >= n || (r && j.t.slot[r - 1] == j.t.slot[r]))
        return;                   // the blocks of a sequence's first row do all
    if (j.norm) cluster_arrive(); // nobody writes into a block that has not begun
    const int slot = j.t.slot[r];
    d.load(slot, j.t.pos[r] == 0);
    const float A = j.A[d.h], bias = j.dt_bias[d.h], skip = j.skip ? j.skip[d.h] : 0.f;
    if (!j.wait) pdl_wait();
    if (j.norm) cluster_wait();
    for (bool first = true, more = true; more; r++, first = false) {
        more = r + 1 < n && j.t.slot[r + 1] == slot;
        d.row(r, first, more ? -1 : slot, A, bias, skip);
    }
    if (d.writes()) d.x.store(d.conv(slot), d.col, d.C);
    if (m.last) d.bc.store(d.conv(slot), d.bc_channel, d.C);
}

cudaError_t ssm_decode_launch(const ssm_decode_job &j, int rows, bool overlap, cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2];
    c.gridDim = dim3(j.n_head, 1, rows);
    c.blockDim = SSM_THREADS;
    c.stream = s;
    c.attrs = at;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = overlap;
    at[1].id = cudaLaunchAttributeClusterDimension;
    at[1].val.clusterDim.x = j.norm ? j.n_head / j.n_group : 1;
    at[1].val.clusterDim.y = at[1].val.clusterDim.z = 1;
    c.numAttrs = j.norm ? 2 : 1;
    return cudaLaunchKernelEx(&c, ssm_decode_kernel, j);
}

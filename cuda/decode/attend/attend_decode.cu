// Decode attention: the instances for Llamas, which kernel a job takes, and its launch.
#include "cuda/decode/attend/attend_decode.cuh"
#include "cuda/decode/attend/attend_decode_instances.h"

// Of heads above 256 the parts of a row with several splits become its output: a block a head, the splits in order.
__global__ void __launch_bounds__(128) attend_merge_kernel(const __grid_constant__ attend_job j) {
    constexpr int MOST = 1 << CUDA_SPLIT_SHIFT, COLUMNS = 2;
    __shared__ float share[MOST];
    const int head = blockIdx.x, row = blockIdx.y, tid = threadIdx.x, lane = tid & 31, dv = j.kv.dv;
    pdl_trigger();
    pdl_wait();
    if (row >= j.t.step->n_row) return;
    const int p = j.t.pos[row];
    const attend_range r = range_of<CUDA_SPLIT_WIDE>(j, p);
    const int n_split = (p - r.first) / r.size + 1, part_row = dv + 4;
    if (n_split == 1) return; // whole: the attention has given it
    const float *part = j.part + ((size_t)row * j.n_head + head) * j.max_split * part_row;
    for (int c0 = 0; c0 < dv; c0 += 128 * COLUMNS) {
        float v[COLUMNS][MOST];
#pragma unroll
        for (int u = 0; u < COLUMNS; u++) {
            const int c = c0 + tid + u * 128;
#pragma unroll
            for (int k = 0; k < MOST; k++)
                v[u][k] = c < dv && k < n_split ? __ldcg(part + k * part_row + c) : 0.f;
        }
        if (c0 == 0) {
            float2 ml = make_float2(-1e30f, 0);
            if (lane < n_split) ml = __ldcg((const float2 *)(part + lane * part_row + dv));
            const float f = merge_parts(ml.x, ml.y, 32);
            const float sink = j.sinks ? exp2_fast(j.sinks[head] * 1.4426950408889634f - ml.x) : 0.f;
            if (tid < 32) share[lane] = __fdividef(f, ml.y + sink);
            __syncthreads();
        }
#pragma unroll
        for (int u = 0; u < COLUMNS; u++) {
            const int c = c0 + tid + u * 128, col = head * dv + c;
            float y = 0;
#pragma unroll
            for (int k = 0; k < MOST; k++) y = fmaf(share[k], v[u][k], y);
            if ((c & ~31) >= dv) continue;
            if (j.give == GIVE_RECORD)
                put_act_int8<32>(j, col, y);
            else if (c < dv)
                put_column<true>(j, row, row, col, y);
        }
    }
}

#define KERNEL(d, t)                                                                                         \
    {                                                                                                        \
        d, t, attend_shape<d, t>::warps, false,                                                              \
            {attend_decode_kernel<d, t, false, false>, attend_decode_kernel < d, t,                          \
             t == KV_F16 && d<256, false>},                                                                  \
            attend_put_kernel<d, t, false>, attend_shape<d, t>::bytes, NULL, NULL                            \
    }
#define CROWDED(d)                                                                                           \
    {                                                                                                        \
        d, KV_F16, attend_shape<d, KV_F16>::warps, false,                                                    \
            {attend_decode_kernel<d, KV_F16, false, false>, attend_decode_kernel<d, KV_F16, true, false>},   \
            attend_put_kernel<d, KV_F16, false>, attend_shape<d, KV_F16>::bytes,                             \
            attend_decode_kernel<d, KV_F16, false, false, true>, attend_shape<d, KV_F16, true>::bytes        \
    }
static const attend_kernel kernels[] = {
    CROWDED(64),          CROWDED(128),       KERNEL(256, KV_F16), KERNEL(64, KV_Q8_0), KERNEL(128, KV_Q8_0),
    KERNEL(256, KV_Q8_0), KERNEL(64, KV_F32), KERNEL(128, KV_F32), KERNEL(256, KV_F32),
};
// Calls f for each kernel until it says yes.
template <class F> static bool each_kernel(F f) {
    for (const attend_kernel &k : kernels)
        if (f(k, false)) return true;
    for (const attend_kernel *set : {attend_more_f16, attend_more_q8_0, attend_more_f32, attend_more_f8,
                                     attend_more_q5_0, attend_more_q4_0})
        for (int i = 0; i < ATTEND_MORE; i++)
            if (f(set[i], true)) return true;
    return false;
}
enum { ATTEND_BLOCKS = 128, ATTEND_ROWS = 1024 };

bool attend_plan(attend_job *j, size_t smem) {
    const dev_kv &kv = j->kv;
    if (kv.dk % 8 || kv.dv % 8 || j->n_rot > kv.dk || j->n_rot % 2 || j->n_head % kv.n_kv_head) return false;
    const int n_rep = j->n_head / kv.n_kv_head;
    j->dv_inverse = 0xffffffffu / kv.dv + 1;
    for (j->rep = n_rep < 8 ? n_rep : 8; j->rep; j->rep--) {
        if (n_rep % j->rep || (j->give == GIVE_RECORD && j->rep * kv.dv % 32)) continue;
        j->n_chunk = n_rep / j->rep;
        j->n_item_head = j->n_head / j->rep;
        if (j->n_item_head > ATTEND_HEADS) return false;
        for (j->split_shift = 0; j->n_item_head << (j->split_shift + 1) <= ATTEND_BLOCKS;) j->split_shift++;
        if (j->split_shift > CUDA_SPLIT_SHIFT) j->split_shift = CUDA_SPLIT_SHIFT;
        const bool more = j->v_norm || j->late || j->temp_beta != 0;
        if (each_kernel([&](const attend_kernel &k, bool is_more) {
                if (k.type != kv.type || k.d < kv.dk || k.d < kv.dv || (more && !is_more) ||
                    k.bytes(j->rep, ATTEND_ROWS, false) > smem)
                    return false;
                if (k.apart && j->give == GIVE_RECORD && kv.dv % 32) return false;
                j->kernel = &k;
                j->more = is_more;
                return true;
            }))
            return true;
    }
    return false;
}
bool attend_takes_handoff(const attend_job &j) {
    return !j.more && j.kernel->type == KV_F16 && j.kernel->d < 256 && j.rep * j.kv.dv % 32 == 0 &&
           j.give != GIVE_BF16;
}
cudaError_t attend_launch(attend_job j, int rows, int sm_count, bool overlap, cudaStream_t s) {
    const int blocks = rows * j.n_item_head > sm_count ? 2 * sm_count : sm_count;
    auto divides = [&](int shift) {
        const int n = j.rep >> shift;
        return n << shift == j.rep && n * j.kv.dv % 32 == 0 && rows * j.n_item_head << shift <= sm_count;
    };
    for (j.fine_shift = 0;
         j.more && j.kernel->d > 128 && divides(j.fine_shift + 1) && j.rep >> (j.fine_shift + 1);)
        j.fine_shift++;
    j.max_row = rows;
    j.one = false;
    if (j.kernel->crowd && rows * j.n_item_head > 2 * sm_count)
        return launch_overlapped(j.kernel->crowd, 4 * sm_count, 128,
                                 j.kernel->crowd_bytes(j.rep, rows, false), overlap, s, j);
    j.one = rows * j.n_item_head << (j.split_shift > j.fine_shift ? j.split_shift : j.fine_shift) <= blocks;
    cudaError_t e = launch_overlapped(j.kernel->decode[j.take_handoff != NULL], blocks, j.kernel->warps * 32,
                                      j.kernel->bytes(j.rep, rows, j.one), overlap, s, j);
    if (e != cudaSuccess || !j.kernel->apart) return e;
    return launch_overlapped(attend_merge_kernel, dim3(j.n_head, rows), 128, 0, overlap, s, j);
}
cudaError_t attend_put_launch(const attend_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(j.kernel->put, dim3(j.kv.n_kv_head, n), 64, 0, overlap, s, j);
}
cudaError_t attend_prepare(void) {
    int device, most;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    each_kernel([&](const attend_kernel &k, bool) {
        for (int i = 0; i < (k.crowd ? 4 : 3) && e == cudaSuccess; i++) {
            const void *f = i == 3   ? (const void *)k.crowd
                            : i == 2 ? (const void *)k.put
                                     : (const void *)k.decode[i];
            if (i != 2) e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, most - 1024);
            if (e == cudaSuccess)
                e = cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
        }
        return e != cudaSuccess;
    });
    return e;
}

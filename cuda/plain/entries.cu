// Entries of runs of positions on plain kernels. A row's bits depend on its position and its sequence alone: not on where steps end, nor on
// other rows.
#include "cuda/plain/entries.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"

// ---- rotations
__global__ void rope_runs_kernel(dev_tables t, dev_input in, const __grid_constant__ rope_runs_job j) {
    const int r = blockIdx.x, half = j.n_rot / 2;
    op_begin();
    if (r >= t.step->n_row) return;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const int a = j.axis ? j.axis[i] : 0, pos = a ? in.axis[a - 1][r] : t.pos[r];
        double s, c;
        sincos((double)(pos - pos % j.every) * (double)j.inv_freq[i], &s, &c);
        j.table[(size_t)r * half + i] = make_float2((float)(c * j.mscale), (float)(s * j.mscale));
    }
}
cudaError_t op_rope_runs_run(dev_tables t, dev_input in, const rope_runs_job &j, int n, op_queue s) {
    return op_launch(rope_runs_kernel, n, 64, s, t, in, j);
}
__global__ void rope_back_kernel(dev_tables t, rows x, int head_dim, int n_rot, bool neox,
                                 const float2 *table) {
    const int r = blockIdx.y, half = n_rot / 2;
    op_begin();
    if (r >= t.step->n_row) return;
    float *p = x.p + r * x.stride + (size_t)blockIdx.x * head_dim;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const float2 c = __ldcg(table + (size_t)r * half + i);
        const int a = neox ? i : 2 * i, b = neox ? i + half : 2 * i + 1;
        const float u = __ldcg(p + a), v = __ldcg(p + b);
        p[a] = u * c.x + v * c.y;
        p[b] = v * c.x - u * c.y;
    }
}
cudaError_t op_rope_back_run(dev_tables t, rows x, int n_head, int head_dim, int n_rot, bool neox,
                             const float2 *table, int n, op_queue s) {
    return op_launch(rope_back_kernel, dim3(n_head, n), 64, s, t, x, head_dim, n_rot, neox, table);
}

// ---- compress: a block 128 channels of a row, a thread a channel. What a run's entry is made of lies in the step's rows, and in the state
// what came before these; a second kernel leaves in the state the last rows of each sequence.
enum { COMPRESS_THREADS = 128 };
// Rows of the same sequence right in front of row r, at most so many.
DEV int rows_before(const dev_tables &t, int r, int most) {
    int n = 0;
    while (n < most && n < r && t.slot[r - n - 1] == t.slot[r]) n++;
    return n;
}
__global__ void __launch_bounds__(COMPRESS_THREADS)
    compress_kernel(dev_tables t, const __grid_constant__ compress_job j) {
    const int r = blockIdx.y, c = blockIdx.x * COMPRESS_THREADS + threadIdx.x, width = j.x.width,
              n = j.out.width;
    op_begin();
    if (r >= t.step->n_row || c >= n) return;
    const int pos = t.pos[r], run = pos + 1 - j.ratio, first = run ? pos + 1 - j.span : 0;
    float *out = j.out.p + r * j.out.stride + c;
    if ((pos + 1) % j.ratio) {
        *out = 0.f;
        return;
    }
    const int before = rows_before(t, r, pos - first);
    const float *state = j.state + (size_t)t.slot[r] * j.n_elem;
    // of position p: x and gate of the channel that counts there
    auto column = [&](int p) { return width > n && p >= run ? c + n : c; };
    auto value = [&](const rows &of, int which, int p) {
        return pos - p <= before ? __ldcg(of.p + (r - (pos - p)) * of.stride + column(p))
                                 : __ldcg(state + ((size_t)(p % j.span) * 2 + which) * width + column(p));
    };
    auto score = [&](int p) {
        return value(j.gate, 1, p) + j.bias[(size_t)(p % j.ratio) * width + column(p)];
    };
    float top = -INFINITY, sum = 0.f, all = 0.f;
    for (int p = first; p <= pos; p++) top = fmaxf(top, score(p));
    for (int p = first; p <= pos; p++) {
        const float w = expf(score(p) - top);
        sum += w;
        all = fmaf(w, value(j.x, 0, p), all);
    }
    *out = all / sum;
}
// After it: a row whose place in the state no later row of the step takes.
__global__ void __launch_bounds__(COMPRESS_THREADS)
    compress_keep_kernel(dev_tables t, const __grid_constant__ compress_job j) {
    const int r = blockIdx.y, c = blockIdx.x * COMPRESS_THREADS + threadIdx.x, width = j.x.width;
    op_begin();
    const int n = t.step->n_row, later = r + j.span;
    if (r >= n || c >= width || (later < n && t.slot[later] == t.slot[r])) return;
    float *place = j.state + (size_t)t.slot[r] * j.n_elem + (size_t)(t.pos[r] % j.span) * 2 * width + c;
    place[0] = __ldcg(j.x.p + r * j.x.stride + c);
    place[width] = __ldcg(j.gate.p + r * j.gate.stride + c);
}
cudaError_t op_compress_run(dev_tables t, const compress_job &j, int n, op_queue s) {
    auto grid = [&](int width) { return dim3((width + COMPRESS_THREADS - 1) / COMPRESS_THREADS, n); };
    const cudaError_t e = op_launch(compress_kernel, grid(j.out.width), COMPRESS_THREADS, s, t, j);
    if (e != cudaSuccess) return e;
    return op_launch(compress_keep_kernel, grid(j.x.width), COMPRESS_THREADS, s, t, j);
}

// ---- attend: as attend_mla_kernel (mla.cu), past the keys of the window and then those of entries, in one softmax
enum { ENTRY_KEYS = 128, ENTRY_WARPS = ENTRY_KEYS / 32 };
struct
    entries_seen { // what a row sees: `near` positions from begin on, then n_entry entries, those in chosen where that is there
    const float *chosen;
    int slot, pos, begin, near, n;
};
DEV entries_seen entries_of(const dev_tables &t, const attend_entries_job &j, int r) {
    const attend_rule &o = j.rule;
    const int pos = t.pos[r], runs = (pos + 1) / j.block;
    entries_seen e;
    e.slot = t.slot[r];
    e.pos = pos;
    e.begin = o.window <= 0 ? 0 : o.chunked ? pos - pos % o.window : max(0, pos - o.window + 1);
    e.near = pos - e.begin + 1;
    e.n = e.near + (j.n_top ? min(runs, j.n_top) : runs);
    e.chosen = j.n_top ? j.chosen.p + r * j.chosen.stride : NULL;
    return e;
}
// The row of the run whose last position this is, of a head (kv_runs.cu).
DEV size_t entry_row(const dev_kv &kv, int every, int slot, int pos) {
    const int page = kv.pages[slot * kv.max_pages + pos / KV_PAGE];
    return (size_t)page * ((KV_PAGE + every - 1) / every) + pos % KV_PAGE / every;
}
// Key i of these. (A choice that is measured alone, without what makes it, is kept inside of the sequence.)
DEV const uint8_t *entries_key(const attend_entries_job &j, const entries_seen &e, size_t bytes, int i) {
    if (i < e.near) return j.kv.k + kv_row(j.kv, e.slot, e.begin + i, 0) * bytes;
    const int run = i - e.near,
              p = e.chosen ? min(max((int)__ldcg(e.chosen + run), 0), e.pos) : (run + 1) * j.block - 1;
    return j.entry.k + entry_row(j.entry, j.every, e.slot, p) * bytes;
}
template <int T>
__global__ void __launch_bounds__(ENTRY_KEYS)
    attend_entries_kernel(dev_tables t, const __grid_constant__ attend_entries_job j) {
    extern __shared__ float qs[]; // [dk], then the sums [dv]
    __shared__ float ps[ENTRY_KEYS];
    __shared__ const uint8_t *place[ENTRY_KEYS];
    const int r = blockIdx.y, h = blockIdx.x, tid = threadIdx.x, w = tid >> 5, lane = tid & 31, dk = j.kv.dk,
              dv = j.dv;
    const attend_rule &o = j.rule;
    op_begin();
    if (r >= t.step->n_row) return;
    const entries_seen seen = entries_of(t, j, r);
    float *acc = qs + dk, scale = o.scale;
    if (o.temp_beta != 0.f)
        scale *= 1.f + o.temp_beta * logf((float)(1 + (seen.pos + o.temp_offset) / o.temp_len));
    for (int i = tid; i < dk; i += ENTRY_KEYS)
        qs[i] = __ldcg(j.q.p + r * j.q.stride + (size_t)h * dk + i) * scale;
    for (int d = tid; d < dv; d += ENTRY_KEYS) acc[d] = 0;
    float m = o.sinks ? o.sinks[h] : -INFINITY, l = o.sinks ? 1.f : 0.f;
    if constexpr (T > KV_Q8_0) {
        __syncthreads();
        kv_turn_runs(qs, dk, j.turn, w, ENTRY_WARPS);
    } // (a barrier follows before it is read)
    const size_t bytes = kv_bytes((enum kv_type)T, dk);
    for (int i0 = 0; i0 < seen.n; i0 += ENTRY_KEYS) {
        const int n = min((int)ENTRY_KEYS, seen.n - i0);
        if (tid < n) place[tid] = entries_key(j, seen, bytes, i0 + tid);
        __syncthreads();
        for (int k = w; k < n; k += ENTRY_WARPS) {
            float s = 0;
            for (int i = lane; i < dk; i += 32) s = fmaf(qs[i], kv_load((enum kv_type)T, place[k], i), s);
            s = warp_sum(s);
            if (lane == 0) ps[k] = o.softcap > 0 ? o.softcap * tanhf(s / o.softcap) : s;
        }
        __syncthreads();
        float mn = m;
        for (int k = 0; k < n; k++) mn = fmaxf(mn, ps[k]);
        const float f = m == -INFINITY ? 0.f : expf(m - mn);
        __syncthreads();
        if (tid < n) ps[tid] = expf(ps[tid] - mn);
        __syncthreads();
        l *= f;
        for (int k = 0; k < n; k++) l += ps[k];
        m = mn;
        for (int d = tid; d < dv; d += ENTRY_KEYS) {
            float s = acc[d] * f;
#pragma unroll 4
            for (int k = 0; k < n; k++) s = fmaf(ps[k], kv_load((enum kv_type)T, place[k], d), s);
            acc[d] = s;
        }
        __syncthreads();
    }
    if constexpr (T > KV_Q8_0) {
        kv_turn_runs(acc, dv, j.turn, w, ENTRY_WARPS);
        __syncthreads();
    }
    for (int d = tid; d < dv; d += ENTRY_KEYS) j.out.p[r * j.out.stride + (size_t)h * dv + d] = acc[d] / l;
}
cudaError_t op_attend_entries_run(dev_tables t, const attend_entries_job &j, int n, op_queue s) {
    static void (*const kernels[])(dev_tables, const attend_entries_job) = {
        attend_entries_kernel<KV_F32>, attend_entries_kernel<KV_F16>,  attend_entries_kernel<KV_Q8_0>,
        attend_entries_kernel<KV_F8>,  attend_entries_kernel<KV_Q5_0>, attend_entries_kernel<KV_Q4_0>};
    return launch_overlapped(kernels[j.kv.type], dim3(j.rule.n_head, n), ENTRY_KEYS,
                             (size_t)(j.kv.dk + j.dv) * 4, s.overlap, s.stream, t, j);
}

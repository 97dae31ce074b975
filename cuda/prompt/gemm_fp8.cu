// FP8 products of prompt rows: activations to e4m3, a scale for each row, and the kernel's instances.
#include "cuda/common/mx.cuh"
#include "cuda/prompt/gemm_fp8.cuh"

enum { ROW_THREADS = 256 }; // a block a row
// The largest v of a row's block, in all threads.
DEV float row_max(float v, float (&part)[ROW_THREADS / 32]) {
    v = warp_max(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int i = 1; i < ROW_THREADS / 32; i++) v = fmaxf(v, part[i]);
    return v;
}
// What numbers of a row are times, whose largest magnitude is top; its scale goes out.
DEV float fp8_scale(const prompt_job &j, int t, float top) {
    if (threadIdx.x == 0) ((float *)j.mx_scale)[t] = top * (1.f / 448.f);
    return top > 0.f ? 448.f / top : 0.f;
}
DEV uint8_t *fp8_row(const prompt_job &j, int t, int block) {
    return (uint8_t *)j.mx + ((size_t)block * j.mx_rows + t) * FP8_COLS;
}

// 16 columns of a row: two chunks of halves.
template <class H> struct fp8_halves {
    uint4 w[2];
    MEM float top() const {
        float top = 0.f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 v = half2_bits(word_of(w[i >> 2], i & 3));
            top = fmaxf(top, fmaxf(fabsf(v.x), fabsf(v.y)));
        }
        return top;
    }
    // Columns 4 i ..
    MEM uint32_t code(int i, float k) const {
        const float2 a = half2_bits(H::first(w, i)), b = half2_bits(H::second(w, i));
        return e4m3_pair(a.x * k, a.y * k) | e4m3_pair(b.x * k, b.y * k) << 16;
    }
    MEM void give(const prompt_job &j, int t, int q, float k) const {
        *(uint4 *)(fp8_row(j, t, q >> 3) + (((q & 7) ^ (t & 7)) << 4)) =
            make_uint4(code(0, k), code(1, k), code(2, k), code(3, k));
    }
};
// Out of tiles, ORDER_CODES: columns 4 i + 0, 1 are in the first chunk, 4 i + 2, 3 in the second.
struct halves_of_tiles {
    MEM void load(fp8_halves<halves_of_tiles> &f, const prompt_job &j, int t, int q) const {
        const int r = t & 255, tile = q >> 2, c = 2 * (q & 3);
        const uint8_t *from = j.x + ((size_t)(t >> 8) * j.k_tiles + tile) * PROMPT_TILE_BYTES + r * 128;
#pragma unroll
        for (int h = 0; h < 2; h++)
            f.w[h] = tile < j.k_tiles ? *(const uint4 *)(from + (((c + h) ^ (r & 7)) << 4))
                                      : make_uint4(0, 0, 0, 0);
    }
    static MEM uint32_t first(const uint4 (&w)[2], int i) { return word_of(w[0], i); }
    static MEM uint32_t second(const uint4 (&w)[2], int i) { return word_of(w[1], i); }
};
// Out of plain rows.
struct halves_of_rows {
    const uint8_t *p;
    size_t row;
    MEM void load(fp8_halves<halves_of_rows> &f, const prompt_job &, int t, int q) const {
        const uint4 *from = (const uint4 *)(p + t * row) + 2 * q;
        f.w[0] = from[0];
        f.w[1] = from[1];
    }
    static MEM uint32_t first(const uint4 (&w)[2], int i) { return word_of(w[i >> 1], 2 * (i & 1)); }
    static MEM uint32_t second(const uint4 (&w)[2], int i) { return word_of(w[i >> 1], 2 * (i & 1) + 1); }
};
// A thread holds the first HELD of its columns, the others come again out of the first cache.
template <class H>
__global__ void __launch_bounds__(ROW_THREADS)
    fp8_quantise_kernel(const H from, const __grid_constant__ prompt_job j) {
    constexpr int HELD = 4; // a row of 16,384
    __shared__ float part[ROW_THREADS / 32];
    const int t = blockIdx.x, n = fp8_blocks(j.k_tiles) * 8;
    if (t >= *j.n_row) return;
    float top = 0.f;
    fp8_halves<H> held[HELD], f;
    int q = threadIdx.x;
#pragma unroll
    for (int i = 0; i < HELD; i++, q += ROW_THREADS)
        if (q < n) from.load(held[i], j, t, q);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if ((int)threadIdx.x + i * ROW_THREADS < n) top = fmaxf(top, held[i].top());
    for (; q < n; q += ROW_THREADS) from.load(f, j, t, q), top = fmaxf(top, f.top());
    const float k = fp8_scale(j, t, row_max(top, part));
    q = threadIdx.x;
#pragma unroll
    for (int i = 0; i < HELD; i++, q += ROW_THREADS)
        if (q < n) held[i].give(j, t, q, k);
    for (; q < n; q += ROW_THREADS) from.load(f, j, t, q), f.give(j, t, q, k);
}
cudaError_t fp8_quantise(const prompt_job &j, int n, cudaStream_t s) {
    fp8_quantise_kernel<<<n, ROW_THREADS, 0, s>>>(halves_of_tiles{}, j);
    return cudaGetLastError();
}
cudaError_t fp8_quantise_rows(const prompt_job &j, const uint8_t *halves, size_t row_bytes, int n,
                              cudaStream_t s) {
    fp8_quantise_kernel<<<n, ROW_THREADS, 0, s>>>(halves_of_rows{halves, row_bytes}, j);
    return cudaGetLastError();
}

// The norm's sums are those of prompt_norm_kernel.
DEV float4 times(float4 v, float4 g) { return make_float4(v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w); }
__global__ void __launch_bounds__(ROW_THREADS)
    fp8_norm_kernel(rows x, const float *w, float eps, const __grid_constant__ prompt_job j) {
    __shared__ float part[2][ROW_THREADS / 32];
    const int t = blockIdx.x, n = x.width;
    if (t >= *j.n_row) return;
    const float *p = x.p + (size_t)t * x.stride;
    const auto normed = [&](int k) {
        const float4 v = *(const float4 *)(p + k);
        return w ? times(v, *(const float4 *)(w + k)) : v;
    };
    float sum = 0.f, top = 0.f;
    for (int k = threadIdx.x * 4; k < n; k += ROW_THREADS * 4) {
        const float4 v = *(const float4 *)(p + k), y = normed(k);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        top = fmaxf(top, fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(y.z), fabsf(y.w))));
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) part[1][threadIdx.x >> 5] = sum;
    top = row_max(top, part[0]);
    sum = 0.f;
    for (int i = 0; i < ROW_THREADS / 32; i++) sum += part[1][i];
    const float scale = w ? rsqrtf(sum / (float)n + eps) : 1.f,
                inverse = scale * fp8_scale(j, t, top * scale);
    for (int k = threadIdx.x * 4; k < fp8_blocks(j.k_tiles) * FP8_COLS; k += ROW_THREADS * 4) {
        const float4 y = k < n ? normed(k) : make_float4(0.f, 0.f, 0.f, 0.f);
        *(uint32_t *)(fp8_row(j, t, k / FP8_COLS) + (((k & 127) >> 4 ^ (t & 7)) << 4) + (k & 15)) =
            e4m3_pair(y.x * inverse, y.y * inverse) | e4m3_pair(y.z * inverse, y.w * inverse) << 16;
    }
}
cudaError_t fp8_norm(rows x, const float *w, float eps, const prompt_job &j, int n, cudaStream_t s) {
    fp8_norm_kernel<<<n, ROW_THREADS, 0, s>>>(x, w, eps, j);
    return cudaGetLastError();
}

cudaError_t fp8_launch(const prompt_job &j, enum prompt_epilogue e, int n, int sm_count, cudaStream_t s) {
    return e == EPILOGUE_STORE ? fp8_tile<EPILOGUE_STORE>(j, n, sm_count, s)
           : e == EPILOGUE_ADD ? fp8_tile<EPILOGUE_ADD>(j, n, sm_count, s)
                               : fp8_tile<EPILOGUE_GLU>(j, n, sm_count, s);
}

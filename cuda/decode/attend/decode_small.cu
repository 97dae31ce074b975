// The small kernels of the fused program for decode rows: embedding with the step's tables, the range of scales.
#include "cuda/decode/attend/attend_decode.h"
#include "cuda/decode/gemv/gemv.cuh"
#include "cuda/formats/unit_value.cuh"

// ---- embedding: a warp 32 columns; block x = units: the rope tables of the row
enum {
    STEP_ROWS,
    STEP_OUTS,
    STEP_ID,
    STEP_POS,
    STEP_SLOT,
    STEP_OUT_ROW,
    STEP_WANT,
    STEP_INPUT,
    STEP_AXIS,
    STEP_AXIS_2,
    STEP_AXIS_3,
    STEP_DRAW
};
enum { DRAW_WORDS = sizeof(dev_draw) / 4, STEP_WORDS = STEP_DRAW + DRAW_WORDS };
static_assert(STEP_WORDS <= 32, "a lane each");
// The words of a row's step out of the host's memory, one lane each: all of them for one way over the bus.
DEV void read_step(const embed_job &j, int seq, int row, int *word) {
    const uint8_t *blob = j.ring + (size_t)(seq % CUDA_FLIGHT) * j.ring_row;
    if (threadIdx.x < STEP_WORDS) {
        const int i = threadIdx.x;
        const int32_t *table = i == STEP_ID        ? j.t.id
                               : i == STEP_POS     ? j.t.pos
                               : i == STEP_SLOT    ? j.t.slot
                               : i == STEP_OUT_ROW ? j.t.out_row
                               : i == STEP_INPUT   ? j.in.at
                               : i == STEP_AXIS    ? j.in.axis[0]
                               : i == STEP_AXIS_2  ? j.in.axis[1]
                               : i == STEP_AXIS_3  ? j.in.axis[2]
                                                   : j.t.want;
        const void *from = i >= STEP_DRAW ? (const void *)((const int *)(j.t.draw + row) + i - STEP_DRAW)
                                          : (const void *)(table + row);
        const size_t at = i == STEP_ROWS   ? offsetof(dev_step, n_row)
                          : i == STEP_OUTS ? offsetof(dev_step, n_out)
                                           : (const uint8_t *)from - (const uint8_t *)j.t.step;
        word[i] = at + 4 <= j.ring_row ? *(const int *)(blob + at) : 0; // outputs may be fewer than rows
    }
    __syncthreads();
}
// The thread's column of a unit of a token's row.
DEV float embedded(const embed_job &j, int unit, int token, int slot) {
    if (!j.w.region) return 0; // every row is given, but in the first step of warm.cu
    const int id = token < 0 ? j.t.slot_last[slot] : token;
    const int phys = j.w.base + id / j.w.inter * j.w.stride + id % j.w.inter;
    const uint8_t *u = j.w.region + ((size_t)(phys >> 4) * j.w.u + unit) * layout_unit_bytes(j.w.layout);
    return j.scale * unit_value(j.w.layout, u, phys & 15, threadIdx.x);
}
// A row's words where others read them, and its rope tables.
DEV void put_tables(const embed_job &j, const int *word, int row, int seq) {
    const int pos = word[STEP_POS];
    if (threadIdx.x < 4) j.scale_at[threadIdx.x * j.scale_row + row] = 1;
    if (threadIdx.x < DRAW_WORDS && row < word[STEP_OUTS])
        ((int *)(j.t.draw + row))[threadIdx.x] = word[STEP_DRAW + threadIdx.x];
    if (threadIdx.x == 0) {
        if (row == 0) *(dev_step *)j.t.step = dev_step{word[STEP_ROWS], word[STEP_OUTS], seq};
        ((int32_t *)j.t.id)[row] = word[STEP_ID];
        ((int32_t *)j.t.pos)[row] = pos;
        ((int32_t *)j.t.slot)[row] = word[STEP_SLOT];
        if (row < word[STEP_OUTS]) {
            ((int32_t *)j.t.out_row)[row] = word[STEP_OUT_ROW];
            ((int32_t *)j.t.want)[row] = word[STEP_WANT];
        }
    }
    for (int r = 0; r < j.n_rope; r++)
        for (int i = threadIdx.x; i < j.rope[r].half; i += blockDim.x) {
            double s, c;
            const int a = j.rope[r].axis ? j.rope[r].axis[i] : 0;
            sincos((double)(a ? word[STEP_AXIS - 1 + a] : pos) * (double)j.rope[r].inv_freq[i], &s, &c);
            j.rope[r].table[(size_t)row * j.rope[r].half + i] =
                make_float2((float)(c * j.rope[r].mscale), (float)(s * j.rope[r].mscale));
        }
}
DEV void put_unit(const embed_job &j, const int *word, int row, int unit) {
    const int col = unit * 256 + threadIdx.x;
    if ((col & ~31) >= j.w.k) return;
    const float v = word[STEP_INPUT] >= 0 ? j.in.rows[word[STEP_INPUT] * j.in.width + col]
                                          : embedded(j, unit, word[STEP_ID], word[STEP_SLOT]);
    j.res[row * j.res_row + col] = v;
    const float ss = sum16(__fmul_rn(v, v));
    if ((threadIdx.x & 15) == 0) j.square[row * j.square_row + (col >> 4)] = ss;
    const float y = __fmul_rn(v, j.next_norm[col]);
    if (j.give == GIVE_RECORD)
        put_act_int8<32>(j, col, y);
    else
        put_column<true>(j, row, row, col, y);
}
// The step is read from the host's memory, where it was written just before this launch.
__global__ void embed_decode_kernel(const __grid_constant__ embed_job j) {
    __shared__ int word[STEP_WORDS];
    const int seq = *j.next, row = blockIdx.y, units = gridDim.x - 1;
    read_step(j, seq, row, word);
    if (row >= word[STEP_ROWS]) return;
    if ((int)blockIdx.x == units)
        put_tables(j, word, row, seq);
    else
        put_unit(j, word, row, blockIdx.x);
}
// A block a row: each block goes over the bus for its row, which for 17 of 1,024 rows takes a millisecond.
__global__ void embed_many_kernel(const __grid_constant__ embed_job j) {
    __shared__ int word[STEP_WORDS];
    const int seq = *j.next, row = blockIdx.x;
    read_step(j, seq, row, word);
    if (row >= word[STEP_ROWS]) return;
    put_tables(j, word, row, seq);
    for (int unit = 0; unit < j.w.u; unit++) put_unit(j, word, row, unit);
}
cudaError_t embed_launch(const embed_job &j, int n, cudaStream_t s) {
    enum { MANY = 64 };
    return n < MANY ? launch_overlapped(embed_decode_kernel, dim3(j.w.u + 1, n), 256, 0, false, s, j)
                    : launch_overlapped(embed_many_kernel, dim3(n), 256, 0, false, s, j);
}

// ---- the range of a matrix's scales
template <int L>
__global__ void __launch_bounds__(256) range_kernel(const uint8_t *w, size_t n_unit, unsigned *most) {
    const int lane = threadIdx.x & 31;
    unsigned v = 0; // bits of floats that are not negative are in their order
    for (size_t i = blockIdx.x * 8 + (threadIdx.x >> 5); i < n_unit; i += gridDim.x * 8)
        for (int h = 0; h < 2; h++) {
            const float r = format<L>::range(w + i * layout_unit_bytes((enum layout)L) + format<L>::scales,
                                             lane + 32 * h);
            if (isfinite(r)) v = max(v, __float_as_uint(r));
        }
    v = __reduce_max_sync(~0u, v);
    if (lane == 0) atomicMax(most, v);
}
cudaError_t scale_range(enum layout l, const uint8_t *weights, size_t n_unit, unsigned *most,
                        cudaStream_t s) {
    const unsigned blocks = (unsigned)(n_unit < 4096 ? (n_unit + 7) / 8 : 512);
    switch (l) {
#define RANGE_CODES(id)                                                                                      \
    case LAYOUT_##id:                                                                                        \
        range_kernel<LAYOUT_##id><<<blocks, 256, 0, s>>>(weights, n_unit, most);                             \
        break;
#define RANGE_EIGHTS(id) RANGE_CODES(id)
#define RANGE_HALVES(id)
#define RANGE_FLOATS(id)
#define LAYOUT(id, name, bytes, kind) RANGE_##kind(id)
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

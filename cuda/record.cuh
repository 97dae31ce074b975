// Rows for quantised weights: codes of 8 bits in groups of 32 or 16 columns, as records or slabs of layout.h.
#pragma once
#include "util.cuh"

// A group's scale for its largest magnitude m: at least m / 127, rounded up to four significant bits, so that code times
// scale is a half, exactly.
DEV float group_scale(float m, const code_range &r) {
    const uint32_t up = (__float_as_uint(m * (1.f / 127.f)) + 0xfffffu) & 0xfff00000u;
    return fminf(fmaxf(__uint_as_float(up), r.least), r.most);
}
DEV float group_inverse(float scale) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(scale));
    return r;
}
// Code of y, for 1 / scale; of what is too large -128 or 127.
DEV int group_code(float y, float inverse) {
    int q;
    asm("cvt.rni.s8.f32 %0, %1;" : "=r"(q) : "f"(y * inverse));
    return q;
}
// scale * sum of codes: 16 significant bits at most, so two bfloat16 hold it exactly, 16 bytes apart
DEV void put_sum(uint8_t *to, float v) {
    const __nv_bfloat16 hi = __float2bfloat16(v);
    *(__nv_bfloat16 *)to = hi;
    *(__nv_bfloat16 *)(to + 16) = __float2bfloat16(v - __bfloat162float(hi));
}
// Where a group of columns of a row lies, in a job's output.
struct record_place {
    uint8_t *codes; // of the group; 4 columns 4 t .. at 8 t + 4 e. In slabs the row of the column tile
    float *scale;   // NULL: slabs, whose halves are code times scale
    uint8_t *sum;
};
template <int G, bool SLAB, class J> DEV record_place record_group(const J &j, int row, int col) {
    const int k = col & 255, g = k >> 5, p = g & 3, h = g >> 2, e = k >> 4 & 1,
              sum = (G == 16 ? e * 32 : 0) + p * 4 + h * 2;
    if (SLAB && j.slab) {
        uint8_t *unit = j.xo_slab + (size_t)(col >> 8) * slab_bytes(j.slab);
        return {unit + ((size_t)(k >> 6) * j.slab + row) * 128, NULL,
                unit + (size_t)j.slab * SLAB_SUM + row * SLAB_SUM_ROW + sum};
    }
    uint8_t *rec = j.xo + (size_t)(col >> 8) * j.xo_unit + row * j.xo_row;
    return {rec + g * 32, (float *)(rec + REC_SCALE) + (G == 16 ? p * 4 + h * 2 + e : p * 2 + h),
            rec + REC_SUM + sum};
}
// A column a lane; lanes beyond a group of 16 repeat it. SLAB: a slab, where the job says so.
template <int G, bool SLAB, class J> DEV void put_record(const J &j, int row, int col, float y) {
    const int lane = threadIdx.x & 31;
    const record_place at = record_group<G, SLAB>(j, row, col);
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y)))),
                d = group_scale(m, j.range);
    const int q = group_code(y, group_inverse(d));
    int sum = __reduce_add_sync(~0u, q);
    if (G == 16) sum >>= 1; // every column twice
    if (SLAB && lane < G && j.slab)
        *(__half *)(at.codes + slab_chunk(col, row) + slab_half(col)) =
            __float2half((float)q * d * j.range.half);
    else if (lane < G)
        at.codes[((col >> 2) & 3) * 8 + (col >> 4 & 1) * 4 + (col & 3)] = (uint8_t)q;
    if (lane == 0) {
        put_sum(at.sum, d * (float)sum);
        if (!SLAB || at.scale) *at.scale = d;
    }
}

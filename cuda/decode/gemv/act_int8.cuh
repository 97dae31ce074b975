// A row for the kernels of one row that multiply codes by codes: 8 bits in groups of 32 or 16 columns, as records of unit_layout.h.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"
#include "cuda/decode/gemv/handoff.cuh"

// A group's scale for its largest magnitude m: at least m / 127, rounded up to four significant bits, so that a sum of codes
// times it is exact in float32.
DEV float group_scale(float m) {
    const uint32_t up = (__float_as_uint(m * (1.f / 127.f)) + 0xfffffu) & 0xfff00000u;
    return fminf(fmaxf(__uint_as_float(up), 0x1p-60f), 0x1p60f);
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
// A column a lane; lanes beyond a group of 16 repeat it.
template <int G, class J> DEV void put_act_int8(const J &j, int col, float y) {
    const int lane = threadIdx.x & 31, k = col & 255, g = k >> 5, p = g & 3, h = g >> 2, e = k >> 4 & 1;
    uint8_t *rec = j.xo + (size_t)(col >> 8) * j.xo_unit;
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y)))), d = group_scale(m);
    const int q = group_code(y, group_inverse(d));
    int sum = __reduce_add_sync(~0u, q);
    if (G == 16) sum >>= 1; // every column twice
    if (lane < G) rec[g * 32 + ((col >> 2) & 3) * 8 + e * 4 + (col & 3)] = (uint8_t)q;
    if (lane == 0) {
        put_sum(rec + REC_SUM + (G == 16 ? e * 32 : 0) + p * 4 + h * 2, d * (float)sum);
        ((float *)(rec + REC_SCALE))[G == 16 ? p * 4 + h * 2 + e : p * 2 + h] = d;
    }
}
// ---- packets: groups of 16 columns as {codes 0-11} {codes 12-15, scale, sum of scale * code}; groups of 32 as two of 16,
// the second's scale and sum are not read
// Columns col0 .. col0 + G - 1 from lanes 0 .. G - 1; of 16, lanes 16 .. 31 repeat them.
template <int G> DEV void give_act_int8(uint8_t *to, int col0, float y, uint32_t tag) {
    const int lane = threadIdx.x & 31, from = G == 32 ? lane & 16 : 0;
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y)))), d = group_scale(m);
    const int q = group_code(y, group_inverse(d));
    const float sum = d * (float)(__reduce_add_sync(~0u, q) >> (G == 16));
    uint32_t w = (uint32_t)(q & 255) << 8 * (lane & 3);
    w |= __shfl_xor_sync(~0u, w, 1);
    w |= __shfl_xor_sync(~0u, w, 2);
    const bool second = lane & 1;
    const uint32_t a = __shfl_sync(~0u, w, from + (second ? 12 : 0)), b = __shfl_sync(~0u, w, from + 4),
                   c = __shfl_sync(~0u, w, from + 8);
    if (lane - from < 2 && lane < G)
        handoff_store(to + (col0 + from) * 2 + second * 16, a, second ? __float_as_uint(d) : b,
                      second ? __float_as_uint(sum) : c, tag);
}
// (never bfloat16)
template <int G, class J> DEV void give_one(const J &j, int col0, float y, uint32_t tag) {
    if (j.give == GIVE_RECORD)
        give_act_int8<G>(j.give_handoff, col0, y, tag);
    else
        give_halves<false, G>(j.give == GIVE_CODES, j.give_handoff, col0, y, tag);
}
template <int GA> struct act_int8_reader {
    const uint8_t *at;
    uint32_t tag;
    int columns; // that will come
    uint4 v;
    MEM void ask(int unit, int lane) {
        v = unit * 256 + lane / 2 * 16 < columns ? handoff_load(at + (size_t)(unit * 32 + lane) * 16)
                                                 : make_uint4(0, 0, 0, tag);
    }
    // waits for the unit asked for, lays it out as a record at x
    MEM void take(int unit, uint8_t *x, int lane) {
        while (v.w != tag) {
            __nanosleep(300);
            v = handoff_load(at + (size_t)(unit * 32 + lane) * 16);
        }
        __syncwarp();
        const int g = lane >> 2, e = lane >> 1 & 1, p = g & 3, h = g >> 2;
        uint32_t *c = (uint32_t *)x + g * 8 + e;
        if (lane & 1) {
            c[6] = v.x;
            if (GA == 16 || !e) {
                *(uint32_t *)(x + REC_SCALE + (GA == 16 ? p * 16 + h * 8 + e * 4 : p * 8 + h * 4)) = v.y;
                put_sum(x + REC_SUM + e * 32 + p * 4 + h * 2, __uint_as_float(v.z));
            }
        } else {
            c[0] = v.x;
            c[2] = v.y;
            c[4] = v.z;
        }
        __syncwarp();
    }
};

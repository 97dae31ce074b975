// Packets: how one row goes from a matmul to the next while both run. 16 bytes that are written and read at once, the
// last four a tag of the step and the layer; a reader asks again until it finds the tag, so that it needs no word from
// a whole kernel. A unit of 256 columns follows another:
//   groups of 16 columns  2 packets: {codes 0-11} {codes 12-15, scale, sum of scale * code}
//   groups of 32 columns  as two groups of 16, the second's scale and sum are not read
//   halves                8 columns: 2 packets of two words; bfloat16 4, the high parts first
#pragma once
#include "record.cuh"

// 16 bytes at once, for readers that look at the last word to know that the others are there
DEV void packet_store(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t tag) {
    const uint64_t lo = (uint64_t)b << 32 | a, hi = (uint64_t)tag << 32 | c;
    asm volatile("{\n.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(p),
                 "l"(lo), "l"(hi)
                 : "memory");
}
DEV uint4 packet_load(const void *p) {
    uint64_t lo, hi;
    asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
                 : "=l"(lo), "=l"(hi)
                 : "l"(p)
                 : "memory");
    return make_uint4((uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32));
}
// A float with its tag, 8 bytes at once.
DEV void tagged_store(uint2 *p, float v, uint32_t tag) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"((uint64_t)tag << 32 | __float_as_uint(v))
                 : "memory");
}
DEV uint2 tagged_load(const uint2 *p) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return make_uint2((uint32_t)v, (uint32_t)(v >> 32));
}
DEV uint32_t packet_tag(const int *seq, uint32_t tag) { return (uint32_t)__ldcg(seq) * 4096 + tag; }
// Columns col0 .. col0 + G - 1 from lanes 0 .. G - 1; of 16, lanes 16 .. 31 repeat them.
template <int G> DEV void give_codes(uint8_t *to, int col0, float y, uint32_t tag, const code_range &range) {
    const int lane = threadIdx.x & 31, from = G == 32 ? lane & 16 : 0;
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y)))),
                d = group_scale(m, range);
    const int q = group_code(y, group_inverse(d));
    const float sum = d * (float)(__reduce_add_sync(~0u, q) >> (G == 16));
    uint32_t w = (uint32_t)(q & 255) << 8 * (lane & 3);
    w |= __shfl_xor_sync(~0u, w, 1);
    w |= __shfl_xor_sync(~0u, w, 2);
    const bool second = lane & 1;
    const uint32_t a = __shfl_sync(~0u, w, from + (second ? 12 : 0)), b = __shfl_sync(~0u, w, from + 4),
                   c = __shfl_sync(~0u, w, from + 8);
    if (lane - from < 2 && lane < G)
        packet_store(to + (col0 + from) * 2 + second * 16, a, second ? __float_as_uint(d) : b,
                     second ? __float_as_uint(sum) : c, tag);
}
// Columns col0 .. col0 + N - 1 from lanes 0 .. N - 1.
template <bool BF16, int N> DEV void give_halves(uint8_t *to, int col0, float y, uint32_t tag) {
    const int lane = threadIdx.x & 31;
    uint32_t hi, lo = 0;
    if (BF16) {
        const __nv_bfloat16 h = __float2bfloat16(y);
        hi = __bfloat16_as_ushort(h);
        lo = __bfloat16_as_ushort(__float2bfloat16(y - __bfloat162float(h)));
    } else
        hi = __half_as_ushort(__float2half(fminf(fmaxf(y, -65504.f), 65504.f)));
    hi |= __shfl_down_sync(~0u, hi, 1) << 16; // even lanes: two columns
    lo |= __shfl_down_sync(~0u, lo, 1) << 16;
    const uint32_t hi2 = __shfl_down_sync(~0u, hi, 2), lo2 = __shfl_down_sync(~0u, lo, 2);
    if ((lane & 3) == 0 && lane < N) {
        uint8_t *p = to + (col0 + (lane & ~7)) * (BF16 ? 8 : 4) + (lane & 4) * 4;
        packet_store(p, hi, hi2, 0, tag);
        if (BF16) packet_store(p + 32, lo, lo2, 0, tag);
    }
}
template <int L, int GA> struct packet_reader {
    static constexpr int P = L == LAYOUT_BF16 ? 4 : L == LAYOUT_F16 ? 2 : 1; // packets of a lane, for a unit
    const uint8_t *at;
    uint32_t tag;
    int columns; // that will come
    uint4 v[P];
    MEM void ask(int unit, int lane) {
        const int of_lane = L == LAYOUT_F16 || L == LAYOUT_BF16 ? lane * 8 : lane / 2 * 16;
        if (unit * 256 + of_lane >= columns) {
#pragma unroll
            for (int i = 0; i < P; i++) v[i] = make_uint4(0, 0, 0, tag);
            return;
        }
#pragma unroll
        for (int i = 0; i < P; i++) v[i] = packet_load(at + ((size_t)(unit * 32 + lane) * P + i) * 16);
    }
    // waits for the unit asked for, lays it out as a record or halves at x
    MEM void take(int unit, uint8_t *x, int lane) {
#pragma unroll
        for (int i = 0; i < P; i++)
            while (v[i].w != tag) {
                __nanosleep(300);
                v[i] = packet_load(at + ((size_t)(unit * 32 + lane) * P + i) * 16);
            }
        __syncwarp();
        if constexpr (L == LAYOUT_F16)
            *(uint4 *)(x + lane * 16) = make_uint4(v[0].x, v[0].y, v[1].x, v[1].y);
        else if constexpr (L == LAYOUT_BF16) {
            *(uint4 *)(x + lane * 16) = make_uint4(v[0].x, v[0].y, v[1].x, v[1].y);
            *(uint4 *)(x + 512 + lane * 16) = make_uint4(v[2].x, v[2].y, v[3].x, v[3].y);
        } else {
            const int g = lane >> 2, e = lane >> 1 & 1, p = g & 3, h = g >> 2;
            uint32_t *c = (uint32_t *)x + g * 8 + e;
            if (lane & 1) {
                c[6] = v[0].x;
                if (GA == 16 || !e) {
                    *(uint32_t *)(x + REC_SCALE + (GA == 16 ? p * 16 + h * 8 + e * 4 : p * 8 + h * 4)) =
                        v[0].y;
                    put_sum(x + REC_SUM + e * 32 + p * 4 + h * 2, __uint_as_float(v[0].z));
                }
            } else {
                c[0] = v[0].x;
                c[2] = v[0].y;
                c[4] = v[0].z;
            }
        }
        __syncwarp();
    }
};

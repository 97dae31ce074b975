// Packets: how one row goes from a matmul to the next while both run. 16 bytes that are written and read at once, the
// last four a tag of the step and the layer; a reader asks again until it finds the tag, so that it needs no word from
// a whole kernel. Two columns a word, two words a packet: 8 columns are 2 packets; of bfloat16 4, the high parts first.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"

// 16 bytes at once, for readers that look at the last word to know that the others are there
DEV void handoff_store(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t tag) {
    const uint64_t lo = (uint64_t)b << 32 | a, hi = (uint64_t)tag << 32 | c;
    asm volatile("{\n.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(p),
                 "l"(lo), "l"(hi)
                 : "memory");
}
DEV uint4 handoff_load(const void *p) {
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
DEV uint32_t handoff_tag(int seq, uint32_t tag) { return (uint32_t)seq * 4096 + tag; }
DEV uint32_t handoff_tag(const int *seq, uint32_t tag) { return handoff_tag(__ldcg(seq), tag); }
// Columns col0 .. col0 + N - 1 from lanes 0 .. N - 1.
template <bool BF16, int N> DEV void give_halves(bool codes, uint8_t *to, int col0, float y, uint32_t tag) {
    const int lane = threadIdx.x & 31;
    if (!BF16 && codes) y = __shfl_sync(~0u, y, (lane & ~3) | (lane & 1) << 1 | (lane >> 1 & 1));
    uint32_t hi, lo = 0;
    if (BF16) {
        const __nv_bfloat16 h = __float2bfloat16(y);
        hi = __bfloat16_as_ushort(h);
        lo = __bfloat16_as_ushort(__float2bfloat16(y - __bfloat162float(h)));
    } else
        hi = __half_as_ushort(__float2half(skinny_range(y)));
    hi |= __shfl_down_sync(~0u, hi, 1) << 16; // even lanes: two columns
    lo |= __shfl_down_sync(~0u, lo, 1) << 16;
    const uint32_t hi2 = __shfl_down_sync(~0u, hi, 2), lo2 = __shfl_down_sync(~0u, lo, 2);
    if ((lane & 3) == 0 && lane < N) {
        uint8_t *p = to + (col0 + (lane & ~7)) * (BF16 ? 8 : 4) + (lane & 4) * 4;
        handoff_store(p, hi, hi2, 0, tag);
        if (BF16) handoff_store(p + 32, lo, lo2, 0, tag);
    }
}
template <int N> DEV void give_handoff(int give, uint8_t *to, int col0, float y, uint32_t tag) {
    if (give == GIVE_BF16)
        give_halves<true, N>(false, to, col0, y, tag);
    else
        give_halves<false, N>(give == GIVE_CODES, to, col0, y, tag);
}
template <int L> struct handoff_reader {
    static constexpr int P = L == LAYOUT_BF16 ? 4 : 2; // packets of a lane, for a unit
    const uint8_t *at;
    uint32_t tag;
    int columns; // that will come
    uint4 v[P];
    MEM void ask(int unit, int lane) {
        if (unit * 256 + lane * 8 >= columns) {
#pragma unroll
            for (int i = 0; i < P; i++) v[i] = make_uint4(0, 0, 0, tag);
            return;
        }
#pragma unroll
        for (int i = 0; i < P; i++) v[i] = handoff_load(at + ((size_t)(unit * 32 + lane) * P + i) * 16);
    }
    // waits for the unit asked for, lays it out at x as a plain row
    MEM void take(int unit, uint8_t *x, int lane) {
#pragma unroll
        for (int i = 0; i < P; i++)
            while (v[i].w != tag) {
                __nanosleep(300);
                v[i] = handoff_load(at + ((size_t)(unit * 32 + lane) * P + i) * 16);
            }
        __syncwarp();
        if constexpr (L == LAYOUT_F16 || L == LAYOUT_BF16) {
            *(uint4 *)(x + lane * 16) = make_uint4(v[0].x, v[0].y, v[1].x, v[1].y);
            if (L == LAYOUT_BF16)
                *(uint4 *)(x + 512 + lane * 16) = make_uint4(v[P - 2].x, v[P - 2].y, v[P - 1].x, v[P - 1].y);
        } else { // columns 8 lane .., in the order of codes
            uint8_t *to = x + (lane >> 2) * 64 + (lane & 1) * 32 + (lane >> 1 & 1) * 8;
            *(uint2 *)to = make_uint2(v[0].x, v[0].y);
            *(uint2 *)(to + 16) = make_uint2(v[1].x, v[1].y);
        }
        __syncwarp();
    }
};

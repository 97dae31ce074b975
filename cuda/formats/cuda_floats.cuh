// F32, F16 and BF16: units without codes.
#pragma once
#include "cuda/formats/unit.cuh"

// Halves as they are.
struct half_format {
    static constexpr bool half = true, wide = false, whole_units = false;
    static constexpr int NC = 16, NX = 0, scales = 8192;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F) {
        const uint16_t *h = (const uint16_t *)s;
        for (int c = 0; c < 32; c++) {
            uint16_t v[8];
            for (int j = 0; j < 8; j++) {
                const int at = k0 + c * 8 + j;
                v[j] = at < k ? h[at] : 0;
            }
            *(uint4 *)(u + ((2 * (c >> 2) + (row >> 3)) * 32 + (row & 7) * 4 + (c & 3)) * 16) =
                *(const uint4 *)v;
        }
    }
    DEV uint32_t bits(const uint8_t *u, int row, int k) {
        const int g = k >> 5;
        return load_u16(u + ((2 * g + (row >> 3)) * 32 + (row & 7) * 4 + ((k & 31) >> 3)) * 16 + (k & 7) * 2);
    }
};
template <> struct format<LAYOUT_F16> : half_format {
    DEV float value(const uint8_t *u, int row, int k) { return half_bits(bits(u, row, k)); }
};
template <> struct format<LAYOUT_BF16> : half_format {
    DEV float value(const uint8_t *u, int row, int k) { return bf16_bits(bits(u, row, k)); }
};
template <> struct format<LAYOUT_F32> {
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F) {
        for (int j = 0; j < 256; j++) {
            *(float *)(u + layout_f32_byte(row, j)) = k0 + j < k ? ((const float *)s)[k0 + j] : 0.f;
        }
    }
    DEV float value(const uint8_t *u, int row, int k) {
        return *(const float *)(u + layout_f32_byte(row, k));
    }
};
// (no codes: repack of floats asks for none)
struct no_codes {
    DEV int code(const uint8_t *, int) { return 0; }
};
template <> struct src<QUANT_F32> : no_codes {};
template <> struct src<QUANT_F16> : no_codes {};
template <> struct src<QUANT_BF16> : no_codes {};

struct prompt_halves {
    static constexpr int unit = 8192, order = ORDER_HALVES;
    struct raw {
        uint4 v[2][2];
    }; // [group of 32][row half]
    struct scales {};
    static constexpr int n_piece = 1, piece_bytes = 2048;
    DEV int piece(int p, int) { return p * 2048; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int h = 0; h < 2; h++) r.v[q][h] = lds16(at + s.at + (2 * q + h) * 512 + lane * 16);
    }
    DEV void scale(scales &, const slab &, size_t) {}
    DEV void step(const raw &r, const scales &, const slab &, int, int s, uint32_t a[4]) {
        int e = s & 1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 &v = r.v[s >> 1][h];
            a[h] = e ? v.z : v.x;
            a[h + 2] = e ? v.w : v.y;
        }
    }
};
template <> struct operands<LAYOUT_F16> : prompt_halves {};
// bfloat16 as halves: exact but below 2^-14, where 2^-25 is lost, and above 65504, which becomes infinite
DEV uint32_t half2_of_bf16(uint32_t w) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;"
        : "=r"(r)
        : "f"(__uint_as_float(w & 0xffff0000u)), "f"(__uint_as_float(w << 16)));
    return r;
}
template <> struct operands<LAYOUT_BF16> : prompt_halves {
    using base = prompt_halves;
    DEV void step(const base::raw &r, const base::scales &c, const slab &s, int p, int st, uint32_t a[4]) {
        base::step(r, c, s, p, st, a);
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = half2_of_bf16(a[i]);
    }
};
// float32 goes to the tensor cores as it lies in shared memory: only where its pieces are
template <> struct operands<LAYOUT_F32> {
    static constexpr int unit = 16384, order = ORDER_FLOATS, n_piece = 1, piece_bytes = 2048;
    DEV int piece(int p, int) { return p * 2048; }
};

template <> struct few_lane<LAYOUT_F32> { // 16 bytes a lane, four rows a load
    template <class F> static MEM void unit(const uint8_t *u, int lane, F add) {
#pragma unroll
        for (int p = 0; p < 8; p++) {
            float4 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = __ldcs((const float4 *)(u + p * 2048 + i * 512 + lane * 16));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = row(lane, i), k = p * 32 + (((lane & 7) ^ (r & 7)) << 2);
                add(i, k, v[i].x), add(i, k + 1, v[i].y), add(i, k + 2, v[i].z), add(i, k + 3, v[i].w);
            }
        }
    }
    static MEM int row(int lane, int i) { return 4 * i + (lane >> 3); }
    static constexpr int n_row = 4, share = 8;
};

// Reading the file's blocks on the device, one struct per type of quant.def: code(k), scale and minimum, as
// upload needs them to re-tile. Layouts are drawn in engine/quant_<name>.c.
#pragma once
#include "cuda/formats/unit_value.cuh"

template <int TYPE> struct src;

// Types whose blocks hold 32 columns: code(row, k), d and m of a group of 32 as half bits.
template <> struct src<QUANT_Q8_0> {
    DEV const block_Q8_0 &b(const uint8_t *r, int k) { return ((const block_Q8_0 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k & 31]; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *, int) { return 0; }
};
template <> struct src<QUANT_Q4_0> {
    DEV const block_Q4_0 &b(const uint8_t *r, int k) { return ((const block_Q4_0 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[k & 15];
        return ((k & 16 ? v >> 4 : v & 15) - 8) & 15;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *, int) { return 0; }
};
template <> struct src<QUANT_Q4_1> {
    DEV const block_Q4_1 &b(const uint8_t *r, int k) { return ((const block_Q4_1 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[k & 15];
        return k & 16 ? v >> 4 : v & 15;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *r, int k) { return b(r, k).m; }
};
template <> struct src<QUANT_Q5_0> {
    DEV const block_Q5_0 &b(const uint8_t *r, int k) { return ((const block_Q5_0 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_0 &x = b(r, k);
        int v = x.q[k & 15], i = k & 31;
        return ((k & 16 ? v >> 4 : v & 15) | (x.h[i >> 3] >> (i & 7) & 1) << 4) - 16;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *, int) { return 0; }
};
template <> struct src<QUANT_Q5_1> {
    DEV const block_Q5_1 &b(const uint8_t *r, int k) { return ((const block_Q5_1 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_1 &x = b(r, k);
        int v = x.q[k & 15], i = k & 31;
        return (k & 16 ? v >> 4 : v & 15) | (x.h[i >> 3] >> (i & 7) & 1) << 4;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *r, int k) { return b(r, k).m; }
};
template <> struct src<QUANT_IQ4_NL> { // code: index of the level
    DEV const block_IQ4_NL &b(const uint8_t *r, int k) { return ((const block_IQ4_NL *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[k & 15];
        return k & 16 ? v >> 4 : v & 15;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *, int) { return 0; }
};
// Types whose blocks hold 256 columns.
DEV void k4_scale(const uint8_t *s, int g, int *sc, int *m) // six-bit scale and minimum of group g
{
    if (g < 4) {
        *sc = s[g] & 63;
        *m = s[g + 4] & 63;
    } else {
        *sc = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *m = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    }
}
template <> struct src<QUANT_Q4_K> {
    DEV const block_Q4_K &b(const uint8_t *r, int k) { return ((const block_Q4_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        int g = (k >> 5) & 7, v = b(r, k).q[(g >> 1) * 32 + (k & 31)];
        return g & 1 ? v >> 4 : v & 15;
    }
};
template <> struct src<QUANT_Q5_K> {
    DEV const block_Q5_K &b(const uint8_t *r, int k) { return ((const block_Q5_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_K &x = b(r, k);
        int g = (k >> 5) & 7, v = x.q[(g >> 1) * 32 + (k & 31)];
        return (g & 1 ? v >> 4 : v & 15) | (x.h[k & 31] >> g & 1) << 4;
    }
};
template <> struct src<QUANT_Q6_K> { // code in two's complement of 6 bits
    DEV const block_Q6_K &b(const uint8_t *r, int k) { return ((const block_Q6_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q6_K &x = b(r, k);
        int i = k & 255, half = i >> 7, quarter = (i >> 5) & 3, l = i & 31;
        int lo = x.ql[half * 64 + (quarter & 1) * 32 + l], hi = x.qh[half * 32 + l];
        return ((quarter & 2 ? lo >> 4 : lo & 15) | (hi >> (2 * quarter) & 3) << 4) - 32;
    }
    DEV int scale(const uint8_t *r, int k) { return b(r, k).sc[(k & 255) >> 4]; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
template <> struct src<QUANT_Q3_K> {
    DEV const block_Q3_K &b(const uint8_t *r, int k) { return ((const block_Q3_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q3_K &x = b(r, k);
        int i = k & 255, half = i >> 7, quarter = (i >> 5) & 3, l = i & 31;
        int lo = x.q[half * 32 + l] >> (2 * quarter) & 3, hi = x.h[l] >> (half * 4 + quarter) & 1;
        return lo - (hi ? 0 : 4);
    }
    DEV int scale(const uint8_t *r, int k) {
        const block_Q3_K &x = b(r, k);
        int s = (k & 255) >> 4, lo = s < 8 ? x.sc[s] & 15 : x.sc[s - 8] >> 4,
            hi = x.sc[8 + (s & 3)] >> (2 * (s >> 2)) & 3;
        return (lo | hi << 4) - 32;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
template <> struct src<QUANT_Q2_K> {
    DEV const block_Q2_K &b(const uint8_t *r, int k) { return ((const block_Q2_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        int i = k & 255;
        return b(r, k).q[(i >> 7) * 32 + (i & 31)] >> (2 * ((i >> 5) & 3)) & 3;
    }
};

// One weight of a unit as float, for the plain kernels: the definition of unit_layout.h in code.
#pragma once
#include "cuda/common/util.cuh"

DEV int unit_code_byte(int row, int k) // lane * 16 + word * 4 + byte
{
    return (((row & 7) * 4 + ((k & 15) >> 2)) * 4 + ((k >> 4) & 1) * 2 + (row >> 3)) * 4 + (k & 3);
}
DEV int unit_nibble(const uint8_t *u, int row, int k) {
    int g = (k >> 5) & 7;
    int b = u[(g >> 1) * 512 + unit_code_byte(row, k)];
    return g & 1 ? b >> 4 : b & 15;
}
DEV uint32_t load_u16(const uint8_t *p) { return p[0] | p[1] << 8; }

// row 0..15, k 0..255
DEV float unit_value(enum layout l, const uint8_t *u, int row, int k) {
    const int g = k >> 5, t = g & 3, h = g >> 2, e = (k >> 4) & 1;
    switch (l) {
    case LAYOUT_F32:
        return *(const float *)(u + layout_f32_byte(row, k));
    case LAYOUT_F16:
    case LAYOUT_BF16: {
        uint32_t v =
            load_u16(u + ((2 * g + (row >> 3)) * 32 + (row & 7) * 4 + ((k & 31) >> 3)) * 16 + (k & 7) * 2);
        return l == LAYOUT_F16 ? half_bits(v) : bf16_bits(v);
    }
    case LAYOUT_Q8: {
        int c = (int8_t)u[g * 512 + unit_code_byte(row, k)];
        return half_bits(load_u16(u + 4096 + row * 16 + t * 4 + h * 2)) * (float)c;
    }
    case LAYOUT_Q8M: {
        int c = (int8_t)u[g * 512 + unit_code_byte(row, k)];
        const uint8_t *s = u + 4096 + row * 32 + t * 8 + h * 2;
        return half_bits(load_u16(s)) * (float)c + half_bits(load_u16(s + 4));
    }
    case LAYOUT_Q4: {
        int c = (unit_nibble(u, row, k) ^ 8) - 8;
        return half_bits(load_u16(u + 2048 + row * 16 + t * 4 + h * 2)) * (float)c;
    }
    case LAYOUT_Q4M: {
        const uint8_t *s = u + 2048 + row * 32 + t * 8 + h * 2;
        return half_bits(load_u16(s)) * (float)unit_nibble(u, row, k) + half_bits(load_u16(s + 4));
    }
    case LAYOUT_Q4K:
    case LAYOUT_Q5K: {
        int c = unit_nibble(u, row, k);
        const uint8_t *s = u + 2048 + row * 16;
        if (l == LAYOUT_Q5K) {
            c |= (u[2048 + unit_code_byte(row, k)] >> g & 1) << 4;
            s += 512;
        }
        int b = s[4 + h * 4 + t], n = s[12 + t] >> (4 * h) & 15;
        return half_bits(load_u16(s)) * (float)((b >> 6) | n << 2) * (float)c -
               half_bits(load_u16(s + 2)) * (float)(b & 63);
    }
    case LAYOUT_Q3K: {
        int c = u[h * 512 + unit_code_byte(row, k)] >> (2 * t) & 3,
            hi = u[1024 + unit_code_byte(row, k)] >> g & 1;
        int sc = (int)u[1536 + row * 16 + t * 4 + h * 2 + e] - 128;
        return half_bits(load_u16(u + 1792 + row * 2)) * (float)sc * (float)(c - 4 * hi);
    }
    case LAYOUT_IQ4: {
        const uint8_t *w = u + (g >> 1) * 512 + (unit_code_byte(row, k) & ~3);
        uint32_t levels = iq4_levels(load_u16(w + 2 * (g & 1)));
        return half_bits(load_u16(u + 2048 + row * 16 + t * 4 + h * 2)) *
               (float)(int8_t)(levels >> (8 * (k & 3)));
    }
    case LAYOUT_Q6K: {
        int lo = u[2048 + h * 512 + unit_code_byte(row, k)] >> (2 * t) & 3;
        int c = ((unit_nibble(u, row, k) << 2 | lo) ^ 32) - 32;
        int sc = (int)u[3072 + row * 16 + t * 4 + h * 2 + e] - 128;
        return half_bits(load_u16(u + 3328 + row * 2)) * (float)sc * (float)c;
    }
    default: { // LAYOUT_Q2K
        int c = u[h * 512 + unit_code_byte(row, k)] >> (2 * t) & 3,
            s = u[1024 + row * 16 + t * 4 + h * 2 + e];
        const uint8_t *d = u + 1280 + row * 4;
        return half_bits(load_u16(d)) * (float)(s & 15) * (float)c -
               half_bits(load_u16(d + 2)) * (float)(s >> 4);
    }
    }
}

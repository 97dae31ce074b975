// What the files of the formats are written with, and what each of them gives. Files cuda_<name>.cuh, one for each row of
// quant.def whose block is more than one element and cuda_floats.cuh for the others, are included from one list that CMake
// makes of the rows. They give, for their element type:
//
//   src<TYPE>      reading the file's blocks, one column at a time: code(row, k); what scales its layout's repack asks for
//
// and, where the layout that layouts.def names is theirs, how it is read (drawn in unit_layout.h):
//
//   format<L>      facts (unit_format below), and the readers of a unit u:
//     repack<S>(u, row, s, k0, k, code)  a row of the file's blocks, from column k0 of s on, to the unit (repack.cu)
//     value(u, row, k)                   one weight, for the plain kernels: the definition of the layout in code
//     range(scales, i)                   the largest factor of a code in the i-th of 64 parts of the scales
//     factors, spread, word, code_halves codes as halves (unit_halves.cuh)
//     int_scales, int_code, ...          codes as int8 operands (gemv_int8.cuh)
//   operands<L>    codes as half operands of prompt rows (unit_operands.cuh)
//   few_lane<L>    where it gains: units as lanes of the plain kernel for few rows read them (unit_value.cuh)
#pragma once
#include "cuda/common/prompt_tiles.cuh"

template <int TYPE> struct src;
template <int L> struct format;
template <int L> struct operands;
template <int L> struct few_lane;

// How minimums lie: none; two halves beside the scales; six bits beside scales of six bits, for 32 columns; four bits, for 16.
enum unit_mins { MINS_NONE, MINS_HALF, MINS_SIX, MINS_FOUR };

// Facts of a layout of codes: CODES parts of 512 bytes, MORE parts of bits that do not fit beside them, then the scales.
template <int CODES, int MORE> struct unit_format {
    static constexpr bool half = false;      // no codes: halves as they are
    static constexpr bool wide = CODES == 8; // codes of 8 bits
    static constexpr int NC = CODES, NX = MORE, scales = (CODES + MORE) * 512;
    static constexpr bool whole_units = false; // the file's blocks have 256 columns, so that no unit has less
    static constexpr unit_mins mins = MINS_NONE;
    static constexpr bool addends = true; // codes as halves have an offset, or a minimum
    static constexpr bool levels = false; // int8: codes are looked up in the unit (levels.cuh)
    static constexpr bool pairs = false;  // halves: pair() makes four codes of a word, which need no addend
    // ring slots of a warp of the kernel for one row, with two row tiles a step; for gate and up
    static constexpr int slots = 2, glu_slots = 2;
    // int8: codes have a sign; scales of a lane's two groups, or four of 16 columns; they are whole numbers, times the row's d
    static constexpr bool is_signed = true;
    static constexpr int n_scale = 2;
    static constexpr bool whole = false;
    // halves: words of factors of a lane's two groups
    static constexpr int n_factor = 2;

    // Groups tig and tig + 4 of a row to scale and addend of all lanes: [16 columns] each twice, from lane from.
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[2], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[g >> 2], from));
        s[0] = __low2half2(w), m[0] = __high2half2(w);
        s[1] = s[0], m[1] = m[0];
    }
    DEV uint32_t word(uint32_t v, int) { return v; }
    DEV float code_factor(int) { return 1.f; } // what the sums of partial p must be multiplied by
    DEV float min_factor(int) { return 1.f; }  // by which its minimums are larger, as its sums are
    DEV uint32_t scale_word(const uint4 &s, int) { return s.x; }
    DEV float row_d(const uint4 &s, const uint32_t (&)[2], int) {
        return half_bits(s.x & 0xffff); // where scales are whole
    }
};

DEV uint32_t word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
enum { LOP_AND_XOR = 0x6a }; // (a & b) ^ c
DEV float nibble_place(int tig) { return tig & 1 ? 0.0625f : 1.f; }
DEV uint32_t less_128(uint32_t v) { // two bfloat16
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x3f803f80u), "r"(0xc300c300u));
    return r;
}
DEV float2 bf16x2_bits(uint32_t v) {
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}
DEV float byte_float(uint32_t w, int i) { // by way of 2^23
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540 + i)) - 8388608.f;
}
DEV float byte_float_less_128(uint32_t w, int i) { // 2^23 + 128
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540 + i)) - 8388736.f;
}

// ---- one weight
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
DEV int group_place(int k) {
    return (k >> 5 & 3) * 4 + (k >> 7 & 1) * 2;
} // of a scale of two bytes in its row

// ---- repack: every byte of a row's part of a unit is written by one thread
DEV void put_word(uint8_t *u, int word, uint32_t v) { *(uint32_t *)(u + word * 4) = v; }
// word of (row, tig, e) inside a part of 512 bytes
DEV int code_word(int row, int tig, int e) { return ((row & 7) * 4 + tig) * 4 + 2 * e + (row >> 3); }

template <class F> DEV void put_nibbles(uint8_t *u, int row, F code) {
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++) {
                int k = p * 64 + e * 16 + tig * 4 + j;
                w |= (uint32_t)((code(k) & 15) | (code(k + 32) & 15) << 4) << (8 * j);
            }
            put_word(u + p * 512, code_word(row, tig, e), w);
        }
}
template <class F> DEV void put_bytes(uint8_t *u, int row, F code) {
    for (int g = 0; g < 8; g++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++) w |= (uint32_t)(code(g * 32 + e * 16 + tig * 4 + j) & 255) << (8 * j);
            put_word(u + g * 512, code_word(row, tig, e), w);
        }
}
// BITS bits of each code, N groups a byte
template <int BITS, int N, class F> DEV void put_planes(uint8_t *u, int row, F code) {
    for (int part = 0; part < 8 / N; part++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++)
                for (int f = 0; f < N; f++)
                    w |= (uint32_t)(code((part * N + f) * 32 + e * 16 + tig * 4 + j) & ((1 << BITS) - 1))
                         << (8 * j + BITS * f);
            put_word(u + part * 512, code_word(row, tig, e), w);
        }
}

// ---- prompt rows: where a warp reads, and words of codes in shared memory
struct slab {
    const uint8_t *first; // unit of the row tile
    int at;               // bytes from the start of a stage to the row tile's codes
};
DEV uint4 lds16(uint32_t p) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(p));
    return v;
}
// Volatile: a load stays where it is written, ahead of the products that hide its latency.
DEV uint4 ldg16(const uint8_t *p) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
DEV uint2 ldg8(const uint8_t *p) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
DEV uint32_t pick(const uint4 &v, int e, int h) { return e ? (h ? v.w : v.z) : (h ? v.y : v.x); }
struct words { // 16 bytes of code words
    uint4 v;
    MEM uint32_t get(int hi_row, int e) const { return pick(v, e, hi_row); }
    MEM void load(const slab &s, uint32_t at) { v = lds16(at + s.at + (threadIdx.x & 31) * 16); }
};
DEV int slab_row(int hi_row) { return ((threadIdx.x & 31) >> 2) + 8 * hi_row; }

// bytes 0,1 (or 2,3) of w, below 1024, as halves minus bias: exact
DEV __half2 bytes_half(uint32_t w, int pair, uint32_t bias) {
    return __hsub2(as_half2(__byte_perm(w, 0x64646464u, pair ? 0x4342 : 0x4140)), as_half2(bias));
}
DEV uint32_t biased(int b) // 1024 + b, twice
{
    uint32_t h = 0x6400u + (uint32_t)b;
    return h | h << 16;
}
// four codes of one row as two registers: (code - bias) * d, or code * d + m
DEV void scaled(uint32_t w, uint32_t bias, __half2 d, uint32_t &a, uint32_t &b) {
    a = half2_word(__hmul2(bytes_half(w, 0, bias), d));
    b = half2_word(__hmul2(bytes_half(w, 1, bias), d));
}
DEV void shifted(uint32_t w, __half2 d, __half2 m, uint32_t &a, uint32_t &b) {
    a = half2_word(__hfma2(bytes_half(w, 0, biased(0)), d, m));
    b = half2_word(__hfma2(bytes_half(w, 1, biased(0)), d, m));
}

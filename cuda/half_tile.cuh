// How a step of many rows hands halves to the next matmul: tiles of 64 columns x pitch rows, 128 bytes a row, the
// 16-byte chunk c of row r at c ^ (r & 7): as ldmatrix and wgmma read them without conflicts. Columns of a group of 32
// lie in the order of a unit's lanes: k = 8 t + 4 e + j is number 16 e + 2 t + (j & 1) + 8 (j >> 1), see layout.h.
// bfloat16 has two tiles after each other, the high parts and the low ones.
#pragma once
#include "util.cuh"

// Byte of column k (of a pair: the even one) of a row in the tiles.
DEV size_t half_tile_at(int row, int k, int pitch, int parts) {
    const int g = k & 31, at = (k & 32) + 16 * (g >> 2 & 1) + 2 * (g >> 3) + (g & 1) + 4 * (g & 2);
    return ((size_t)(k >> 6) * parts * pitch + row) * 128 + (((at >> 3) ^ (row & 7)) << 4) + (at & 7) * 2;
}
DEV void put_tile(bool bf16, uint8_t *x, int pitch, int row, int k, float y) {
    uint8_t *at = x + half_tile_at(row, k, pitch, bf16 ? 2 : 1);
    if (bf16) {
        const __nv_bfloat16 hi = __float2bfloat16(y);
        *(__nv_bfloat16 *)at = hi;
        *(__nv_bfloat16 *)(at + pitch * 128) = __float2bfloat16(y - __bfloat162float(hi));
    } else
        *(__half *)at = __float2half(fminf(fmaxf(y, -65504.f), 65504.f));
}
// Columns k and k + 1 (k even).
DEV void put_tile2(bool bf16, uint8_t *x, int pitch, int row, int k, float a, float b) {
    uint8_t *at = x + half_tile_at(row, k, pitch, bf16 ? 2 : 1);
    if (bf16) {
        const __nv_bfloat162 hi = __floats2bfloat162_rn(a, b);
        *(__nv_bfloat162 *)at = hi;
        *(__nv_bfloat162 *)(at + pitch * 128) =
            __floats2bfloat162_rn(a - __low2float(hi), b - __high2float(hi));
    } else
        *(uint32_t *)at = pack_half2(fminf(fmaxf(a, -65504.f), 65504.f), fminf(fmaxf(b, -65504.f), 65504.f));
}
// Columns k, k + 1, k + 8 and k + 9 (k a multiple of 16 and 0, 2, 4 or 6 more), which lie together.
DEV void put_tile4(bool bf16, uint8_t *x, int pitch, int row, int k, const float4 &v) {
    uint8_t *at = x + half_tile_at(row, k, pitch, bf16 ? 2 : 1);
    if (bf16) {
        const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
        ((__nv_bfloat162 *)at)[0] = a;
        ((__nv_bfloat162 *)at)[1] = b;
        at += pitch * 128;
        ((__nv_bfloat162 *)at)[0] = __floats2bfloat162_rn(v.x - __low2float(a), v.y - __high2float(a));
        ((__nv_bfloat162 *)at)[1] = __floats2bfloat162_rn(v.z - __low2float(b), v.w - __high2float(b));
    } else
        *(uint2 *)at = make_uint2(
            pack_half2(fminf(fmaxf(v.x, -65504.f), 65504.f), fminf(fmaxf(v.y, -65504.f), 65504.f)),
            pack_half2(fminf(fmaxf(v.z, -65504.f), 65504.f), fminf(fmaxf(v.w, -65504.f), 65504.f)));
}
// Plain rows, for one row and the kernels of up to 8: columns in their order, bfloat16 in units of 256 high and 256 low parts.
DEV void put_half(uint8_t *row, int col, float y) {
    *(__half *)(row + (size_t)col * 2) = __float2half(fminf(fmaxf(y, -65504.f), 65504.f));
}
DEV void put_bf16(uint8_t *row, int col, float y) {
    const __nv_bfloat16 hi = __float2bfloat16(y);
    uint8_t *u = row + (size_t)(col >> 8) * 1024 + (col & 255) * 2;
    *(__nv_bfloat16 *)u = hi;
    *(__nv_bfloat16 *)(u + 512) = __float2bfloat16(y - __bfloat162float(hi));
}
// A column of row t as a job's output wants it; TILES: that may be tiles, where the row is tile_row.
template <bool TILES, class J>
DEV void put_column(const J &j, bool bf16, int t, int tile_row, int col, float y) {
    if (TILES && j.xo_pitch)
        put_tile(bf16, j.xo, j.xo_pitch, tile_row, col, y);
    else if (bf16)
        put_bf16(j.xo + t * j.xo_row, col, y);
    else
        put_half(j.xo + t * j.xo_row, col, y);
}

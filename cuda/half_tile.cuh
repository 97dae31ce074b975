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

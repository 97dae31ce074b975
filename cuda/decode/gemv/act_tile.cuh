// How rows go from one kernel of a step to the next: as halves. One row lies plain; a step of many rows has tiles of 64 columns
// x pitch rows, 128 bytes a row, the 16-byte chunk c of row r at c ^ (r & 7): as ldmatrix and wgmma read them without
// conflicts. A group of 32 columns lies in the order in which a lane's weights come (unit_layout.h), so that one read of 16 bytes
// is a lane's operand of both products of the group: GIVE_HALF and GIVE_BF16 for weights that are halves, GIVE_CODES
// for codes. bfloat16 has the high parts and the low ones after each other: 256 columns of a plain row, two tiles.
#pragma once
#include "cuda/decode/gemv/gemv.h"
#include "cuda/common/util.cuh"

// Number of column k of 32 in its group: of a plain row, where lane t has numbers 8 t .. 8 t + 7, and of a tile, where product e
// has numbers 16 e .. and lane t the pairs 2 t and 2 t + 8 of them.
DEV int row_order(bool codes, int k) {
    return codes ? (k >> 2 & 3) * 8 + (k >> 4 & 1) * 4 + (k & 1) * 2 + (k >> 1 & 1) : k & 31;
}
DEV int tile_order(bool codes, int k) {
    return codes ? (k & 16) + 2 * (k >> 2 & 3) + (k >> 1 & 1) + 8 * (k & 1)
                 : 16 * (k >> 2 & 1) + 2 * (k >> 3 & 3) + (k & 1) + 4 * (k & 2);
}
// Lanes that far apart have columns that are neighbours in a tile: gid and gid + 1, or gid and gid + 2.
DEV int tile_neighbour(int give) { return give == GIVE_CODES ? 8 : 4; }

// Byte of column k of a row in the tiles.
DEV size_t act_tile_at(int give, int row, int k, int pitch) {
    const int at = (k & 32) + tile_order(give == GIVE_CODES, k);
    return ((size_t)(k >> 6) * (give == GIVE_BF16 ? 2 : 1) * pitch + row) * 128 +
           (((at >> 3) ^ (row & 7)) << 4) + (at & 7) * 2;
}
DEV float skinny_range(float y) { return fminf(fmaxf(y, -65504.f), 65504.f); }
DEV void put_tile(int give, uint8_t *x, int pitch, int row, int k, float y) {
    uint8_t *at = x + act_tile_at(give, row, k, pitch);
    if (give == GIVE_BF16) {
        const __nv_bfloat16 hi = __float2bfloat16(y);
        *(__nv_bfloat16 *)at = hi;
        *(__nv_bfloat16 *)(at + pitch * 128) = __float2bfloat16(y - __bfloat162float(hi));
    } else
        *(__half *)at = __float2half(skinny_range(y));
}
// Column k and its neighbour behind it.
DEV void put_tile2(int give, uint8_t *x, int pitch, int row, int k, float a, float b) {
    uint8_t *at = x + act_tile_at(give, row, k, pitch);
    if (give == GIVE_BF16) {
        const __nv_bfloat162 hi = __floats2bfloat162_rn(a, b);
        *(__nv_bfloat162 *)at = hi;
        *(__nv_bfloat162 *)(at + pitch * 128) =
            __floats2bfloat162_rn(a - __low2float(hi), b - __high2float(hi));
    } else
        *(uint32_t *)at = pack_half2(skinny_range(a), skinny_range(b));
}
// Columns k, k + 1, k + 8 and k + 9 (k a multiple of 16 and 0, 2, 4 or 6 more) for weights that are halves, where they lie
// together.
DEV void put_tile4(int give, uint8_t *x, int pitch, int row, int k, const float4 &v) {
    uint8_t *at = x + act_tile_at(give, row, k, pitch);
    if (give == GIVE_BF16) {
        const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
        ((__nv_bfloat162 *)at)[0] = a;
        ((__nv_bfloat162 *)at)[1] = b;
        at += pitch * 128;
        ((__nv_bfloat162 *)at)[0] = __floats2bfloat162_rn(v.x - __low2float(a), v.y - __high2float(a));
        ((__nv_bfloat162 *)at)[1] = __floats2bfloat162_rn(v.z - __low2float(b), v.w - __high2float(b));
    } else
        *(uint2 *)at = make_uint2(pack_half2(skinny_range(v.x), skinny_range(v.y)),
                                  pack_half2(skinny_range(v.z), skinny_range(v.w)));
}
DEV void put_bf16(uint8_t *row, int col, float y) {
    const __nv_bfloat16 hi = __float2bfloat16(y);
    uint8_t *u = row + (size_t)(col >> 8) * 1024 + (col & 255) * 2;
    *(__nv_bfloat16 *)u = hi;
    *(__nv_bfloat16 *)(u + 512) = __float2bfloat16(y - __bfloat162float(hi));
}
// A column of row t as a job's output wants it; TILES: that may be tiles, where the row is tile_row.
template <bool TILES, class J> DEV void put_column(const J &j, int t, int tile_row, int col, float y) {
    uint8_t *row = j.xo + t * j.xo_row;
    if (TILES && j.xo_pitch)
        put_tile(j.give, j.xo, j.xo_pitch, tile_row, col, y);
    else if (j.give == GIVE_BF16)
        put_bf16(row, col, y);
    else
        ((__half *)row)[(col & ~31) + row_order(j.give == GIVE_CODES, col)] = __float2half(skinny_range(y));
}

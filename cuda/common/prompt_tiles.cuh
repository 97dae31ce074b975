// Activations of prompt rows as their kernels read them.
#pragma once
#include "cuda/common/util.cuh"

// Order of the 32 columns of a group in activation tiles. CODES: a lane's four columns of step e are 16 e + 4 t .. (units of
// int codes); HALVES: 8 t + 4 e .. (units of halves, whose lanes hold eight neighbours). FLOATS: float32 rounded to TF32, as
// they come, 32 columns a tile. ROWS: halves in plain rows of k_tiles * 64 (cuBLASLt).
enum prompt_order { ORDER_CODES, ORDER_HALVES, ORDER_FLOATS, ORDER_ROWS };
static __host__ __device__ constexpr int prompt_tile_cols(int order) {
    return order == ORDER_FLOATS ? 32 : 64;
}
static __host__ __device__ constexpr int prompt_position(int k, int order) {
    int t = order == ORDER_CODES ? (k & 15) >> 2 : k >> 3, e = order == ORDER_CODES ? k >> 4 : (k >> 2) & 1,
        j = k & 3;
    return 16 * e + (j < 2 ? 2 * t + j : 8 + 2 * t + j - 2);
}

// Activations of prompt rows: tiles of 256 rows x 64 columns, 32 KB each, tiles of one row block along K together; a tile
// is the 128-byte swizzle that wgmma reads: row r at r * 128, its 16-byte chunk c at (c ^ (r & 7)) * 16.
enum { PROMPT_TILE_ROWS = 256, PROMPT_TILE_COLS = 64, PROMPT_TILE_BYTES = 32768 };
// Where column k lies in every row of a tile.
struct prompt_column {
    size_t tile;    // bytes from the row block's first tile
    int chunk, low; // 16-byte chunk of the row, before the swizzle; byte in it
};
static __host__ __device__ inline prompt_column prompt_column_of(int k, int order) {
    bool wide = order == ORDER_FLOATS;
    int p = wide ? 2 * (k & 31) : (k & 32) + prompt_position(k & 31, order);
    return prompt_column{(size_t)(k >> (wide ? 5 : 6)) * PROMPT_TILE_BYTES, p >> 3, (p & 7) * 2};
}
// Byte offset of row t in such a column; k_tiles: columns over those of a tile, rounded up.
static __host__ __device__ inline size_t prompt_offset(int t, const prompt_column &c, int k_tiles) {
    int r = t & 255;
    return (size_t)(t >> 8) * (size_t)k_tiles * PROMPT_TILE_BYTES + c.tile +
           (size_t)(r * 128 + ((c.chunk ^ (r & 7)) << 4) + c.low);
}
// Byte offset of row t, column k.
static __host__ __device__ inline size_t prompt_offset(int t, int k, int k_tiles, int order) {
    if (order == ORDER_ROWS) return ((size_t)t * (size_t)k_tiles * PROMPT_TILE_COLS + (size_t)k) * 2;
    return prompt_offset(t, prompt_column_of(k, order), k_tiles);
}
// To the nearest TF32: 10 bits behind the point.
DEV float tf32_round(float v) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return __uint_as_float(r);
}
// One value, as float32 rounded to TF32 where wide, else as a half.
DEV void prompt_put(uint8_t *at, bool wide, float v) {
    if (wide)
        *(float *)at = tf32_round(v);
    else
        *(__half *)at = __float2half_rn(fminf(fmaxf(v, -65504.f), 65504.f));
}
// The same as a half in shared memory.
DEV void prompt_put_shared(uint32_t at, float v) {
    __half h = __float2half_rn(fminf(fmaxf(v, -65504.f), 65504.f));
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(__half_as_ushort(h)) : "memory");
}
// Columns k and k + 1 (k even) of row t.
DEV void prompt_put2(uint8_t *tiles, int t, int k, int k_tiles, int order, float a, float b) {
    uint8_t *at = tiles + prompt_offset(t, k, k_tiles, order);
    if (order == ORDER_FLOATS)
        *(float2 *)at = make_float2(tf32_round(a), tf32_round(b));
    else
        *(uint32_t *)at = pack_half2(a, b);
}

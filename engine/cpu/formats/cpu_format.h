/* What the processor knows of a format. Files cpu_<name>.h, one for each row of quant.def whose block is more than one element,
 * are included by its kernels from one list that CMake makes of the rows. Each begins with its facts:
 *
 *     CPU_FORMAT(id, columns of a sub-block (32 or 16), offset, has minima, codes of 8 bits, whole, tiles)
 *
 * A value is d (u - offset) + g, u an unsigned code, d and g of a sub-block; g is 0 without minima. whole: without VNNI, sums
 * are multiplied by integer scales (scale() in panel.h) before they become floats. tiles: AMX gains.
 *
 * Then three readers of the same bytes, of 256 columns (formats in blocks of 32: as many blocks as are there):
 *
 *     CPU_PANELS   pack_<id>(panel, rows, n): R rows side by side into a panel (panel.h) of n sub-blocks;
 *                  code_<id>(copy, k4): codes of columns 4 k4 .. 4 k4 + 4 out of the copy that pack left
 *     AVX-512      head_<id>(w): d and g of a row's sub-blocks (struct sub8 or sub16), where a value is d u + g;
 *                  codes_<id>(w, p): codes of columns 64 p .. 64 p + 64 in order (block_avx512.h)
 *     AVX2         the same, columns 32 b .. 32 b + 32; codes of 8 bits with a sign, offset 0: the products of two
 *                  unsigned 8-bit halves would not fit vpmaddubsw's 16-bit sums (block_avx2.h) */
#pragma once
#include "quant/quant.h"
#if defined(CPU_PANELS)
#include "cpu/simd/panel.h"
#elif defined(__AVX512F__)
#include "cpu/simd/block_avx512.h"
#else
#include "cpu/simd/block_avx2.h"
#endif

#define CPU_FORMAT(id, cols, off, min, wide, whole, tiles)                                                   \
    enum {                                                                                                   \
        id##_COLS = cols,                                                                                    \
        id##_OFF = off,                                                                                      \
        id##_MIN = min,                                                                                      \
        id##_WIDE = wide,                                                                                    \
        id##_WHOLE = whole,                                                                                  \
        id##_TILES = tiles                                                                                   \
    };

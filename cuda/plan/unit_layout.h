/* How weights lie on the device: units of 16 rows x 256 columns in tensor-core fragment order.
 *
 * Units of one row tile (16 rows) follow each other along K, then the next row tile. Inside a unit, lane =
 * 4 * gid + tig as in the A operand of mma.sync m16n8k32 (rows gid and gid + 8), column k = 32 g + 16 e +
 * 4 tig + j:
 *
 *   codes of 4 bits  4 parts of 512 bytes; part g / 2, byte lane * 16 + (2 e + row / 8) * 4 + j; groups g even in
 *                    the low nibble, odd in the high one: a lane's 16 bytes are the operand a0 .. a3
 *   codes of 8 bits  8 parts of 512 bytes, part g, the same
 *   halves           16 parts of 512 bytes, part 2 g + row / 8, lane * 16: 8 halves of columns 32 g + 8 tig ..
 *   bits beside them 4, 2 or 1 bits of each code in parts of 512 bytes, the same, 2, 4 or 8 groups a byte
 *   float32          8 parts of 32 columns, [16][32]; 16-byte chunk c of row r at (c ^ (r & 7)): the swizzle of wgmma
 *
 * Scales follow the codes, ordered so that lane tig finds groups tig and tig + 4 in one word: drawn in cuda/formats/cuda_<name>.cuh
 * of the type that layouts.def names first with the layout.
 *
 * Read by C and C++. source: PTX ISA, fragments of mma.m16n8k32 and m16n8k16; the order is ours. */
#pragma once
#include "quant/quant.h"

enum layout {
#define LAYOUT(id, name, bytes, kind) LAYOUT_##id,
#include "cuda/plan/layouts.def"
    LAYOUT_COUNT
};
/* The layout of an element type: LAYOUT_OF_Q4_0 and so on. */
enum {
#define TYPE(type, layout) LAYOUT_OF_##type = LAYOUT_##layout,
#include "cuda/plan/layouts.def"
};
enum { UNIT_ROWS = 16, UNIT_COLS = 256, UNIT_PAIR = 32 /* rows to which a member is padded */ };

#if defined(__CUDACC__)
#define LAYOUT_FN static __host__ __device__ inline constexpr
#else
#define LAYOUT_FN static inline
#endif

/* Byte of element (row, k) in a unit of F32. */
LAYOUT_FN int layout_f32_byte(int row, int k) {
    return (k >> 5) * 2048 + row * 128 + ((((k >> 2) & 7) ^ (row & 7)) << 4) + (k & 3) * 4;
}

/* Bytes of a unit. */
LAYOUT_FN int layout_unit_bytes(enum layout l) {
    switch (l) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return bytes;
#include "cuda/plan/layouts.def"
    default:
        return 0;
    }
}

/* What a unit is made of: codes and scales, those that int8 products take and others, halves or floats. */
enum layout_kind { KIND_CODES, KIND_EIGHTS, KIND_HALVES, KIND_FLOATS };
LAYOUT_FN enum layout_kind layout_kind(enum layout l) {
    switch (l) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return KIND_##kind;
#include "cuda/plan/layouts.def"
    default:
        return KIND_CODES;
    }
}

/* Layout that a file's type is re-tiled to. A type without a row does not compile. */
LAYOUT_FN enum layout layout_of(enum quant_type t) {
    switch (t) {
#define QUANT(id, gguf, name, elems, bytes)                                                                  \
    case QUANT_##id:                                                                                         \
        return (enum layout)LAYOUT_OF_##id;
#include "quant/quant.def"
    default:
        return LAYOUT_COUNT;
    }
}

/* One row for kernels that multiply codes by codes: a record for 256 columns, quantised in groups of 32 or 16 columns.
 *   0    256 codes: group g = k / 32, e = k / 16 & 1, byte (g * 4 + tig) * 8 + e * 4 + j: the operand b0, b1 of a lane
 *   256  float scales; g = k / 32, p = g & 3, h = g >> 2: groups of 32: p * 2 + h; of 16: p * 4 + h * 2 + e
 *   320  sums of scale * code as two bfloat16, e * 16 + p * 2 + h the high parts, 8 further the low ones; groups of 32
 *        have e = 0 alone; where minimums are for 16 columns, e = 0, 1 of theirs are at 288 */
enum { REC_SCALE = 256, REC_SUM = 320, REC_BYTES_32 = 352, REC_BYTES_16 = 416, REC_HALF_SUM = 288 };

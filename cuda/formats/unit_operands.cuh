// Weights of prompt rows as A operands: units of unit_layout.h to half fragments of mma.m16n8k16 / wgmma.m64k16 in registers.
// Codes come through shared memory (64 columns of a row tile at a time, as they lie in the unit), scales from global memory
// a unit ahead.
//
// A warp's slab is 16 rows: fragment rows 0..7 ("lo") and 8..15 ("hi"). Plain: both from one row tile. Paired (gate
// and up interleaved by tiles of 16): lo is half h of the gate tile, hi is half h of the up tile, so that one thread
// ends up with both factors of a gated unit. Halves interleave gate and up by 8 rows inside a tile: plain there.
//
// Columns: a step is 16 columns; a lane's logical columns 2t, 2t+1, 2t+8, 2t+9 (t = lane & 3) of step e are whichever four
// neighbours its words hold. Activations are stored in that order.
#pragma once
#include "made/cuda_formats.cuh"

// Tiles of activations that one unit of weights meets.
template <int L> constexpr int tiles_per_unit = L == LAYOUT_F32 ? 8 : 4;
// operands<L>: raw registers of 64 columns, scales of a unit, conversion of one step of 16 columns.
//   pieces, piece(p, i)   what 64 columns p = 0..3 of a unit are: n_piece runs of piece_bytes at these offsets
//   load(raw, slab, stage)   scale(scales, slab, unit offset)   step(raw, scales, slab, p, s = 0..3, a[4])

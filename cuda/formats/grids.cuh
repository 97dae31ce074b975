// The codebooks of IQ2, IQ3 and IQ1 as quant_grids.def has them, for the upload alone: a point is the places of its values among the
// levels. Nothing else reads them, so that no kernel holds them.
#pragma once
#include "cuda/common/prompt_tiles.cuh"

DEV int grid_iq2_xxs(int i) {
    static const uint16_t point[256] = {
#define GRID_IQ2_XXS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_XXS
    };
    return point[i];
}
DEV int grid_iq2_xs(int i) {
    static const uint16_t point[512] = {
#define GRID_IQ2_XS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_XS
    };
    return point[i];
}
DEV int grid_iq2_s(int i) {
    static const uint16_t point[1024] = {
#define GRID_IQ2_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_S
    };
    return point[i];
}
DEV int grid_iq1_s(int i) {
    static const uint16_t point[2048] = {
#define GRID_IQ1_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ1_S
    };
    return point[i];
}
DEV int grid_iq3_xxs(int i) {
    static const uint16_t point[256] = {
#define GRID_IQ3_XXS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ3_XXS
    };
    return point[i];
}
DEV int grid_iq3_s(int i) {
    static const uint16_t point[512] = {
#define GRID_IQ3_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ3_S
    };
    return point[i];
}

// Value j of a point of IQ2, 8 25 43; of IQ3_XXS, 4 12 .. 52 62; of IQ3_S, 1 3 .. 15; of IQ1, 8 times -1 0 1.
DEV int level_iq2(int point, int j) {
    const int a = point >> (2 * j) & 3;
    return 8 + 17 * a + (a >> 1);
}
DEV int level_iq3_xxs(int point, int j) {
    const int a = point >> (3 * j) & 7;
    return 4 + 8 * a + (a == 7 ? 2 : 0);
}
DEV int level_iq3_s(int point, int j) { return 2 * (point >> (3 * j) & 7) + 1; }
DEV int level_iq1(int point, int j) { return 8 * (point >> (2 * j) & 3) - 8; }
// Seven signs and the eighth that makes their number even.
DEV int with_even_sign(int v, int seven, int j) {
    return ((j < 7 ? seven >> j : __popc(seven)) & 1) ? -v : v;
}

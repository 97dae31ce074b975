/* The codebooks of IQ2, IQ3 and IQ1 as bytes, the first value of a point in the lowest one. */
#include "quant/quant_codes.h"

#define AT(p, i)  ((uint64_t)((p) >> 2 * (i)&3))
#define AT3(p, i) ((uint32_t)((p) >> 3 * (i)&7))
#define EIGHT(p, F)                                                                                          \
    (F(AT(p, 0)) | F(AT(p, 1)) << 8 | F(AT(p, 2)) << 16 | F(AT(p, 3)) << 24 | F(AT(p, 4)) << 32 |            \
     F(AT(p, 5)) << 40 | F(AT(p, 6)) << 48 | F(AT(p, 7)) << 56)
#define FOUR(p, F) (F(AT3(p, 0)) | F(AT3(p, 1)) << 8 | F(AT3(p, 2)) << 16 | F(AT3(p, 3)) << 24)

#define LEVEL_2(a)   (8 + 17 * (a) + ((a) >> 1))        /* 8 25 43 */
#define LEVEL_3XX(a) (4 + 8 * (a) + ((a) == 7 ? 2 : 0)) /* 4 12 .. 52 62 */
#define LEVEL_3S(a)  (2 * (a) + 1)
#define LEVEL_1(a)   (8 * (a)) /* -1 0 1, times 8, plus 8 */

const uint64_t quant_grid_iq2_xxs[256] = {
#define GRID_IQ2_XXS
#define P(p) EIGHT(p, LEVEL_2),
#include "quant/quant_grids.def"
#undef GRID_IQ2_XXS
};
const uint64_t quant_grid_iq2_xs[512] = {
#define GRID_IQ2_XS
#define P(p) EIGHT(p, LEVEL_2),
#include "quant/quant_grids.def"
#undef GRID_IQ2_XS
};
const uint64_t quant_grid_iq2_s[1024] = {
#define GRID_IQ2_S
#define P(p) EIGHT(p, LEVEL_2),
#include "quant/quant_grids.def"
#undef GRID_IQ2_S
};
const uint64_t quant_grid_iq1_s[2048] = {
#define GRID_IQ1_S
#define P(p) EIGHT(p, LEVEL_1),
#include "quant/quant_grids.def"
#undef GRID_IQ1_S
};
const uint32_t quant_grid_iq3_xxs[256] = {
#define GRID_IQ3_XXS
#define P(p) FOUR(p, LEVEL_3XX),
#include "quant/quant_grids.def"
#undef GRID_IQ3_XXS
};
const uint32_t quant_grid_iq3_s[512] = {
#define GRID_IQ3_S
#define P(p) FOUR(p, LEVEL_3S),
#include "quant/quant_grids.def"
#undef GRID_IQ3_S
};

/* The points themselves, for the encoder. */
const uint16_t quant_points_iq2_xxs[256] = {
#define GRID_IQ2_XXS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_XXS
};
const uint16_t quant_points_iq2_xs[512] = {
#define GRID_IQ2_XS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_XS
};
const uint16_t quant_points_iq2_s[1024] = {
#define GRID_IQ2_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ2_S
};
const uint16_t quant_points_iq1_s[2048] = {
#define GRID_IQ1_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ1_S
};
const uint16_t quant_points_iq3_xxs[256] = {
#define GRID_IQ3_XXS
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ3_XXS
};
const uint16_t quant_points_iq3_s[512] = {
#define GRID_IQ3_S
#define P(p) p,
#include "quant/quant_grids.def"
#undef GRID_IQ3_S
};

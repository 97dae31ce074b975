/* FP4: 64 codes of four bits and the largest magnitude: bitsandbytes. No type of GGUF files.
 *
 *     byte 0      4                                        36
 *          | s    | q[32]                                  |
 *                   low four bits: element 2 j, high four: element 2 j + 1
 *
 *     x[i] = s * level[code[i]]          s: binary32; floats with two bits of exponent and one behind the point, 1 the largest
 *
 * Codes of 8 bits are the nearest to 120 times the level; all but the smallest are whole then. source: bitsandbytes' quant_map; the layout is ours. */
#include "quant/quant_codes.h"

const float quant_fp4_levels[16] = {
    0.0f,  0.005208333333f,  0.6666666667f,  1.0f,  0.3333333333f,  0.5f,  0.1666666667f,  0.25f,
    -0.0f, -0.005208333333f, -0.6666666667f, -1.0f, -0.3333333333f, -0.5f, -0.1666666667f, -0.25f};

QUANT_OF_LEVELS(FP4, quant_fp4_levels, 120)

/* NF4: 64 codes of four bits and the largest magnitude: bitsandbytes. No type of GGUF files.
 *
 *     byte 0      4                                        36
 *          | s    | q[32]                                  |
 *                   low four bits: element 2 j, high four: element 2 j + 1
 *
 *     x[i] = s * level[code[i]]          s: binary32; levels of a normal distribution
 *
 * Codes of 8 bits are the nearest to 112 times the level; of the whole factors up to 127 that is the one with the least error. source: QLoRA, appendix E; the numbers are those of bitsandbytes' quant_map; the layout is ours. */
#include "quant/quant_codes.h"

const float quant_nf4_levels[16] = {-1.0f,
                                    -0.6961928009986877f,
                                    -0.5250730514526367f,
                                    -0.39491748809814453f,
                                    -0.28444138169288635f,
                                    -0.18477343022823334f,
                                    -0.09105003625154495f,
                                    0.0f,
                                    0.07958029955625534f,
                                    0.16093020141124725f,
                                    0.24611230194568634f,
                                    0.33791524171829224f,
                                    0.44070982933044434f,
                                    0.5626170039176941f,
                                    0.7229568362236023f,
                                    1.0f};

QUANT_OF_LEVELS(NF4, quant_nf4_levels, 112)

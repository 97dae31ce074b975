/* Shared by quant.c and the quant_<name>.c files: their declarations, made from quant.def, and the packed
 * scales of the K formats. Private to the engine; others go through quant_info(). */
#pragma once
#include "quant/quant.h"

#define QUANT(id, gguf, name, elems, bytes)                                                                  \
    void quant_##id##_decode(float *y, const void *blocks, size_t n);                                        \
    void quant_##id##_encode(void *blocks, const float *x, size_t n, const float *importance);
#include "quant/quant.def"

#define QUANT_FLOAT(...)
#define QUANT(...)
#define QUANT_CODES(id, ...) void quant_##id##_codes(int8_t *code, float *d, const void *blocks, size_t n);
#include "quant/quant.def"

/* The eight 6-bit (scale, min) pairs of Q4_K and Q5_K in 12 bytes; j is 0..7. Capital letters are scales
 * A..H, small ones mins a..h, the letter's high two bits ride in bytes 0..7 of the pair four earlier:
 *
 *     byte  0..3   EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD
 *     byte  4..7   eeaaaaaa ffbbbbbb ggcccccc hhdddddd
 *     byte  8..11  eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH */
static inline void quant_k_scale_min(const uint8_t sc[12], int j, int *scale, int *min) {
    if (j < 4) {
        *scale = sc[j] & 63;
        *min = sc[j + 4] & 63;
    } else {
        *scale = (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
        *min = sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
    }
}
/* The inverse: scale[8] and min[8], 0..63, into sc. */
static inline void quant_k_pack_scales(uint8_t sc[12], const uint8_t *scale, const uint8_t *min) {
    for (int j = 0; j < 4; j++) {
        sc[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
        sc[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
        sc[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* The sixteen 6-bit scales of Q3_K in 12 bytes, -32..31; j is 0..15. Scales A..P:
 *
 *     byte  0..7   IIIIAAAA JJJJBBBB KKKKCCCC LLLLDDDD MMMMEEEE NNNNFFFF OOOOGGGG PPPPHHHH   low four bits
 *     byte  8..11  MMIIEEAA NNJJFFBB OOKKGGCC PPLLHHDD                                       high two bits */
static inline int quant_q3_k_scale(const uint8_t sc[12], int j) {
    int low = sc[j & 7] >> (j / 8 * 4) & 15, high = sc[8 + (j & 3)] >> (j / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

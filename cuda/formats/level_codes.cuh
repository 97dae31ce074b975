// Codes of four bits that are looked up: how they lie, and how.
#pragma once
#include "cuda/formats/unit.cuh"

// Indices of levels: 4 parts of 512 bytes, part g / 2, lane * 16 + (2 e + row / 8) * 4: four nibbles of group g even in the
// low half of the word, odd in the high one.
template <class F> DEV void put_level_indices(uint8_t *u, int row, F code) {
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < 8; c++) {
            uint32_t w = 0;
            for (int j = 0; j < 8; j++)
                w |= (uint32_t)code(p * 64 + (j >> 2) * 32 + (c >> 2) * 16 + (c & 3) * 4 + (j & 3))
                     << (4 * j);
            put_word(u + p * 512, code_word(row, c & 3, c >> 2), w);
        }
}

// Byte j of the result: byte v's nibble j names of low or high; where the nibble's bit 3 is set, that byte's highest bit eight
// times.
DEV uint32_t bytes_or_signs(uint32_t low, uint32_t high, uint32_t v) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(v));
    return r;
}

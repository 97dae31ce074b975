/* Random numbers, the same ones in every run. */
#pragma once
#include <stdint.h>

static uint64_t seed = 88172645463325252ull;
static inline float uniform(void) { /* -1 .. 1 */
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

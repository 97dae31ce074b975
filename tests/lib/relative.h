/* How far results are from what they should be. */
#pragma once
#include <math.h>
#include <stddef.h>

/* The norm of the difference of got[n] and want[n] over that of want. */
static inline double relative(const float *got, const float *want, size_t n) {
    double e = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        e += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        s += (double)want[i] * (double)want[i];
    }
    return sqrt(e / s);
}

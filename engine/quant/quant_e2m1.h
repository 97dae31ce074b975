/* Floats of four bits, a sign, two of exponent and one behind the point: 0 0.5 1 1.5 2 3 4 6, bit 3 the sign. Codes are twice that. */
#pragma once
#include <stdint.h>

static const int8_t e2m1_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The nearest code's index; no division, since 1 / d may be too large. */
static inline int e2m1_nearest(float x, float d) {
    float a = x < 0 ? -x : x;
    int i = (a > 0.5f * d) + (a > 1.5f * d) + (a > 2.5f * d) + (a > 3.5f * d) + (a > 5 * d) + (a > 7 * d) +
            (a > 10 * d);
    return x < 0 ? i | 8 : i;
}
/* What is lost of x[n], weighed by w, with codes times d. */
static inline float e2m1_error(const float *x, const float *w, int n, float d) {
    float error = 0;
    for (int j = 0; j < n; j++) {
        float e = x[j] - (float)e2m1_codes[e2m1_nearest(x[j], d)] * d;
        error += w[j] * e * e;
    }
    return error;
}

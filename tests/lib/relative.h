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

/* The largest difference. */
static inline double max_error(const float *a, const float *b, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* a NaN sticks */
    }
    return worst;
}

static inline double standard_deviation(const float *x, size_t n) {
    double sum = 0, sum2 = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], sum2 += (double)x[i] * (double)x[i];
    return sqrt(sum2 / (double)n - sum / (double)n * sum / (double)n);
}

/* Whether counts are what probabilities say. */
#pragma once
#include <math.h>

/* Chi-square of counts against probabilities, cells that expect fewer than 5 together; how many standard deviations above its mean. */
static inline double chi_square(const int *count, const double *p, int n, int n_drawn) {
    double sum = 0, few = 0, few_count = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        double want = p[i] * n_drawn;
        if (want < 5) {
            few += want, few_count += count[i];
        } else {
            sum += (count[i] - want) * (count[i] - want) / want;
            cells++;
        }
    }
    if (few >= 1) sum += (few_count - few) * (few_count - few) / few, cells++;
    return cells > 1 ? (sum - (cells - 1)) / sqrt(2.0 * (cells - 1)) : 0;
}

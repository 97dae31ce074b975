/* Places as sines and cosines. source: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5 */
#pragma once
#include <math.h>

/* out[n]: sines of at * 10000^(-2 i / n), then cosines. */
static inline void put_waves(int at, int n, float *out) {
    for (int i = 0; i < n / 2; i++) {
        const double turn = at * pow(10000, -2.0 * i / n);
        out[i] = (float)sin(turn), out[n / 2 + i] = (float)cos(turn);
    }
}

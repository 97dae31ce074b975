#include "seam/balance.h"

void balance_row(const struct op_balance *o, const float *x, float *out) {
    const int n = o->n, width = o->x.width;
    float *M = out + 2 * n;
    for (int i = 0; i < width; i++) out[i] = balance_value(o, i, x[i]);
    if (width == n) return;
    for (int j = 0; j < n; j++) balance_softmax(M + j * n, n, o->eps);
    for (int i = 0; i < o->n_round; i++) {
        for (int j = 0; i && j < n; j++) balance_divide(M + j * n, n, 1, o->eps);
        for (int k = 0; k < n; k++) balance_divide(M + k, n, n, o->eps);
    }
}

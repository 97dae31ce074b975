#include "seam/balance.h"
#include "seam/router.h"

/* Rows of M, then columns; the first time columns alone. */
static void divide_rows(float *M, int n, float eps) {
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int k = 0; k < n; k++) sum += M[j * n + k];
        for (int k = 0; k < n; k++) M[j * n + k] /= sum + eps;
    }
}
static void divide_columns(float *M, int n, float eps) {
    for (int k = 0; k < n; k++) {
        float sum = 0;
        for (int j = 0; j < n; j++) sum += M[j * n + k];
        for (int j = 0; j < n; j++) M[j * n + k] /= sum + eps;
    }
}

/* softmax of a row, + eps */
static void softmax(float *x, int n, float eps) {
    float top = x[0], sum = 0;
    for (int k = 1; k < n; k++)
        if (x[k] > top) top = x[k];
    for (int k = 0; k < n; k++) sum += x[k] = router_exp(x[k] - top);
    for (int k = 0; k < n; k++) x[k] = x[k] / sum + eps;
}

void balance_row(const struct op_balance *o, const float *x, float *out) {
    const int n = o->n, width = o->x.width;
    float *M = out + 2 * n;
    for (int i = 0; i < width; i++) {
        const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
        const float y = x[i] * o->scale[part] + o->base[i];
        out[i] = part == 2 ? y : part == 1 ? 2 * router_sigmoid(y) : router_sigmoid(y) + o->eps;
    }
    if (width == n) return;
    for (int j = 0; j < n; j++) softmax(M + j * n, n, o->eps);
    for (int i = 0; i < o->n_round; i++) {
        if (i) divide_rows(M, n, o->eps);
        divide_columns(M, n, o->eps);
    }
}

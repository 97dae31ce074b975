/* The arithmetic of OP_BALANCE (backend.h): float32, one row at a time, so that it has the same bits on every backend that has it. Read by C and
 * by CUDA, as router.h is. */
#pragma once
#include "seam/router.h"

/* Number i of a row before its matrix is balanced. */
ROUTER_FN float balance_value(const struct op_balance *o, int i, float x) {
    const int part = i < o->n ? 0 : i < 2 * o->n ? 1 : 2;
    const float y = ROUTER_ADD(ROUTER_MUL(x, o->scale[part]), o->base[i]);
    return part == 2   ? y
           : part == 1 ? ROUTER_MUL(2.f, router_sigmoid(y))
                       : ROUTER_ADD(router_sigmoid(y), o->eps);
}
/* softmax of a row, + eps */
ROUTER_FN void balance_softmax(float *x, int n, float eps) {
    float top = x[0], sum = 0;
    for (int k = 1; k < n; k++)
        if (x[k] > top) top = x[k];
    for (int k = 0; k < n; k++) {
        x[k] = router_exp(ROUTER_ADD(x[k], ROUTER_MUL(top, -1.f)));
        sum = ROUTER_ADD(sum, x[k]);
    }
    for (int k = 0; k < n; k++) x[k] = ROUTER_ADD(ROUTER_DIV(x[k], sum), eps);
}
/* n numbers, `apart` from each other, by their sum: a row of the matrix, or a column. */
ROUTER_FN void balance_divide(float *x, int n, int apart, float eps) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum = ROUTER_ADD(sum, x[k * apart]);
    sum = ROUTER_ADD(sum, eps);
    for (int k = 0; k < n; k++) x[k * apart] = ROUTER_DIV(x[k * apart], sum);
}

#ifdef __cplusplus
extern "C" {
#endif

/* One row: x[width] -> out[width], which may be x. */
void balance_row(const struct op_balance *o, const float *x, float *out);

#ifdef __cplusplus
}
#endif

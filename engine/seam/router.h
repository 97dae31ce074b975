/* The arithmetic of OP_ROUTE (backend.h), the same float32 operations in the same order on every backend: a router decides, so its bits must
 * not depend on who computes. Nothing here may be contracted or reordered. Read by C and by CUDA, where products and sums are
 * those that never become one operation. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "seam/backend.h"

#if defined(__CUDACC__)
#define ROUTER_FN static __host__ __device__ inline
#else
#define ROUTER_FN static inline
#endif
#if defined(__CUDA_ARCH__)
#define ROUTER_ADD(a, b) __fadd_rn(a, b)
#define ROUTER_MUL(a, b) __fmul_rn(a, b)
#define ROUTER_DIV(a, b) __fdiv_rn(a, b)
#else
#define ROUTER_ADD(a, b) ((a) + (b))
#define ROUTER_MUL(a, b) ((a) * (b))
#define ROUTER_DIV(a, b) ((a) / (b))
#endif

/* Sums over all experts are made in so many parts, expert e in part e % ROUTER_PARTS, ascending; part i then takes part i + 16, i + 8, .. */
enum { ROUTER_PARTS = 32 };

ROUTER_FN uint32_t router_bits(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}
ROUTER_FN float router_float(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* Greater for what is chosen first; never 0, which stands for what cannot be. A NaN is -infinity. */
ROUTER_FN uint32_t router_key(float x) {
    const uint32_t b = router_bits(x == x ? ROUTER_ADD(x, 0.f) : -INFINITY); /* -0 is 0 */
    return b >> 31 ? ~b : b | 0x80000000u;
}

/* Within 2e-7 of exp(x); 0 below -87, infinity above 88. Polynomial: Moshier's expf (Cephes). */
ROUTER_FN float router_exp(float x) {
    if (x != x) return x;
    if (x < -87.f) return 0;
    if (x > 88.f) return INFINITY;
    const float magic = 12582912.f; /* 1.5 * 2^23: added and taken away, it rounds to a whole number */
    const float n = ROUTER_ADD(ROUTER_ADD(ROUTER_MUL(x, 1.44269504f), magic), -magic);
    const float r = ROUTER_ADD(ROUTER_ADD(x, ROUTER_MUL(n, -0.693359375f)), ROUTER_MUL(n, 2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = ROUTER_ADD(ROUTER_MUL(p, r), 1.3981999507e-3f);
    p = ROUTER_ADD(ROUTER_MUL(p, r), 8.3334519073e-3f);
    p = ROUTER_ADD(ROUTER_MUL(p, r), 4.1665795894e-2f);
    p = ROUTER_ADD(ROUTER_MUL(p, r), 1.6666665459e-1f);
    p = ROUTER_ADD(ROUTER_MUL(p, r), 5.0000001201e-1f);
    p = ROUTER_ADD(ROUTER_ADD(ROUTER_MUL(p, ROUTER_MUL(r, r)), r), 1.f);
    return ROUTER_MUL(p, router_float((uint32_t)((int)n + 127) << 23));
}
ROUTER_FN float router_sigmoid(float x) {
    return ROUTER_DIV(1.f, ROUTER_ADD(1.f, router_exp(ROUTER_MUL(x, -1.f))));
}
/* cap * tanh(x / cap), with tanh(y) = 1 - 2 / (1 + exp(2 y)) */
ROUTER_FN float router_cap(float x, float cap) {
    const float e = router_exp(ROUTER_MUL(2.f, ROUTER_DIV(x, cap)));
    return ROUTER_MUL(cap, ROUTER_ADD(1.f, ROUTER_MUL(-1.f, ROUTER_DIV(2.f, ROUTER_ADD(1.f, e)))));
}
/* sqrt(ln(1 + exp(x))); ln(1 + y), y = exp(-|x|), as 2 artanh(y / (2 + y)), by its series, within 2e-7 of it. */
ROUTER_FN float router_root(float x) {
    if (x != x) return x;
    const float y = router_exp(x < 0 ? x : ROUTER_MUL(x, -1.f)), z = ROUTER_DIV(y, ROUTER_ADD(2.f, y)),
                q = ROUTER_MUL(z, z);
    float p = 1.f / 13;
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f / 11);
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f / 9);
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f / 7);
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f / 5);
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f / 3);
    p = ROUTER_ADD(ROUTER_MUL(p, q), 1.f);
    return sqrtf(ROUTER_ADD(x > 0 ? x : 0, ROUTER_MUL(2.f, ROUTER_MUL(z, p))));
}
ROUTER_FN float router_logit(const struct router *r, float x) {
    return r->softcap > 0 ? router_cap(x, r->softcap) : x;
}
/* Whether the greatest logits are the greatest scores, so that a choice needs no more than those: no bias, no groups. */
ROUTER_FN int router_by_logit(const struct router *r) { return !r->bias && r->n_group <= 1; }
/* What an expert of logit l takes from the weight of the chosen one, whose logit is m (ROUTE_NEAR); 0: it is too far away. */
ROUTER_FN float router_near(const struct router *r, float m, float l) {
    const float size = l < 0 ? ROUTER_MUL(l, -1.f) : l,
                apart = ROUTER_DIV(ROUTER_ADD(m, ROUTER_MUL(l, -1.f)), size > m ? size : m);
    return l != l || apart > r->eps ? 0 : router_exp(ROUTER_ADD(l, ROUTER_MUL(m, -1.f)));
}
/* The weight of a chosen expert, from s of all chosen: by what they are divided, then each. */
ROUTER_FN float router_divisor(const struct router *r, float sum) {
    if (r->norm == ROUTE_NORM_ADD) return ROUTER_ADD(sum, r->eps);
    return r->norm == ROUTE_NORM_CLAMP && sum < r->eps ? r->eps : sum;
}
ROUTER_FN float router_weight(const struct router *r, float s, float divisor, float expert_scale) {
    if (r->norm != ROUTE_NORM_NONE) s = ROUTER_DIV(s, divisor);
    return ROUTER_MUL(ROUTER_MUL(s, r->scale), expert_scale);
}

#ifdef __cplusplus
extern "C" {
#endif

/* One row: logits[n_expert] -> choice[2 * n_used]. told[n_used]: the experts; NULL: the best. */
void router_row(const struct router *r, const float *logits, const int32_t *told, float *choice);

#ifdef __cplusplus
}
#endif

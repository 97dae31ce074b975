/* How much of what a test goes through one by one: all of it, under sanitizers, which make it ten times as slow, every nth. */
#pragma once
#include <stdbool.h>
#include "quant/quant.h"

#ifdef INFER_SANITIZED
#define EVERY(n) (n)
#else
#define EVERY(n) 1
#endif

/* The types of QUANT_CODES share two kernels: where a test goes through all types for the sake of kernels, two of the one and one of the other
 * (codes of two bits) do. */
static inline bool same_kernel(enum quant_type t) {
    return quant_info(t)->codes && t != QUANT_IQ2_XS && t != QUANT_NVFP4 && t != QUANT_Q2_0;
}

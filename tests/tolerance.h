/* Named tolerances. When a test misses one, the kernel is wrong, not the tolerance. */
#pragma once

/* Logits against float32 transformers, in standard deviations of the logits, weights and cache in F32. */
#define TOL_LOGITS_REF  1e-3
#define TOL_LOGITS_FAST 1e-2

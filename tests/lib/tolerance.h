/* Named tolerances. When a test misses one, the kernel is wrong, not the tolerance. */
#pragma once
#include <string.h>

/* Logits against float32 transformers, in standard deviations of the logits, weights and cache in F32. */
#define TOL_LOGITS_REF  1e-3
#define TOL_LOGITS_FAST 1e-2
/* Weights in BF16, whose products round their activations; a folder against the GGUF file that convert makes of it, on ref. */
#define TOL_LOGITS_BF16 5e-2
/* Quantised folders on the CPU against ref; a better instruction set's error over that of AVX2, beside TOL_LOGITS_REF. */
#define TOL_LOGITS_FINE   1e-2
#define TOL_FINE_RATIO    1.25
#define TOL_LOGITS_HALVES 2e-2 /* the same on a card with several slots: weights and activations as halves */
/* Types of GGUF files on the CPU, root of the mean square: 0.03 is promised, and tiny models have 0.01. */
#define TOL_LOGITS_GGUF 1.5e-2
/* AMX: activations of 8 bits instead of 11. Some tiny models magnify that: torch with inputs of products rounded so has 0.8 (qwen3_next). */
#define TOL_LOGITS_AMX 1.0
#define TOL_LOGITS_TF32                                                                                      \
    5e-2 /* a card's prompt rows on F32 weights, 11 bits, unless --matmul-precision highest */
#define TOL_LOGITS_CONVERTED 1e-5

/* One op against the reference: root mean square error over the root mean square of the output (one element may be
 * off by eight times that). Int8: activations rounded to 8 bits, outliers to 14; BF16: activations and weights; cache types:
 * keys and values that were computed in another order may round to the neighbouring code. */
#define TOL_OP_FLOAT      2e-6
#define TOL_OP_INT8       1.2e-2
#define TOL_OP_BF16       4e-3
#define TOL_OP_INT16      3e-4 /* prompt rows on F16 and BF16 weights without AMX */
#define TOL_OP_ATTEND     2e-5
#define TOL_OP_ATTEND_F16 3e-4
#define TOL_OP_ATTEND_Q8  4e-3
#define TOL_OP_ATTEND_F8  2e-2
#define TOL_OP_ATTEND_Q5  2e-2
#define TOL_OP_ATTEND_Q4  4e-2
#define TOL_OP_ATTEND_AMX 7e-3 /* prompt rows on tiles: values and softmax weights are BF16 */

/* Logits of whole models on the CUDA backend against ref, of the norm of a row. Activations and weights as halves; decode
 * in an engine that has one row at most: activations as int8 in groups of 32 for quantised weights. */
#define TOL_CUDA_PROMPT     5e-3
#define TOL_CUDA_DECODE     5e-3
#define TOL_CUDA_DECODE_ONE 4e-2
/* Decode rows after 290 positions with F16 weights; cache in F16 or F32, and in fewer bits, whose codes may differ by one. */
#define TOL_CUDA_ATTEND    2e-3
#define TOL_CUDA_ATTEND_Q8 2e-2
/* --matmul-precision mxfp8, mxfp4, nvfp4: weights and activations rounded to 3 bits and 1 bit behind the point. */
#define TOL_CUDA_MXFP8 8e-2
#define TOL_CUDA_FP4   5e-1
/* --matmul-precision fp8: activations rounded to 3 bits behind the point, weights as they are. */
#define TOL_CUDA_FP8 6e-2

/* Goldens that magnify what a card's products round. Inputs of products in 11 bits: two layers that are computed three times (0.06 to 0.09
 * of sd); 12 positions that each of four layers chooses, others where scores are near each other (0.01 to 0.29); states of a delta rule
 * whose steps reach 2 (0.26 at one of 132 positions, 0.01 at most others). */
static inline double golden_tolerance(const char *golden, double tolerance) {
    return tolerance * (strcmp(golden, "glm_moe_dsa") == 0                                      ? 10
                        : strcmp(golden, "nanbeige") == 0 || strcmp(golden, "olmo_hybrid") == 0 ? 5
                                                                                                : 1);
}

/* The card's ceilings, and our kernels beside cuBLASLt's: `infer bench gemm|mem|attn --device cuda`. */
#pragma once
#include "quant.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_bench_row {
    char name[80];
    const char *unit;    /* "TFLOP/s", "GB/s" */
    double ours, peer;   /* NAN: there is none */
    const char *peer_is; /* "cuBLASLt", "cudaMemcpy"; NULL without a peer */
    double error;        /* of ours against float64 on sampled outputs, of their norm; NAN: not a product */
};
enum cuda_bench_kind { CUDA_BENCH_GEMM, CUDA_BENCH_MEM, CUDA_BENCH_ATTN };

/* Runs a bench on the card that `--device cuda` would take; row is called for each line, medians of reps. A product is
 * checked before it is timed: errors: INFER_E_DEVICE also where a result is wrong. Without cuBLASLt peer is NAN and one
 * warning says so. */
enum infer_status cuda_bench(enum cuda_bench_kind kind, int reps,
                             void (*row)(void *user, const struct cuda_bench_row *r), void *user);

/* Multiplies random weights W[n][k] of a type (n a multiple of 32) with rows of random activations by every entry that the
 * chip has of the table of routes, with every epilogue. errors: INFER_E_DEVICE naming the entries where two of a group
 * differ in a bit, or one is off from float64 by more than rounding to halves. */
enum infer_status cuda_routes_check(enum quant_type type, int n, int k, int rows);

/* Times the parts of the fused decode program of a CUDA backend on the step that ran last, for rows rows:
 * line(name, microseconds alone, microseconds that the whole loses without it, launches). errors:
 * INFER_E_UNSUPPORTED where decode is not fused. */
struct backend;
enum infer_status decode_profile(struct backend *b, int rows,
                                 void (*line)(const char *name, float alone, float without, int n));

#ifdef __cplusplus
}
#endif

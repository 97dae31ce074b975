/* The card's ceilings, and our kernels beside cuBLASLt's: `infer bench gemm|mem|attn --device cuda`. */
#pragma once
#include <stdbool.h>
#include "seam/backend.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_bench_row {
    char name[96];
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

/* Attention of prompt rows as one launch has it: n_seq sequences, one after another, each depth positions long before its
 * first row. */
enum cuda_attend_kernel { CUDA_ATTEND_WGMMA, CUDA_ATTEND_MMA, CUDA_ATTEND_PLAIN };
struct cuda_attention {
    int dk, dv, n_head, n_kv_head; /* 64 heads at most */
    int n_row, n_seq, depth, window;
    int kv_type; /* enum kv_type */
    enum cuda_attend_kernel kernel;
    float softcap;
    bool sinks;
    int picture; /* every second run of so many rows sees the whole run; 0: none */
};
/* Runs cases (those that the chip has no kernel for are passed over) on random data and compares them with float64; *worst:
 * the largest error, of the norm. Pools and tables are exactly as large as the rows need, NaN or no page where nothing is
 * written. Cases without pictures must have the same bits from the kernels of pictures. errors: INFER_E_DEVICE naming
 * the case that is off by more than 2e-3, reads what nobody wrote or writes beyond its rows. */
enum infer_status cuda_attention_check(const struct cuda_attention *all, int n, double *worst);

/* Codes rows of dim numbers of a type that is turned (enum kv_type) and decodes them, on the card and on the processor. errors:
 * INFER_E_DEVICE naming the first byte or number that differs. */
enum infer_status cuda_kv_rows_check(int kv_type, int dim);

/* Attention without a store, of rows that all see each other; turned: q and k are rotated first. */
struct cuda_encode {
    int dim, n_head, n_kv_head, n_row;
    bool mma, turned; /* mma: by the kernels that every chip has */
};
/* The same for these kernels beside the plain one. errors: INFER_E_DEVICE naming the case that is off by more than 3e-3 of the norm, or
 * writes beyond its rows. */
enum infer_status cuda_encode_check(const struct cuda_encode *all, int n, double *worst);

/* Ceilings of the card that `--device cuda` would take, measured here and now. */
struct cuda_ceiling;
enum infer_status cuda_ceiling_open(struct cuda_ceiling **out);
void cuda_ceiling_close(struct cuda_ceiling *c);
/* GB/s (1e9 bytes) of a read that the caches do not hold, over about so many seconds; NAN: too little memory is free, or
 * the card fails. */
double cuda_ceiling_read(struct cuda_ceiling *c, double seconds);
/* Operations (2 per multiply-add) a second of products of halves with float32 sums; NAN: the card fails. */
double cuda_ceiling_products(struct cuda_ceiling *c, double seconds);

/* Multiplies random weights W[n][k] of a type (n a multiple of 32) with rows of random activations by every entry that the
 * chip has of the table of routes, with every epilogue. errors: INFER_E_DEVICE naming the entries where two of a group
 * differ in a bit, or one is off from float64 by more than rounding to halves. */
enum infer_status cuda_routes_check(enum quant_type type, int n, int k, int rows);

/* Multiplies random FP8 weights W[n][k] (n a multiple of 32) with rows of random activations by the FP8 kernel, with every epilogue, and
 * compares with float64 of the same e4m3 numbers and scales; *worst: the largest error, of the norm. errors: INFER_E_DEVICE naming
 * the epilogue that is off by more than 1e-3, or that writes beyond its rows; INFER_E_UNSUPPORTED where the card is not sm_90. */
enum infer_status cuda_fp8_check(int n, int k, int rows, double *worst);

#ifdef __cplusplus
}
#endif

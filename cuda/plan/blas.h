/* cuBLASLt, found at run time: what `--blas on` multiplies prompt rows with and what `infer bench gemm` compares with. */
#pragma once
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct blas;
enum { BLAS_WORKSPACE = 32 << 20 }; /* bytes of device memory that a product may use */
enum blas_type { BLAS_F16, BLAS_TF32 };

/* Opens the library (libcublasLt.so.13, .12 or without a number, as the loader finds it).
 * errors: INFER_E_DEVICE (not there, or it does not start). */
enum infer_status blas_open(struct blas **out);
void blas_close(struct blas *b);

/* One product on device memory, queued on a stream (a cudaStream_t):
 * out[t][i] = (add ? out[t][i] : 0) + sum_k w[i][k] x[t][k], i < n, t < rows. w rows of k elements, x rows of x_row elements,
 * both of type; out float32, rows of out_row. workspace: BLAS_WORKSPACE bytes. */
struct blas_job {
    enum blas_type type;
    int n, rows, k, x_row, out_row;
    const void *w, *x;
    float *out;
    int add;
};
/* errors: INFER_E_DEVICE with the library's status. */
enum infer_status blas_matmul(struct blas *b, const struct blas_job *j, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif

// What the benches of the card share: device memory freed together, medians of times, random data.
#pragma once
#include <string.h>
#include "cuda/bench/cuda_bench.h"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/run/cuda_impl.h"

struct bench_run {
    int reps, sm, sm_count;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    struct blas *blas; // NULL: not found
    void *workspace;   // of cuBLASLt
    void (*row)(void *user, const struct cuda_bench_row *r);
    void *user;
};

// Device memory of one bench, freed together.
struct pool {
    void *p[16];
    int n;
};
static inline enum infer_status take(struct pool *p, void *out, size_t bytes) {
    void *v;
    CU(cudaMalloc(&v, bytes));
    p->p[p->n++] = v;
    memcpy(out, &v, sizeof v);
    return INFER_OK;
}
static inline void drop(struct pool *p) {
    while (p->n) cudaFree(p->p[--p->n]);
}

// Median milliseconds of one call of f; each measurement queues as many as take some milliseconds.
template <class F> static enum infer_status time_ms(const bench_run *b, F f, double *ms) {
    double all[32];
    int n = b->reps < 32 ? b->reps : 32, calls = 1;
    float t = 0;
    TRY(f());
    for (int i = -1; i < n; i++) { // the first one finds out how many
        CU(cudaEventRecord(b->begin, b->stream));
        for (int c = 0; c < calls; c++) TRY(f());
        CU(cudaEventRecord(b->end, b->stream));
        CU(cudaEventSynchronize(b->end));
        CU(cudaEventElapsedTime(&t, b->begin, b->end));
        if (i < 0)
            calls = t > 5 ? 1 : (int)(5 / (t > 0.005f ? t : 0.005f)) + 1;
        else
            all[i] = (double)t / calls;
    }
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && all[k] < all[k - 1]; k--) {
            double v = all[k];
            all[k] = all[k - 1];
            all[k - 1] = v;
        }
    *ms = all[n / 2];
    return INFER_OK;
}

// x[n], triangular, deviation 1
cudaError_t random_fill(float *x, size_t n, uint32_t seed, cudaStream_t s);
// Reads n bytes (a multiple of 16) once; sink: 4 bytes, hardly ever written.
cudaError_t ceiling_read(const uint8_t *p, size_t n, void *sink, int sm_count, cudaStream_t s);

// A product on random data: out[rows][n] = x[rows][k] W[n][k].
struct product {
    enum quant_type type;
    int n, k, rows;
};
struct product_data {
    struct product p;
    enum layout layout;
    uint8_t *w, *tiles;
    float *x, *out;
    double *check;
    int *n_row;
    void *panel, *x_rows; // for cuBLASLt
};
// Allocates and fills all of d but panel; d->p is set.
enum infer_status product_make(const bench_run *b, product_data *d, struct pool *pool);
// Its launch by kernels of a group: one member, stored.
prompt_job product_job(const product_data *d, enum route_group g);

// bench_fp8.cu: a row of the product by FP8 kernels, checked first; n x k with every epilogue, *worst: the largest error
enum infer_status fp8_bench(const bench_run *b, product_data *d, struct pool *pool);
enum infer_status fp8_check(const bench_run *b, int n, int k, int rows, double *worst);
// bench_act.cu: activations of d's sums by every entry, into d->out, which has so many bytes. errors: INFER_E_DEVICE naming the one that is wrong
enum infer_status act_check(const bench_run *b, const product_data *d, size_t bytes);
// bench_attend.cu
enum infer_status bench_attentions(const bench_run *b);
// bench_encode.cu
enum infer_status bench_encodings(const bench_run *b);
enum infer_status encodings_check(const bench_run *b, const struct cuda_encode *all, int n, double *worst);
enum infer_status kv_rows_check(const bench_run *b, int kv_type, int dim);
enum infer_status attentions_check(const bench_run *b, const struct cuda_attention *all, int n,
                                   double *worst);

// FP8 products against float64 of the numbers that they multiply, and their rate.
#include <math.h>
#include <stdio.h>
#include "cuda/bench/cuda_bench.cuh"
#include "cuda/common/mx.cuh"
#include "cuda/formats/unit_value.cuh"
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/common/prompt_tiles.cuh"

enum { LEFT = 0x7fc12345 /* what outputs hold before: no number */, MOST_SAMPLES = 4096 };
static constexpr float ADDED = 3; // to what EPILOGUE_ADD adds
struct fp8_case {
    prompt_job j;
    enum prompt_epilogue e;
    int k, n_out, rows, n_sample; // columns and rows of the result; samples of them
};

DEV double fp8_value(const prompt_job &j, int t, int k) {
    const size_t row = (size_t)(k / FP8_COLS) * j.mx_rows + t;
    const int at = (((k & 127) >> 4 ^ (t & 7)) << 4) + (k & 15);
    return (double)e4m3_floats(j.mx[row * FP8_COLS + at]).x * (double)((const float *)j.mx_scale)[t];
}
DEV double weight_value(const prompt_job &j, int row, int k) {
    const uint8_t *u = j.w + ((size_t)(row >> 4) * j.u + (k >> 8)) * layout_unit_bytes(LAYOUT_F8);
    return (double)unit_value(LAYOUT_F8, u, row & 15, k & 255);
}
// A block a sample: adds the squares of its error and of its value to sum[2]. Gate and up are by turns 8 rows of a row tile.
__global__ void fp8_error_kernel(const __grid_constant__ fp8_case c, double *sum) {
    __shared__ double part[2][128];
    const prompt_job &j = c.j;
    const long all = (long)c.n_out * c.rows,
               at = all > c.n_sample ? blockIdx.x * 7919l * 104729l % all : blockIdx.x;
    const int i = (int)(at % c.n_out), t = (int)(at / c.n_out),
              gate = c.e == EPILOGUE_GLU ? i / 8 * 16 + i % 8 : i;
    double v[2] = {0, 0};
    for (int k = threadIdx.x; k < c.k; k += 128) {
        const double x = fp8_value(j, t, k);
        v[0] += x * weight_value(j, gate, k);
        if (c.e == EPILOGUE_GLU) v[1] += x * weight_value(j, gate + 8, k);
    }
    for (int r = 0; r < 2; r++) part[r][threadIdx.x] = v[r];
    __syncthreads();
    if (threadIdx.x) return;
    v[0] = v[1] = 0;
    for (int k = 0; k < 128; k++) v[0] += part[0][k], v[1] += part[1][k];
    const double want = c.e == EPILOGUE_GLU   ? v[0] / (1 + exp(-v[0])) * v[1]
                        : c.e == EPILOGUE_ADD ? v[0] + ADDED
                                              : v[0],
                 got = c.e == EPILOGUE_GLU
                           ? __half2float(
                                 *(const __half *)(j.glu + prompt_offset(t, i, j.glu_k_tiles, j.glu_order)))
                           : j.out[(size_t)t * j.stride + i],
                 e = got - want;
    atomicAdd(sum, e * e);
    atomicAdd(sum + 1, want * want);
}
// Words that hold something else than before, from word first on.
__global__ void left_kernel(const uint32_t *p, size_t first, size_t n, uint32_t before, double *sum) {
    const size_t i = first + blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n && p[i] != before) atomicAdd(sum + 2, 1.);
}
__global__ void words_kernel(uint32_t *p, size_t n, uint32_t v) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) p[i] = v;
}
static unsigned blocks_of(size_t n) { return (unsigned)((n + 255) / 256); }

// d's launch by an epilogue; the result's words in *words.
static void case_make(const product_data *d, enum prompt_epilogue e, fp8_case *c, size_t *words) {
    prompt_job *j = &c->j;
    c->e = e;
    c->k = d->p.k;
    c->rows = d->p.rows;
    c->n_out = d->p.n;
    const size_t rows = (size_t)(c->rows + 255) / 256 * 256;
    *words = rows * (size_t)d->p.n;
    if (e != EPILOGUE_GLU) return;
    c->n_out = j->member[0].n = d->p.n / 2;
    j->glu = (uint8_t *)j->out;
    j->glu_k_tiles = (c->n_out + 63) / 64;
    j->glu_order = ORDER_CODES;
    *words = rows * (size_t)j->glu_k_tiles * 32;
}
static enum infer_status run_once(const bench_run *b, const product_data *d, const fp8_case *c) {
    CU(fp8_quantise(c->j, d->p.rows, b->stream));
    CU(fp8_launch(c->j, c->e, d->p.rows, b->sm_count, b->stream));
    return INFER_OK;
}
// *error of a run by an epilogue, of its norm; words beyond the rows stay as they are.
static enum infer_status fp8_error(const bench_run *b, const product_data *d, enum prompt_epilogue e,
                                   const prompt_job *job, double *error) {
    static const char *const name[] = {"stored", "added", "gated"};
    const float added = ADDED;
    fp8_case c = {};
    double sum[3] = {};
    size_t words;
    uint32_t before = LEFT;
    c.j = *job;
    case_make(d, e, &c, &words);
    if (e == EPILOGUE_ADD) memcpy(&before, &added, 4);
    const long all = (long)c.n_out * c.rows;
    c.n_sample = (int)(all < 1 << 18 ? all : MOST_SAMPLES);
    words_kernel<<<blocks_of(words), 256, 0, b->stream>>>((uint32_t *)c.j.out, words, before);
    CU(cudaMemsetAsync(d->check, 0, sizeof sum, b->stream));
    TRY(run_once(b, d, &c));
    fp8_error_kernel<<<(unsigned)c.n_sample, 128, 0, b->stream>>>(c, d->check);
    if (e != EPILOGUE_GLU)
        left_kernel<<<blocks_of(words), 256, 0, b->stream>>>(
            (const uint32_t *)c.j.out, (size_t)c.rows * c.j.stride, words, before, d->check);
    CU(cudaGetLastError());
    CU(cudaMemcpyAsync(sum, d->check, sizeof sum, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    *error = sqrt(sum[0] / sum[1]);
    if (!(*error < 1e-3) || sum[2] > 0)
        return err_set(
            INFER_E_DEVICE,
            "a product of FP8, %d x %d x %d, %s, is wrong: error %.2g of its norm, %g words beyond its rows",
            d->p.n, d->p.k, d->p.rows, name[e], *error, sum[2]);
    return INFER_OK;
}

// The launch with room for activations in e4m3, made of d's.
static enum infer_status fp8_job(const bench_run *b, product_data *d, struct pool *pool, prompt_job *j) {
    const size_t most = (size_t)(d->p.rows + 255) / 256 * 256;
    const rows x = {d->x, (size_t)d->p.k, d->p.k};
    *j = product_job(d, GROUP_MX);
    j->mx_rows = most;
    TRY(take(pool, &j->mx, most * (size_t)fp8_blocks(j->k_tiles) * FP8_COLS));
    TRY(take(pool, &j->mx_scale, most * (size_t)fp8_blocks(j->k_tiles) * 4));
    CU(prompt_norm_launch(x, NULL, 0.f, d->n_row, d->tiles, j->k_tiles, ORDER_CODES, d->p.rows, b->stream));
    return INFER_OK;
}
enum infer_status fp8_bench(const bench_run *b, product_data *d, struct pool *pool) {
    struct cuda_bench_row out = {};
    prompt_job j;
    double ms = 0, quantise = 0;
    if (b->sm != 90) return INFER_OK;
    TRY(fp8_job(b, d, pool, &j));
    TRY(fp8_error(b, d, EPILOGUE_STORE, &j, &out.error));
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(fp8_launch(j, EPILOGUE_STORE, d->p.rows, b->sm_count, b->stream));
            return INFER_OK;
        },
        &ms));
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(fp8_quantise(j, d->p.rows, b->stream));
            return INFER_OK;
        },
        &quantise));
    snprintf(out.name, sizeof out.name, "f8_128 %d x %d, %d rows, fp8; activations %.0f us", d->p.n, d->p.k,
             d->p.rows, quantise * 1e3);
    out.unit = "TFLOP/s";
    out.ours = 2e-9 * d->p.n * d->p.k * d->p.rows / ms;
    out.peer = NAN;
    b->row(b->user, &out);
    return INFER_OK;
}
enum infer_status fp8_check(const bench_run *b, int n, int k, int rows, double *worst) {
    struct pool pool = {};
    product_data d = {};
    prompt_job j;
    double error = 0;
    d.p = product{QUANT_F8_128, n, k, rows};
    *worst = 0;
    if (b->sm != 90)
        return err_set(INFER_E_UNSUPPORTED, "FP8 products need a card of sm_90, this is sm_%d", b->sm);
    const size_t tiles = (size_t)(rows + 255) / 256 * 256 * (size_t)((n / 2 + 63) / 64 * 64);
    enum infer_status st = product_make(b, &d, &pool);
    if (!st) st = take(&pool, &d.out, tiles * 8);
    if (!st) st = fp8_job(b, &d, &pool, &j);
    for (int e = EPILOGUE_STORE; !st && e <= EPILOGUE_GLU; e++) {
        st = fp8_error(b, &d, (enum prompt_epilogue)e, &j, &error);
        *worst = fmax(*worst, error);
    }
    drop(&pool);
    return st;
}

// The card's ceilings, and our kernels beside cuBLASLt's on the same random data.
#include "cuda/bench/cuda_bench.cuh"
#include <math.h>
#include <stdio.h>
#include "cuda/plan/blas.h"
#include "base/mem.h"
#include "cuda/plain/dequant_rows.h"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/formats/unit_value.cuh"

// ---- products
enum { SAMPLES = 512, POOL_ROWS = 64 };

// Sampled outputs in float64 and the squared error of out on them.
__global__ void check_kernel(dev_matrix w, const float *x, const float *out, int rows, int order,
                             double *sum) {
    __shared__ double part[128];
    int i = (int)(blockIdx.x * 7919u % (unsigned)w.n), t = (int)(blockIdx.x * 104729u % (unsigned)rows);
    double v = 0;
    for (int k = threadIdx.x; k < w.k; k += 128) {
        const uint8_t *u = w.region + ((size_t)(i >> 4) * w.u + (k >> 8)) * layout_unit_bytes(w.layout);
        float a = x[(size_t)t * w.k + k];
        if (order != ORDER_FLOATS) a = __half2float(__float2half_rn(a));
        v += (double)unit_value(w.layout, u, i & 15, k & 255) * (double)a;
    }
    part[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x) return;
    v = 0;
    for (int k = 0; k < 128; k++) v += part[k];
    double e = (double)out[(size_t)t * w.n + i] - v;
    sum[2 * blockIdx.x] = e * e;
    sum[2 * blockIdx.x + 1] = v * v;
}

static dev_matrix matrix_of(const product_data *d) {
    dev_matrix w = {};
    w.region = d->w;
    w.layout = d->layout;
    w.u = (d->p.k + UNIT_COLS - 1) / UNIT_COLS;
    w.inter = w.stride = UNIT_ROWS;
    w.n = d->p.n;
    w.k = d->p.k;
    return w;
}

static enum infer_status fill_weights(const bench_run *b, product_data *d, struct pool *pool) {
    const struct quant_info *q = quant_info(d->p.type);
    size_t row_bytes = quant_row_bytes(q, (size_t)d->p.k), n = (size_t)POOL_ROWS * (size_t)d->p.k;
    uint8_t *rows = NULL, *host = (uint8_t *)mem_alloc(POOL_ROWS * row_bytes);
    float *x = (float *)mem_alloc(n * 4);
    if (!host || !x) {
        mem_free(host);
        mem_free(x);
        return err_set(INFER_E_MEMORY, "random weights");
    }
    uint64_t s = 88172645463325252ull;
    for (size_t i = 0; i < n; i++) {
        float v = 0;
        for (int k = 0; k < 4; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            v += (float)(s >> 40) * 0x1p-24f;
        }
        x[i] = (v - 2) * 1.732f * 0.02f;
    }
    q->encode(host, x, n, NULL);
    mem_free(x);
    struct cuda_region r = {};
    r.layout = d->layout;
    r.rows = d->p.n;
    r.u = (d->p.k + UNIT_COLS - 1) / UNIT_COLS;
    struct cuda_member m = {};
    m.inter = m.stride = UNIT_ROWS;
    m.n = d->p.n;
    m.k = d->p.k;
    enum infer_status st = take(pool, &rows, POOL_ROWS * row_bytes);
    cudaError_t e =
        st ? cudaSuccess
           : cudaMemcpyAsync(rows, host, POOL_ROWS * row_bytes, cudaMemcpyHostToDevice, b->stream);
    for (int i = 0; !st && e == cudaSuccess && i < d->p.n; i += POOL_ROWS)
        e = cuda_repack(&r, &m, d->p.type, d->w, rows, row_bytes, i,
                        d->p.n - i < POOL_ROWS ? d->p.n - i : POOL_ROWS, b->stream);
    if (!st && e == cudaSuccess) e = cudaStreamSynchronize(b->stream);
    mem_free(host);
    CU(e);
    return st;
}

enum infer_status product_make(const bench_run *b, product_data *d, struct pool *pool) {
    const struct product *p = &d->p;
    d->layout = layout_of(p->type);
    size_t units = (size_t)p->n / 16 * (size_t)((p->k + 255) / 256),
           rows = (size_t)(p->rows + 255) / 256 * 256;
    TRY(take(pool, &d->w, units * (size_t)layout_unit_bytes(d->layout)));
    TRY(take(pool, &d->x, (size_t)p->rows * (size_t)p->k * 4));
    TRY(take(pool, &d->tiles, rows * (size_t)((p->k + 63) / 64) * 256));
    CU(cudaMemsetAsync(d->tiles, 0, rows * (size_t)((p->k + 63) / 64) * 256, b->stream));
    TRY(take(pool, &d->x_rows, rows * (size_t)p->k * 4));
    TRY(take(pool, &d->out, (size_t)p->rows * (size_t)p->n * 4));
    TRY(take(pool, &d->check, SAMPLES * 16));
    TRY(take(pool, &d->n_row, 4));
    CU(cudaMemcpyAsync(d->n_row, &p->rows, 4, cudaMemcpyHostToDevice, b->stream));
    CU(random_fill(d->x, (size_t)p->rows * (size_t)p->k, 1, b->stream));
    return fill_weights(b, d, pool);
}

prompt_job product_job(const product_data *d, enum route_group g) {
    prompt_job j = {};
    int order = prompt_matmul_order(g, d->layout);
    j.w = d->w;
    j.u = (d->p.k + UNIT_COLS - 1) / UNIT_COLS;
    j.n_slab = d->p.n / 16;
    j.x = d->tiles;
    j.k_tiles = (d->p.k + prompt_tile_cols(order) - 1) / prompt_tile_cols(order);
    j.n_row = d->n_row;
    j.out = d->out;
    j.stride = (size_t)d->p.n;
    j.member[0].n = d->p.n;
    j.n_member = 1;
    return j;
}

// Error of d->out against float64, of the norm.
static enum infer_status product_error(const bench_run *b, const product_data *d, int order, double *error) {
    double sum[2 * SAMPLES], e = 0, s = 0;
    check_kernel<<<SAMPLES, 128, 0, b->stream>>>(matrix_of(d), d->x, d->out, d->p.rows, order, d->check);
    CU(cudaGetLastError());
    CU(cudaMemcpyAsync(sum, d->check, sizeof sum, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    for (int i = 0; i < SAMPLES; i++) e += sum[2 * i], s += sum[2 * i + 1];
    *error = sqrt(e / s);
    if (!(*error < 2e-3))
        return err_set(INFER_E_DEVICE, "a product of %s, %d x %d x %d, is wrong: error %.2g of its norm",
                       quant_info(d->p.type)->name, d->p.n, d->p.k, d->p.rows, *error);
    return INFER_OK;
}

static enum infer_status product_peer(const bench_run *b, product_data *d, struct pool *pool, double *rate) {
    *rate = NAN;
    if (!b->blas) return INFER_OK;
    bool wide = d->layout == LAYOUT_F32;
    rows x = {d->x, (size_t)d->p.k, d->p.k};
    double error, ms = 0;
    TRY(take(pool, &d->panel, (size_t)d->p.n * (size_t)d->p.k * (wide ? 4 : 2)));
    CU(dequant_rows_run(matrix_of(d), 0, d->p.n, d->p.k, d->panel, wide, b->stream));
    if (!wide)
        CU(prompt_norm_launch(x, NULL, 0.f, d->n_row, (uint8_t *)d->x_rows, d->p.k / 64, ORDER_ROWS,
                              d->p.rows, b->stream));
    struct blas_job j = {
        wide ? BLAS_TF32 : BLAS_F16,           d->p.n, d->p.rows, d->p.k, d->p.k, d->p.n, d->panel,
        wide ? (const void *)d->x : d->x_rows, d->out, 0};
    auto run = [&] { return blas_matmul(b->blas, &j, b->workspace, b->stream); };
    TRY(run());
    TRY(product_error(b, d, wide ? ORDER_FLOATS : ORDER_HALVES, &error));
    TRY(time_ms(b, run, &ms));
    *rate = 2e-9 * d->p.n * d->p.k * d->p.rows / ms;
    return INFER_OK;
}

static enum infer_status product_ours(const bench_run *b, product_data *d, enum route_group g, double peer) {
    prompt_job j = product_job(d, g);
    int order = prompt_matmul_order(g, d->layout), index[ROUTE_MAX],
        n = route_entries(g, d->layout, b->sm, index);
    int r = route_default(g, d->layout, b->sm, b->sm_count, j.n_slab, d->p.rows);
    rows x = {d->x, (size_t)d->p.k, d->p.k};
    if (!n) return INFER_OK;
    CU(prompt_norm_launch(x, NULL, 0.f, d->n_row, d->tiles, j.k_tiles, order, d->p.rows, b->stream));
    CU(cudaMemsetAsync(d->out, 0xff, (size_t)d->p.rows * (size_t)d->p.n * 4, b->stream));
    auto run = [&]() -> enum infer_status {
        CU(prompt_matmul_launch(j, d->layout, EPILOGUE_STORE, &cuda_routes[r], d->p.rows, b->sm_count,
                                b->stream));
        return INFER_OK;
    };
    struct cuda_bench_row out = {};
    double ms = 0;
    TRY(run());
    TRY(product_error(b, d, order, &out.error));
    TRY(time_ms(b, run, &ms));
    snprintf(out.name, sizeof out.name, "%s %d x %d, %d rows, %s, tile %d", quant_info(d->p.type)->name,
             d->p.n, d->p.k, d->p.rows, route_group_name(g), cuda_routes[r].tokens);
    out.unit = "TFLOP/s";
    out.ours = 2e-9 * d->p.n * d->p.k * d->p.rows / ms;
    out.peer = peer;
    out.peer_is = peer == peer ? "cuBLASLt" : NULL;
    b->row(b->user, &out);
    return INFER_OK;
}

static enum infer_status bench_product(const bench_run *b, const struct product *p) {
    struct pool pool = {};
    product_data d = {};
    double peer = NAN;
    d.p = *p;
    enum infer_status st = product_make(b, &d, &pool);
    if (!st) st = product_peer(b, &d, &pool, &peer);
    if (!st) st = product_ours(b, &d, GROUP_WGMMA, peer);
    if (!st) st = product_ours(b, &d, GROUP_MMA, peer);
    if (!st && d.layout == LAYOUT_F8) st = fp8_bench(b, &d, &pool);
    drop(&pool);
    return st;
}
static enum infer_status bench_gemm(const bench_run *b) {
    static const struct product all[] = {{QUANT_F32, 2048, 2048, 2048},    {QUANT_F32, 4096, 4096, 4096},
                                         {QUANT_F32, 8192, 8192, 8192},    {QUANT_F16, 4096, 4096, 4096},
                                         {QUANT_F16, 8192, 8192, 8192},    {QUANT_F16, 28672, 4096, 4096},
                                         {QUANT_BF16, 28672, 4096, 4096},  {QUANT_Q8_0, 28672, 4096, 4096},
                                         {QUANT_Q4_0, 28672, 4096, 4096},  {QUANT_Q4_K, 28672, 4096, 4096},
                                         {QUANT_Q4_K, 4096, 14336, 4096},  {QUANT_Q4_K, 4096, 4096, 256},
                                         {QUANT_F8_128, 4096, 4096, 4096}, {QUANT_F8_128, 28672, 4096, 4096},
                                         {QUANT_F8_128, 4096, 14336, 1024}};
    for (const struct product &p : all) TRY(bench_product(b, &p));
    return INFER_OK;
}

// ---- memory
__global__ void copy_kernel(const uint4 *p, size_t n, uint4 *q) {
    size_t step = (size_t)gridDim.x * blockDim.x;
#pragma unroll 8
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step)
        __stcs(q + i, __ldcs(p + i));
}
static void memory_row(const bench_run *b, const char *name, double ours, double peer, const char *peer_is) {
    struct cuda_bench_row r = {};
    snprintf(r.name, sizeof r.name, "%s", name);
    r.unit = "GB/s";
    r.ours = ours;
    r.peer = peer;
    r.peer_is = peer_is;
    r.error = NAN;
    b->row(b->user, &r);
}
static enum infer_status bench_memory(const bench_run *b, struct pool *pool) {
    size_t left, all, n = (size_t)2 << 30;
    double ms = 0, peer = 0, up = 0;
    uint8_t *p = NULL, *q = NULL;
    CU(cudaMemGetInfo(&left, &all));
    while (2 * n > left / 2) n /= 2;
    TRY(take(pool, &p, n));
    TRY(take(pool, &q, n));
    CU(random_fill((float *)p, n / 4, 1, b->stream));
    int grid = b->sm_count * 8;
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(ceiling_read(p, n, q, b->sm_count, b->stream));
            return INFER_OK;
        },
        &ms));
    memory_row(b, "read", (double)n * 1e-6 / ms, NAN, NULL);
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            copy_kernel<<<grid, 512, 0, b->stream>>>((const uint4 *)p, n / 16, (uint4 *)q);
            CU(cudaGetLastError());
            return INFER_OK;
        },
        &ms));
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(cudaMemcpyAsync(q, p, n, cudaMemcpyDeviceToDevice, b->stream));
            return INFER_OK;
        },
        &peer));
    memory_row(b, "copy, bytes read and written", 2e-6 * (double)n / ms, 2e-6 * (double)n / peer,
               "cudaMemcpy");
    void *host;
    size_t h = (size_t)256 << 20;
    CU(cudaMallocHost(&host, h));
    enum infer_status st = time_ms(
        b,
        [&]() -> enum infer_status {
            CU(cudaMemcpyAsync(p, host, h, cudaMemcpyHostToDevice, b->stream));
            return INFER_OK;
        },
        &up);
    if (!st)
        st = time_ms(
            b,
            [&]() -> enum infer_status {
                CU(cudaMemcpyAsync(host, p, h, cudaMemcpyDeviceToHost, b->stream));
                return INFER_OK;
            },
            &ms);
    cudaFreeHost(host);
    TRY(st);
    memory_row(b, "host to device, pinned", (double)h * 1e-6 / up, NAN, NULL);
    memory_row(b, "device to host, pinned", (double)h * 1e-6 / ms, NAN, NULL);
    return INFER_OK;
}

// ---- every entry of the table of routes against the others of its group
static enum infer_status group_check(const bench_run *b, product_data *d, enum route_group g,
                                     enum prompt_epilogue e, uint8_t *result[2], size_t bytes) {
    prompt_job j = product_job(d, g);
    int order = prompt_matmul_order(g, d->layout), index[ROUTE_MAX],
        n = route_entries(g, d->layout, b->sm, index);
    rows x = {d->x, (size_t)d->p.k, d->p.k};
    double error;
    CU(prompt_norm_launch(x, NULL, 0.f, d->n_row, d->tiles, j.k_tiles, order, d->p.rows, b->stream));
    if (e == EPILOGUE_GLU) { // the rows count as gate and up, whichever they are
        j.glu = (uint8_t *)d->out;
        j.glu_k_tiles = (d->p.n / 2 + 63) / 64;
        j.glu_order = ORDER_CODES;
        j.member[0].n = d->p.n / 2;
    }
    for (int i = 0; i < n; i++) {
        CU(cudaMemsetAsync(d->out, 0, bytes, b->stream));
        CU(prompt_matmul_launch(j, d->layout, e, &cuda_routes[index[i]], d->p.rows, b->sm_count, b->stream));
        if (e == EPILOGUE_STORE) TRY(product_error(b, d, order, &error));
        CU(cudaMemcpyAsync(result[i > 0], d->out, bytes, cudaMemcpyDeviceToHost, b->stream));
        CU(cudaStreamSynchronize(b->stream));
        if (i && memcmp(result[0], result[1], bytes))
            return err_set(INFER_E_DEVICE, "%s, %d x %d, %d rows: %s and %s give other bits",
                           quant_info(d->p.type)->name, d->p.n, d->p.k, d->p.rows,
                           cuda_routes[index[0]].kernel, cuda_routes[index[i]].kernel);
    }
    return INFER_OK;
}
static enum infer_status routes_check(bench_run *b, const struct product *p) {
    struct pool pool = {};
    product_data d = {};
    // outputs, or tiles of gated ones: halves of n / 2 columns
    size_t bytes = (size_t)(p->rows + 255) / 256 * 256 * (size_t)((p->n / 2 + 63) / 64 * 64) * 8;
    uint8_t *result[2] = {(uint8_t *)mem_alloc(bytes), (uint8_t *)mem_alloc(bytes)};
    d.p = *p;
    enum infer_status st = result[0] && result[1] ? product_make(b, &d, &pool)
                                                  : err_set(INFER_E_MEMORY, "results of %zu bytes", bytes);
    if (!st) st = take(&pool, &d.out, bytes);
    for (int g = GROUP_WGMMA; !st && g <= GROUP_MMA; g++)
        for (int e = EPILOGUE_STORE; !st && e <= EPILOGUE_GLU; e++)
            st = group_check(b, &d, (enum route_group)g, (enum prompt_epilogue)e, result, bytes);
    if (!st) st = act_check(b, &d, bytes);
    drop(&pool);
    mem_free(result[0]);
    mem_free(result[1]);
    return st;
}

// ---- the door
static enum infer_status run_kind(bench_run *b, enum cuda_bench_kind kind) {
    struct pool pool = {};
    if (kind == CUDA_BENCH_ATTN) {
        TRY(bench_attentions(b));
        return bench_encodings(b);
    }
    if (kind == CUDA_BENCH_GEMM) {
        if (blas_open(&b->blas) != INFER_OK)
            log_line(LOG_WARN, "no cuBLASLt to compare with: %s", err_message());
        enum infer_status st = take(&pool, &b->workspace, BLAS_WORKSPACE);
        if (!st) st = bench_gemm(b);
        drop(&pool);
        blas_close(b->blas);
        return st;
    }
    enum infer_status st = bench_memory(b, &pool);
    drop(&pool);
    return st;
}

template <class F> static enum infer_status on_card(int reps, F f) {
    bench_run b = {};
    cudaDeviceProp prop;
    int device;
    TRY(backend_cuda.probe()); // makes the card current
    CU(cudaGetDevice(&device));
    CU(cudaGetDeviceProperties(&prop, device));
    b.reps = reps;
    b.sm = prop.major * 10 + prop.minor;
    b.sm_count = prop.multiProcessorCount;
    CU(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    enum infer_status st = INFER_OK;
    if (cudaEventCreate(&b.begin) != cudaSuccess || cudaEventCreate(&b.end) != cudaSuccess)
        st = cuda_error(cudaGetLastError(), "cudaEventCreate");
    if (!st) st = f(&b);
    if (b.begin) cudaEventDestroy(b.begin);
    if (b.end) cudaEventDestroy(b.end);
    cudaStreamDestroy(b.stream);
    return st;
}
enum infer_status cuda_bench(enum cuda_bench_kind kind, int reps,
                             void (*row)(void *user, const struct cuda_bench_row *r), void *user) {
    return on_card(reps, [&](bench_run *b) {
        b->row = row;
        b->user = user;
        return run_kind(b, kind);
    });
}
enum infer_status cuda_attention_check(const struct cuda_attention *all, int n, double *worst) {
    return on_card(1, [&](bench_run *b) { return attentions_check(b, all, n, worst); });
}
enum infer_status cuda_kv_rows_check(int kv_type, int dim) {
    return on_card(1, [&](bench_run *b) { return kv_rows_check(b, kv_type, dim); });
}
enum infer_status cuda_encode_check(const struct cuda_encode *all, int n, double *worst) {
    return on_card(1, [&](bench_run *b) { return encodings_check(b, all, n, worst); });
}
enum infer_status cuda_fp8_check(int n, int k, int rows, double *worst) {
    return on_card(1, [&](bench_run *b) { return fp8_check(b, n, k, rows, worst); });
}
enum infer_status cuda_routes_check(enum quant_type type, int n, int k, int rows) {
    struct product p = {type, n, k, rows};
    return on_card(1, [&](bench_run *b) { return routes_check(b, &p); });
}

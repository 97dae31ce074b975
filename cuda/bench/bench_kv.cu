// Rows of turned caches on the card beside the same ones of the processor: every byte, every number.
#include "cuda/bench/cuda_bench.cuh"
#include <stdlib.h>
#include "base/mem.h"
#include "cuda/common/dev.h"
#include "cuda/plain/kv_low_ops.h"
#include "seam/kv_low.h"

// Heads of one page, and what lies on the card.
struct page_of {
    enum kv_type type;
    int dim, turn, n; // n rows
    size_t row;
    float *x, *out; // [n][dim]
    uint8_t *bytes, *got;
};

// Rows of all sizes of numbers: small ones that no scale has, zeros, one large number among small ones.
static void fill(struct page_of *p) {
    uint32_t u = 12345;
    for (int r = 0; r < p->n; r++) {
        const float by = r % 7 == 0 ? 1e-7f : r % 5 == 0 ? 3000.f : 1.f;
        for (int i = 0; i < p->dim; i++) {
            u = u * 1664525 + 1013904223;
            p->x[r * p->dim + i] =
                r % 11 == 10 ? 0.f : by * ((float)(u >> 8) * 0x1p-23f - 1) * (i == r % p->dim ? 40 : 1);
        }
    }
}
static enum infer_status page_through(const bench_run *b, const struct page_of *p, struct pool *pool) {
    const size_t floats = (size_t)p->n * (size_t)p->dim * 4, bytes = (size_t)p->n * p->row;
    float *x = NULL;
    dev_kv kv = {};
    kv.type = p->type;
    kv.n_kv_head = p->n / KV_PAGE;
    kv.dk = p->dim;
    TRY(take(pool, &x, floats));
    TRY(take(pool, &kv.k, bytes));
    CU(cudaMemcpyAsync(x, p->x, floats, cudaMemcpyHostToDevice, b->stream));
    CU(cudaMemsetAsync(kv.k, 0xff, bytes, b->stream));
    CU(kv_low_page_run(kv, p->turn, 1, 0, x, x, true, b->stream));
    CU(cudaMemsetAsync(x, 0xff, floats, b->stream));
    CU(kv_low_page_run(kv, p->turn, 1, 0, x, x, false, b->stream));
    CU(cudaMemcpyAsync(p->got, kv.k, bytes, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaMemcpyAsync(p->out, x, floats, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
static enum infer_status page_compare(const struct page_of *p) {
    for (int r = 0; r < p->n; r++) {
        float *x = p->x + (size_t)r * (size_t)p->dim;
        const float *out = p->out + (size_t)r * (size_t)p->dim;
        const uint8_t *got = p->got + (size_t)r * p->row;
        kv_turn(x, p->dim, p->turn, 1);
        kv_low_encode(p->type, p->bytes, x, p->dim);
        kv_low_decode(p->type, x, p->bytes, p->dim);
        kv_turn(x, p->dim, p->turn, 1);
        for (size_t i = 0; i < p->row; i++)
            if (got[i] != p->bytes[i])
                return err_set(INFER_E_DEVICE,
                               "%s, %d numbers: byte %zu of row %d is %d, %d on the processor",
                               kv_type_name(p->type), p->dim, i, r, got[i], p->bytes[i]);
        for (int i = 0; i < p->dim; i++)
            if (out[i] != x[i])
                return err_set(INFER_E_DEVICE,
                               "%s, %d numbers: number %d of row %d is %g, %g on the processor",
                               kv_type_name(p->type), p->dim, i, r, (double)out[i], (double)x[i]);
    }
    return INFER_OK;
}
enum infer_status kv_rows_check(const bench_run *b, int kv_type, int dim) {
    struct page_of p = {};
    struct pool pool = {};
    const struct kv_store s = {0, 3, dim, 0, false, (enum kv_type)kv_type, (enum kv_type)kv_type, 0};
    p.type = (enum kv_type)kv_type;
    p.dim = dim;
    p.turn = kv_turn_of(&s, false);
    p.n = s.n_kv_head * KV_PAGE;
    p.row = kv_row_bytes(p.type, dim);
    p.x = (float *)mem_alloc((size_t)p.n * (size_t)dim * 8 + ((size_t)p.n + 1) * p.row);
    if (!p.x) return err_set(INFER_E_MEMORY, "rows of a bench");
    p.out = p.x + (size_t)p.n * (size_t)dim;
    p.got = (uint8_t *)(p.out + (size_t)p.n * (size_t)dim);
    p.bytes = p.got + (size_t)p.n * p.row;
    fill(&p);
    enum infer_status st = page_through(b, &p, &pool);
    if (!st) st = page_compare(&p);
    drop(&pool);
    mem_free(p.x);
    return st;
}

// The kernels of gemm_act.cu beside sums of the group that they belong to and the definitions of activations.
#include <math.h>
#include "base/mem.h"
#include "cuda/bench/cuda_bench.cuh"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/gemm_act.h"

static double act_of(int act, double x) {
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    default:
        return x > 0 ? x * x : 0;
    }
}

// What both sides have: sums on the host, bias (numbers of x) there and on the card; tiles that come back.
struct act_data {
    float *sums, *bias;
    uint8_t *tiles;
    size_t bytes;
};
// Whether tiles hold act(sums + bias) of columns below n, but for rounding, and zeros behind them and behind the last row.
static bool act_agrees(const prompt_job &j, int rows, const act_data &a) {
    const int n = j.member[0].n, columns = j.glu_k_tiles * PROMPT_TILE_COLS;
    for (int t = 0; t < (rows + 255) / 256 * 256; t++)
        for (int c = 0; c < columns; c++) {
            const uint8_t *at = a.tiles + prompt_offset(t, c, j.glu_k_tiles, j.glu_order);
            const double v = (double)__half2float(*(const __half *)at),
                         want = c < n && t < rows
                                    ? act_of(j.act, (double)a.sums[(size_t)t * n + c] + a.bias[c])
                                    : 0;
            if (!(fabs(v - want) <= 6e-4 * fabs(want) + 1e-6)) return false;
        }
    return true;
}
static enum infer_status each_act(const bench_run *b, const product_data *d, prompt_job j,
                                  const act_data &a) {
    static const int orders[] = {ORDER_CODES, ORDER_HALVES};
    int index[ROUTE_MAX], n = route_entries(GROUP_WGMMA, d->layout, b->sm, index);
    j.glu = (uint8_t *)d->out;
    j.member[0].bias = d->x;
    for (int i = 0; i < 6 * n; i++) { // entries, activations, orders
        const struct route *r = &cuda_routes[index[i / 6]];
        j.act = i % 3;
        j.glu_order = orders[i / 3 % 2];
        j.glu_k_tiles = (d->p.n + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS;
        CU(cudaMemsetAsync(d->out, 0, a.bytes, b->stream));
        CU(prompt_act_launch(j, d->layout, r->tokens, d->p.rows, b->sm_count, b->stream));
        CU(cudaMemcpyAsync(a.tiles, d->out, a.bytes, cudaMemcpyDeviceToHost, b->stream));
        CU(cudaStreamSynchronize(b->stream));
        if (!act_agrees(j, d->p.rows, a))
            return err_set(
                INFER_E_DEVICE, "%s, %d x %d, %d rows: activation %d in order %d by tiles of %d is wrong",
                quant_info(d->p.type)->name, d->p.n, d->p.k, d->p.rows, j.act, j.glu_order, r->tokens);
    }
    return INFER_OK;
}
static enum infer_status check(const bench_run *b, const product_data *d, const act_data &a) {
    const prompt_job j = product_job(d, GROUP_WGMMA);
    const int order = prompt_matmul_order(GROUP_WGMMA, d->layout);
    const struct route *r =
        &cuda_routes[route_default(GROUP_WGMMA, d->layout, b->sm, b->sm_count, j.n_slab, d->p.rows)];
    rows x = {d->x, (size_t)d->p.k, d->p.k};
    CU(prompt_norm_launch(x, NULL, 0.f, d->n_row, d->tiles, j.k_tiles, order, d->p.rows, b->stream));
    CU(prompt_matmul_launch(j, d->layout, EPILOGUE_STORE, r, d->p.rows, b->sm_count, b->stream));
    CU(cudaMemcpyAsync(a.sums, d->out, (size_t)d->p.rows * (size_t)d->p.n * 4, cudaMemcpyDeviceToHost,
                       b->stream));
    CU(cudaMemcpyAsync(a.bias, d->x, (size_t)d->p.n * 4, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return each_act(b, d, j, a);
}
enum infer_status act_check(const bench_run *b, const product_data *d, size_t bytes) {
    int index[ROUTE_MAX];
    if (!route_has_act(GROUP_WGMMA, d->layout) || !route_entries(GROUP_WGMMA, d->layout, b->sm, index))
        return INFER_OK;
    act_data a = {(float *)mem_alloc(bytes), (float *)mem_alloc((size_t)d->p.n * 4),
                  (uint8_t *)mem_alloc(bytes), bytes};
    const enum infer_status st = a.sums && a.bias && a.tiles
                                     ? check(b, d, a)
                                     : err_set(INFER_E_MEMORY, "activations of %zu bytes", bytes);
    mem_free(a.sums);
    mem_free(a.bias);
    mem_free(a.tiles);
    return st;
}

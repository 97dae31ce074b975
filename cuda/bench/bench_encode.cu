// Attention without a store: the kernels of tensor cores beside the plain one
// in float32, then their time.
#include "cuda/bench/cuda_bench.cuh"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/plain/attend_rows.h"
#include "cuda/prompt/encode.h"
#include <math.h>
#include <stdio.h>

struct encoding {
    struct cuda_encode c;
    encode_pack_job pack;
    encode_job attend;
    dev_tables t;
    rows q, k, v, out; // of the plain kernel; rotated in place
    float2 *table;
    uint8_t *tiles;
    size_t tile_bytes;
    double *sum;
    unsigned *wrong;
};

// Errors and norms of what the tiles hold beside rows; halves of rows that are
// not, which must be as they were.
__global__ void compare_kernel(const __grid_constant__ encoding a) {
    const int wide = a.c.n_head * a.c.dim, rows = (a.c.n_row + 255) / 256 * 256;
    double error = 0, norm = 0;
    unsigned wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)rows * wide;
         i += (size_t)gridDim.x * blockDim.x) {
        const int row = (int)(i / wide), col = (int)(i % wide);
        const size_t at = prompt_offset(row, col, a.attend.out_k_tiles, a.attend.out_order);
        const float got = __half2float(*(const __half *)(a.tiles + at));
        wrong += isfinite(got) != (row < a.c.n_row);
        if (row >= a.c.n_row) continue;
        const double want = a.out.p[(size_t)row * a.out.stride + col], e = got - want;
        error += e * e;
        norm += want * want;
    }
    atomicAdd(a.sum, error);
    atomicAdd(a.sum + 1, norm);
    if (wrong) atomicAdd(a.wrong, wrong);
}

static enum infer_status rows_make(const bench_run *b, int n, int width, uint32_t seed, rows *out,
                                   struct pool *pool) {
    out->stride = (size_t)width;
    out->width = width;
    TRY(take(pool, &out->p, (size_t)n * (size_t)width * 4));
    CU(random_fill(out->p, (size_t)n * (size_t)width, seed, b->stream));
    return INFER_OK;
}
static enum infer_status jobs_make(const bench_run *b, encoding *a, struct pool *pool) {
    const struct cuda_encode *c = &a->c;
    const struct encode_room room = encode_room_of(c->n_row, c->n_head, c->n_kv_head, c->dim);
    encode_pack_job *p = &a->pack;
    uint8_t *work = NULL;
    TRY(take(pool, &work, room.bytes));
    CU(cudaMemsetAsync(work, 0xff, room.bytes, b->stream));
    *p = encode_pack_job{a->q,
                         a->k,
                         a->v,
                         &a->t.step->n_row,
                         c->n_head,
                         c->n_kv_head,
                         c->dim,
                         encode_columns(c->dim),
                         1.4426950408889634f / sqrtf((float)c->dim),
                         {{0, c->dim, true, a->table}},
                         c->turned,
                         work,
                         work + room.k,
                         work + room.v,
                         room.tiles};
    a->attend = encode_job{p->to_q,      p->to_k,
                           p->to_v,      p->n_row,
                           p->tiles,     c->n_head,
                           c->n_kv_head, c->dim,
                           a->tiles,     (c->n_head * c->dim + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS,
                           ORDER_HALVES};
    return INFER_OK;
}
static enum infer_status encoding_make(const bench_run *b, encoding *a, struct pool *pool) {
    const struct cuda_encode *c = &a->c;
    const dev_step step = {c->n_row, 0, 0};
    const int wide = c->n_head * c->dim;
    dev_step *on_card = NULL;
    int32_t *slot = NULL;
    TRY(rows_make(b, c->n_row, wide, 1, &a->q, pool));
    TRY(rows_make(b, c->n_row, c->n_kv_head * c->dim, 2, &a->k, pool));
    TRY(rows_make(b, c->n_row, c->n_kv_head * c->dim, 3, &a->v, pool));
    TRY(rows_make(b, c->n_row, wide, 4, &a->out, pool));
    TRY(take(pool, &a->table, (size_t)c->n_row * (size_t)c->dim * 4));
    CU(random_fill((float *)a->table, (size_t)c->n_row * (size_t)c->dim, 5, b->stream));
    a->tile_bytes = (size_t)((c->n_row + 255) / 256) *
                    (size_t)((wide + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS) * PROMPT_TILE_BYTES;
    TRY(take(pool, &a->tiles, a->tile_bytes));
    CU(cudaMemsetAsync(a->tiles, 0xff, a->tile_bytes, b->stream));
    TRY(take(pool, &on_card, sizeof step));
    TRY(take(pool, &slot, (size_t)c->n_row * 4));
    TRY(take(pool, &a->sum, 16));
    TRY(take(pool, &a->wrong, 4));
    CU(cudaMemsetAsync(slot, 0, (size_t)c->n_row * 4, b->stream));
    CU(cudaMemcpyAsync(on_card, &step, sizeof step, cudaMemcpyHostToDevice, b->stream));
    CU(cudaMemsetAsync(a->sum, 0, 16, b->stream));
    CU(cudaMemsetAsync(a->wrong, 0, 4, b->stream));
    a->t.step = on_card;
    a->t.slot = slot;
    TRY(jobs_make(b, a, pool));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
static cudaError_t encoding_launch(const bench_run *b, const encoding *a) {
    const cudaError_t e = encode_pack_launch(a->pack, a->c.n_row, b->stream);
    return e != cudaSuccess ? e : encode_launch(a->attend, a->c.n_row, a->c.mma, b->stream);
}
static void encoding_name(char *name, size_t n, const struct cuda_encode *c) {
    snprintf(name, n, "%d rows that see each other, %d heads of %d, %d of keys%s, %s", c->n_row, c->n_head,
             c->dim, c->n_kv_head, c->turned ? ", turned" : "", c->mma ? "mma" : "wgmma");
}
static enum infer_status encoding_error(const bench_run *b, const encoding *a, double *error) {
    const struct cuda_encode *c = &a->c;
    const op_queue s = {b->stream, false};
    const attend_rows_job plain = {
        a->q, a->k, a->v, a->out, c->n_head, c->n_kv_head, 1 / sqrtf((float)c->dim), 0, NULL, false, 0};
    double sum[2];
    unsigned wrong;
    char name[120];
    encoding_name(name, sizeof name, c);
    CU(encoding_launch(b, a));
    if (c->turned) {
        CU(op_rope_run(a->t, a->q, c->n_head, c->dim, c->dim, true, a->table, c->n_row, s));
        CU(op_rope_run(a->t, a->k, c->n_kv_head, c->dim, c->dim, true, a->table, c->n_row, s));
    }
    CU(op_attend_rows_run(a->t, plain, c->n_row, s));
    compare_kernel<<<256, 256, 0, b->stream>>>(*a);
    CU(cudaGetLastError());
    CU(cudaMemcpyAsync(sum, a->sum, 16, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaMemcpyAsync(&wrong, a->wrong, 4, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    *error = sqrt(sum[0] / sum[1]);
    if (wrong)
        return err_set(INFER_E_DEVICE, "%s: %u outputs are not finite, or written where no row is", name,
                       wrong);
    if (!(*error < 3e-3)) return err_set(INFER_E_DEVICE, "%s: error %.2g of its norm", name, *error);
    return INFER_OK;
}
static bool encoding_here(const bench_run *b, const struct cuda_encode *c) {
    return c->mma || (b->sm >= 90 && b->sm < 100);
}
enum infer_status encodings_check(const bench_run *b, const struct cuda_encode *all, int n, double *worst) {
    *worst = 0;
    for (int i = 0; i < n; i++) {
        encoding a = {};
        struct pool pool = {};
        double error = 0;
        a.c = all[i];
        if (!encoding_here(b, &a.c)) continue;
        enum infer_status st = encoding_make(b, &a, &pool);
        if (!st) st = encoding_error(b, &a, &error);
        drop(&pool);
        TRY(st);
        if (*worst < error) *worst = error;
    }
    return INFER_OK;
}

// ---- the table of infer bench attn
static enum infer_status bench_one(const bench_run *b, const struct cuda_encode *c, struct pool *pool) {
    struct cuda_bench_row r = {};
    encoding a = {};
    double ms = 0;
    a.c = *c;
    TRY(encoding_make(b, &a, pool));
    if (c->n_row <= 4096)
        TRY(encoding_error(b, &a, &r.error));
    else
        r.error = NAN; // the plain kernel takes seconds
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(encoding_launch(b, &a));
            return INFER_OK;
        },
        &ms));
    encoding_name(r.name, sizeof r.name, c);
    r.unit = "TFLOP/s";
    r.ours = 4e-9 * c->n_head * c->dim * (double)c->n_row * c->n_row / ms;
    r.peer = NAN;
    b->row(b->user, &r);
    return INFER_OK;
}
enum infer_status bench_encodings(const bench_run *b) {
    static const int all[][2] = {{64, 4096}, {72, 1024}, {72, 4096}, {72, 16384},
                                 {80, 4096}, {88, 4096}, {128, 4096}};
    for (int mma = 0; mma < 2; mma++)
        for (const auto &s : all) {
            const struct cuda_encode c = {s[0], 16, 16, s[1], mma != 0, true};
            struct pool pool = {};
            if (!encoding_here(b, &c)) continue;
            const enum infer_status st = bench_one(b, &c, &pool);
            drop(&pool);
            TRY(st);
        }
    return INFER_OK;
}

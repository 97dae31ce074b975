// Attention of prompt rows: each result beside float64, then its time. Page tables, pools and outputs are as large as the
// rows need and no larger, what must not be read is NaN or no page, what must not be written is looked at afterwards.
#include "cuda/bench/cuda_bench.cuh"
#include <math.h>
#include <stdio.h>
#include "cuda/common/kv_pages.cuh"
#include "base/mem.h"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/plain/attend_both.h"
#include "cuda/plain/kv_low_ops.h"
#include "cuda/prompt/kv_halves.h"
#include "cuda/prompt/prompt_both.h"
#include "cuda/prompt/prompt_qkv_post.h"

enum { SAMPLES = 512 }; // heads of rows that are compared

// One launch and its data.
struct attention {
    struct cuda_attention c;
    prompt_attend_both j;
    dev_tables t;
    dev_kv kv;
    kv_halves_job halves;
    float *k, *v;     // what the pools hold, in their order
    float *q, *plain; // plain: [row][head][dv], of the kernel without tensor cores
    uint8_t *out;
    size_t out_bytes;
    double *score, *sum; // score[sample][longest]
    unsigned *wrong;
    int longest, n_sample, n_page;
};

static int rows_before(const struct cuda_attention *c, int seq) { return c->n_row / c->n_seq * seq; }
static int rows_of(const struct cuda_attention *c, int seq) {
    return (seq + 1 == c->n_seq ? c->n_row : rows_before(c, seq + 1)) - rows_before(c, seq);
}
// The last row that row i of a sequence's n rows sees.
static int sees(const struct cuda_attention *c, int i, int n) {
    if (!c->picture || i / c->picture % 2 == 0) return i;
    const int end = (i / c->picture + 1) * c->picture;
    return (end < n ? end : n) - 1;
}
static bool is_plain(const struct cuda_attention *c) { return c->kernel == CUDA_ATTEND_PLAIN; }

// ---- data
DEV float random_at(size_t i, uint32_t seed) {
    uint64_t v = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    v = (v ^ v >> 31) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ v >> 29) * 0x94d049bb133111ebull;
    uint32_t a = (uint32_t)v >> 8, b = (uint32_t)(v >> 40);
    return ((float)a + (float)b - 16777216.f) * (0x1p-24f * 2.449f);
}
__global__ void random_kernel(float *x, size_t n, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        x[i] = random_at(i, seed);
}
cudaError_t random_fill(float *x, size_t n, uint32_t seed, cudaStream_t s) {
    random_kernel<<<1024, 256, 0, s>>>(x, n, seed);
    return cudaGetLastError();
}
// Position blockIdx.x, head blockIdx.y of a sequence: warp v keys or values.
__global__ void __launch_bounds__(64) fill_kernel(dev_kv kv, int slot) {
    __shared__ float x[2][512];
    const int v = threadIdx.x >> 5, lane = threadIdx.x & 31, pos = blockIdx.x, head = blockIdx.y,
              d = v ? kv.dv : kv.dk;
    uint8_t *row = (v ? kv.v : kv.k) + kv_row(kv, slot, pos, head) * kv_bytes(kv.type, d);
    for (int i = lane; i < d; i += 32)
        x[v][i] = random_at((((size_t)slot * 65536 + pos) * 64 + head) * 512 + i, 3 + v);
    if (kv.type > KV_Q8_0)
        kv_put_row<true>(kv.type, row, d, x[v]);
    else
        kv_put_row<false>(kv.type, row, d, x[v]);
}

// ---- the same in float64
DEV double block_sum(double v, double *part, bool largest) { // of 128 threads
    part[threadIdx.x] = v;
    __syncthreads();
    for (int n = 64; n; n >>= 1) {
        if (threadIdx.x < n) {
            const double a = part[threadIdx.x], b = part[threadIdx.x + n];
            part[threadIdx.x] = largest ? (a > b ? a : b) : a + b;
        }
        __syncthreads();
    }
    v = part[0];
    __syncthreads();
    return v;
}
// What a kernel wrote for column i of a head.
DEV double result_at(const attention &a, int row, int head, int i) {
    if (a.plain) return a.plain[((size_t)row * a.c.n_head + head) * a.c.dv + i];
    const size_t at = prompt_offset(row, head * a.c.dv + i, a.j.out_k_tiles, a.j.out_order);
    return __half2float(*(const __half *)(a.out + at));
}
__global__ void __launch_bounds__(128) reference_kernel(const __grid_constant__ attention a) {
    __shared__ double part[128];
    const unsigned total = (unsigned)(a.c.n_row * a.c.n_head);
    unsigned i = a.n_sample == (int)total ? blockIdx.x : (unsigned)(blockIdx.x * 2654435761ull % total);
    if (blockIdx.x == 0) i = total - 1;
    const int row = i / a.c.n_head, head = i % a.c.n_head, kv_head = head / (a.c.n_head / a.c.n_kv_head);
    const int slot = a.j.slot[row], pos = a.j.pos[row], last = a.j.until[row],
              first = a.c.window ? max(0, pos - a.c.window + 1) : 0;
    double *score = a.score + (size_t)blockIdx.x * a.longest, top = a.j.sinks ? a.j.sinks[head] : -1e300;
    const float *q = a.q + (size_t)row * a.j.q_stride + head * a.c.dk;
    for (int p = first + (int)threadIdx.x; p <= last; p += 128) {
        const float *k = a.k + kv_row(a.kv, slot, p, kv_head) * a.c.dk;
        double s = 0;
        for (int d = 0; d < a.c.dk; d++) s += (double)q[d] * (double)k[d];
        s *= a.j.scale;
        if (a.c.softcap > 0) s = a.c.softcap * tanh(s / a.c.softcap);
        score[p] = s;
        top = s > top ? s : top;
    }
    top = block_sum(top, part, true);
    double all = threadIdx.x == 0 && a.j.sinks ? exp(a.j.sinks[head] - top) : 0, error = 0, norm = 0;
    for (int p = first + (int)threadIdx.x; p <= last; p += 128) all += score[p] = exp(score[p] - top);
    all = block_sum(all, part, false);
    for (int d = threadIdx.x; d < a.c.dv; d += 128) {
        double y = 0;
        for (int p = first; p <= last; p++)
            y += score[p] * (double)a.v[kv_row(a.kv, slot, p, kv_head) * a.c.dv + d];
        y /= all;
        const double e = result_at(a, row, head, d) - y;
        error += e * e;
        norm += y * y;
    }
    error = block_sum(error, part, false);
    norm = block_sum(norm, part, false);
    if (threadIdx.x == 0) a.sum[2 * blockIdx.x] = error, a.sum[2 * blockIdx.x + 1] = norm;
}
// Outputs that are not finite, and halves beyond the rows that are no longer as they were.
__global__ void look_kernel(const __grid_constant__ attention a) {
    const int wide = a.c.n_head * a.c.dv, rows = a.plain ? a.c.n_row : (a.c.n_row + 255) / 256 * 256;
    unsigned n = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)rows * wide;
         i += (size_t)gridDim.x * blockDim.x) {
        const int row = (int)(i / wide), head = (int)(i % wide) / a.c.dv, d = (int)(i % wide) % a.c.dv;
        const bool written = isfinite(result_at(a, row, head, d));
        n += written != (row < a.c.n_row);
    }
    if (n) atomicAdd(a.wrong, n);
}

// ---- a case
static enum infer_status tables_make(const bench_run *b, attention *a, struct pool *pool) {
    const struct cuda_attention *c = &a->c;
    const int max_pages = (a->longest + KV_PAGE - 1) / KV_PAGE, none = 1 << 30; // none: a page far outside
    int at = 0;
    size_t n = (size_t)c->n_row * 3 + (size_t)c->n_seq * (size_t)max_pages;
    int32_t *host = (int32_t *)mem_alloc(n * 4), *pos = host, *slot = host + c->n_row,
            *until = slot + c->n_row, *pages = until + c->n_row, *device = NULL;
    if (!host) return err_set(INFER_E_MEMORY, "the tables of a bench");
    for (int s = 0; s < c->n_seq; s++) a->n_page += (c->depth + rows_of(c, s) + KV_PAGE - 1) / KV_PAGE;
    for (int s = 0; s < c->n_seq; s++) {
        for (int i = 0; i < rows_of(c, s); i++, at++) {
            pos[at] = c->depth + i, slot[at] = s;
            until[at] = c->depth + sees(c, i, rows_of(c, s));
        }
        const int used = (c->depth + rows_of(c, s) + KV_PAGE - 1) / KV_PAGE;
        for (int i = 0; i < max_pages; i++) // the sequences' pages lie among each other, from the last one on
            pages[s * max_pages + i] = i < used ? 0 : none;
    }
    for (int i = 0, next = a->n_page; i < max_pages; i++)
        for (int s = 0; s < c->n_seq; s++)
            if (pages[s * max_pages + i] != none) pages[s * max_pages + i] = --next;
    enum infer_status st = take(pool, &device, n * 4);
    cudaError_t e =
        st ? cudaSuccess : cudaMemcpyAsync(device, host, n * 4, cudaMemcpyHostToDevice, b->stream);
    if (!st && e == cudaSuccess) e = cudaStreamSynchronize(b->stream);
    mem_free(host);
    TRY(st);
    CU(e);
    a->t.pos = a->j.pos = device;
    a->t.slot = a->j.slot = device + c->n_row;
    a->j.until = device + 2 * c->n_row;
    a->kv.pages = a->j.pages = device + 3 * c->n_row;
    a->kv.max_pages = a->j.max_pages = max_pages;
    for (int v = 0; v < 2; v++) {
        uint8_t **p = v ? &a->kv.v : &a->kv.k;
        const size_t bytes = (size_t)a->n_page * KV_PAGE * (size_t)c->n_kv_head *
                             kv_row_bytes((enum kv_type)c->kv_type, v ? c->dv : c->dk);
        TRY(take(pool, p, bytes));
        CU(cudaMemsetAsync(*p, 0xff, bytes, b->stream)); // NaN in every type
    }
    return INFER_OK;
}
// The pools that kernels of prompt rows read, and those of floats.
static enum infer_status pools_make(const bench_run *b, attention *a, struct pool *pool) {
    const struct cuda_attention *c = &a->c;
    const size_t rows = (size_t)a->n_page * KV_PAGE * (size_t)c->n_kv_head;
    kv_halves_job *h = &a->halves;
    for (int v = 0; v < 2; v++) {
        const size_t n = rows * (size_t)(v ? c->dv : c->dk);
        uint8_t **half = v ? &h->v : &h->k;
        TRY(take(pool, v ? &a->v : &a->k, n * 4));
        *half = v ? a->kv.v : a->kv.k;
        if (c->kv_type == KV_F16) continue;
        TRY(take(pool, half, n * 2));
        CU(cudaMemsetAsync(*half, 0xff, n * 2, b->stream));
    }
    h->kv = a->kv;
    h->turn_k = c->dk & -c->dk & 63 ? c->dk & -c->dk : 64;
    h->turn_v = c->dv & -c->dv & 63 ? c->dv & -c->dv : 64;
    h->window = c->window;
    h->n_slot = c->n_seq;
    h->n_row = a->j.n_row;
    h->pos = a->j.pos;
    h->slot = a->j.slot;
    h->n_block = 2 * b->sm_count;
    a->j.type = KV_F16;
    a->j.k = h->k;
    a->j.v = h->v;
    return INFER_OK;
}
// What the pools hold, as floats.
static enum infer_status pools_read(const bench_run *b, const attention *a) {
    const size_t page = (size_t)a->c.n_kv_head * KV_PAGE;
    for (int i = 0; i < a->n_page; i++) {
        float *k = a->k + (size_t)i * page * a->c.dk, *v = a->v + (size_t)i * page * a->c.dv;
        CU(a->kv.type > KV_Q8_0
               ? kv_low_page_run(a->kv, a->halves.turn_k, a->halves.turn_v, i, k, v, false, b->stream)
               : kv_page_run(a->kv, i, k, v, false, b->stream));
    }
    return INFER_OK;
}
static enum infer_status attention_make(const bench_run *b, attention *a, struct pool *pool) {
    const struct cuda_attention *c = &a->c;
    const size_t heads = (size_t)c->n_row * (size_t)c->n_head;
    dev_step step = {c->n_row, 0, 0}, *on_card = NULL;
    float sinks[64], *card_sinks = NULL;
    for (int s = 0; s < c->n_seq; s++)
        if (a->longest < c->depth + rows_of(c, s)) a->longest = c->depth + rows_of(c, s);
    a->kv.type = (enum kv_type)c->kv_type;
    a->kv.n_kv_head = a->j.n_kv_head = c->n_kv_head;
    a->kv.dk = a->j.dk = c->dk;
    a->kv.dv = a->j.dv = c->dv;
    a->kv.window = a->j.window = c->window;
    a->j.n_head = c->n_head;
    a->j.scale = 1.f / sqrtf((float)c->dk);
    a->j.softcap = c->softcap;
    a->n_sample = heads < SAMPLES ? (int)heads : SAMPLES;
    TRY(tables_make(b, a, pool));
    TRY(take(pool, &a->q, heads * (size_t)c->dk * 4));
    TRY(take(pool, &a->sum, SAMPLES * 16));
    TRY(take(pool, &a->wrong, 4));
    TRY(take(pool, &a->score, (size_t)a->n_sample * (size_t)a->longest * 8));
    TRY(take(pool, &on_card, sizeof step));
    TRY(take(pool, &card_sinks, sizeof sinks));
    for (int i = 0; i < 64; i++) sinks[i] = (float)(i % 5) - 2;
    CU(cudaMemcpyAsync(on_card, &step, sizeof step, cudaMemcpyHostToDevice, b->stream));
    CU(cudaMemcpyAsync(card_sinks, sinks, sizeof sinks, cudaMemcpyHostToDevice, b->stream));
    a->t.step = on_card;
    a->j.n_row = &on_card->n_row;
    TRY(pools_make(b, a, pool));
    a->j.sinks = c->sinks ? card_sinks : NULL;
    a->j.q = a->q;
    a->j.q_stride = (size_t)(c->n_head * c->dk);
    a->j.out_order = ORDER_HALVES;
    a->j.out_k_tiles = (c->n_head * c->dv + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS;
    a->out_bytes = is_plain(c)
                       ? heads * (size_t)c->dv * 4
                       : (size_t)((c->n_row + 255) / 256) * (size_t)a->j.out_k_tiles * PROMPT_TILE_BYTES;
    TRY(take(pool, &a->out, a->out_bytes));
    a->j.out = a->out;
    if (is_plain(c)) a->plain = (float *)a->out;
    CU(cudaMemsetAsync(a->out, 0xff, a->out_bytes, b->stream));
    CU(random_fill(a->q, heads * (size_t)c->dk, 1, b->stream));
    for (int s = 0; s < c->n_seq; s++) {
        fill_kernel<<<dim3((unsigned)(c->depth + rows_of(c, s)), (unsigned)c->n_kv_head), 64, 0, b->stream>>>(
            a->kv, s);
        CU(cudaGetLastError());
    }
    TRY(pools_read(b, a));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
// pictures: by the kernels for steps that have some
static cudaError_t attention_launch(const bench_run *b, const attention *a, bool pictures) {
    const struct cuda_attention *c = &a->c;
    const bool wide = c->dk > 128 || c->dv > 128, mma = c->kernel == CUDA_ATTEND_MMA;
    if (!is_plain(c) && c->kv_type != KV_F16) {
        kv_halves_job h = a->halves;
        h.until = pictures ? a->j.until : NULL;
        const cudaError_t e = kv_halves_launch(h, b->stream);
        if (e != cudaSuccess) return e;
    }
    if (!is_plain(c) && pictures)
        return wide ? flash_wide_both_launch(a->j, c->n_row, b->stream)
                    : prompt_attend_both_launch(a->j, c->n_row, mma, b->stream);
    if (!is_plain(c))
        return wide ? flash_wide_launch(a->j, c->n_row, b->stream)
                    : prompt_attend_launch(a->j, c->n_row, mma, b->stream);
    rows q = {a->q, a->j.q_stride, c->n_head * c->dk},
         out = {a->plain, (size_t)(c->n_head * c->dv), c->n_head * c->dv};
    const attend_rule rule = {c->n_head, c->window, a->j.scale, c->softcap, 0, 1, 0, a->j.sinks};
    const op_queue s = {b->stream, false};
    return pictures ? op_attend_both_run(a->t, a->kv, q, out, rule, a->j.until, c->n_row, s)
                    : op_attend_run(a->t, a->kv, q, out, rule, c->n_row, s);
}
static void attention_name(char *name, size_t n, const struct cuda_attention *c) {
    static const char *const kernels[] = {"wgmma", "mma", "plain"};
    char more[60] = "";
    if (c->kv_type != KV_F16)
        snprintf(more, sizeof more, ", %s cache", kv_type_name((enum kv_type)c->kv_type));
    if (c->window) snprintf(more + strlen(more), sizeof more - strlen(more), ", window %d", c->window);
    if (c->picture) snprintf(more + strlen(more), sizeof more - strlen(more), ", pictures of %d", c->picture);
    snprintf(name, n, "%d rows, %d heads of %d, %d of keys%s, %s", c->n_row, c->n_head, c->dk, c->n_kv_head,
             more, kernels[c->kernel]);
}
__global__ void differ_kernel(const uint32_t *a, const uint32_t *b, size_t n, unsigned *wrong) {
    unsigned differ = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        differ += a[i] != b[i];
    if (differ) atomicAdd(wrong, differ);
}
// Rows of texts have the same bits beside a picture.
static enum infer_status attention_same(const bench_run *b, const attention *a, struct pool *pool) {
    attention twin = *a;
    unsigned wrong = 0;
    char name[120];
    if (a->c.picture) return INFER_OK;
    attention_name(name, sizeof name, &a->c);
    TRY(take(pool, &twin.out, a->out_bytes));
    twin.j.out = twin.out;
    if (a->plain) twin.plain = (float *)twin.out;
    CU(cudaMemsetAsync(twin.out, 0xff, a->out_bytes, b->stream));
    CU(cudaMemsetAsync(a->wrong, 0, 4, b->stream));
    CU(attention_launch(b, &twin, true));
    differ_kernel<<<256, 256, 0, b->stream>>>((const uint32_t *)a->out, (const uint32_t *)twin.out,
                                              a->out_bytes / 4, a->wrong);
    CU(cudaGetLastError());
    CU(cudaMemcpyAsync(&wrong, a->wrong, 4, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    if (wrong)
        return err_set(INFER_E_DEVICE, "attention of %s: %u words are others by the kernel of pictures", name,
                       wrong);
    return INFER_OK;
}
// Launches once and compares.
static enum infer_status attention_error(const bench_run *b, const attention *a, double *error) {
    double sum[2 * SAMPLES], e = 0, s = 0;
    unsigned wrong = 0;
    char name[120];
    attention_name(name, sizeof name, &a->c);
    CU(attention_launch(b, a, a->c.picture));
    CU(cudaMemsetAsync(a->wrong, 0, 4, b->stream));
    look_kernel<<<256, 256, 0, b->stream>>>(*a);
    CU(cudaGetLastError());
    reference_kernel<<<a->n_sample, 128, 0, b->stream>>>(*a);
    CU(cudaGetLastError());
    CU(cudaMemcpyAsync(&wrong, a->wrong, 4, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaMemcpyAsync(sum, a->sum, (size_t)a->n_sample * 16, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    for (int i = 0; i < a->n_sample; i++) e += sum[2 * i], s += sum[2 * i + 1];
    *error = sqrt(e / s);
    if (wrong)
        return err_set(INFER_E_DEVICE,
                       "attention of %s: %u outputs are not finite, or written where no row is", name, wrong);
    if (!(*error < 2e-3))
        return err_set(INFER_E_DEVICE, "attention of %s is wrong: error %.2g of its norm", name, *error);
    return INFER_OK;
}
// Which kernel the chip has for the case.
static bool attention_here(const bench_run *b, const struct cuda_attention *c) {
    const bool wgmma = c->kernel == CUDA_ATTEND_WGMMA && b->sm >= 90 && b->sm < 100;
    return is_plain(c) || wgmma || (c->kernel == CUDA_ATTEND_MMA && prompt_attend_has(c->dk, c->dv));
}

// ---- the table of infer bench attn
static enum infer_status bench_attention(const bench_run *b, const struct cuda_attention *c,
                                         struct pool *pool) {
    attention a = {};
    struct cuda_bench_row r = {};
    double ms = 0, keys = 0;
    a.c = *c;
    TRY(attention_make(b, &a, pool));
    TRY(attention_error(b, &a, &r.error));
    TRY(time_ms(
        b,
        [&]() -> enum infer_status {
            CU(attention_launch(b, &a, c->picture));
            return INFER_OK;
        },
        &ms));
    for (int i = 1; i <= c->n_row; i++) keys += c->window && i > c->window ? c->window : i;
    attention_name(r.name, sizeof r.name, c);
    r.unit = "TFLOP/s";
    r.ours = 2e-9 * c->n_head * keys * (c->dk + c->dv) / ms; // q k and p v of the keys that a row sees
    r.peer = NAN;
    b->row(b->user, &r);
    return INFER_OK;
}
enum infer_status bench_attentions(const bench_run *b) {
    static const struct {
        int d, n, window, type, picture;
    } all[] = {{64, 4096, 0, KV_F16},      {80, 4096, 0, KV_F16},   {96, 4096, 0, KV_F16},
               {112, 4096, 0, KV_F16},     {128, 4096, 0, KV_F16},  {64, 8192, 0, KV_F16},
               {128, 8192, 0, KV_F16},     {64, 16384, 0, KV_F16},  {128, 16384, 0, KV_F16},
               {128, 16384, 1024, KV_F16}, {128, 4096, 0, KV_Q8_0}, {128, 4096, 0, KV_F8},
               {128, 4096, 0, KV_Q4_0},    {128, 4096, 0, KV_F32},  {256, 4096, 0, KV_F16},
               {256, 4096, 1024, KV_F16},  {512, 4096, 0, KV_F16},  {256, 4096, 0, KV_F16, 256}};
    for (int kernel = CUDA_ATTEND_WGMMA; kernel <= CUDA_ATTEND_MMA; kernel++)
        for (const auto &s : all) {
            const struct cuda_attention c = {s.d, s.d,   32,       8,      s.n,
                                             1,   0,     s.window, s.type, (enum cuda_attend_kernel)kernel,
                                             0,   false, s.picture};
            struct pool pool = {};
            if (!attention_here(b, &c)) continue;
            enum infer_status st = bench_attention(b, &c, &pool);
            drop(&pool);
            TRY(st);
        }
    return INFER_OK;
}
enum infer_status attentions_check(const bench_run *b, const struct cuda_attention *all, int n,
                                   double *worst) {
    *worst = 0;
    for (int i = 0; i < n; i++) {
        attention a = {};
        struct pool pool = {};
        double error = 0;
        a.c = all[i];
        if (!attention_here(b, &a.c)) continue;
        enum infer_status st = attention_make(b, &a, &pool);
        if (!st) st = attention_error(b, &a, &error);
        if (!st) st = attention_same(b, &a, &pool);
        drop(&pool);
        TRY(st);
        if (*worst < error) *worst = error;
    }
    return INFER_OK;
}

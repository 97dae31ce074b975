// The choice among the kernels for many decode rows, and their launch.
#include "attend.h"
#include "wide.h"

#define TABLE(f)                                                                                             \
    f(q4k, 2) f(q6k, 2) f(q4k_q6k, 1) f(q4, 2) f(q4m, 2) f(q8, 2) f(q8m, 2) f(q5k, 2) f(q5k_q6k, 1)
#define DECLARE(name, n) extern const struct wide_entry wide_##name[n];
TABLE(DECLARE)

template <class F> static bool each(F f) {
#define VISIT(name, n)                                                                                       \
    for (int i = 0; i < n; i++)                                                                              \
        if (f(&wide_##name[i])) return true;
    TABLE(VISIT)
    return false;
}
// The kernel for a link of that many rows: the widest that is not half empty.
static const struct wide_entry *find(const struct mm_kernel *k, int rows) {
    const struct wide_entry *best = NULL;
    each([&](const struct wide_entry *e) {
        if (e->l == k->l && e->l2 == k->l2 && e->ga == k->ga && (!best || e->nt * 8 <= rows)) best = e;
        return false;
    });
    return best;
}

static bool is_half(enum layout l) { return l == LAYOUT_F16 || l == LAYOUT_BF16; }
static int row_bytes(enum layout l, int ga) {
    return l == LAYOUT_F16 ? 576 : l == LAYOUT_BF16 ? 1088 : ga == 16 ? REC_BYTES_16 : REC_BYTES_32;
}
static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int layout_max(const struct mm_kernel *k) {
    int a = layout_unit_bytes(k->l), b = k->l2 == LAYOUT_COUNT ? 0 : layout_unit_bytes(k->l2);
    return a > b ? a : b;
}

bool wide_plan(struct wide_job *w, const struct mm_kernel *k, int rows, int sm_count, size_t smem,
               size_t part_bytes) {
    const struct wide_entry *e = find(k, rows);
    // (measured: two passes of 8 rows of codes are faster than one of 32 that is half empty)
    if (!e || rows > WIDE_ROWS || (!is_half(k->l) && rows <= 16)) return false;
    const int r = is_half(k->l) ? 1 : 2, red = WIDE_WARPS / r * 8 * e->nt * (r == 1 ? 20 : 36) * 4;
    const int tiles = w->tiles[0] + w->tiles[1];
    w->rows = rows;
    w->groups = ceil_div(rows, 8 * e->nt);
    w->red_at = 256 + WIDE_ROWS * 4 + (w->epilogue == EPI_HEAD ? WIDE_WARPS * WIDE_ROWS * 8 : 0);
    w->fixed_bytes = (w->red_at + red + 127) / 128 * 128;
    double least = 1e30;
    for (int split = 0; split < 2; split++)
        for (int mw = 2; mw <= WIDE_WARPS; mw += 2) {
            const int slot = mw * layout_max(k) + 8 * e->nt * row_bytes(k->l, k->ga);
            int stages = ((int)smem - w->fixed_bytes) / slot;
            if (stages < 2 || (split && (tiles / r > WIDE_STEPS || w->epilogue == EPI_HEAD ||
                                         (size_t)tiles * 16 * 4 * (size_t)(rows * w->classes) > part_bytes)))
                continue;
            int items = 0, of[2] = {0, 0};
            for (int i = 0; i < 2; i++)
                items += of[i] = ceil_div(w->tiles[i], mw) * w->groups * (split ? w->classes : 1);
            // In units of a warp's work on a row tile: few warps hide no latency; classes are written, read and added.
            const double rounds = ceil_div(items, sm_count), one = split ? 1.0 / w->classes : 1;
            const double added = split ? rounds * 43 / w->j.u : 0; // measured: 9 us an item
            const double cost = rounds * one * ((mw > 5 ? mw : 5) + 1.5) + added;
            if (cost >= least) continue;
            least = cost;
            w->split = split;
            w->mw = mw;
            w->slot_bytes = slot;
            w->stages = stages < WIDE_STAGES ? stages : WIDE_STAGES;
            w->items[0] = of[0];
            w->items[1] = of[1];
        }
    w->part[1] = w->part[0] + (size_t)w->classes * (size_t)w->tiles[0] * 16 * (size_t)rows;
    w->j.n_cand = sm_count;
    return least < 1e30;
}

cudaError_t wide_launch(const struct wide_job *w, const struct mm_kernel *k, int sm_count, cudaStream_t s) {
    return launch_overlapped(find(k, w->rows)->run, sm_count, (w->mw + 1) * 32,
                             (size_t)w->fixed_bytes + (size_t)w->stages * (size_t)w->slot_bytes, true, s, *w);
}

cudaError_t wide_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct wide_entry *k) {
        int device, most;
        if ((e = cudaGetDevice(&device)) == cudaSuccess &&
            (e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) ==
                cudaSuccess &&
            (e = cudaFuncSetAttribute((const void *)k->run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      most)) == cudaSuccess)
            e = cudaFuncSetAttribute((const void *)k->run, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     100);
        return e != cudaSuccess;
    });
    return e;
}

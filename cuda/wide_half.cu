// The choice among the kernels of halves for many decode rows, and their launch.
#include "attend.h"
#include "wide_half.h"

extern const struct half_entry half_f16[HALF_ENTRIES], half_bf16[HALF_ENTRIES];

template <class F> static bool each(F f) {
    for (int i = 0; i < HALF_ENTRIES; i++)
        if (f(&half_f16[i])) return true;
    for (int i = 0; i < HALF_ENTRIES; i++)
        if (f(&half_bf16[i])) return true;
    return false;
}
static int ceil_div(int a, int b) { return (a + b - 1) / b; }

// The kernel for so many rows: the narrowest that takes them all, else the widest. (measured: 64 rows take less with
// wgmma in a kernel for 128)
static const struct half_entry *find(enum layout l, int rows, int sm, bool shared) {
    const struct half_entry *best = NULL;
    each([&](const struct half_entry *e) {
        const bool fits = sm == 90 ? e->nt <= 4 || half_by_groups(e->nt) : !half_by_groups(e->nt);
        if (e->l == l && e->shared == shared && fits && (!best || best->nt * 8 < rows)) best = e;
        return false;
    });
    return best;
}
static int best_bytes(int warps, bool head) { return head ? (warps * 8 + 4) * HALF_ROWS : 0; }
// Ring for mw row tiles: stages of 4 column tiles if three fit, else of fewer.
static bool ring(struct half_job *w, const struct half_entry *e, int mw, size_t smem) {
    const int share = e->shared ? HALF_CLASSES : 1, best = best_bytes(mw * share, w->epilogue == EPI_HEAD),
              sums = e->shared ? mw * HALF_CLASSES * e->nt * 512 : 0, fixed = HALF_RING_AT + best + sums;
    for (int span = e->shared ? 2 : 4; span; span /= 2) {
        const int bytes = share * span * (mw * 2048 + e->x), stages = ((int)smem - fixed) / bytes;
        if (stages < (span > 1 ? 3 : 2)) continue;
        w->span = span;
        w->stage_bytes = bytes;
        w->stages = stages < HALF_STAGES ? stages : HALF_STAGES;
        w->sums_at = HALF_RING_AT + w->stages * bytes;
        w->best_at = w->sums_at + sums;
        w->smem = w->best_at + best;
        w->entry = e;
        w->mw = mw;
        return true;
    }
    return false;
}
// Cycles of a multiprocessor for 64 columns of mw row tiles (measured, roughly): what comes in, the products, or one warp
// alone, whose loads and products wait for each other (shared: for a quarter of the columns).
static double cycles(const struct half_entry *e, int mw) {
    const int parts = e->x / (e->nt * 1024);
    const double in = (mw * 2048 + e->x) / 32.,
                 alone = half_by_groups(e->nt) ? 0 : (230 + 30 * e->nt) / (e->shared ? HALF_CLASSES : 1),
                 products = half_by_groups(e->nt) ? mw / 4 * e->nt * 18 : (mw + 3) / 4 * 26 * e->nt * parts;
    const double most = in > products ? in : products;
    return most > alone ? most : alone;
}

bool half_fits(const struct mm_kernel *k, const struct mm_job *j, int sm, size_t smem) {
    if ((k->l != LAYOUT_F16 && k->l != LAYOUT_BF16) || k->l2 != LAYOUT_COUNT || k->r != 1 ||
        k->warps[0] != HALF_CLASSES || j->k % 64)
        return false;
    if (k->epilogue == EPI_ADD && j->give == GIVE_RECORD) return false;
    if (k->epilogue == EPI_GLU && j->give != GIVE_HALF && j->give != GIVE_BF16) return false;
    struct half_job w = {};
    w.j = *j;
    w.epilogue = k->epilogue;
    return half_plan(&w, k, HALF_ROWS, sm, 1, smem) && half_plan(&w, k, 9, sm, 1, smem);
}
bool half_plan(struct half_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem) {
    double least = 1e30;
    struct half_job best = {};
    if (rows > HALF_ROWS) return false;
    w->rows = rows;
    w->pitch = half_pitch(rows);
    w->tiles = w->j.steps[0];
    w->n_column = w->j.k / 64;
    w->j.n_cand = sm_count;
    for (int shared = 0; shared < 2; shared++) {
        const struct half_entry *e = find(k->l, rows, sm, shared);
        if (!e || (shared && e->nt * 8 < rows)) continue;
        const int step = half_by_groups(e->nt) ? 4 : 1;
        w->groups = ceil_div(rows, e->nt * 8);
        for (int mw = step; mw <= (shared ? HALF_SHARED : HALF_WARPS); mw += step) {
            w->items = ceil_div(w->tiles, mw) * w->groups;
            const double cost = ceil_div(w->items, sm_count) * cycles(e, mw);
            if (cost > least || !ring(w, e, mw, smem)) continue;
            least = cost;
            best = *w;
        }
    }
    *w = best;
    return least < 1e30;
}
cudaError_t half_launch(const struct half_job *w, int sm_count, cudaStream_t s) {
    const int warps = w->entry->shared ? HALF_CLASSES * w->mw : w->mw,
              threads = (warps + half_helpers(w->entry->nt)) * 32;
    return launch_overlapped(w->entry->run, sm_count, threads, (size_t)w->smem, true, s, *w);
}
cudaError_t half_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct half_entry *k) {
        e = all_shared_memory((const void *)k->run);
        return e != cudaSuccess;
    });
    return e;
}

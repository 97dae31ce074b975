// The choice among the kernels of quantised weights times many decode rows, and their launch.
#include "attend.h"
#include "wide_codes.h"

#define TABLE(f)                                                                                             \
    f(q4k, 4) f(q6k, 4) f(q4k_q6k, 2) f(q4, 4) f(q4m, 4) f(q8, 4) f(q8m, 4) f(q5k, 4) f(q5k_q6k, 2)
#define DECLARE(name, n) extern const struct codes_entry codes_##name[n];
TABLE(DECLARE)

template <class F> static bool each(F f) {
#define VISIT(name, n)                                                                                       \
    for (int i = 0; i < n; i++)                                                                              \
        if (f(&codes_##name[i])) return true;
    TABLE(VISIT)
    return false;
}

static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int layout_max(const struct mm_kernel *k) {
    int a = layout_unit_bytes(k->l), b = k->l2 == LAYOUT_COUNT ? 0 : layout_unit_bytes(k->l2);
    return a > b ? a : b;
}
static bool six(enum layout l) { return l == LAYOUT_Q6K || l == LAYOUT_Q3K; }

// Cycles of a launch with the shares that w names, from counts of instructions; 0: they do not fit.
static double cost(struct codes_job *w, const struct mm_kernel *k, const struct codes_entry *e, int sm_count,
                   size_t smem, size_t part_bytes) {
    const int warps = w->mw * w->nw, red = warps / 2 * 8 * e->nt * 36 * 4, most = layout_max(k),
              tiles = w->tiles[0] + w->tiles[1];
    w->n = w->nw * 8 * e->nt;
    w->groups = ceil_div(w->rows, w->n);
    w->best_pairs = warps / 2;
    w->red_at = 128 + CODES_ROWS * 8 + (w->epilogue == EPI_HEAD ? w->best_pairs * CODES_ROWS * 8 : 0);
    w->fixed_bytes = (w->red_at + red + 1023) / 1024 * 1024;
    w->slot_bytes = (w->mw * most + w->n * SLAB_ROW + 1023) / 1024 * 1024;
    w->stages = ((int)smem - w->fixed_bytes) / w->slot_bytes;
    if (w->stages > CODES_STAGES) w->stages = CODES_STAGES;
    int all = 0;
    for (int i = 0; i < 2; i++) {
        const int sets = ceil_div(w->tiles[i], w->mw) * w->groups;
        all += w->items[i] = sets * w->splits;
        if (w->splits > 1 && sets > CODES_COUNTS) return 0;
    }
    // blocks that share a tile wait for each other, so all of them must run at the same time
    if (w->stages < 2 || w->classes % w->splits || w->splits * w->groups > sm_count ||
        (w->splits > 1 && (w->epilogue == EPI_HEAD ||
                           (size_t)tiles * 16 * 4 * (size_t)(w->groups * w->n * w->classes) > part_bytes)))
        return 0;
    const bool halves = six(k->l) || k->ga == 16;
    const double group = e->group ? 24 + (halves ? 8 : 4) * e->nt : e->nt * (halves ? 11 : 7);
    const double issue = 8 * ((six(k->l) ? 46 : 14) + group) + 150 + 10 * e->nt;
    const double sums = issue * 1.3 * ceil_div(warps, 4), alone = (e->group ? 600 : 900) + issue;
    const double fetch = (w->mw * layout_unit_bytes(k->l) + w->n * SLAB_ROW) / 22.0;
    double unit = sums > fetch ? sums : fetch;
    if (unit < alone) unit = alone;
    if (w->stages < 3) unit *= 1.15; // two hide too little
    const double finish = 1500 + (w->splits > 1 ? 4000 + 16.0 * w->n : 0);
    return ceil_div(all, sm_count) * (unit * ceil_div(w->j.u, w->splits) + finish) + 1500;
}

bool codes_has(const struct mm_kernel *k, int rows) {
    return rows > 16 && rows <= CODES_ROWS && each([&](const struct codes_entry *e) {
               return e->l == k->l && e->l2 == k->l2 && e->ga == k->ga;
           });
}

bool codes_plan(struct codes_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem,
                size_t part_bytes, const struct codes_entry **entry) {
    struct codes_job best = {};
    double least = 1e30;
    w->rows = rows;
    w->pitch = slab_pitch(rows);
    w->j.n_cand = sm_count;
    each([&](const struct codes_entry *e) {
        if (e->l != k->l || e->l2 != k->l2 || e->ga != k->ga || (e->group && sm != 90)) return false;
        for (w->splits = 1; w->splits <= 8; w->splits *= 2)
            for (w->mw = e->group ? 4 : 2; w->mw <= codes_warps(e->nt, e->group); w->mw += e->group ? 4 : 2)
                for (w->nw = 1; w->mw * w->nw <= codes_warps(e->nt, e->group); w->nw *= 2) {
                    const double c = cost(w, k, e, sm_count, smem, part_bytes);
                    if (c <= 0 || c >= least) continue;
                    least = c;
                    best = *w;
                    *entry = e;
                }
        return false;
    });
    if (least >= 1e30) return false;
    *w = best;
    w->part[1] = w->part[0] + (size_t)w->classes * (size_t)w->tiles[0] * 16 * (size_t)(w->groups * w->n);
    return true;
}

cudaError_t codes_launch(const struct codes_job *w, const struct codes_entry *e, int sm_count,
                         cudaStream_t s) {
    return launch_overlapped(e->run, sm_count, (w->mw * w->nw + codes_helpers(e->group)) * 32,
                             (size_t)w->fixed_bytes + (size_t)w->stages * (size_t)w->slot_bytes, true, s, *w);
}

cudaError_t codes_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct codes_entry *k) {
        e = all_shared_memory((const void *)k->run);
        return e != cudaSuccess;
    });
    return e;
}

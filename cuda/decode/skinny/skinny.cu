// The choice among the kernels of halves for many decode rows, and their launch.
#include "cuda/common/launch.h"
#include "cuda/decode/skinny/skinny.h"

// rows of layouts.def as F(name)
#define ROW_CODES(id)  F(id)
#define ROW_EIGHTS(id) F(id)
#define ROW_HALVES(id) F(id)
#define ROW_FLOATS(id)
#define LAYOUT(id, name, bytes, kind) ROW_##kind(id)
#define PAIR(id, id2, slots, slots2)  F(id##_##id2)
#define F(name)                       extern const struct skinny_entry half_##name[SKINNY_ENTRIES];
#include "cuda/plan/layouts.def"
#undef F

template <class T> static bool each(T f) {
#define LAYOUT(id, name, bytes, kind) ROW_##kind(id)
#define PAIR(id, id2, slots, slots2)  F(id##_##id2)
#define F(name)                                                                                              \
    for (const struct skinny_entry &e : half_##name)                                                         \
        if (f(&e)) return true;
#include "cuda/plan/layouts.def"
#undef F
    return false;
}
static int ceil_div(int a, int b) { return (a + b - 1) / b; }

static bool codes(const struct skinny_entry *e) { return skinny_classes(e->l) != 4; }
static bool four_groups(const struct skinny_entry *e) { return codes(e) && e->group && e->nt <= 8; }

// The kernel for so many rows: the narrowest that takes them all, else the widest.
static const struct skinny_entry *find(const struct mm_kernel *k, int rows, int sm, bool shared) {
    const struct skinny_entry *best = NULL;
    each([&](const struct skinny_entry *e) {
        const bool fits = sm == 90 ? e->group || e->nt <= (codes(e) ? 2 : 4) : !e->group;
        if (e->l == k->l && e->l2 == k->l2 && e->shared == shared && fits && (!best || best->nt * 8 < rows))
            best = e;
        return false;
    });
    return best;
}
// Bytes of a row tile's weights in a stage of so many column tiles.
static int weight_bytes(const struct skinny_entry *e, int span) {
    const int a = layout_unit_bytes(e->l), b = e->l2 == LAYOUT_COUNT ? 0 : layout_unit_bytes(e->l2);
    return codes(e) ? (a > b ? a : b) : span * 2048;
}
static int best_bytes(int warps, bool head) { return head ? (warps * 8 + 4) * HALF_BEST : 0; }
// Ring for mw row tiles: stages of 4 column tiles if three fit, else of fewer.
static bool ring(struct skinny_job *w, const struct skinny_entry *e, int mw, size_t smem) {
    const int share = e->shared ? skinny_classes(e->l) : 1,
              best = best_bytes(mw * share, w->epilogue == EPI_HEAD),
              sums = e->shared                                        ? mw * share * e->nt * 512
                     : four_groups(e) && e->nt == 8 && w->splits == 1 ? mw * e->nt * 512
                                                                      : 0,
              fixed = HALF_RING_AT + best + sums;
    for (int span = e->shared && !codes(e) ? 2 : 4; span; span /= 2) {
        const int bytes =
                      (share * (mw * weight_bytes(e, span) + span * e->x) + 1023) / 1024 * 1024, // for wgmma
            stages = ((int)smem - fixed) / bytes;
        if (stages < (span > 1 && !codes(e) ? 3 : 2)) {
            if (codes(e)) return false; // a unit's scales are for all of it
            continue;
        }
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
// alone, whose loads and products wait for each other (shared: for its part of the columns).
static double cycles(const struct skinny_entry *e, int mw) {
    const int parts = e->x / (e->nt * 1024), convert = codes(e) ? 130 : 0;
    const double in = (mw * weight_bytes(e, 4) / 4. + e->x) / 32.,
                 alone = e->group
                             ? 0
                             : (230. + 2 * convert + 30 * e->nt) / (e->shared ? skinny_classes(e->l) : 1),
                 products = four_groups(e) ? 170 + 20 * e->nt + mw / 4 * (95 + 7.5 * e->nt)
                            : e->group     ? mw / 4 * e->nt * 18
                            : e->shared    ? mw / 4. * (26 * e->nt * parts + convert)
                                           : (mw + 3) / 4 * (26 * e->nt * parts + convert);
    const double most = in > products ? in : products;
    return most > alone ? most : alone;
}

int skinny_most(const struct mm_kernel *k, int sm) {
    if (k->epilogue == EPI_HEAD) return HALF_BEST;
    const struct skinny_entry *e = find(k, WIDE_ROWS, sm, false);
    return e && e->wide ? (int)WIDE_ROWS : (int)HALF_ROWS;
}
bool skinny_fits(const struct mm_kernel *k, const struct gemv_args *j, int sm, size_t smem) {
    struct skinny_job w = {};
    w.j = *j;
    w.epilogue = k->epilogue;
    for (int rows = 2; rows <= skinny_most(k, sm); rows *= 2)
        if (!skinny_plan(&w, k, rows, sm, 1, smem, 0)) return false;
    return true;
}
// Rings of a block of a cluster: of the rows' column tiles, and of units of weights. again: some block has another item, so that
// sums have a place beside the rings.
static void wide_rings(struct skinny_job *w, const struct skinny_entry *e, bool again, size_t smem) {
    const int best = best_bytes(WIDE_TILES, w->epilogue == EPI_HEAD), sums = WIDE_TILES * WIDE_NT * 512,
              left = (int)smem - WIDE_RING_AT - best - (again ? sums : 0);
    w->stage_bytes = (WIDE_TILES * weight_bytes(e, 1) + 1023) / 1024 * 1024;
    w->weight_stages = w->stage_bytes > 24 << 10 ? 2 : 3;
    w->stages = (left - w->weight_stages * w->stage_bytes) / e->x;
    if (w->stages > WIDE_STAGES) w->stages = WIDE_STAGES;
    w->weights_at = WIDE_RING_AT + w->stages * e->x;
    w->best_at = w->weights_at + w->weight_stages * w->stage_bytes;
    w->smem = w->best_at + best;
    w->sums_at = again ? w->smem : WIDE_RING_AT;
    w->smem += again ? sums : 0;
}
// Items of pairs of blocks; as many parts of the columns as leave the least work for the busiest.
static bool wide_plan(struct skinny_job *w, const struct skinny_entry *e, int rows, int sm_count, size_t smem,
                      size_t part_bytes) {
    double least = 1e30;
    int best = 1;
    const int clusters = sm_count > 1 ? sm_count / 2 : 1;
    w->entry = e;
    w->j.n_cand = sm_count & ~1;
    w->mw = WIDE_TILES;
    w->groups = ceil_div(rows, WIDE_NT * 8);
    const int pairs =
        w->groups * (ceil_div(w->tiles[0], 2 * WIDE_TILES) + ceil_div(w->tiles[1], 2 * WIDE_TILES));
    for (int splits = 1; splits <= w->classes; splits *= 2) {
        if (splits > 1 && (pairs * splits > clusters || pairs * 2 > HALF_COUNTS || w->epilogue == EPI_HEAD ||
                           (size_t)(pairs * 2 * w->classes * WIDE_TILES * WIDE_NT) * 512 > part_bytes))
            break;
        const double cost = ceil_div(pairs * splits, clusters) * (600. * w->n_column / splits + 8000) +
                            (splits > 1 ? 4600 : 0);
        if (cost >= least) continue;
        least = cost;
        best = splits;
    }
    w->splits = best;
    for (int i = 0; i < 2; i++) w->items[i] = ceil_div(w->tiles[i], 2 * WIDE_TILES) * w->groups * best;
    wide_rings(w, e, w->items[0] + w->items[1] > clusters, smem);
    return w->stages > 1 && w->weight_stages > 1;
}
bool skinny_plan(struct skinny_job *w, const struct mm_kernel *k, int rows, int sm, int sm_count, size_t smem,
                 size_t part_bytes) {
    double least = 1e30;
    struct skinny_job best = {};
    if (rows > skinny_most(k, sm)) return false;
    w->rows = rows;
    w->pitch = half_pitch(rows);
    for (int i = 0; i < 2; i++) w->tiles[i] = w->j.steps[i] * k->r;
    w->n_column = ceil_div(w->j.k, 64);
    w->classes = k->warps;
    w->j.n_cand = sm_count;
    for (int shared = 0; shared < 2; shared++) {
        const struct skinny_entry *e = find(k, rows, sm, shared);
        if (!e || (shared && (e->nt * 8 < rows || skinny_classes(e->l) != k->warps))) continue;
        if (e->wide) {
            if (!wide_plan(w, e, rows, sm_count, smem, part_bytes)) return false;
            best = *w;
            least = 0;
            continue;
        }
        const int step = e->group ? 4 : 1;
        w->groups = ceil_div(rows, e->nt * 8);
        for (int mw = step; mw <= (shared ? act_tiles_shared(e->l) : skinny_warps(e->l, e->nt, e->group));
             mw += step)
            for (w->splits = 1; w->splits <= (shared ? 1 : w->classes); w->splits *= 2) {
                int all = 0;
                for (int i = 0; i < 2; i++)
                    all += w->items[i] = ceil_div(w->tiles[i], mw) * w->groups * w->splits;
                // blocks that share a tile wait for each other, so all of them must run at the same time
                if (w->splits > 1 &&
                    (all > sm_count || all / w->splits > HALF_COUNTS || w->epilogue == EPI_HEAD ||
                     (size_t)(all / w->splits * w->classes * mw * e->nt) * 512 > part_bytes))
                    continue;
                const double item = cycles(e, mw) * w->n_column / w->splits + (codes(e) ? 1500 : 0),
                             cost =
                                 ceil_div(all, sm_count) * item +
                                 (w->splits > 1 ? (codes(e) || e->nt > 2 ? 3000 : 11000) + 100. * e->nt : 0);
                if (cost > least || !ring(w, e, mw, smem)) continue;
                least = cost;
                best = *w;
            }
    }
    *w = best;
    while (1 << w->split_bits < w->splits) w->split_bits++;
    return least < 1e30;
}
// A launch in clusters of so many blocks.
template <class... A, class... B>
static cudaError_t launch_clusters(void (*k)(A...), int grid, int cluster, int block, size_t smem,
                                   cudaStream_t s, B... args) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2] = {};
    c.gridDim = dim3((unsigned)grid);
    c.blockDim = dim3((unsigned)block);
    c.dynamicSmemBytes = smem;
    c.stream = s;
    c.attrs = at;
    c.numAttrs = 2;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    at[1].id = cudaLaunchAttributeClusterDimension;
    at[1].val.clusterDim.x = (unsigned)cluster;
    at[1].val.clusterDim.y = at[1].val.clusterDim.z = 1;
    return cudaLaunchKernelEx(&c, k, A(args)...);
}
cudaError_t skinny_launch(const struct skinny_job *w, int sm_count, cudaStream_t s) {
    const int warps = w->entry->shared ? skinny_classes(w->entry->l) * w->mw : w->mw,
              threads = (warps + skinny_helpers(w->entry->group)) * 32;
    if (w->entry->wide) return launch_clusters(w->entry->run, sm_count & ~1, 2, 384, (size_t)w->smem, s, *w);
    return launch_overlapped(w->entry->run, sm_count, threads, (size_t)w->smem, true, s, *w);
}
cudaError_t skinny_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct skinny_entry *k) {
        e = all_shared_memory((const void *)k->run);
        return e != cudaSuccess;
    });
    return e;
}

/* Prompt attention on AMX tiles, for caches of less than 32 bits: up to CPU_AMX_ATTEND_ROWS query rows (tokens x heads
 * of one kv head) share one conversion of a page of keys and values. As in attend.h a lane is a row, softmax
 * runs page by page, and a row's bits depend on its own position alone:
 *
 *     scores  s[64][rows] = K . Q^T      keys left as they lie, queries in pairs of columns
 *     output  o[d][rows] += V^T . P      values turned, weights in pairs of positions
 *
 * Scores go into an exponent, so they are kept at 16 bits a factor: q and k are each a sum of two BF16, and the three
 * products that matter are added. Weights and values are one BF16, as the matmul after it rounds to. */
#include "cpu/kernels/kernels.h"
#include "cpu/simd/simd.h"

enum { GROUP = 32, TILE = CPU_TILE_ELEMS, POS_TILES = KV_PAGE / 16 };
/* Log-2 scores: below every score, and below that by enough for a weight of 0. */
static const float never = -1e30f, masked = -2e30f;

/* gcc 12's tile loads and stores name no memory */
#define ORDER __asm__ volatile("" : : : "memory")

struct attend { /* one call; all memory is scratch */
    const struct cpu_attend_arg *a;
    int hkp, hvp;        /* head sizes, rounded up to 32 */
    float *page;         /* [KV_PAGE][hkp or hvp] */
    uint16_t *k[2];      /* high and low parts: [hkp / 32][POS_TILES] tiles of 16 positions x 32 columns */
    uint16_t *v;         /* [hvp / 16][2] tiles of 16 columns x 32 positions */
    uint16_t *q[2];      /* [rows / 16][hkp / 32] tiles of 16 pairs of columns x 16 rows */
    float *s;            /* [KV_PAGE][GROUP] */
    uint16_t *p;         /* [2][GROUP / 16] tiles of 16 pairs of positions x 16 rows */
    float *o;            /* [rows / GROUP][hvp][GROUP] */
    float *m, *l;        /* [rows]: running maximum and sum */
    float *first, *last; /* [rows]: positions that a row sees */
};

size_t cpu_amx_attend_floats(int hk, int hv) {
    size_t k = ((size_t)hk + 31) & ~(size_t)31, v = ((size_t)hv + 31) & ~(size_t)31, h = k > v ? k : v;
    return KV_PAGE * h + KV_PAGE * k + KV_PAGE * v / 2 + CPU_AMX_ATTEND_ROWS * k + KV_PAGE * GROUP * 3 / 2 +
           CPU_AMX_ATTEND_ROWS * v + 4 * CPU_AMX_ATTEND_ROWS + 16;
}
static void carve(struct attend *t, float *at) {
    size_t k = (size_t)t->hkp, v = (size_t)t->hvp;
    at = (float *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
    t->page = at, at += KV_PAGE * (k > v ? k : v);
    for (int i = 0; i < 2; i++) t->k[i] = (uint16_t *)(void *)at, at += KV_PAGE * k / 2;
    t->v = (uint16_t *)(void *)at, at += KV_PAGE * v / 2;
    for (int i = 0; i < 2; i++) t->q[i] = (uint16_t *)(void *)at, at += CPU_AMX_ATTEND_ROWS * k / 2;
    t->s = at, at += KV_PAGE * GROUP;
    t->p = (uint16_t *)(void *)at, at += KV_PAGE * GROUP / 2;
    t->o = at, at += CPU_AMX_ATTEND_ROWS * v;
    t->m = at, t->l = at + CPU_AMX_ATTEND_ROWS;
    t->first = at + 2 * CPU_AMX_ATTEND_ROWS, t->last = at + 3 * CPU_AMX_ATTEND_ROWS;
}

/* 32 floats as BF16; what rounding took from them stays in a and b. */
INLINE __m512i split_bf16(vf *a, vf *b) {
    __m512i h = (__m512i)_mm512_cvtne2ps_pbh(*b, *a);
    __m512i lo = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(h));
    __m512i hi = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(h, 1));
    *a = vf_sub(*a, _mm512_castsi512_ps(_mm512_slli_epi32(lo, 16)));
    *b = vf_sub(*b, _mm512_castsi512_ps(_mm512_slli_epi32(hi, 16)));
    return h;
}
/* Each two of a and b side by side, as BF16. */
INLINE __m512i pairs(vf a, vf b) {
    const __m512i weave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(weave, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* Rows lo .. hi of a page of one head as floats, zeros around them: page[KV_PAGE][np]. */
static void load_page(struct attend *t, enum kv_type type, const uint8_t *pool, int page, int head, int n,
                      int np, int lo, int hi) {
    size_t row = kv_row_bytes(type, n);
    const uint8_t *p = pool + (size_t)page * t->a->page_stride + (size_t)(head * KV_PAGE) * row;
    for (int i = 0; i < KV_PAGE; i++) {
        float *y = t->page + i * np;
        bool there = i >= lo && i < hi;
        for (int j = there ? n & ~15 : 0; j < np; j += 16) vf_store(y + j, vf_set(0));
        if (there) cpu_kernels_avx512.kv_load(type, y, p + (size_t)i * row, n);
    }
}
/* Asks for one of n parts of the page that comes next: spread over the groups, since a burst would wait for its own
 * misses. */
static void ask(const struct attend *t, const uint8_t *pool, int page, int head, size_t row, int part,
                int n) {
    size_t tile = KV_PAGE * row, step = (tile / (size_t)n + 64) & ~(size_t)63;
    const uint8_t *p = pool + (size_t)page * t->a->page_stride + (size_t)head * tile;
    for (size_t at = (size_t)part * step; at < (size_t)(part + 1) * step && at < tile; at += 64)
        _mm_prefetch((const char *)p + at, _MM_HINT_T1);
}
static void turn_keys(struct attend *t) {
    for (int i = 0; i < KV_PAGE; i++)
        for (int j = 0; j < t->hkp; j += 32) {
            size_t at = (size_t)((j / 32 * POS_TILES + i / 16) * TILE + i % 16 * 32);
            vf a = vf_load(t->page + i * t->hkp + j), b = vf_load(t->page + i * t->hkp + j + 16);
            _mm512_storeu_si512(t->k[0] + at, split_bf16(&a, &b));
            _mm512_storeu_si512(t->k[1] + at, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        }
}
static void turn_values(struct attend *t) {
    for (int d = 0; d < t->hvp; d += 16)
        for (int half = 0; half < 2; half++) {
            vf x[16];
            for (int i = 0; i < 16; i++) {
                const float *y = t->page + (half * 32 + 2 * i) * t->hvp + d;
                x[i] = (vf)pairs(vf_load(y), vf_load(y + t->hvp));
            }
            transpose16(x);
            uint16_t *tile = t->v + (d / 16 * 2 + half) * TILE;
            for (int i = 0; i < 16; i++) vf_store((float *)(void *)(tile + 32 * i), x[i]);
        }
}

/* Tiles 4, 5 times tiles 6, 7, added to tiles 0 to 3. */
INLINE void multiply(void) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* s = K . Q^T of rows g .. g + GROUP */
static void scores(struct attend *t, int g) {
    int steps = t->hkp / 32;
    size_t q0 = (size_t)(g / 16 * steps * TILE), q1 = q0 + (size_t)(steps * TILE);
    ORDER;
    for (int i = 0; i < POS_TILES; i += 2) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int j = 0; j < steps; j++) {
            size_t k = (size_t)((j * POS_TILES + i) * TILE), c = (size_t)(j * TILE);
            _tile_loadd(4, t->k[0] + k, 64);
            _tile_loadd(5, t->k[0] + k + TILE, 64);
            _tile_loadd(6, t->q[1] + q0 + c, 64);
            _tile_loadd(7, t->q[1] + q1 + c, 64);
            multiply();
            _tile_loadd(6, t->q[0] + q0 + c, 64);
            _tile_loadd(7, t->q[0] + q1 + c, 64);
            multiply();
            _tile_loadd(4, t->k[1] + k, 64);
            _tile_loadd(5, t->k[1] + k + TILE, 64);
            multiply();
        }
        float *s = t->s + i * 16 * GROUP;
        _tile_stored(0, s, GROUP * 4);
        _tile_stored(1, s + 16, GROUP * 4);
        _tile_stored(2, s + 16 * GROUP, GROUP * 4);
        _tile_stored(3, s + 16 * GROUP + 16, GROUP * 4);
    }
    ORDER;
}

/* 2^x for x <= 0: Taylor polynomial of degree 4 on |f| <= 1/2, relative error 4e-5; 0 far below. */
INLINE vf exp2_fast(vf x) {
    vf n = vf_round(x), f = vf_sub(x, n);
    vf y = vf_fma(f, vf_set(9.6181291e-3f), vf_set(5.5504109e-2f));
    y = vf_fma(y, f, vf_set(2.4022651e-1f));
    y = vf_fma(y, f, vf_set(6.9314718e-1f));
    y = vf_fma(y, f, vf_set(1));
    return vf_scale2(y, n);
}

/* Scores to weights, at: the page's first position. edge: some row does not see all of the page. */
static void weights(struct attend *t, int g, int at, bool edge) {
    float cap = t->a->op->softcap;
    for (int r = 0; r < GROUP; r += 16) {
        float *s = t->s + r;
        uint16_t *p = t->p + r / 16 * TILE;
        vf m0 = vf_load(t->m + g + r), m1 = m0, sum0 = vf_set(0), sum1 = vf_set(0);
        vf f = vf_load(t->first + g + r), e = vf_load(t->last + g + r);
        for (int i = 0; (edge || cap > 0) && i < KV_PAGE; i++) {
            vf v = vf_load(s + i * GROUP), here = vf_set((float)(at + i));
            if (cap > 0) v = vf_mul(vf_set(cap * 1.44269504f), vf_tanh(vf_mul(v, vf_set(1 / cap))));
            vmask out = vf_less(here, f) | vf_less(e, here);
            vf_store(s + i * GROUP, vf_pick(out, vf_set(masked), v));
        }
        for (int i = 0; i < KV_PAGE; i++) m1 = vf_max(vf_load(s + i * GROUP), m1);
        for (int i = 0; i < KV_PAGE; i += 2) {
            vf a = exp2_fast(vf_sub(vf_load(s + i * GROUP), m1));
            vf b = exp2_fast(vf_sub(vf_load(s + (i + 1) * GROUP), m1));
            sum0 = vf_add(sum0, a), sum1 = vf_add(sum1, b);
            _mm512_storeu_si512(p + i / 32 * (GROUP / 16) * TILE + i % 32 * 16, pairs(a, b));
        }
        vf keep = exp2_fast(vf_sub(m0, m1));
        vf_store(t->m + g + r, m1);
        vf_store(t->l + g + r, vf_fma(vf_load(t->l + g + r), keep, vf_add(sum0, sum1)));
        float *o = t->o + g * t->hvp + r;
        if (_mm512_cmp_ps_mask(keep, vf_set(1), _CMP_EQ_OQ) !=
            0xffff) /* later pages seldom have a new maximum */
            for (int d = 0; d < t->hvp; d++) vf_store(o + d * GROUP, vf_mul(vf_load(o + d * GROUP), keep));
    }
}

/* o += V^T . P of rows g .. g + GROUP */
static void outputs(struct attend *t, int g) {
    ORDER;
    for (int d = 0; d < t->hvp; d += 32) {
        float *o = t->o + (g * t->hvp + d * GROUP);
        const uint16_t *v = t->v + d / 16 * 2 * TILE;
        _tile_loadd(0, o, GROUP * 4);
        _tile_loadd(1, o + 16, GROUP * 4);
        _tile_loadd(2, o + 16 * GROUP, GROUP * 4);
        _tile_loadd(3, o + 16 * GROUP + 16, GROUP * 4);
        for (int half = 0; half < 2; half++) {
            _tile_loadd(4, v + half * TILE, 64);
            _tile_loadd(5, v + (2 + half) * TILE, 64);
            _tile_loadd(6, t->p + 2 * half * TILE, 64);
            _tile_loadd(7, t->p + (2 * half + 1) * TILE, 64);
            multiply();
        }
        _tile_stored(0, o, GROUP * 4);
        _tile_stored(1, o + 16, GROUP * 4);
        _tile_stored(2, o + 16 * GROUP, GROUP * 4);
        _tile_stored(3, o + 16 * GROUP + 16, GROUP * 4);
    }
    ORDER;
}

/* Rows r0 .. r0 + 16 of q, of which n are there, to tiles; in log-2 units unless a cap comes between. */
static void turn_queries(struct attend *t, int r0, int n, int heads, const int32_t *pos, const float *q,
                         size_t q_stride) {
    const struct op_attend *op = t->a->op;
    int hk = t->a->store->head_dim_k;
    size_t tiles = (size_t)(r0 / 16 * (t->hkp / 32) * TILE);
    for (int i = 0; i < 16; i++) {
        float unit = cpu_attend_scale(op, pos[i < n ? (r0 + i) / heads : 0]);
        vf scale = vf_set(op->softcap > 0 ? unit : unit * 1.44269504f);
        const float *x = q + (size_t)((r0 + i) / heads) * q_stride + (size_t)((r0 + i) % heads) * (size_t)hk;
        for (int j = 0; j < t->hkp; j += 16) {
            int left = i < n && j < hk ? hk - j < 16 ? hk - j : 16 : 0;
            vf_store(t->page + i * t->hkp + j, left ? vf_mul(vf_loadn(x + j, left), scale) : vf_set(0));
        }
    }
    cpu_amx_prep(t->q[0] + tiles, t->page, (size_t)t->hkp, 16, t->hkp);
    for (float *x = t->page; x < t->page + 16 * t->hkp; x += 32) {
        vf a = vf_load(x), b = vf_load(x + 16);
        split_bf16(&a, &b);
        vf_store(x, a);
        vf_store(x + 16, b);
    }
    cpu_amx_prep(t->q[1] + tiles, t->page, (size_t)t->hkp, 16, t->hkp);
}

/* Rows r0 .. r0 + 16 of o, of which n are there, over their sums. */
static void write_rows(struct attend *t, int r0, int n, int head0, int heads, float *out, size_t out_stride) {
    const float *sinks = t->a->op->sinks;
    int hv = t->a->store->head_dim_v;
    vf m = vf_load(t->m + r0), top = m, sink = vf_set(masked);
    if (sinks) { /* one more logit, without a value */
        float x[16];
        for (int i = 0; i < 16; i++) x[i] = sinks[head0 + (r0 + i) % heads] * 1.44269504f;
        top = vf_max(sink = vf_load(x), m);
    }
    vf keep = exp2_fast(vf_sub(m, top));
    float f[16];
    vf_store(f, vf_div(keep, vf_fma(vf_load(t->l + r0), keep, exp2_fast(vf_sub(sink, top)))));
    for (int d = 0; d < hv; d += 16) {
        vf x[16];
        const float *o = t->o + r0 / GROUP * GROUP * t->hvp + d * GROUP + r0 % GROUP;
        for (int i = 0; i < 16; i++) x[i] = vf_load(o + i * GROUP);
        transpose16(x);
        for (int i = 0; i < n; i++) {
            float *y =
                out + (size_t)((r0 + i) / heads) * out_stride + (size_t)((r0 + i) % heads) * (size_t)hv;
            vf_storen(y + d, vf_mul(x[i], vf_set(f[i])), hv - d < 16 ? hv - d : 16);
        }
    }
}

void cpu_amx_attend_block(const struct cpu_attend_arg *a, int kv_head, const int32_t *pos, int n, int head0,
                          int heads, const float *q, size_t q_stride, float *out, size_t out_stride,
                          float *scratch) {
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v;
    struct attend t = {.a = a, .hkp = (hk + 31) & ~31, .hvp = (hv + 31) & ~31};
    int rows = n * heads, groups = (rows + GROUP - 1) / GROUP, begin = INT32_MAX, end = 0;
    int seen[2][CPU_AMX_ATTEND_ROWS / GROUP][2]; /* [least, most][group][first, last] */
    carve(&t, scratch);
    memset(t.o, 0, sizeof(float) * (size_t)(groups * GROUP * t.hvp));
    for (int r = 0; r < groups * GROUP;
         r++) { /* row r = token * heads + head; past the last: the last token */
        const int row = r / heads < n ? r / heads : n - 1, g = r / GROUP,
                  f = op_attend_first(a->op, pos[row]), p = cpu_attend_last(a, pos, row);
        t.m[r] = never, t.l[r] = 0, t.first[r] = (float)f, t.last[r] = (float)p;
        if (r % GROUP == 0) seen[0][g][0] = seen[1][g][0] = f, seen[0][g][1] = seen[1][g][1] = p;
        if (f < seen[0][g][0]) seen[0][g][0] = f;
        if (f > seen[1][g][0]) seen[1][g][0] = f;
        if (p < seen[0][g][1]) seen[0][g][1] = p;
        if (p > seen[1][g][1]) seen[1][g][1] = p;
        if (f < begin) begin = f;
        if (p > end) end = p;
    }
    for (int r = 0; r < groups * GROUP; r += 16) turn_queries(&t, r, rows - r, heads, pos, q, q_stride);
    for (int p = begin / KV_PAGE; p <= end / KV_PAGE; p++) {
        int at = p * KV_PAGE, lo = begin > at ? begin - at : 0,
            hi = end - at < KV_PAGE ? end - at + 1 : KV_PAGE;
        load_page(&t, a->store->k_type, a->k_pool, a->pages[p], kv_head, hk, t.hkp, lo, hi);
        turn_keys(&t);
        load_page(&t, a->store->v_type, a->v_pool, a->pages[p], kv_head, hv, t.hvp, lo, hi);
        turn_values(&t);
        for (int g = 0; g < groups; g++) {
            if (p < end / KV_PAGE) {
                ask(&t, a->k_pool, a->pages[p + 1], kv_head, kv_k_bytes(a->store), g, groups);
                ask(&t, a->v_pool, a->pages[p + 1], kv_head, kv_v_bytes(a->store), g, groups);
            }
            if (seen[0][g][0] >= at + KV_PAGE || seen[1][g][1] < at) continue; /* nobody sees it */
            scores(&t, g * GROUP);
            weights(&t, g * GROUP, at, seen[1][g][0] > at || seen[0][g][1] < at + KV_PAGE - 1);
            outputs(&t, g * GROUP);
        }
    }
    for (int r = 0; r < rows; r += 16)
        write_rows(&t, r, rows - r < 16 ? rows - r : 16, head0, heads, out, out_stride);
}

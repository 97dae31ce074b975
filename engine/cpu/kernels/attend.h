/* Attention over pages, included once per instruction set. Softmax runs page by page with a running maximum m
 * and sum l (Milakov & Gimelshein 2018; Dao et al. 2022); pages have absolute places, so a row's bits depend
 * on its own position alone. */

enum { R = CPU_ATTEND_LANES, RV = CPU_ATTEND_LANES / VL };
static const float never = -1e30f; /* a maximum below every score */

INLINE vf soft_cap(vf s, float cap) { return vf_mul(vf_set(cap), vf_tanh(vf_mul(s, vf_set(1 / cap)))); }

/* A page of one head. */
INLINE const uint8_t *page_at(const struct cpu_attend_arg *a, const uint8_t *pool, int page, int head,
                              size_t row) {
    return pool + (size_t)page * a->page_stride + (size_t)(head * KV_PAGE) * row;
}
/* The page of the i-th of a list; *at: its position, or its row there. pool: of keys, or of values beside them. */
static const uint8_t *listed_page(const struct cpu_attend_arg *a, const uint8_t *pool, int i, int head,
                                  size_t row, int *at) {
    if (i < a->n_near) {
        *at = a->near + i;
        return page_at(a, pool, a->pages[*at / KV_PAGE], head, row);
    }
    i -= a->n_near;
    *at = a->chosen ? (int)a->chosen[i] : (i + 1) * a->every - 1;
    if (!a->list_pool) return page_at(a, pool, a->pages[*at / KV_PAGE], head, row);
    const uint8_t *page = a->list_pool + (size_t)a->list_pages[*at / KV_PAGE] * a->list_stride;
    *at = kv_page_row(a->list_store, *at); /* of its only head */
    return page;
}
/* Rows lo .. hi of the page-th page of the sequence, or so many listed rows, of one head as floats: dst[i][n]. */
static void load_page(const struct cpu_attend_arg *a, enum kv_type type, float *dst, const uint8_t *pool,
                      int page, int head, int n, int lo, int hi) {
    size_t row = kv_row_bytes(type, n);
    const uint8_t *p = a->listed ? NULL : page_at(a, pool, a->pages[page], head, row);
    for (int i = lo; i < hi; i++) {
        int at = i;
        if (a->listed) p = listed_page(a, pool, page * KV_PAGE + i, head, row, &at);
        vec_kv_load(type, dst + (size_t)i * (size_t)n, p + (size_t)(at % KV_PAGE) * row, n);
    }
}

/* ---- decode: one row, the query heads of one kv head ---- */

/* One head's rows of a page: halves as they lie in the cache where they are whole vectors, else floats; and the page
 * that comes next, asked for row by row, for a page is a new place and the processor's own prefetchers start late. */
struct kv_rows {
    const uint8_t *at, *ahead;
    size_t step, ahead_step; /* bytes of a row */
};
INLINE vf elems(const uint8_t *row, int i, const bool HALF) {
    return HALF ? vf_halves((const uint16_t *)(const void *)row + i)
                : vf_load((const float *)(const void *)row + i);
}
INLINE void ask(const struct kv_rows *r, int i, int n) {
    for (size_t j = 0; j < (size_t)n * r->ahead_step; j += 64)
        _mm_prefetch((const char *)r->ahead + (size_t)i * r->ahead_step + j, _MM_HINT_T1);
}
static struct kv_rows rows_of(const struct cpu_attend_arg *a, enum kv_type type, float *copy,
                              const uint8_t *pool, int page, int next, int head, int n, int lo, int hi,
                              bool half) {
    size_t row = kv_row_bytes(type, n);
    const uint8_t *ahead = a->listed ? pool : page_at(a, pool, a->pages[next], head, row);
    if (half) return (struct kv_rows){page_at(a, pool, a->pages[page], head, row), ahead, row, row};
    load_page(a, type, copy, pool, page, head, n, lo, hi);
    return (struct kv_rows){(const uint8_t *)copy, ahead, (size_t)n * sizeof(float), a->listed ? 0 : row};
}

/* s[h][i] = scale q[h] . k[i], NH heads, four positions at a time from lo rounded down; the caller masks what lies
 * outside. */
INLINE void page_scores(const float *q, const struct kv_rows *k, int n, int lo, int hi, float scale, float *s,
                        bool first, const int NH, const bool HALF) {
    for (int i = lo & ~3; i < hi; i += 4) {
        const uint8_t *r[4];
        vf acc[4][4];
        if (first) ask(k, i, 4);
        _Pragma("GCC unroll 4") for (int p = 0; p < 4; p++) r[p] = k->at + (size_t)(i + p) * k->step;
        _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++)
            _Pragma("GCC unroll 4") for (int p = 0; p < 4; p++) acc[h][p] = vf_set(0);
        int j = 0;
        for (; j + VL <= n; j += VL) {
            vf x[4];
            _Pragma("GCC unroll 4") for (int p = 0; p < 4; p++) x[p] = elems(r[p], j, HALF);
            _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) {
                vf y = vf_load(q + h * n + j);
                _Pragma("GCC unroll 4") for (int p = 0; p < 4; p++) acc[h][p] = vf_fma(y, x[p], acc[h][p]);
            }
        }
        if (!HALF && j < n) _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) {
                vf y = vf_loadn(q + h * n + j, n - j);
                _Pragma("GCC unroll 4") for (int p = 0; p < 4; p++) acc[h][p] =
                    vf_fma(y, vf_loadn((const float *)(const void *)r[p] + j, n - j), acc[h][p]);
            }
        _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++)
            _mm_storeu_ps(s + h * KV_PAGE + i, _mm_mul_ps(vf_sum4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]),
                                                          _mm_set1_ps(scale)));
    }
}
INLINE void all_scores(const float *q, const struct kv_rows *k, int n, int lo, int hi, float scale, float *s,
                       int heads, const bool HALF) {
    enum { MOST = VL == 16 ? 4 : 2 };
    int h = 0;
    for (; h + MOST <= heads; h += MOST)
        page_scores(q + h * n, k, n, lo, hi, scale, s + h * KV_PAGE, h == 0, MOST, HALF);
    if (heads - h == 3) page_scores(q + h * n, k, n, lo, hi, scale, s + h * KV_PAGE, h == 0, 3, HALF);
    if (heads - h == 2) page_scores(q + h * n, k, n, lo, hi, scale, s + h * KV_PAGE, h == 0, 2, HALF);
    if (heads - h == 1) page_scores(q + h * n, k, n, lo, hi, scale, s + h * KV_PAGE, h == 0, 1, HALF);
}

/* Scores s[KV_PAGE] of one head to weights; m and l are its running maximum and sum; returns the factor for what
 * was summed before. */
static float page_weights(float *s, int lo, int hi, float cap, float *m, float *l) {
    vf top = vf_set(*m), sum = vf_set(0);
    for (int i = 0; cap > 0 && i < KV_PAGE; i += VL) vf_store(s + i, soft_cap(vf_load(s + i), cap));
    for (int i = 0; i < lo; i++) s[i] = -INFINITY;
    for (int i = hi; i < KV_PAGE; i++) s[i] = -INFINITY;
    for (int i = 0; i < KV_PAGE; i += VL) top = vf_max(vf_load(s + i), top);
    float m1 = vf_top(top), keep[VL];
    for (int i = 0; i < KV_PAGE; i += VL) {
        vf p = vf_exp(vf_sub(vf_load(s + i), vf_set(m1)));
        vf_store(s + i, p);
        sum = vf_add(sum, p);
    }
    vf_store(keep, vf_exp(vf_set(*m - m1)));
    *m = m1;
    *l = *l * keep[0] + vf_sum(sum);
    return keep[0];
}

/* o[h][j .. j + NC vectors] = keep[h] o + sum over i of s[h][i] v[i], for NH heads: the sums stay in registers */
INLINE void page_values(const float *s, const float *keep, const struct kv_rows *v, int hv, int lo, int hi,
                        float *o, int j, bool first, const int NH, const int NC, const bool HALF) {
    vf acc[4][4];
    _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++)
        acc[h][c] = vf_mul(vf_set(keep[h]), vf_load(o + h * hv + j + c * VL));
    for (int i = lo; i < hi; i++) {
        vf x[4];
        if (first) ask(v, i, 1);
        _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++) x[c] =
            elems(v->at + (size_t)i * v->step, j + c * VL, HALF);
        _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) {
            vf p = vf_set(s[h * KV_PAGE + i]);
            _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++) acc[h][c] = vf_fma(p, x[c], acc[h][c]);
        }
    }
    _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++)
        vf_store(o + h * hv + j + c * VL, acc[h][c]);
}
INLINE void all_values(const float *s, const float *keep, const struct kv_rows *v, int hv, int lo, int hi,
                       float *o, int heads, const bool HALF) {
    enum { NC = VL == 16 ? 4 : 2 };
    int j = 0;
    for (; j + NC * VL <= hv; j += NC * VL) {
        int h = 0;
#define VALUES(NH)                                                                                           \
    page_values(s + h * KV_PAGE, keep + h, v, hv, lo, hi, o + h * hv, j, h + j == 0, NH, NC, HALF)
        for (; h + 4 <= heads; h += 4) VALUES(4);
        if (heads - h == 3) VALUES(3);
        if (heads - h == 2) VALUES(2);
        if (heads - h == 1) VALUES(1);
#undef VALUES
    }
    for (; j < hv; j += VL) { /* what is left of an odd head size */
        int left = hv - j < VL ? hv - j : VL;
        for (int h = 0; h < heads; h++) {
            float *oh = o + h * hv + j;
            vf acc = vf_mul(vf_set(keep[h]), vf_loadn(oh, left));
            for (int i = lo; i < hi; i++) {
                const uint8_t *r = v->at + (size_t)i * v->step;
                vf x = HALF ? elems(r, j, true) : vf_loadn((const float *)(const void *)r + j, left);
                acc = vf_fma(vf_set(s[h * KV_PAGE + i]), x, acc);
            }
            vf_storen(oh, acc, left);
        }
    }
}

/* part: out[G][hv], sum and maximum [G] each, of what the row sees on pages page .. end. */
static void attend_row(const struct cpu_attend_arg *a, int kv_head, int pos, int page, int end,
                       const float *q, float *part, float *scratch) {
    const struct op_attend *op = a->op;
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v, G = a->heads;
    bool inside = a->store->v_in_k;
    const enum kv_type tk = a->store->k_type, tv = a->store->v_type;
    const bool plain = !a->listed;
    bool half_k = plain && tk == KV_F16 && hk % VL == 0,
         half_v = inside ? half_k : plain && tv == KV_F16 && hv % VL == 0;
    float *k = scratch, *v = k + KV_PAGE * hk, *s = v + KV_PAGE * hv, *keep = s + KV_PAGE * G;
    float *m = part + G * hv, *l = m + G, scale = cpu_attend_scale(op, pos), *turned = keep + G;
    if (kv_turned(tk)) {
        memcpy(turned, q, sizeof *q * (size_t)(G * hk));
        for (int h = 0; h < G; h++) vec_kv_turn(turned + h * hk, hk, kv_turn_of(a->store, false), 1);
        q = turned;
    }
    int first = a->listed ? 0 : op_attend_first(op, pos);
    for (int h = 0; h < G; h++) m[h] = never, l[h] = 0;
    memset(part, 0, sizeof(float) * (size_t)(G * hv));
    if (page < first / KV_PAGE) page = first / KV_PAGE;
    if (end > pos / KV_PAGE + 1) end = pos / KV_PAGE + 1;
    for (; page < end; page++) {
        int lo = first > page * KV_PAGE ? first - page * KV_PAGE : 0;
        int hi = pos - page * KV_PAGE + 1 < KV_PAGE ? pos - page * KV_PAGE + 1 : KV_PAGE;
        int next = page + 1 < end ? page + 1 : page;
        struct kv_rows rk = rows_of(a, tk, k, a->k_pool, page, next, kv_head, hk, lo, hi, half_k);
        if (half_k)
            all_scores(q, &rk, hk, lo, hi, scale, s, G, true);
        else
            all_scores(q, &rk, hk, lo, hi, scale, s, G, false);
        for (int h = 0; h < G; h++)
            keep[h] = page_weights(s + h * KV_PAGE, lo, hi, op->softcap, &m[h], &l[h]);
        struct kv_rows rv =
            inside ? rk : rows_of(a, tv, v, a->v_pool, page, next, kv_head, hv, lo, hi, half_v);
        if (half_v)
            all_values(s, keep, &rv, hv, lo, hi, part, G, true);
        else
            all_values(s, keep, &rv, hv, lo, hi, part, G, false);
    }
}

/* out[G][hv] from n parts in order, over their sum. */
static void attend_merge(const struct cpu_attend_arg *a, int kv_head, int n, const float *part, float *out) {
    const struct op_attend *op = a->op;
    int hv = a->store->head_dim_v, G = a->heads, step = G * (hv + 2);
    for (int h = 0; h < G; h++) {
        const float *m = part + G * hv + h, *l = m + G;
        float top = never, sum = 0, e[VL];
        for (int i = 0; i < n; i++) top = m[i * step] > top ? m[i * step] : top;
        if (op->sinks) { /* one more logit, without a value */
            float sink = op->sinks[kv_head * G + h];
            top = sink > top ? sink : top;
            vf_store(e, vf_exp(vf_set(sink - top)));
            sum = e[0];
        }
        memset(out + h * hv, 0, sizeof *out * (size_t)hv);
        for (int i = 0; i < n; i++) {
            vf f = vf_exp(vf_set(m[i * step] - top));
            vf_store(e, f);
            sum += l[i * step] * e[0];
            for (int j = 0; j < hv; j += VL) {
                int left = hv - j < VL ? hv - j : VL;
                vf y = vf_loadn(out + h * hv + j, left);
                vf_storen(out + h * hv + j, vf_fma(vf_loadn(part + i * step + h * hv + j, left), f, y), left);
            }
        }
        for (int j = 0; j < hv; j++) out[h * hv + j] *= 1 / sum;
        if (kv_turned(a->store->v_type)) vec_kv_turn(out + h * hv, hv, kv_turn_of(a->store, true), 1);
    }
}

/* ---- prompt: R query rows side by side (tokens x heads of one kv head), lane = row ----
 * s[i] of a page's position i and out[d] are vectors over the rows, so maximum, sum and mask never cross lanes. */

/* c[i][R] (+)= sum over j of a[i * ai + j * aj] * b[j][R], i < n, j < k: four or eight i at a time */
enum { TI = VL == 16 ? 8 : 4 };
INLINE void lanes_tile(const float *a, size_t ai, size_t aj, int k, const float *b, float *c, const int ni,
                       bool add) {
    for (int r = 0; r < R; r += 2 * VL) {
        vf acc[TI][2];
        _Pragma("GCC unroll 8") for (int i = 0; i < ni; i++) {
            acc[i][0] = add ? vf_load(c + i * R + r) : vf_set(0);
            acc[i][1] = add ? vf_load(c + i * R + r + VL) : vf_set(0);
        }
        for (int j = 0; j < k; j++) {
            vf b0 = vf_load(b + (size_t)j * R + r), b1 = vf_load(b + (size_t)j * R + r + VL);
            _Pragma("GCC unroll 8") for (int i = 0; i < ni; i++) {
                vf w = vf_set(a[(size_t)i * ai + (size_t)j * aj]);
                acc[i][0] = vf_fma(w, b0, acc[i][0]);
                acc[i][1] = vf_fma(w, b1, acc[i][1]);
            }
        }
        _Pragma("GCC unroll 8") for (int i = 0; i < ni; i++) {
            vf_store(c + i * R + r, acc[i][0]);
            vf_store(c + i * R + r + VL, acc[i][1]);
        }
    }
}
static void lanes_matmul(const float *a, size_t ai, size_t aj, int n, int k, const float *b, float *c,
                         bool add) {
    int i = 0;
    for (; i + TI <= n; i += TI) lanes_tile(a + (size_t)i * ai, ai, aj, k, b, c + (size_t)i * R, TI, add);
    for (; i < n; i++) lanes_tile(a + (size_t)i * ai, ai, aj, k, b, c + (size_t)i * R, 1, add);
}

/* One page's scores s[lo..hi)[R] to weights; m, l and the factor for what was summed before. */
static void page_softmax(float *s, int lo, int hi, int at, const float *first, const float *last, float *m,
                         float *l, float *keep, float cap) {
    for (int r = 0; r < R; r += VL) {
        vf m0 = vf_load(m + r), m1 = m0, sum = vf_set(0), f = vf_load(first + r), e = vf_load(last + r);
        for (int i = lo; i < hi; i++) {
            vf p = vf_set((float)(at + i)), v = vf_load(s + (size_t)i * R + r);
            if (cap > 0) v = soft_cap(v, cap);
            v = vf_pick(vf_less(p, f), vf_set(-INFINITY), vf_pick(vf_less(e, p), vf_set(-INFINITY), v));
            vf_store(s + (size_t)i * R + r, v);
            m1 = vf_max(v, m1);
        }
        for (int i = lo; i < hi; i++) {
            vf p = vf_exp(vf_sub(vf_load(s + (size_t)i * R + r), m1));
            vf_store(s + (size_t)i * R + r, p);
            sum = vf_add(sum, p);
        }
        vf k = vf_exp(vf_sub(m0, m1));
        vf_store(keep + r, k);
        vf_store(m + r, m1);
        vf_store(l + r, vf_fma(vf_load(l + r), k, sum));
    }
}

static void attend_block(const struct cpu_attend_arg *a, int kv_head, const int32_t *pos, int n, int head0,
                         int heads, const float *q, size_t q_stride, float *out, size_t out_stride,
                         float *scratch) {
    const struct op_attend *op = a->op;
    /* of a value */
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v, row = a->store->v_in_k ? hk : hv;
    float *page = scratch, *qt = page + KV_PAGE * (hk > hv ? hk : hv), *s = qt + hk * R, *o = s + KV_PAGE * R;
    float *m = o + hv * R, *l = m + R, *keep = l + R, *first = keep + R, *last = first + R;
    int begin = INT32_MAX, end = 0;
    /* rows side by side: row r = token * heads + head; the rows past the last see nothing but position 0 */
    memset(qt, 0, sizeof(float) * (size_t)hk * R);
    memset(o, 0, sizeof(float) * (size_t)hv * R);
    for (int r = 0; r < R; r++) {
        int t = r / heads < n ? r / heads : n - 1;
        int f = a->listed ? 0 : op_attend_first(op, pos[t]), e = cpu_attend_last(a, pos, t);
        m[r] = never, l[r] = 0, first[r] = (float)f, last[r] = (float)e;
        if (f < begin) begin = f;
        if (e > end) end = e;
        if (r / heads >= n) continue;
        const float scale = cpu_attend_scale(op, pos[t]);
        const float *qr = q + (size_t)t * q_stride + (size_t)(r % heads) * (size_t)hk;
        for (int d = 0; d < hk; d++) qt[(size_t)d * R + r] = qr[d] * scale;
    }
    if (kv_turned(a->store->k_type)) vec_kv_turn(qt, hk, kv_turn_of(a->store, false), R);
    for (int p = begin / KV_PAGE; p <= end / KV_PAGE; p++) {
        int lo = begin > p * KV_PAGE ? begin - p * KV_PAGE : 0;
        int hi = end - p * KV_PAGE + 1 < KV_PAGE ? end - p * KV_PAGE + 1 : KV_PAGE;
        load_page(a, a->store->k_type, page, a->k_pool, p, kv_head, hk, lo, hi);
        lanes_matmul(page + (size_t)lo * (size_t)hk, (size_t)hk, 1, hi - lo, hk, qt, s + (size_t)lo * R,
                     false);
        page_softmax(s, lo, hi, p * KV_PAGE, first, last, m, l, keep, op->softcap);
        if (!a->store->v_in_k) load_page(a, a->store->v_type, page, a->v_pool, p, kv_head, hv, lo, hi);
        for (int d = 0; d < hv; d++)
            for (int r = 0; r < R; r += VL)
                vf_store(o + (size_t)d * R + r, vf_mul(vf_load(o + (size_t)d * R + r), vf_load(keep + r)));
        lanes_matmul(page + (size_t)lo * (size_t)row, 1, (size_t)row, hv, hi - lo, s + (size_t)lo * R, o,
                     true);
    }
    if (kv_turned(a->store->v_type)) vec_kv_turn(o, hv, kv_turn_of(a->store, true), R);
    for (int r = 0; r < n * heads; r++) {
        float *y = out + (size_t)(r / heads) * out_stride + (size_t)(r % heads) * (size_t)hv, f = 1 / l[r];
        if (op->sinks) {
            float sink = op->sinks[head0 + r % heads], m1 = sink > m[r] ? sink : m[r], e[2][16];
            vf_store(e[0], vf_exp(vf_set(m[r] - m1)));
            vf_store(e[1], vf_exp(vf_set(sink - m1)));
            f = e[0][0] / (l[r] * e[0][0] + e[1][0]);
        }
        for (int d = 0; d < hv; d++) y[d] = o[(size_t)d * R + r] * f;
    }
}

/* ---- without a store: R query rows of one head side by side, keys and values where they lie ---- */

/* Scores of row p of the step for the query rows from t on, with what their distance adds. */
static void add_bias(const struct cpu_rows_arg *a, int t, int p, float *s) {
    const int n = a->op->n_bias, d = t - p;
    const float *bias = a->bias + n;
    if (d >= -n && d + R - 1 <= n)
        for (int r = 0; r < R; r++) s[r] += bias[d + r];
    else
        for (int r = 0; r < R; r++) s[r] += bias[d + r < -n ? -n : d + r > n ? n : d + r];
}

/* Keys and values p .. p + n of the step, n <= KV_PAGE. */
static void rows_page(const struct cpu_rows_arg *a, int t, int p, int n, const float *qt, float *s, float *o,
                      float *m, float *l, float *keep, const float *first, const float *last) {
    lanes_matmul(a->k + (size_t)p * a->k_stride, a->k_stride, 1, n, a->dk, qt, s, false);
    for (int i = 0; a->bias && i < n; i++) add_bias(a, t, p + i, s + (size_t)i * R);
    page_softmax(s, 0, n, p, first, last, m, l, keep, a->op->softcap);
    for (int d = 0; d < a->dv; d++)
        for (int r = 0; r < R; r += VL)
            vf_store(o + (size_t)d * R + r, vf_mul(vf_load(o + (size_t)d * R + r), vf_load(keep + r)));
    lanes_matmul(a->v + (size_t)p * a->v_stride, 1, a->v_stride, a->dv, n, s, o, true);
}

static void attend_rows(const struct cpu_rows_arg *a, int t, int n, const float *q, size_t q_stride,
                        float *out, size_t out_stride, float *scratch) {
    float *qt = scratch, *s = qt + a->dk * R, *o = s + KV_PAGE * R, *m = o + a->dv * R, *l = m + R,
          *keep = l + R, *first = keep + R, *last = first + R;
    const int near = a->op->window ? a->op->window / 2 : INT32_MAX / 2; /* rows away */
    memset(qt, 0, sizeof(float) * (size_t)a->dk * R);
    memset(o, 0, sizeof(float) * (size_t)a->dv * R);
    for (int r = 0; r < R; r++) {
        m[r] = never, l[r] = 0, first[r] = (float)(t + r - near), last[r] = (float)(t + r + near);
        for (int d = 0; r < n && d < a->dk; d++)
            qt[(size_t)d * R + r] = q[(size_t)r * q_stride + (size_t)d] * a->op->scale;
    }
    for (int p = 0, end; p < a->n_row; p = end) { /* runs of rows that have the slot */
        for (end = p; end < a->n_row && (!a->slot || a->slot[end] == a->slot[t]); end++) {
        }
        for (int k = p; k < end; k += KV_PAGE)
            if (k + KV_PAGE > t - near && k <= t + n - 1 + near)
                rows_page(a, t, k, end - k < KV_PAGE ? end - k : KV_PAGE, qt, s, o, m, l, keep, first, last);
        while (end < a->n_row && a->slot[end] != a->slot[t]) end++;
    }
    for (int r = 0; r < n; r++) {
        float *y = out + (size_t)r * out_stride, f = 1 / l[r], e[2][16];
        if (a->sink) { /* one more logit, without a value */
            const float m1 = *a->sink > m[r] ? *a->sink : m[r];
            vf_store(e[0], vf_exp(vf_set(m[r] - m1)));
            vf_store(e[1], vf_exp(vf_set(*a->sink - m1)));
            f = e[0][0] / (l[r] * e[0][0] + e[1][0]);
        }
        for (int d = 0; d < a->dv; d++) y[d] = o[(size_t)d * R + r] * f;
    }
}

/* Attention over pages, included once per instruction set. Softmax runs page by page with a running maximum m
 * and sum l (Milakov & Gimelshein 2018; Dao et al. 2022); pages have absolute places, so a row's bits depend
 * on its own position alone. */

enum { R = CPU_ATTEND_LANES, RV = CPU_ATTEND_LANES / VL };
static const float never = -1e30f; /* a maximum below every score */

INLINE vf soft_cap(vf s, float cap) { return vf_mul(vf_set(cap), vf_tanh(vf_mul(s, vf_set(1 / cap)))); }

/* Rows lo .. hi of a page of one head as floats: dst[i][n]. next: the page that comes after it, -1: none; its lines
 * are asked for now, for a page is a new place and the processor's own prefetchers start late there. */
static void load_page(const struct cpu_attend_arg *a, float *dst, const uint8_t *pool, int page, int next,
                      int head, int n, int lo, int hi) {
    size_t row = kv_row_bytes(a->type, n), tile = (size_t)KV_PAGE * row;
    const uint8_t *p = pool + (size_t)page * a->page_stride + (size_t)head * tile;
    const uint8_t *ahead = pool + (size_t)(next < 0 ? page : next) * a->page_stride + (size_t)head * tile;
    for (int i = lo; i < hi; i++) {
        for (size_t j = 0; j < row; j += 64)
            _mm_prefetch((const char *)ahead + (size_t)i * row + j, _MM_HINT_T0);
        vec_kv_load(a->type, dst + (size_t)i * (size_t)n, p + (size_t)i * row, n);
    }
}

/* ---- decode: one row, the query heads of one kv head ---- */

/* s[i] = scale q . k[i], four positions at a time from lo rounded down; the caller masks what lies outside. */
static void page_scores(const float *q, const float *k, int n, int lo, int hi, float scale, float *s) {
    for (int i = lo & ~3; i < hi; i += 4) {
        const float *r0 = k + (size_t)i * (size_t)n, *r1 = r0 + n, *r2 = r1 + n, *r3 = r2 + n;
        vf a0 = vf_set(0), a1 = a0, a2 = a0, a3 = a0;
        int j = 0;
        for (; j + VL <= n; j += VL) {
            vf x = vf_load(q + j);
            a0 = vf_fma(x, vf_load(r0 + j), a0);
            a1 = vf_fma(x, vf_load(r1 + j), a1);
            a2 = vf_fma(x, vf_load(r2 + j), a2);
            a3 = vf_fma(x, vf_load(r3 + j), a3);
        }
        if (j < n) {
            vf x = vf_loadn(q + j, n - j);
            a0 = vf_fma(x, vf_loadn(r0 + j, n - j), a0);
            a1 = vf_fma(x, vf_loadn(r1 + j, n - j), a1);
            a2 = vf_fma(x, vf_loadn(r2 + j, n - j), a2);
            a3 = vf_fma(x, vf_loadn(r3 + j, n - j), a3);
        }
        _mm_storeu_ps(s + i, _mm_mul_ps(vf_sum4(a0, a1, a2, a3), _mm_set1_ps(scale)));
    }
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
INLINE void page_values(const float *s, const float *keep, const float *v, int hv, int lo, int hi, float *o,
                        int j, const int NH, const int NC) {
    vf acc[4][4];
    _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++)
        acc[h][c] = vf_mul(vf_set(keep[h]), vf_load(o + (size_t)h * (size_t)hv + j + c * VL));
    for (int i = lo; i < hi; i++) {
        vf x[4];
        _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++) x[c] =
            vf_load(v + (size_t)i * (size_t)hv + j + c * VL);
        _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) {
            vf p = vf_set(s[h * KV_PAGE + i]);
            _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++) acc[h][c] = vf_fma(p, x[c], acc[h][c]);
        }
    }
    _Pragma("GCC unroll 4") for (int h = 0; h < NH; h++) _Pragma("GCC unroll 4") for (int c = 0; c < NC; c++)
        vf_store(o + (size_t)h * (size_t)hv + j + c * VL, acc[h][c]);
}
static void page_output(const float *s, const float *keep, const float *v, int hv, int lo, int hi, float *o,
                        int heads) {
    enum { NC = VL == 16 ? 4 : 2 };
    int j = 0;
    for (; j + NC * VL <= hv; j += NC * VL) {
        int h = 0;
        for (; h + 4 <= heads; h += 4)
            page_values(s + h * KV_PAGE, keep + h, v, hv, lo, hi, o + (size_t)h * (size_t)hv, j, 4, NC);
        for (; h + 3 <= heads; h += 3)
            page_values(s + h * KV_PAGE, keep + h, v, hv, lo, hi, o + (size_t)h * (size_t)hv, j, 3, NC);
        for (; h < heads; h++)
            page_values(s + h * KV_PAGE, keep + h, v, hv, lo, hi, o + (size_t)h * (size_t)hv, j, 1, NC);
    }
    for (; j < hv; j += VL) { /* what is left of an odd head size */
        int left = hv - j < VL ? hv - j : VL;
        for (int h = 0; h < heads; h++) {
            float *oh = o + (size_t)h * (size_t)hv + j;
            vf acc = vf_mul(vf_set(keep[h]), vf_loadn(oh, left));
            for (int i = lo; i < hi; i++)
                acc = vf_fma(vf_set(s[h * KV_PAGE + i]), vf_loadn(v + (size_t)i * (size_t)hv + j, left), acc);
            vf_storen(oh, acc, left);
        }
    }
}

static void attend_row(const struct cpu_attend_arg *a, int kv_head, int pos, const float *q, float *out,
                       float *scratch) {
    const struct op_attend *op = a->op;
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v, G = op->n_head / a->store->n_kv_head;
    float *k = scratch, *v = k + KV_PAGE * hk, *s = v + KV_PAGE * hv, *m = s + KV_PAGE * G, *l = m + G,
          *keep = l + G;
    int first = op->window && pos - op->window + 1 > 0 ? pos - op->window + 1 : 0;
    for (int h = 0; h < G; h++) m[h] = never, l[h] = 0;
    memset(out, 0, sizeof(float) * (size_t)G * (size_t)hv);
    for (int page = first / KV_PAGE; page <= pos / KV_PAGE; page++) {
        int lo = first > page * KV_PAGE ? first - page * KV_PAGE : 0;
        int hi = pos - page * KV_PAGE + 1 < KV_PAGE ? pos - page * KV_PAGE + 1 : KV_PAGE;
        load_page(a, k, a->k_pool, a->pages[page], page < pos / KV_PAGE ? a->pages[page + 1] : -1, kv_head,
                  hk, lo, hi);
        load_page(a, v, a->v_pool, a->pages[page], page < pos / KV_PAGE ? a->pages[page + 1] : -1, kv_head,
                  hv, lo, hi);
        for (int h = 0; h < G; h++) {
            page_scores(q + (size_t)h * (size_t)hk, k, hk, lo, hi, op->scale, s + h * KV_PAGE);
            keep[h] = page_weights(s + h * KV_PAGE, lo, hi, op->softcap, &m[h], &l[h]);
        }
        page_output(s, keep, v, hv, lo, hi, out, G);
    }
    for (int h = 0; h < G; h++) {
        float *o = out + (size_t)h * (size_t)hv, f = 1 / l[h];
        if (op->sinks) { /* one more logit, without a value */
            float sink = op->sinks[kv_head * G + h], m1 = sink > m[h] ? sink : m[h], e[2][VL];
            vf_store(e[0], vf_exp(vf_set(m[h] - m1)));
            vf_store(e[1], vf_exp(vf_set(sink - m1)));
            f = e[0][0] / (l[h] * e[0][0] + e[1][0]);
        }
        for (int j = 0; j < hv; j++) o[j] *= f;
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
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v;
    float *page = scratch, *qt = page + KV_PAGE * (hk > hv ? hk : hv), *s = qt + hk * R, *o = s + KV_PAGE * R;
    float *m = o + hv * R, *l = m + R, *keep = l + R, *first = keep + R, *last = first + R;
    int begin = INT32_MAX, end = 0;
    /* rows side by side: row r = token * heads + head; the rows past the last see nothing but position 0 */
    memset(qt, 0, sizeof(float) * (size_t)hk * R);
    memset(o, 0, sizeof(float) * (size_t)hv * R);
    for (int r = 0; r < R; r++) {
        int t = r / heads < n ? r / heads : n - 1;
        int f = op->window && pos[t] - op->window + 1 > 0 ? pos[t] - op->window + 1 : 0;
        m[r] = never, l[r] = 0, first[r] = (float)f, last[r] = (float)pos[t];
        if (f < begin) begin = f;
        if (pos[t] > end) end = pos[t];
        if (r / heads >= n) continue;
        const float *qr = q + (size_t)t * q_stride + (size_t)(r % heads) * (size_t)hk;
        for (int d = 0; d < hk; d++) qt[(size_t)d * R + r] = qr[d] * op->scale;
    }
    for (int p = begin / KV_PAGE; p <= end / KV_PAGE; p++) {
        int lo = begin > p * KV_PAGE ? begin - p * KV_PAGE : 0;
        int hi = end - p * KV_PAGE + 1 < KV_PAGE ? end - p * KV_PAGE + 1 : KV_PAGE;
        load_page(a, page, a->k_pool, a->pages[p], p < end / KV_PAGE ? a->pages[p + 1] : -1, kv_head, hk, lo,
                  hi);
        lanes_matmul(page + (size_t)lo * (size_t)hk, (size_t)hk, 1, hi - lo, hk, qt, s + (size_t)lo * R,
                     false);
        page_softmax(s, lo, hi, p * KV_PAGE, first, last, m, l, keep, op->softcap);
        load_page(a, page, a->v_pool, a->pages[p], p < end / KV_PAGE ? a->pages[p + 1] : -1, kv_head, hv, lo,
                  hi);
        for (int d = 0; d < hv; d++)
            for (int r = 0; r < R; r += VL)
                vf_store(o + (size_t)d * R + r, vf_mul(vf_load(o + (size_t)d * R + r), vf_load(keep + r)));
        lanes_matmul(page + (size_t)lo * (size_t)hv, 1, (size_t)hv, hv, hi - lo, s + (size_t)lo * R, o, true);
    }
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

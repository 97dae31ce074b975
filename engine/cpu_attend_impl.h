/* Attention over pages, included once per instruction set. Softmax runs page by page with a running maximum m
 * and sum l (Milakov & Gimelshein 2018; Dao et al. 2022); pages have absolute places, so a row's bits depend
 * on its own position alone. */

enum { R = CPU_ATTEND_LANES, RV = CPU_ATTEND_LANES / VL };
static const float never = -1e30f; /* a maximum below every score */

INLINE vf soft_cap(vf s, float cap) { return vf_mul(vf_set(cap), vf_tanh(vf_mul(s, vf_set(1 / cap)))); }

/* Rows lo .. hi of a page of one head as floats: dst[i][n] */
static void load_page(enum kv_type type, float *dst, const uint8_t *pool, const struct kv_store *st, int page,
                      int head, int n, int lo, int hi) {
    size_t row = kv_row_bytes(type, n);
    const uint8_t *p = pool + ((size_t)page * (size_t)st->n_kv_head + (size_t)head) * KV_PAGE * row;
    for (int i = lo; i < hi; i++) vec_kv_load(type, dst + (size_t)i * (size_t)n, p + (size_t)i * row, n);
}

/* ---- decode: one row, the query heads of one kv head ---- */

static void page_scores(const float *q, const float *k, int n, int lo, int hi, float scale, float *s) {
    for (int i = lo; i < hi; i++) {
        const float *kr = k + (size_t)i * (size_t)n;
        vf a = vf_set(0), b = a;
        int j = 0;
        for (; j + 2 * VL <= n; j += 2 * VL) {
            a = vf_fma(vf_load(q + j), vf_load(kr + j), a);
            b = vf_fma(vf_load(q + j + VL), vf_load(kr + j + VL), b);
        }
        for (; j < n; j += VL) {
            int left = n - j < VL ? n - j : VL;
            a = vf_fma(vf_loadn(q + j, left), vf_loadn(kr + j, left), a);
        }
        s[i] = vf_sum(vf_add(a, b)) * scale;
    }
}

static void attend_row(const struct cpu_attend_arg *a, int kv_head, int pos, const float *q, float *out,
                       float *scratch) {
    const struct op_attend *op = a->op;
    int hk = a->store->head_dim_k, hv = a->store->head_dim_v, G = op->n_head / a->store->n_kv_head;
    float *k = scratch, *v = k + KV_PAGE * hk, *s = v + KV_PAGE * hv, *m = s + KV_PAGE, *l = m + G;
    int first = op->window && pos - op->window + 1 > 0 ? pos - op->window + 1 : 0;
    for (int h = 0; h < G; h++) m[h] = never, l[h] = 0;
    memset(out, 0, sizeof(float) * (size_t)G * (size_t)hv);
    for (int page = first / KV_PAGE; page <= pos / KV_PAGE; page++) {
        int lo = first > page * KV_PAGE ? first - page * KV_PAGE : 0;
        int hi = pos - page * KV_PAGE + 1 < KV_PAGE ? pos - page * KV_PAGE + 1 : KV_PAGE;
        load_page(a->type, k, a->k_pool, a->store, a->pages[page], kv_head, hk, lo, hi);
        load_page(a->type, v, a->v_pool, a->store, a->pages[page], kv_head, hv, lo, hi);
        for (int h = 0; h < G; h++) {
            float *o = out + (size_t)h * (size_t)hv;
            for (int i = 0; i < KV_PAGE; i++) s[i] = -INFINITY;
            page_scores(q + (size_t)h * (size_t)hk, k, hk, lo, hi, op->scale, s);
            vf top = vf_set(m[h]);
            for (int i = 0; i < KV_PAGE; i += VL) {
                if (op->softcap > 0) {
                    vf c = soft_cap(vf_load(s + i), op->softcap);
                    for (int j = 0; j < VL; j++)
                        if (i + j < lo || i + j >= hi) ((float *)&c)[j] = -INFINITY;
                    vf_store(s + i, c);
                }
                top = vf_max(vf_load(s + i), top);
            }
            float m1 = vf_top(top);
            vf sum = vf_set(0), keep = vf_exp(vf_set(m[h] - m1));
            for (int i = 0; i < KV_PAGE; i += VL) {
                vf p = vf_exp(vf_sub(vf_load(s + i), vf_set(m1)));
                vf_store(s + i, p);
                sum = vf_add(sum, p);
            }
            float kept;
            vf_storen(&kept, keep, 1);
            m[h] = m1;
            l[h] = l[h] * kept + vf_sum(sum);
            for (int j = 0; j < hv; j += VL) {
                int left = hv - j < VL ? hv - j : VL;
                vf b = vf_mul(vf_loadn(o + j, left), keep);
                for (int i = lo; i < hi; i++)
                    b = vf_fma(vf_set(s[i]), vf_loadn(v + (size_t)i * (size_t)hv + j, left), b);
                vf_storen(o + j, b, left);
            }
        }
    }
    for (int h = 0; h < G; h++) {
        float *o = out + (size_t)h * (size_t)hv, f = 1 / l[h];
        if (op->sinks) { /* one more logit, without a value */
            float sink = op->sinks[kv_head * G + h], m1 = sink > m[h] ? sink : m[h], e[2][16];
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
        load_page(a->type, page, a->k_pool, a->store, a->pages[p], kv_head, hk, lo, hi);
        lanes_matmul(page + (size_t)lo * (size_t)hk, (size_t)hk, 1, hi - lo, hk, qt, s + (size_t)lo * R,
                     false);
        page_softmax(s, lo, hi, p * KV_PAGE, first, last, m, l, keep, op->softcap);
        load_page(a->type, page, a->v_pool, a->store, a->pages[p], kv_head, hv, lo, hi);
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

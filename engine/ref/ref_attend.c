/* Of the reference backend: keys and values in their pools, attention, and which positions it looks at. */
#include "ref/ref_impl.h"
#include "seam/choose.h"
#include "seam/kv_low.h"

#include <math.h>
#include <stdlib.h>

/* ---- pools --------------------------------------------------------------------------------------- */

size_t ref_kv_offset(const struct kv_store *s, size_t row_bytes, int page, int head, int i) {
    size_t row = ((size_t)page * (size_t)s->n_kv_head + (size_t)head) * (size_t)kv_page_rows(s) + (size_t)i;
    return row * row_bytes;
}

void ref_kv_store_row(enum kv_type type, void *dst, const float *x, int n, int turn) {
    float turned[1024];
    if (type == KV_F32) memcpy(dst, x, (size_t)n * 4);
    if (kv_turned(type)) {
        memcpy(turned, x, (size_t)n * sizeof *x);
        kv_turn(turned, n, turn, 1);
        kv_low_encode(type, dst, turned, n);
    }
    if (type == KV_F16) quant_info(QUANT_F16)->encode(dst, x, (size_t)n, NULL);
    if (type == KV_Q8_0) {
        float block[32];
        for (int i = 0; i < n; i += 32) {
            for (int j = 0; j < 32; j++) block[j] = i + j < n ? x[i + j] : 0;
            quant_info(QUANT_Q8_0)->encode((struct block_Q8_0 *)dst + i / 32, block, 32, NULL);
        }
    }
}

void ref_kv_load_row(enum kv_type type, float *y, const void *src, int n, int turn) {
    if (type == KV_F32) memcpy(y, src, (size_t)n * 4);
    if (kv_turned(type)) {
        kv_low_decode(type, y, src, n);
        kv_turn(y, n, turn, 1);
    }
    if (type == KV_F16) quant_info(QUANT_F16)->decode(y, src, (size_t)n);
    if (type == KV_Q8_0) {
        float block[32];
        for (int i = 0; i < n; i += 32) {
            quant_info(QUANT_Q8_0)->decode(block, (const struct block_Q8_0 *)src + i / 32, 32);
            for (int j = 0; j < 32 && i + j < n; j++) y[i + j] = block[j];
        }
    }
}

static int page_of(const struct ref *r, const struct kv_store *s, int slot, int pos) {
    return r->step.pages[s->group][slot * r->c.kv_group[s->group].max_pages + pos / KV_PAGE];
}

void ref_kv_put(struct ref *r, const struct op_kv_put *o) {
    const struct kv_store *s = &r->c.store[o->store];
    for (int t = 0; t < r->step.n_row; t++) {
        int pos = r->step.pos[t], page = page_of(r, s, r->step.slot[t], pos), i = kv_page_row(s, pos);
        if (!kv_keeps(s, pos)) continue;
        for (int h = 0; h < s->n_kv_head; h++) {
            ref_kv_store_row(s->k_type, r->k[o->store] + ref_kv_offset(s, kv_k_bytes(s), page, h, i),
                             ref_row(r, o->k, t) + h * s->head_dim_k, s->head_dim_k, kv_turn_of(s, false));
            if (s->v_in_k) continue;
            ref_kv_store_row(s->v_type, r->v[o->store] + ref_kv_offset(s, kv_v_bytes(s), page, h, i),
                             ref_row(r, o->v, t) + h * s->head_dim_v, s->head_dim_v, kv_turn_of(s, true));
        }
    }
}

/* A row of the cache as floats: K, or V, of position p of row t's sequence. */
static void load_kept(struct ref *r, const struct kv_store *s, int store, bool value, int t, int p, int g) {
    const bool v = value && !s->v_in_k;
    const size_t at = ref_kv_offset(s, v ? kv_v_bytes(s) : kv_k_bytes(s), page_of(r, s, r->step.slot[t], p),
                                    g, kv_page_row(s, p));
    ref_kv_load_row(value ? s->v_type : s->k_type, r->head, (v ? r->v : r->k)[store] + at,
                    value ? s->head_dim_v : s->head_dim_k, kv_turn_of(s, value));
}

/* The list of positions that key head g looks at; how many, and the i-th of them. */
static const float *chosen_of(struct ref *r, const struct op_attend *o, int t, int g) {
    return ref_row(r, o->chosen, t) + (o->by.by_head ? g * choice_room(&o->by) : 0);
}
static int seen(struct ref *r, const struct op_attend *o, int t, int g) {
    int n = 0;
    if (!o->by.n_top || o->entries) return step_last(&r->step, o, t) - op_attend_first(o, r->step.pos[t]) + 1;
    while (n < choice_room(&o->by) && chosen_of(r, o, t, g)[n] >= 0) n++;
    return n;
}
static int seen_at(struct ref *r, const struct op_attend *o, int t, int g, int i) {
    return o->by.n_top && !o->entries ? (int)chosen_of(r, o, t, g)[i]
                                      : op_attend_first(o, r->step.pos[t]) + i;
}

/* The i-th key, or value, of those that key head g looks at: of n positions, then of entries. */
static void load_seen(struct ref *r, const struct op_attend *o, bool value, int t, int g, int i, int n) {
    if (i < n) {
        load_kept(r, &r->c.store[o->store], o->store, value, t, seen_at(r, o, t, g, i), g);
        return;
    }
    const int run = i - n, p = o->by.n_top ? (int)chosen_of(r, o, t, g)[run] : (run + 1) * o->by.block - 1;
    load_kept(r, &r->c.store[o->entries - 1], o->entries - 1, value, t, p, g);
}

/* One query head of one row: scores, softmax, weighted sum. */
static void attend_head(struct ref *r, const struct op_attend *o, int t, int h) {
    const struct kv_store *s = &r->c.store[o->store];
    const int g = h / (o->n_head / s->n_kv_head), pos = r->step.pos[t], near = seen(r, o, t, g),
              n = near + (o->entries ? choice_count(&o->by, pos) : 0);
    const float *q = ref_row(r, o->q, t) + h * s->head_dim_k;
    float *out = ref_row(r, o->out, t) + h * s->head_dim_v;
    double top = o->sinks ? (double)o->sinks[h] : -INFINITY, sum = 0, scale = (double)o->scale;
    if (o->temp_beta != 0) scale *= 1 + (double)o->temp_beta * log(1 + (pos + o->temp_offset) / o->temp_len);
    for (int k = 0; k < n; k++) {
        load_seen(r, o, false, t, g, k, near);
        double a = 0;
        for (int i = 0; i < s->head_dim_k; i++) a += (double)q[i] * (double)r->head[i];
        a *= scale;
        if (o->softcap > 0) a = (double)o->softcap * tanh(a / (double)o->softcap);
        r->score[k] = a;
        top = fmax(top, a);
    }
    for (int k = 0; k < n; k++) sum += r->score[k] = exp(r->score[k] - top);
    if (o->sinks) sum += exp((double)o->sinks[h] - top);
    double acc[1024] = {0}; /* head sizes are checked to be at most 1024 when a model is bound */
    for (int k = 0; k < n; k++) {
        load_seen(r, o, true, t, g, k, near);
        for (int i = 0; i < s->head_dim_v; i++) acc[i] += r->score[k] * (double)r->head[i];
    }
    for (int i = 0; i < s->head_dim_v; i++) out[i] = (float)(acc[i] / sum);
}

static double dot(const float *x, const float *y, int n) {
    double a = 0;
    for (int i = 0; i < n; i++) a += (double)x[i] * (double)y[i];
    return a;
}
/* sum_h w[h] max(0, q[h] . key), or q[list] . key */
static double index_score(const struct op_index *o, int list, const float *q, const float *w,
                          const float *key, int n) {
    double sum = 0;
    if (o->by.by_head) return dot(q + list * n, key, n);
    for (int h = 0; h < o->n_head; h++) {
        const double a = dot(q + h * n, key, n);
        if (!(a <= 0)) sum += (w ? (double)w[h] : 1) * a;
    }
    return sum;
}
void ref_index(struct ref *r, const struct op_index *o) {
    const struct kv_store *s = &r->c.store[o->store];
    const int room = choice_room(&o->by);
    for (int t = 0; t < r->step.n_row; t++)
        for (int l = 0; l < op_index_lists(o); l++) {
            const float *w = o->w.buf >= 0 ? ref_row(r, o->w, t) : NULL;
            for (int p = kv_every(s) - 1; p <= r->step.pos[t]; p += kv_every(s)) {
                load_kept(r, s, o->store, false, t, p, 0);
                r->index[p] = (float)index_score(o, l, ref_row(r, o->q, t), w, r->head, s->head_dim_k);
            }
            choose_positions(&o->by, r->index, r->step.pos[t], ref_row(r, o->chosen, t) + l * room);
        }
}

/* Whether row t sees row p of the same step. */
static bool sees_row(const struct ref *r, const struct op_attend *o, int t, int p) {
    if (o->both) return true;
    return r->step.slot[p] == r->step.slot[t] && (!o->window || abs(p - t) <= o->window / 2);
}

/* The same over all rows of the slot in the step, without a store. */
static void attend_rows_head(struct ref *r, const struct op_attend *o, int t, int h) {
    const int dk = o->q.width / o->n_head, dv = o->out.width / o->n_head, g = h / (o->n_head / o->n_kv_head);
    const float *q = ref_row(r, o->q, t) + h * dk;
    double top = o->sinks ? (double)o->sinks[h] : -INFINITY, sum = 0, acc[1024] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int p = o->ask; p < r->step.n_row; p++) {
            if (!sees_row(r, o, t, p)) continue;
            const float *k = ref_row(r, o->k, p) + g * dk, *v = ref_row(r, o->v, p) + g * dv;
            double a = 0;
            for (int i = 0; i < dk; i++) a += (double)q[i] * (double)k[i];
            a *= (double)o->scale;
            if (o->softcap > 0) a = (double)o->softcap * tanh(a / (double)o->softcap);
            const int d = t - p < -o->n_bias ? -o->n_bias : t - p > o->n_bias ? o->n_bias : t - p;
            if (o->bias)
                a += (double)o->bias[(size_t)h * (2 * (size_t)o->n_bias + 1) + (size_t)(o->n_bias + d)];
            if (!pass) top = fmax(top, a);
            const double e = pass ? exp(a - top) : 0;
            sum += e;
            for (int i = 0; pass && i < dv; i++) acc[i] += e * (double)v[i];
        }
    }
    if (o->sinks) sum += exp((double)o->sinks[h] - top);
    for (int i = 0; i < dv; i++) ref_row(r, o->out, t)[h * dv + i] = (float)(acc[i] / sum);
}

void ref_attend(struct ref *r, const struct op_attend *o) {
    const int n = o->ask ? o->ask : r->step.n_row;
    for (int t = 0; t < n; t++)
        for (int h = 0; h < o->n_head; h++) (o->store < 0 ? attend_rows_head : attend_head)(r, o, t, h);
}

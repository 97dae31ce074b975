/* What fits: the values that the options leave open, and settings near those that do not fit. Every candidate is laid
 * out in full, so what is found fits for certain. */
#include "plan/plan.h"

#include <stdio.h>

/* CTX_USEFUL: a shorter context is not proposed. BATCH_EXPERTS: prompt rows of a step of a mixture on a card, each of whose experts then has
 * twice as many. */
enum {
    BATCH_EXPERTS = 4096,
    MAX_SLOTS = 1024,
    CTX_STEP = 256,
    CTX_USEFUL = 2048,
    KV_STEP = 1024,
    MOST_KV = 1 << 30
};

struct search {
    const struct model *m;
    const struct plan_options *options;
    struct plan_settings set;
};

static enum infer_status try_fit(const struct search *s, bool *fits) {
    struct arena scratch = {0};
    struct plan p;
    enum infer_status st = plan_lay_out(&p, &scratch, s->m, s->options, &s->set);
    *fits = st == INFER_OK && p.fits;
    arena_free(&scratch);
    return st;
}

/* The greatest n of least .. most, in steps, with which the settings fit when it is stored at field; least - step when
 * none does. Larger n take more memory. field is one of s->set. */
static enum infer_status greatest(struct search *s, int *field, int least, int most, int step, int *out) {
    int before = *field, low = 0,
        high = most < least ? 0 : (most - least) / step + 1; /* low fit, high + 1 do not */
    enum infer_status st = INFER_OK;
    while (st == INFER_OK && low < high) {
        int mid = low + (high - low + 1) / 2;
        bool fits;
        *field = least + (mid - 1) * step;
        st = try_fit(s, &fits);
        if (fits)
            low = mid;
        else
            high = mid - 1;
    }
    *field = before;
    *out = least + (low - 1) * step;
    return st;
}

/* What the settings come to. */
static enum infer_status share(const struct search *s, const struct plan_rates *r, struct plan_share *out) {
    struct arena scratch = {0};
    struct plan p;
    enum infer_status st = plan_lay_out(&p, &scratch, s->m, s->options, &s->set);
    if (st == INFER_OK) *out = plan_share_of(&p, r);
    arena_free(&scratch);
    return st;
}

/* The last layers that fit, with all that is theirs; or all layers, and the experts of the last ones. */
static enum infer_status search_layers(struct plan *p, struct search *s) {
    const struct model *m = s->m;
    bool fits;
    int n, experts = -1;
    TRY(greatest(s, &s->set.n_device_layer, m->whole ? m->n_layer : 1, m->n_layer, 1, &n));
    if (m->whole && n < m->n_layer) n = 0;
    const bool has_experts = plan_has_experts(m, m->n_layer) && !plan_adapts_experts(s->options);
    if (n < m->n_layer && (!has_experts || s->options->wish.n_cpu_experts < 0)) {
        plan_rates_find(s->options, &p->rates);
        if (has_experts) TRY(greatest(s, &s->set.n_device_experts, 0, m->n_layer - 1, 1, &experts));
        s->set.n_device_layer = n;
        TRY(share(s, &p->rates, &p->layers));
    }
    if (experts >= 0) {
        s->set.n_device_layer = m->n_layer, s->set.n_device_experts = experts;
        TRY(share(s, &p->rates, &p->experts));
        if (!n || p->experts.tok_s >= p->layers.tok_s) return INFER_OK; /* a card is used where it can be */
        s->set.n_device_experts = m->n_layer;
    }
    s->set.n_device_layer = n;
    if (n) return INFER_OK;
    TRY(try_fit(s, &fits));
    if (!fits) s->set.n_device_layer = m->n_layer; /* nowhere: the report is about the card */
    return INFER_OK;
}

/* Rows that nothing is given up for. */
static enum infer_status widen_steps(struct search *s) {
    const int before = s->set.n_batch;
    const bool open = !s->options->batch && !s->options->all_logits && s->options->place.memory.total_bytes;
    bool fits;
    if (!open || s->m->share.group || before >= BATCH_EXPERTS || !plan_has_experts(s->m, s->m->n_layer))
        return INFER_OK;
    s->set.n_batch = BATCH_EXPERTS;
    TRY(try_fit(s, &fits));
    if (!fits) s->set.n_batch = before;
    return INFER_OK;
}

enum infer_status plan_search(struct plan *p, const struct model *m, const struct plan_options *options,
                              struct plan_settings *set) {
    struct search s = {m, options, *set};
    bool fits,
        layers_open = options->place.host && options->wish.n_layer < 0 && options->wish.n_cpu_experts <= 0;
    int n;
    if (options->slots < 0) {
        TRY(greatest(&s, &s.set.n_slot, 1, MAX_SLOTS, 1, &n));
        s.set.n_slot = n > 1 ? n : 1;
    }
    if (options->ctx < 0) {
        TRY(try_fit(&s, &fits));
        if (!fits) {
            TRY(greatest(&s, &s.set.n_ctx, CTX_STEP, s.set.n_ctx - 1, CTX_STEP, &n));
            if (n > 0) s.set.n_ctx = n;
        }
    }
    if (options->kv_tokens < 0) {
        TRY(try_fit(&s, &fits));
        const int64_t all = (int64_t)s.set.n_slot * s.set.n_ctx;
        if (!fits) {
            TRY(greatest(&s, &s.set.n_kv_token, KV_STEP, all < MOST_KV ? (int)all : MOST_KV, KV_STEP, &n));
            s.set.n_kv_token = n > 0 ? n : KV_STEP;
        }
    }
    if (m->n_state &&
        options->place.memory.total_bytes) { /* copies of states first: they are seldom needed */
        TRY(try_fit(&s, &fits));
        s.set.state_host |= !fits;
    }
    if (layers_open) TRY(search_layers(p, &s));
    TRY(widen_steps(&s));
    *set = s.set;
    return INFER_OK;
}

static char *another(struct plan *p) {
    return p->n_nearest < PLAN_NEAREST ? p->nearest[p->n_nearest++] : NULL;
}

/* .ctx N that fits with the other settings as they are, behind the words before. */
static enum infer_status nearest_ctx(struct plan *p, struct search *s, const char *before) {
    int n;
    char *line;
    const int least = s->set.n_ctx > CTX_USEFUL ? CTX_USEFUL : CTX_STEP;
    TRY(greatest(s, &s->set.n_ctx, least, s->set.n_ctx - 1, CTX_STEP, &n));
    if (n >= least && (line = another(p))) snprintf(line, sizeof p->nearest[0], "%s.ctx %d", before, n);
    return INFER_OK;
}

/* When no single change is enough: everything small, and the most positions then. */
static enum infer_status smallest(struct plan *p, struct search *s) {
    char before[48];
    s->set = p->set;
    s->set.n_slot = 1;
    s->set.n_batch = 32;
    if (p->set.kv_type < KV_Q8_0) s->set.kv_type = KV_Q8_0;
    snprintf(before, sizeof before, "%s%s.batch 32 ", p->set.n_slot > 1 ? ".slots 1 " : "",
             p->set.kv_type < KV_Q8_0 ? ".kv_type q8_0 " : "");
    return nearest_ctx(p, s, before);
}

/* field = n is proposed as words, with what decoding comes to then; it keeps its value. */
static enum infer_status propose_share(struct plan *p, struct search *s, const char *words, int *field,
                                       int value, int n) {
    const int before = *field;
    struct plan_share to;
    char *line = another(p);
    if (!line) return INFER_OK;
    if (!(p->rates.host_gb_s > 0)) plan_rates_find(s->options, &p->rates);
    snprintf(line, sizeof p->nearest[0], ".device auto %s %d", words, n);
    *field = value;
    enum infer_status st = share(s, &p->rates, &to);
    *field = before;
    if (st == INFER_OK) p->nearest_tok_s[p->n_nearest - 1] = to.tok_s;
    return st;
}

/* A card: fewer experts on it, fewer of its layers. */
static enum infer_status nearest_share(struct plan *p, struct search *s) {
    struct plan_options other = *s->options;
    int n = 0;
    if (!s->options->place.memory.total_bytes || (p->n_part > 1 && !p->part[0].experts)) return INFER_OK;
    other.place.host = &backend_cpu;
    s->options = &other;
    if (plan_has_experts(s->m, s->m->n_layer) && !plan_adapts_experts(s->options)) {
        TRY(greatest(s, &s->set.n_device_experts, 0, s->m->n_layer - 1, 1, &n));
        if (n >= 0) TRY(propose_share(p, s, ".cpu_experts", &s->set.n_device_experts, n, s->m->n_layer - n));
    }
    s->set.n_device_experts = s->m->n_layer;
    n = 0;
    if (!s->m->whole) TRY(greatest(s, &s->set.n_device_layer, 1, s->m->n_layer - 1, 1, &n));
    return n > 0 ? propose_share(p, s, ".gpu_layers", &s->set.n_device_layer, n, n) : INFER_OK;
}

/* In the order in which somebody would give things up: bits of the cache, sequences, layers on the card, rows of a step, positions. */
enum infer_status plan_nearest(struct plan *p, const struct model *m, const struct plan_options *options) {
    struct search s = {m, options, p->set};
    bool fits = false;
    int n;
    char *line;
    if (p->set.kv_type < KV_Q8_0) {
        s.set.kv_type = KV_Q8_0;
        TRY(try_fit(&s, &fits));
        if (fits && (line = another(p))) snprintf(line, sizeof p->nearest[0], ".kv_type q8_0");
        s.set = p->set;
    }
    if (p->set.n_slot > 1) {
        const int64_t all = (int64_t)p->set.n_slot * p->set.n_ctx;
        TRY(greatest(&s, &s.set.n_kv_token, KV_STEP, all < MOST_KV ? (int)all : MOST_KV, KV_STEP, &n));
        if (n > 0 && (line = another(p))) snprintf(line, sizeof p->nearest[0], ".kv_tokens %d", n);
        TRY(greatest(&s, &s.set.n_slot, 1, p->set.n_slot - 1, 1, &n));
        if (n > 0 && (line = another(p))) snprintf(line, sizeof p->nearest[0], ".slots %d", n);
    }
    TRY(nearest_share(p, &s));
    s = (struct search){m, options, p->set};
    bool smaller = false;
    for (s.set.n_batch /= 2; !smaller && s.set.n_batch >= 32; s.set.n_batch /= 2) {
        TRY(try_fit(&s, &smaller));
        if (smaller && (line = another(p))) snprintf(line, sizeof p->nearest[0], ".batch %d", s.set.n_batch);
    }
    s.set = p->set;
    TRY(nearest_ctx(p, &s, ""));
    if (p->set.kv_type < KV_Q8_0 && !fits) {
        s.set.kv_type = KV_Q8_0;
        TRY(nearest_ctx(p, &s, ".kv_type q8_0 "));
    }
    return p->n_nearest ? INFER_OK : smallest(p, &s);
}

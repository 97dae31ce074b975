#include "seam/router.h"

struct scores {
    float s[ROUTE_EXPERTS_MAX];
    uint32_t key[ROUTE_EXPERTS_MAX]; /* of choice; 0: cannot be chosen, or is */
};

/* The index of the greatest key, the lowest on ties. */
static int first(const uint32_t *key, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (key[i] > key[best]) best = i;
    return best;
}

static float sum_of_parts(float *part) {
    for (int o = ROUTER_PARTS / 2; o; o /= 2)
        for (int i = 0; i < o; i++) part[i] = ROUTER_ADD(part[i], part[i + o]);
    return part[0];
}

static void score(const struct router *r, const float *logits, struct scores *out) {
    int n = r->n_expert;
    float top = -INFINITY, part[ROUTER_PARTS] = {0};
    for (int e = 0; e < n; e++) out->s[e] = router_logit(r, logits[e]);
    if (router_by_logit(r))
        for (int e = 0; e < n; e++) out->key[e] = router_key(out->s[e]);
    if (r->act == ROUTE_SIGMOID)
        for (int e = 0; e < n; e++) out->s[e] = router_sigmoid(out->s[e]);
    if (r->act == ROUTE_ROOT)
        for (int e = 0; e < n; e++) out->s[e] = router_root(out->s[e]);
    if (r->act == ROUTE_SOFTMAX) {
        for (int e = 0; e < n; e++)
            if (out->s[e] > top) top = out->s[e];
        for (int e = 0; e < n; e++) {
            out->s[e] = router_exp(ROUTER_ADD(out->s[e], -top));
            part[e % ROUTER_PARTS] = ROUTER_ADD(part[e % ROUTER_PARTS], out->s[e]);
        }
        float sum = sum_of_parts(part);
        for (int e = 0; e < n; e++) out->s[e] = ROUTER_DIV(out->s[e], sum);
    }
    for (int e = 0; e < n && !router_by_logit(r); e++)
        out->key[e] = router_key(r->bias ? ROUTER_ADD(out->s[e], r->bias[e]) : out->s[e]);
}

/* What router_key made a key of; NaN is -infinity. */
static float value(uint32_t key) { return router_float(key >> 31 ? key & 0x7fffffffu : ~key); }

/* Experts outside of the best groups can no longer be chosen. */
static void limit_groups(const struct router *r, struct scores *s) {
    int size = r->n_expert / r->n_group;
    uint32_t group[ROUTE_GROUPS_MAX];
    bool kept[ROUTE_GROUPS_MAX] = {false};
    for (int g = 0; g < r->n_group; g++) {
        const uint32_t *key = s->key + g * size;
        uint32_t best = 0, next = 0;
        for (int i = 0; i < size; i++) {
            if (key[i] > best)
                next = best, best = key[i];
            else if (key[i] > next)
                next = key[i];
        }
        group[g] = r->group_top2 && size > 1 ? router_key(ROUTER_ADD(value(best), value(next))) : best;
    }
    for (int i = 0; i < r->n_group_used; i++) {
        int g = first(group, r->n_group);
        kept[g] = true;
        group[g] = 0;
    }
    for (int e = 0; e < r->n_expert; e++)
        if (!kept[e / size]) s->key[e] = 0;
}

/* The weight of expert e, the best of those that are left. source: Liu et al. 2023 (arXiv 2310.00811) */
static float near_weight(const struct router *r, const struct scores *s, int e) {
    float sum = 1;
    for (int i = 0; i < r->n_expert; i++)
        if (i != e && s->key[i]) sum = ROUTER_ADD(sum, router_near(r, s->s[e], s->s[i]));
    return ROUTER_DIV(1.f, sum);
}

void router_row(const struct router *r, const float *logits, const int32_t *told, float *choice) {
    struct scores s;
    float *w = choice + r->n_used, sum = 0, top = -INFINITY;
    score(r, logits, &s);
    if (r->n_group > 1) limit_groups(r, &s);
    for (int j = 0; j < r->n_used; j++) {
        const int e = told ? told[j] : first(s.key, r->n_expert);
        s.key[e] = 0;
        choice[j] = (float)e;
        w[j] = r->act == ROUTE_NEAR ? near_weight(r, &s, e) : s.s[e];
        if (w[j] > top) top = w[j];
    }
    if (r->act == ROUTE_CHOSEN) {
        for (int j = 0; j < r->n_used; j++) sum = ROUTER_ADD(sum, w[j] = router_exp(ROUTER_ADD(w[j], -top)));
        for (int j = 0; j < r->n_used; j++) w[j] = ROUTER_DIV(w[j], sum);
        sum = 0;
    }
    for (int j = 0; j < r->n_used; j++) sum = ROUTER_ADD(sum, w[j]);
    float divisor = router_divisor(r, sum);
    for (int j = 0; j < r->n_used; j++)
        w[j] = router_weight(r, w[j], divisor, r->expert_scale ? r->expert_scale[(int)choice[j]] : 1);
}

/* What a token costs where card and host share a model, from bytes and rates alone: the arithmetic by which the plan chooses. */
#include "plan/plan.h"
#include "base/bandwidth.h"
#include "base/host.h"
#include "cuda/plan/links.h"
#include "seam/op_list.h"
#include "seam/weight.h"

#include <math.h>
#include <string.h>

/* From the end of a kernel to the next one's beginning in a graph, as measured (docs/decisions.md); what else a kernel costs beside its
 * bytes, mostly the first pass through its code: with it the rows of measured.def come out best. None on the host. */
static const double hand_over_s = 0.5e-6, first_pass_s = 1.3e-6;

/* Rows of one layer to the host and back, with the launches that no graph makes: an estimate. A card that nobody knows. */
static const double crossing_s = 60e-6, unknown_card_gb_s = 500;

static double host_gb_s(int n_thread) {
    struct memory_probe p;
    if (probe_open(&p, host_threads_pick(n_thread)) != INFER_OK) return 0;
    double gb_s = probe_read(&p, 0.1);
    probe_close(&p);
    return gb_s;
}

void plan_rates_find(const struct plan_options *o, struct plan_rates *out) {
    const bool card = o->place.memory.total_bytes > 0;
    *out = o->rates;
    if (!(out->host_gb_s > 0)) out->host_gb_s = host_gb_s(o->cpu.threads);
    if (out->device_gb_s > 0) return;
    out->device_gb_s = !card ? out->host_gb_s : o->place.device_gb_s;
    out->assumed = !(out->device_gb_s > 0);
    if (out->assumed) out->device_gb_s = unknown_card_gb_s;
}

/* ---- what was measured ----------------------------------------------------------------------------------------- */

const struct plan_measured *plan_measured_table(int *n) {
    enum { HOST, CARD };
    static const struct plan_measured all[] = {
#define MEASURED(where, experts, model, on, type, gb, gb_s, kernels, tok_s)                                  \
    {where == CARD, experts, model, on, QUANT_##type, gb, gb_s, kernels, tok_s},
#include "plan/measured.def"
    };
    *n = (int)(sizeof all / sizeof *all);
    return all;
}

double plan_token_s(double bytes, double gb_s, int kernels, const struct plan_reached *reached) {
    return bytes / (gb_s * 1e9) / (reached ? reached->share : 1) +
           kernels * (hand_over_s + (reached ? first_pass_s : 0));
}

static double bits_of(enum quant_type t) {
    const struct quant_info *q = quant_info(t);
    return 8.0 * q->bytes / q->elems;
}

struct plan_reached plan_reached_by(bool card, bool experts, enum quant_type type) {
    int n;
    const struct plan_measured *m = plan_measured_table(&n);
    struct plan_reached r = {0};
    double nearest = INFINITY;
    for (int i = 0; i < n; i++) { /* the same type is nearer than any other */
        const double far = m[i].type == type ? -1 : fabs(bits_of(m[i].type) - bits_of(type));
        if (m[i].card != card || m[i].experts != experts || far > nearest) continue;
        if (far < nearest) r = (struct plan_reached){.as = &m[i]};
        nearest = far;
        const double beside = m[i].kernels * (hand_over_s + first_pass_s);
        r.share += m[i].gb / m[i].gb_s / (1 / m[i].tok_s - beside);
        r.n++;
    }
    if (!r.n) return experts ? plan_reached_by(card, false, type) : (struct plan_reached){.share = 1};
    r.share = fmin(r.share / r.n, 1);
    return r;
}

int plan_kernels(const struct plan *p, const struct plan_part *part) {
    int n;
    if (strcmp(part->type->name, "cuda") != 0 || !part->config.list[ROW_DECODE]) return 0;
    return links_kernels(&n, &part->config, p->place.sm ? p->place.sm : 90) == INFER_OK ? n : 0;
}

/* ---- of a list --------------------------------------------------------------------------------------------------- */

/* Ways to choose k of n. */
static double ways_of(int n, int k) {
    double ways = 1;
    for (int i = 0; i < k; i++) ways = ways * (n - i) / (i + 1);
    return ways;
}
/* By how many of all choices leave no rank more than `most`, for each of these. */
double plan_busiest(int experts, int used, int n) {
    const int each = (experts + n - 1) / n;
    double mean = 0, below = 0;
    if (used > ROUTE_USED_MAX) infer_bug("%d experts of a row", used);
    for (int most = 0; most <= used; most++) {
        double ways[ROUTE_USED_MAX + 1] = {1}, next[ROUTE_USED_MAX + 1];
        for (int r = 0; r < n; r++) {
            const int own = r * each >= experts ? 0 : r * each + each > experts ? experts - r * each : each;
            for (int i = 0; i <= used; i++) {
                next[i] = 0;
                for (int j = 0; j <= i && j <= most && j <= own; j++)
                    next[i] += ways[i - j] * ways_of(own, j);
            }
            memcpy(ways, next, sizeof ways);
        }
        const double p = ways[used] / ways_of(experts, used);
        mean += most * (p - below);
        below = p;
    }
    return mean;
}

/* What a token reads of a weight of an operation. */
static uint64_t token_bytes(const struct op *o, const struct weight *w) {
    const uint64_t bytes = weight_bytes(w);
    if (o->kind != OP_EXPERTS) return bytes;
    const int all = o->experts.n_all, used = o->experts.n_used;
    const double read = all ? plan_busiest(all, used, (all + w->n_stack - 1) / w->n_stack) : used;
    return (uint64_t)((double)(bytes / (uint64_t)w->n_stack) * read);
}

/* Of a decode list: all, and what a token reads of them. */
static void weights_of(const struct op_list *l, uint64_t *all, uint64_t *token) {
    *all = *token = 0;
    for (int i = 0; i < l->n_op; i++) {
        const struct op_use u = op_uses(&l->op[i]);
        for (int k = 0; u.group && k < u.n_weight; k++)
            *all += weight_bytes(&u.weight[k]), *token += token_bytes(&l->op[i], &u.weight[k]);
    }
}

uint64_t plan_token_bytes(const struct op_list *decode) {
    uint64_t all, token;
    weights_of(decode, &all, &token);
    return token;
}

enum quant_type plan_type_of(const struct op_list *decode, bool *experts) {
    uint64_t of[QUANT_COUNT] = {0};
    int most = 0;
    *experts = false;
    for (int i = 0; i < decode->n_op; i++) {
        const struct op_use u = op_uses(&decode->op[i]);
        *experts |= decode->op[i].kind == OP_EXPERTS;
        for (int k = 0; u.group && k < u.n_weight; k++)
            of[u.weight[k].type] += token_bytes(&decode->op[i], &u.weight[k]);
    }
    for (int t = 1; t < QUANT_COUNT; t++)
        if (of[t] > of[most]) most = t;
    return (enum quant_type)most;
}

struct plan_share plan_share_of(const struct plan *p, const struct plan_rates *r) {
    struct plan_share s = {.there = true};
    double seconds = 0;
    for (int i = 0; i < p->n_part; i++) {
        const struct plan_part *part = &p->part[i];
        uint64_t all, token;
        bool host = p->n_part > 1 ? i == 0 : part->type != p->place.device;
        weights_of(&part->list[ROW_DECODE], &all, &token);
        *(host ? &s.host_bytes : &s.device_bytes) = token;
        if (host) s.host_weights = all, s.n = part->range.end - part->range.first;
        seconds +=
            plan_token_s((double)token, host ? r->host_gb_s : r->device_gb_s, plan_kernels(p, part), NULL);
        if (p->n_part == 1 || i) continue;
        int crossings = 0; /* an operation for each layer, of those that begin with experts */
        for (int k = 0; part->experts && k < part->list[ROW_DECODE].n_op; k++)
            crossings += part->list[ROW_DECODE].op[k].kind == OP_MIX;
        seconds += crossing_s * (part->experts ? crossings : 1);
    }
    s.tok_s = 1 / seconds;
    return s;
}

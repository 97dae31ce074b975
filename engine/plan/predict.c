/* What a token costs where card and host share a model, from bytes and rates alone: the arithmetic by which the plan chooses. */
#include "plan/plan.h"
#include "base/bandwidth.h"
#include "base/host.h"
#include "seam/op_list.h"
#include "seam/weight.h"

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
    if (!(out->host_gb_s > 0)) out->host_gb_s = host_gb_s(o->threads);
    if (out->device_gb_s > 0) return;
    out->device_gb_s = !card ? out->host_gb_s : o->place.device_gb_s;
    out->assumed = !(out->device_gb_s > 0);
    if (out->assumed) out->device_gb_s = unknown_card_gb_s;
}

/* Of a decode list: all, and what a token reads of them. */
static void weights_of(const struct op_list *l, uint64_t *all, uint64_t *token) {
    *all = *token = 0;
    for (int i = 0; i < l->n_op; i++) {
        const struct op_use u = op_uses(&l->op[i]);
        for (int k = 0; u.group && k < u.n_weight; k++) {
            uint64_t bytes = weight_bytes(&u.weight[k]);
            *all += bytes;
            *token += l->op[i].kind == OP_EXPERTS
                          ? bytes / (uint64_t)u.weight[k].n_stack * (uint64_t)l->op[i].experts.n_used
                          : bytes;
        }
    }
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
        seconds += (double)token / ((host ? r->host_gb_s : r->device_gb_s) * 1e9);
        if (p->n_part == 1 || i) continue;
        int crossings = 0; /* an operation for each layer, of those that begin with experts */
        for (int k = 0; part->experts && k < part->list[ROW_DECODE].n_op; k++)
            crossings += part->list[ROW_DECODE].op[k].kind == OP_MIX;
        seconds += crossing_s * (part->experts ? crossings : 1);
    }
    s.tok_s = 1 / seconds;
    return s;
}

/* An engine of several ranks: the shares of the model, a plan for each. */
#include "base/host.h"
#include "engine_impl.h"
#include "model/shard.h"
#include "wire/group.h"

#include <string.h>

/* The threads of one rank. */
static void ranks_threads(struct plan_options *po) {
    const int threads = host_threads_pick(po->cpu.threads) / po->ranks;
    po->cpu.threads = threads ? threads : 1;
}

/* All ranks are planned by the card that has least for its rank. */
static enum infer_status ranks_cards(struct plan_options *po, const struct infer_group *g) {
    struct placement least = po->place;
    if (!po->place.memory.total_bytes) {
        if (po->wish.n_rank_card)
            return err_set(INFER_E_INPUT, ".devices are cards of ranks; no card is used");
        const char *by = g ? group_comm(g)->cards : NULL;
        if (by && strcmp(by, "host"))
            return err_set(INFER_E_INPUT, "ranks that add up by %s are cards; no card is used", by);
        return INFER_OK;
    }
    if (g || po->stage) return INFER_OK; /* a process knows its own; stages have theirs */
    for (int i = 0; i < po->ranks; i++) {
        struct placement p = po->place;
        TRY(device_pick_rank(&po->wish, i, po->ranks, &p));
        if (!i || p.memory.free_bytes / (size_t)p.n_share < least.memory.free_bytes / (size_t)least.n_share)
            least = p;
    }
    po->place = least;
    return INFER_OK;
}

/* Whole experts are a card's where they are asked for: its fused kernels of decode rows know of columns alone. */
static enum experts_by experts_by(const struct plan_options *po) {
    return po->ep ? EXPERTS_WHOLE : po->place.memory.total_bytes ? EXPERTS_CUT : EXPERTS_FIT;
}
static enum infer_status ranks_experts(const struct model *m, const struct plan_options *po) {
    if (!po->ep) return INFER_OK;
    if (po->ranks < 2)
        return err_set(INFER_E_INPUT, ".ep divides experts among ranks: it goes with .ranks N");
    if (!plan_has_experts(m, m->n_layer)) return err_set(INFER_E_INPUT, ".ep: this model has no experts");
    return INFER_OK;
}

/* Rank r has cards r * stages .. in its stages. */
enum infer_status engine_stages_place(struct arena *arena, const struct model *m, struct plan_options *po,
                                      const struct infer_group *g) {
    const int n = model_drafts(m) ? 0 : po->stages, all = n * (po->ranks > 1 ? po->ranks : 1);
    if (n < 2 || !po->place.memory.total_bytes) return INFER_OK;
    if (g) return err_set(INFER_E_UNSUPPORTED, ".stages %d: a process of several has one card, a stage", n);
    struct placement *at = arena_alloc(arena, (size_t)all * sizeof *at);
    if (!at) return err_set(INFER_E_MEMORY, "out of memory for %d stages", n);
    po->place.host = NULL;
    for (int i = 0; i < all; i++) {
        at[i] = po->place;
        TRY(device_pick_rank(&po->wish, i, all, &at[i]));
    }
    po->stage = at;
    return INFER_OK;
}

enum infer_status engine_rank_share(struct model **out, const struct model *m, const struct plan_options *po,
                                    int rank) {
    return model_shard_by(out, m, rank, po->ranks, experts_by(po));
}

enum infer_status engine_ranks_model(struct infer_engine *e, struct plan_options *po) {
    const int n = po->ranks;
    TRY(ranks_experts(e->model->m, po));
    if (n < 2 && po->wish.n_rank_card && po->stages < 2)
        return err_set(INFER_E_INPUT, ".devices names the cards of ranks; .ranks says how many there are");
    if (n < 2) return INFER_OK;
    if (po->tap)
        return err_set(INFER_E_UNSUPPORTED,
                       ".ranks %d: what operations read and write is looked at of one rank", n);
    if (model_drafts(e->model->m)) { /* what drafts is small: one has all of it */
        po->ranks = 0;
        return INFER_OK;
    }
    if (e->group) po->cpu.threads = engine_group_threads(e->group, po->cpu.threads);
    TRY(ranks_cards(po, e->group));
    e->ranks = arena_alloc(&e->arena, (size_t)n * sizeof *e->ranks);
    struct plan *plan = arena_alloc(&e->arena, (size_t)n * sizeof *plan);
    if (!e->ranks || !plan) return err_set(INFER_E_MEMORY, "out of memory for %d ranks", n);
    for (e->n_rank = 0; e->n_rank < n; e->n_rank++) {
        e->ranks[e->n_rank].plan = e->n_rank ? &plan[e->n_rank] : &e->plan;
        TRY(engine_rank_share(&e->ranks[e->n_rank].model, e->model->m, po, e->n_rank));
    }
    if (!e->group) ranks_threads(po);
    const struct model *m = e->ranks[0].model;
    if (m->share.n_attn_whole || m->share.n_ff_whole)
        log_line(
            LOG_WARN,
            "%d ranks: attention or states of %d layers and feed-forward parts of %d cannot be divided so: every rank computes them whole",
            n, m->share.n_attn_whole, m->share.n_ff_whole);
    return INFER_OK;
}

const struct model *engine_plan_model(const struct infer_engine *e) {
    return e->n_rank ? e->ranks[0].model : e->model->m;
}

/* Rank 0's is there: it only learns which card it has. */
static enum infer_status rank_plan(struct infer_engine *e, int rank, const struct plan_options *po) {
    struct plan *p = e->ranks[rank].plan;
    if (!rank) {
        for (int k = 0; k < p->n_part; k++)
            p->part[k].config.card = po->stage ? po->stage[k].card : po->place.card;
        return INFER_OK;
    }
    TRY(plan_lay_out(p, &e->arena, e->ranks[rank].model, po, &e->plan.set));
    const struct plan_part *part = &p->part[p->n_part - 1];
    if (!p->fits && e->plan.fits)
        return err_set(INFER_E_MEMORY, "rank %d does not fit: %.1f GiB wanted, %.1f GiB available", rank,
                       (double)part->total_bytes / (1 << 30), (double)part->limit_bytes / (1 << 30));
    return INFER_OK;
}

enum infer_status engine_ranks_plan(struct infer_engine *e, const struct plan_options *po) {
    for (int i = 0; i < (e->group ? 1 : e->n_rank); i++) {
        struct plan_options own = *po;
        own.adapters = engine_adapters_of(e, i);
        if (po->stage)
            own.stage = po->stage + i * po->stages;
        else if (po->place.memory.total_bytes && !e->group)
            TRY(device_pick_rank(&po->wish, i, e->n_rank, &own.place));
        TRY(rank_plan(e, i, &own));
    }
    e->whole = e->plan.part[e->plan.n_part - 1].config;
    const int n = e->model->m->n_store;
    struct kv_store *store = arena_alloc(&e->arena, ((size_t)n + 1) * sizeof *store);
    if (!store) return err_set(INFER_E_MEMORY, "out of memory for %d stores", n);
    for (int i = 0; i < n; i++) store[i] = kv_store_typed(&e->model->m->store[i], &e->plan.store[i]);
    e->whole.store = store;
    e->whole.state = e->model->m->state;
    return INFER_OK;
}

enum infer_status engine_ranks_share(struct model **out, const struct model *m, struct plan_options *po) {
    *out = NULL;
    TRY(ranks_experts(m, po));
    if (po->ranks < 2 || model_drafts(m)) return INFER_OK;
    ranks_threads(po);
    return engine_rank_share(out, m, po, 0);
}

enum infer_status engine_ranks_read(const struct model *m, const struct plan_options *po,
                                    struct infer_plan_report *r) {
    enum infer_status st = INFER_OK;
    r->n_rank = po->ranks;
    for (int i = 0; st == INFER_OK && i < po->ranks; i++) {
        struct arena scratch = {0};
        struct model *share;
        struct op_list list;
        TRY(engine_rank_share(&share, m, po, i));
        const struct layer_range all = {.end = share->n_layer, .n_ctx = r->size.n_ctx};
        st = forward_emit(&list, &scratch, share, &all, ROW_DECODE, 1, 1);
        const uint64_t bytes = st == INFER_OK ? plan_token_bytes(&list) : 0;
        if (bytes > r->rank_token_bytes) r->rank_token_bytes = bytes;
        arena_free(&scratch);
        model_close(share);
    }
    return st;
}

void engine_ranks_free(struct infer_engine *e) {
    engine_ranks_adapters_free(e);
    for (int i = 0; i < e->n_rank; i++) model_close(e->ranks[i].model);
    if (e->group) group_leave(e->group);
}

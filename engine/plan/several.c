/* A model on several cards: what each of these ways would take of every card, and how fast it would be. All of it is predicted. A rank reads
 * its weights as such models read on one card; between cards go reduces, gathers and rows, by links as links_between.def has them. */
#include "plan/several.h"
#include "model/shard.h"
#include "seam/op_list.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- links ------------------------------------------------------------------------------------------------------- */

enum link_id {
#define LINK(id, name, gb_s, us) id,
#define NCCL(cards, us)
#define HANDOVER(us)
#define LINKED(card, id)
#include "plan/links_between.def"
};
static const struct link {
    const char *name;
    double rate, own; /* bytes a second; seconds of an exchange */
} links[] = {
#define LINK(id, name, gb_s, us) {name, (gb_s)*1e9, (us)*1e-6},
#define NCCL(cards, us)
#define HANDOVER(us)
#define LINKED(card, id)
#include "plan/links_between.def"
};
static const double handover =
#define LINK(id, name, gb_s, us)
#define NCCL(cards, us)
#define HANDOVER(us) (us) * 1e-6
#define LINKED(card, id)
#include "plan/links_between.def"
    ;
static const struct {
    const char *card;
    enum link_id link;
} linked[] = {
#define LINK(id, name, gb_s, us)
#define NCCL(cards, us)
#define HANDOVER(us)
#define LINKED(card, id) {card, id},
#include "plan/links_between.def"
};

static enum link_id link_of(const struct card *c) {
    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++)
        if (strcmp(linked[i].card, c->name) == 0) return linked[i].link;
    return c->sm >= 90 ? PCIE_5 : PCIE_4;
}
/* The slowest that two of the cards have. */
static const struct link *link_between(const struct card *card, int n) {
    const struct link *slowest = &links[link_of(&card[0])];
    for (int i = 1; i < n; i++) {
        const struct link *l = &links[link_of(&card[i])];
        if (l->rate < slowest->rate) slowest = l;
    }
    return slowest;
}

/* Each reads the vectors of all, or sums a part of them and reads the sums of the others. */
static double reduce_s(const struct link *l, int n, double bytes) {
    return fmin(l->own + (n - 1) * bytes / l->rate, 2 * l->own + 2.0 * (n - 1) / n * bytes / l->rate);
}
static double gather_s(const struct link *l, int n, double bytes) {
    return l->own + (n - 1.0) / n * bytes / l->rate;
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

struct several {
    const struct model *m;
    const struct plan_options *options;
    const struct card *card;
    int n;
    const struct link *link;
    struct plan_settings set;
};

static void on_card(struct plan_options *po, const struct several *s, int i) {
    *po = *s->options;
    po->ranks = po->stages = 0, po->ep = false;
    device_pick_card(&po->wish, &s->card[i], false, &po->place);
    po->place.host = NULL;
}

/* Seconds of a token of a part, from the bytes that it reads. */
static double part_s(const struct plan *p, const struct plan_part *part, double token_bytes, double gb_s) {
    bool experts;
    const enum quant_type type = plan_type_of(&part->list[ROW_DECODE], &experts);
    const struct plan_reached like = plan_reached_by(true, experts, type);
    return plan_token_s(token_bytes, gb_s, plan_kernels(p, part), &like);
}

static void add_part(struct plan_way *w, const struct plan_part *part) {
    struct plan_on_card *c = &w->card[w->n_card];
    *c = (struct plan_on_card){.no = w->n_card++,
                               .bytes = part->total_bytes,
                               .limit = part->limit_bytes,
                               .weights = part->size.weight_bytes,
                               .kv = part->size.kv_bytes,
                               .first = part->range.first,
                               .end = part->range.end};
    w->fits &= c->bytes <= c->limit;
}

/* What a token reads of a share, and what its ranks exchange. */
static enum infer_status exchanged(const struct several *s, struct plan_way *w, const struct model *share,
                                   double *token_bytes, double *between) {
    struct arena scratch = {0};
    struct op_list list;
    const struct layer_range all = {.end = share->n_layer, .n_ctx = s->set.n_ctx};
    enum infer_status st = forward_emit(&list, &scratch, share, &all, ROW_DECODE, 1, 1);
    *between = 0;
    w->exchanges = 0;
    for (int i = 0; st == INFER_OK && i < list.n_op; i++) {
        const struct op *o = &list.op[i];
        if (o->kind == OP_REDUCE) *between += reduce_s(s->link, s->n, 4.0 * o->reduce.x.width) + handover;
        if (o->kind == OP_GATHER) *between += gather_s(s->link, s->n, 4.0 * o->gather.out.width);
        w->exchanges += o->kind == OP_REDUCE || o->kind == OP_GATHER;
    }
    if (st == INFER_OK) *token_bytes = (double)plan_token_bytes(&list);
    arena_free(&scratch);
    return st;
}

static enum infer_status add_rank(struct several *s, struct plan_way *w, struct model *share, int rank,
                                  double *slowest) {
    struct arena scratch = {0};
    struct plan p;
    struct plan_options po;
    double bytes, between;
    on_card(&po, s, rank);
    TRY(exchanged(s, w, share, &bytes, &between));
    w->n_whole = share->share.n_attn_whole + share->share.n_ff_whole;
    enum infer_status st =
        rank ? plan_lay_out(&p, &scratch, share, &po, &s->set) : plan_make(&p, &scratch, share, &po);
    if (st == INFER_OK) {
        s->set = p.set; /* rank 0 finds them */
        const double all = part_s(&p, &p.part[0], bytes, s->card[rank].read_gb_s) + between;
        add_part(w, &p.part[0]);
        if (all > *slowest) *slowest = all, w->token_bytes = bytes, w->between_s = between;
    }
    arena_free(&scratch);
    return st;
}

/* ---- ways -------------------------------------------------------------------------------------------------------- */

static enum infer_status by_ranks(struct several *s, struct plan_way *w, enum experts_by by) {
    double slowest = 0;
    for (int r = 0; r < s->n; r++) {
        struct model *share;
        TRY(model_shard_by(&share, s->m, r, s->n, by));
        enum infer_status st = add_rank(s, w, share, r, &slowest);
        model_close(share);
        TRY(st);
    }
    w->tok_s = 1 / slowest;
    return INFER_OK;
}

/* Of the bytes each card has what it has of the memory. */
static enum infer_status by_stages(struct several *s, struct plan_way *w) {
    double share[PLAN_STAGES], all = 0, seconds = 0;
    if (s->n > PLAN_STAGES) return err_set(INFER_E_UNSUPPORTED, "%d stages at most", PLAN_STAGES);
    for (int i = 0; i < s->n; i++) all += (double)s->card[i].memory_bytes;
    for (int i = 0; i < s->n; i++) share[i] = (double)s->card[i].memory_bytes / all;
    struct plan_settings set = s->set;
    TRY(plan_stages(&set, s->m, s->n, share));
    for (int i = 0; i < s->n; i++) {
        struct arena scratch = {0};
        struct plan p;
        struct plan_options po;
        on_card(&po, s, i);
        enum infer_status st = plan_lay_out(&p, &scratch, s->m, &po, &set);
        if (st == INFER_OK) {
            const double bytes = (double)plan_token_bytes(&p.part[i].list[ROW_DECODE]);
            seconds += part_s(&p, &p.part[i], bytes, s->card[i].read_gb_s);
            if (bytes > w->token_bytes) w->token_bytes = bytes;
            add_part(w, &p.part[i]);
        }
        arena_free(&scratch);
        TRY(st);
    }
    w->exchanges = s->n - 1;
    w->between_s = w->exchanges * (s->link->own + 4.0 * s->m->n_embd / s->link->rate);
    w->tok_s = 1 / (seconds + w->between_s);
    return INFER_OK;
}

static enum infer_status on_one(struct several *s, struct plan_way *w) {
    struct arena scratch = {0};
    struct plan p;
    struct plan_options po;
    int best = 0;
    for (int i = 1; i < s->n; i++)
        if (s->card[i].read_gb_s > s->card[best].read_gb_s) best = i;
    on_card(&po, s, best);
    enum infer_status st = plan_make(&p, &scratch, s->m, &po);
    if (st == INFER_OK) {
        add_part(w, &p.part[0]);
        w->card[0].no = best;
        w->token_bytes = (double)plan_token_bytes(&p.part[0].list[ROW_DECODE]);
        w->tok_s = 1 / part_s(&p, &p.part[0], w->token_bytes, s->card[best].read_gb_s);
    }
    arena_free(&scratch);
    return st;
}

static enum infer_status find(struct several *s, enum plan_way_kind kind, struct plan_way *w) {
    w->fits = true;
    if (kind == WAY_PIPELINE) return by_stages(s, w);
    if (kind == WAY_ONE) return on_one(s, w);
    if (kind == WAY_EXPERTS && !plan_has_experts(s->m, s->m->n_layer))
        return err_set(INFER_E_UNSUPPORTED, "this model has no experts");
    return by_ranks(s, w, kind == WAY_EXPERTS ? EXPERTS_WHOLE : EXPERTS_FIT);
}

static bool asked(const struct plan_options *po, enum plan_way_kind kind) {
    if (po->ep) return kind == WAY_EXPERTS;
    if (po->stages > 1) return kind == WAY_PIPELINE;
    return po->ranks < 2 || kind == WAY_TENSOR;
}

enum infer_status plan_several(struct plan_several *out, const struct model *m,
                               const struct plan_options *options, const struct card *card, int n) {
    struct several s = {.m = m, .options = options, .card = card, .n = n, .link = link_between(card, n)};
    *out = (struct plan_several){.n = n, .link = s.link->name, .taken = -1};
    for (int i = 0; i < n; i++)
        if (!(card[i].read_gb_s > 0))
            return err_set(INFER_E_INPUT, ".as: nobody knows how fast %s is, so several are not compared",
                           card[i].name);
    const int asked_n = options->ranks > 1 ? options->ranks : options->stages;
    if (asked_n > 1 && asked_n != n)
        return err_set(INFER_E_INPUT, ".as names %d cards, and %d ranks or stages were asked for", n,
                       asked_n);
    for (int k = 0; k < WAYS; k++) {
        struct plan_way *w = &out->way[k];
        const enum infer_status st = find(&s, (enum plan_way_kind)k, w);
        w->there = st == INFER_OK;
        if (st == INFER_E_UNSUPPORTED && (k || !model_drafts(m))) {
            snprintf(w->why, sizeof w->why, "%s", err_message());
            continue;
        }
        TRY(st);
        if (w->fits && asked(options, (enum plan_way_kind)k) &&
            (out->taken < 0 || w->tok_s > out->way[out->taken].tok_s))
            out->taken = k;
    }
    out->set = s.set;
    return INFER_OK;
}

int plan_several_take(struct plan_several *s, unsigned ways) {
    s->taken = -1;
    for (int k = 0; k < WAYS; k++)
        if (ways >> k & 1 && s->way[k].there && s->way[k].fits &&
            (s->taken < 0 || s->way[k].tok_s > s->way[s->taken].tok_s))
            s->taken = k;
    return s->taken;
}

const char *plan_way_name(enum plan_way_kind k) {
    static const char *const names[] = {"tensor parallel", "pipeline", "expert parallel", "one card"};
    return names[k];
}

/* The memory of each card, of equal ones behind each other once. */
static size_t write_cards(const struct plan_way *w, const struct card *card, bool stages, char *text,
                          size_t n, size_t size) {
    for (int i = 0, same; i < w->n_card && n < size; i = same) {
        const struct plan_on_card *c = &w->card[i];
        for (same = i + 1; same < w->n_card && !stages && w->card[same].bytes == c->bytes &&
                           strcmp(card[same].name, card[c->no].name) == 0;)
            same++;
        char which[64], layers[48] = "";
        if (same > i + 1)
            snprintf(which, sizeof which, "cards %d to %d", i, same - 1);
        else
            snprintf(which, sizeof which, "card %d", c->no);
        if (stages) snprintf(layers, sizeof layers, ", layers %d to %d", c->first, c->end - 1);
        n += (size_t)snprintf(text + n, size - n,
                              "    %-20s %12.1f GiB    %.1f of weights, %.1f of cache%s; %.1f of %s %s\n",
                              which, (double)c->bytes / (1 << 30), (double)c->weights / (1 << 30),
                              (double)c->kv / (1 << 30), layers, (double)c->limit / (1 << 30),
                              card[c->no].name, c->bytes <= c->limit ? "are there" : "are too few");
    }
    return n;
}

void plan_several_write(const struct plan_several *s, const struct model *m, const struct card *card,
                        char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "%s on %d cards (", m->arch->name, s->n);
    for (int i = 0; i < s->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", card[i].name);
    if (n < size)
        n += (size_t)snprintf(
            text + n, size - n,
            ") by %s: %d positions, %d slot%s; decode of one row as predicted, nothing of it measured\n",
            s->link, s->set.n_ctx, s->set.n_slot, s->set.n_slot == 1 ? "" : "s");
    for (int k = 0; k < WAYS && n < size; k++) {
        const struct plan_way *w = &s->way[k];
        if (!w->there) {
            n += (size_t)snprintf(text + n, size - n, "  %-22s %12s        %s\n",
                                  plan_way_name((enum plan_way_kind)k), "-", w->why);
            continue;
        }
        n += (size_t)snprintf(text + n, size - n,
                              "  %-22s %12.*f tok/s  a token reads %.1f MiB%s; %d exchange%s "
                              "of %.0f us%s%s\n",
                              plan_way_name((enum plan_way_kind)k), w->tok_s < 10, w->tok_s,
                              w->token_bytes / (1 << 20),
                              k == WAY_PIPELINE ? " on the stage that reads most"
                              : k == WAY_ONE    ? ""
                                                : " on the slowest rank",
                              w->exchanges, w->exchanges == 1 ? "" : "s", w->between_s * 1e6,
                              w->fits ? "" : "  DOES NOT FIT", k == s->taken ? "  TAKEN" : "");
        n = write_cards(w, card, k == WAY_PIPELINE, text, n, size);
        if (w->n_whole && n < size)
            n += (size_t)snprintf(text + n, size - n,
                                  "  %-22s attention or feed-forward parts of %d layers are whole on each\n",
                                  "", w->n_whole);
    }
}

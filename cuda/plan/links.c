#include "cuda/plan/links.h"
#include "cuda/plan/delta_plan.h"
#include "cuda/plan/latent_plan.h"
#include "seam/elsewhere.h"
#include "seam/op_list.h"

/* ---- what a link reads and leaves ---------------------------------------------------------------------------- */

static const struct view no_view = {-1, 0, 0};
static int last_op(const struct cuda_link *k) { return k->first + k->n_op - 1; }

struct view link_reads(const struct op_list *l, const struct cuda_link *k) {
    if (k->kind == LINK_HEAD) return l->op[k->first].rows.x;
    if (k->norm >= 0) return l->op[k->norm].norm.x;
    if (k->before >= 0) {
        const struct op *o = &l->op[k->before];
        return o->kind == OP_NORM ? o->norm.x : o->glu.gate;
    }
    return k->matmul >= 0 ? l->op[k->matmul].matmul.x : no_view;
}
struct view link_writes(const struct op_list *l, const struct cuda_link *k) {
    const struct op_use u = op_uses(&l->op[last_op(k)]);
    return u.n_write ? u.write[0] : no_view;
}
const char *link_name(const struct op_list *l, const struct cuda_link *k) {
    if (k->kind == LINK_EXPERTS) return l->op[k->first + (l->op[k->first].kind == OP_NORM) + 2].name;
    return l->op[k->matmul >= 0 ? k->matmul : last_op(k)].name;
}
struct attend_ops link_attend_ops(const struct op_list *l, const struct cuda_link *k) {
    struct attend_ops a = {0};
    for (int i = k->first; i <= last_op(k); i++) {
        const struct op *o = &l->op[i];
        if (o->kind == OP_NORM && !o->norm.w)
            a.v_norm = &o->norm;
        else if (o->kind == OP_NORM) {
            *(a.q_norm ? &a.k_norm : &a.q_norm) = &o->norm;
            a.late = a.q_rope != NULL;
        } else if (o->kind == OP_ROPE)
            *(a.q_rope ? &a.k_rope : &a.q_rope) = &o->rope;
        else if (o->kind == OP_KV_PUT)
            a.put = &o->kv_put;
        else
            a.attend = &o->attend;
    }
    return a;
}
struct delta_ops link_delta_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct delta_ops){&o[0].conv, &o[1].delta, &o[2].norm, &o[3].glu};
}
struct latent_ops link_latent_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct latent_ops){&o[2].norm,  &o[3].rope,  &o[0].rope,  &o[4].kv_put,
                               &o[1].heads, &o[6].heads, &o[5].attend};
}
struct mix_ops link_mix_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[last_op(k)];
    return (struct mix_ops){k->n_op == 3 ? &o[-2].matmul : NULL, &o[-1].mix, &o[0].add};
}
struct post_ops link_post_ops(const struct op_list *l, const struct cuda_plan *plan,
                              const struct cuda_link *k) {
    const struct op *o = &l->op[k->matmul + 1];
    struct post_ops p = {.factor = plan->group[l->op[k->matmul].matmul.w->id].member[0].factor, .scale = 1};
    if (o->kind == OP_NORM) p.norm = &o++->norm;
    p.add = &o++->add;
    if (o <= &l->op[last_op(k)]) p.scale = o->glu.k.limit;
    return p;
}

struct experts_ops link_experts_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first], *end = o + k->n_op;
    struct experts_ops e = {0};
    if (o->kind == OP_NORM) e.norm = &o++->norm;
    e.router = &o[0].matmul;
    e.route = &o[1].route;
    e.gated = &o[2].experts;
    e.glu = &o[3].glu;
    e.down = &o[4].experts;
    o += 5;
    if (o < end && o->kind == OP_MATMUL) {
        e.shared = &o[0].matmul;
        e.shared_glu = &o[1].glu;
        e.shared_down = &o[2].matmul;
        o += 3;
        if (o->kind == OP_MATMUL) e.weigh = &o++->matmul;
    }
    if (o < end) e.mix = &o++->mix;
    if (o < end) e.add = &o->add;
    return e;
}

/* ---- what a pattern asks beside the kinds of its operations -------------------------------------------------- */

/* The form in which the kernels of a group of matrices read their input; FORM_ROWS: no fused kernel has the layouts (or
 * a factor, or exact sums), or they disagree. */
static enum link_form form_of(const struct link_case *c, enum link_kind kind, const struct cuda_group *g) {
    enum link_form form = FORM_ROWS;
    const bool scales =
        kind == LINK_POST || (kind == LINK_MATMUL && g->n_member == 1); /* behind the products */
    if ((g->scaled && (!scales || g->bias)) || g->apart) return FORM_ROWS;
    for (int i = 0; i < g->n_region; i++) {
        const enum layout l = g->region[i].layout;
        const enum link_form f = route_form(c->route, c->list->cls, kind, c->int8, l);
        if (f == FORM_ROWS || (i && f != form)) return FORM_ROWS;
        form = f;
    }
    return form;
}
/* Columns that pad a tile are never written: halves must not read what floats left there. */
static bool tiles_stay_clean(const struct link_case *c) {
    bool floats = false, halves = false, pads = false;
    for (int i = 0; i < c->list->n_op; i++) {
        if (c->list->op[i].kind != OP_MATMUL) continue;
        const struct cuda_group *g = &c->plan->group[c->list->op[i].matmul.w->id];
        if (g->apart) continue;
        (g->region[0].layout == LAYOUT_F32 ? &floats : &halves)[0] = true;
        pads |= g->k % 64 != 0;
    }
    return !(floats && halves && pads);
}
static bool matmul_fits(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = &c->plan->group[c->list->op[k->matmul].matmul.w->id];
    if (k->kind != LINK_GATED && g->paired) return false; /* rows of gate and up lie in turns */
    k->wants = form_of(c, k->kind, g);
    k->slot = act_slot_of(c->list, k->matmul);
    if (k->wants == FORM_ROWS || (k->wants == FORM_TF32 && !tiles_stay_clean(c))) return false;
    return !c->has || c->has(c->user, k, k->wants, FORM_ROWS);
}
/* Of a norm that a matmul and, right behind it, another one of its own read, and nothing else: whether that one takes what the
 * first takes, where it lies. */
static bool is_twice(const struct link_case *c, const struct cuda_link *k) {
    const struct op *o = &c->list->op[k->matmul + 1];
    const struct view x = c->list->op[k->norm].norm.out;
    struct cuda_link one = *k,
                     next = {.kind = LINK_MATMUL, .norm = k->norm, .before = -1, .matmul = k->matmul + 1};
    return k->matmul + 2 < c->list->n_op && o[0].kind == OP_MATMUL && o[1].kind != OP_ADD &&
           o[1].kind != OP_GLU && view_same(o->matmul.x, x) && c->list->buf[x.buf].last == next.matmul &&
           matmul_fits(c, &one) && matmul_fits(c, &next) && one.wants == next.wants && one.slot == next.slot;
}
/* The norm of a whole row, which nothing but the matmul reads. */
static bool norm_fits(const struct link_case *c, const struct cuda_link *k) {
    const struct op_norm *n = &c->list->op[k->norm].norm;
    return n->kind == NORM_RMS && n->w && !n->bias && n->dim == n->x.width &&
           n->dim % (c->list->cls == ROW_DECODE ? 32 : 4) == 0 &&
           (list_hands_over(c->list, k->norm) || (k->kind == LINK_MATMUL && is_twice(c, k))) &&
           view_same(c->list->op[k->matmul].matmul.x, n->out);
}
/* What stands in front of a matmul instead: it is done to rows, on their way into the matmul's form. */
static bool before_fits(const struct link_case *c, const struct cuda_link *k) {
    const struct op *o = &c->list->op[k->before];
    const bool norm = o->kind == OP_NORM;
    const struct view x = norm ? o->norm.x : o->glu.gate, out = norm ? o->norm.out : o->glu.out;
    if (norm ? o->norm.dim != x.width || op_norm_weights(&o->norm) != x.width
             : o->glu.up.buf >= 0 || o->glu.act > ACT_GELU_ERF)
        return false;
    return list_hands_over(c->list, k->before) && view_same(c->list->op[k->matmul].matmul.x, out);
}
static bool front_fits(const struct link_case *c, const struct cuda_link *k) {
    return (k->norm < 0 || norm_fits(c, k)) && (k->before < 0 || before_fits(c, k));
}
static bool is_embed(const struct link_case *c, struct cuda_link *k) {
    return k->first == 0 && c->plan->embedding >= 0 && c->list->op[0].embed.out.width % 32 == 0 &&
           (!c->has || c->has(c->user, k, FORM_ROWS, FORM_ROWS));
}
static bool is_matmul(const struct link_case *c, struct cuda_link *k) {
    return front_fits(c, k) && matmul_fits(c, k);
}
static bool is_gated(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = &c->plan->group[c->list->op[k->matmul].matmul.w->id];
    if (c->list->op[k->matmul + 1].glu.act > ACT_RELU2)
        return false; /* which the fused kernels do not know */
    return list_is_gated(c->list, k->matmul) && list_hands_over(c->list, k->matmul) && g->paired &&
           !g->bias && g->n_region == 1 && is_matmul(c, k);
}
static bool is_residual(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_add *a = &c->list->op[k->matmul + 1].add;
    return view_same(a->a, a->out) && view_same(a->b, m->out) && list_hands_over(c->list, k->matmul) &&
           front_fits(c, k) && c->plan->group[m->w->id].n_member == 1 && a->out.width % 32 == 0 &&
           matmul_fits(c, k);
}
static bool is_head(const struct link_case *c, struct cuda_link *k) {
    const struct op *o = &c->list->op[k->first];
    const struct cuda_group *g = &c->plan->group[o[2].matmul.w->id];
    return view_same(o[1].norm.x, o[0].rows.out) && list_hands_over(c->list, k->first) &&
           view_same(o[3].select.logits, o[2].matmul.out) && list_hands_over(c->list, k->matmul) &&
           g->n_member == 1 && is_matmul(c, k);
}
static bool head_norm_fits(const struct op_norm *n, struct view x, int head_dim) {
    return n->kind == NORM_RMS && !n->bias && n->dim == head_dim && op_norm_weights(n) == n->dim &&
           view_same(n->x, x) && view_same(n->out, x);
}
/* Norms of heads, all of one eps; behind the rotation only where that keeps lengths. */
static bool head_norms_fit(const struct attend_ops *o, struct view q, struct view k,
                           const struct kv_store *s) {
    const struct op_norm *v = o->v_norm;
    if (v && (v->kind != NORM_RMS || v->bias || v->dim != s->head_dim_v || !view_same(v->out, o->put->v) ||
              !o->q_norm || v->eps != o->q_norm->eps))
        return false;
    if (!o->q_norm) return true;
    return o->k_norm && head_norm_fits(o->q_norm, q, s->head_dim_k) &&
           head_norm_fits(o->k_norm, k, s->head_dim_k) && o->q_norm->eps == o->k_norm->eps &&
           (!o->late || o->q_rope->rope->mscale == 1);
}
/* q and k of all heads, rotated alike. */
static bool ropes_fit(const struct attend_ops *o, struct view q, struct view k, const struct kv_store *s) {
    const struct op_rope *rq = o->q_rope, *rk = o->k_rope;
    return !rq || (view_same(rq->x, q) && view_same(rk->x, k) && rq->rope == rk->rope &&
                   rq->n_head == o->attend->n_head && rk->n_head == s->n_kv_head &&
                   rq->head_dim == s->head_dim_k && rk->head_dim == s->head_dim_k);
}
/* q, k and v in one buffer that nothing reads later, and head sizes that the kernels have. */
static bool is_attend(const struct link_case *c, struct cuda_link *k) {
    const struct op_list *l = c->list;
    const struct attend_ops o = link_attend_ops(l, k);
    const struct kv_store *s = &c->store[o.attend->store];
    const struct view q = o.attend->q, key = o.put->k, v = attend_value(&o);
    if (o.attend->store != o.put->store || q.buf != key.buf || q.buf != v.buf ||
        l->buf[q.buf].last != last_op(k) || l->buf[o.put->v.buf].last > last_op(k) ||
        k->n_op != 2 + (o.v_norm != NULL) + 2 * (o.q_norm != NULL) + 2 * (o.q_rope != NULL))
        return false;
    if (o.attend->chunked || !ropes_fit(&o, q, key, s) || !head_norms_fit(&o, q, key, s)) return false;
    /* as bfloat16 or as halves it can be turned into rows */
    const enum link_form least = l->cls == ROW_DECODE ? FORM_BF16 : FORM_HALVES;
    return route_attend(c->route, l->cls, s->head_dim_k, s->head_dim_v) != NULL &&
           (!c->has || c->has(c->user, k, FORM_ROWS, least));
}
/* The result of a matmul goes through a norm of the whole row, or is times a factor, on its way to the residual stream. */
static bool is_post(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct cuda_group *g = &c->plan->group[m->w->id];
    const struct post_ops p = link_post_ops(c->list, c->plan, k);
    const struct op_norm *n = p.norm;
    if (n && (n->kind != NORM_RMS || n->bias || n->dim != n->x.width || !view_same(n->x, m->out) ||
              !view_same(n->out, m->out)))
        return false;
    if (k->n_op > 2 + (n != NULL)) {
        const struct op_glu *s = &c->list->op[last_op(k)].glu;
        if (s->act != ACT_SCALE || !view_same(s->gate, p.add->out) || !view_same(s->out, p.add->out))
            return false;
    }
    return view_same(p.add->a, p.add->out) && view_same(p.add->b, m->out) &&
           c->list->buf[m->out.buf].last == k->matmul + 1 + (n != NULL) && g->n_member == 1 &&
           p.add->out.width % (c->list->cls == ROW_DECODE ? 32 : 4) == 0 && matmul_fits(c, k);
}

/* A convolution, a delta rule, a norm of each head and a gate, each of what the one before it left and nobody else reads. */
static bool is_delta(const struct link_case *c, struct cuda_link *k) {
    const struct delta_ops o = link_delta_ops(c->list, k);
    const struct op_norm *n = o.norm;
    const struct view x = o.conv->x, z = o.glu->gate;
    return o.conv->K == DELTA_TAPS && o.conv->silu && view_same(o.conv->out, o.delta->qkv) &&
           list_hands_over(c->list, k->first) && view_same(o.delta->out, n->x) && view_same(n->x, n->out) &&
           n->kind == NORM_RMS && n->w && !n->bias && n->dim == o.delta->dv && op_norm_weights(n) == n->dim &&
           view_same(o.glu->up, n->out) && view_same(o.glu->out, n->out) && o.glu->act == ACT_SILU &&
           x.col % 4 == 0 && z.col % 4 == 0 && o.delta->n_key <= 256 &&
           route_delta(c->route, c->list->cls, o.delta->dk, o.delta->dv) &&
           (!c->has || c->has(c->user, k, FORM_ROWS, FORM_BF16));
}

/* Whether a view ends with the link, so that it need not be written. */
static bool ends_here(const struct link_case *c, const struct cuda_link *k, struct view v) {
    return c->list->buf[v.buf].first >= k->first && c->list->buf[v.buf].last <= last_op(k);
}
/* A norm that nobody but the router and the experts reads; a router whose logits nobody else reads. */
static bool router_fits(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    const struct op_norm *n = o->norm;
    const struct cuda_group *g = &c->plan->group[o->router->w->id];
    if (n &&
        (n->kind != NORM_RMS || !n->w || n->bias || n->dim != n->x.width || op_norm_weights(n) != n->dim ||
         !view_same(o->router->x, n->out) || !view_same(o->gated->x, n->out) || !ends_here(c, k, n->out)))
        return false;
    return o->router->exact && g->n_member == 1 && layout_kind(g->region[0].layout) >= KIND_HALVES &&
           g->k % 8 == 0 && o->router->x.col % 4 == 0 && view_same(o->route->logits, o->router->out) &&
           ends_here(c, k, o->router->out);
}
/* The choice for both products, gate and up that nothing but their product reads, a sum of nothing but the chosen. */
static bool experts_fit(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    const struct view choice = o->route->choice;
    if (!list_is_gated(c->list, k->first + (o->norm != NULL) + 2) || o->gated->by_choice ||
        o->gated->weighted || !o->down->by_choice || o->down->weighted ||
        !view_same(o->gated->choice, choice) || !view_same(o->down->choice, choice) ||
        !view_same(o->down->x, o->glu->out) || !ends_here(c, k, o->gated->out) ||
        !ends_here(c, k, o->glu->out) || (o->glu->act > ACT_GELU_ERF && o->glu->act != ACT_SWIGLU_OAI))
        return false;
    if (o->mix && (o->mix->plain || (o->mix->shared.buf >= 0) != (o->shared != NULL) ||
                   !view_same(o->mix->x, o->down->out) || !view_same(o->mix->choice, choice) ||
                   !ends_here(c, k, o->down->out) || !ends_here(c, k, choice)))
        return false;
    return !o->add || (view_same(o->add->a, o->add->out) && view_same(o->add->b, o->mix->out) &&
                       ends_here(c, k, o->mix->out) && o->add->out.width % 32 == 0);
}
/* A part that all rows take, of the same function, whose result and weight nothing but the sum reads. */
static bool shared_fits(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    if (!o->shared) return true;
    const struct op_glu *g = o->shared_glu, *own = o->glu;
    if (c->list->max_rows > 1 || !list_is_gated(c->list, k->first + (o->norm != NULL) + 5) ||
        o->shared->exact || o->shared_down->exact || g->act != own->act || g->k.limit != own->k.limit ||
        g->k.alpha != own->k.alpha || !view_same(o->shared->x, o->gated->x) ||
        !view_same(o->shared_down->x, g->out) || !view_same(o->mix->shared, o->shared_down->out) ||
        !ends_here(c, k, o->shared->out) || !ends_here(c, k, g->out) ||
        !ends_here(c, k, o->shared_down->out) || (o->mix->gate.buf >= 0) != (o->weigh != NULL))
        return false;
    return !o->weigh || (view_same(o->weigh->x, o->gated->x) && view_same(o->mix->gate, o->weigh->out) &&
                         c->plan->group[o->weigh->w->id].n == 1 && ends_here(c, k, o->weigh->out));
}
static bool is_experts(const struct link_case *c, struct cuda_link *k) {
    const struct experts_ops o = link_experts_ops(c->list, k);
    return router_fits(c, k, &o) && experts_fit(c, k, &o) && shared_fits(c, k, &o) &&
           route_experts(c->route, c->list->cls) && (!c->has || c->has(c->user, k, FORM_ROWS, FORM_ROWS));
}

/* Keys that are a normed latent and a rotated rest, of one rotation with queries that absorb their heads' matrices. */
static bool is_latent(const struct link_case *c, struct cuda_link *k) {
    const struct latent_ops o = link_latent_ops(c->list, k);
    const struct op_norm *n = o.norm;
    const struct view key = o.put->k, latent = view_columns(key, 0, n->x.width),
                      rest = view_columns(key, n->x.width, key.width - n->x.width), q = o.keys->x;
    const int nope = o.keys->w->k;
    if (n->kind != NORM_RMS || !n->w || n->bias || n->dim != n->x.width || op_norm_weights(n) != n->dim ||
        !view_same(n->x, latent) || !view_same(n->out, latent) || !view_same(o.k_rope->x, rest) ||
        o.k_rope->rope != o.q_rope->rope || o.k_rope->n_head != 1 || o.k_rope->rope->n_rot != rest.width ||
        o.q_rope->n_head != o.attend->n_head || o.q_rope->head_dim != nope + rest.width ||
        !view_same(o.q_rope->x, view_columns(q, nope, q.width - nope)) || op_heads_rest(o.keys) != rest.width)
        return false;
    const struct kv_store *s = &c->store[o.put->store];
    return o.put->store == o.attend->store && n->dim == s->head_dim_v && c->route->sm >= 90 &&
           latent_has(s, o.attend, c->route->shared_bytes) && op_heads_rest(o.values) == 0 &&
           view_same(o.attend->q, o.keys->out) && view_same(o.values->x, o.attend->out) &&
           c->list->buf[key.buf].last <= last_op(k) && c->list->buf[q.buf].last <= last_op(k) &&
           ends_here(c, k, o.keys->out) && ends_here(c, k, o.attend->out) &&
           (!c->has || c->has(c->user, k, FORM_ROWS, FORM_ROWS));
}

/* Experts of prompt rows, gated, then those of their results, which stay rows, one for each choice. */
static bool is_pairs(const struct link_case *c, struct cuda_link *k) {
    const struct op_list *l = c->list;
    const struct op_experts *a = &l->op[k->first].experts, *b = &l->op[k->first + 2].experts;
    const struct op_glu *g = &l->op[k->first + 1].glu;
    const struct cuda_group *up = &c->plan->group[a->w->id], *down = &c->plan->group[b->w->id];
    const bool known = g->act <= ACT_RELU2 || g->act == ACT_SWIGLU_OAI;
    return !a->by_choice && !a->weighted && b->by_choice && !b->weighted && a->n_used == b->n_used && known &&
           view_same(a->choice, b->choice) && view_same(b->x, g->out) && list_is_gated(l, k->first) &&
           list_hands_over(l, k->first) && list_hands_over(l, k->first + 1) && up->paired &&
           up->n_region == 1 && down->n_member == 1 && down->n % 4 == 0 && up->n_stack <= ROUTE_EXPERTS_MAX &&
           a->x.col % 4 == 0 && a->x.width % 4 == 0 &&
           route_prompt_group(c->route, up->region[0].layout) == GROUP_WGMMA &&
           route_prompt_group(c->route, down->region[0].layout) == GROUP_WGMMA &&
           layout_kind(up->region[0].layout) != KIND_FLOATS &&
           layout_kind(down->region[0].layout) != KIND_FLOATS;
}
static bool is_pairs_mix(const struct link_case *c, struct cuda_link *k) {
    const struct op_mix *m = &c->list->op[k->first].mix;
    const struct op_add *a = &c->list->op[k->first + 1].add;
    const int cols =
        m->x.col | m->shared.col | m->out.width | a->a.col | a->out.col; /* shared: may be absent, then 0 */
    return c->route->sm >= 80 && view_same(a->b, m->out) && list_hands_over(c->list, k->first) &&
           cols % 4 == 0;
}
/* The sum of experts whose result goes to the residual stream, with the gate of their shared part, which nobody else wants. */
static bool is_mix(const struct link_case *c, struct cuda_link *k) {
    const struct mix_ops o = link_mix_ops(c->list, k);
    const struct cuda_group *g = o.gate ? &c->plan->group[o.gate->w->id] : NULL;
    if (g && (g->n != 1 || !view_same(o.mix->gate, o.gate->out) || !list_hands_over(c->list, k->first)))
        return false;
    return c->route->sm >= 90 && view_same(o.add->b, o.mix->out) && view_same(o.add->a, o.add->out) &&
           list_hands_over(c->list, last_op(k) - 1) && o.add->out.width % 32 == 0;
}

/* ---- edges ------------------------------------------------------------------------------------------------------ */

/* Forms in which a link may leave its result for a matmul with a norm in front (its weights go with it) or without. */
static unsigned forms_given(const struct link_case *c, const struct cuda_link *g, bool normed) {
    const unsigned halves = 1u << FORM_HALVES | 1u << FORM_CODES | 1u << FORM_BF16,
                   tiles = 1u << FORM_HALVES | 1u << FORM_CODES | 1u << FORM_TF32 | 1u << FORM_PANEL;
    const bool decode = c->list->cls == ROW_DECODE;
    switch (g->kind) {
    case LINK_POST:
        return !decode ? 0 : c->int8 ? 1u << FORM_INT8_32 : halves;
    case LINK_EXPERTS:
        if (!link_experts_ops(c->list, g).add) return 0;
        /* fall through */
    case LINK_EMBED:
    case LINK_MIX:
    case LINK_RESIDUAL:
        return decode && normed ? c->int8 ? 1u << FORM_INT8_32 : halves : 0;
    case LINK_ATTEND:
    case LINK_DELTA:
        return normed ? 0 : decode ? halves | 1u << FORM_INT8_32 : tiles;
    case LINK_LATENT:
        return normed || link_latent_ops(c->list, g).values->w->n % 32 ? 0 : halves | 1u << FORM_INT8_32;
    case LINK_GATED:
        if (!decode && g->wants == FORM_PANEL) return normed ? 0 : 1u << FORM_PANEL;
        return normed ? 0 : !decode ? tiles & ~(1u << FORM_PANEL) : c->int8 ? 1u << FORM_INT8_16 : halves;
    default:
        return 0;
    }
}
/* The form of the edge from g to t. */
static enum link_form form_between(const struct link_case *c, const struct cuda_link *g,
                                   const struct cuda_link *t) {
    const bool normed = t->norm >= 0;
    const enum link_form want = g->kind == LINK_GATED && t->wants == FORM_INT8_32 ? FORM_INT8_16 : t->wants;
    if (t->matmul < 0 || t->before >= 0 || !(forms_given(c, g, normed) >> want & 1)) return FORM_ROWS;
    const struct view v = link_writes(c->list, g);
    if (!view_same(v, link_reads(c->list, t))) return FORM_ROWS;
    /* the residual stream is there as rows, too; other results are not */
    if (!normed && g->kind != LINK_POST && c->list->buf[v.buf].last > last_op(t)) return FORM_ROWS;
    if (c->has && (!c->has(c->user, g, g->wants, want) || !c->has(c->user, t, want, FORM_ROWS)))
        return FORM_ROWS;
    return want;
}
/* Whether one row may come in packets. */
static bool in_packets(const struct link_case *c, const struct cuda_link *g, const struct cuda_link *t) {
    if (c->list->cls != ROW_DECODE) return false;
    if ((t->kind == LINK_RESIDUAL || t->kind == LINK_POST) && g->kind != LINK_POST && g->kind != LINK_LATENT)
        return t->in.form != FORM_ROWS;
    if (t->kind != LINK_ATTEND || g->kind != LINK_MATMUL) return false;
    const struct view v = link_writes(c->list, g);
    return v.col == 0 && v.buf == link_attend_ops(c->list, t).attend->q.buf;
}

/* ---- the patterns: for each first operation the longest first; then a plain operation ------------------------ */

enum { DECODE = 1 << ROW_DECODE, PROMPT = 1 << ROW_PROMPT, BOTH = DECODE | PROMPT, MOST_OPS = 12 };
#define EXPERTS OP_MATMUL, OP_ROUTE, OP_EXPERTS, OP_GLU, OP_EXPERTS
#define SHARED  OP_MATMUL, OP_GLU, OP_MATMUL
static const struct pattern {
    enum link_kind kind;
    int classes, norm, matmul,
        n; /* norm (or what else is done to the rows in front) and matmul: which of the n operations, -1: none */
    enum op_kind op[MOST_OPS];
    bool (*fits)(const struct link_case *c, struct cuda_link *k);
} patterns[] = {
    {LINK_ATTEND,
     BOTH,
     -1,
     -1,
     7,
     {OP_NORM, OP_NORM, OP_NORM, OP_ROPE, OP_ROPE, OP_KV_PUT, OP_ATTEND},
     is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 6, {OP_NORM, OP_NORM, OP_ROPE, OP_ROPE, OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 6, {OP_ROPE, OP_ROPE, OP_NORM, OP_NORM, OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 5, {OP_NORM, OP_NORM, OP_NORM, OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 4, {OP_NORM, OP_NORM, OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 4, {OP_ROPE, OP_ROPE, OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_ATTEND, BOTH, -1, -1, 2, {OP_KV_PUT, OP_ATTEND}, is_attend},
    {LINK_LATENT,
     DECODE,
     -1,
     -1,
     7,
     {OP_ROPE, OP_HEADS, OP_NORM, OP_ROPE, OP_KV_PUT, OP_ATTEND, OP_HEADS},
     is_latent},
    {LINK_DELTA, BOTH, -1, -1, 4, {OP_CONV, OP_DELTA, OP_NORM, OP_GLU}, is_delta},
    {LINK_EXPERTS, DECODE, -1, -1, 12, {OP_NORM, EXPERTS, SHARED, OP_MATMUL, OP_MIX, OP_ADD}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 11, {OP_NORM, EXPERTS, SHARED, OP_MIX, OP_ADD}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 8, {OP_NORM, EXPERTS, OP_MIX, OP_ADD}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 7, {EXPERTS, OP_MIX, OP_ADD}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 7, {OP_NORM, EXPERTS, OP_MIX}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 6, {EXPERTS, OP_MIX}, is_experts},
    {LINK_EXPERTS, DECODE, -1, -1, 5, {EXPERTS}, is_experts},
    {LINK_HEAD, DECODE, 1, 2, 4, {OP_ROWS, OP_NORM, OP_MATMUL, OP_SELECT}, is_head},
    {LINK_GATED, BOTH, 0, 1, 3, {OP_NORM, OP_MATMUL, OP_GLU}, is_gated},
    {LINK_GATED, BOTH, -1, 0, 2, {OP_MATMUL, OP_GLU}, is_gated},
    {LINK_POST, BOTH, -1, 0, 4, {OP_MATMUL, OP_NORM, OP_ADD, OP_GLU}, is_post},
    {LINK_POST, BOTH, -1, 0, 3, {OP_MATMUL, OP_NORM, OP_ADD}, is_post},
    {LINK_RESIDUAL, BOTH, 0, 1, 3, {OP_GLU, OP_MATMUL, OP_ADD}, is_residual},
    {LINK_RESIDUAL, BOTH, -1, 0, 2, {OP_MATMUL, OP_ADD}, is_residual},
    {LINK_POST, BOTH, -1, 0, 2, {OP_MATMUL, OP_ADD}, is_post},
    {LINK_MATMUL, BOTH, 0, 1, 2, {OP_NORM, OP_MATMUL}, is_matmul},
    {LINK_MATMUL, BOTH, -1, 0, 1, {OP_MATMUL}, is_matmul},
    {LINK_EMBED, DECODE, -1, -1, 1, {OP_EMBED}, is_embed},
    {LINK_MIX, DECODE, -1, -1, 3, {OP_MATMUL, OP_MIX, OP_ADD}, is_mix},
    {LINK_MIX, DECODE, -1, -1, 2, {OP_MIX, OP_ADD}, is_mix},
    {LINK_PAIRS, PROMPT, -1, -1, 3, {OP_EXPERTS, OP_GLU, OP_EXPERTS}, is_pairs},
    {LINK_PAIRS_MIX, PROMPT, -1, -1, 2, {OP_MIX, OP_ADD}, is_pairs_mix},
};

/* Whether a matmul takes what stands ready for the one in front of it: what is_twice saw. */
static bool is_again(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k) {
    return front->kind == LINK_MATMUL && k->kind == LINK_MATMUL && front->norm >= 0 && k->norm < 0 &&
           k->before < 0 && view_same(c->list->op[k->matmul].matmul.x, c->list->op[front->norm].norm.out);
}
/* What turns rows into another form reads four columns at once. */
static bool convertible(const struct link_case *c, const struct cuda_link *k) {
    const struct view x = link_reads(c->list, k);
    return x.col % 4 == 0 && x.width % 4 == 0;
}
/* Whether the pattern takes the operations from at on, behind the link in front (NULL: none). */
static bool matches(const struct link_case *c, const struct pattern *p, int at, const struct cuda_link *front,
                    struct cuda_link *k) {
    if (!(p->classes >> c->list->cls & 1) || at + p->n > c->list->n_op) return false;
    for (int i = 0; i < p->n; i++)
        if (c->list->op[at + i].kind != p->op[i] || op_is_elsewhere(&c->list->op[at + i])) return false;
    *k = (struct cuda_link){.kind = p->kind,
                            .first = at,
                            .n_op = p->n,
                            .norm = -1,
                            .before = -1,
                            .matmul = p->matmul < 0 ? -1 : at + p->matmul};
    if (p->norm >= 0) {
        const struct op *o = &c->list->op[at + p->norm];
        *(o->kind == OP_NORM && o->norm.kind == NORM_RMS ? &k->norm : &k->before) = at + p->norm;
    }
    if (!p->fits(c, k)) return false;
    if (front && is_again(c, front, k)) {
        k->norm = front->norm;
        k->in.form = k->wants;
    } else if (front)
        k->in.form = form_between(c, front, k);
    return k->matmul < 0 || k->in.form != FORM_ROWS || convertible(c, k);
}

int links_make(const struct link_case *c, struct cuda_link *link) {
    const int n_pattern = (int)(sizeof patterns / sizeof *patterns);
    int n = 0;
    for (int at = 0; at < c->list->n_op; at += link[n++].n_op) {
        struct cuda_link *front = n ? &link[n - 1] : NULL, *k = &link[n];
        int p = 0;
        while (p < n_pattern && !matches(c, &patterns[p], at, front, k)) p++;
        if (p == n_pattern)
            *k = (struct cuda_link){
                .kind = LINK_PLAIN, .first = at, .n_op = 1, .norm = -1, .before = -1, .matmul = -1};
        if (!front) continue;
        if (k->in.form == FORM_INT8_16) k->wants = FORM_INT8_16;
        front->gives = k->norm >= 0 && k->norm < k->first ? FORM_ROWS : k->in.form;
        k->in.packets = in_packets(c, front, k);
        /* what int8 codes have lost does not come back */
        if (c->int8 && front->kind == LINK_GATED && front->gives == FORM_ROWS) return 0;
    }
    return n;
}

/* Keys of mixtures of experts. */
#include "model/model_impl.h"

#include <limits.h>

enum { MAX_EXPERT_FF = 1 << 22 };

/* expert_gating_func; absent, or 0: the architecture's. */
static enum infer_status read_act(const struct model *m, enum route_act *out) {
    static const enum route_act known[] = {ROUTE_SOFTMAX, ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_CHOSEN,
                                           ROUTE_ROOT};
    int func;
    TRY(model_read_int(m, "expert_gating_func", 0, 4, 0, &func));
    *out = func ? known[func] : m->arch->moe.act;
    if (!func && model_quirk(m, QUIRK_SIGMOIDS)) *out = ROUTE_SIGMOID;
    return INFER_OK;
}

static enum infer_status read_groups(const struct model *m, struct router *r) {
    TRY(model_read_int(m, "expert_group_count", 0, ROUTE_GROUPS_MAX, 0, &r->n_group));
    bool groups = r->n_group > 1;
    TRY(model_read_int(m, "expert_group_used_count", groups, groups ? r->n_group : 1, groups ? r->n_group : 0,
                       &r->n_group_used));
    if (!groups) return INFER_OK;
    if (r->n_expert % r->n_group || r->n_used > r->n_expert / r->n_group * r->n_group_used)
        return err_set(INFER_E_INPUT, "%s: %d of %d experts, of %d of %d groups: that many cannot be chosen",
                       m->file->path, r->n_used, r->n_expert, r->n_group_used, r->n_group);
    return INFER_OK;
}

static enum infer_status read_router(const struct model *m, struct router *r) {
    char key[128];
    bool norm = arch_default(m->arch, "expert_weights_norm", 1) != 0, there;
    TRY(model_read_int(m, "expert_used_count", 1, r->n_expert < ROUTE_USED_MAX ? r->n_expert : ROUTE_USED_MAX,
                       -1, &r->n_used));
    TRY(read_act(m, &r->act));
    TRY(read_groups(m, r));
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "expert_weights_norm"), &norm, &there));
    TRY(model_read_float(m, "expert_weights_scale", 0, 1e6f, 1, &r->scale));
    TRY(model_read_float(m, "router_logit_softcapping", 0, 1e6f, 0, &r->softcap));
    if (r->scale == 0) r->scale = 1; /* of files whose writers had nothing to say */
    r->norm = norm && r->act != ROUTE_CHOSEN && r->act != ROUTE_NEAR ? m->arch->moe.norm : ROUTE_NORM_NONE;
    r->eps = m->arch->moe.eps;
    r->group_top2 = m->arch->moe.group_top2 || r->act == ROUTE_SIGMOID;
    return INFER_OK;
}

/* The layers with experts: all behind the first dense ones, or those that a list names. */
static enum infer_status read_sparse(const struct model *m, uint32_t *sparse) {
    char key[128];
    bool there;
    static const char each[] = "interleave_moe_layer_step", second[] = "moe_every_n_layers";
    int dense, step = 1, every = 0;
    TRY(model_read_int(m, "leading_dense_block_count", 0, m->n_layer, 0, &dense));
    if (m->arch->keys && key_names(m->arch->keys, each, sizeof each - 1))
        TRY(model_read_int(m, each, 1, INT_MAX, 1, &step));
    if (m->arch->keys && key_names(m->arch->keys, second, sizeof second - 1))
        TRY(model_read_int(m, second, 2, INT_MAX, -1, &every));
    for (int i = 0; i < m->n_layer; i++)
        sparse[i] = i >= dense && (every ? i % every == 1 : (i + 1) % step == 0) &&
                    (!m->arch->mixer.alone || m->layer[i].mixer.kind == MIX_NONE);
    return meta_u32_array(m->file, model_key(m, key, sizeof key, "expert_layers"), sparse, (size_t)m->n_layer,
                          &there);
}

enum infer_status model_read_experts(struct model *m) {
    struct router r = {0};
    int ff, n_shared, shared, latent;
    TRY(model_read_int(m, "expert_count", 0, ROUTE_EXPERTS_MAX, 0, &r.n_expert));
    if (!r.n_expert || !m->arch->slot[SLOT_FFN_ROUTER]) {
        TRY(model_read_int(m, "expert_used_count", 0, INT_MAX, 0, &r.n_used));
        if (!r.n_expert && !r.n_used) return INFER_OK;
        return err_set(INFER_E_UNSUPPORTED, "%s: %s of %d with %s of %d: architecture %s has no experts%s",
                       m->file->path, "expert_count", r.n_expert, "expert_used_count", r.n_used,
                       m->arch->name, m->arch->slot[SLOT_FFN_ROUTER] ? " without both" : "");
    }
    TRY(read_router(m, &r));
    TRY(model_read_int(m, "expert_feed_forward_length", 1, MAX_EXPERT_FF, m->layer[0].dense.n_ff, &ff));
    TRY(model_read_int(m, "expert_shared_count", 0, 1024,
                       (int)arch_default(m->arch, "expert_shared_count", 0), &n_shared));
    if ((int64_t)n_shared * ff > MAX_EXPERT_FF) n_shared = 0; /* whose tensors are not that wide */
    TRY(model_read_int(m, "expert_shared_feed_forward_length", 0, MAX_EXPERT_FF, n_shared * ff, &shared));
    TRY(model_read_int(m, "moe_latent_size", 0, 1 << 20, 0, &latent));
    uint32_t *sparse = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *sparse);
    if (!sparse) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(read_sparse(m, sparse));
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        if (!sparse[i]) continue;
        l->moe.n_expert = r.n_expert;
        l->moe.n_used = r.n_used;
        l->moe.n_ff = ff;
        l->moe.n_ff_shared = shared;
        l->moe.n_latent = latent;
        l->moe.route = r;
    }
    return INFER_OK;
}

#include "cuda/plan/kv_halves_plan.h"
#include "base/mem.h"
#include "seam/op_list.h"

/* Bytes of a pool of rows of n halves; SIZE_MAX: more than there can be. */
static size_t pool_bytes(const struct backend_config *c, const struct kv_store *s, int n) {
    size_t b;
    const size_t rows = (size_t)c->kv_group[s->group].n_page * KV_PAGE;
    return size_mul(rows, (size_t)s->n_kv_head * kv_row_bytes(KV_F16, n), &b) && size_align(b, 1024, &b)
               ? b
               : SIZE_MAX;
}

/* Whether a kernel of prompt rows reads the whole store, not what is chosen of it. */
static bool is_read_whole(const struct backend_config *c, int store) {
    const struct op_list *l = c->list[ROW_PROMPT];
    for (int i = 0; i < l->n_op; i++) {
        const struct op_attend *o = &l->op[i].attend;
        if (l->op[i].kind == OP_ATTEND && o->store == store && !o->by.n_top && !o->entries) return true;
    }
    return false;
}
struct kv_halves_plan kv_halves_plan_of(const struct backend_config *c) {
    struct kv_halves_plan p = {0, 0};
    size_t k = 0, v = 0;
    if (c->kv_type == KV_F16 || c->no_fuse || !c->list[ROW_PROMPT]) return p;
    for (int i = 0; i < c->n_store; i++) {
        const struct kv_store *s = &c->store[i];
        if (!config_uses_store(c, i) || !s->head_dim_v || !is_read_whole(c, i)) continue;
        const size_t keys = pool_bytes(c, s, s->head_dim_k), values = pool_bytes(c, s, kv_v_dim(s));
        if (keys > k) k = keys;
        if (values > v) v = values;
    }
    p.v = k;
    if (!size_add(k, v, &p.bytes)) p.bytes = SIZE_MAX;
    return p;
}

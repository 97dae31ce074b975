#include "cuda/plan/cuda_plan.h"
#include "cuda/plan/moe_grouped_plan.h"

static size_t take(struct moe_grouped_plan *p, size_t bytes) {
    size_t at = p->bytes;
    p->bytes += (bytes + 1023) & ~(size_t)1023;
    return at;
}

struct moe_grouped_plan moe_grouped_plan_of(const struct op_list *l) {
    struct moe_grouped_plan p = {0};
    size_t tiles = 0, x = 0, glu = 0;
    for (int i = 0; l && i < l->n_op; i++) {
        if (l->op[i].kind != OP_EXPERTS) continue;
        const struct op_experts *o = &l->op[i].experts;
        size_t n = (size_t)o->n_used * (size_t)(l->max_rows > l->max_out ? l->max_rows : l->max_out);
        size_t t = cuda_pair_tiles(n, o->w->member[0].n_stack);
        tiles = t > tiles ? t : tiles;
        size_t *act = o->by_choice ? &glu : &x,
               bytes = t * CUDA_PAIR_TILE * (((size_t)o->w->k + 63) / 64 * 64) * 2;
        *act = bytes > *act ? bytes : *act;
    }
    p.pair = take(&p, tiles * CUDA_PAIR_TILE * 4);
    p.next = take(&p, ROUTE_EXPERTS_MAX * 4);
    p.tile = take(&p, (tiles + 1) * 16);
    p.x = take(&p, x);
    p.glu = take(&p, glu);
    return p;
}

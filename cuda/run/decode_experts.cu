// A mixture of experts of the decode list as the job of its kernels.
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

// Member i of a group of stacks; a step of its kernel takes so many row tiles of it.
static experts_stack stack_of(const cuda_backend *b, const struct weight_group *w, int i, int tiles) {
    const dev_matrix m = cuda_matrix(b, w->id, i);
    const size_t hop = (size_t)m.u * (size_t)layout_unit_bytes(m.layout);
    experts_stack s = {};
    s.layout = m.layout;
    s.first = m.region + (size_t)(m.base / UNIT_ROWS) * hop;
    s.stack = (size_t)(b->plan.group[w->id].member[i].step / UNIT_ROWS) * hop;
    s.tile = (size_t)tiles * hop;
    s.u = m.u;
    s.factor = m.factor;
    s.bias = m.bias;
    return s;
}
static void take_router(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const dev_matrix w = cuda_matrix(b, o.router->w->id, 0);
    j->x_router = cuda_rows(b, l, o.norm ? o.norm->x : o.router->x).p;
    j->x = cuda_rows(b, l, o.norm ? o.norm->x : o.gated->x).p;
    j->norm = o.norm ? cuda_constant(b, o.norm->w) : NULL;
    j->eps = o.norm ? o.norm->eps : 0;
    j->k_router = w.k;
    j->router_layout = w.layout;
    j->router = w.region;
    j->router_u = w.u;
    j->router_factor = w.factor;
    j->router_bias = w.bias;
    j->route = *o.route->router;
    j->route.bias = cuda_constant(b, j->route.bias);
    j->route.expert_scale = cuda_constant(b, j->route.expert_scale);
}
// The shared expert's, and what weighs it.
static bool take_shared(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    const struct weight_group *up = o.shared->w, *down = o.shared_down->w;
    j->shared = true;
    j->gate_shared = stack_of(b, up, 0, j->paired ? 2 : 1);
    j->up_shared = stack_of(b, up, 1, j->paired ? 2 : 1);
    if (j->paired) j->up_shared.first = j->gate_shared.first + j->gate_shared.tile / 2;
    j->down_shared = stack_of(b, down, 0, 1);
    if (o.weigh) {
        const dev_matrix w = cuda_matrix(b, o.weigh->w->id, 0);
        const size_t tile = (size_t)w.u * (size_t)layout_unit_bytes(w.layout);
        j->weigh.w = w.region + (size_t)(w.base / UNIT_ROWS) * tile;
        j->weigh.layout = w.layout;
        j->weigh.row = w.base % UNIT_ROWS;
        j->weigh.factor = w.factor;
        j->weigh.bias = w.bias;
        if (layout_kind(w.layout) == KIND_CODES) return false;
    }
    return b->plan.group[up->id].paired == j->paired && up->member[0].n == j->n_ff && down->n_member == 1 &&
           j->gate_shared.layout == j->gate.layout && j->up_shared.layout == j->gate.layout &&
           j->down_shared.layout == j->down.layout && !j->gate_shared.bias && !j->up_shared.bias &&
           !j->down_shared.bias;
}
static void take_stacks(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    j->paired = b->plan.group[o.gated->w->id].paired;
    j->gate = stack_of(b, o.gated->w, 0, j->paired ? 2 : 1);
    j->up = stack_of(b, o.gated->w, 1, j->paired ? 2 : 1);
    if (j->paired) j->up.first = j->gate.first + j->gate.tile / 2;
    j->k = o.gated->w->k;
    j->n_ff = o.gated->w->member[0].n;
    j->act = o.glu->act;
    j->limit = o.glu->k.limit;
    j->alpha = o.glu->k.alpha;
    j->down = stack_of(b, o.down->w, 0, 1);
    j->d = o.down->w->n;
}

bool experts_one_make(const cuda_backend *b, const struct cuda_link *k, experts_link *e) {
    experts_one_job *j = &e->job;
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct experts_ops o = link_experts_ops(l, k);
    const size_t room = b->plan.half_row_bytes * 2; // of the packets of a slot
    memset(e, 0, sizeof *e);
    if (l->max_rows != 1) return false;
    take_router(b, o, j);
    take_stacks(b, o, j);
    if (o.shared && !take_shared(b, o, j)) return false;
    const size_t codes = (size_t)j->gate.u * EXPERTS_UNIT_PACKETS;
    j->out_kind = o.add ? EXPERTS_ADD : o.mix ? EXPERTS_MIX : EXPERTS_EACH;
    j->out = cuda_rows(b, l, link_writes(l, k)).p;
    if (!o.mix) j->choice = cuda_rows(b, l, o.route->choice).p;
    j->codes = b->work + b->plan.packet[ACT_ATTENDED];
    j->logits = (uint2 *)(j->codes + codes);
    j->glu = b->work + b->plan.packet[ACT_GATED];
    j->seq = &b->t.step->seq;
    j->copies =
        codes < room ? (int)((room - codes) / ((size_t)(j->route.n_expert + 2) * sizeof *j->logits)) : 0;
    if (j->copies > EXPERTS_COPIES) j->copies = EXPERTS_COPIES;
    return o.down->w->n_member == 1 && j->gate.layout == j->up.layout && j->copies > 0 &&
           (size_t)experts_choices(j) * experts_glu_bytes(j->n_ff) <= room &&
           experts_one_plan(j, b->sm_count, decode_shared_memory(b), &e->plan);
}

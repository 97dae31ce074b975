#include "cuda/run/halves.h"
#include "cuda/plan/kv_halves_plan.h"

kv_halves_job cuda_halves(const cuda_backend *b, const struct op_attend *o) {
    const struct kv_store *s = &b->c.store[o->store];
    kv_halves_job j = {};
    j.kv = cuda_store(b, o->store);
    j.k = b->work + b->plan.kv_k[b->c.n_store];
    j.v = j.k + kv_halves_plan_of(&b->c).v;
    j.turn_k = kv_turn_of(s, false);
    j.turn_v = kv_turn_of(s, true);
    j.window = o->window;
    j.n_slot = b->c.n_slot;
    j.n_row = &b->t.step->n_row;
    j.pos = b->t.pos;
    j.slot = b->t.slot;
    j.n_block = 2 * b->sm_count;
    return j;
}

// Links of one row of codes whose matrices do not come out even between blocks or warps: their jobs for gemv_streamk.cuh.
#include "cuda/run/decode_program_impl.h"
#include "cuda/plan/streamk.h"

enum { STREAMK_SHARE = 90 }; // percent: of the blocks' and warps' time that the plain kernel uses, at most
// What it uses: the most steps of a block, and units of a warp, beside those that each would have if all had as many.
static double plain_share(const gemv_args &j, const struct mm_kernel *k, int blocks) {
    const bool two = k->l2 != LAYOUT_COUNT;
    const int n0 = two ? j.split : blocks, n1 = blocks - n0;
    const double a = layout_unit_bytes(k->l), b = two ? layout_unit_bytes(k->l2) : 0,
                 t0 = (j.steps[0] + n0 - 1) / n0 * a, t1 = two ? (j.steps[1] + n1 - 1) / n1 * b : 0;
    const int of_warp = (j.u + k->warps - 1) / k->warps;
    return (j.steps[0] * a + j.steps[1] * b) / blocks / (t0 > t1 ? t0 : t1) * j.u / (of_warp * k->warps);
}
// Of a sum: whether what blocks tell each other is little beside what each warp has to do (27B, H200: 11 units 14% less time, 4 units 7% more).
static bool long_enough(const matmul_link *l) {
    enum { LEAST_UNITS = 8 };
    return (int64_t)l->job.steps[0] * l->job.u >= (int64_t)LEAST_UNITS * l->k->warps * l->blocks;
}
// The stream behind a product's norm, as its own kernel would be told of it; false: that kernel does more.
static bool streamk_post(const decode_link *d, streamk_job *e) {
    const post_job &p = d->post;
    if (e->j.bias || (p.gives && (!p.give.norm || p.give.give != GIVE_RECORD))) return false;
    e->j.res = p.give.x.p;
    e->j.next_norm = p.give.norm;
    e->j.square_out = p.give.square;
    e->j.give = p.give.give;
    e->j.xo = p.give.xo;
    e->j.xo_unit = p.give.xo_unit;
    e->post.norm = p.norm;
    e->post.eps = p.eps;
    e->post.inv_width = 1.f / (float)p.give.x.width;
    e->post.factor = p.factor;
    e->post.scale = p.scale;
    e->post.n_square = p.normed ? p.give.x.width / 16 : 0;
    e->post.hands_on = p.gives;
    return true;
}
// Of the link i, whose packets and stream are known.
void decode_streamk(const cuda_backend *b, decode_link *d, int i) {
    matmul_link *l = &d->mm;
    streamk_job *e = &l->streamk_job;
    const int epilogue = d->is.kind == LINK_POST ? (int)EPI_POST : (int)l->k->epilogue;
    const struct streamk_kernel *k = streamk_find(l->k->l, l->k->l2, l->k->ga, epilogue);
    if (!k || l->adapted || streamk_smem(k, l->x_bytes) > decode_shared_memory(b) ||
        plain_share(l->job, l->k, l->blocks) * 100 >= STREAMK_SHARE)
        return;
    // short steps lose more to the sharing than to a last round (8B Q4_K_M: 1%, 1B: 4%), unless warps wait, too
    if (epilogue == EPI_STORE && l->job.u % l->k->warps == 0) return;
    if (epilogue == EPI_ADD && (d->is.kind != LINK_RESIDUAL || !long_enough(l))) return;
    e->j = l->job;
    e->j.seq = &b->t.step->seq;
    e->tag = 1 + (uint32_t)i;
    const size_t turn = (size_t)(i % STREAMK_LINKS), squares = streamk_square_bytes(&b->plan);
    uint8_t *at = b->work + b->plan.packets + b->plan.handoff_bytes;
    e->sums = (uint2 *)(at + turn * STREAMK_SUMS);
    e->squares = (uint2 *)(at + STREAMK_LINKS * STREAMK_SUMS + turn * squares);
    if ((epilogue == EPI_POST && !streamk_post(d, e)) || !streamk_plan(e, k, l->blocks)) return;
    l->streamk = k;
}

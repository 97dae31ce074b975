// Two matmuls of one norm behind each other, of one row of codes: q k v and the gates of a delta rule, or of attention. The second
// starts when the first has the row, so that the end of the one and the begin of the other fill each other's gaps.
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

// Whether d reads the row of the link in front (is_again of links.c), and each is one launch that leaves rows.
static bool reads_again(const cuda_backend *b, const decode_link *front, const decode_link *d) {
    const struct op_list *l = decode_list(b);
    return front->is.kind == LINK_MATMUL && d->is.kind == LINK_MATMUL && d->is.norm >= 0 &&
           d->is.norm == front->is.norm && !d->from_rows && !front->other.k && !d->other.k &&
           !front->mm.job.give_handoff && !d->mm.job.give_handoff &&
           !b->plan.group[l->op[front->is.matmul].matmul.w->id].scaled;
}
void decode_twins(const cuda_backend *b, struct decode_program *p) {
    for (int i = 1; i < p->n_link; i++) {
        decode_link *front = &p->link[i - 1], *d = &p->link[i];
        if (front->mm.twin || !reads_again(b, front, d)) continue;
        d->mm.twin = gemv_twin_find(d->mm.k);
        front->mm.job.first |= d->mm.twin != NULL;
    }
}

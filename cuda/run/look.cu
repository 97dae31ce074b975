#include "cuda/run/look.h"
#include <stdlib.h>
#include "base/mem.h"
#include "cuda/plan/link_type.h"
#include "seam/op_list.h"
#include "seam/tap.h"

struct look {
    const struct tap *tap; // NULL: nobody watches
    const struct step *step;
    float *x; // x[rows of a step][the widest view], of a watched operation
    int width;
    unsigned long long *at; // pinned: the first element that is not finite
};

enum infer_status look_open(struct look **out, const cuda_backend *b) {
    TRY(mem_new(out, sizeof **out, "a look at operations"));
    struct look *k = *out;
    CU(cudaMallocHost((void **)&k->at, sizeof *k->at));
    if (!b->c.tap || !b->c.tap->wrote) return INFER_OK;
    size_t n = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; i < b->c.list[cls]->n_buf; i++) {
            const struct buf *f = &b->c.list[cls]->buf[i];
            const size_t all = buf_max_rows(b->c.list[cls], f) * (size_t)f->width;
            if (all > n) n = all;
        }
    TRY(mem_new(&k->x, n * sizeof *k->x, "rows of operations"));
    k->tap = b->c.tap;
    return INFER_OK;
}
void look_close(struct look *k) {
    if (!k) return;
    if (k->at) cudaFreeHost(k->at);
    mem_free(k->x);
    mem_free(k);
}
bool look_watches(const cuda_backend *b) { return b->look->tap != NULL; }
void look_step(const cuda_backend *b, const struct step *s) { b->look->step = s; }

// ---- for who watches
static const float *row_of(void *from, struct view v, int t) {
    const struct look *k = (const struct look *)from;
    (void)v;
    return k->x + (size_t)t * k->width;
}
static enum infer_status tell(cuda_backend *b, const struct op_list *l, const struct op *op) {
    struct look *k = b->look;
    const struct op_use u = op_uses(op);
    const int n = op_rows_count(l, op, k->step->n_row, k->step->n_out);
    if (!u.n_write || !n) return INFER_OK;
    k->width = u.write[0].width;
    TRY(backend_cuda.read(&b->base, l->cls, u.write[0], n, k->x));
    tap_wrote(k->tap, l, op, k->step, row_of, k);
    return INFER_OK;
}
enum infer_status look_link(cuda_backend *b, const struct op_list *l, const program_link *d) {
    const bool head = d->is.product == PRODUCT_CHOSEN;
    if (!b->look->tap || !b->look->step) return INFER_OK;
    if (!head && !link_types[d->is.kind]->stream && d->is.gives != FORM_ROWS) return INFER_OK;
    return tell(b, l, &l->op[head ? d->is.matmul : d->is.first + d->is.n_op - 1]);
}
enum infer_status look_ops(cuda_backend *b, const struct op_list *l, int first, int n_op) {
    return b->look->tap && b->look->step ? tell(b, l, &l->op[first + n_op - 1]) : INFER_OK;
}

// ---- what is not finite
enum { LOOK_THREADS = 1024 };
__global__ void __launch_bounds__(LOOK_THREADS)
    first_not_finite_kernel(rows x, int n, unsigned long long *at) {
    __shared__ unsigned long long least;
    if (threadIdx.x == 0) least = ~0ull;
    __syncthreads();
    const unsigned long long all = (unsigned long long)n * x.width;
    for (unsigned long long i = threadIdx.x; i < all; i += LOOK_THREADS) {
        const float v = x.p[i / x.width * x.stride + i % x.width];
        if (v - v == 0) continue;
        atomicMin(&least, i);
        break;
    }
    __syncthreads();
    if (threadIdx.x == 0) *at = least;
}
static struct step step_of(const cuda_backend *b, const uint8_t *blob) {
    auto at = [&](const void *dev) {
        return (const int32_t *)(blob + ((const uint8_t *)dev - (const uint8_t *)b->t.step));
    };
    const dev_step *head = (const dev_step *)blob;
    struct step s = {};
    s.n_row = head->n_row;
    s.n_out = head->n_out;
    s.id = at(b->t.id);
    s.pos = at(b->t.pos);
    s.slot = at(b->t.slot);
    s.out_row = at(b->t.out_row);
    return s;
}
static enum infer_status look_at(cuda_backend *b, const struct op_list *l, const struct op *op,
                                 const struct step *s) {
    const struct op_use u = op_uses(op);
    const int n = op_rows_count(l, op, s->n_row, s->n_out);
    if (!u.n_write || !n) return INFER_OK;
    const struct view v = u.write[0];
    first_not_finite_kernel<<<1, LOOK_THREADS, 0, b->stream>>>(cuda_rows(b, l, v), n, b->look->at);
    CU(cudaGetLastError());
    CU(cudaStreamSynchronize(b->stream));
    const unsigned long long at = *b->look->at;
    return at == ~0ull ? INFER_OK
                       : op_not_finite(op, op_row_pos(l, op, s, (int)(at / v.width)), (int)(at % v.width));
}
// The others of several ranks, and experts of the host, would have to come, too.
static bool runs_alone(const cuda_backend *b) { return !b->ranks && !b->host; }

enum infer_status look_for_fault(cuda_backend *b, enum row_class cls, const uint8_t *blob) {
    const struct op_list *l = b->c.list[cls];
    const struct step s = step_of(b, blob);
    const op_queue q = {b->stream, false};
    if (!runs_alone(b)) return err_set(INFER_E_NAN, "the logits are not finite");
    CU(cudaMemcpyAsync((void *)b->t.step, blob, b->plan.step_bytes, cudaMemcpyHostToDevice, b->stream));
    TRY(cuda_rope_tables(b, s.n_row, q));
    for (int i = 0; i < l->n_op; i++) {
        if (l->op[i].kind == OP_SELECT) continue; // the step is counted already
        TRY(cuda_run_ops(b, cls, i, 1, s.n_row, s.n_out, q));
        TRY(look_at(b, l, &l->op[i], &s));
    }
    return err_set(INFER_E_NAN,
                   "the logits are not finite, though all values are that the plain kernels compute "
                   "(.no_fuse)");
}

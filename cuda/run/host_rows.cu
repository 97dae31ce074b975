#include "cuda/run/host_rows.h"
#include <stdio.h>
#include "base/mem.h"
#include "cuda/plan/host_part.h"

struct host_status {
    enum infer_status status;
    char message[256];
};
struct host_rows {
    struct host_part at;
    uint8_t *pinned;
    struct host_status now, flight[CUDA_FLIGHT];
};

static enum infer_status take_pinned(struct host_rows *h) {
    CU(cudaMallocHost((void **)&h->pinned, h->at.bytes));
    return INFER_OK;
}
enum infer_status host_rows_open(struct host_rows **out, const struct backend_config *c) {
    const struct host_part at = host_part_of(c);
    *out = NULL;
    if (!at.bytes) return INFER_OK;
    TRY(mem_new(out, sizeof **out, "rows of the host"));
    (*out)->at = at;
    return take_pinned(*out);
}
void host_rows_close(struct host_rows *h) {
    if (h && h->pinned) cudaFreeHost(h->pinned);
    mem_free(h);
}

static float *rows_of(const struct host_rows *h, size_t at) { return (float *)(h->pinned + at); }

// The host's part of one operation; behind a failure nothing more is computed in this step.
static void compute(struct host_rows *h, const struct remote *e, const struct op_list *l, const struct op *o,
                    int n) {
    if (h->now.status != INFER_OK) return;
    h->now.status = e->run(e->user, l->cls, o->layer, n, rows_of(h, h->at.x), rows_of(h, h->at.choice),
                           rows_of(h, h->at.out));
    if (h->now.status != INFER_OK) snprintf(h->now.message, sizeof h->now.message, "%s", err_message());
}

static enum infer_status to_pinned(float *to, const rows &from, int n, cudaStream_t s) {
    const size_t width = (size_t)from.width * 4;
    CU(cudaMemcpy2DAsync(to, width, from.p, from.stride * 4, width, (size_t)n, cudaMemcpyDeviceToHost, s));
    return INFER_OK;
}
enum infer_status host_rows_run(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s) {
    struct host_rows *h = b->host;
    const rows out = cuda_rows(b, l, o->remote.out);
    const size_t width = (size_t)out.width * 4;
    TRY(to_pinned(rows_of(h, h->at.x), cuda_rows(b, l, o->remote.x), n, s.stream));
    TRY(to_pinned(rows_of(h, h->at.choice), cuda_rows(b, l, o->remote.choice), n, s.stream));
    CU(cudaStreamSynchronize(s.stream));
    compute(h, b->c.remote, l, o, n);
    CU(cudaMemcpy2DAsync(out.p, out.stride * 4, rows_of(h, h->at.out), width, width, (size_t)n,
                         cudaMemcpyHostToDevice, s.stream));
    return INFER_OK;
}

void host_rows_begin(struct host_rows *h) {
    if (h) h->now.status = INFER_OK;
}
void host_rows_end(struct host_rows *h, unsigned f) {
    if (h) h->flight[f] = h->now;
}
enum infer_status host_rows_status(const struct host_rows *h, unsigned f) {
    if (!h || h->flight[f].status == INFER_OK) return INFER_OK;
    return err_set(h->flight[f].status, "%s", h->flight[f].message);
}

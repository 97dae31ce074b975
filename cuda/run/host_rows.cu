#include "cuda/run/host_rows.h"
#include <stdio.h>
#include "base/mem.h"
#include "cuda/plain/to_host.h"
#include "cuda/plan/host_part.h"

struct host_status {
    enum infer_status status;
    char message[256];
};
struct host_rows {
    struct host_part at;
    uint8_t *pinned;
    uint32_t turn; // turns of graphs so far
    struct host_status now, flight[CUDA_FLIGHT];
};

static enum infer_status take_pinned(struct host_rows *h) {
    CU(cudaMallocHost((void **)&h->pinned, h->at.bytes));
    memset(h->pinned + h->at.turns, 0, sizeof(struct host_turns));
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

static float *x_of(const struct host_rows *h) { return (float *)(h->pinned + h->at.x); }
static float *choice_of(const struct host_rows *h) { return (float *)(h->pinned + h->at.choice); }
static float *out_of(const struct host_rows *h) { return (float *)(h->pinned + h->at.out); }
static struct host_turns *turns_of(const struct host_rows *h) {
    return (struct host_turns *)(h->pinned + h->at.turns);
}

// The host's part of one operation; behind a failure nothing more is computed in this step.
static void compute(struct host_rows *h, const struct op_list *l, const struct op *o, int n) {
    const struct elsewhere *e = op_elsewhere(o);
    if (h->now.status != INFER_OK) return;
    h->now.status = e->run(e->user, l->cls, o->layer, n, x_of(h), choice_of(h), out_of(h));
    if (h->now.status != INFER_OK) snprintf(h->now.message, sizeof h->now.message, "%s", err_message());
}

static enum infer_status to_pinned(float *to, const rows &from, int n, cudaStream_t s) {
    const size_t width = (size_t)from.width * 4;
    CU(cudaMemcpy2DAsync(to, width, from.p, from.stride * 4, width, (size_t)n, cudaMemcpyDeviceToHost, s));
    return INFER_OK;
}
static enum infer_status at_once(struct host_rows *h, const struct op_list *l, const struct op *o,
                                 const to_host_job &j, int n, cudaStream_t s) {
    const size_t width = (size_t)j.out.width * 4;
    TRY(to_pinned(j.to_x, j.x, n, s));
    TRY(to_pinned(j.to_choice, j.choice, n, s));
    CU(cudaStreamSynchronize(s));
    compute(h, l, o, n);
    CU(cudaMemcpy2DAsync(j.out.p, j.out.stride * 4, j.from, width, width, (size_t)n, cudaMemcpyHostToDevice,
                         s));
    return INFER_OK;
}

enum infer_status host_rows_queue(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                  op_queue s) {
    struct host_rows *h = b->host;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    to_host_job j = {};
    j.x = cuda_rows(b, l, o->experts.x);
    j.choice = cuda_rows(b, l, o->experts.choice);
    j.out = cuda_rows(b, l, o->experts.out);
    j.to_x = x_of(h);
    j.to_choice = choice_of(h);
    j.from = out_of(h);
    j.turns = turns_of(h);
    j.turn = (uint32_t *)b->next_decode +
             32; // the counters' last line, of which the count of steps is the first word
    j.arrived = b->next_decode + 33;
    CU(cudaStreamIsCapturing(s.stream, &capture));
    if (capture == cudaStreamCaptureStatusNone) return at_once(h, l, o, j, n, s.stream);
    CU(to_host_run(b->t, j, n, s));
    return INFER_OK;
}

// Until the card asks for the turn; now and then a look whether it is still there.
static enum infer_status asked(const cuda_backend *b, uint32_t turn) {
    const uint32_t *word = &turns_of(b->host)->asked;
    for (unsigned i = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != turn; i++) {
        __builtin_ia32_pause();
        if (i % 65536) continue;
        const cudaError_t e = cudaStreamQuery(b->stream);
        if (e == cudaErrorNotReady) continue;
        CU(e);
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != turn)
            return err_set(INFER_E_DEVICE, "cuda: the card did not ask for the experts of a layer");
    }
    return INFER_OK;
}
enum infer_status host_rows_answer(cuda_backend *b, const struct op_list *l, int n_row) {
    struct host_rows *h = b->host;
    for (int i = 0; h && i < l->n_op; i++) {
        if (!op_is_elsewhere(&l->op[i])) continue;
        TRY(asked(b, ++h->turn));
        compute(h, l, &l->op[i], n_row);
        __atomic_store_n(&turns_of(h)->answered, h->turn, __ATOMIC_RELEASE);
    }
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

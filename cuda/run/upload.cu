// Weights to the device: threads copy rows of the map into pinned memory, each on its own stream, and the device
// re-tiles what arrives.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include "cuda/run/adapters_run.h"
#include "cuda/run/cuda_ranks.h"
#include "seam/op_list.h"
#include "seam/weight.h"
#include "base/mem.h"

enum { UPLOAD_THREADS = 8 };

struct upload {
    cuda_backend *b;
    size_t chunk, done, total;
    int group, member, matrix, row; // next rows to take
    uint8_t *pinned;
    pthread_mutex_t lock;
    enum infer_status status;
    char message[512];
};
struct piece { // rows of one matrix
    struct weight w;
    const cuda_region *r;
    cuda_member m;
    int row, n;
};

static const struct weight *weight_of(const cuda_backend *b, int group, int member) {
    return group < b->c.n_group ? &b->c.group[group]->member[member] : b->c.embedding;
}
// The next rows of the model, false at the end.
static bool next_piece(upload *u, piece *p) {
    cuda_backend *b = u->b;
    pthread_mutex_lock(&u->lock);
    while (u->group < b->plan.n_group && !b->plan.group[u->group].n_member) u->group++; // on another device
    bool more = u->status == INFER_OK && u->group < b->plan.n_group;
    if (more) {
        const cuda_group *g = &b->plan.group[u->group];
        const cuda_member *m = &g->member[u->member];
        const struct weight *w = weight_of(b, u->group, u->member);
        size_t row = quant_row_bytes(quant_info(w->type), (size_t)w->k);
        int n = (int)(u->chunk / row);
        if (n < 1) n = 1;
        if (n > m->n - u->row) n = m->n - u->row;
        *p = piece{weight_matrix(w, u->matrix), &g->region[m->region], *m, u->row, n};
        p->m.base += u->matrix * m->step;
        u->row += n;
        u->done += row * (size_t)n;
        if (u->row == m->n) {
            u->row = 0;
            if (++u->matrix == w->n_stack) {
                u->matrix = 0;
                u->member++;
            }
            if (u->member == g->n_member) {
                u->member = 0;
                u->group++;
            }
        }
        if (b->c.progress) b->c.progress(b->c.user, "upload", (double)u->done, (double)u->total);
    }
    pthread_mutex_unlock(&u->lock);
    return more;
}

static enum infer_status upload_pieces(upload *u, int thread) {
    cuda_backend *b = u->b;
    cudaStream_t s;
    CU(cudaSetDevice(b->device));
    CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    uint8_t *host = u->pinned + (size_t)thread * u->chunk,
            *dev = b->work + b->plan.stage + (size_t)thread * u->chunk;
    enum infer_status st = INFER_OK;
    piece p;
    while (st == INFER_OK && next_piece(u, &p)) {
        size_t row = quant_row_bytes(quant_info(p.w.type), (size_t)p.w.k), bytes = row * (size_t)p.n;
        if (bytes > u->chunk) {
            st = err_set(INFER_E_UNSUPPORTED, "cuda: a row of %s has %zu bytes", p.w.name, row);
            break;
        }
        if (weight_stride(&p.w) == row && weight_run(&p.w) == p.w.n)
            memcpy(host, weight_row(&p.w, p.row), bytes);
        else
            for (int i = 0; i < p.n; i++) memcpy(host + (size_t)i * row, weight_row(&p.w, p.row + i), row);
        cudaError_t e = cuda_fails_now() ? cudaErrorUnknown
                                         : cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, s);
        if (e == cudaSuccess && cuda_fails_now()) e = cudaErrorUnknown;
        if (e == cudaSuccess) e = cuda_repack(p.r, &p.m, p.w.type, b->weights, dev, row, p.row, p.n, s);
        if (e == cudaSuccess) e = cudaStreamSynchronize(s);
        if (e != cudaSuccess) st = cuda_error(e, "upload");
    }
    cudaStreamDestroy(s);
    return st;
}

struct upload_thread {
    upload *u;
    int index;
    pthread_t id;
};
static void *upload_main(void *arg) {
    upload_thread *t = (upload_thread *)arg;
    enum infer_status st = upload_pieces(t->u, t->index);
    if (st != INFER_OK) {
        pthread_mutex_lock(&t->u->lock);
        if (t->u->status == INFER_OK) {
            t->u->status = st;
            snprintf(t->u->message, sizeof t->u->message, "%s", err_message());
        }
        pthread_mutex_unlock(&t->u->lock);
    }
    return NULL;
}

// norm weights, biases, frequencies, sinks
static enum infer_status upload_constants(cuda_backend *b) {
    size_t at = 0;
    auto add = [&](const void *host, size_t n) -> enum infer_status {
        for (int i = 0; i < b->n_constant; i++) if (b->constant[i].host == host) return INFER_OK;
        if (b->n_constant == CUDA_CONSTANT_MAX || at + n > b->plan.constant_bytes)
            infer_bug("too many constants");
        CU(cudaMemcpyAsync(b->work + b->plan.constant + at, host, n, cudaMemcpyHostToDevice, b->stream));
        b->constant[b->n_constant++] = {host, at};
        at += (n + 255) & ~(size_t)255;
        return INFER_OK;
    };
    for (int i = 0; i < b->c.n_group; i++) {
        if (!b->plan.group[i].bias) continue;
        for (int m = 0; m < b->c.group[i]->n_member; m++) {
            const struct weight *w = &b->c.group[i]->member[m];
            const size_t n = (size_t)w->n * 4, stack = (size_t)w->n_stack;
            uint8_t *dst = b->work + b->plan.constant + b->plan.group[i].bias_offset +
                           (size_t)b->plan.group[i].member[m].col * 4 * stack;
            if (!w->bias) CU(cudaMemsetAsync(dst, 0, n * stack, b->stream));
            for (int e = 0; w->bias && e < w->n_stack; e++, dst += n)
                CU(cudaMemcpyAsync(dst, weight_bias(w, e), n, cudaMemcpyHostToDevice, b->stream));
        }
        size_t bytes = (size_t)b->c.group[i]->n * (size_t)b->plan.group[i].n_stack * 4;
        size_t end = b->plan.group[i].bias_offset + ((bytes + 255) & ~(size_t)255);
        if (end > at) at = end;
    }
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = b->c.list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            const struct op *o = &l->op[i];
            const struct op_use u = op_uses(o);
            for (int j = 0; j < u.n_constant; j++)
                TRY(add(u.constant[j].data, (size_t)u.constant[j].n * sizeof(float)));
            if (o->kind != OP_ROPE) continue;
            bool known = false;
            for (int j = 0; j < b->n_rope; j++) known |= b->rope[j] == o->rope.rope;
            if (!known && b->n_rope == CUDA_ROPE_MAX)
                return err_set(INFER_E_UNSUPPORTED, "cuda: more than %d kinds of rope", CUDA_ROPE_MAX);
            if (!known) b->rope[b->n_rope++] = o->rope.rope;
        }
    }
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}

static enum infer_status upload_weights(cuda_backend *b) {
    upload_thread threads[UPLOAD_THREADS];
    upload u = {};
    u.b = b;
    u.chunk = b->plan.stage_bytes / UPLOAD_THREADS;
    for (int g = 0; g < b->plan.n_group; g++)
        for (int m = 0; m < b->plan.group[g].n_member; m++) {
            const struct weight *w = weight_of(b, g, m);
            u.total += quant_row_bytes(quant_info(w->type), (size_t)w->k) * (size_t)w->n * (size_t)w->n_stack;
        }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cores < UPLOAD_THREADS ? (int)cores : UPLOAD_THREADS;
    u.pinned = b->pinned; // nothing else is there before the first step
    pthread_mutex_init(&u.lock, NULL);
    int started = 0;
    for (int i = 1; i < n; i++) {
        threads[i] = upload_thread{&u, i, 0};
        if (pthread_create(&threads[i].id, NULL, upload_main, &threads[i])) break;
        started = i;
    }
    threads[0] = upload_thread{&u, 0, 0};
    upload_main(&threads[0]);
    for (int i = 1; i <= started; i++) pthread_join(threads[i].id, NULL);
    pthread_mutex_destroy(&u.lock);
    if (u.status != INFER_OK) return err_set(u.status, "%s", u.message);
    return INFER_OK;
}

static enum infer_status upload_all(cuda_backend *b) {
    CU(cudaSetDevice(b->device));
    TRY(cuda_ranks_open(b));
    CU(cudaMemsetAsync(b->weights, 0, b->plan.weight_bytes, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    TRY(upload_constants(b));
    TRY(upload_weights(b));
    return cuda_adapters_upload(b);
}
enum infer_status cuda_upload(struct backend *base) {
    cuda_backend *b = (cuda_backend *)base;
    return cuda_ranks_leave(b, upload_all(b));
}

#include "cuda/run/cuda_ranks.h"
#include <stdio.h>
#include "base/mem.h"
#include "cuda/plan/rank_plan.h"
#include "seam/comm.h"

// What a rank lets the others have.
struct offer {
    cudaEvent_t sent;
    const float *mail;
};
struct cuda_ranks {
    struct comm *comm;
    struct rank_plan plan;
    uint8_t *at; // of the workspace
    bool wired;
    struct rank_wires wires;
    float *(*gathered)[CARDS_MAX]; // of each gather of decode rows
    cudaEvent_t sent[2];
    float *mail[2];
    uint8_t *pinned; // mail of cards that do not reach each other; NULL: theirs
    unsigned turn;   // of mail and events
    int *fault;
    bool registered;
    unsigned bad; // steps up to this one were lost
};

static bool by_events;
extern "C" void cuda_ranks_by_events(bool always) { by_events = always; }

// ---- who reaches whom
struct place {
    int device;
    bool alone;
};
// Whether this device may read and write the other's memory, from now on.
static bool reaches(int device, int other) {
    int can = 0;
    if (device == other) return true;
    if (cudaDeviceCanAccessPeer(&can, device, other) != cudaSuccess || !can) {
        (void)cudaGetLastError();
        return false;
    }
    const cudaError_t e = cudaDeviceEnablePeerAccess(other, 0);
    (void)cudaGetLastError();
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
}
static bool none(const bool *so, int n) {
    for (int i = 0; i < n; i++)
        if (so[i]) return false;
    return true;
}
static bool every(const bool *so, int n) {
    for (int i = 0; i < n; i++)
        if (!so[i]) return false;
    return true;
}
// direct: all pairs reach each other; apart: no two are the same card.
static enum infer_status look_around(const cuda_backend *b, struct comm *c, bool *direct, bool *apart) {
    int device[CARDS_MAX];
    bool all[CARDS_MAX], own = true;
    *apart = true;
    TRY(c->type->share(c, &b->device, sizeof *device, device));
    for (int r = 0; r < c->n_rank; r++) own &= reaches(b->device, device[r]);
    for (int r = 0; r < c->n_rank; r++)
        for (int k = 0; k < r; k++) *apart &= device[r] != device[k];
    TRY(c->type->share(c, &own, sizeof own, all));
    *direct = every(all, c->n_rank);
    return INFER_OK;
}

// ---- open
static enum infer_status take_events(struct cuda_ranks *r) {
    CU(cudaHostAlloc((void **)&r->fault, 64, cudaHostAllocPortable | cudaHostAllocMapped));
    *r->fault = 0;
    for (int i = 0; i < 2; i++) CU(cudaEventCreateWithFlags(&r->sent[i], cudaEventDisableTiming));
    return INFER_OK;
}
static enum infer_status take_mail(struct cuda_ranks *r, bool direct) {
    const size_t bytes = r->plan.mail_bytes;
    uint8_t *at = r->at;
    if (!direct) {
        CU(cudaHostAlloc((void **)&r->pinned, 2 * bytes, cudaHostAllocPortable | cudaHostAllocMapped));
        at = r->pinned;
    }
    for (int i = 0; i < 2; i++) r->mail[i] = (float *)(at + (size_t)i * bytes);
    return INFER_OK;
}
static int gathers_before(const struct op_list *l, int at) {
    int n = 0;
    for (int i = 0; i < at; i++) n += l->op[i].kind == OP_GATHER;
    return n;
}
// Where the columns of each gather of decode rows come together, on every card.
static enum infer_status share_gathers(const cuda_backend *b, struct cuda_ranks *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const int n = gathers_before(l, l->n_op);
    if (!n) return INFER_OK;
    TRY(mem_new(&r->gathered, (size_t)n * sizeof *r->gathered, "columns of ranks"));
    for (int i = 0, g = 0; i < l->n_op; i++) {
        if (l->op[i].kind != OP_GATHER) continue;
        const float *own = cuda_rows(b, l, l->op[i].gather.out).p;
        TRY(r->comm->type->share(r->comm, &own, sizeof own, r->gathered[g++]));
    }
    return INFER_OK;
}
struct wire_offer {
    uint2 *slot;
    uint32_t *flag;
};
static enum infer_status lay_wires(const cuda_backend *b, struct cuda_ranks *r) {
    struct wire_offer own = {(uint2 *)(r->at + r->plan.slots), (uint32_t *)(r->at + r->plan.flags)},
                      all[CARDS_MAX];
    const struct op_list *l = b->c.list[ROW_DECODE];
    struct rank_wires *w = &r->wires;
    TRY(r->comm->type->share(r->comm, &own, sizeof own, all));
    w->rank = r->comm->rank;
    w->n = r->comm->n_rank;
    w->n_op = rank_ops_before(l, l->n_op);
    w->seq = &b->t.step->seq;
    w->slot_n = r->plan.slot_n;
    w->fault = r->fault;
    for (int i = 0; i < w->n; i++) w->slot[i] = all[i].slot, w->flag[i] = all[i].flag;
    return share_gathers(b, r);
}
// The host's word that a rank left, for kernels: rank 0 gives it to the devices. A system that will not has the time alone.
static enum infer_status show_left(const cuda_backend *b, struct cuda_ranks *r) {
    struct comm *c = r->comm;
    bool shown[CARDS_MAX], own = false;
    if (c->rank == 0 && c->left)
        own = r->registered =
            cudaHostRegister(c->left, 4096, cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess;
    (void)cudaGetLastError();
    TRY(c->type->share(c, &own, sizeof own, shown));
    if (shown[0] && cudaHostGetDevicePointer((void **)&r->wires.left, c->left, 0) != cudaSuccess)
        r->wires.left = NULL;
    (void)cudaGetLastError();
    return INFER_OK;
}

static enum infer_status open_ranks(cuda_backend *b, struct cuda_ranks *r) {
    bool direct, apart;
    if (!r->comm->type->share)
        return err_set(INFER_E_UNSUPPORTED,
                       "cuda: ranks on cards are threads of one process yet, these are not");
    TRY(rank_plan_of(&r->plan, &b->c));
    r->at = b->work + b->plan.workspace_bytes - r->plan.bytes;
    TRY(look_around(b, r->comm, &direct, &apart));
    // Gathers inside of layers have come out right by events; by wires they have run on no two cards since each has its own place.
    const struct op_list *l = b->c.list[ROW_DECODE];
    r->wired = direct && apart && !by_events && b->prop.major >= 7 && gathers_before(l, l->n_op) <= 1;
    bool all[CARDS_MAX];
    TRY(r->comm->type->share(r->comm, &r->wired, sizeof *all, all));
    r->wired = every(all, r->comm->n_rank);
    TRY(take_events(r));
    TRY(take_mail(r, direct));
    TRY(lay_wires(b, r));
    TRY(show_left(b, r));
    if (!r->comm->rank)
        log_line(
            LOG_NOTE, "cuda: %d ranks; %s", r->comm->n_rank,
            r->wired ? "their cards write into each other's memory"
            : direct
                ? "their streams wait for each other: decode rows are no graph"
                : "their cards do not reach each other's memory: sums go through the host's, which is slow");
    return INFER_OK;
}
enum infer_status cuda_ranks_open(cuda_backend *b) {
    if (!b->c.comm || !b->c.n_rank) return INFER_OK;
    TRY(mem_new(&b->ranks, sizeof *b->ranks, "ranks"));
    b->ranks->comm = b->c.comm;
    return open_ranks(b, b->ranks);
}
void cuda_ranks_close(struct cuda_ranks *r) {
    if (!r) return;
    for (int i = 0; i < 2; i++)
        if (r->sent[i]) cudaEventDestroy(r->sent[i]);
    if (r->pinned) cudaFreeHost(r->pinned);
    if (r->fault) cudaFreeHost(r->fault);
    if (r->registered) cudaHostUnregister(r->comm->left);
    mem_free(r->gathered);
    mem_free(r);
}

enum infer_status cuda_ranks_same(cuda_backend *b, bool *so) {
    bool all[CARDS_MAX];
    if (!b->ranks) return INFER_OK;
    struct comm *c = b->ranks->comm;
    TRY(c->type->share(c, so, sizeof *so, all));
    if (!every(all, c->n_rank) && !none(all, c->n_rank)) *so = false;
    return INFER_OK;
}
bool cuda_ranks_wired(const cuda_backend *b) { return b->ranks && b->ranks->wired; }
struct rank_wires cuda_ranks_wires(const cuda_backend *b) {
    return b->ranks->wires;
}

// ---- by events
// What is in the mail, and where the others' lies, who are waited for. What was there two operations ago has been read: each rank's
// stream has since waited for all others' streams, behind their reading.
static enum infer_status exchange(const cuda_backend *b, rank_rows *j, cudaStream_t s) {
    struct cuda_ranks *r = b->ranks;
    struct offer all[CARDS_MAX];
    const unsigned k = r->turn++ & 1;
    const struct offer own = {r->sent[k], r->mail[k]};
    CU(cudaEventRecord(r->sent[k], s));
    TRY(r->comm->type->share(r->comm, &own, sizeof own, all));
    *j = rank_rows{};
    j->n = r->comm->n_rank;
    for (int i = 0; i < j->n; i++) {
        if (i != r->comm->rank) CU(cudaStreamWaitEvent(s, all[i].sent, 0));
        j->from[i] = all[i].mail;
    }
    return INFER_OK;
}
float *cuda_ranks_mail(const cuda_backend *b) { return b->ranks->mail[b->ranks->turn & 1]; }
static enum infer_status put_mail(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    const size_t width = (size_t)x.width * 4;
    CU(cudaMemcpy2DAsync(cuda_ranks_mail(b), width, x.p, x.stride * 4, width, (size_t)n, cudaMemcpyDefault,
                         s));
    return INFER_OK;
}
enum infer_status cuda_ranks_sum(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    rank_rows j;
    TRY(put_mail(b, x, n, s));
    TRY(exchange(b, &j, s));
    CU(rank_sum_launch(j, x, false, n, s));
    return INFER_OK;
}
enum infer_status cuda_ranks_add(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    rank_rows j;
    TRY(exchange(b, &j, s));
    CU(rank_sum_launch(j, x, true, n, s));
    return INFER_OK;
}
static enum infer_status gather_by_events(cuda_backend *b, rows x, rows out, const int *col, int n,
                                          cudaStream_t s) {
    rank_rows j;
    TRY(put_mail(b, x, n, s));
    TRY(exchange(b, &j, s));
    memcpy(j.col, col, (size_t)(j.n + 1) * sizeof *col);
    CU(rank_columns_launch(j, out, n, s));
    return INFER_OK;
}

// ---- one operation
static enum infer_status op_by_wire(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                    op_queue s) {
    const int nth = rank_ops_before(l, (int)(o - l->op));
    const bool reduce = o->kind == OP_REDUCE;
    const struct view v = reduce ? o->reduce.x : o->gather.x;
    const int *count = cuda_out_rows(l, v) ? &b->t.step->n_out : &b->t.step->n_row;
    if (reduce) {
        const rank_reduce_job j = {b->ranks->wires, nth, cuda_rows(b, l, v), count};
        CU(rank_reduce_launch(j, n, s.overlap, s.stream));
        return INFER_OK;
    }
    rank_gather_job j = {
        b->ranks->wires,    nth,  o->gather.col[b->ranks->comm->rank], cuda_rows(b, l, o->gather.out).stride,
        cuda_rows(b, l, v), count};
    memcpy(j.to, b->ranks->gathered[gathers_before(l, (int)(o - l->op))], sizeof j.to);
    CU(rank_gather_launch(j, s.overlap, s.stream));
    return INFER_OK;
}
enum infer_status cuda_ranks_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s) {
    if (!b->ranks) infer_bug("%s without ranks", o->name);
    if (l->cls == ROW_DECODE && b->ranks->wired) return op_by_wire(b, l, o, n, s);
    if (o->kind == OP_REDUCE) return cuda_ranks_sum(b, cuda_rows(b, l, o->reduce.x), n, s.stream);
    return gather_by_events(b, cuda_rows(b, l, o->gather.x), cuda_rows(b, l, o->gather.out), o->gather.col, n,
                            s.stream);
}

// ---- the end of a step
enum infer_status cuda_ranks_leave(cuda_backend *b, enum infer_status of_call) {
    struct comm *c = b->c.comm;
    if (of_call == INFER_OK || !c) return of_call;
    char message[512];
    snprintf(message, sizeof message, "%s", err_message());
    c->type->abort(c);
    cudaStreamSynchronize(b->stream);
    (void)cudaGetLastError();
    return err_set(of_call, "%s", message);
}
enum infer_status cuda_ranks_status(cuda_backend *b) {
    struct cuda_ranks *r = b->ranks;
    if (!r) return INFER_OK;
    const int fault = __atomic_exchange_n(r->fault, 0, __ATOMIC_ACQUIRE);
    if (fault) r->bad = b->n_run; // those behind it passed by, too
    if (fault && fault != RANK_LEFT)
        return err_set(INFER_E_DEVICE, "rank %d did not come to the step within %d s", fault - 1,
                       RANK_SECONDS);
    if (fault || (int)(r->bad - b->n_wait) >= 0)
        return err_set(INFER_E_CANCEL, "cancelled: another rank left the step");
    return INFER_OK;
}

#include <stdio.h>
#include <time.h>
#include "base/mem.h"
#include "cuda/run/cuda_ranks_impl.h"

static bool by_events;
extern "C" void cuda_ranks_by_events(bool always) { by_events = always; }

static bool none(const bool *so, int n) {
    for (int i = 0; i < n; i++)
        if (so[i]) return false;
    return true;
}

// ---- open
static enum infer_status take_events(struct cuda_ranks *r) {
    CU(cudaHostAlloc((void **)&r->fault, 64, cudaHostAllocPortable | cudaHostAllocMapped));
    *r->fault = 0;
    for (int i = 0; i < 2; i++) CU(cudaEventCreateWithFlags(&r->sent[i], cudaEventDisableTiming));
    return INFER_OK;
}
// In the card's memory where it is read there.
static enum infer_status take_mail(const cuda_backend *b, struct cuda_ranks *r, bool direct) {
    const size_t bytes = r->plan.mail_bytes;
    uint8_t *at = r->at;
    if (r->by == RANKS_HOST || (r->by == RANKS_EVENTS && !direct)) {
        CU(cudaHostAlloc((void **)&r->pinned, 2 * bytes, cudaHostAllocPortable | cudaHostAllocMapped));
        at = r->pinned;
    }
    for (int i = 0; i < 2; i++) r->mail[i] = (float *)(at + (size_t)i * bytes);
    if (r->by != RANKS_FLAGS) return INFER_OK;
    for (int i = 0; i < 2; i++) {
        void *all[CARDS_MAX];
        TRY(rank_addresses(b, r, r->mail[i], all));
        for (int k = 0; k < r->comm->n_rank; k++) r->mail_of[k][i] = (float *)all[k];
    }
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
        TRY(rank_addresses(b, r, cuda_rows(b, l, l->op[i].gather.out).p, (void **)r->gathered[g++]));
    }
    return INFER_OK;
}
// Two blocks a multiprocessor of the smallest card. With four, which fill it, 512 rows took 17 or 40 ms: blocks that others wait for had no room.
static enum infer_status bulk_blocks(const cuda_backend *b, struct cuda_ranks *r, int *out) {
    int all[CARDS_MAX];
    const int own = 2 * b->sm_count;
    TRY(r->comm->type->share(r->comm, &own, sizeof own, all));
    *out = BULK_BLOCKS;
    for (int i = 0; i < r->comm->n_rank; i++)
        if (all[i] < *out) *out = all[i];
    return INFER_OK;
}
static enum infer_status lay_wires(const cuda_backend *b, struct cuda_ranks *r) {
    void *slot[CARDS_MAX], *flag[CARDS_MAX], *meet[CARDS_MAX], *bulk[CARDS_MAX], *bulk_flag[CARDS_MAX];
    const struct op_list *l = b->c.list[ROW_DECODE];
    struct rank_wires *w = &r->wires;
    TRY(rank_addresses(b, r, r->at + r->plan.slots, slot));
    TRY(rank_addresses(b, r, r->at + r->plan.flags, flag));
    TRY(rank_addresses(b, r, r->at + r->plan.meets, meet));
    TRY(rank_addresses(b, r, r->at + r->plan.bulk, bulk));
    TRY(rank_addresses(b, r, r->at + r->plan.bulk_flags, bulk_flag));
    w->rank = r->comm->rank;
    w->n = r->comm->n_rank;
    w->n_op = rank_ops_before(l, l->n_op);
    w->seq = &b->t.step->seq;
    w->slot_n = r->plan.slot_n;
    w->bulk_n = r->plan.bulk_n;
    TRY(bulk_blocks(b, r, &w->bulk_blocks));
    w->fault = r->fault;
    for (int i = 0; i < w->n; i++) {
        w->slot[i] = (uint2 *)slot[i], w->flag[i] = (uint32_t *)flag[i], w->meet[i] = (uint32_t *)meet[i];
        w->bulk[i] = (float *)bulk[i], w->bulk_flag[i] = (uint32_t *)bulk_flag[i];
    }
    return share_gathers(b, r);
}
// The host's word that a rank left, for kernels: rank 0 gives it to the devices, each process to its own. A system that will not has the
// time alone.
static enum infer_status show_left(struct cuda_ranks *r) {
    struct comm *c = r->comm;
    bool shown[CARDS_MAX], own = false;
    if ((c->rank == 0 || !c->threads) && c->left)
        own = r->registered =
            cudaHostRegister(c->left, 4096, cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess;
    (void)cudaGetLastError();
    TRY(c->type->share(c, &own, sizeof own, shown));
    if (shown[c->threads ? 0 : c->rank] &&
        cudaHostGetDevicePointer((void **)&r->wires.left, c->left, 0) != cudaSuccess)
        r->wires.left = NULL;
    (void)cudaGetLastError();
    return INFER_OK;
}

// ---- which way
// Joins NCCL where every rank has it; *there: all have. A message says why one has not.
static enum infer_status join_nccl(struct cuda_ranks *r, bool *there) {
    struct comm *c = r->comm;
    unsigned char id[NCCL_ID_BYTES] = {0}, all[CARDS_MAX][NCCL_ID_BYTES];
    char why[512];
    enum infer_status st = nccl_open(&r->nccl);
    if (st == INFER_OK && !c->rank) st = nccl_id(r->nccl, id);
    snprintf(why, sizeof why, "%s", st ? err_message() : "on another rank NCCL is not here");
    TRY(rank_agree(r, st == INFER_OK, there));
    TRY(c->type->share(c, id, sizeof id, all));
    if (*there) return nccl_join(r->nccl, all[0], c->rank, c->n_rank);
    nccl_close(r->nccl, false);
    r->nccl = NULL;
    err_set(INFER_E_UNSUPPORTED, "%s", why);
    return INFER_OK;
}
static enum infer_status pick_of_processes(struct cuda_ranks *r, bool direct, bool apart) {
    const char *by = r->comm->cards;
    bool there = false;
    r->by = direct ? RANKS_FLAGS : RANKS_HOST;
    if (by && !strcmp(by, "peer"))
        return direct ? INFER_OK
                      : err_set(INFER_E_UNSUPPORTED, "ranks by peer: %s; nccl or host carries their sums",
                                apart ? "these cards, of several processes, do not reach each other's memory"
                                      : "two ranks have one card");
    if (by && !strcmp(by, "host")) r->by = RANKS_HOST;
    if (by && !strcmp(by, "nccl") && !apart)
        return err_set(INFER_E_UNSUPPORTED,
                       "ranks by nccl: two have one card, which NCCL has not; host does");
    if (by ? strcmp(by, "nccl") : direct || !apart) return INFER_OK;
    TRY(join_nccl(r, &there));
    if (there) r->by = RANKS_NCCL;
    if (!there && by) return INFER_E_UNSUPPORTED;
    if (!there && !r->comm->rank)
        log_line(LOG_WARN, "%s; sums of ranks go through the host's memory, which is slow", err_message());
    return INFER_OK;
}
static const char *words_for(const struct cuda_ranks *r, bool direct) {
    if (r->wired) return "their cards write into each other's memory";
    if (r->by == RANKS_NCCL) return "they add up by NCCL";
    if (r->by == RANKS_FLAGS) return "they read each other's memory: decode rows are no graph";
    if (r->by == RANKS_HOST) return "sums go through the host's memory, which is slow";
    return direct ? "their streams wait for each other: decode rows are no graph"
                  : "their cards do not reach each other's memory: sums go through the host's, which is slow";
}
static enum infer_status open_ranks(cuda_backend *b, struct cuda_ranks *r) {
    bool direct, apart;
    TRY(rank_plan_of(&r->plan, &b->c));
    r->at = b->work + b->plan.workspace_bytes - r->plan.bytes;
    TRY(rank_reach(b, r, &direct, &apart));
    if (!r->comm->threads) TRY(pick_of_processes(r, direct, apart));
    const bool wired = direct && apart && !by_events && r->by <= RANKS_FLAGS && b->prop.major >= 7;
    TRY(rank_agree(r, wired, &r->wired));
    TRY(take_events(r));
    TRY(take_mail(b, r, direct));
    if (r->by <= RANKS_FLAGS) TRY(lay_wires(b, r));
    if (r->by == RANKS_NCCL) TRY(rank_warm_nccl(b, b->stream));
    TRY(show_left(r));
    if (!r->comm->rank) log_line(LOG_NOTE, "cuda: %d ranks; %s", r->comm->n_rank, words_for(r, direct));
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
    nccl_close(r->nccl, r->comm->left && __atomic_load_n(r->comm->left, __ATOMIC_ACQUIRE));
    rank_reach_end(r);
    mem_free(r->gathered);
    mem_free(r);
}

enum infer_status cuda_ranks_same(cuda_backend *b, bool *so) {
    bool all[CARDS_MAX];
    if (!b->ranks) return INFER_OK;
    struct comm *c = b->ranks->comm;
    TRY(c->type->share(c, so, sizeof *so, all));
    if (!rank_every(all, c->n_rank) && !none(all, c->n_rank)) *so = false;
    return INFER_OK;
}
bool cuda_ranks_wired(const cuda_backend *b) { return b->ranks && b->ranks->wired; }
bool cuda_ranks_graph(const cuda_backend *b) {
    return !b->ranks || b->ranks->wired || b->ranks->by == RANKS_NCCL;
}
struct rank_wires cuda_ranks_wires(const cuda_backend *b) {
    return b->ranks->wires;
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
    CU(rank_gather_launch(j, n, s.overlap, s.stream));
    return INFER_OK;
}
enum infer_status cuda_ranks_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                op_queue s) {
    if (!b->ranks) infer_bug("%s without ranks", o->name);
    if (l->cls == ROW_DECODE && b->ranks->wired) return op_by_wire(b, l, o, n, s);
    if (o->kind == OP_REDUCE) return cuda_ranks_sum(b, cuda_rows(b, l, o->reduce.x), n, s.stream);
    return cuda_ranks_gather(b, cuda_rows(b, l, o->gather.x), cuda_rows(b, l, o->gather.out), o->gather.col,
                             n, s.stream);
}

// ---- the end of a step
// Kernels of NCCL know of nobody who left, and of no time.
static enum infer_status without_nccl(struct cuda_ranks *r) {
    nccl_close(r->nccl, true);
    r->nccl = NULL;
    return err_set(INFER_E_DEVICE, "another rank left the step or did not come to it, and NCCL has ended");
}
enum infer_status cuda_ranks_leave(cuda_backend *b, enum infer_status of_call) {
    struct comm *c = b->c.comm;
    if (of_call == INFER_OK || !c) return of_call;
    char message[512];
    snprintf(message, sizeof message, "%s", err_message());
    c->type->abort(c);
    if (b->ranks && b->ranks->nccl) (void)without_nccl(b->ranks);
    cudaStreamSynchronize(b->stream);
    (void)cudaGetLastError();
    return err_set(of_call, "%s", message);
}
enum infer_status cuda_ranks_await(cuda_backend *b, cudaEvent_t done) {
    enum { SECONDS = 30 };
    struct cuda_ranks *r = b->ranks;
    const time_t since = time(NULL);
    while (r && r->nccl && cudaEventQuery(done) == cudaErrorNotReady)
        if (__atomic_load_n(r->comm->left, __ATOMIC_ACQUIRE) || time(NULL) > since + SECONDS)
            return without_nccl(r);
    CU(cudaEventSynchronize(done));
    return INFER_OK;
}
enum infer_status cuda_ranks_there(const cuda_backend *b) {
    const struct cuda_ranks *r = b->ranks;
    return r && r->by == RANKS_NCCL && !r->nccl ? err_set(INFER_E_DEVICE, "NCCL has ended") : INFER_OK;
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

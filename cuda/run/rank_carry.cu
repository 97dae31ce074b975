// Operations in which ranks speak outside of wired kernels: sums and columns of rows by events, by flags, by NCCL or by the host.
#include "cuda/run/cuda_ranks_impl.h"

// What a rank lets the others have.
struct offer {
    cudaEvent_t sent;
    const float *mail;
};
// Where everybody's mail lies, who are waited for. An operation has one of two boxes: what was in it two operations ago has been read, as
// each rank's stream has since waited for all others' streams, behind their reading.
static enum infer_status by_events(const cuda_backend *b, rank_rows *j, cudaStream_t s) {
    struct cuda_ranks *r = b->ranks;
    struct offer all[CARDS_MAX];
    const unsigned k = r->turn++ & 1;
    const struct offer own = {r->sent[k], r->mail[r->box]};
    CU(cudaEventRecord(r->sent[k], s));
    TRY(r->comm->type->share(r->comm, &own, sizeof own, all));
    for (int i = 0; i < j->n; i++) {
        if (i != r->comm->rank) CU(cudaStreamWaitEvent(s, all[i].sent, 0));
        j->from[i] = all[i].mail;
    }
    return INFER_OK;
}
static enum infer_status by_flags(const cuda_backend *b, rank_rows *j, cudaStream_t s) {
    struct cuda_ranks *r = b->ranks;
    CU(rank_meet_launch(r->wires, ++r->turn, s));
    for (int i = 0; i < j->n; i++) j->from[i] = r->mail_of[i][r->box];
    return INFER_OK;
}
static enum infer_status exchange(const cuda_backend *b, rank_rows *j, cudaStream_t s) {
    *j = rank_rows{};
    j->n = b->ranks->comm->n_rank;
    return b->ranks->by == RANKS_FLAGS ? by_flags(b, j, s) : by_events(b, j, s);
}

static bool takes_turns(const struct cuda_ranks *r) { return r->by == RANKS_EVENTS || r->by == RANKS_FLAGS; }
float *cuda_ranks_mail(const cuda_backend *b) { return b->ranks->mail[b->ranks->box]; }
static void next_box(struct cuda_ranks *r) {
    if (takes_turns(r)) r->box ^= 1;
}
static enum infer_status put_mail(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    const size_t width = (size_t)x.width * 4;
    CU(cudaMemcpy2DAsync(cuda_ranks_mail(b), width, x.p, x.stride * 4, width, (size_t)n, cudaMemcpyDefault,
                         s));
    return INFER_OK;
}

// ---- two shots
static size_t one_shot = RANK_ONE_SHOT;
extern "C" void cuda_ranks_one_shot(size_t bytes) { one_shot = bytes; }

// Where each rank's part of a vector begins, in fours.
static void parts_of(size_t n, int n_rank, size_t *at) {
    for (int r = 0; r <= n_rank; r++) at[r] = r == n_rank ? n : n * (size_t)r / (size_t)n_rank & ~(size_t)3;
}
// x = (adds: x +) the sum of the mail of all of more than two ranks: each adds up a part of it, in its own mail, and all read all parts.
static enum infer_status sum_parts(const cuda_backend *b, rows x, bool adds, int n, cudaStream_t s) {
    const struct cuda_ranks *r = b->ranks;
    rank_rows j, own;
    rank_parts to = {};
    TRY(exchange(b, &j, s));
    parts_of((size_t)n * (size_t)x.width, j.n, to.at);
    const size_t a = to.at[r->comm->rank], len = to.at[r->comm->rank + 1] - a;
    own = j;
    for (int i = 0; i < j.n; i++) own.from[i] += a;
    if (len) CU(rank_sum_launch(own, rows{r->mail[r->box] + a, len, (int)len}, false, 1, s));
    TRY(exchange(b, &j, s));
    to.n = j.n;
    memcpy(to.from, j.from, sizeof to.from);
    CU(rank_parts_launch(to, x, adds, n, s));
    return INFER_OK;
}

// ---- NCCL
// v[n] = the sum of all ranks' v in their order. Two numbers have one sum; more are added up here, of few numbers all by everyone, of more
// a part by each.
static enum infer_status sum_by_nccl(const cuda_backend *b, float *v, size_t n, cudaStream_t s) {
    const struct cuda_ranks *r = b->ranks;
    const int n_rank = r->comm->n_rank, rank = r->comm->rank;
    if (n_rank == 2) return nccl_sum(r->nccl, v, n, s);
    rank_rows j = {};
    size_t at[CARDS_MAX + 1];
    parts_of(n, n_rank, at);
    const bool whole = n * 4 * (size_t)n_rank <= r->plan.mail_bytes && n * 4 <= one_shot;
    const size_t len = whole ? n : at[rank + 1] - at[rank];
    float *sum = whole ? v : v + at[rank];
    j.n = n_rank;
    for (int i = 0; i < n_rank; i++) j.from[i] = r->mail[1] + (size_t)i * len;
    TRY(whole ? nccl_all(r->nccl, v, r->mail[1], n, s) : nccl_parts(r->nccl, v, r->mail[1], at, s));
    if (len) CU(rank_sum_launch(j, rows{sum, len, (int)len}, false, 1, s));
    return whole ? INFER_OK : nccl_columns(r->nccl, sum, v, at, s);
}
// The library makes its connections when they are first used, which a graph that is being captured would be in the way of.
enum infer_status rank_warm_nccl(const cuda_backend *b, cudaStream_t s) {
    const struct cuda_ranks *r = b->ranks;
    const size_t n = r->plan.mail_bytes / 4;
    size_t at[CARDS_MAX + 1];
    parts_of(n, r->comm->n_rank, at);
    TRY(sum_by_nccl(b, r->mail[0], 256, s));
    TRY(sum_by_nccl(b, r->mail[0], n, s));
    TRY(nccl_columns(r->nccl, r->mail[0], r->mail[1], at, s));
    CU(cudaMemsetAsync(r->mail[0], 0, 2 * r->plan.mail_bytes, s));
    CU(cudaStreamSynchronize(s));
    return INFER_OK;
}
static enum infer_status gather_by_nccl(const cuda_backend *b, rows x, rows out, const int *col, int n,
                                        cudaStream_t s) {
    const struct cuda_ranks *r = b->ranks;
    rank_rows j = {};
    size_t at[CARDS_MAX + 1];
    j.n = r->comm->n_rank;
    for (int i = 0; i <= j.n; i++) at[i] = (size_t)n * (size_t)(j.col[i] = col[i]);
    for (int i = 0; i < j.n; i++) j.from[i] = r->mail[1] + at[i];
    TRY(put_mail(b, x, n, s));
    TRY(nccl_columns(r->nccl, r->mail[0], r->mail[1], at, s));
    CU(rank_columns_launch(j, out, n, s));
    return INFER_OK;
}

// ---- the host
static enum infer_status sum_by_host(const cuda_backend *b, int width, int n, cudaStream_t s) {
    struct comm *c = b->ranks->comm;
    CU(cudaStreamSynchronize(s));
    return c->type->reduce(c, b->ranks->mail[0], n, (size_t)width, width);
}
static enum infer_status gather_by_host(const cuda_backend *b, rows x, rows out, const int *col, int n,
                                        cudaStream_t s) {
    struct comm *c = b->ranks->comm;
    float *all = b->ranks->mail[0];
    const size_t row = (size_t)out.width * 4, own = (size_t)x.width * 4;
    CU(cudaMemcpy2DAsync(all + col[c->rank], row, x.p, x.stride * 4, own, (size_t)n, cudaMemcpyDefault, s));
    CU(cudaStreamSynchronize(s));
    TRY(c->type->gather(c, all, n, (size_t)out.width, col));
    CU(cudaMemcpy2DAsync(out.p, out.stride * 4, all, row, row, (size_t)n, cudaMemcpyDefault, s));
    return INFER_OK;
}

// ---- sums and columns
// x = (adds: x +) the sum of what all ranks have in their mail.
static enum infer_status add_up(const cuda_backend *b, rows x, bool adds, int n, cudaStream_t s) {
    const struct cuda_ranks *r = b->ranks;
    const size_t all = (size_t)n * (size_t)x.width;
    rank_rows j = {};
    if (takes_turns(r) && r->comm->n_rank > 2 && all * 4 > one_shot) return sum_parts(b, x, adds, n, s);
    if (takes_turns(r)) {
        TRY(exchange(b, &j, s));
    } else {
        j.n = 1, j.from[0] = r->mail[0];
        TRY(r->by == RANKS_NCCL ? sum_by_nccl(b, r->mail[0], all, s) : sum_by_host(b, x.width, n, s));
    }
    CU(rank_sum_launch(j, x, adds, n, s));
    return INFER_OK;
}
static enum infer_status sum_mail(const cuda_backend *b, rows x, bool adds, int n, cudaStream_t s) {
    const enum infer_status st = add_up(b, x, adds, n, s);
    next_box(b->ranks);
    return st;
}
enum infer_status cuda_ranks_sum(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    if (b->ranks->by == RANKS_NCCL && (n == 1 || x.stride == (size_t)x.width))
        return sum_by_nccl(b, x.p, (size_t)n * (size_t)x.width, s);
    TRY(put_mail(b, x, n, s));
    return sum_mail(b, x, false, n, s);
}
enum infer_status cuda_ranks_sum_to(const cuda_backend *b, rows y, rows x, int n, cudaStream_t s) {
    TRY(put_mail(b, y, n, s));
    return sum_mail(b, x, true, n, s);
}
enum infer_status cuda_ranks_add(const cuda_backend *b, rows x, int n, cudaStream_t s) {
    return sum_mail(b, x, true, n, s);
}
enum infer_status cuda_ranks_gather(const cuda_backend *b, rows x, rows out, const int *col, int n,
                                    cudaStream_t s) {
    rank_rows j;
    if (b->ranks->by == RANKS_NCCL) return gather_by_nccl(b, x, out, col, n, s);
    if (b->ranks->by == RANKS_HOST) return gather_by_host(b, x, out, col, n, s);
    TRY(put_mail(b, x, n, s));
    TRY(exchange(b, &j, s));
    memcpy(j.col, col, (size_t)(j.n + 1) * sizeof *col);
    CU(rank_columns_launch(j, out, n, s));
    next_box(b->ranks);
    return INFER_OK;
}

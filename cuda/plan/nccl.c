#include "cuda/plan/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

/* The part of nccl.h that is used, as its documentation gives it. */
enum { FLOAT32 = 7, SUM = 0, LEAST_VERSION = 21000 };
struct id {
    char bytes[NCCL_ID_BYTES];
};
typedef void *handle;

struct nccl {
    void *library;
    handle comm;
    int version, rank, n_rank;
    int (*get_version)(int *version);
    int (*get_id)(struct id *id);
    int (*join)(handle *comm, int n, struct id id, int rank);
    int (*destroy)(handle comm), (*abort)(handle comm);
    const char *(*words)(int result);
    int (*group_start)(void), (*group_end)(void);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, handle comm, void *stream);
    int (*all_gather)(const void *from, void *to, size_t n, int type, handle comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t n, int type, int root, handle comm, void *stream);
    int (*send)(const void *from, size_t n, int type, int peer, handle comm, void *stream);
    int (*receive)(void *to, size_t n, int type, int peer, handle comm, void *stream);
};

static enum infer_status find_all(struct nccl *n) {
    const struct {
        const char *name;
        void *slot;
    } names[] = {
        {"ncclGetVersion", &n->get_version}, {"ncclGetUniqueId", &n->get_id},
        {"ncclCommInitRank", &n->join},      {"ncclCommDestroy", &n->destroy},
        {"ncclCommAbort", &n->abort},        {"ncclGetErrorString", &n->words},
        {"ncclGroupStart", &n->group_start}, {"ncclGroupEnd", &n->group_end},
        {"ncclAllReduce", &n->all_reduce},   {"ncclAllGather", &n->all_gather},
        {"ncclBroadcast", &n->broadcast},    {"ncclSend", &n->send},
        {"ncclRecv", &n->receive},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(n->library, names[i].name);
        if (!f)
            return err_set(INFER_E_UNSUPPORTED, "this libnccl.so.2 has no %s: NCCL 2.10 or newer is wanted",
                           names[i].name);
        memcpy(names[i].slot, &f, sizeof f);
    }
    if (n->get_version(&n->version) || n->version < LEAST_VERSION)
        return err_set(INFER_E_UNSUPPORTED, "libnccl.so.2 is version %d: NCCL 2.10 or newer is wanted",
                       n->version);
    return INFER_OK;
}

enum infer_status nccl_open(struct nccl **out) {
    struct nccl *n;
    *out = NULL;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(INFER_E_UNSUPPORTED,
                       "NCCL is not here (%s): install NVIDIA's package libnccl2, or have LD_LIBRARY_PATH "
                       "name the folder of libnccl.so.2 (pip's nvidia-nccl has one)",
                       dlerror());
    enum infer_status st = mem_new(&n, sizeof *n, "NCCL");
    if (st) {
        dlclose(library);
        return st;
    }
    n->library = library;
    st = find_all(n);
    if (st) {
        nccl_close(n, false);
        return st;
    }
    *out = n;
    return INFER_OK;
}
void nccl_close(struct nccl *n, bool abort) {
    if (!n) return;
    if (n->comm) (void)(abort ? n->abort(n->comm) : n->destroy(n->comm));
    dlclose(n->library);
    mem_free(n);
}
void nccl_version(const struct nccl *n, char *out, size_t size) {
    snprintf(out, size, "%d.%d.%d", n->version / 10000, n->version / 100 % 100, n->version % 100);
}

static enum infer_status said(const struct nccl *n, int result, const char *call) {
    if (!result) return INFER_OK;
    return err_set(INFER_E_DEVICE, "%s: %s (NCCL_DEBUG=WARN says more)", call, n->words(result));
}
enum infer_status nccl_id(const struct nccl *n, void *id) {
    return said(n, n->get_id(id), "ncclGetUniqueId");
}
enum infer_status nccl_join(struct nccl *n, const void *id, int rank, int n_rank) {
    struct id of;
    memcpy(&of, id, sizeof of);
    n->rank = rank, n->n_rank = n_rank;
    return said(n, n->join(&n->comm, n_rank, of, rank), "ncclCommInitRank");
}

enum infer_status nccl_sum(const struct nccl *n, float *x, size_t count, void *stream) {
    return said(n, n->all_reduce(x, x, count, FLOAT32, SUM, n->comm, stream), "ncclAllReduce");
}
enum infer_status nccl_all(const struct nccl *n, const float *own, float *all, size_t count, void *stream) {
    return said(n, n->all_gather(own, all, count, FLOAT32, n->comm, stream), "ncclAllGather");
}
/* The first that fails of what one() says for each rank, as one call. */
static enum infer_status grouped(const struct nccl *n, const char *call,
                                 int (*one)(const struct nccl *n, int rank, void *user), void *user) {
    int e = n->group_start();
    for (int r = 0; !e && r < n->n_rank; r++) e = one(n, r, user);
    const int end = n->group_end();
    return said(n, e ? e : end, call);
}
struct moved {
    const float *from;
    float *to;
    const size_t *at;
    void *stream;
};
static int move_part(const struct nccl *n, int r, void *user) {
    const struct moved *m = user;
    const size_t len = m->at[n->rank + 1] - m->at[n->rank], other = m->at[r + 1] - m->at[r];
    const int e = other ? n->send(m->from + m->at[r], other, FLOAT32, r, n->comm, m->stream) : 0;
    return e || !len ? e : n->receive(m->to + (size_t)r * len, len, FLOAT32, r, n->comm, m->stream);
}
enum infer_status nccl_parts(const struct nccl *n, const float *x, float *to, const size_t *at,
                             void *stream) {
    struct moved m = {x, to, at, stream};
    return grouped(n, "ncclSend", move_part, &m);
}
static int give_columns(const struct nccl *n, int r, void *user) {
    const struct moved *m = user;
    const size_t len = m->at[r + 1] - m->at[r];
    float *to = m->to + m->at[r];
    return len ? n->broadcast(r == n->rank ? m->from : to, to, len, FLOAT32, r, n->comm, m->stream) : 0;
}
enum infer_status nccl_columns(const struct nccl *n, const float *own, float *all, const size_t *at,
                               void *stream) {
    struct moved m = {own, all, at, stream};
    return grouped(n, "ncclBroadcast", give_columns, &m);
}

// Whose memory a rank reaches: cards of a process by peer access, cards of several processes of a machine by handles, which all tell each other.
#include "base/host.h"
#include "cuda/run/cuda_ranks_impl.h"

enum infer_status rank_agree(const struct cuda_ranks *r, bool own, bool *every) {
    bool all[CARDS_MAX];
    TRY(r->comm->type->share(r->comm, &own, sizeof own, all));
    *every = rank_every(all, r->comm->n_rank);
    return INFER_OK;
}

// ---- threads
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
static enum infer_status reach_threads(const cuda_backend *b, struct cuda_ranks *r, bool *direct,
                                       bool *apart) {
    struct comm *c = r->comm;
    int device[CARDS_MAX];
    bool own = true;
    *apart = true;
    TRY(c->type->share(c, &b->device, sizeof *device, device));
    for (int i = 0; i < c->n_rank; i++) own &= reaches(b->device, device[i]);
    for (int i = 0; i < c->n_rank; i++)
        for (int k = 0; k < i; k++) *apart &= device[i] != device[k];
    return rank_agree(r, own, direct);
}

// ---- processes
struct card_of_process {
    cudaIpcMemHandle_t memory;
    char uuid[16], boot[40];
    bool told;
};
static_assert(sizeof(card_of_process) <= COMM_SHARE_MAX, "at once");
static enum infer_status reach_processes(const cuda_backend *b, struct cuda_ranks *r, bool *direct,
                                         bool *apart) {
    struct comm *c = r->comm;
    card_of_process own = {}, all[CARDS_MAX];
    own.told = cudaIpcGetMemHandle(&own.memory, b->arena) == cudaSuccess;
    memcpy(own.uuid, b->prop.uuid.bytes, sizeof own.uuid);
    host_boot_id(own.boot);
    TRY(c->type->share(c, &own, sizeof own, all));
    *apart = true;
    for (int i = 0; i < c->n_rank; i++)
        for (int k = 0; k < i; k++)
            *apart &=
                memcmp(all[i].uuid, all[k].uuid, sizeof own.uuid) || memcmp(all[i].boot, all[k].boot, 40);
    bool near = true, reached = true;
    for (int i = 0; i < c->n_rank; i++) near &= all[i].told && !memcmp(all[i].boot, own.boot, 40);
    r->base[c->rank] = b->arena;
    for (int i = 0; near && *apart && i < c->n_rank; i++)
        if (i != c->rank)
            reached &= cudaIpcOpenMemHandle((void **)&r->base[i], all[i].memory,
                                            cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
    (void)cudaGetLastError();
    return rank_agree(r, near && *apart && reached, direct);
}

enum infer_status rank_reach(const cuda_backend *b, struct cuda_ranks *r, bool *direct, bool *apart) {
    return r->comm->threads ? reach_threads(b, r, direct, apart) : reach_processes(b, r, direct, apart);
}
void rank_reach_end(struct cuda_ranks *r) {
    for (int i = 0; i < CARDS_MAX; i++)
        if (r->base[i] && i != r->comm->rank) cudaIpcCloseMemHandle(r->base[i]);
}
enum infer_status rank_addresses(const cuda_backend *b, const struct cuda_ranks *r, const void *own,
                                 void *all[CARDS_MAX]) {
    struct comm *c = r->comm;
    if (c->threads) return c->type->share(c, &own, sizeof own, all);
    const size_t at = (size_t)((const uint8_t *)own - b->arena);
    size_t of[CARDS_MAX];
    TRY(c->type->share(c, &at, sizeof at, of));
    for (int i = 0; i < c->n_rank; i++) all[i] = r->base[i] + of[i];
    return INFER_OK;
}

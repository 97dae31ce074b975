// Inside of cuda_ranks.cu, rank_reach.cu and rank_carry.cu: a rank that is a card.
#pragma once
#include "cuda/plan/nccl.h"
#include "cuda/plan/rank_plan.h"
#include "cuda/run/cuda_ranks.h"
#include "seam/comm.h"

// How operations outside of wired kernels come to the other ranks' rows.
enum rank_carrier {
    RANKS_EVENTS, // threads: events, and addresses that all have
    RANKS_FLAGS,  // processes: flags in each other's memory
    RANKS_NCCL,
    RANKS_HOST // by the communicator, from pinned memory
};
struct cuda_ranks {
    struct comm *comm;
    struct rank_plan plan;
    uint8_t *at;              // of the workspace
    uint8_t *base[CARDS_MAX]; // all device memory of each rank, of processes that reach each other's
    enum rank_carrier by;
    bool wired;
    struct rank_wires wires;
    float *(*gathered)[CARDS_MAX]; // of each gather of decode rows
    cudaEvent_t sent[2];
    float *mail[2], *mail_of[CARDS_MAX][2]; // mail_of: of processes that reach each other's memory
    uint8_t *pinned;                        // mail in host memory; NULL: in the card's
    unsigned turn;                          // of events and flags
    int box;                                // of the mail, of this operation
    int *fault;
    bool registered;
    unsigned bad; // steps up to this one were lost
    struct nccl *nccl;
};

static inline bool rank_every(const bool *so, int n) {
    for (int i = 0; i < n; i++)
        if (!so[i]) return false;
    return true;
}
// What all ranks say; all come to this.
enum infer_status rank_agree(const struct cuda_ranks *r, bool own, bool *every);

// rank_carry.cu
enum infer_status rank_warm_nccl(const cuda_backend *b, cudaStream_t s);
// rank_reach.cu: whether all ranks may read and write each other's memory, from now on, and no two are the same card.
enum infer_status rank_reach(const cuda_backend *b, struct cuda_ranks *r, bool *direct, bool *apart);
void rank_reach_end(struct cuda_ranks *r);
// The same place of every rank, of addresses that may differ.
enum infer_status rank_addresses(const cuda_backend *b, const struct cuda_ranks *r, const void *own,
                                 void *all[CARDS_MAX]);

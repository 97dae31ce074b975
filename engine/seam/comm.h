/* What the ranks that compute one model say to each other inside of a step: the door of communicators. A rank is a backend; all have the
 * same list, so all come to the same call. Read by C and C++. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RANKS_MAX = 64, COMM_SHARE_MAX = 256 };

struct comm;
/* Numbers of the host. errors of reduce and gather: INFER_E_CANCEL: a rank left the step, by comm abort; INFER_E_DEVICE: a rank is gone,
 * with its number */
struct comm_type {
    const char *name; /* "local", "mpi" */
    /* n_row rows of `width` floats, `stride` floats apart: x = the sum of all ranks' x, added in the order of ranks, so that every
     * rank has the same bits in every run */
    enum infer_status (*reduce)(struct comm *c, float *x, int n_row, size_t stride, int width);
    /* rows of col[n_rank] floats: columns col[r] .. col[r + 1] - 1 of rank r to all others */
    enum infer_status (*gather)(struct comm *c, float *x, int n_row, size_t stride, const int *col);
    /* n bytes of each rank, COMM_SHARE_MAX at most, to all: all[n_rank][n] */
    enum infer_status (*share)(struct comm *c, const void *own, size_t n, void *all);
    /* This rank leaves the step: the others' calls come back. Until comm_ready of every rank nothing else is done with it. */
    void (*abort)(struct comm *c);
    void (*ready)(struct comm *c);
};
struct comm {
    const struct comm_type *type;
    int rank, n_rank;
    /* not 0 from abort (where ranks are processes: this one's, or that a rank is gone) until ready; on a page of its own, so that devices
     * may look at it and set it, too. NULL: none */
    int *left;
    /* of one process: addresses hold in all ranks, and left is of all */
    bool threads;
    /* how ranks that are cards are to speak: "peer", "nccl", "host"; NULL: the fastest that there is */
    const char *cards;
};

#ifdef __cplusplus
}
#endif

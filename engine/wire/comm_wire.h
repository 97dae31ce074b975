/* Inside of the room: sums and columns of ranks that send each other bytes, whoever carries them. */
#pragma once
#include "wire/group_impl.h"

enum {
    EXCHANGE_MAX = 512 << 10, /* bytes from a rank to another at once */
    ONE_SHOT_MAX = 32 << 10   /* bytes of a vector that everybody reads whole */
};
/* To and from every rank: n 0: nothing. */
struct exchange {
    const void *out[RANKS_MAX];
    void *in[RANKS_MAX];
    size_t n_out[RANKS_MAX], n_in[RANKS_MAX]; /* at most EXCHANGE_MAX */
};
struct comm_wire;
/* Bytes between ranks in the order in which they were sent. What leave and ready do: seam/comm.h. */
struct carrier {
    /* errors: INFER_E_CANCEL (a rank left), INFER_E_DEVICE */
    enum infer_status (*exchange)(struct comm_wire *w, const struct exchange *x);
    void (*leave)(struct comm_wire *w);
    void (*ready)(struct comm_wire *w);
};
struct comm_wire {
    struct comm base;
    struct comm_type type;
    const struct carrier *carrier;
    struct infer_group *g;
    void *pages;        /* two, of which one is that of base.left */
    float *pack, *came; /* of EXCHANGE_MAX bytes: rows without gaps; what others sent */
};
enum infer_status comm_wire_init(struct comm_wire *w, const char *name, const struct carrier *carrier,
                                 struct infer_group *g);
void comm_wire_free(struct comm_wire *w);

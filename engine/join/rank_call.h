/* Inside of the join room: what rank 0 asks of the others, one call after the other, and who carries it there. */
#pragma once
#include "seam/backend.h"

enum rank_ask {
    RANK_UPLOAD,
    RANK_COMPILE,
    RANK_RUN,
    RANK_WAIT,
    RANK_KV_COPY,
    RANK_KV_READ, /* KV_WRITE: write */
    RANK_KV_PAGE,
    RANK_STATE_READ,
    RANK_STATE_COPY,
    RANK_READY, /* all are out of a step that one left: seam/comm.h */
    RANK_CLOSE
};
/* Arguments as struct backend_type has them; what a call does not have is not read. */
struct rank_call {
    enum rank_ask ask;
    enum row_class cls;
    const struct step *step;
    int store, page, from, to; /* store: group of KV_COPY; page: slot of a state */
    bool write;
    float *k, *v; /* of KV_READ; k: of a state */
    void *bytes;  /* of KV_PAGE */
    struct step_result result;
};
/* On this thread. errors: as the backend's; INFER_OK of a call that is none of the backend's */
enum infer_status rank_do(struct backend *b, struct rank_call *call);

/* A rank other than 0, wherever it computes. */
struct rank;
struct rank_type {
    /* begin: hands the call over; end: waits for it and says what it came to, with the rank's message. The call lives until then. */
    void (*begin)(struct rank *r, struct rank_call *call);
    enum infer_status (*end)(struct rank *r);
    void (*info)(const struct rank *r, struct backend_info *out);
    /* Closes the rank's backend. */
    void (*free)(struct rank *r);
};
struct rank {
    const struct rank_type *type;
};

/* On a thread of this process. */
enum infer_status rank_thread_new(struct rank **out);
/* The rank's backend, which the thread opens by itself: OpenMP's team and a device's context are a thread's. */
enum infer_status rank_thread_open(struct rank *r,
                                   enum infer_status (*open)(void *user, struct backend **out), void *user);

/* In another process of a group; limits: of what calls carry. */
struct infer_group;
struct rank_limits;
enum infer_status rank_remote_new(struct rank **out, struct infer_group *g, int rank,
                                  const struct rank_limits *limits);
/* begin: asks it to open what `order` says; end: its backend is open. */
void rank_remote_open(struct rank *r, const void *order, size_t n);
enum infer_status rank_remote_opened(struct rank *r);

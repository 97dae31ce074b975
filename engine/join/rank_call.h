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
/* On this thread. */
enum infer_status rank_do(struct backend *b, struct rank_call *call);

/* A rank that runs on a thread of this process. */
struct rank_thread;
enum infer_status rank_thread_new(struct rank_thread **out);
/* The rank's backend, which the thread opens by itself: OpenMP's team and a device's context are a thread's. */
enum infer_status rank_thread_open(struct rank_thread *t,
                                   enum infer_status (*open)(void *user, struct backend **out), void *user);
/* begin: hands the call over; end: waits for it and says what it came to, with the thread's message. The call lives until then. */
void rank_thread_begin(struct rank_thread *t, struct rank_call *call);
enum infer_status rank_thread_end(struct rank_thread *t);
struct backend *rank_thread_backend(const struct rank_thread *t);
/* Closes the backend. */
void rank_thread_free(struct rank_thread *t);

/* A group of ranks that are processes (infer_group.h), as the engine's rooms see it. */
#pragma once
#include "infer_group.h"
#include "seam/comm.h"
#include "wire/wire.h"

enum { GROUP_CPUS = 1024 }; /* of a machine's mask of processors */
struct group_member {
    char host[64], address[64]; /* its name; where rank 0 sees it */
    int pid, port;              /* port: it listens there */
    int sharing;                /* ranks that may use some of its processors, with it */
    int local;                  /* ranks before it on its machine */
};

/* infer_group_open; version: of this library. */
enum infer_status group_open(struct infer_group **out, const struct infer_group_options *o,
                             const char *version);
int group_rank(const struct infer_group *g);
int group_world(const struct infer_group *g);
const struct group_member *group_who(const struct infer_group *g, int rank);
/* "rank 1 of 4 (node2, process 77)" */
void group_name(const struct infer_group *g, int rank, char *out, size_t n);
/* What sums go by. */
struct comm *group_comm(const struct infer_group *g);
/* Around what this rank computes of a step: unless it comes to an exchange or to the end every infer_group_options.step_seconds, it is given
 * up, and says so itself. */
void group_step(struct infer_group *g, bool begins);
/* INFER_E_DEVICE with the message that says which rank is gone; where nobody finds out within a second, it is this one, and lost. */
enum infer_status group_gone(struct infer_group *g, int rank);

/* Messages between rank 0 and rank; of rank 0 (rank 0 as the other end) where this one follows. errors: INFER_E_DEVICE; of receive, *closed:
 * rank 0 has closed the group, INFER_OK */
enum infer_status group_send(struct infer_group *g, int rank, uint32_t kind, uint32_t status,
                             const void *bytes, size_t n);
enum infer_status group_receive(struct infer_group *g, int rank, struct wire_head *head, void *bytes,
                                size_t cap, bool *closed);
/* For the one engine of the group. errors: INFER_E_INPUT (there is one) */
enum infer_status group_take(struct infer_group *g);
void group_leave(struct infer_group *g);

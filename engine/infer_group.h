/* Ranks of one model that are processes, on one machine or several: part of infer.h.
 *
 * Every process opens the group with its rank. Rank 0 then makes engines (.group of their options) and uses them as ever; the others call
 * infer_group_follow with the same model, which computes their share until rank 0 closes the group. One engine of a group at a time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "infer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct infer_group;
struct infer_model;
struct infer_adapter;

struct infer_group_options {
    int rank, world; /* 0 <= rank < world, which is 2 to 64 */
    /* "host:port" where rank 0 listens and the others come; NULL: rank 0 says it by MPI, whose launcher started all of them */
    const char *rendezvous;
    /* secret[n_secret], 1 to 256 bytes that all ranks have; NULL: random bytes that rank 0 tells by MPI, or in a file that this user alone
     * can read, where the rendezvous is on this machine's loopback */
    const void *secret;
    size_t n_secret;
    /* how sums go: "tcp"; "mpi": Open MPI (libmpi.so.40); NULL: tcp */
    const char *comm;
    /* how cards add up: "peer": they write into each other's memory (one machine); "nccl": libnccl.so.2; "host": through the host's memory
     * and by comm; NULL: the first of these that there is */
    const char *cards;
    /* lines "name value" of what all ranks must have been told alike; NULL: nothing */
    const char *options;
    double wait_seconds; /* for all to come; 0: 120 */
    /* that a rank may compute without coming to the others, until it counts as gone; 0: 60 */
    double step_seconds;
    /* A rank is gone: on a thread of its own, once, while calls that wait for it come back with INFER_E_DEVICE. */
    void (*lost)(void *user, const char *message);
    void *user;
};
/* Comes back when all ranks are there. errors: INFER_E_INPUT (an option, another secret, program or word than rank 0's: both are told),
 * INFER_E_DEVICE (a rank is gone, or has not come), INFER_E_IO, INFER_E_UNSUPPORTED (no MPI), INFER_E_MEMORY */
enum infer_status infer_group_open(struct infer_group **out, const struct infer_group_options *o);
struct infer_follow_options {
    int threads; /* 0: the processors that this process may use, divided among the ranks that may use them too */
    /* adapter[n_adapter]: what rank 0's engines have, opened for m, in their order */
    const struct infer_adapter *const *adapter;
    int n_adapter;
};
/* Ranks above 0: their share of every engine that rank 0 makes; NULL options: defaults. Comes back when rank 0 has closed. m NULL: it was not
 * opened, for the reason that infer_error() has: so rank 0 is told. errors: INFER_E_DEVICE (a rank is gone); what else fails is told to
 * rank 0 */
enum infer_status infer_group_follow(struct infer_group *g, const struct infer_model *m,
                                     const struct infer_follow_options *options);
/* A rank was lost. */
bool infer_group_lost(const struct infer_group *g);
void infer_group_close(struct infer_group *g);

#ifdef __cplusplus
}
#endif

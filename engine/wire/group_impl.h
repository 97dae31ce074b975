/* Inside of the room: a group's connections, who watches them, and communicators over them. */
#pragma once
#include "wire/group.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WATCH_BEAT_MS = 1000, WATCH_SILENCE_MS = 5000, WATCH_STEP_MS = 60000, GROUP_TURN_MS = 8000 };

struct watch {
    pthread_t thread;
    bool runs;
    int wake[2];
    int64_t heard[RANKS_MAX];
    bool bye[RANKS_MAX];
    unsigned seen; /* exchanges that this rank had come to, since: since when */
    int64_t since;
};
struct infer_group {
    int rank, world;
    struct group_member member[RANKS_MAX];
    /* to each rank, -1: none. control and beat: of rank 0 to all, of the others to rank 0; data: all, where sums go by tcp */
    int control[RANKS_MAX], beat[RANKS_MAX], data[RANKS_MAX];
    int listener;
    struct wire_secret secret;
    char secret_file[128]; /* that rank 0 made; "": none */
    char cards[8];         /* struct comm; "": the fastest */
    struct comm *comm;
    void (*comm_free)(struct comm *c);
    const struct mpi *mpi; /* NULL: MPI was not begun */
    struct watch watch;
    const char *version;
    atomic_bool lost, closing, busy;
    atomic_bool in_step, waits; /* this rank is in a step; in an exchange of it, where it waits for others */
    atomic_uint exchanges;
    int64_t step_ms;      /* from one exchange of a step to the next, at most */
    pthread_mutex_t lock; /* of message */
    char message[256];
    void (*tell)(void *user, const char *message);
    void *user;
};

int64_t group_wait_ms(const struct infer_group_options *o);
/* meet.c: finds and proves; all connections are there then. */
enum infer_status group_meet(struct infer_group *g, const struct infer_group_options *o);
/* group_secret.c: check: the rendezvous does without one, or it is given. pick: that of the options, or of a file for this port, which rank
 * 0 makes once it has the port, and the others read. errors: INFER_E_INPUT, INFER_E_IO */
enum infer_status group_secret_check(const struct infer_group_options *o, const char *rendezvous);
enum infer_status group_secret_pick(struct infer_group *g, const struct infer_group_options *o,
                                    const char *rendezvous);
bool group_secret_read(struct infer_group *g, const char *rendezvous);
/* watch.c: beats from now on; until group_watch_end, which says goodbye. */
enum infer_status group_watch_begin(struct infer_group *g);
void group_watch_end(struct infer_group *g);
/* The first to say so counts: message, connections are shut, the others hear it. */
void group_lose(struct infer_group *g, const char *message);

/* comm_wire.c: a rank is gone: who looks at the communicator's word sees it. */
void comm_wire_lost(struct comm *c);
/* comm_tcp.c, comm_mpi.c */
enum infer_status comm_tcp_new(struct infer_group *g);
enum infer_status comm_mpi_new(struct infer_group *g);

/* mpi.c: Open MPI, begun for this process. errors: INFER_E_UNSUPPORTED (none, or another library) */
enum infer_status mpi_begin(const struct mpi **out, int rank, int world);
/* bytes[n] of rank 0 to all. */
enum infer_status mpi_tell(const struct mpi *m, void *bytes, size_t n);
void mpi_end(const struct mpi *m);
/* Calls of MPI that wait for all: unless end comes by then, the group is lost. */
struct deadline {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool runs, over;
    int64_t until;
    struct infer_group *group;
};
void deadline_begin(struct deadline *d, struct infer_group *g, int64_t ms);
void deadline_end(struct deadline *d);

/* This process as one of the ranks that compute a model together: what mpirun, srun or torchrun, or --rank, --world and --rendezvous make of
 * it. Rank 0 is the program; the others compute for it. */
#pragma once
#include "infer_group.h"
#include "tools/options.h"

/* Where a process stands. */
struct world_place {
    int rank, world;      /* world 1: alone */
    bool mpi;             /* mpirun of Open MPI started it */
    char rendezvous[288]; /* "": rank 0 says it by MPI */
    const char *says;     /* whose variables say so; NULL: flags, or nobody */
};
/* Of the options, else of the environment. errors: INFER_E_INPUT */
enum infer_status world_place(struct world_place *out, const struct options *o);

/* Meets the other ranks, if there are any. errors: those of infer_group_open */
enum infer_status world_open(const struct options *o);
/* NULL: alone. */
struct infer_group *world_group(void);
bool world_follows(void);
/* Computes for rank 0 until that has ended; the exit code. */
int world_follow(const struct options *o);
void world_close(void);
/* A rank is gone, which has been said by now. */
bool world_lost(void);
/* "rank 2: ", or "" where rank 0 or nobody else speaks. */
const char *world_name(void);

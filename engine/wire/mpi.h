/* Inside of the room: Open MPI, of which nothing is linked: its functions are found in libmpi.so.40 (Open MPI 3 to 5) when ranks ask for it. */
#pragma once
#include "wire/group_impl.h"

typedef void *mpi_handle; /* of Open MPI: a pointer to its own structures. source: its mpi.h */
struct mpi_status {       /* as large as Open MPI's, and the fields that it makes public first */
    int source, tag, error, cancelled;
    size_t count;
};
struct mpi {
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void), (*initialized)(int *flag);
    int (*comm_rank)(mpi_handle comm, int *rank), (*comm_size)(mpi_handle comm, int *size);
    int (*bcast)(void *bytes, int n, mpi_handle type, int root, mpi_handle comm);
    int (*isend)(const void *bytes, int n, mpi_handle type, int to, int tag, mpi_handle comm,
                 mpi_handle *request);
    int (*irecv)(void *bytes, int n, mpi_handle type, int from, int tag, mpi_handle comm,
                 mpi_handle *request);
    int (*test)(mpi_handle *request, int *done, struct mpi_status *status);
    int (*get_count)(const struct mpi_status *status, mpi_handle type, int *n);
    mpi_handle world, byte;
};

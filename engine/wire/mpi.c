#include "wire/mpi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_SERIALIZED = 2, HEADER_BYTES = 8 };
static const char library[] = "libmpi.so.40";
static struct mpi mpi; /* a process has one */

static enum infer_status load(struct mpi *m) {
    /* its plugins look for its names among those of all */
    void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        return err_set(
            INFER_E_UNSUPPORTED,
            "MPI is not here (%s): install Open MPI (Debian: libopenmpi3 and openmpi-bin), or take .comm tcp",
            dlerror());
    const struct {
        const char *name;
        void *to;
    } names[] = {
        {"MPI_Init_thread", &m->init_thread},
        {"MPI_Finalize", &m->finalize},
        {"MPI_Initialized", &m->initialized},
        {"MPI_Comm_rank", &m->comm_rank},
        {"MPI_Comm_size", &m->comm_size},
        {"MPI_Bcast", &m->bcast},
        {"MPI_Isend", &m->isend},
        {"MPI_Irecv", &m->irecv},
        {"MPI_Test", &m->test},
        {"MPI_Get_count", &m->get_count},
        {"ompi_mpi_comm_world", &m->world},
        {"ompi_mpi_byte", &m->byte},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(lib, names[i].name);
        if (!found)
            return err_set(INFER_E_UNSUPPORTED, "%s has no %s: Open MPI 3, 4 or 5 is wanted, or .comm tcp",
                           library, names[i].name);
        memcpy(names[i].to, &found, sizeof found);
    }
    return INFER_OK;
}

enum infer_status mpi_begin(const struct mpi **out, int rank, int world) {
    int provided = 0, begun = 0, r = -1, n = -1;
    *out = NULL;
    if (!mpi.world) {
        struct mpi m;
        TRY(load(&m));
        mpi = m;
    }
    mpi.initialized(&begun);
    if (!begun && (mpi.init_thread(NULL, NULL, THREAD_SERIALIZED, &provided) || provided < THREAD_SERIALIZED))
        return err_set(INFER_E_UNSUPPORTED, "MPI does not begin, or not for threads; .comm tcp does without");
    mpi.comm_rank(mpi.world, &r);
    mpi.comm_size(mpi.world, &n);
    if (r != rank || n != world)
        return err_set(
            INFER_E_INPUT,
            "MPI says rank %d of %d, the options rank %d of %d: mpirun starts all ranks, or .comm tcp", r, n,
            rank, world);
    *out = &mpi;
    return INFER_OK;
}
enum infer_status mpi_tell(const struct mpi *m, void *bytes, size_t n) {
    return m->bcast(bytes, (int)n, m->byte, 0, m->world)
               ? err_set(INFER_E_DEVICE, "MPI cannot send from rank 0 to all")
               : INFER_OK;
}
void mpi_end(const struct mpi *m) { m->finalize(); }

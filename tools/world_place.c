/* Which rank this is: flags, else the variables of who started it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "seam/comm.h"
#include "tools/world.h"

/* A variable's number, -1: there is none. */
static int number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !isdigit((unsigned char)*text)) return -1;
    const long n = strtol(text, &end, 10);
    return *end || n > 1 << 30 ? -1 : (int)n;
}
/* A port that a job has and its neighbours hardly; below those that systems give away. */
static int port_of(const char *job) {
    unsigned h = 2166136261u;
    for (const char *p = job; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return 20000 + (int)(h % 10000);
}
static void loopback(struct world_place *p, const char *job) {
    snprintf(p->rendezvous, sizeof p->rendezvous, "127.0.0.1:%d", port_of(job));
}

/* source: orte and prte set these for every process, Open MPI's manual "mpirun" */
static enum infer_status of_mpirun(struct world_place *p) {
    p->mpi = true;
    return INFER_OK;
}
/* "node[01-04,07],other" begins with node01. */
static void first_host(const char *list, char *out, size_t n) {
    const size_t name = strcspn(list, "[,");
    const char *number = list[name] == '[' ? list + name + 1 : "";
    snprintf(out, n, "%.*s%.*s", (int)name, list, (int)strcspn(number, "-,]"), number);
}
/* source: srun's manual, "output environment variables"; a batch script outside of srun has no step */
static enum infer_status of_srun(struct world_place *p) {
    const char *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID"),
               *step = getenv("SLURM_STEP_ID");
    char id[64], host[200];
    snprintf(id, sizeof id, "%.30s.%.30s", job ? job : "", step ? step : "");
    loopback(p, id);
    if (number("SLURM_STEP_NUM_NODES") == 1) return INFER_OK;
    if (!nodes)
        return err_set(INFER_E_INPUT, "srun does not say which nodes it has: give --rendezvous HOST:PORT");
    first_host(nodes, host, sizeof host);
    snprintf(p->rendezvous, sizeof p->rendezvous, "%s:%d", host, port_of(id));
    return INFER_OK;
}
/* source: MPICH's hydra; its processes on a machine have one parent */
static enum infer_status of_hydra(struct world_place *p) {
    char id[32];
    if (number("MPI_LOCALNRANKS") != p->world)
        return err_set(INFER_E_INPUT,
                       "PMI_RANK and PMI_SIZE do not say where rank 0 is: give --rendezvous HOST:PORT");
    snprintf(id, sizeof id, "%ld", (long)getppid());
    loopback(p, id);
    return INFER_OK;
}
/* source: torchrun's manual, "environment variables"; its agent listens at MASTER_PORT itself */
static enum infer_status of_torchrun(struct world_place *p) {
    const bool local = number("LOCAL_WORLD_SIZE") == p->world;
    const int port = number("MASTER_PORT") + (getenv("TORCHELASTIC_RUN_ID") != NULL);
    snprintf(p->rendezvous, sizeof p->rendezvous, "%.256s:%d", local ? "127.0.0.1" : getenv("MASTER_ADDR"),
             port);
    return INFER_OK;
}

static const struct launcher {
    const char *name, *rank, *world, *needs; /* needs: a variable without which it is not this one */
    enum infer_status (*place)(struct world_place *p);
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", of_mpirun},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", of_srun},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "PMI_RANK", of_hydra},
    {"torchrun", "RANK", "WORLD_SIZE", "MASTER_ADDR", of_torchrun},
};

static enum infer_status of_environment(struct world_place *p) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        const int rank = number(l->rank), world = number(l->world);
        if (!getenv(l->needs) || rank < 0 || world < 2) continue;
        if (l->place == of_torchrun && number("MASTER_PORT") < 0) continue;
        p->rank = rank, p->world = world, p->says = l->name;
        if (rank >= world || world > RANKS_MAX)
            return err_set(INFER_E_INPUT,
                           "%s is %d and %s is %d: ranks are 2 to %d, or --world 1 says that each is alone",
                           l->rank, rank, l->world, world, RANKS_MAX);
        return p->rendezvous[0] ? INFER_OK : l->place(p);
    }
    return INFER_OK;
}

enum infer_status world_place(struct world_place *p, const struct options *o) {
    *p = (struct world_place){.world = 1};
    if (o->rendezvous) snprintf(p->rendezvous, sizeof p->rendezvous, "%s", o->rendezvous);
    if (o->world == 1) return INFER_OK;
    if (o->rank < 0 && !o->world) {
        TRY(of_environment(p));
        if (p->world == 1 && o->rendezvous)
            return err_set(INFER_E_INPUT,
                           "--rendezvous is given, but no --rank and --world, and no launcher says them");
        return INFER_OK;
    }
    if (o->rank < 0 || !o->world || !o->rendezvous)
        return err_set(
            INFER_E_INPUT,
            "--rank, --world and --rendezvous go together: which of how many, and where rank 0 is");
    if (o->rank >= o->world)
        return err_set(INFER_E_INPUT, "--rank %d: ranks of --world %d are 0 to %d", o->rank, o->world,
                       o->world - 1);
    p->rank = o->rank, p->world = o->world;
    return INFER_OK;
}

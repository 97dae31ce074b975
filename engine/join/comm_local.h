/* A communicator of ranks that are threads of this process: they add up in each other's memory. */
#pragma once
#include "seam/comm.h"

struct comm_local;
/* n ranks, 1 to RANKS_MAX. errors: INFER_E_MEMORY */
enum infer_status comm_local_new(struct comm_local **out, int n);
struct comm *comm_local_rank(struct comm_local *l, int rank);
void comm_local_free(struct comm_local *l);

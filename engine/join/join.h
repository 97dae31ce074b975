/* A backend of all parts of a plan: layers on the host and on a device, experts on the host. Parts join by twos, the rest of them being
 * one backend, so any order of them works. */
#pragma once
#include "plan/plan.h"

#include <stdatomic.h>

/* errors: as the parts' open. The plan outlives it. A plan of one part: that part's backend. */
enum infer_status join_open(struct backend **out, const struct plan *plan);

/* A rank: its share of the model, and the plan of that. */
struct rank_plan {
    struct model *model;
    struct plan *plan;
};
/* The ranks plan[n] of the model `whole`, threads of this process, as one backend. Outlived by all of these. errors: as the parts' open */
enum infer_status join_ranks(struct backend **out, const struct rank_plan *plan, int n,
                             const struct model *whole);

/* ---- inside of the room ---- */

/* Two backends that are one: what begins every join. What a join does not do in a way of its own, these do: stores are read and written
 * where they are, copies are made on both, outputs come from `rest`. */
struct join {
    struct backend base;
    struct backend_type type;
    /* "cuda+cpu:12": 12 layers on the first; "cuda+cpu:experts 12": those of 12 layers on the second */
    char name[64], isa[96];
    const struct plan_part *first_part;
    struct backend *first, *rest;
    atomic_bool cancelled;
    atomic_bool in_first; /* the host computes: a cancel goes there, too */
};
extern const struct backend_type join_type; /* with the defaults */
enum infer_status join_wait(struct join *j, enum infer_status of_rest);

/* A join of part `first` with the parts behind it, whose backend asks `remote`. */
enum infer_status join_rest(struct backend **out, const struct plan *plan, int first,
                            const struct remote *remote);
enum infer_status join_layers(struct backend **out, const struct plan *plan, int first);
enum infer_status join_experts(struct backend **out, const struct plan *plan, int first);
/* Behind the opening of both: the name of the instructions. */
void join_describe(struct join *j);
void join_close(struct backend *b);

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
/* What ranks that are processes are told to open: bytes[n], which the engine's room reads there. */
struct infer_group;
struct rank_order {
    struct infer_group *group;
    const void *bytes;
    size_t n;
};
/* The ranks plan[n] of the model `whole` as one backend: threads of this process, or (order) processes, where the others' plans are not
 * read. Outlived by all of these. errors: as the parts' open; INFER_E_DEVICE (a rank is gone) */
enum infer_status join_ranks(struct backend **out, const struct rank_plan *plan, int n,
                             const struct model *whole, const struct rank_order *order);
/* A rank above 0: plan is its own, of its share; opens it and answers, then does what rank 0 asks until that closes the backend. *closed:
 * rank 0 closed the group meanwhile. errors: INFER_E_DEVICE (rank 0 is gone), INFER_E_MEMORY */
enum infer_status join_follow(struct infer_group *g, struct plan *plan, const struct model *whole,
                              bool *closed);
/* The same where there is no plan: rank 0 hears this thread's message. errors: INFER_E_DEVICE */
enum infer_status join_refuse(struct infer_group *g, enum infer_status status);

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

/* Experts of some layers on the host, all else on the rest: the rest runs every list and asks the host for these, layer by layer. */
#include "join/join.h"

#include <stdio.h>

struct experts {
    struct join join;
    struct remote to_host;
};

/* What the rest asks for. */
static enum infer_status run_on_host(void *user, enum row_class cls, int layer, int n_row, const float *x,
                                     const float *choice, float *out) {
    struct join *j = user;
    if (atomic_load(&j->cancelled)) return err_set(INFER_E_CANCEL, "cancelled");
    atomic_store(&j->in_first, true);
    enum infer_status st = j->first->type->run_layer(j->first, cls, layer, n_row, x, choice, out);
    atomic_store(&j->in_first, false);
    return st;
}

/* The host's lists first, both: a device may run steps to warm up. */
static enum infer_status compile(struct backend *b, enum row_class cls) {
    struct join *j = (struct join *)b;
    for (int i = 0; i < ROW_CLASS_COUNT && cls == 0; i++)
        TRY(j->first->type->compile(j->first, (enum row_class)i));
    return j->rest->type->compile(j->rest, cls);
}

static enum infer_status open_parts(struct experts *e, const struct plan *plan, int first) {
    struct join *j = &e->join;
    e->to_host = (struct remote){run_on_host, j};
    TRY(plan->part[first].type->open(&j->first, &plan->part[first].config));
    TRY(join_rest(&j->rest, plan, first + 1, &e->to_host));
    join_describe(j);
    return INFER_OK;
}

enum infer_status join_experts(struct backend **out, const struct plan *plan, int first) {
    struct experts *e;
    TRY(mem_new(&e, sizeof *e, "a backend of two parts"));
    struct join *j = &e->join;
    snprintf(j->name, sizeof j->name, "%s+%s:experts %d", plan->part[first + 1].type->name,
             plan->part[first].type->name, plan->part[first + 1].range.n_remote);
    j->type = join_type;
    j->type.name = j->name;
    j->type.compile = compile;
    j->base.type = &j->type;
    j->first_part = &plan->part[first];
    enum infer_status st = open_parts(e, plan, first);
    if (st != INFER_OK) {
        join_close(&j->base);
        return st;
    }
    *out = &j->base;
    return INFER_OK;
}

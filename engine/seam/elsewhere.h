/* Remote experts: one backend calls another for the experts of a layer. Rows x[n][d] and the router's choices go to the other one,
 * sums come back.
 *
 * In the list of the caller this is one operation, experts, whose group has one live member: its data is a struct elsewhere, and it
 * names no weights (id -1). With d = out.width = x.width and the experts of the operation's layer:
 *     out[t] = sum_j w[t][j] down[id j](act(gate[id j] x[t]) * up[id j] x[t]),  j ascending, id and w of choice[t]
 * In the list of the one that is called these are the operations of that layer, experts, glu, experts and mix, on its first three buffers: x,
 * choice, out. Read by C and C++. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ELSEWHERE_X, ELSEWHERE_CHOICE, ELSEWHERE_OUT };

/* Rows of one layer: x[n_row][d], choice[n_row][2 * n_used], out[n_row][d], on the host. A row's bits depend on it alone.
 * errors: INFER_E_CANCEL, INFER_E_NAN */
typedef enum infer_status elsewhere_run(void *user, enum row_class cls, int layer, int n_row, const float *x,
                                        const float *choice, float *out);
struct elsewhere {
    elsewhere_run *run;
    void *user;
};

/* NULL: any other operation. */
static inline const struct elsewhere *op_elsewhere(const struct op *o) {
    if (o->kind != OP_EXPERTS || !o->experts.w->member[0].live) return NULL;
    return (const struct elsewhere *)o->experts.w->member[0].data;
}
static inline bool op_is_elsewhere(const struct op *o) {
    return o->kind == OP_EXPERTS && o->experts.w->member[0].live;
}

/* Who runs a layer of its list: user is the backend. After compile, by one thread at a time, not beside run. */
elsewhere_run cpu_run_layer, ref_run_layer;

#ifdef __cplusplus
}
#endif

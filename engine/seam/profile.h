/* A profile as backends fill it (struct backend_config); infer_profile.h is how others read it. */
#pragma once
#include "infer_profile.h"
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Before the first step: the operations of a list, which must stay; links: of a card, which times its links (profile_link). errors:
 * INFER_E_MEMORY */
enum infer_status profile_list(struct infer_profile *p, const struct op_list *l,
                               const struct backend_config *c, bool links);
int64_t profile_now(void); /* ns of CLOCK_MONOTONIC */
/* op of list l, with those that became one with it, in step s from begin to now, which is returned. op NULL: between operations. */
int64_t profile_op(struct infer_profile *p, const struct op_list *l, const struct op *op,
                   const struct step *s, int64_t begin);
/* Thread number `thread` (from 0) was through with its part of op at `end`, and did what came before until begin. profile_tells_threads: whether
 * anybody wants to know. */
bool profile_tells_threads(const struct infer_profile *p);
void profile_thread(struct infer_profile *p, const struct op_list *l, const struct op *op,
                    const struct step *s, int thread, int64_t begin, int64_t end);
/* A link of list l: n_op operations from the first on, that run together. */
struct profile_link {
    int first, n_op;
    const char *name, *kind; /* "attn_qkv", "matmul" */
};
/* Of a step whose links are timed: what one does in step s, as it is queued, */
void profile_link_work(struct infer_profile *p, const struct op_list *l, const struct profile_link *k,
                       const struct step *s);
/* and when it ran, in a step of n_row rows, before profile_step. */
void profile_link_time(struct infer_profile *p, const struct op_list *l, const struct profile_link *k,
                       int n_row, int64_t begin, int64_t end);
/* A whole step of a class, from begin to now. */
void profile_step(struct infer_profile *p, enum row_class cls, int n_row, int64_t begin);

#ifdef __cplusplus
}
#endif

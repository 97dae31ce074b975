/* The operations of a LINK_ATTEND. */
#pragma once
#include "cuda/plan/links.h"

struct attend_ops {
    const struct op_norm *v_norm;          /* without weights; what it reads is v; NULL: none */
    const struct op_norm *q_norm, *k_norm; /* NULL: none */
    bool late;                             /* these stand behind the rotation */
    const struct op_rope *q_rope, *k_rope; /* NULL: none */
    const struct op_kv_put *put;
    const struct op_attend *attend;
};
/* v as the projection leaves it. */
static inline struct view attend_value(const struct attend_ops *o) {
    return o->v_norm ? o->v_norm->x : o->put->v;
}
/* Of heads of keys and values the size that a kernel is asked for; it has multiples of 8 alone. */
static inline int attend_head(int dk, int dv) { return dk % 8 || dv % 8 ? 1 << 30 : dk > dv ? dk : dv; }
LINK_C struct attend_ops link_attend_ops(const struct op_list *l, const struct cuda_link *k);

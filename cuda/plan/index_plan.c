#include "cuda/plan/index_plan.h"

enum { INDEX_ROOM = 64 << 20 }; /* or what one row needs */

size_t index_positions(const struct backend_config *c, const struct op_index *o) {
    return (size_t)c->kv_group[c->store[o->store].group].max_pages * KV_PAGE;
}
static size_t row_bytes(const struct backend_config *c, const struct op_index *o) {
    return (size_t)op_index_lists(o) * index_positions(c, o) * sizeof(float);
}
int index_rows(const struct backend_config *c, const struct op_index *o, int n) {
    const size_t most = INDEX_ROOM / row_bytes(c, o);
    return most < 1 ? 1 : most < (size_t)n ? (int)most : n;
}
size_t index_bytes(const struct backend_config *c) {
    size_t bytes = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            const struct op_index *o = &l->op[i].index;
            if (l->op[i].kind != OP_INDEX) continue;
            const size_t n = (size_t)index_rows(c, o, l->max_rows) * row_bytes(c, o);
            bytes = n > bytes ? n : bytes;
        }
    }
    return bytes;
}

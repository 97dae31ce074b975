#include "cuda/plan/host_part.h"

static size_t pad(size_t n) { return (n + 4095) & ~(size_t)4095; }

struct host_part host_part_of(const struct backend_config *c) {
    struct host_part p = {0};
    size_t x = 0, choice = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            if (l->op[i].kind != OP_REMOTE) continue;
            const struct op_remote *o = &l->op[i].remote;
            const size_t rows = (size_t)l->max_rows * sizeof(float);
            if (rows * (size_t)o->x.width > x) x = rows * (size_t)o->x.width;
            if (rows * (size_t)o->choice.width > choice) choice = rows * (size_t)o->choice.width;
        }
    }
    if (!x) return p;
    p.choice = p.x + pad(x);
    p.out = p.choice + pad(choice);
    p.bytes = p.out + pad(x);
    return p;
}

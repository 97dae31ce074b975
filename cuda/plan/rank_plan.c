#include "cuda/plan/rank_plan.h"
#include "base/mem.h"
#include "seam/op_list.h"

static bool speaks(const struct op *o) { return o->kind == OP_REDUCE || o->kind == OP_GATHER; }

int rank_ops_before(const struct op_list *l, int at) {
    int n = 0;
    for (int i = 0; i < at; i++) n += speaks(&l->op[i]);
    return n;
}

static size_t round_up(size_t n) { return (n + 4095) & ~(size_t)4095; }

enum infer_status rank_plan_of(struct rank_plan *out, const struct backend_config *c) {
    size_t mail = 0;
    *out = (struct rank_plan){0};
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            if (!speaks(&l->op[i])) continue;
            const bool reduce = l->op[i].kind == OP_REDUCE;
            const struct view x = reduce ? l->op[i].reduce.x : l->op[i].gather.out;
            const size_t rows = buf_max_rows(l, &l->buf[x.buf]), n = rows * (size_t)x.width,
                         few = (rows < RANK_FEW_ROWS ? rows : RANK_FEW_ROWS) * (size_t)x.width;
            if (n * sizeof(float) > mail) mail = n * sizeof(float);
            if (!reduce || cls != ROW_DECODE) continue;
            if (few > out->slot_n) out->slot_n = few;
            if (rows > RANK_FEW_ROWS && n > out->bulk_n) out->bulk_n = n;
        }
    }
    if (!mail) return INFER_OK;
    if (c->n_rank > CARDS_MAX)
        return err_set(INFER_E_UNSUPPORTED, "cuda: %d ranks; %d cards at most compute a model", c->n_rank,
                       CARDS_MAX);
    const size_t n = (size_t)(c->n_rank ? c->n_rank : 1);
    out->mail_bytes = round_up(mail);
    out->slots = 2 * out->mail_bytes;
    out->bulk = out->slots + round_up(2 * n * out->slot_n * 8);
    out->flags = out->bulk + round_up(2 * n * out->bulk_n * 4);
    out->meets = out->flags + round_up(2 * n * GATHER_BLOCKS * 4);
    out->bulk_flags = out->meets + round_up(n * 4);
    out->bytes = out->bulk_flags + round_up(out->bulk_n ? n * BULK_BLOCKS * 4 : 0);
    return INFER_OK;
}

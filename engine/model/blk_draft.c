/* Models that draft: what stands in front of their layer, and what a model hands to a head that drafts for it. */
#include "model/emit.h"
#include "seam/op_list.h"

/* x = proj [norm(embedding) ; norm(h)], both in the row that is given. */
static void joined(struct emitter *e, struct view in, struct view x) {
    const struct model *m = e->m;
    const int n = m->n_embd;
    struct view both = emit_buffer(e, "draft_norms", 2 * n, BUF_ROWS_ALL, false);
    emit_norm(e, "draft_embd_norm", view_columns(in, 0, n), view_columns(both, 0, n), n, &m->draft_embd_norm);
    emit_norm(e, "draft_hidden_norm", view_columns(in, n, n), view_columns(both, n, n), n,
              &m->draft_hidden_norm);
    emit_op(e, "draft_proj", (struct op){.kind = OP_MATMUL, .matmul = {both, x, &m->draft_proj, false}});
}

/* x = fuse(taps) + h, one of which is 0: of the model's rows h, of the head's own the taps. What attention reads beside it, and x itself
 * normalised where the head wants that. source: Li et al. 2025 (arXiv 2503.01840) */
static void fused(struct emitter *e, struct view in, struct view x) {
    const struct model *m = e->m;
    const int n = m->n_embd;
    struct view both = e->beside = emit_buffer(e, "draft_norms", 2 * n, BUF_ROWS_ALL, false),
                taps = view_columns(in, 2 * n, in.width - 2 * n);
    emit_op(e, "draft_fuse", (struct op){.kind = OP_MATMUL, .matmul = {taps, x, &m->fuse, false}});
    emit_add(e, "draft_add", x, view_columns(in, n, n));
    emit_norm(e, "draft_embd_norm", view_columns(in, 0, n), view_columns(both, 0, n), n, &m->draft_embd_norm);
    emit_norm(e, "draft_hidden_norm", x, view_columns(both, n, n), n, &m->draft_hidden_norm);
    if (m->fused_norm) emit_norm(e, "draft_fused_norm", x, x, n, &m->draft_hidden_norm);
}

void emit_draft_input(struct emitter *e, struct view x) {
    struct view in = emit_buffer(e, "draft_rows", e->m->n_embd + model_given(e->m), BUF_ROWS_ALL, true);
    emit_op(e, "draft_rows", (struct op){.kind = OP_EMBED, .embed = {.out = in}});
    if (e->m->target)
        fused(e, in, x);
    else
        joined(e, in, x);
}

void emit_taps(struct emitter *e, int il, struct view x, struct view taps) {
    const struct taps *t = e->range->taps;
    for (int k = 0; t && k < t->n; k++)
        if (t->at[k] == il)
            emit_map(e, "tap", x, view_columns(taps, k * t->n_embd, t->n_embd), ACT_SCALE,
                     (struct act_numbers){.limit = 1});
}

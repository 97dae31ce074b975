// LINK_EMBED of decode rows.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

// Tables of all rotations, whose positions count as they are.
static bool has(const decode_maker &m, const struct cuda_link *, enum link_form, enum link_form) {
    for (int i = 0; i < m.b->n_rope; i++)
        if (m.b->rope[i]->every > 1) return false;
    return m.b->n_rope <= 4;
}
static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct op_embed *o = &l->op[d->is.first].embed;
    const rows x = cuda_rows(b, l, o->out);
    const handoff_to to = decode_hands(m, d);
    embed_job &e = *own<embed_job>(d);
    e.t = b->t;
    e.ring = cuda_decode_blob(b, 0, &e.ring_row);
    e.next = b->next_decode;
    e.in = b->in;
    if (o->w) {
        e.w = cuda_matrix(b, b->plan.embedding, 0);
        e.scale = embed_scale(b, b->plan.embedding, o);
    } else {
        e.w.k = o->out.width;
        e.w.u = (o->out.width + UNIT_COLS - 1) / UNIT_COLS;
    }
    e.res = x.p;
    e.res_row = x.stride;
    e.next_norm = to.norm;
    e.square = to.square;
    e.square_row = to.square_row;
    give_to(&e, to.form);
    e.scale_at = (float *)(b->work + b->plan.scale);
    e.scale_row = b->plan.max_decode;
    e.n_rope = b->n_rope;
    for (int i = 0; i < b->n_rope; i++) {
        e.rope[i].inv_freq = cuda_constant(b, b->rope[i]->inv_freq);
        e.rope[i].axis = (const int32_t *)cuda_constant(b, b->rope[i]->axis);
        e.rope[i].half = b->rope[i]->n_rot / 2;
        e.rope[i].mscale = b->rope[i]->mscale;
        e.rope[i].table = cuda_rope_table(b, b->rope[i]);
    }
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    embed_job e = *own<embed_job>(d);
    e.xo_pitch = decode_output_pitch(d, s.rows);
    CU(embed_launch(e, s.rows, s.stream));
    return INFER_OK;
}
const struct decode_code decode_embed = {true, false, has, make, NULL, run, NULL};
const struct prompt_code prompt_embed = {NULL, NULL};

// What lies between links of decode rows: forms, the residual stream, results that become rows.
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

act_form decode_form(const cuda_backend *b, enum link_form f, enum act_slot slot) {
    uint8_t *half = b->work + b->plan.half[slot], *record = b->work + b->plan.rec[slot];
    const size_t row = b->plan.half_row_bytes;
    switch (f) {
    case FORM_INT8_16:
        return act_form{GIVE_RECORD, 16, record, 0, REC_BYTES_16};
    case FORM_INT8_32:
        return act_form{GIVE_RECORD, 32, record, 0, REC_BYTES_32};
    case FORM_BF16:
        return act_form{GIVE_BF16, 0, half, row, 1024};
    case FORM_CODES:
        return act_form{GIVE_CODES, 0, half, row, 512};
    default:
        return act_form{GIVE_HALF, 0, half, row, 512};
    }
}

// ---- the residual stream
static float *scale_of(const cuda_backend *b, int nth) {
    return (float *)(b->work + b->plan.scale) + (size_t)(nth % 4 * b->plan.max_decode);
}
void decode_scales(const cuda_backend *b, gemv_args *j, int nth) {
    j->scale = scale_of(b, nth + 2);
    j->scale_next = scale_of(b, nth + 4);
    j->square_row = ((size_t)b->plan.max_k + 255) / 256 * 16;
}
static handoff_to hands(const cuda_backend *b, int nth, bool normed, const float *norm,
                        const act_form &form) {
    return handoff_to{normed,
                      norm,
                      scale_of(b, nth + 2),
                      (float *)(b->work + b->plan.square),
                      ((size_t)b->plan.max_k + 255) / 256 * 16,
                      form};
}
// The norm that a link begins with; NULL: none.
static const struct op_norm *norm_of(const cuda_backend *b, const decode_link *d) {
    return d->is.norm < 0 ? NULL : &decode_list(b)->op[d->is.norm].norm;
}
act_form decode_idle_form(const decode_maker &m) {
    return decode_form(m.b, m.int8 ? FORM_INT8_32 : FORM_HALVES, ACT_NORMED);
}
handoff_to decode_hands(decode_maker &m, const decode_link *d) {
    const cuda_backend *b = m.b;
    const bool gives = d->is.gives != FORM_ROWS;
    const struct op_norm *n = gives ? norm_of(b, d + 1) : NULL;
    const float *any = (const float *)(b->work + b->plan.part);
    m.nth += n != NULL;
    return hands(b, m.nth, n != NULL, n ? cuda_constant(b, n->w) : any,
                 gives ? decode_form(b, d->is.gives, d[1].is.slot) : decode_idle_form(m));
}
void decode_give(act_rows_job *j, const handoff_to &to) {
    j->norm = to.norm;
    j->scale = to.scale;
    j->square = to.square;
    j->square_row = to.square_row;
    give_to(j, to.form);
}

// ---- input and output of a link
// Rows in front of a matmul become its input; of a norm these are the stream, handed on once more.
static void convert_input(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct op_norm *n = norm_of(b, d);
    const act_form form = decode_form(b, d->is.wants, d->is.slot);
    act_rows_job *a = &d->input;
    d->from_rows = true;
    a->x = cuda_rows(b, l, link_reads(l, &d->is));
    a->n_row = row_count(b, d->out_rows);
    if (d->is.before >= 0) d->front = cuda_front(b, &l->op[d->is.before]);
    if (n)
        decode_give(a, hands(b, ++m.nth, true, cuda_constant(b, n->w), form));
    else
        give_to(a, form);
}
void decode_takes(decode_maker &m, decode_link *d) {
    const struct op_norm *n = norm_of(m.b, d);
    gemv_args &j = d->mm.job;
    if (d->is.in.form == FORM_ROWS) convert_input(m, d);
    j.n_row = row_count(m.b, d->out_rows);
    decode_scales(m.b, &j, m.nth); // read without a norm, too
    if (!n) return;
    d->mm.nth = m.nth;
    j.square = (const float *)(m.b->work + m.b->plan.square);
    j.n_square = n->dim / 16;
    j.inv_k = 1.f / (float)n->dim;
    j.eps = n->eps;
}
act_form decode_gives_result(const cuda_backend *b, decode_link *d, enum act_slot slot) {
    const struct op_list *l = decode_list(b);
    d->to_rows = d->is.gives == FORM_ROWS;
    if (!d->to_rows) return decode_form(b, d->is.gives, slot);
    const act_form form = decode_form(b, FORM_BF16, slot);
    d->output.x = cuda_rows(b, l, link_writes(l, &d->is));
    d->output.n_row = row_count(b, d->out_rows);
    d->output.xo = form.at;
    d->output.xo_row = form.row;
    return form;
}
int decode_output_pitch(const decode_link *d, int rows) {
    return d->is.gives == FORM_ROWS ? 0 : decode_input_pitch(d + 1, rows);
}

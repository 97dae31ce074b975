// LINK_SHORTCONV, of decode rows.
#include "cuda/links/link_shortconv.h"
#include "cuda/decode/state/shortconv_decode.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct shortconv_ops o = link_shortconv_ops(l, &d->is);
    const rows first = cuda_rows(b, l, o.before->gate), x = cuda_rows(b, l, o.before->up),
               c = cuda_rows(b, l, o.behind->up);
    shortconv_decode_job *j = own<shortconv_decode_job>(d);
    j->t = b->t;
    j->b = first.p;
    j->b_row = first.stride;
    j->x = x.p;
    j->x_row = x.stride;
    j->c = c.p;
    j->c_row = c.stride;
    j->before = o.before->k.limit;
    j->behind = o.behind->k.limit;
    j->w = cuda_constant(b, o.conv->w);
    j->bias = cuda_constant(b, o.conv->bias);
    j->state = cuda_state(b, o.conv->state, 0);
    j->state_elem = (size_t)b->c.state[o.conv->state].n_elem;
    j->width = first.width;
    j->taps = o.conv->K;
    j->silu = o.conv->silu;
    give_to(j, decode_gives_result(b, d, ACT_GATED));
    j->wait = m.first;
    m.first = false;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    shortconv_decode_job j = *own<shortconv_decode_job>(d);
    j.xo_pitch = decode_output_pitch(d, s.rows);
    CU(shortconv_decode_launch(j, s.rows, true, s.stream));
    return INFER_OK;
}
const struct decode_code decode_shortconv = {false, true, NULL, make, NULL, run, NULL};
const struct prompt_code prompt_shortconv = {};

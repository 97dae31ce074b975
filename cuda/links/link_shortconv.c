/* LINK_SHORTCONV: a product of two vectors, its convolution over time, that times a third one. */
#include "cuda/links/link_shortconv.h"
#include "cuda/plan/link_type.h"

struct shortconv_ops link_shortconv_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct shortconv_ops){&o[0].glu, &o[2].glu, &o[1].conv};
}

static bool is_product(const struct op_glu *o) {
    return o->act == ACT_SCALE && o->up.buf >= 0 && view_same(o->gate, o->out);
}
/* Each of what the one before it left and nobody else reads. */
static bool is_shortconv(const struct link_case *c, struct cuda_link *k) {
    const struct shortconv_ops o = link_shortconv_ops(c->list, k);
    const struct view y = o.conv->out;
    return is_product(o.before) && is_product(o.behind) && view_same(o.before->out, o.conv->x) &&
           view_same(o.behind->gate, y) && (o.conv->K == 3 || o.conv->K == 4) && y.width % 32 == 0 &&
           c->list->buf[o.conv->x.buf].last <= link_last(k) &&
           link_route(c->route, LINK_SHORTCONV, c->list->cls, 0) && link_has(c, k, FORM_ROWS, FORM_BF16);
}

const struct link_type link_shortconv = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OP_GLU, OP_CONV, OP_GLU)},
    .packets = true,
    .fits = is_shortconv,
    .gives = link_gives_result,
    .routes = LINK_ROUTES({ROW_DECODE, OP_CONV, 0, 90, 129, true, "shortconv_decode_kernel"})};

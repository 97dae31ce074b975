/* LINK_EMBED: the residual stream of decode rows, and the step out of the host's memory. */
#include "cuda/plan/link_type.h"

static bool is_embed(const struct link_case *c, struct cuda_link *k) {
    const struct op_embed *o = &c->list->op[k->first].embed;
    return k->first == 0 && !o->beside && o->out.width % 32 == 0 && link_has(c, k, FORM_ROWS, FORM_ROWS);
}

const struct link_type link_embed = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OP_EMBED)},
    .stream = true,
    .fits = is_embed,
    .gives = link_gives_stream,
    .routes = LINK_ROUTES({ROW_DECODE, OP_EMBED, 0, 90, 129, true, "embed_decode_kernel"})};

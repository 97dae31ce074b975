/* From patches to rows of the text model: each family's way. sources: HF modeling_qwen3_vl, modeling_gemma4, modeling_gemma4_unified,
 * modeling_mistral3, modeling_gemma3, modeling_internvl, modeling_lfm2_vl, modeling_glm4v, modeling_llama4, modeling_minicpmv4_6;
 * OpenBMB's resampler of MiniCPM-V. */
#include "vision/tower_impl.h"

static const struct act_numbers no_numbers;

/* fc2(act(fc1 x)) */
static void two_products(struct tower_emitter *e, struct view x, const struct tower_linear *fc1,
                         const struct tower_linear *fc2, struct view rows) {
    struct view h = tower_product(e, "mm_1", x, fc1, tower_nowhere);
    tower_mapped(e, "mm_act", h, h, ACT_GELU_ERF, no_numbers);
    tower_product(e, "mm_2", h, fc2, rows);
}

/* norm(patch) came before; the patches of a row beside each other, and two products */
void tower_merger_qwen(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    two_products(e, tower_merged(e, "merge", x, t->merge * t->merge, false), &t->more[0], &t->more[1], rows);
}

/* Behind some layers: norm of the patches beside each other, and two products, into columns of their own. source: Meng et al. 2024
 * (arXiv 2406.04334) */
void tower_deepstack(struct tower_emitter *e, int layer, struct view x, struct view rows) {
    const struct tower *t = e->t;
    for (int i = 0; i < t->n_deepstack; i++) {
        if (t->deepstack[i].layer != layer) continue;
        struct view m = tower_merged(e, "deepstack", x, t->merge * t->merge, false);
        tower_normed(e, "deepstack_norm", NORM_LAYER, m, m, m.width, t->eps, &t->deepstack[i].norm);
        two_products(e, m, &t->deepstack[i].fc1, &t->deepstack[i].fc2,
                     view_columns(rows, (1 + i) * t->n_out, t->n_out));
    }
}

/* The mean of a row's patches times the root of the width, standardised where the file says how; norm; product. Without blocks a patch
 * is a row. */
void tower_merger_gemma4(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "pool", x, t->merge * t->merge, true);
    if (!t->family->no_blocks)
        tower_mapped(e, "pool_scale", m, m, ACT_SCALE,
                     (struct act_numbers){.limit = __builtin_sqrtf((float)t->n_embd)});
    if (t->std_scale) {
        const struct tower_norm std = {t->std_scale, t->std_bias, t->n_embd};
        tower_normed(e, "standardize", NORM_NONE, m, m, t->n_embd, 0, &std);
    }
    tower_normed(e, "mm_norm", NORM_RMS, m, m, t->n_embd, t->eps, NULL);
    tower_product(e, "mm_projection", m, &t->more[0], rows);
}

/* The patches of a row beside each other, number by number: what a convolution sees. */
static struct view unfolded(struct tower_emitter *e, struct view x) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "merge", x, t->merge * t->merge, false),
                c = tower_buffer(e, "unfold", m.width, BUF_ROWS_OUT);
    tower_op(e, "unfold", (struct op){.kind = OP_COLUMNS, .columns = {m, c, t->unfold}});
    return c;
}

/* norm; the patches of a row beside each other, number by number; product; two products */
void tower_merger_pixtral(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    const int n = t->merge * t->merge, d = t->n_embd;
    if (t->soft_norm.w) tower_normed(e, "mm_norm", NORM_RMS, x, x, d, t->out_eps, &t->soft_norm);
    struct view m = n > 1 ? tower_product(e, "mm_merge", unfolded(e, x), &t->more[2], tower_nowhere)
                          : tower_merged(e, "merge", x, n, false);
    two_products(e, m, &t->more[0], &t->more[1], rows);
}

/* the patches of a row beside each other; product */
void tower_merger_idefics3(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    tower_product(e, "mm_projection", tower_merged(e, "merge", x, t->merge * t->merge, false), &t->more[0],
                  rows);
}

/* the patches of a row beside each other; norm; two products */
void tower_merger_norm(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "merge", x, t->merge * t->merge, false);
    if (t->soft_norm.w) tower_normed(e, "mm_norm", NORM_LAYER, m, m, m.width, 1e-5f, &t->soft_norm);
    two_products(e, m, &t->more[0], &t->more[1], rows);
}

/* a convolution of a row's patches; product; norm; GELU; a gated feed-forward part */
void tower_merger_glm4v(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    const int n = t->more[2].w.n;
    struct view c = tower_product(e, "mm_merge", unfolded(e, x), &t->more[0], tower_nowhere),
                h = tower_product(e, "mm_fc", c, &t->more[1], tower_nowhere),
                f = tower_buffer(e, "mm_ffn", n, BUF_ROWS_OUT);
    tower_normed(e, "mm_norm", NORM_LAYER, h, h, h.width, 1e-5f, &t->soft_norm);
    tower_mapped(e, "mm_act", h, h, ACT_GELU_ERF, no_numbers);
    struct op_glu o = {.gate = tower_product(e, "mm_gate", h, &t->more[3], tower_nowhere),
                       .up = tower_product(e, "mm_up", h, &t->more[2], tower_nowhere),
                       .out = f,
                       .act = t->act,
                       .k = t->act_k};
    tower_op(e, "mm_ffn", (struct op){.kind = OP_GLU, .glu = o});
    tower_product(e, "mm_down", f, &t->more[4], rows);
}

/* the patches of a row beside each other; two products with GELU behind each; product */
void tower_merger_llama4(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view h = tower_product(e, "mm_1", tower_merged(e, "merge", x, t->merge * t->merge, false),
                                  &t->more[0], tower_nowhere);
    tower_mapped(e, "mm_act", h, h, ACT_GELU_ERF, no_numbers);
    h = tower_product(e, "mm_2", h, &t->more[1], tower_nowhere);
    tower_mapped(e, "mm_act", h, h, ACT_GELU_ERF, no_numbers);
    tower_product(e, "mm_projection", h, &t->more[2], rows);
}

/* four patches, or what four became, beside each other; norm; two products */
void tower_merger_minicpm(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "merge", x, 4, false);
    tower_normed(e, "mm_norm", NORM_LAYER, m, m, m.width, 1e-6f, &t->soft_norm);
    two_products(e, m, &t->more[0], &t->more[1], rows);
}

/* Heads of queries, which are the first rows, over all patches: product and norm, for keys with what is told of their places; then a
 * product, a norm, a product. The queries are in the columns that patches have places in. */
void tower_merger_queries(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    const int d = t->n_out;
    const float eps = 1e-6f;
    struct view more = view_columns(x, t->n_embd, d),
                v = tower_product(e, "mm_kv", view_columns(x, 0, t->n_embd), &t->more[0], tower_nowhere),
                k = tower_buffer(e, "mm_keys", d, BUF_ROWS_ALL),
                a = tower_buffer(e, "mm_attend", d, BUF_ROWS_ALL);
    tower_normed(e, "mm_norm", NORM_LAYER, v, v, d, eps, &t->soft_norm);
    tower_op(e, "mm_place", (struct op){.kind = OP_ADD, .add = {v, more, k}});
    struct op_attend o = {.q = more,
                          .out = a,
                          .store = -1,
                          .n_head = d / TOWER_QUERY_HEAD,
                          .scale = 1 / __builtin_sqrtf(TOWER_QUERY_HEAD),
                          .both = true,
                          .k = tower_product(e, "mm_k", k, &t->more[1], tower_nowhere),
                          .v = tower_product(e, "mm_v", v, &t->more[2], tower_nowhere),
                          .n_kv_head = d / TOWER_QUERY_HEAD,
                          .ask = t->n_query};
    tower_op(e, "mm_attend", (struct op){.kind = OP_ATTEND, .attend = o});
    struct view y =
        tower_product(e, "mm_out", tower_merged(e, "mm_asked", a, 1, false), &t->more[3], tower_nowhere);
    tower_normed(e, "mm_norm_2", NORM_LAYER, y, y, d, eps, &t->query_norm);
    tower_product(e, "mm_projection", y, &t->more[4], rows);
}

/* the mean of a row's patches; norm; product */
void tower_merger_gemma3(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "pool", x, t->merge * t->merge, true);
    tower_normed(e, "mm_norm", NORM_RMS, m, m, t->n_embd, t->eps, &t->soft_norm);
    tower_product(e, "mm_projection", m, &t->more[0], rows);
}

/* From patches to rows of the text model: each family's way. sources: HF modeling_qwen3_vl, modeling_gemma4, modeling_gemma4_unified,
 * modeling_mistral3, modeling_gemma3. */
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

/* norm; the patches of a row beside each other, number by number; product; two products */
void tower_merger_pixtral(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    const int n = t->merge * t->merge, d = t->n_embd;
    if (t->soft_norm.w) tower_normed(e, "mm_norm", NORM_RMS, x, x, d, t->out_eps, &t->soft_norm);
    struct view m = tower_merged(e, "merge", x, n, false);
    if (n > 1) {
        struct view c = tower_buffer(e, "unfold", m.width, BUF_ROWS_OUT);
        tower_op(e, "unfold", (struct op){.kind = OP_COLUMNS, .columns = {m, c, t->unfold}});
        m = tower_product(e, "mm_merge", c, &t->more[2], tower_nowhere);
    }
    two_products(e, m, &t->more[0], &t->more[1], rows);
}

/* the patches of a row beside each other; product */
void tower_merger_idefics3(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    tower_product(e, "mm_projection", tower_merged(e, "merge", x, t->merge * t->merge, false), &t->more[0],
                  rows);
}

/* the mean of a row's patches; norm; product */
void tower_merger_gemma3(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    struct view m = tower_merged(e, "pool", x, t->merge * t->merge, true);
    tower_normed(e, "mm_norm", NORM_RMS, m, m, t->n_embd, t->eps, &t->soft_norm);
    tower_product(e, "mm_projection", m, &t->more[0], rows);
}

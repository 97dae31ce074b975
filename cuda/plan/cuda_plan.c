#include "cuda/plan/cuda_plan.h"
#include "cuda/plan/adapted_plan.h"
#include "cuda/plan/fp8_plan.h"
#include "cuda/plan/link_type.h"
#include "cuda/plan/streamk.h"
#include "cuda/plan/blas.h"
#include "cuda/plan/host_part.h"
#include "cuda/plan/index_plan.h"
#include "cuda/plan/kv_halves_plan.h"
#include "cuda/plan/mla_plan.h"
#include "cuda/plan/moe_grouped_plan.h"
#include "cuda/plan/rank_plan.h"
#include "base/mem.h"
#include "seam/op_list.h"
#include "seam/weight.h"

/* Whether some list uses the group's output, or that of its experts, as gate and up of one glu. */
static bool feeds_glu(const struct backend_config *c, int id) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++)
            if (list_is_gated(c->list[cls], i) && op_uses(&c->list[cls]->op[i]).group->id == id) return true;
    return false;
}

/* Whether some list has the group's matrices as experts, as a router, one for each head, or as parts of a table. */
static bool is_apart(const struct backend_config *c, int id) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            const struct op *o = &c->list[cls]->op[i];
            if (o->kind == OP_EXPERTS && o->experts.w->id == id) return true;
            if (o->kind == OP_HEADS && o->heads.w->id == id) return true;
            if (o->kind == OP_NGRAM && o->ngram.w == c->group[id]->member) return true;
            if (o->kind == OP_MATMUL && o->matmul.exact && o->matmul.w->id == id) return true;
        }
    return false;
}

static int round_up(int n, int to) { return (n + to - 1) / to * to; }

/* The factor of a matrix as its units can hold it (levels.cuh), beside exact levels and scales; 0: they cannot. */
static float folded_factor(const struct weight *w) {
    const float f = w->factor;
    return w->type == QUANT_NVFP4 && f != 1 && f >= 0x1p-22f && f <= 255 ? f : 0;
}

/* Regions and member rows of one group; offsets follow *at. */
static enum infer_status group_place(struct cuda_group *g, const struct weight_group *w, bool glu,
                                     size_t *at) {
    g->n_member = w->n_member;
    g->n = w->n;
    g->k = w->k;
    const struct weight *m = w->member;
    g->n_stack = m[0].n_stack;
    g->paired =
        glu && w->n_member == 2 && m[0].n == m[1].n && m[0].n % 16 == 0 &&
        layout_of(m[0].type) == layout_of(m[1].type) &&
        (m[0].factor == m[1].factor || (folded_factor(&m[0]) > 0 && folded_factor(&m[1]) > 0)) &&
        (m[0].type == m[1].type || layout_of(m[0].type) != LAYOUT_LEV); /* a unit has one type's levels */
    int col = 0;
    for (int i = 0; i < w->n_member; i++) {
        enum layout l = layout_of(m[i].type);
        struct cuda_region *r = g->n_region ? &g->region[g->n_region - 1] : NULL;
        if (!r || r->layout != l) {
            r = &g->region[g->n_region++];
            *r = (struct cuda_region){.layout = l, .u = (m[i].k + UNIT_COLS - 1) / UNIT_COLS};
        }
        int inter = g->paired ? UNIT_ROWS / 2 : UNIT_ROWS;
        g->member[i] = (struct cuda_member){.region = g->n_region - 1,
                                            .base = g->paired ? i * inter : r->rows,
                                            .inter = inter,
                                            .stride = g->paired ? 2 * inter : inter,
                                            .n = m[i].n,
                                            .k = m[i].k,
                                            .col = col,
                                            .factor = m[i].factor,
                                            .folded = folded_factor(&m[i])};
        if (g->member[i].folded > 0) g->member[i].factor = 1;
        g->member[i].step = round_up(g->paired ? 2 * m[i].n : m[i].n, UNIT_PAIR);
        if (!g->paired || i == 1) r->rows += g->member[i].step * m[i].n_stack;
        col += m[i].n;
        g->bias |= m[i].bias != NULL;
        g->scaled |= g->member[i].factor != 1;
    }
    for (int i = 0; i < g->n_region; i++) {
        struct cuda_region *r = &g->region[i];
        size_t bytes;
        if (!size_mul((size_t)r->rows / UNIT_ROWS * (size_t)r->u, (size_t)layout_unit_bytes(r->layout),
                      &bytes) ||
            !size_align(bytes, 4096, &bytes))
            return err_set(INFER_E_MEMORY, "cuda: %s is too large", m[0].name);
        r->offset = *at;
        r->bytes = bytes;
        if (!size_add(*at, bytes, at)) return err_set(INFER_E_MEMORY, "cuda: the model is too large");
    }
    return INFER_OK;
}

/* The group whose first member is the embedding (tied), -1: none. Its address alone does not say so: matrices of different
 * shapes may share memory. */
static int tied_group(const struct backend_config *c) {
    const struct weight *e = c->embedding;
    for (int i = 0; e && i < c->n_group; i++) {
        const struct weight *w = &c->group[i]->member[0];
        if (config_uses_group(c, i) && w->data == e->data && w->type == e->type && w->n == e->n &&
            w->k == e->k)
            return i;
    }
    return -1;
}

static enum infer_status place_weights(struct cuda_plan *p, const struct backend_config *c) {
    TRY(weights_known(c, "cuda"));
    TRY(mem_new(&p->group, (size_t)(c->n_group + 1) * sizeof *p->group, "weight table"));
    for (int i = 0; i < c->n_group; i++)
        if (config_uses_group(c, i)) {
            p->group[i].apart = is_apart(c, i);
            TRY(group_place(&p->group[i], c->group[i], feeds_glu(c, i), &p->weight_bytes));
        }
    p->n_group = c->n_group;
    p->embedding = tied_group(c);
    if (p->embedding < 0 && c->embedding) {
        struct weight_group w = {.n_member = 1, .n = c->embedding->n, .k = c->embedding->k};
        w.member[0] = *c->embedding;
        p->embedding = p->n_group++;
        TRY(group_place(&p->group[p->embedding], &w, false, &p->weight_bytes));
    }
    return lowrank_plan_make(&p->lowrank, c, &p->weight_bytes);
}

static enum infer_status place_kv(struct cuda_plan *p, const struct backend_config *c) {
    TRY(mem_new(&p->kv_k, (size_t)(c->n_store + 1) * sizeof *p->kv_k, "KV table"));
    TRY(mem_new(&p->kv_v, (size_t)(c->n_store + 1) * sizeof *p->kv_v, "KV table"));
    for (int s = 0; s < c->n_store; s++) {
        const struct kv_store *st = &c->store[s];
        size_t rows =
                   (size_t)c->kv_group[st->group].n_page * (size_t)st->n_kv_head * (size_t)kv_page_rows(st),
               b;
        if (!config_uses_store(c, s)) continue;
        p->kv_k[s] = p->kv_bytes;
        if (!size_mul(rows, kv_row_bytes(c->kv_type, st->head_dim_k), &b) || !size_align(b, 4096, &b) ||
            !size_add(p->kv_bytes, b, &p->kv_bytes))
            return err_set(INFER_E_MEMORY, "cuda: the KV cache is too large");
        p->kv_v[s] = p->kv_bytes;
        if (!size_mul(rows, kv_row_bytes(c->kv_type, kv_v_dim(st)), &b) || !size_align(b, 4096, &b) ||
            !size_add(p->kv_bytes, b, &p->kv_bytes))
            return err_set(INFER_E_MEMORY, "cuda: the KV cache is too large");
    }
    for (int g = 0; g < c->n_kv_group; g++) {
        p->page_table[g] = p->n_page_entry;
        p->n_page_entry += (size_t)c->n_slot * (size_t)c->kv_group[g].max_pages;
    }
    return INFER_OK;
}

static enum infer_status place_states(struct cuda_plan *p, const struct backend_config *c) {
    TRY(mem_new(&p->state, (size_t)(c->n_state + 1) * sizeof *p->state, "state table"));
    for (int i = 0; i < c->n_state; i++) {
        size_t b;
        if (!config_uses_state(c, i)) continue;
        p->state[i] = p->kv_bytes;
        if (!size_mul((size_t)c->n_state_slot * sizeof(float), (size_t)c->state[i].n_elem, &b) ||
            !size_align(b, 4096, &b) || !size_add(p->kv_bytes, b, &p->kv_bytes))
            return err_set(INFER_E_MEMORY, "cuda: the states are too large");
    }
    return INFER_OK;
}

static size_t pad(size_t n) { return (n + 4095) & ~(size_t)4095; }

static size_t take(struct cuda_plan *p, size_t bytes) {
    size_t at = p->workspace_bytes;
    p->workspace_bytes += (bytes + 1023) & ~(size_t)1023;
    return at;
}

/* Bytes of constants: norm weights, biases, frequencies, sinks, each rounded up to 256. */
static size_t constants(struct cuda_plan *p, const struct backend_config *c) {
    size_t n = 0;
    for (int i = 0; i < c->n_group; i++) {
        p->group[i].bias_offset = n;
        if (p->group[i].bias)
            n += ((size_t)c->group[i]->n * (size_t)p->group[i].n_stack * 4 + 255) & ~(size_t)255;
    }
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            const struct op_use u = op_uses(&l->op[i]);
            for (int k = 0; k < u.n_constant; k++)
                n += ((size_t)u.constant[k].n * sizeof(float) + 255) & ~(size_t)255;
        }
    }
    return n;
}

enum act_slot act_slot_of(const struct op_list *l, int i) {
    const struct view x = l->op[i].matmul.x;
    while (i-- > 0) {
        const struct op_use u = op_uses(&l->op[i]);
        if (u.n_write && view_same(u.write[0], x))
            return l->op[i].kind == OP_ATTEND || l->op[i].kind == OP_HEADS ? ACT_ATTENDED
                   : l->op[i].kind == OP_GLU                               ? ACT_GATED
                                                                           : ACT_NORMED;
    }
    return ACT_NORMED;
}

/* Rows that the kernels of prompt rows may get, whole tiles of 256. */
static size_t tile_rows(const struct backend_config *c) {
    const struct op_list *l = c->list[ROW_PROMPT];
    int rows = l->max_rows > l->max_out ? l->max_rows : l->max_out;
    if (fp8_decode_of(c) && c->list[ROW_DECODE]->max_rows > rows) rows = c->list[ROW_DECODE]->max_rows;
    return (size_t)round_up(rows, 256);
}

/* Activation tiles of the fused program for prompt rows: 256 rows x 64 columns of halves, 32 KB each; 32 columns of floats
 * for F32 weights. */
static void place_tiles(struct cuda_plan *p, const struct backend_config *c) {
    const struct op_list *l = c->list[ROW_PROMPT];
    if (!l) return;
    for (int i = 0; i < l->n_op; i++) {
        const struct op *o = &l->op[i];
        const enum act_slot slot = o->kind == OP_MATMUL   ? act_slot_of(l, i)
                                   : o->kind == OP_ATTEND ? ACT_ATTENDED
                                                          : ACT_GATED;
        const int cols = o->kind == OP_MATMUL   ? o->matmul.w->k
                         : o->kind == OP_ATTEND ? o->attend.out.width
                         : o->kind == OP_GLU    ? o->glu.out.width
                                                : 0;
        if (cols > p->tile_cols[slot]) p->tile_cols[slot] = cols;
    }
    const size_t rows = tile_rows(c) / 256;
    int cols = 64;
    for (int i = 0; i < p->n_group; i++)
        for (int r = 0; r < p->group[i].n_region; r++)
            if (p->group[i].region[r].layout == LAYOUT_F32 && !p->group[i].apart) cols = 32;
    for (int i = 0; i < ACT_SLOTS; i++) /* a k below 64 is a tile */
        p->tiles[i] = take(p, rows * (size_t)round_up(p->tile_cols[i], 64) / (size_t)cols * 32768);
}

/* Of links of prompt rows that leave something from kernel to kernel: one at a time has it. */
static void place_room(struct cuda_plan *p, const struct op_list *l, int n_slot) {
    size_t bytes = 0;
    for (int i = 0; l && i < l->n_op; i++)
        for (int k = 0; k < LINK_KIND_COUNT; k++) {
            const size_t n = link_types[k]->room ? link_types[k]->room(l, &l->op[i], n_slot) : 0;
            if (n > bytes) bytes = n;
        }
    p->prompt_room = take(p, bytes);
}

static void place_adapters(struct cuda_plan *p) {
    const struct lowrank_plan *l = &p->lowrank;
    p->low_parts = take(p, l->n_part * sizeof(struct lowrank_dev_part));
    p->low = take(p, l->n_low ? adapted_bytes(l) : 0);
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        p->low_table[cls] = take(p, l->table[cls].bytes);
        if (l->table[cls].bytes > p->low_table_bytes) p->low_table_bytes = l->table[cls].bytes;
    }
}

/* What block-scaled kernels and cuBLASLt need beside the tiles. */
static void place_other_kernels(struct cuda_plan *p, const struct backend_config *c) {
    const struct op_list *l = c->list[ROW_PROMPT];
    size_t most = 0;
    if (!l) return;
    for (int i = 0; i < ACT_SLOTS; i++)
        if ((size_t)p->tile_cols[i] > most) most = (size_t)p->tile_cols[i];
    most = (most + 63) / 64;
    p->mx_rows = tile_rows(c);
    if (c->cuda.block_scaled) {
        most += most & 1; /* FP8's blocks have two tiles */
        p->mx = take(p, p->mx_rows * most * 64);
        p->mx_scale = take(p, p->mx_rows * most * 4);
    }
    if (c->cuda.blas) {
        p->panel = take(p, (size_t)CUDA_PANEL_ROWS * most * 128);
        p->panel_out = take(p, p->mx_rows * CUDA_PANEL_ROWS * 4);
        p->blas_space = take(p, BLAS_WORKSPACE);
    }
}

static void place_pairs(struct cuda_plan *p, const struct op_list *l) {
    const struct moe_grouped_plan pairs = moe_grouped_plan_of(l);
    p->pairs = take(p, pairs.bytes);
    p->pair_tiles = p->pairs + pairs.tile;
}

/* What several decode rows of experts need: as above, of up to 8 pairs at least; counters of groups of 8 rows; logits. An expert that all
 * rows take may be one choice more. */
static void place_batch(struct cuda_plan *p, const struct op_list *l) {
    size_t pairs = 0, items = 512 /* which kernels read in any case */, experts = 0;
    for (int i = 0; l && i < l->n_op; i++) {
        if (l->op[i].kind != OP_EXPERTS) continue;
        const struct op_experts *o = &l->op[i].experts;
        const size_t n = (size_t)(o->n_used + 1) * (size_t)p->max_decode, e = (size_t)o->w->member[0].n_stack,
                     t = n / 8 + e + 2;
        pairs = n > pairs ? n : pairs;
        items = t > items ? t : items;
        experts = e > experts ? e : experts;
    }
    p->batch_pairs = take(p, pairs * 4);
    p->batch_items = take(p, pairs ? items * 16 : 0);
    p->batch_count = take(p, pairs ? BATCH_COUNT_BYTES + experts * (size_t)p->max_decode * 4 : 0);
}

static void place_experts(struct cuda_plan *p, const struct op_list *pl, const struct op_list *dl) {
    place_pairs(p, pl);
    place_batch(p, dl);
}

static void place_select(struct cuda_plan *p, int n_vocab) {
    p->select_parts = (n_vocab + SELECT_PART - 1) / SELECT_PART;
    const size_t outs = (size_t)p->max_out;
    p->found = take(p, outs * (size_t)p->select_parts * INFER_TOP * 8);
    p->cut = take(p, outs * (size_t)p->select_parts * 8);
    p->best = take(p, outs * (size_t)p->select_parts * 8);
    p->sums = take(p, outs * (size_t)p->select_parts * 16);
    p->arrived = take(p, outs * 4);
}

/* Most columns of a product that decode does not add to the residual stream as it is: a norm, a factor or
 * other ranks come between. */
static int post_width(const struct cuda_plan *p, const struct op_list *l) {
    int most = 0;
    for (int i = 0; l && i + 1 < l->n_op; i++) {
        if (l->op[i].kind != OP_MATMUL) continue;
        const struct op_matmul *m = &l->op[i].matmul;
        const bool normed = l->op[i + 1].kind == OP_NORM && view_same(l->op[i + 1].norm.x, m->out),
                   scaled = l->op[i + 1].kind == OP_ADD && p->group[m->w->id].scaled,
                   shared = l->op[i + 1].kind == OP_REDUCE;
        if ((normed || scaled || shared) && m->out.width > most) most = m->out.width;
    }
    return most;
}

/* Parts that a row's keys are cut into at most. */
static int most_splits(const struct backend_config *c) {
    int max_pages = 1, least = CUDA_SPLIT;
    for (int g = 0; g < c->n_kv_group; g++)
        if (c->kv_group[g].max_pages > max_pages) max_pages = c->kv_group[g].max_pages;
    for (int i = 0; i < c->n_store; i++)
        if (c->store[i].head_dim_k > 128 || c->store[i].head_dim_v > 128) least = CUDA_SPLIT_WIDE;
    const int n = max_pages * KV_PAGE / least + 1;
    return n < 1 << CUDA_SPLIT_SHIFT ? n : 1 << CUDA_SPLIT_SHIFT;
}

/* What attention's parts of a decode row leave. */
static void place_parts(struct cuda_plan *p, const struct backend_config *c) {
    const size_t n = (size_t)p->max_decode * (size_t)(p->max_head_out + 4 * 512) * (size_t)p->max_split * 4,
                 latent = mla_part_bytes(c->list[ROW_DECODE], c->store);
    p->part = take(p, n > latent ? n : latent);
}

/* Bytes of a given row that the operation reads, from the row's begin on. */
static size_t input_end(const struct op *o) {
    if (o->kind == OP_EMBED && !o->embed.beside) return (size_t)o->embed.out.width * 4;
    return o->kind == OP_INPUT ? (size_t)(o->input.from + o->input.out.width) * 4 : 0;
}

/* The widest and the most of both lists. */
static void measure_lists(struct cuda_plan *p, const struct backend_config *c) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        if (!l) continue;
        if (l->max_rows > p->max_rows) p->max_rows = l->max_rows;
        if (l->max_out > p->max_out) p->max_out = l->max_out;
        for (int i = 0; i < l->n_op; i++) {
            const struct op *o = &l->op[i];
            if (input_end(o) > p->input_row) p->input_row = input_end(o);
            if (o->kind == OP_MATMUL && o->matmul.w->k > p->max_k) p->max_k = o->matmul.w->k;
            if (o->kind == OP_GLU && o->glu.out.width > p->max_k) p->max_k = o->glu.out.width;
            if (o->kind == OP_ATTEND && o->attend.out.width > p->max_k) p->max_k = o->attend.out.width;
            if (o->kind == OP_ATTEND && o->attend.out.width > p->max_head_out)
                p->max_head_out = o->attend.out.width;
            if (o->kind == OP_ROPE && o->rope.rope->n_rot > p->rope_row) p->rope_row = o->rope.rope->n_rot;
        }
    }
}

static void place_workspace(struct cuda_plan *p, const struct backend_config *c) {
    const struct op_list *pl = c->list[ROW_PROMPT], *dl = c->list[ROW_DECODE];
    measure_lists(p, c);
    p->max_decode = dl ? round_up(dl->max_rows, 8) : 8;
    if (p->max_rows < p->max_decode) p->max_rows = p->max_decode;
    p->max_split = most_splits(c);
    size_t d = (size_t)p->max_decode, rows = (size_t)p->max_rows;
    size_t u = ((size_t)p->max_k + UNIT_COLS - 1) / UNIT_COLS;
    p->half_row_bytes = u * UNIT_COLS * 4; /* bfloat16 high and low parts */
    const size_t outs = (size_t)p->max_out;
    p->step_draw = (64 + (CUDA_ROW_WORDS * rows + 2 * outs) * 4 + 15) & ~(size_t)15;
    p->step_bytes = p->step_draw + outs * CUDA_DRAW_BYTES;
    p->step = take(p, 256 + p->step_bytes + rows * 4); /* behind it until[rows] */
    p->pages = take(p, p->n_page_entry * 4);
    p->slot_last = take(p, (size_t)c->n_slot * 4);
    p->input = take(p, (size_t)c->n_input * p->input_row);
    p->rope = take(p, (size_t)CUDA_ROPE_MAX * rows * (size_t)p->rope_row * 4);
    for (int i = 0; i < ACT_SLOTS; i++) p->rec[i] = take(p, u * REC_BYTES_16); /* of one row */
    for (int i = 0; i < ACT_SLOTS; i++) p->half[i] = take(p, d * p->half_row_bytes);
    p->square = take(p, d * u * 16 * 4 * 2);
    p->post_bytes = d * (size_t)post_width(p, dl) * 4;
    p->post = take(p, p->post_bytes);
    p->post_square = take(p, p->post_bytes ? d * u * 16 * 4 : 0);
    place_parts(p, c);
    p->item = take(p, (d * (size_t)p->max_split + 1) * 16);
    p->cand = take(p, (size_t)(p->max_out + 8) * 512 * 8);
    place_select(p, c->n_vocab);
    place_experts(p, pl, dl);
    p->counter =
        take(p, (d * 256 + 64) * 4);      /* the last line: decode steps, turns of the host (host_rows.cu) */
    p->wide_count = take(p, 512 * 2 * 4); /* see skinny.h */
    p->constant_bytes = constants(p, c);
    p->constant = take(p, p->constant_bytes);
    /* eight chunks of the upload: not more than there is to upload, and room for a row and for a page */
    p->stage_bytes =
        p->weight_bytes < (size_t)56 << 20 ? pad(p->weight_bytes) + ((size_t)8 << 20) : (size_t)64 << 20;
    p->stage = take(p, p->stage_bytes);
    place_tiles(p, c);
    place_room(p, pl, c->n_slot);
    p->kv_k[c->n_store] = take(p, kv_halves_plan_of(c).bytes);
    p->kv_v[c->n_store] = take(p, index_bytes(c));
    place_other_kernels(p, c);
    place_adapters(p);
    p->scale = take(p, 4 * d * 4 + d * 8);              /* and 1 / rms of many rows */
    p->handoff_bytes = (size_t)p->max_head_out * 3 * 8; /* q, k and v of one row, 8 bytes each */
    p->packets = take(p, p->handoff_bytes + (dl && dl->max_rows == 1 ? streamk_bytes(p) : 0));
    for (int i = ACT_NORMED + 1; i < ACT_SLOTS; i++) p->packet[i] = take(p, p->half_row_bytes * 2);
    if (!size_align(p->workspace_bytes, 4096, &p->workspace_bytes)) p->workspace_bytes = SIZE_MAX;
}

static size_t take_pinned(struct cuda_plan *p, size_t bytes) {
    size_t at = p->pinned_bytes;
    p->pinned_bytes += pad(bytes);
    return at;
}

static void place_pinned(struct cuda_plan *p, const struct backend_config *c) {
    size_t outs = (size_t)p->max_out;
    p->top_offset = pad(outs * 4 + 4);
    p->logits_offset = p->result_bytes = pad(p->top_offset + outs * sizeof(struct infer_top));
    p->host_result_bytes = pad(p->logits_offset + (size_t)c->n_logits * (size_t)c->n_vocab * 4);
    p->blob_bytes = pad(p->step_bytes + (size_t)p->max_rows * 4);
    p->n_edited = p->max_out < c->n_slot ? p->max_out : c->n_slot;
    p->edit_bytes = INFER_EDITS_MAX * sizeof(struct infer_edit) + ((size_t)c->n_vocab + 63) / 64 * 8;
    p->page_bytes = pad(p->n_page_entry * 4);
    p->pin_blob = take_pinned(p, CUDA_FLIGHT * p->blob_bytes);
    p->pin_pages = take_pinned(p, CUDA_FLIGHT * p->page_bytes);
    p->pin_result = take_pinned(p, CUDA_FLIGHT * p->host_result_bytes);
    p->pin_decode_blob = take_pinned(p, CUDA_FLIGHT * p->blob_bytes);
    p->pin_decode_result = take_pinned(p, CUDA_FLIGHT * p->host_result_bytes);
    p->pin_edit = take_pinned(p, CUDA_FLIGHT * (size_t)p->n_edited * p->edit_bytes);
    p->pin_input = take_pinned(p, (size_t)c->n_input * p->input_row);
    p->pin_low = take_pinned(p, CUDA_FLIGHT * p->low_table_bytes);
    if (p->pinned_bytes < p->stage_bytes) p->pinned_bytes = p->stage_bytes;
}

/* Whose operations no kernel computes; NULL: there is one. */
static const char *without_kernel(const struct op *o) {
    if (o->kind == OP_ROUTE && o->route.told && o->route.router->act == ROUTE_NEAR)
        return "routers of Phi-3.5-MoE's kind that are told";
    return NULL;
}
/* What no kernel computes is said before anything is taken. */
static enum infer_status check_routes(const struct backend_config *c) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            const char *what = without_kernel(&l->op[i]);
            if (what)
                return err_set(INFER_E_UNSUPPORTED, "cuda: no kernel for %s; the device 'cpu' has one", what);
        }
    }
    return INFER_OK;
}

enum infer_status cuda_plan_make(struct cuda_plan *p, const struct backend_config *c) {
    memset(p, 0, sizeof *p);
    TRY(check_routes(c));
    enum infer_status st = place_weights(p, c);
    if (st == INFER_OK) st = place_kv(p, c);
    if (st == INFER_OK) st = place_states(p, c);
    struct rank_plan ranks;
    if (st == INFER_OK) st = rank_plan_of(&ranks, c);
    if (st != INFER_OK) {
        cuda_plan_free(p);
        return st;
    }
    place_workspace(p, c);
    if (!size_add(p->workspace_bytes, ranks.bytes, &p->workspace_bytes)) p->workspace_bytes = SIZE_MAX;
    place_pinned(p, c);
    if (p->select_parts > SELECT_PARTS_MAX) {
        cuda_plan_free(p);
        return err_set(INFER_E_UNSUPPORTED, "cuda: a vocabulary of %d tokens (%d at most)", c->n_vocab,
                       SELECT_PART * SELECT_PARTS_MAX);
    }
    return INFER_OK;
}

void cuda_plan_free(struct cuda_plan *p) {
    lowrank_plan_free(&p->lowrank);
    mem_free(p->group);
    mem_free(p->kv_k);
    mem_free(p->kv_v);
    mem_free(p->state);
    memset(p, 0, sizeof *p);
}

enum infer_status cuda_sizes(const struct backend_config *c, struct backend_sizes *out) {
    struct cuda_plan p;
    TRY(cuda_plan_make(&p, c));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct op_list *l = c->list[cls];
        for (int i = 0; l && i < l->n_buf; i++)
            l->buf[i].row_bytes = ((size_t)l->buf[i].width * 4 + 255) & ~(size_t)255;
    }
    *out = (struct backend_sizes){.weight_bytes = p.weight_bytes,
                                  .adapter_bytes = p.lowrank.bytes,
                                  .kv_bytes = p.kv_bytes,
                                  .workspace_bytes = p.workspace_bytes,
                                  .output_bytes = p.result_bytes,
                                  .driver_bytes = (size_t)600 << 20,
                                  .pinned_bytes = p.pinned_bytes + host_part_of(c).bytes};
    cuda_plan_free(&p);
    return INFER_OK;
}

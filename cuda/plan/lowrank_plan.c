#include "cuda/plan/lowrank_plan.h"
#include "cuda/plan/adapted_plan.h"
#include "base/mem.h"
#include "seam/op_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrices ---- */

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const struct lowrank_matrix *)a)->b,
                    y = (uintptr_t)((const struct lowrank_matrix *)b)->b;
    return (x > y) - (x < y);
}
const struct lowrank_matrix *lowrank_find(const struct lowrank_plan *p, const struct lowrank_part *part) {
    const struct lowrank_matrix key = {.b = part->b};
    const struct lowrank_matrix *m =
        bsearch(&key, p->matrix, (size_t)p->n_matrix, sizeof *p->matrix, by_address);
    if (!m) infer_bug("a part of an adapter has no place");
    return m;
}

static bool take(size_t *at, size_t n_stack, size_t rows, size_t cols, size_t *out) {
    size_t n;
    *out = *at;
    return size_mul(n_stack, rows, &n) && size_mul(n, cols, &n) && size_mul(n, 2, &n) &&
           size_align(n, 256, &n) && size_add(*at, n, at);
}

/* Each once: both lists have the same ones. */
static enum infer_status place_matrices(struct lowrank_plan *p, size_t *at) {
    const size_t begin = *at;
    int n = 0;
    qsort(p->matrix, (size_t)p->n_matrix, sizeof *p->matrix, by_address);
    for (int i = 0; i < p->n_matrix; i++)
        if (!n || p->matrix[n - 1].b != p->matrix[i].b) p->matrix[n++] = p->matrix[i];
    p->n_matrix = n;
    for (struct lowrank_matrix *m = p->matrix; m < p->matrix + n; m++) {
        const size_t stack = (size_t)m->n_stack, r = (size_t)m->r;
        if (!take(at, stack, m->a ? r : 0, (size_t)lowrank_pitch(m->k), &m->a_at) ||
            !take(at, stack, r, (size_t)m->n, &m->b_at))
            return err_set(INFER_E_MEMORY, "cuda: the adapters are too large");
    }
    if (!size_align(*at, 4096, at)) return err_set(INFER_E_MEMORY, "cuda: the adapters are too large");
    p->bytes = *at - begin;
    return INFER_OK;
}

int lowrank_up(const float *x, size_t n) {
    float most = 0;
    int e;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    if (!(most > 0)) return 0;
    frexpf(most, &e); /* most < 2^e */
    return 15 - e;
}

void lowrank_dev_parts(const struct lowrank_plan *p, const struct lowrank *w, struct lowrank_dev_part *out,
                       int *few, int *more) {
    *few = *more = 0;
    for (int i = 0; i < w->n_part; i++) {
        const struct lowrank_part *part = &w->part[i];
        const struct lowrank_matrix *m = lowrank_find(p, part);
        out[i] = (struct lowrank_dev_part){.a = m->a_at,
                                           .b = m->b_at,
                                           .adapter = part->adapter,
                                           .col = part->col,
                                           .n = part->n,
                                           .k = part->k,
                                           .r = part->r,
                                           .at = part->at,
                                           .n_stack = part->n_stack,
                                           .first_few = *few,
                                           .first_more = *more,
                                           .vector = !part->a};
        if (!part->a) continue;
        *few += (part->r + LOWRANK_FEW - 1) / LOWRANK_FEW;
        *more += (part->r + LOWRANK_MORE - 1) / LOWRANK_MORE;
    }
}

/* ---- the whole ---- */

static const struct lowrank *parts_of(const struct op *o) {
    return o->kind == OP_LOWRANK ? o->lowrank.w : NULL;
}

/* Parts, adapters and numbers of one list. */
static void measure(struct lowrank_plan *p, const struct op_list *l) {
    for (int i = 0; l && i < l->n_op; i++) {
        const struct op_lowrank *o = &l->op[i].lowrank;
        const struct lowrank *w = parts_of(&l->op[i]);
        if (!w) continue;
        const size_t rows = buf_max_rows(l, &l->buf[o->out.buf]),
                     n = rows * (size_t)(o->choice.buf >= 0 ? o->n_used : 1) * (size_t)w->r;
        if (n > p->n_low) p->n_low = n;
        p->n_part += (size_t)w->n_part;
        for (int k = 0; k < w->n_part; k++)
            if (w->part[k].adapter >= p->n_adapter) p->n_adapter = w->part[k].adapter + 1;
    }
}

enum infer_status lowrank_plan_make(struct lowrank_plan *p, const struct backend_config *c, size_t *at) {
    static const int tile[] = {[ROW_PROMPT] = LOWRANK_TILE_PROMPT, [ROW_DECODE] = LOWRANK_TILE_DECODE};
    *p = (struct lowrank_plan){0};
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        p->first_part[cls] = p->n_part;
        measure(p, c->list[cls]);
    }
    if (!p->n_part) return INFER_OK;
    TRY(mem_new(&p->matrix, p->n_part * sizeof *p->matrix, "adapters"));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        if (l) lowrank_table_of(&p->table[cls], l->max_rows, l->max_out, c->n_slot, p->n_adapter, tile[cls]);
        for (int i = 0; l && i < l->n_op; i++) {
            const struct lowrank *w = parts_of(&l->op[i]);
            for (int k = 0; w && k < w->n_part; k++) {
                const struct lowrank_part *part = &w->part[k];
                p->matrix[p->n_matrix++] = (struct lowrank_matrix){.a = part->a,
                                                                   .b = part->b,
                                                                   .k = part->k,
                                                                   .r = part->r,
                                                                   .n = part->n,
                                                                   .n_stack = part->n_stack};
            }
        }
    }
    return place_matrices(p, at);
}
void lowrank_plan_free(struct lowrank_plan *p) {
    mem_free(p->matrix);
    *p = (struct lowrank_plan){0};
}

/* ---- steps ---- */

static size_t put(struct lowrank_table *t, size_t bytes) {
    const size_t at = t->bytes;
    t->bytes += (bytes + 15) & ~(size_t)15;
    return at;
}
void lowrank_table_of(struct lowrank_table *t, int most_rows, int most_out, int n_slot, int n_adapter,
                      int tile) {
    *t = (struct lowrank_table){
        .n_slot = n_slot, .n_adapter = n_adapter, .tile = tile, .most_rows = {most_rows, most_out}};
    put(t, LOWRANK_SETS * sizeof(int32_t));
    for (int i = 0; i < LOWRANK_SETS; i++) {
        t->most_tiles[i] = lowrank_most_tiles(t->most_rows[i], n_adapter, tile);
        t->tiles[i] = put(t, (size_t)t->most_tiles[i] * 4 * sizeof(int32_t));
        t->order[i] = put(t, (size_t)t->most_rows[i] * 2 * sizeof(int32_t));
    }
    t->scale = put(t, (size_t)n_slot * (size_t)n_adapter * sizeof(float));
    put(t, (size_t)n_adapter * sizeof(float)); /* of the first row: adapted_plan.h */
}

/* The first adapter that a slot has, -1: none; *more: it has others, too. */
static int first_of(const struct lowrank_table *t, const struct step *s, int slot, bool *more) {
    int first = -1;
    *more = false;
    for (int a = 0; a < t->n_adapter; a++) {
        if (step_adapter(s, slot, a) == 0) continue;
        *more |= first >= 0;
        if (first < 0) first = a;
    }
    return first;
}
/* Rows n of a set whose slot is that of row at(i) of the step. */
static int fill_set(const struct lowrank_table *t, const struct step *s, int set, int n, uint8_t *blob,
                    int32_t *owner) {
    int32_t(*tile)[4] = (void *)(blob + t->tiles[set]), (*order)[2] = (void *)(blob + t->order[set]);
    int n_tile = 0, n_row = 0, adapters = 0;
    bool more;
    for (int i = 0; i < n; i++) {
        owner[i] = first_of(t, s, s->slot[set ? s->out_row[i] : i], &more);
        if (owner[i] >= adapters) adapters = owner[i] + 1;
    }
    for (int a = 0; a < adapters; a++)
        for (int i = 0, in_tile = 0; i < n; i++) {
            if (owner[i] != a) continue;
            const int slot = s->slot[set ? s->out_row[i] : i];
            if (in_tile % t->tile == 0) {
                memset(tile[n_tile], 0, sizeof *tile);
                tile[n_tile][0] = n_row, tile[n_tile++][2] = a;
            }
            first_of(t, s, slot, &more);
            tile[n_tile - 1][1]++;
            tile[n_tile - 1][3] |= more;
            order[n_row][0] = i, order[n_row++][1] = slot;
            in_tile++;
        }
    return n_tile;
}
void lowrank_table_fill(const struct lowrank_table *t, const struct step *s, uint8_t *blob, int32_t *owner) {
    int32_t *n_tile = (int32_t *)(void *)blob;
    float *scale = (float *)(void *)(blob + t->scale),
          *one = (float *)(void *)(blob + t->bytes - adapted_one_bytes(t));
    n_tile[0] = fill_set(t, s, 0, s->n_row, blob, owner);
    n_tile[1] = fill_set(t, s, 1, s->n_out, blob, owner);
    for (int i = 0; i < s->n_row; i++)
        for (int a = 0; a < t->n_adapter; a++)
            scale[(size_t)s->slot[i] * (size_t)t->n_adapter + (size_t)a] = step_adapter(s, s->slot[i], a);
    for (int a = 0; a < t->n_adapter; a++) one[a] = step_adapter(s, s->slot[0], a);
}

#include "cuda/run/adapters_run.h"
#include "base/mem.h"
#include "cuda/plan/adapted_plan.h"
#include "quant/quant.h"

#include <math.h>

struct cuda_adapters {
    // of each operation of both lists, in their order: the first of its parts, blocks of ranks; op[cls] by the index in the list
    struct place {
        size_t part;
        int few, more;
    } * op[ROW_CLASS_COUNT];
    uint8_t *now, *sent[ROW_CLASS_COUNT]; // tables: of the step that is sent, and what the card has
    int32_t *owner;
    bool known[ROW_CLASS_COUNT];
    lowrank_dev_part *part;
};

static void free_all(struct cuda_adapters *a) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        mem_free(a->op[cls]);
        mem_free(a->sent[cls]);
    }
    mem_free(a->now);
    mem_free(a->owner);
    mem_free(a->part);
    mem_free(a);
}
void cuda_adapters_close(struct cuda_adapters *a) {
    if (a) free_all(a);
}
static enum infer_status take_all(struct cuda_adapters *a, const cuda_backend *b) {
    const cuda_plan *p = &b->plan;
    const size_t rows = (size_t)(p->max_rows > p->max_out ? p->max_rows : p->max_out);
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        if (!b->c.list[cls]) continue;
        TRY(mem_new(&a->op[cls], (size_t)(b->c.list[cls]->n_op + 1) * sizeof *a->op[cls], "adapters"));
        TRY(mem_new(&a->sent[cls], p->low_table_bytes, "adapters of a step"));
    }
    TRY(mem_new(&a->now, p->low_table_bytes, "adapters of a step"));
    TRY(mem_new(&a->owner, rows * sizeof *a->owner, "adapters of a step"));
    return mem_new(&a->part, p->lowrank.n_part * sizeof *a->part, "adapters");
}
enum infer_status cuda_adapters_open(struct cuda_adapters **out, const cuda_backend *b) {
    struct cuda_adapters *a;
    *out = NULL;
    if (!b->plan.lowrank.n_adapter) return INFER_OK;
    TRY(mem_new(&a, sizeof *a, "adapters"));
    const enum infer_status s = take_all(a, b);
    if (s)
        free_all(a);
    else
        *out = a;
    return s;
}

// ---- upload
// n rows of k numbers, 2^up times them, as halves that lie `pitch` apart; behind a row nothing is written, the arena is 0.
static enum infer_status send_rows(cuda_backend *b, const float *x, size_t n, int k, int pitch, int up,
                                   size_t at, float *row) {
    const size_t bytes = (size_t)pitch * 2, most = b->plan.stage_bytes / bytes;
    if (!most) return err_set(INFER_E_UNSUPPORTED, "cuda: a row of an adapter has %d numbers", k);
    for (size_t done = 0, m; done < n; done += m) {
        m = n - done < most ? n - done : most;
        memset(b->pinned, 0, m * bytes);
        for (size_t i = 0; i < m; i++) {
            for (int c = 0; c < k; c++) row[c] = ldexpf(x[(done + i) * (size_t)k + (size_t)c], up);
            quant_info(QUANT_F16)->encode(b->pinned + i * bytes, row, (size_t)k, NULL);
        }
        CU(cudaMemcpyAsync(b->weights + at + done * bytes, b->pinned, m * bytes, cudaMemcpyHostToDevice,
                           b->stream));
        CU(cudaStreamSynchronize(b->stream));
    }
    return INFER_OK;
}
static enum infer_status send_matrices(cuda_backend *b, float *row) {
    const struct lowrank_plan *p = &b->plan.lowrank;
    for (const lowrank_matrix *m = p->matrix; m < p->matrix + p->n_matrix; m++) {
        const size_t rows = (size_t)m->n_stack * (size_t)m->r;
        if (m->a)
            TRY(send_rows(b, m->a, rows, m->k, lowrank_pitch(m->k), lowrank_up(m->a, rows * (size_t)m->k),
                          m->a_at, row));
        TRY(send_rows(b, m->b, rows, m->n, m->n, lowrank_up(m->b, rows * (size_t)m->n), m->b_at, row));
    }
    return INFER_OK;
}
static void place_parts(cuda_backend *b) {
    const struct lowrank_plan *p = &b->plan.lowrank;
    size_t n = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = b->c.list[cls];
        for (int i = 0; l && i < l->n_op; i++) {
            cuda_adapters::place *at = &b->adapters->op[cls][i];
            if (l->op[i].kind != OP_LOWRANK) continue;
            const struct lowrank *w = l->op[i].lowrank.w;
            at->part = n;
            lowrank_dev_parts(p, w, b->adapters->part + n, &at->few, &at->more);
            for (int k = 0; k < w->n_part; k++, n++) {
                const lowrank_matrix *m = lowrank_find(p, &w->part[k]);
                const size_t rows = (size_t)m->n_stack * (size_t)m->r;
                lowrank_dev_part *d = &b->adapters->part[n];
                d->down_a = m->a ? ldexpf(1, -lowrank_up(m->a, rows * (size_t)m->k)) : 1;
                d->down_b = ldexpf(1, -lowrank_up(m->b, rows * (size_t)m->n));
            }
        }
    }
}
enum infer_status cuda_adapters_upload(cuda_backend *b) {
    const struct lowrank_plan *p = &b->plan.lowrank;
    int most = 1;
    float *row;
    if (!b->adapters) return INFER_OK;
    for (int i = 0; i < p->n_matrix; i++) {
        if (p->matrix[i].k > most) most = p->matrix[i].k;
        if (p->matrix[i].n > most) most = p->matrix[i].n;
    }
    TRY(mem_new(&row, (size_t)most * sizeof *row, "a row of an adapter"));
    const enum infer_status s = send_matrices(b, row);
    mem_free(row);
    TRY(s);
    place_parts(b);
    CU(cudaMemcpyAsync(b->work + b->plan.low_parts, b->adapters->part, p->n_part * sizeof *b->adapters->part,
                       cudaMemcpyHostToDevice, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}

// ---- steps
enum infer_status cuda_adapters_send(cuda_backend *b, enum row_class cls, const struct step *s, unsigned f) {
    struct cuda_adapters *a = b->adapters;
    if (!a) return INFER_OK;
    const struct lowrank_table *t = &b->plan.lowrank.table[cls];
    lowrank_table_fill(t, s, a->now, a->owner);
    if (a->known[cls] && !memcmp(a->now, a->sent[cls], t->bytes)) return INFER_OK;
    uint8_t *pinned = b->pinned + b->plan.pin_low + f * b->plan.low_table_bytes;
    memcpy(pinned, a->now, t->bytes);
    memcpy(a->sent[cls], a->now, t->bytes);
    a->known[cls] = true;
    CU(cudaMemcpyAsync(b->work + b->plan.low_table[cls], pinned, t->bytes, cudaMemcpyHostToDevice,
                       b->stream));
    return INFER_OK;
}

// ---- the operation
lowrank_job cuda_adapters_job(const cuda_backend *b, const struct op_list *l, const struct op *op) {
    const struct op_lowrank *o = &op->lowrank;
    const struct lowrank_table *t = &b->plan.lowrank.table[l->cls];
    const cuda_adapters::place *at = &b->adapters->op[l->cls][op - l->op];
    const uint8_t *table = b->work + b->plan.low_table[l->cls];
    const int set = cuda_out_rows(l, o->out);
    lowrank_job j = {};
    j.weights = b->weights;
    j.part = (const lowrank_dev_part *)(b->work + b->plan.low_parts) + at->part;
    j.n_part = o->w->n_part;
    j.n_tile = (const int *)table + set;
    j.tile = (const int4 *)(table + t->tiles[set]);
    j.order = (const int2 *)(table + t->order[set]);
    j.scale = (const float *)(table + t->scale);
    j.n_adapter = t->n_adapter;
    j.x = cuda_rows(b, l, o->x);
    j.out = cuda_rows(b, l, o->out);
    j.pairs = 1;
    if (o->choice.buf >= 0) {
        j.choice = cuda_rows(b, l, o->choice);
        j.pairs = j.n_used = o->n_used;
        j.by_choice = o->by_choice;
        j.weighted = o->weighted;
    }
    j.low = (float *)(b->work + b->plan.low);
    j.r = o->w->r;
    j.few = at->few;
    j.more = at->more;
    return j;
}
const lowrank_dev_part *cuda_adapters_parts(const cuda_backend *b, const struct op_list *l,
                                            const struct op *op) {
    return b->adapters->part + b->adapters->op[l->cls][op - l->op].part;
}
const float *cuda_adapters_one(const cuda_backend *b) {
    const struct lowrank_table *t = &b->plan.lowrank.table[ROW_DECODE];
    return (const float *)(b->work + b->plan.low_table[ROW_DECODE] + t->bytes - adapted_one_bytes(t));
}
int cuda_adapters_tiles(const cuda_backend *b, int n) {
    const struct lowrank_table *t = &b->plan.lowrank.table[ROW_DECODE];
    return lowrank_most_tiles(n, t->n_adapter, t->tile);
}
// The host knows how many tiles they have; graphs of decode rows hold for any.
enum infer_status cuda_adapters_prompt(const cuda_backend *b, const lowrank_job &j, bool outs,
                                       cudaStream_t s) {
    const int tiles = ((const int *)b->adapters->now)[outs];
    CU(op_lowrank_down(j, tiles, !b->c.strict_fp32 && !b->c.no_fuse, op_queue{s, false}));
    CU(op_lowrank_up(j, tiles, op_queue{s, false}));
    return INFER_OK;
}
enum infer_status cuda_adapters_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                   op_queue s) {
    lowrank_job j = cuda_adapters_job(b, l, o);
    if (l->cls == ROW_PROMPT) return cuda_adapters_prompt(b, j, cuda_out_rows(l, o->lowrank.out), s.stream);
    const int tiles = cuda_adapters_tiles(b, n);
    j.one = n == 1;
    CU(op_lowrank_down(j, tiles, false, s));
    CU(op_lowrank_up(j, tiles, s));
    return INFER_OK;
}

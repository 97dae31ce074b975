/* The small ops: shares of rows, one kernel call a row. */
#include "cpu/cpu_list.h"
#include "seam/comm.h"

#include <string.h>

void cpu_op_embed(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_embed *e = &op->op->embed;
    const struct quant_info *q = e->w ? quant_info(e->w->type) : NULL;
    const size_t row = q ? quant_row_bytes(q, (size_t)e->w->k) : 0;
    const float scale = q ? e->scale * e->w->factor : 1;
    int a, b;
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        float *out = cpu_row(s, e->out, t);
        const bool given = s->s->input && s->s->input[t];
        if (given && !e->beside) {
            memcpy(out, s->s->input[t], (size_t)e->out.width * sizeof *out);
            continue;
        }
        q->decode(out, (const uint8_t *)e->w->data + (size_t)op_embed_row(e, s->s->id[t], given) * row,
                  (size_t)e->w->k);
        if (scale != 1)
            for (int i = 0; i < e->w->k; i++) out[i] *= scale;
    }
}

void cpu_op_norm(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_norm *n = &op->op->norm;
    int a, b;
    cpu_share(cpu_rows(s, n->x), thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        s->cpu->k->norm(n, cpu_row(s, n->x, t), cpu_row(s, n->out, t), n->x.width);
        cpu_guard(s, op->op, t, cpu_row(s, n->out, t), n->out.width);
    }
}

void cpu_op_rope(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_rope *r = &op->op->rope;
    struct cpu *c = s->cpu;
    int a, b;
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++)
        c->k->rope(r, c->cs + ((size_t)op->cs * (size_t)c->cs_rows + (size_t)t) * (size_t)c->cs_width,
                   cpu_row(s, r->x, t));
}

/* One head of one row into its page. */
void cpu_put_head(const struct op *op, struct cpu_step *s, int t, int h) {
    const struct op_kv_put *p = &op->kv_put;
    struct cpu *c = s->cpu;
    const struct kv_store *st = &c->config.store[p->store];
    const struct kv_group *g = &c->config.kv_group[st->group];
    int pos = s->s->pos[t];
    if (!kv_keeps(st, pos)) return;
    int page = s->s->pages[st->group][(size_t)s->s->slot[t] * (size_t)g->max_pages + (size_t)(pos / KV_PAGE)];
    size_t start = (size_t)page * c->page_stride[st->group],
           at = (size_t)(h * kv_page_rows(st) + kv_page_row(st, pos));
    c->k->kv_store(st->k_type, c->k_pool[p->store] + start + at * kv_k_bytes(st),
                   cpu_row(s, p->k, t) + h * st->head_dim_k, st->head_dim_k, kv_turn_of(st, false));
    if (st->v_in_k) return;
    c->k->kv_store(st->v_type, c->v_pool[p->store] + start + at * kv_v_bytes(st),
                   cpu_row(s, p->v, t) + h * st->head_dim_v, st->head_dim_v, kv_turn_of(st, true));
}

void cpu_op_kv_put(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    int a, b, heads = s->cpu->config.store[op->op->kv_put.store].n_kv_head;
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++)
        for (int h = 0; h < heads; h++) cpu_put_head(op->op, s, t, h);
}

/* Each thread has channels of its own, for all rows: their state stays with it. */
void cpu_op_conv(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    enum { BLOCK = 64 };
    const struct op_conv *o = &op->op->conv;
    struct cpu *c = s->cpu;
    const int32_t *slot = s->s->slot;
    int a, b, n_elem = c->config.state[o->state].n_elem;
    cpu_share((o->x.width + BLOCK - 1) / BLOCK, thread, n_thread, &a, &b);
    if (b * BLOCK > o->x.width)
        b = o->x.width;
    else
        b *= BLOCK;
    for (int t = 0, n; t < s->n_row; t += n) { /* runs of one sequence */
        for (n = 1; t + n < s->n_row && slot[t + n] == slot[t]; n++) {
        }
        c->k->conv(o, a * BLOCK, b, n, s->s->pos[t], cpu_row(s, o->x, t), cpu_stride(s, o->x),
                   cpu_row(s, o->out, t), cpu_stride(s, o->out),
                   c->state[o->state] + (size_t)slot[t] * (size_t)n_elem);
    }
}

/* Of a row whose gate has one number for several of out. */
static void glu_by_heads(const struct cpu_kernels *k, const struct op_glu *g, const float *gate,
                         const float *up, float *out) {
    enum { SOME = 64 };
    const int each = g->out.width / g->gate.width;
    float f[SOME];
    for (int h0 = 0; h0 < g->gate.width; h0 += SOME) {
        const int n = g->gate.width - h0 < SOME ? g->gate.width - h0 : SOME;
        k->glu(g, gate + h0, NULL, f, n);
        for (int h = 0; h < n; h++)
            k->mix(NULL, 0, NULL, 0, up + (h0 + h) * each, f[h], out + (h0 + h) * each, each);
    }
}
void cpu_op_glu(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_glu *g = &op->op->glu;
    int a, b;
    cpu_share(cpu_rows(s, g->gate), thread, n_thread, &a, &b);
    for (int t = a; g->gate.width < g->out.width && t < b; t++)
        glu_by_heads(s->cpu->k, g, cpu_row(s, g->gate, t), cpu_row(s, g->up, t), cpu_row(s, g->out, t));
    for (int t = a; g->gate.width == g->out.width && t < b; t++)
        s->cpu->k->glu(g, cpu_row(s, g->gate, t), g->up.buf < 0 ? NULL : cpu_row(s, g->up, t),
                       cpu_row(s, g->out, t), g->out.width);
}

void cpu_op_add(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_add *d = &op->op->add;
    int a, b;
    cpu_share(cpu_rows(s, d->out), thread, n_thread, &a, &b);
    for (int t = a; t < b; t++)
        s->cpu->k->add(cpu_row(s, d->a, t), cpu_row(s, d->b, t), cpu_row(s, d->out, t), d->out.width);
}

void cpu_op_position(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_position *p = &op->op->position;
    int a, b;
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        float *x = cpu_row(s, p->x, t);
        s->cpu->k->add(x, p->table + (size_t)s->s->pos[t] * (size_t)p->x.width, x, p->x.width);
    }
}

void cpu_op_columns(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_columns *o = &op->op->columns;
    int a, b;
    cpu_share(cpu_rows(s, o->out), thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        const float *x = cpu_row(s, o->x, t);
        float *out = cpu_row(s, o->out, t);
        for (int i = 0; i < o->out.width; i++) out[i] = x[o->from[i]];
    }
}

void cpu_op_rows(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_rows *r = &op->op->rows;
    int a, b;
    cpu_share(s->n_out, thread, n_thread, &a, &b);
    for (int j = a; j < b; j++)
        memcpy(cpu_row(s, r->out, j), cpu_row(s, r->x, s->s->out_row[j]), sizeof(float) * (size_t)r->x.width);
}

void cpu_op_merge(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_merge *m = &op->op->merge;
    const float part = 1 / (float)m->n;
    int a, b;
    cpu_share(s->n_out, thread, n_thread, &a, &b);
    for (int j = a; j < b; j++) {
        float *out = cpu_row(s, m->out, j);
        for (int k = 0; !m->mean && k < m->n; k++)
            memcpy(out + k * m->x.width, cpu_row(s, m->x, j * m->n + k), sizeof(float) * (size_t)m->x.width);
        if (!m->mean) continue;
        s->cpu->k->mix(NULL, m->n, cpu_row(s, m->x, j * m->n), cpu_stride(s, m->x), NULL, 0, out, m->x.width);
        for (int i = 0; i < m->x.width; i++) out[i] *= part;
    }
}

void cpu_op_input(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_input *o = &op->op->input;
    const size_t n = sizeof(float) * (size_t)o->out.width;
    int a, b;
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) {
        if (s->s->input && s->s->input[t])
            memcpy(cpu_row(s, o->out, t), s->s->input[t] + o->from, n);
        else
            memset(cpu_row(s, o->out, t), 0, n);
    }
}

/* Ranks meet here: one thread of each does the talking. */
void cpu_op_reduce(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct view x = op->op->reduce.x;
    struct comm *c = s->cpu->config.comm;
    (void)n_thread;
    if (thread) return;
    enum infer_status st = c->type->reduce(c, cpu_row(s, x, 0), cpu_rows(s, x), cpu_stride(s, x), x.width);
    if (st != INFER_OK) cpu_fault(s, op->op, st);
}
void cpu_op_gather(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_gather *o = &op->op->gather;
    struct comm *c = s->cpu->config.comm;
    const int n = cpu_rows(s, o->x);
    (void)n_thread;
    if (thread) return;
    for (int t = 0; t < n; t++)
        memcpy(cpu_row(s, o->out, t) + o->col[c->rank], cpu_row(s, o->x, t),
               (size_t)o->x.width * sizeof(float));
    enum infer_status st = c->type->gather(c, cpu_row(s, o->out, 0), n, cpu_stride(s, o->out), o->col);
    if (st != INFER_OK) cpu_fault(s, op->op, st);
}

/* The attention ops: who computes what. */
#include "cpu/cpu_list.h"

/* One key head of many query heads is one unit's work a row, which is too much for one thread: these heads come in blocks. Their sums are
 * each head's own, so the bits stay. */
enum { LATENT_HEADS = 4 };
static int unit_heads(const struct op_attend *at, const struct kv_store *st) { /* query heads of a unit */
    int G = at->n_head / st->n_kv_head;
    return st->v_in_k && !at->sinks && G % LATENT_HEADS == 0 ? LATENT_HEADS : G;
}
static int unit_columns(const struct op_attend *at,
                        const struct kv_store *st) { /* units of a row and a part */
    return at->n_head / unit_heads(at, st);
}

/* Lists are looked at where there are other positions, or entries; as many as are looked at, less one, are the place of a row then. */
static int near_of(const struct op_attend *at, int pos) {
    return at->entries ? pos + 1 - op_attend_first(at, pos) : 0;
}
static int place(const struct op_attend *at, int pos) {
    return near_of(at, pos) + choice_count(&at->by, pos) - 1;
}
static bool is_listed(const struct op_attend *at, int pos) { return at->entries || place(at, pos) != pos; }
static const float *chosen(const struct op_attend *at, const struct cpu_step *s, int t, int head) {
    if (!at->by.n_top || !is_listed(at, s->s->pos[t])) return NULL;
    return cpu_row(s, at->chosen, t) + (at->by.by_head ? head * choice_room(&at->by) : 0);
}

static struct cpu_attend_arg attend_arg(const struct cpu_op *op, const struct cpu_step *s, int t, int head) {
    const struct op_attend *a = &op->op->attend;
    const struct cpu *c = s->cpu;
    const struct kv_store *st = &c->config.store[a->store];
    const struct kv_group *g = &c->config.kv_group[st->group];
    const int pos = s->s->pos[t], lg = a->entries ? c->config.store[a->entries - 1].group : 0;
    return (struct cpu_attend_arg){
        .op = a,
        .store = st,
        .k_pool = c->k_pool[a->store],
        .v_pool = c->v_pool[a->store],
        .page_stride = c->page_stride[st->group],
        .heads = a->n_head / st->n_kv_head,
        .pages = s->s->pages[st->group] + (size_t)s->s->slot[t] * (size_t)g->max_pages,
        .chosen = chosen(a, s, t, head),
        .listed = is_listed(a, pos),
        .n_near = near_of(a, pos),
        .near = op_attend_first(a, pos),
        .every = a->by.block,
        .list_pool = a->entries ? c->k_pool[a->entries - 1] : NULL,
        .list_store = a->entries ? &c->config.store[a->entries - 1] : NULL,
        .list_stride = c->page_stride[lg],
        .list_pages = s->s->pages[lg] + (size_t)s->s->slot[t] * (size_t)c->config.kv_group[lg].max_pages};
}

/* ---- decode rows ----
 *
 * A context is summed in parts of whole pages, at most CPU_ATTEND_PARTS, merged in order. Where they are cut follows from
 * the row's position alone, so the bits depend neither on the threads nor on the rows beside it. */

static int part_pages(int pos) {
    int n = (pos / KV_PAGE + CPU_ATTEND_PARTS) / CPU_ATTEND_PARTS;
    return n > CPU_PART_PAGES ? n : CPU_PART_PAGES;
}
static int n_part(int pos) { return pos / KV_PAGE / part_pages(pos) + 1; }
static int row_parts(const struct op_attend *at, const struct cpu_step *s, int t) {
    return n_part(place(at, s->s->pos[t]));
}
static int most_parts(const struct op_attend *at, const struct cpu_step *s) {
    int n = 1;
    for (int t = 0; t < s->n_row; t++)
        if (row_parts(at, s, t) > n) n = row_parts(at, s, t);
    return n;
}
/* Few rows share the work by parts, too. */
static int shared_parts(const struct op_attend *at, const struct cpu_step *s) {
    return s->n_row <= CPU_PART_ROWS ? most_parts(at, s) : 1;
}

int cpu_attend_units(const struct cpu_op *op, const struct cpu_step *s) {
    const struct op_attend *at = &op->op->attend;
    int heads = unit_columns(at, &s->cpu->config.store[at->store]);
    return op->put && most_parts(at, s) == 1 ? heads : heads * s->n_row * shared_parts(at, s);
}

static int part_floats(const struct op_attend *at, const struct kv_store *st) { /* of one unit's heads */
    return unit_heads(at, st) * (st->head_dim_v + 2);
}
size_t cpu_attend_part_floats(int heads, int hv) {
    return (size_t)heads * (size_t)(hv + 2) * CPU_ATTEND_PARTS;
}

static void attend_part(const struct cpu_op *op, struct cpu_step *s, int thread, int t, int h, int i,
                        float *part) {
    const struct op_attend *at = &op->op->attend;
    const struct kv_store *st = &s->cpu->config.store[at->store];
    const int pos = place(at, s->s->pos[t]), pages = part_pages(pos), G = unit_heads(at, st),
              head = h * G / (at->n_head / st->n_kv_head);
    struct cpu_attend_arg arg = attend_arg(op, s, t, head);
    arg.heads = G;
    s->cpu->k->attend_row(&arg, head, pos, i * pages, (i + 1) * pages,
                          cpu_row(s, at->q, t) + h * G * arg.store->head_dim_k, part,
                          s->cpu->work[thread].scratch);
}
static void merge_parts(const struct cpu_op *op, struct cpu_step *s, int t, int h, const float *part) {
    const struct op_attend *at = &op->op->attend;
    struct cpu_attend_arg arg = attend_arg(op, s, t, 0);
    int G = arg.heads = unit_heads(at, arg.store);
    s->cpu->k->attend_merge(&arg, h, row_parts(at, s, t), part,
                            cpu_row(s, at->out, t) + h * G * arg.store->head_dim_v);
}
static void attend_whole(const struct cpu_op *op, struct cpu_step *s, int thread, int t, int h) {
    const struct op_attend *at = &op->op->attend;
    float *part = s->cpu->work[thread].part;
    int step = part_floats(at, &s->cpu->config.store[at->store]);
    for (int i = 0; i < row_parts(at, s, t); i++) attend_part(op, s, thread, t, h, i, part + i * step);
    merge_parts(op, s, t, h, part);
}

/* Folded rope and kv_put of one kv head. */
static void rotate_and_put(const struct cpu_op *op, struct cpu_step *s, int t, int h) {
    struct cpu *c = s->cpu;
    const struct kv_store *st = &c->config.store[op->op->attend.store];
    const float *cs = c->cs + ((size_t)op->cs * (size_t)c->cs_rows + (size_t)t) * (size_t)c->cs_width;
    struct op_rope part = op->rope_q->rope;
    part.n_head = op->op->attend.n_head / st->n_kv_head;
    c->k->rope(&part, cs, cpu_row(s, part.x, t) + h * part.n_head * st->head_dim_k);
    part = op->rope_k->rope;
    part.n_head = 1;
    c->k->rope(&part, cs, cpu_row(s, part.x, t) + h * st->head_dim_k);
    cpu_put_head(op->put, s, t, h);
}

/* Units: kv heads (or blocks of query heads), when rope and kv_put are folded in and contexts are short (all rows of a head go into the cache
 * before one looks at it); else (kv head, part, row): rows of one sequence find a part in L2. */
void cpu_op_attend_decode(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_attend *at = &op->op->attend;
    const struct kv_store *st = &s->cpu->config.store[at->store];
    int heads = unit_columns(at, st), parts = shared_parts(at, s), step = part_floats(at, st), victim = 0, u,
        a, b;
    if (op->put && most_parts(at, s) == 1) {
        while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
            for (int t = 0; t < s->n_row; t++) rotate_and_put(op, s, t, u);
            for (int t = 0; t < s->n_row; t++) attend_whole(op, s, thread, t, u);
        }
        return;
    }
    cpu_share(s->n_row * heads, thread, n_thread, &a, &b);
    if (op->put) {
        for (int i = a; i < b; i++) rotate_and_put(op, s, i / heads, i % heads);
        cpu_barrier(s);
    }
    float *all = s->cpu->part;
#define PART(t, h, i) (all + (size_t)(((t)*heads + (h)) * CPU_ATTEND_PARTS + (i)) * (size_t)step)
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int t = u % s->n_row, i = u / s->n_row % parts, h = u / s->n_row / parts;
        if (parts == 1)
            attend_whole(op, s, thread, t, h);
        else if (i < row_parts(at, s, t))
            attend_part(op, s, thread, t, h, i, PART(t, h, i));
    }
    if (parts == 1) return;
    cpu_barrier(s);
    for (int i = a; i < b; i++) merge_parts(op, s, i / heads, i % heads, PART(i / heads, i % heads, 0));
#undef PART
}

/* ---- prompt rows ---- */

/* Units: blocks of query rows x kv heads (x parts of the heads where they do not fit side by side). */
void cpu_attend_shape(const struct cpu *c, const struct op_attend *at, int *tokens, int *heads, int *parts) {
    const struct kv_store *st = &c->config.store[at->store];
    int G = at->n_head / st->n_kv_head;
    int lanes = cpu_attend_tiles(c, st) ? CPU_AMX_ATTEND_ROWS : CPU_ATTEND_LANES;
    *heads = G < lanes ? G : lanes;
    *parts = (G + *heads - 1) / *heads;
    *tokens = at->by.n_top || at->entries ? 1 : lanes / *heads;
}
void cpu_op_attend_prompt(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_attend *at = &op->op->attend;
    struct cpu *c = s->cpu;
    const struct kv_store *st = &c->config.store[at->store];
    int tokens, heads, parts, victim = 0, u, G = at->n_head / st->n_kv_head;
    cpu_attend_shape(c, at, &tokens, &heads, &parts);
    cpu_attend_block_fn *attend = cpu_attend_tiles(c, st) ? cpu_amx_attend_block : c->k->attend_block;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        int part = u % parts, h = u / parts % st->n_kv_head, block = u / parts / st->n_kv_head;
        int end = (block + 1) * tokens < s->n_row ? (block + 1) * tokens : s->n_row;
        int head0 = h * G + part * heads, n_head = G - part * heads < heads ? G - part * heads : heads;
        for (int t = block * tokens, n; t < end; t += n) { /* runs of one sequence */
            for (n = 1; t + n < end && s->s->slot[t + n] == s->s->slot[t]; n++) {
            }
            struct cpu_attend_arg arg = attend_arg(op, s, t, h);
            const int32_t last = place(at, s->s->pos[t]);
            if (at->both && s->s->until) arg.until = s->s->until + t;
            attend(&arg, h, arg.listed ? &last : s->s->pos + t, n, head0, n_head,
                   cpu_row(s, at->q, t) + head0 * st->head_dim_k, cpu_stride(s, at->q),
                   cpu_row(s, at->out, t) + head0 * st->head_dim_v, cpu_stride(s, at->out),
                   c->work[thread].scratch);
        }
    }
}

/* ---- without a store ---- */

int cpu_attend_rows_shape(const struct op_attend *at, int *unit_rows) {
    *unit_rows = CPU_ATTEND_LANES;
    return at->n_head;
}

/* Units: heads x blocks of query rows, a head's blocks one after the other, for they read the same keys and values. */
void cpu_op_attend_rows(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_attend *at = &op->op->attend;
    const int dk = at->q.width / at->n_head, dv = at->out.width / at->n_head, G = at->n_head / at->n_kv_head,
              blocks = (s->n_row + CPU_ATTEND_LANES - 1) / CPU_ATTEND_LANES,
              n_ask = at->ask ? at->ask : s->n_row;
    const size_t n_bias = 2 * (size_t)at->n_bias + 1;
    const int32_t *slot = at->both ? NULL : s->s->slot;
    int victim = 0, u;
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        const int h = u / blocks, begin = u % blocks * CPU_ATTEND_LANES,
                  end = begin + CPU_ATTEND_LANES < n_ask ? begin + CPU_ATTEND_LANES : n_ask;
        const struct cpu_rows_arg arg = {.op = at,
                                         .k = cpu_row(s, at->k, at->ask) + h / G * dk,
                                         .v = cpu_row(s, at->v, at->ask) + h / G * dv,
                                         .k_stride = cpu_stride(s, at->k),
                                         .v_stride = cpu_stride(s, at->v),
                                         .dk = dk,
                                         .dv = dv,
                                         .slot = slot,
                                         .n_row = s->n_row - at->ask,
                                         .sink = at->sinks ? &at->sinks[h] : NULL,
                                         .bias = at->bias ? at->bias + (size_t)h * n_bias : NULL};
        for (int t = begin, n; t < end; t += n) { /* runs of one slot */
            for (n = 1; t + n < end && (!slot || slot[t + n] == slot[t]); n++) {
            }
            s->cpu->k->attend_rows(&arg, t, n, cpu_row(s, at->q, t) + h * dk, cpu_stride(s, at->q),
                                   cpu_row(s, at->out, t) + h * dv, cpu_stride(s, at->out),
                                   s->cpu->work[thread].scratch);
        }
    }
}

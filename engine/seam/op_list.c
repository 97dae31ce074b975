#include "seam/op_list.h"

#include <stddef.h>
#include <stdio.h>

/* What a kind reads and writes, as places of views, weights and numbers of stores in struct op; 0: none. */
#define AT(field) (unsigned char)offsetof(struct op, field)
static const struct op_places {
    enum op_span span;
    unsigned char read[OP_READS], write;
    unsigned char reads_store, writes_store, state;
    unsigned char group;
} places[] = {
    [OP_EMBED] = {.span = OP_SPAN_STEP, .write = AT(embed.out)},
    [OP_NORM] = {.span = OP_SPAN_BUFFER, .read = {AT(norm.x)}, .write = AT(norm.out)},
    [OP_MATMUL] = {.span = OP_SPAN_BUFFER,
                   .read = {AT(matmul.x)},
                   .write = AT(matmul.out),
                   .group = AT(matmul.w)},
    [OP_ROPE] = {.span = OP_SPAN_STEP, .read = {AT(rope.x)}, .write = AT(rope.x)},
    [OP_KV_PUT] = {.span = OP_SPAN_STEP,
                   .read = {AT(kv_put.k), AT(kv_put.v)},
                   .writes_store = AT(kv_put.store)},
    [OP_ATTEND] = {.span = OP_SPAN_STEP,
                   .read = {AT(attend.q), AT(attend.k), AT(attend.v), AT(attend.chosen)},
                   .write = AT(attend.out),
                   .reads_store = AT(attend.store)},
    [OP_GLU] = {.span = OP_SPAN_BUFFER, .read = {AT(glu.gate), AT(glu.up)}, .write = AT(glu.out)},
    [OP_ADD] = {.span = OP_SPAN_BUFFER, .read = {AT(add.a), AT(add.b)}, .write = AT(add.out)},
    [OP_ROWS] = {.span = OP_SPAN_WANTED,
                 .read = {AT(rows.x)},
                 .write = AT(rows.out)}, /* reads the rows of the step that it picks */
    [OP_MERGE] = {.span = OP_SPAN_WANTED,
                  .read = {AT(merge.x)},
                  .write = AT(merge.out)}, /* and these the rows that are merged */
    [OP_INPUT] = {.span = OP_SPAN_STEP, .write = AT(input.out)},
    [OP_SELECT] = {.span = OP_SPAN_WANTED, .read = {AT(select.logits)}}, /* writes the step's result alone */
    [OP_CONV] = {.span = OP_SPAN_STEP, .read = {AT(conv.x)}, .write = AT(conv.out), .state = AT(conv.state)},
    [OP_DELTA] = {.span = OP_SPAN_STEP,
                  .read = {AT(delta.qkv), AT(delta.a), AT(delta.b)},
                  .write = AT(delta.out),
                  .state = AT(delta.state)},
    [OP_SSM] = {.span = OP_SPAN_STEP,
                .read = {AT(ssm.xbc), AT(ssm.dt)},
                .write = AT(ssm.out),
                .state = AT(ssm.state)},
    [OP_ROUTE] = {.span = OP_SPAN_BUFFER, .read = {AT(route.logits)}, .write = AT(route.choice)},
    [OP_EXPERTS] = {.span = OP_SPAN_BUFFER,
                    .read = {AT(experts.x), AT(experts.choice)},
                    .write = AT(experts.out),
                    .group = AT(experts.w)},
    [OP_MIX] = {.span = OP_SPAN_BUFFER,
                .read = {AT(mix.x), AT(mix.choice), AT(mix.shared), AT(mix.gate)},
                .write = AT(mix.out)},
    [OP_POSITION] = {.span = OP_SPAN_STEP, .read = {AT(position.x)}, .write = AT(position.x)},
    [OP_HEADS] = {.span = OP_SPAN_BUFFER,
                  .read = {AT(heads.x)},
                  .write = AT(heads.out),
                  .group = AT(heads.w)},
    [OP_COLUMNS] = {.span = OP_SPAN_BUFFER, .read = {AT(columns.x)}, .write = AT(columns.out)},
    [OP_REMOTE] = {.span = OP_SPAN_BUFFER,
                   .read = {AT(remote.x), AT(remote.choice)},
                   .write = AT(remote.out)},
    [OP_REDUCE] = {.span = OP_SPAN_BUFFER, .read = {AT(reduce.x)}, .write = AT(reduce.x)},
    [OP_GATHER] = {.span = OP_SPAN_BUFFER, .read = {AT(gather.x)}, .write = AT(gather.out)},
    [OP_LOWRANK] = {.span = OP_SPAN_BUFFER,
                    .read = {AT(lowrank.x), AT(lowrank.choice), AT(lowrank.out)},
                    .write = AT(lowrank.out)},
    [OP_INDEX] = {.span = OP_SPAN_STEP,
                  .read = {AT(index.q), AT(index.w)},
                  .write = AT(index.chosen),
                  .reads_store = AT(index.store)},
    [OP_COMPRESS] = {.span = OP_SPAN_STEP,
                     .read = {AT(compress.x), AT(compress.gate)},
                     .write = AT(compress.out),
                     .state = AT(compress.state)},
    [OP_BALANCE] = {.span = OP_SPAN_BUFFER, .read = {AT(balance.x)}, .write = AT(balance.out)},
    [OP_STREAMS] = {.span = OP_SPAN_BUFFER,
                    .read = {AT(streams.x), AT(streams.M), AT(streams.y), AT(streams.write)},
                    .write = AT(streams.out)},
    [OP_NGRAM] = {.span = OP_SPAN_STEP, .write = AT(ngram.out), .state = AT(ngram.state)},
};
_Static_assert(sizeof places / sizeof *places == OP_KIND_COUNT, "a kind without places");
_Static_assert(sizeof(struct op) < 256, "places are bytes");

static struct view view_at(const struct op *op, int at) {
    return *(const struct view *)(const void *)((const char *)op + at);
}
static int number_at(const struct op *op, int at) {
    return at ? *(const int *)(const void *)((const char *)op + at) : -1;
}
/* The store of entries that attention reads beside its own; -1: none. */
static int entries_of(const struct op *op) { return op->kind == OP_ATTEND ? op->attend.entries - 1 : -1; }

static void constant(struct op_use *u, const void *data, int n) {
    if (data) u->constant[u->n_constant++] = (struct op_constant){data, n};
}
/* Of operations with a state. */
static void state_constants(struct op_use *u, const struct op *op) {
    if (op->kind == OP_CONV) {
        constant(u, op->conv.w, op->conv.x.width * op->conv.K);
        constant(u, op->conv.bias, op->conv.x.width);
    } else if (op->kind == OP_DELTA) {
        constant(u, op->delta.A, op->delta.n_value);
        constant(u, op->delta.dt_bias, op->delta.a.width);
    } else if (op->kind == OP_SSM) {
        constant(u, op->ssm.A, op->ssm.n_head);
        constant(u, op->ssm.dt_bias, op->ssm.n_head);
        constant(u, op->ssm.skip, op->ssm.n_head);
    } else if (op->kind == OP_NGRAM) { /* numbers of 64 bits */
        constant(u, op->ngram.by->mult, 2 * op->ngram.by->size);
        constant(u, op->ngram.by->rows, 2 * op->ngram.by->n_head);
        constant(u, op->ngram.by->first, 2 * op->ngram.by->n_head);
    } else {
        constant(u, op->compress.bias, op->compress.ratio * op->compress.x.width);
    }
}
/* Numbers beside the weights. A kind that is not named here must not compile, whatever the build warns of. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch-enum"
static void constants(struct op_use *u, const struct op *op) {
    switch (op->kind) {
    case OP_NORM:
        constant(u, op->norm.w, op_norm_weights(&op->norm));
        constant(u, op->norm.bias, op_norm_weights(&op->norm));
        return;
    case OP_ROPE:
        constant(u, op->rope.rope->inv_freq, op->rope.rope->n_rot / 2);
        constant(u, op->rope.rope->axis, op->rope.rope->n_rot / 2);
        return;
    case OP_ATTEND:
        constant(u, op->attend.sinks, op->attend.n_head);
        return;
    case OP_CONV:
    case OP_DELTA:
    case OP_SSM:
    case OP_COMPRESS:
    case OP_NGRAM:
        state_constants(u, op);
        return;
    case OP_ROUTE:
        constant(u, op->route.router->bias, op->route.router->n_expert);
        constant(u, op->route.router->expert_scale, op->route.router->n_expert);
        constant(u, op->route.told, op->route.n_told * op->route.router->n_used);
        return;
    case OP_POSITION:
        constant(u, op->position.table, op->position.n_pos * op->position.x.width);
        return;
    case OP_BALANCE:
        constant(u, op->balance.scale, op->balance.x.width > op->balance.n ? 3 : 1);
        constant(u, op->balance.base, op->balance.x.width);
        return;
    case OP_COLUMNS:
        constant(u, op->columns.from, op->columns.x.width);
        return;
    case OP_EMBED:
    case OP_MATMUL:
    case OP_KV_PUT:
    case OP_GLU:
    case OP_ADD:
    case OP_ROWS:
    case OP_MERGE:
    case OP_INPUT:
    case OP_SELECT:
    case OP_EXPERTS:
    case OP_MIX:
    case OP_HEADS:
    case OP_REMOTE:
    case OP_REDUCE:
    case OP_GATHER:
    case OP_LOWRANK:
    case OP_INDEX:
    case OP_STREAMS:
    case OP_KIND_COUNT:
        return;
    }
}
#pragma GCC diagnostic pop

/* The columns of a view that the operation reads: of choices ids, weights, or both. */
static struct view read_of(const struct op *op, int i, struct view v) {
    if (op->kind == OP_EXPERTS && i == 1 && !op->experts.weighted) v.width = op->experts.n_used;
    if (op->kind == OP_LOWRANK && i == 1 && !op->lowrank.weighted) v.width = op->lowrank.n_used;
    if (op->kind == OP_MIX && i == 1) v = view_columns(v, op->mix.n_used, op->mix.n_used);
    return v;
}
static bool is_read(const struct op *op, int i, struct view v) {
    if (op->kind == OP_ATTEND && i == 3) return op->attend.by.n_top > 0;
    if (op->kind == OP_ATTEND && i && op->attend.store >= 0) return false;
    return v.buf >= 0 && !(op->kind == OP_MIX && i == 1 && op->mix.plain);
}

const char *op_kind_name(enum op_kind kind) {
    static const char *const kinds[] = {
        [OP_EMBED] = "embed",       [OP_NORM] = "norm",       [OP_MATMUL] = "matmul",
        [OP_ROPE] = "rope",         [OP_KV_PUT] = "kv_put",   [OP_ATTEND] = "attend",
        [OP_GLU] = "glu",           [OP_ADD] = "add",         [OP_ROWS] = "rows",
        [OP_MERGE] = "merge",       [OP_INPUT] = "input",     [OP_SELECT] = "select",
        [OP_CONV] = "conv",         [OP_DELTA] = "delta",     [OP_SSM] = "ssm",
        [OP_ROUTE] = "route",       [OP_EXPERTS] = "experts", [OP_MIX] = "mix",
        [OP_POSITION] = "position", [OP_HEADS] = "heads",     [OP_COLUMNS] = "columns",
        [OP_REMOTE] = "remote",     [OP_REDUCE] = "reduce",   [OP_GATHER] = "gather",
        [OP_LOWRANK] = "lowrank",   [OP_INDEX] = "index",     [OP_COMPRESS] = "compress",
        [OP_BALANCE] = "balance",   [OP_STREAMS] = "streams", [OP_NGRAM] = "ngram"};
    return kinds[kind];
}

enum infer_status op_not_finite(const struct op *op, int pos, int element) {
    char layer[32] = "";
    if (op->layer >= 0) snprintf(layer, sizeof layer, " of layer %d", op->layer);
    if (element < 0)
        return err_set(INFER_E_NAN, "%s%s: a value of position %d is not finite", op->name, layer, pos);
    return err_set(INFER_E_NAN, "%s%s: element %d of position %d is not finite", op->name, layer, element,
                   pos);
}

struct op_use op_uses(const struct op *op) {
    if (op->kind < 0 || op->kind >= OP_KIND_COUNT) infer_bug("operation %d", (int)op->kind);
    const struct op_places *p = &places[op->kind];
    struct op_use u = {.span = p->span,
                       .reads_store = number_at(op, p->reads_store),
                       .writes_store = number_at(op, p->writes_store),
                       .reads_entries = entries_of(op),
                       .state = number_at(op, p->state)};
    for (int i = 0; i < OP_READS && p->read[i]; i++) {
        const struct view v = view_at(op, p->read[i]);
        if (is_read(op, i, v)) u.read[u.n_read++] = read_of(op, i, v);
    }
    if (p->write && view_at(op, p->write).buf >= 0) u.write[u.n_write++] = view_at(op, p->write);
    if (p->group) {
        u.group = *(const struct weight_group *const *)(const void *)((const char *)op + p->group);
        u.weight = u.group->member, u.n_weight = u.group->n_member;
    } else if (op->kind == OP_EMBED) {
        u.weight = op->embed.w, u.n_weight = op->embed.w != NULL;
    } else if (op->kind == OP_NGRAM) {
        u.weight = op->ngram.w, u.n_weight = 1;
    }
    constants(&u, op);
    return u;
}

enum buf_rows op_rows_kind(const struct op_list *l, const struct op *op) {
    struct op_use u = op_uses(op);
    if (u.span != OP_SPAN_BUFFER) return u.span == OP_SPAN_STEP ? BUF_ROWS_ALL : BUF_ROWS_OUT;
    return l->buf[u.write[0].buf].rows;
}

/* ---- views and buffers --------------------------------------------------------------------------------------- */

static void lives_at(struct buf *b, int i) {
    if (b->first < 0) b->first = i;
    b->last = i;
}

void list_lives(struct op_list *l) {
    for (int i = 0; i < l->n_buf; i++) l->buf[i].first = l->buf[i].last = -1;
    for (int i = 0; i < l->n_op; i++) {
        struct op_use u = op_uses(&l->op[i]);
        for (int k = 0; k < u.n_read; k++) lives_at(&l->buf[u.read[k].buf], i);
        for (int k = 0; k < u.n_write; k++) lives_at(&l->buf[u.write[k].buf], i);
    }
}

bool list_overlaps(const struct op_list *l, struct view a, struct view b) {
    const struct buf *x = &l->buf[a.buf], *y = &l->buf[b.buf];
    return x->offset < y->offset + y->row_bytes * buf_max_rows(l, y) &&
           y->offset < x->offset + x->row_bytes * buf_max_rows(l, x);
}

/* Row t of the one view lies in the bytes of row t of the other, or they share none. */
static bool rows_meet_alone(const struct op_list *l, struct view a, struct view b) {
    const struct buf *x = &l->buf[a.buf], *y = &l->buf[b.buf];
    bool in_step = x->offset == y->offset && x->row_bytes == y->row_bytes && x->rows == y->rows;
    return in_step || !list_overlaps(l, a, b);
}
static bool writes_apart(const struct op_list *l, const struct op_use *writer, const struct op_use *other) {
    for (int i = 0; i < writer->n_write; i++) {
        for (int k = 0; k < other->n_read; k++)
            if (!rows_meet_alone(l, writer->write[i], other->read[k])) return false;
        for (int k = 0; k < other->n_write; k++)
            if (!rows_meet_alone(l, writer->write[i], other->write[k])) return false;
    }
    return true;
}
bool list_rows_apart(const struct op_list *l, const struct op *a, const struct op *b) {
    struct op_use x = op_uses(a), y = op_uses(b);
    return writes_apart(l, &x, &y) && writes_apart(l, &y, &x);
}

/* ---- neighbours ---------------------------------------------------------------------------------------------- */

bool list_hands_over(const struct op_list *l, int i) {
    struct op_use u = op_uses(&l->op[i]);
    for (int k = 0; k < u.n_write; k++)
        if (l->buf[u.write[k].buf].last != i + 1) return false;
    return u.n_write > 0;
}

bool list_is_gated(const struct op_list *l, int i) {
    if (i + 1 >= l->n_op || l->op[i + 1].kind != OP_GLU) return false;
    const struct op *o = &l->op[i];
    if (o->kind != OP_MATMUL && o->kind != OP_EXPERTS) return false;
    const bool experts = o->kind == OP_EXPERTS;
    const struct weight_group *w = experts ? o->experts.w : o->matmul.w;
    const struct view out = experts ? o->experts.out : o->matmul.out;
    const struct op_glu *g = &l->op[i + 1].glu;
    int n = w->member[0].n * (experts ? o->experts.n_used : 1);
    return w->n_member == 2 && w->member[1].n == w->member[0].n &&
           view_same(g->gate, view_columns(out, 0, n)) && view_same(g->up, view_columns(out, n, n));
}

bool list_is_rotated(const struct op_list *l, int i) {
    const struct op *q = &l->op[i];
    return i + 2 < l->n_op && q[0].kind == OP_ROPE && q[1].kind == OP_ROPE && q[2].kind == OP_KV_PUT &&
           !q[0].rope.back && !q[1].rope.back && view_same(q[1].rope.x, q[2].kv_put.k);
}

/* ---- configurations ------------------------------------------------------------------------------------------ */

int config_table_group(const struct backend_config *c, const struct weight *table) {
    for (int i = 0; i < c->n_group; i++)
        if (c->group[i]->member == table) return i;
    return -1;
}

bool config_uses_group(const struct backend_config *c, int id) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            const struct op *op = &c->list[cls]->op[i];
            const struct weight_group *g = op_uses(op).group;
            const struct weight *table = op->kind == OP_EMBED   ? op->embed.w
                                         : op->kind == OP_NGRAM ? op->ngram.w
                                                                : NULL;
            if (table ? config_table_group(c, table) == id : g && g->id == id) return true;
        }
    return false;
}

/* Both are asked for each state of a copy (96 of 1,300 operations in Qwen3.6-27B): without all else that op_uses gathers. */
bool config_uses_store(const struct backend_config *c, int store) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            const struct op *o = &c->list[cls]->op[i];
            const struct op_places *p = &places[o->kind];
            if (number_at(o, p->reads_store) == store || number_at(o, p->writes_store) == store ||
                entries_of(o) == store)
                return true;
        }
    return false;
}

bool config_uses_state(const struct backend_config *c, int store) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            const struct op *o = &c->list[cls]->op[i];
            if (number_at(o, places[o->kind].state) == store) return true;
        }
    return false;
}

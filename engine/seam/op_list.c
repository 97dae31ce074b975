#include "seam/op_list.h"
#include "seam/elsewhere.h"

/* A kind that is not named below must not compile, whatever the build warns of. */
#pragma GCC diagnostic error "-Wswitch"
#pragma GCC diagnostic error "-Wswitch-enum"

static void reads(struct op_use *u, struct view v) {
    if (v.buf >= 0) u->read[u->n_read++] = v;
}
static void writes(struct op_use *u, struct view v) {
    if (v.buf >= 0) u->write[u->n_write++] = v;
}
static void constant(struct op_use *u, const void *data, int n) {
    if (data) u->constant[u->n_constant++] = (struct op_constant){data, n};
}

/* Of those that work on what a layer keeps. */
static struct op_use uses_of_store(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_STEP, .reads_store = -1, .writes_store = -1, .state = -1};
    if (op->kind == OP_KV_PUT) {
        reads(&u, op->kv_put.k);
        reads(&u, op->kv_put.v);
        u.writes_store = op->kv_put.store;
    } else {
        reads(&u, op->attend.q);
        u.reads_store = op->attend.store;
        constant(&u, op->attend.sinks, op->attend.n_head);
        writes(&u, op->attend.out);
    }
    return u;
}

/* Of those with a state. */
static struct op_use uses_of_state(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_STEP, .reads_store = -1, .writes_store = -1, .state = -1};
    if (op->kind == OP_CONV) {
        reads(&u, op->conv.x);
        u.state = op->conv.state;
        constant(&u, op->conv.w, op->conv.x.width * op->conv.K);
        constant(&u, op->conv.bias, op->conv.x.width);
        writes(&u, op->conv.out);
    } else if (op->kind == OP_DELTA) {
        const struct op_delta *o = &op->delta;
        reads(&u, o->qkv);
        reads(&u, o->a);
        reads(&u, o->b);
        u.state = o->state;
        constant(&u, o->A, o->n_value);
        constant(&u, o->dt_bias, o->n_value);
        writes(&u, o->out);
    } else {
        const struct op_ssm *o = &op->ssm;
        reads(&u, o->xbc);
        reads(&u, o->dt);
        u.state = o->state;
        constant(&u, o->A, o->n_head);
        constant(&u, o->dt_bias, o->n_head);
        constant(&u, o->skip, o->n_head);
        writes(&u, o->out);
    }
    return u;
}

/* Of those that work on experts. */
static struct op_use uses_of_experts(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_BUFFER, .reads_store = -1, .writes_store = -1, .state = -1};
    if (op->kind == OP_ROUTE) {
        const struct router *r = op->route.router;
        reads(&u, op->route.logits);
        constant(&u, r->bias, r->n_expert);
        constant(&u, r->expert_scale, r->n_expert);
        writes(&u, op->route.choice);
    } else if (op->kind == OP_EXPERTS) {
        if (!op_is_elsewhere(op)) {
            u.group = op->experts.w;
            u.weight = u.group->member, u.n_weight = u.group->n_member;
        }
        reads(&u, op->experts.x);
        reads(&u, view_columns(op->experts.choice, 0,
                               op->experts.weighted ? op->experts.choice.width : op->experts.n_used));
        writes(&u, op->experts.out);
    } else {
        const struct op_mix *m = &op->mix;
        reads(&u, m->x);
        if (!m->plain) reads(&u, view_columns(m->choice, m->n_used, m->n_used));
        reads(&u, m->shared);
        reads(&u, m->gate);
        writes(&u, m->out);
    }
    return u;
}

/* Of those that multiply each row with the same matrices. */
static struct op_use uses_of_product(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_BUFFER, .reads_store = -1, .writes_store = -1, .state = -1};
    const bool heads = op->kind == OP_HEADS;
    u.group = heads ? op->heads.w : op->matmul.w;
    u.weight = u.group->member, u.n_weight = u.group->n_member;
    reads(&u, heads ? op->heads.x : op->matmul.x);
    writes(&u, heads ? op->heads.out : op->matmul.out);
    return u;
}

/* Of those that change a row by where it stands. */
static struct op_use uses_of_place(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_STEP, .reads_store = -1, .writes_store = -1, .state = -1};
    const bool rope = op->kind == OP_ROPE;
    reads(&u, rope ? op->rope.x : op->position.x);
    if (rope)
        constant(&u, op->rope.rope->inv_freq, op->rope.rope->n_rot / 2);
    else
        constant(&u, op->position.table, op->position.n_pos * op->position.x.width);
    writes(&u, rope ? op->rope.x : op->position.x);
    return u;
}

struct op_use op_uses(const struct op *op) {
    struct op_use u = {.span = OP_SPAN_BUFFER, .reads_store = -1, .writes_store = -1, .state = -1};
    switch (op->kind) {
    case OP_EMBED:
        u.span = OP_SPAN_STEP;
        u.weight = op->embed.w, u.n_weight = 1;
        writes(&u, op->embed.out);
        return u;
    case OP_NORM:
        reads(&u, op->norm.x);
        constant(&u, op->norm.w, op_norm_weights(&op->norm));
        constant(&u, op->norm.bias, op_norm_weights(&op->norm));
        writes(&u, op->norm.out);
        return u;
    case OP_MATMUL:
    case OP_HEADS:
        return uses_of_product(op);
    case OP_ROPE:
    case OP_POSITION:
        return uses_of_place(op);
    case OP_KV_PUT:
    case OP_ATTEND:
        return uses_of_store(op);
    case OP_CONV:
    case OP_DELTA:
    case OP_SSM:
        return uses_of_state(op);
    case OP_ROUTE:
    case OP_EXPERTS:
    case OP_MIX:
        return uses_of_experts(op);
    case OP_GLU:
        reads(&u, op->glu.gate);
        reads(&u, op->glu.up);
        writes(&u, op->glu.out);
        return u;
    case OP_ADD:
        reads(&u, op->add.a);
        reads(&u, op->add.b);
        writes(&u, op->add.out);
        return u;
    case OP_COLUMNS:
        reads(&u, op->columns.x);
        constant(&u, op->columns.from, op->columns.x.width);
        writes(&u, op->columns.out);
        return u;
    case OP_ROWS:   /* reads the rows of the step that it picks */
    case OP_SELECT: /* writes the step's result alone */
        u.span = OP_SPAN_WANTED;
        reads(&u, op->kind == OP_ROWS ? op->rows.x : op->select.logits);
        if (op->kind == OP_ROWS) writes(&u, op->rows.out);
        return u;
    case OP_KIND_COUNT:
        break;
    }
    infer_bug("operation %d", (int)op->kind);
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
           view_same(q[1].rope.x, q[2].kv_put.k);
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
            if (op->kind == OP_EMBED ? config_table_group(c, op->embed.w) == id : g && g->id == id)
                return true;
        }
    return false;
}

bool config_uses_store(const struct backend_config *c, int store) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            struct op_use u = op_uses(&c->list[cls]->op[i]);
            if (u.reads_store == store || u.writes_store == store) return true;
        }
    return false;
}

bool config_uses_state(const struct backend_config *c, int store) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++)
            if (op_uses(&c->list[cls]->op[i]).state == store) return true;
    return false;
}

enum infer_status config_lacks(const struct backend_config *c, const char *backend, uint64_t kinds) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            const struct op *op = &c->list[cls]->op[i];
            if (kinds >> op->kind & 1)
                return err_set(INFER_E_UNSUPPORTED,
                               "%s: no kernel for %s of layer %d; the device 'ref' has one", backend,
                               op->name, op->layer);
        }
    return INFER_OK;
}

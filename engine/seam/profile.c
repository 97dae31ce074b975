#include "seam/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "seam/op_list.h"
#include "seam/weight.h"

enum {
    PROFILE_ROWS = 256,
    PROFILE_LISTS = 2 * 32, /* names of operations; two lists of each part of a plan */
    PROFILE_COVERS = 192
};

/* What one operation costs: bytes of weights, and bytes and flops of a row and of a position that a row sees. */
struct cost {
    int row; /* of the profile; of a link's first operation: the link's, -1: it has none yet */
    double weights, row_bytes, row_flops, seen_bytes, seen_flops;
    double chosen; /* share of a stack that one row has of the experts; 1: all */
};
struct listed {
    const struct op_list *list;
    struct cost *cost; /* cost[list->n_op] */
    int between;       /* row of what no operation is */
};

/* The newest spans: span[n], next at [told % n]. */
struct ring {
    struct infer_profile_span *span;
    size_t n, told;
};

struct infer_profile {
    pthread_mutex_t lock;
    struct infer_profile_row row[PROFILE_ROWS];
    char covers[PROFILE_ROWS][PROFILE_COVERS]; /* of rows that are links; else empty */
    bool timed[ROW_CLASS_COUNT];               /* a step's links were, and the step is not told yet */
    struct listed list[PROFILE_LISTS];
    int n_row, n_list;
    struct infer_profile_steps steps[ROW_CLASS_COUNT];
    struct ring span, part; /* whole operations and steps; what threads did of them */
};

static enum infer_status ring_take(struct ring *r, size_t n) {
    if (n && !(r->span = mem_alloc(n * sizeof *r->span)))
        return err_set(INFER_E_MEMORY, "out of memory for a trace of %zu operations", n);
    r->n = n;
    return INFER_OK;
}

enum infer_status infer_profile_new(struct infer_profile **out, size_t spans) {
    struct infer_profile *p;
    *out = NULL;
    TRY(mem_new(&p, sizeof *p, "a profile"));
    const enum infer_status st = ring_take(&p->span, spans);
    if (st) {
        mem_free(p);
        return st;
    }
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return INFER_OK;
}

void infer_profile_free(struct infer_profile *p) {
    if (!p) return;
    for (int i = 0; i < p->n_list; i++) mem_free(p->list[i].cost);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->span.span);
    mem_free(p->part.span);
    mem_free(p);
}

enum infer_status infer_profile_threads(struct infer_profile *p, size_t parts) {
    return ring_take(&p->part, parts);
}

void infer_profile_reset(struct infer_profile *p) {
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_row; i++) {
        struct infer_profile_row *r = &p->row[i];
        *r = (struct infer_profile_row){
            .name = r->name, .kind = r->kind, .decode = r->decode, .covers = r->covers};
    }
    memset(p->steps, 0, sizeof p->steps);
    p->span.told = p->part.told = 0;
    pthread_mutex_unlock(&p->lock);
}

/* ---- what operations cost ---- */

static int row_of(struct infer_profile *p, const char *name, const char *kind, bool decode) {
    for (int i = 0; i < p->n_row; i++)
        if (p->row[i].decode == decode && !strcmp(p->row[i].name, name) && !strcmp(p->row[i].kind, kind))
            return i;
    if (p->n_row == PROFILE_ROWS) return PROFILE_ROWS - 1; /* the models of models/ have some 60 */
    p->row[p->n_row] = (struct infer_profile_row){.name = name, .kind = kind, .decode = decode};
    return p->n_row++;
}

static void cost_of_weights(struct cost *c, const struct op *op, const struct op_use *u) {
    const bool experts = op->kind == OP_EXPERTS;
    for (int i = 0; i < u->n_weight; i++) {
        const struct weight *w = &u->weight[i];
        const double all = w->n_stack > 1 ? w->n_stack : 1, per_row = experts ? op->experts.n_used : all;
        if (op->kind == OP_EMBED || op->kind == OP_NGRAM) continue; /* rows of it are read */
        c->weights += (double)weight_bytes(w);
        c->row_flops += 2 * per_row * (double)w->k * (double)w->n;
        if (experts) c->chosen = per_row / (all > per_row ? all : per_row);
    }
}

static void cost_of_positions(struct cost *c, const struct op_attend *o, const struct backend_config *b) {
    c->seen_flops = 2.0 * (o->q.width + o->out.width);
    if (o->store >= 0) c->seen_bytes = (double)kv_page_bytes(&b->store[o->store]) / KV_PAGE;
}

/* Of what chooses positions: all are looked at. */
static void cost_of_choice(struct cost *c, const struct op_index *o, const struct backend_config *b) {
    c->seen_flops = 2.0 * (o->q.width + o->w.width);
    c->seen_bytes = (double)kv_page_bytes(&b->store[o->store]) / KV_PAGE;
}

static struct cost cost_of(const struct op *op, const struct backend_config *b) {
    const struct op_use u = op_uses(op);
    struct cost c = {.chosen = 1};
    for (int i = 0; i < u.n_read; i++) c.row_bytes += 4.0 * u.read[i].width;
    for (int i = 0; i < u.n_write; i++) c.row_bytes += 4.0 * u.write[i].width;
    cost_of_weights(&c, op, &u);
    if (u.state >= 0) c.row_bytes += 8.0 * b->state[u.state].n_elem;
    if (op->kind == OP_ATTEND) cost_of_positions(&c, &op->attend, b);
    if (op->kind == OP_INDEX) cost_of_choice(&c, &op->index, b);
    return c;
}

enum infer_status profile_list(struct infer_profile *p, const struct op_list *l,
                               const struct backend_config *c, bool links) {
    struct listed own = {.list = l};
    if (p->n_list == PROFILE_LISTS)
        return err_set(INFER_E_UNSUPPORTED, "a profile of more than %d lists", PROFILE_LISTS);
    if (!(own.cost = mem_alloc((size_t)l->n_op * sizeof *own.cost)))
        return err_set(INFER_E_MEMORY, "out of memory for a profile");
    pthread_mutex_lock(&p->lock);
    own.between = links ? -1 : row_of(p, "(team)", "", l->cls == ROW_DECODE);
    for (int i = 0; i < l->n_op; i++) {
        own.cost[i] = cost_of(&l->op[i], c);
        own.cost[i].row =
            links ? -1 : row_of(p, l->op[i].name, op_kind_name(l->op[i].kind), l->cls == ROW_DECODE);
    }
    p->list[p->n_list++] = own;
    pthread_mutex_unlock(&p->lock);
    return INFER_OK;
}

/* ---- what they took ---- */

int64_t profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Positions that the rows see, each with its own keys (decode) or all with those of the last one; all of them in flops. */
static void seen_by(const struct op_attend *o, const struct step *s, double *all, double *read) {
    double most = 0;
    *all = 0;
    for (int t = 0; t < s->n_row; t++) {
        const int last = o->store < 0 ? s->n_row - 1 : step_last(s, o, t);
        double n = last - op_attend_first(o, s->pos ? s->pos[t] : 0) + 1;
        if (o->entries) n += choice_count(&o->by, s->pos[t]);
        if (o->by.n_top && !o->entries) n = choice_count(&o->by, s->pos[t]);
        *all += n;
        if (n > most) most = n;
    }
    *read = most;
}

static void add_cost(struct infer_profile_row *r, const struct cost *c, const struct op_list *l,
                     const struct op *op, const struct step *s) {
    const double n = op_rows_count(l, op, s->n_row, s->n_out);
    if (n <= 0) return;
    r->bytes += c->weights * (c->chosen < 1 ? 1 - pow(1 - c->chosen, n) : 1) + n * c->row_bytes;
    r->flops += n * c->row_flops;
    if (op->kind != OP_ATTEND && op->kind != OP_INDEX) return;
    static const struct op_attend whole = {.store = 0};
    double all, read;
    seen_by(op->kind == OP_INDEX ? &whole : &op->attend, s, &all, &read);
    r->bytes += c->seen_bytes * (l->cls == ROW_DECODE ? all : read);
    r->flops += c->seen_flops * all;
}

static void keep_span(struct ring *r, struct infer_profile_span span) {
    if (r->n) r->span[r->told++ % r->n] = span;
}

static struct listed *listed_of(struct infer_profile *p, const struct op_list *l) {
    struct listed *own = p->list;
    while (own < p->list + p->n_list && own->list != l) own++;
    if (own == p->list + p->n_list) infer_bug("a step of a list without a profile");
    return own;
}

int64_t profile_op(struct infer_profile *p, const struct op_list *l, const struct op *op,
                   const struct step *s, int64_t begin) {
    const int64_t end = profile_now();
    pthread_mutex_lock(&p->lock);
    const struct listed *own = listed_of(p, l);
    const struct cost *c = op ? &own->cost[op - l->op] : NULL;
    struct infer_profile_row *r = &p->row[c ? c->row : own->between];
    r->calls++;
    r->seconds += 1e-9 * (double)(end - begin);
    if (c) add_cost(r, c, l, op, s);
    keep_span(&p->span,
              (struct infer_profile_span){r->name, op ? op->layer : -1, s->n_row, r->decode, begin, end, 0});
    pthread_mutex_unlock(&p->lock);
    return end;
}

bool profile_tells_threads(const struct infer_profile *p) { return p && p->part.n; }

void profile_thread(struct infer_profile *p, const struct op_list *l, const struct op *op,
                    const struct step *s, int thread, int64_t begin, int64_t end) {
    pthread_mutex_lock(&p->lock);
    const struct infer_profile_row *r = &p->row[listed_of(p, l)->cost[op - l->op].row];
    keep_span(&p->part,
              (struct infer_profile_span){r->name, op->layer, s->n_row, r->decode, begin, end, thread + 1});
    pthread_mutex_unlock(&p->lock);
}

/* ---- links ---- */

/* Whether an operation from..to (to not included) of the list writes, or reads, the buffer of v. */
static bool touches(const struct op_list *l, int from, int to, struct view v, bool write) {
    for (int i = from; i < to; i++) {
        const struct op_use u = op_uses(&l->op[i]);
        const struct view *of = write ? u.write : u.read;
        for (int k = 0; k < (write ? u.n_write : u.n_read); k++)
            if (of[k].buf == v.buf) return true;
    }
    return false;
}

/* Rows that a link's operations hand to each other are neither read nor written. */
static void forget_inner(struct listed *own, const struct profile_link *k) {
    const struct op_list *l = own->list;
    const int end = k->first + k->n_op;
    for (int i = k->first; i < end; i++) {
        const struct op_use u = op_uses(&l->op[i]);
        for (int r = 0; r < u.n_read; r++)
            if (touches(l, k->first, i, u.read[r], true)) own->cost[i].row_bytes -= 4.0 * u.read[r].width;
        for (int w = 0; w < u.n_write; w++)
            if (touches(l, i + 1, end, u.write[w], false)) own->cost[i].row_bytes -= 4.0 * u.write[w].width;
    }
}

static int link_row(struct infer_profile *p, struct listed *own, const struct profile_link *k) {
    struct cost *first = &own->cost[k->first];
    if (first->row >= 0) return first->row;
    first->row = row_of(p, k->name, k->kind, own->list->cls == ROW_DECODE);
    forget_inner(own, k);
    char *covers = p->covers[first->row];
    if (*covers) return first->row;
    for (int i = 0, n = 0; i < k->n_op && n < PROFILE_COVERS; i++)
        n += snprintf(covers + n, (size_t)(PROFILE_COVERS - n), "%s%s", i ? " + " : "",
                      own->list->op[k->first + i].name);
    if (k->n_op > 1) p->row[first->row].covers = covers;
    return first->row;
}

void profile_link_work(struct infer_profile *p, const struct op_list *l, const struct profile_link *k,
                       const struct step *s) {
    pthread_mutex_lock(&p->lock);
    struct listed *own = listed_of(p, l);
    struct infer_profile_row *r = &p->row[link_row(p, own, k)];
    for (int i = k->first; i < k->first + k->n_op; i++) add_cost(r, &own->cost[i], l, &l->op[i], s);
    pthread_mutex_unlock(&p->lock);
}

void profile_link_time(struct infer_profile *p, const struct op_list *l, const struct profile_link *k,
                       int n_row, int64_t begin, int64_t end) {
    pthread_mutex_lock(&p->lock);
    struct infer_profile_row *r = &p->row[link_row(p, listed_of(p, l), k)];
    r->calls++;
    r->seconds += 1e-9 * (double)(end - begin);
    p->timed[l->cls] = true;
    keep_span(&p->span,
              (struct infer_profile_span){r->name, l->op[k->first].layer, n_row, r->decode, begin, end, 0});
    pthread_mutex_unlock(&p->lock);
}

void profile_step(struct infer_profile *p, enum row_class cls, int n_row, int64_t begin) {
    const int64_t end = profile_now();
    pthread_mutex_lock(&p->lock);
    struct infer_profile_steps *s = &p->steps[cls];
    const double took = 1e-9 * (double)(end - begin);
    s->steps++, s->rows += (uint64_t)n_row, s->seconds += took;
    if (p->timed[cls]) s->timed_steps++, s->timed_seconds += took;
    p->timed[cls] = false;
    keep_span(&p->span, (struct infer_profile_span){NULL, -1, n_row, cls == ROW_DECODE, begin, end, 0});
    pthread_mutex_unlock(&p->lock);
}

/* ---- reading ---- */

/* A row; one of links, whose sums are of some steps, as all steps have it. */
static struct infer_profile_row whole_row(const struct infer_profile *p, int i) {
    struct infer_profile_row r = p->row[i];
    const struct infer_profile_steps *s = &p->steps[r.decode ? ROW_DECODE : ROW_PROMPT];
    if (!*p->covers[i] || !s->timed_steps) return r;
    const double n = (double)s->steps / (double)s->timed_steps;
    r.calls = (uint64_t)((double)r.calls * n + 0.5);
    r.bytes *= n, r.flops *= n;
    r.seconds *= s->seconds / s->timed_seconds;
    return r;
}

size_t infer_profile_rows(const struct infer_profile *p, struct infer_profile_row *out, size_t most) {
    struct infer_profile *own = (struct infer_profile *)p;
    size_t n = 0;
    pthread_mutex_lock(&own->lock);
    for (int decode = 0; decode < 2; decode++)
        for (int i = 0; i < p->n_row; i++)
            if (p->row[i].decode == decode && p->row[i].calls && n++ < most) out[n - 1] = whole_row(p, i);
    pthread_mutex_unlock(&own->lock);
    return n;
}

void infer_profile_steps(const struct infer_profile *p, bool decode, struct infer_profile_steps *out) {
    struct infer_profile *own = (struct infer_profile *)p;
    pthread_mutex_lock(&own->lock);
    *out = p->steps[decode ? ROW_DECODE : ROW_PROMPT];
    pthread_mutex_unlock(&own->lock);
}

static size_t newest(const struct infer_profile *p, const struct ring *r, int64_t since,
                     struct infer_profile_span *out, size_t most) {
    struct infer_profile *own = (struct infer_profile *)p;
    pthread_mutex_lock(&own->lock);
    size_t n = r->told < r->n ? r->told : r->n;
    while (n && r->span[(r->told - n) % r->n].end < since) n--;
    if (out && n > most) n = most;
    for (size_t i = 0; out && i < n; i++) out[i] = r->span[(r->told - n + i) % r->n];
    pthread_mutex_unlock(&own->lock);
    return n;
}

size_t infer_profile_spans(const struct infer_profile *p, int64_t since, struct infer_profile_span *out,
                           size_t most) {
    return newest(p, &p->span, since, out, most);
}

size_t infer_profile_parts(const struct infer_profile *p, int64_t since, struct infer_profile_span *out,
                           size_t most) {
    return newest(p, &p->part, since, out, most);
}

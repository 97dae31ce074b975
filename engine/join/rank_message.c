#include "join/rank_message.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

struct rank_limits rank_limits_of(const struct plan *plan, const struct model *m) {
    const struct plan_part *last = &plan->part[plan->n_part - 1];
    const struct backend_config *c = &last->config;
    struct rank_limits l = {.n_vocab = m->n_vocab,
                            .n_input = m->n_embd,
                            .n_ctx = c->n_ctx,
                            .n_slot = c->n_slot,
                            .n_state_slot = c->n_state_slot,
                            .n_group = c->n_kv_group,
                            .n_store = c->n_store,
                            .store = c->store,
                            .n_state = c->n_state,
                            .state = c->state,
                            .n_adapter = last->range.adapters ? last->range.adapters->n : 0};
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        l.max_rows[i] = last->list[i].max_rows, l.max_out[i] = last->list[i].max_out;
    const struct op_list *list = &last->list[ROW_PROMPT];
    for (int i = 0; i < list->n_op; i++) {
        const struct op_input *o = &list->op[i].input;
        if (list->op[i].kind == OP_INPUT && o->from + o->out.width > l.n_input)
            l.n_input = o->from + o->out.width;
    }
    for (int g = 0; g < c->n_kv_group; g++)
        l.n_page[g] = c->kv_group[g].n_page, l.max_pages[g] = c->kv_group[g].max_pages;
    return l;
}

static size_t mask_bytes(const struct rank_limits *l) { return ((size_t)l->n_vocab + 63) / 64 * 8; }
static size_t table_bytes(const struct rank_limits *l, int group) {
    return (size_t)l->n_slot * (size_t)l->max_pages[group] * sizeof(int32_t);
}
static int most(const int *n) { return n[0] > n[1] ? n[0] : n[1]; }

static size_t numbers_bytes(const struct rank_limits *l) {
    size_t n = 0;
    for (int i = 0; i < l->n_store; i++) {
        const struct kv_store *s = &l->store[i];
        const size_t k =
            (size_t)(s->n_kv_head * kv_page_rows(s)) * (size_t)(s->head_dim_k + kv_v_dim(s)) * sizeof(float);
        const size_t page = kv_page_bytes(s);
        if (k > n) n = k;
        if (page > n) n = page;
    }
    for (int i = 0; i < l->n_state; i++)
        if ((size_t)l->state[i].n_elem * sizeof(float) > n) n = (size_t)l->state[i].n_elem * sizeof(float);
    return n;
}
size_t rank_message_most(const struct rank_limits *l) {
    const size_t rows = (size_t)most(l->max_rows), outs = (size_t)most(l->max_out);
    size_t n = 1024 + rows * (9 * 8 + (size_t)l->n_input * sizeof(float));
    n += outs *
         (3 * 8 + sizeof(struct infer_draw) + INFER_EDITS_MAX * sizeof(struct infer_edit) + mask_bytes(l));
    for (int g = 0; g < l->n_group; g++) n += table_bytes(l, g) + 8;
    n += (size_t)l->n_slot * (2 * 8 + (size_t)l->n_adapter * sizeof(float));
    return n + numbers_bytes(l);
}

/* ---- out ---- */

static void put(char **at, const void *bytes, size_t n) {
    if (n) memcpy(*at, bytes, n);
    memset(*at + n, 0, -n & 7);
    *at += n + (-n & 7);
}
static void put_rows(char **at, const int32_t *x, int n) { put(at, x, (size_t)n * sizeof *x); }

enum {
    HAS_PAGES = 1,
    HAS_INPUT = 2,
    HAS_ADAPTER = 4,
    HAS_DRAW = 8,
    HAS_AXIS = 16 /* and the next bits */,
    N_AXIS = 3,
    HAS_UNTIL = 128
};
struct step_head {
    int32_t cls, n_row, n_out, has;
    uint64_t pages_version;
};
struct other_head {
    int32_t cls, store, page, from, to, write;
};

static void put_draw(char **at, const struct rank_limits *l, const struct infer_draw *d) {
    const int64_t there = d != NULL;
    put(at, &there, sizeof there);
    if (!d) return;
    struct infer_draw plain = *d; /* pointers: whether there are such */
    plain.edit = NULL;
    plain.mask = d->mask ? (const uint64_t *)1 : NULL;
    put(at, &plain, sizeof plain);
    put(at, d->edit, (size_t)d->n_edit * sizeof *d->edit);
    if (d->mask) put(at, d->mask, mask_bytes(l));
}
static void put_scales(char **at, const struct rank_limits *l, const float *const *adapter) {
    for (int i = 0; i < l->n_slot; i++) {
        const int64_t there = adapter[i] != NULL;
        put(at, &there, sizeof there);
        if (there) put(at, adapter[i], (size_t)l->n_adapter * sizeof(float));
    }
}
static void put_step(char **at, const struct rank_limits *l, const struct rank_call *call, bool pages) {
    const struct step *s = call->step;
    struct step_head h = {(int32_t)call->cls, s->n_row, s->n_out,
                          (pages ? HAS_PAGES : 0) | (s->input ? HAS_INPUT : 0) | (s->draw ? HAS_DRAW : 0) |
                              (s->adapter && l->n_adapter ? HAS_ADAPTER : 0) | (s->until ? HAS_UNTIL : 0),
                          s->pages_version};
    for (int k = 0; k < N_AXIS; k++) h.has |= s->axis[k] ? HAS_AXIS << k : 0;
    put(at, &h, sizeof h);
    put_rows(at, s->id, s->n_row);
    put_rows(at, s->pos, s->n_row);
    put_rows(at, s->slot, s->n_row);
    put_rows(at, s->out_row, s->n_out);
    put(at, s->want, (size_t)s->n_out);
    for (int g = 0; pages && g < l->n_group; g++) put(at, s->pages[g], table_bytes(l, g));
    for (int k = 0; k < N_AXIS; k++)
        if (s->axis[k]) put_rows(at, s->axis[k], s->n_row);
    for (int t = 0; s->input && t < s->n_row; t++) {
        const int64_t there = s->input[t] != NULL;
        put(at, &there, sizeof there);
        if (there) put(at, s->input[t], (size_t)l->n_input * sizeof(float));
    }
    for (int i = 0; s->draw && i < s->n_out; i++) put_draw(at, l, s->draw[i]);
    if (s->until) put_rows(at, s->until, s->n_row);
    if (h.has & HAS_ADAPTER) put_scales(at, l, s->adapter);
}

/* Numbers of a store's page: keys, then values. */
static size_t key_numbers(const struct kv_store *s) {
    return (size_t)(s->n_kv_head * kv_page_rows(s)) * (size_t)s->head_dim_k;
}
static size_t value_numbers(const struct kv_store *s) {
    return (size_t)(s->n_kv_head * kv_page_rows(s)) * (size_t)kv_v_dim(s);
}
static size_t carried(const struct rank_limits *l, const struct rank_call *c) {
    if (c->ask == RANK_KV_READ)
        return (key_numbers(&l->store[c->store]) + value_numbers(&l->store[c->store])) * sizeof(float);
    if (c->ask == RANK_KV_PAGE) return kv_page_bytes(&l->store[c->store]);
    return c->ask == RANK_STATE_READ ? (size_t)l->state[c->store].n_elem * sizeof(float) : 0;
}
size_t rank_call_reads(const struct rank_limits *l, const struct rank_call *c) {
    return c->write ? 0 : carried(l, c);
}

size_t rank_message_put(void *out, const struct rank_limits *l, const struct rank_call *c, bool pages) {
    char *at = out;
    if (c->ask == RANK_RUN) {
        put_step(&at, l, c, pages);
        return (size_t)(at - (char *)out);
    }
    const struct other_head h = {(int32_t)c->cls, c->store, c->page, c->from, c->to, c->write};
    put(&at, &h, sizeof h);
    if (c->write && c->ask == RANK_KV_READ) {
        const size_t k = key_numbers(&l->store[c->store]), v = value_numbers(&l->store[c->store]);
        memcpy(at, c->k, k * sizeof(float));
        if (v) memcpy(at + k * sizeof(float), c->v, v * sizeof(float));
        at += (k + v) * sizeof(float);
    } else if (c->write) {
        put(&at, c->ask == RANK_KV_PAGE ? c->bytes : c->k, carried(l, c));
    }
    return (size_t)(at - (char *)out);
}

/* ---- in ---- */

struct from {
    const char *at;
    size_t n;
    bool bad;
};
/* The next n bytes; NULL, and bad, where there are not so many. */
static const void *take(struct from *f, size_t n) {
    const char *p = f->at;
    if (f->bad || n > f->n) {
        f->bad = true;
        return NULL;
    }
    const size_t gap = (-n & 7) < f->n - n ? -n & 7 : f->n - n;
    f->at += n + gap, f->n -= n + gap;
    return p;
}
static const int32_t *take_rows(struct from *f, int n, int least, int below) {
    const int32_t *x = take(f, (size_t)n * sizeof *x);
    for (int i = 0; x && i < n; i++) f->bad |= x[i] < least || x[i] >= below;
    return f->bad ? NULL : x;
}

static bool is_draw(const struct rank_limits *l, const struct infer_draw *d) {
    unsigned seen = 0;
    bool ok = d->u >= 0 && d->u < 1 && d->n_edit >= 0 && d->n_edit <= INFER_EDITS_MAX;
    for (int k = 0; ok && (k == 0 || d->order[k - 1]); k++) {
        ok = k < (int)sizeof d->order && d->order[k] < INFER_DRAW_STEPS && !(seen >> d->order[k] & 1);
        if (ok && d->order[k]) seen |= 1u << d->order[k];
    }
    for (int k = 0; ok && k < d->n_edit; k++) ok = d->edit[k].id >= 0 && d->edit[k].id < l->n_vocab;
    return ok && !(seen >> INFER_DRAW_TEMP & 1 && !(d->temp >= 1e-6f)) &&
           !(seen >> INFER_DRAW_TOP_K & 1 && d->top_k < 1);
}
static void take_draw(struct from *f, struct rank_inbox *in, const struct rank_limits *l, int i) {
    const int64_t *there = take(f, sizeof *there);
    in->drawn[i] = NULL;
    if (!there || !*there) return;
    const struct infer_draw *plain = take(f, sizeof *plain);
    if (!plain) return;
    struct infer_draw *d = &in->draw[i];
    *d = *plain;
    f->bad |= d->n_edit < 0 || d->n_edit > INFER_EDITS_MAX;
    if (f->bad) return;
    d->edit = take(f, (size_t)d->n_edit * sizeof *d->edit);
    if (d->mask) d->mask = take(f, mask_bytes(l));
    f->bad |= f->bad || !is_draw(l, d);
    in->drawn[i] = d;
}

static void take_pages(struct from *f, struct rank_inbox *in, const struct rank_limits *l) {
    for (int g = 0; g < l->n_group; g++) {
        const int32_t *table = take_rows(f, l->n_slot * l->max_pages[g], -1, l->n_page[g]);
        if (table) memcpy(in->pages[g], table, table_bytes(l, g));
    }
    in->has_pages = !f->bad;
}

static void take_scales(struct from *f, struct rank_inbox *in, const struct rank_limits *l) {
    for (int i = 0; i < l->n_slot; i++) {
        const int64_t *there = take(f, sizeof *there);
        const float *scale = there && *there ? take(f, (size_t)l->n_adapter * sizeof *scale) : NULL;
        for (int k = 0; scale && k < l->n_adapter; k++) f->bad |= !isfinite(scale[k]);
        in->adapter[i] = scale;
    }
}

static void take_step(struct from *f, struct rank_call *call, struct rank_inbox *in,
                      const struct rank_limits *l) {
    const struct step_head *h = take(f, sizeof *h);
    if (!h || h->cls < 0 || h->cls >= ROW_CLASS_COUNT || h->n_row < 1 || h->n_row > l->max_rows[h->cls] ||
        h->n_out < 0 || h->n_out > l->max_out[h->cls] || h->n_out > h->n_row) {
        f->bad = true;
        return;
    }
    struct step *s = &in->step;
    *s = (struct step){.n_row = h->n_row, .n_out = h->n_out, .pages_version = h->pages_version};
    s->id = take_rows(f, s->n_row, STEP_LAST, l->n_vocab);
    s->pos = take_rows(f, s->n_row, 0, l->n_ctx);
    s->slot = take_rows(f, s->n_row, 0, l->n_slot);
    s->out_row = take_rows(f, s->n_out, 0, s->n_row);
    for (int i = 1; s->out_row && i < s->n_out; i++) f->bad |= s->out_row[i] <= s->out_row[i - 1];
    s->want = take(f, (size_t)s->n_out);
    if (h->has & HAS_PAGES) take_pages(f, in, l);
    for (int k = 0; k < N_AXIS; k++)
        if (h->has & HAS_AXIS << k) s->axis[k] = take_rows(f, s->n_row, 0, INT32_MAX);
    for (int t = 0; h->has & HAS_INPUT && t < s->n_row; t++) {
        const int64_t *there = take(f, sizeof *there);
        in->input[t] = there && *there ? take(f, (size_t)l->n_input * sizeof(float)) : NULL;
    }
    for (int i = 0; h->has & HAS_DRAW && i < s->n_out; i++) take_draw(f, in, l, i);
    if (h->has & HAS_UNTIL) s->until = take_rows(f, s->n_row, 0, l->n_ctx);
    if (h->has & HAS_ADAPTER) take_scales(f, in, l);
    s->adapter = h->has & HAS_ADAPTER ? in->adapter : NULL;
    s->input = h->has & HAS_INPUT ? in->input : NULL;
    s->draw = h->has & HAS_DRAW ? in->drawn : NULL;
    s->pages = (const int32_t *const *)in->pages;
    f->bad |= !in->has_pages;
    call->cls = (enum row_class)h->cls, call->step = s;
}

/* Where a call reads from or writes to. */
static bool is_place(const struct rank_limits *l, const struct rank_call *c) {
    switch (c->ask) {
    case RANK_KV_COPY:
        return c->store >= 0 && c->store < l->n_group && c->from >= 0 && c->from < l->n_page[c->store] &&
               c->to >= 0 && c->to < l->n_page[c->store];
    case RANK_KV_READ:
    case RANK_KV_PAGE:
        return c->store >= 0 && c->store < l->n_store && c->page >= 0 &&
               c->page < l->n_page[l->store[c->store].group];
    case RANK_STATE_READ:
        return c->store >= 0 && c->store < l->n_state && c->page >= 0 && c->page < l->n_state_slot;
    case RANK_STATE_COPY:
        return c->from >= 0 && c->from < l->n_state_slot && c->to >= 0 && c->to < l->n_state_slot;
    default:
        return true;
    }
}

enum infer_status rank_message_get(struct rank_call *call, struct rank_inbox *in, const struct rank_limits *l,
                                   enum rank_ask ask, const void *bytes, size_t n) {
    struct from f = {bytes, n, false};
    *call = (struct rank_call){.ask = ask};
    if (ask == RANK_RUN) {
        take_step(&f, call, in, l);
    } else {
        const struct other_head *h = take(&f, sizeof *h);
        if (!h || h->cls < 0 || h->cls >= ROW_CLASS_COUNT)
            return err_set(INFER_E_INPUT, "rank 0 asks what is no call");
        *call = (struct rank_call){.ask = ask,
                                   .cls = (enum row_class)h->cls,
                                   .store = h->store,
                                   .page = h->page,
                                   .from = h->from,
                                   .to = h->to,
                                   .write = h->write != 0};
        f.bad |= !is_place(l, call);
        const size_t more = f.bad ? 0 : carried(l, call);
        const void *came = call->write && more ? take(&f, more) : NULL;
        char *numbers = call->write ? (char *)(uintptr_t)came : (char *)in->numbers;
        call->k = (float *)numbers, call->bytes = numbers;
        if (ask == RANK_KV_READ && !f.bad && value_numbers(&l->store[call->store]))
            call->v = call->k + key_numbers(&l->store[call->store]);
    }
    if (f.bad || f.n) return err_set(INFER_E_INPUT, "rank 0 asks what is no call");
    return INFER_OK;
}

enum infer_status rank_inbox_new(struct rank_inbox *in, const struct rank_limits *l) {
    *in = (struct rank_inbox){.n_numbers = numbers_bytes(l)};
    for (int g = 0; g < l->n_group; g++) TRY(mem_new(&in->pages[g], table_bytes(l, g), "a page table"));
    TRY(mem_new(&in->input, (size_t)most(l->max_rows) * sizeof *in->input, "rows"));
    TRY(mem_new(&in->draw, (size_t)most(l->max_out) * sizeof *in->draw, "draws"));
    TRY(mem_new(&in->drawn, (size_t)most(l->max_out) * sizeof *in->drawn, "draws"));
    TRY(mem_new(&in->adapter, (size_t)l->n_slot * sizeof *in->adapter, "scales of adapters"));
    return mem_new(&in->numbers, in->n_numbers, "a page");
}
void rank_inbox_free(struct rank_inbox *in) {
    for (int g = 0; g < KV_GROUPS; g++) mem_free(in->pages[g]);
    mem_free(in->input);
    mem_free(in->draw);
    mem_free(in->drawn);
    mem_free(in->adapter);
    mem_free(in->numbers);
}

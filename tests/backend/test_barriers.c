/* Where the CPU backend's compiled lists have barriers: between two of them no word of memory is written by one thread and touched by another.
 * Told here from the contracts of backend.h and the places of the buffers alone, word by word: every architecture, prompt and decode rows,
 * the widths of the folders, the same in proportion with 64 to 128 columns of the residual stream, and made-up ones. Nothing is computed. */
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "tests/lib/hf_folders.h"
#include "cpu/cpu_list.h"
#include "engine_options.h"
#include "model/model.h"
#include "model/shard.h"
#include "models/registry.h"
#include "plan/plan.h"

#include <unistd.h>

enum { MOST_BUFS = 1024 };

/* ---- who touched what since the last barrier ---- */

enum { NOBODY, ALL = -1 }; /* actors: threads from 1 on, then units, which any thread may take */
struct word {
    int since; /* the barrier behind which it was touched */
    int reader, writer;
    const char *last; /* operation */
};
struct map {
    struct word *word;
    size_t n_word;
    int barriers, actors;
    const struct op_list *list;
    int width[MOST_BUFS]; /* of the buffers where rows have other widths than their views say */
    int n_row, n_out, n_thread;
    const char *op, *what;
    char *clash; /* the first one, in words; NULL: fail at once */
};

static void clash(struct map *m, const struct word *w, const struct buf *b, const char *doing) {
    char text[512];
    snprintf(text, sizeof text,
             "%s, %d rows on %d threads: %s %s %s, which another thread touches in %s, without a barrier",
             m->what, m->n_row, m->n_thread, m->op, doing, b->name, w->last);
    if (!m->clash) fail_msg("%s", text);
    if (!*m->clash) strcpy(m->clash, text);
}

static void touch_word(struct map *m, struct word *w, const struct buf *b, int actor, bool write) {
    if (w->since != m->barriers) *w = (struct word){.since = m->barriers};
    bool other_wrote = w->writer && w->writer != actor, other_read = w->reader && w->reader != actor;
    if (other_wrote || (write && other_read)) clash(m, w, b, write ? "writes" : "reads");
    int *who = write ? &w->writer : &w->reader;
    *who = *who == NOBODY || *who == actor ? actor : ALL;
    w->last = m->op;
}

/* Columns col .. col + n of a view, of row t. Columns are stretched with their buffer: neighbours stay neighbours. */
static void touch(struct map *m, struct view v, int col, int n, int t, int actor, bool write) {
    if (v.buf < 0) return;
    const struct buf *b = &m->list->buf[v.buf];
    int64_t old = b->width, new = m->width[v.buf], first = v.col + col;
    assert_in_range(v.col + v.width, 1, b->width);
    assert_in_range(col + n, 1, v.width);
    size_t row = (b->offset + (size_t)t * b->row_bytes) / sizeof(float);
    size_t from = row + (size_t)(first * new / old), end = row + (size_t)((first + n) * new / old);
    assert_true(end <= m->n_word && (size_t)(end - row) * sizeof(float) <= b->row_bytes);
    for (size_t i = from; i < end; i++) touch_word(m, &m->word[i], b, actor, write);
}
static int rows_of(const struct map *m, struct view v) {
    return m->list->buf[v.buf].rows == BUF_ROWS_OUT ? m->n_out : m->n_row;
}
/* Every thread reads all of it. */
static void all_read(struct map *m, struct view v) {
    for (int t = 0; v.buf >= 0 && t < rows_of(m, v); t++) touch(m, v, 0, v.width, t, ALL, false);
}
/* The thread that has row t of n. */
static int owner(const struct map *m, int t, int n) { return 1 + ((t + 1) * m->n_thread - 1) / n; }
static void own_rows(struct map *m, struct view v, int n, bool write) {
    for (int t = 0; t < n; t++) touch(m, v, 0, v.width, t, owner(m, t, n), write);
}

/* ---- what an operation touches ---- */

/* Of those that work row by row. */
static void by_rows(struct map *m, const struct op *op) {
    static const struct view none = {-1, 0, 0};
    struct view in[3] = {none, none, none}, out = none;
    switch (op->kind) {
    case OP_EMBED:
        out = op->embed.out;
        break;
    case OP_NORM:
        in[0] = op->norm.x, out = op->norm.out;
        break;
    case OP_ROPE:
        in[0] = out = op->rope.x;
        break;
    case OP_POSITION:
        in[0] = out = op->position.x;
        break;
    case OP_KV_PUT:
        in[0] = op->kv_put.k, in[1] = op->kv_put.v;
        break;
    case OP_GLU:
        in[0] = op->glu.gate, in[1] = op->glu.up, out = op->glu.out;
        break;
    case OP_ADD:
        in[0] = op->add.a, in[1] = op->add.b, out = op->add.out;
        break;
    case OP_ROUTE:
        in[0] = op->route.logits, out = op->route.choice;
        break;
    case OP_BALANCE:
        in[0] = op->balance.x, out = op->balance.out;
        break;
    case OP_INPUT:
        out = op->input.out;
        break;
    case OP_COLUMNS:
        in[0] = op->columns.x, out = op->columns.out;
        break;
    default:
        fail_msg("operation %s has no entry here", op->name);
    }
    int n = rows_of(m, out.buf >= 0 ? out : in[0]);
    for (int i = 0; i < 3; i++) own_rows(m, in[i], n, false);
    own_rows(m, out, n, true);
}

/* A unit's outputs col .. col + n of row t, and what is done with them. */
static void outputs(struct map *m, const struct cpu_op *o, struct view out, int col, int n, int t,
                    int actor) {
    if (o->epilogue == CPU_EPI_ADD) {
        const struct op_add *a = &o->post->add;
        touch(m, a->a.buf == out.buf ? a->b : a->a, col, n, t, actor, false);
        out = a->out;
    } else if (o->epilogue == CPU_EPI_GLU) {
        out = o->post->glu.out;
    }
    touch(m, out, col, n, t, actor, true);
}

/* Units of o->unit_rows matrix rows, for rows of a matmul or choices of experts. */
static void units(struct map *m, const struct cpu_op *o, const struct weight_group *w, struct view out, int T,
                  int n_used) {
    int start = 0;
    for (int i = 0; i < (o->epilogue == CPU_EPI_GLU ? 1 : w->n_member); start += n_used * w->member[i++].n)
        for (int row = 0; row < w->member[i].n; row += o->unit_rows) {
            int left = w->member[i].n - row, n = left < o->unit_rows ? left : o->unit_rows;
            for (int j = 0; j < n_used; j++) {
                int actor = ++m->actors;
                for (int t = 0; t < T; t++) outputs(m, o, out, start + j * w->member[i].n + row, n, t, actor);
            }
        }
}

static void by_matmul(struct map *m, const struct cpu_op *o) {
    const struct op_matmul *mm = &o->op->matmul;
    const struct view x = o->norm ? o->norm->norm.x : mm->x;
    const int T = rows_of(m, mm->out);
    bool prompt = m->list->cls == ROW_PROMPT, floats = false;
    for (int i = 0; i < mm->w->n_member; i++) floats |= cpu_is_float(mm->w->member[i].type);
    all_read(m, x);
    if (prompt || (T > CPU_OWN_ROWS && (o->norm || o->need_x8))) m->barriers++; /* copies that all share */
    if (!prompt && floats && !o->norm) all_read(m, x);
    units(m, o, mm->w, mm->out, T, 1);
}

static void by_remote(struct map *m, const struct op_remote *o) {
    const struct view views[] = {o->x, o->choice, o->out};
    for (int t = 0; t < rows_of(m, o->out); t++) /* the first thread alone */
        for (int i = 0; i < 3; i++) touch(m, views[i], 0, views[i].width, t, 1, i == REMOTE_OUT);
}

static void by_experts(struct map *m, const struct cpu_op *o) {
    const struct op_experts *e = &o->op->experts;
    const int T = rows_of(m, e->out);
    all_read(m, e->x);
    all_read(m, e->choice);
    if (T > 1) m->barriers++;
    if (T == 1) all_read(m, e->x);
    all_read(m, e->choice);
    units(m, o, e->w, e->out, T, e->n_used);
}

static void by_mix(struct map *m, const struct op_mix *o) {
    enum { BLOCK = 256 };
    for (int t = 0; t < rows_of(m, o->out); t++)
        for (int col = 0; col < o->out.width; col += BLOCK) {
            int left = o->out.width - col, n = left < BLOCK ? left : BLOCK, actor = ++m->actors;
            for (int j = 0; j < o->n_used; j++) touch(m, o->x, j * o->out.width + col, n, t, actor, false);
            if (!o->plain) touch(m, o->choice, o->n_used, o->n_used, t, actor, false);
            touch(m, o->shared, col, n, t, actor, false);
            touch(m, o->gate, 0, 1, t, actor, false);
            touch(m, o->out, col, n, t, actor, true);
        }
}

/* Columns in blocks, each an actor's for all rows. */
static void columns_written(struct map *m, struct view out, int first, int n, int block) {
    for (int col = 0; col < n; col += block) {
        int actor = ++m->actors;
        for (int t = 0; t < m->n_row; t++)
            touch(m, out, first + col, n - col < block ? n - col : block, t, actor, true);
    }
}

/* Blocks of all rows are shared: a row may be several threads', whose streams of the same columns they read and write. */
static void by_streams(struct map *m, const struct op_streams *o) {
    enum { BLOCK = 64 };
    const int n = op_streams_out(o), d = o->x.width / o->n;
    for (int t = 0; t < rows_of(m, o->x); t++)
        for (int col = 0; col < d; col += BLOCK) {
            const int left = d - col, w = left < BLOCK ? left : BLOCK, actor = ++m->actors;
            for (int j = 0; j < o->n; j++) touch(m, o->x, j * d + col, w, t, actor, false);
            touch(m, o->M, 0, o->M.width, t, actor, false);
            if (o->write.buf >= 0) touch(m, o->y, col, w, t, actor, false);
            if (o->write.buf >= 0) touch(m, o->write, 0, o->write.width, t, actor, false);
            for (int k = 0; k < n; k++) touch(m, o->out, k * d + col, w, t, actor, true);
        }
}

static void by_state(struct map *m, const struct op *op) {
    if (op->kind == OP_COMPRESS) {
        all_read(m, op->compress.x);
        all_read(m, op->compress.gate);
        columns_written(m, op->compress.out, 0, op->compress.out.width, 64);
    } else if (op->kind == OP_NGRAM) {
        for (int h = 0; h < op->ngram.by->n_head; h++)
            columns_written(m, op->ngram.out, h * op->ngram.w->k, op->ngram.w->k, op->ngram.w->k);
    } else if (op->kind == OP_CONV) {
        all_read(m, op->conv.x);
        columns_written(m, op->conv.out, 0, op->conv.out.width, 64);
    } else if (op->kind == OP_DELTA) {
        all_read(m, op->delta.qkv);
        all_read(m, op->delta.a);
        all_read(m, op->delta.b);
        for (int h = 0; h < op->delta.n_value; h++)
            columns_written(m, op->delta.out, h * op->delta.dv, op->delta.dv, CPU_STATE_COLUMNS);
    } else {
        all_read(m, op->ssm.xbc);
        all_read(m, op->ssm.dt);
        for (int h = 0; h < op->ssm.n_head; h++)
            columns_written(m, op->ssm.out, h * op->ssm.head_dim, op->ssm.head_dim, CPU_STATE_COLUMNS);
    }
}

static void by_heads(struct map *m, const struct cpu_op *o) {
    const struct op_heads *h = &o->op->heads;
    const struct weight *w = &h->w->member[0];
    const int rest = op_heads_rest(h);
    all_read(m, h->x);
    for (int i = 0; i < w->n_stack; i++) {
        columns_written(m, h->out, i * (w->n + rest), w->n, o->unit_rows);
        if (rest) columns_written(m, h->out, i * (w->n + rest) + w->n, rest, rest);
    }
}

/* Encoders: each head of a row reads the keys and values of all rows. */
static void by_attend_rows(struct map *m, const struct op_attend *at) {
    const int q = at->q.width / at->n_head, out = at->out.width / at->n_head;
    all_read(m, at->k);
    all_read(m, at->v);
    for (int h = 0; h < at->n_head; h++)
        for (int t = 0; t < m->n_row; t++) {
            const int actor = ++m->actors;
            touch(m, at->q, h * q, q, t, actor, false);
            touch(m, at->out, h * out, out, t, actor, true);
        }
}

/* Every thread's share of A x, and behind a barrier columns in blocks, each an actor's for a block of rows. */
static void by_lowrank(struct map *m, const struct op_lowrank *o) {
    enum { ROWS = 32, BLOCK = 128 };
    const int pairs = o->choice.buf >= 0 ? o->n_used : 1, width = o->out.width / pairs;
    all_read(m, o->x);
    all_read(m, o->choice);
    m->barriers++;
    all_read(m, o->choice);
    for (int t0 = 0; t0 < rows_of(m, o->out); t0 += ROWS)
        for (int col = 0; col < width; col += BLOCK) {
            const int actor = ++m->actors;
            for (const struct lowrank_part *p = o->w->part; p < o->w->part + o->w->n_part; p++) {
                const int from = p->col > col ? p->col : col,
                          to = p->col + p->n < col + BLOCK ? p->col + p->n : col + BLOCK;
                for (int t = t0; from < to && t < t0 + ROWS && t < rows_of(m, o->out); t++)
                    for (int j = 0; j < pairs; j++)
                        for (int write = 0; write < 2; write++)
                            touch(m, o->out, p->col * pairs + j * p->n + from - p->col, to - from, t, actor,
                                  write);
            }
        }
}

/* Few rows: every thread scores some positions of any, and behind a barrier each has its share of the rows; else units are rows. */
static void by_index(struct map *m, const struct op_index *o) {
    const bool few = m->n_row <= CPU_PART_ROWS;
    for (int t = 0; t < m->n_row; t++) {
        const int actor = few ? ALL : ++m->actors;
        touch(m, o->q, 0, o->q.width, t, actor, false);
        touch(m, o->w, 0, o->w.width, t, actor, false);
        if (!few) touch(m, o->chosen, 0, o->chosen.width, t, actor, true);
    }
    if (!few) return;
    m->barriers++;
    own_rows(m, o->chosen, m->n_row, true);
}

/* Decode rows whose rope and kv_put are folded in: a unit has a head of keys and its queries, in short contexts from end to end. */
static void by_attend(struct map *m, const struct cpu_op *o, const struct kv_store *stores) {
    const struct op_attend *at = &o->op->attend;
    const struct kv_store *st = &stores[at->store];
    const int n = st->n_kv_head, q = at->q.width / n, out = at->out.width / n;
    if (at->by.n_top) all_read(m, at->chosen);
    for (int h = 0; h < n; h++) {
        int actor = ++m->actors;
        for (int t = 0; t < m->n_row; t++) {
            touch(m, at->q, h * q, q, t, actor, false);
            touch(m, at->out, h * out, out, t, actor, true);
            if (!o->put) continue;
            touch(m, at->q, h * q, q, t, actor, true);
            const struct op_kv_put *put = &o->put->kv_put;
            touch(m, put->k, put->k.width / n * h, put->k.width / n, t, actor, false);
            touch(m, put->k, put->k.width / n * h, put->k.width / n, t, actor, true);
            touch(m, put->v, put->v.width / n * h, put->v.width / n, t, actor, false);
        }
    }
}

/* What ranks say to each other. */
static void by_first_thread(struct map *m, struct view x, struct view out) {
    for (int t = 0; t < rows_of(m, out); t++) {
        touch(m, x, 0, x.width, t, 1, false);
        touch(m, out, 0, out.width, t, 1, true);
    }
}

static bool seen_kind[OP_KIND_COUNT], seen_arch[256];
static int n_unguarded; /* operations without a barrier behind them */

static void walk_op(struct map *m, const struct cpu_op *o, const struct kv_store *stores) {
    const struct op *op = o->op;
    m->op = op->name;
    seen_kind[op->kind] = true;
    switch (op->kind) {
    case OP_MATMUL:
        by_matmul(m, o);
        break;
    case OP_EXPERTS:
        by_experts(m, o);
        break;
    case OP_REMOTE:
        by_remote(m, &op->remote);
        break;
    case OP_REDUCE:
        by_first_thread(m, op->reduce.x, op->reduce.x);
        break;
    case OP_GATHER:
        by_first_thread(m, op->gather.x, op->gather.out);
        break;
    case OP_MIX:
        by_mix(m, &op->mix);
        break;
    case OP_CONV:
    case OP_DELTA:
    case OP_SSM:
    case OP_COMPRESS:
    case OP_NGRAM:
        by_state(m, op);
        break;
    case OP_HEADS:
        by_heads(m, o);
        break;
    case OP_LOWRANK:
        by_lowrank(m, &op->lowrank);
        break;
    case OP_STREAMS:
        by_streams(m, &op->streams);
        break;
    case OP_INDEX:
        by_index(m, &op->index);
        break;
    case OP_ATTEND:
        op->attend.store < 0 ? by_attend_rows(m, &op->attend) : by_attend(m, o, stores);
        break;
    case OP_ROWS:
    case OP_MERGE:
        all_read(m, op->kind == OP_ROWS ? op->rows.x : op->merge.x);
        own_rows(m, op->kind == OP_ROWS ? op->rows.out : op->merge.out, m->n_out, true);
        break;
    case OP_SELECT:
        all_read(m, op->select.logits);
        break;
    default:
        by_rows(m, op);
    }
    if (o->barrier) m->barriers++;
    n_unguarded += !o->barrier;
}

static void walk_list(struct map *m, const struct cpu_list *l, const struct kv_store *stores, int rows,
                      int threads) {
    m->list = l->list;
    m->n_row = rows < m->list->max_rows ? rows : m->list->max_rows;
    m->n_out = rows < m->list->max_out ? rows : m->list->max_out;
    m->n_thread = threads;
    m->actors = threads;
    m->barriers++;
    for (int i = 0; i < l->n_op; i++) walk_op(m, &l->op[i], stores);
}

/* ---- lists of a model ---- */

struct lists {
    struct model *model, *share; /* share: the first rank's of two, NULL: one has all */
    struct adapter *adapter;     /* NULL: none */
    const struct adapter *list[1];
    struct adapters adapters;
    struct arena arena;
    struct plan plan;
};

static void open_lists_with(struct lists *o, const char *folder, const char *device, const char *host,
                            int ranks, const char *adapter) {
    char name[128], path[512];
    struct plan_options po;
    struct infer_engine_options eo = {.device = device,
                                      .host_device = host,
                                      .kv_type = "f32",
                                      .ctx = 64,
                                      .slots = 4,
                                      .batch = 9,
                                      .threads = 1, /* every attention that may fold does */
                                      .no_repack = true,
                                      .gpu_layers = -1,
                                      .cpu_experts = host ? 99 : 0};
    memset(o, 0, sizeof *o);
    snprintf(name, sizeof name, "golden/%s", folder);
    assert_ok(model_open(&o->model, test_path(path, sizeof path, name), &(struct tensorfile_options){0}));
    if (o->model->encoder) eo.batch = eo.ctx;
    assert_ok(engine_options_read(&po, &eo));
    assert_ok(device_pick(&po.wish, &po.place));
    if (ranks) assert_ok(model_shard(&o->share, o->model, 0, ranks));
    if (adapter) {
        assert_ok(adapter_open(&o->adapter, o->model, adapter, 0, 0));
        o->list[0] = o->adapter;
        o->adapters = (struct adapters){.adapter = o->list, .n = 1};
        po.adapters = &o->adapters;
    }
    assert_ok(plan_make(&o->plan, &o->arena, ranks ? o->share : o->model, &po));
}
static void open_lists(struct lists *o, const char *folder, const char *device, const char *host, int ranks) {
    open_lists_with(o, folder, device, host, ranks, NULL);
}
static void close_lists(struct lists *o) {
    arena_free(&o->arena);
    adapter_close(o->adapter);
    model_close(o->share);
    model_close(o->model);
}

/* The buffers of a part with other widths, placed as the plan places them. */
static void lay_out(struct backend_config *c, int (*width_of)(const struct buf *b, int number), int number) {
    c->activation_bytes = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct op_list *l = c->list[cls];
        assert_in_range(l->n_buf, 1, MOST_BUFS);
        for (int i = 0; i < l->n_buf; i++)
            l->buf[i].row_bytes = (((size_t)width_of(&l->buf[i], number) * sizeof(float) + 63) / 64 | 1) * 64;
        assert_ok(plan_place_buffers(l, false, &c->activation_bytes));
    }
}

/* Compiles the lists as they lie now and walks them. */
static void check_part(const char *what, struct backend_config *c,
                       int (*width_of)(const struct buf *b, int number), int number, char *first_clash) {
    struct backend *b;
    struct map m = {.what = what, .n_word = c->activation_bytes / sizeof(float), .clash = first_clash};
    assert_non_null(m.word = calloc(m.n_word + 1, sizeof *m.word));
    assert_ok(backend_cpu.open(&b, c));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct op_list *l = c->list[cls];
        if (!l->n_op) continue;
        assert_ok(backend_cpu.compile(b, (enum row_class)cls));
        for (int i = 0; i < l->n_buf; i++) m.width[i] = width_of(&l->buf[i], number);
        static const int cases[][2] = {{9, 3}, {5, 2}, {2, 2}, {1, 2}}; /* rows, threads */
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            walk_list(&m, &((struct cpu *)b)->list[cls], c->store, cases[i][0], cases[i][1]);
    }
    backend_cpu.close(b);
    free(m.word);
}

static int n_embd; /* of the model */
static int as_it_is(const struct buf *b, int number) { return number ? b->width * number : b->width; }
/* Where the residual stream has number columns. */
static int in_proportion(const struct buf *b, int number) {
    return (int)(((int64_t)b->width * number + n_embd - 1) / n_embd);
}
/* The same for buffers of one width, 64 to 128. */
static int made_up(const struct buf *b, int number) {
    uint32_t x = (uint32_t)b->width * 2654435761u ^ (uint32_t)(number + 1) * 2246822519u;
    x ^= x >> 15, x *= 2654435769u, x ^= x >> 13;
    return 64 + (int)(x % 65);
}

/* Twice as many heads of keys, of half the size: many of the folders' layers have one, which is one thread's. */
static void more_heads(struct backend_config *c, struct arena *arena) {
    struct kv_store *store = arena_alloc(arena, ((size_t)c->n_store + 1) * sizeof *store);
    assert_non_null(store);
    for (int i = 0; i < c->n_store; i++) {
        store[i] = c->store[i];
        bool even = !store[i].v_in_k && store[i].head_dim_k % 2 == 0 && store[i].head_dim_v % 2 == 0;
        for (int k = 0; k < c->list[ROW_DECODE]->n_op; k++) {
            const struct op *op = &c->list[ROW_DECODE]->op[k];
            if (op->kind == OP_ATTEND && op->attend.store == i)
                even &= op->attend.n_head % (2 * store[i].n_kv_head) == 0;
        }
        if (even) store[i].n_kv_head *= 2, store[i].head_dim_k /= 2, store[i].head_dim_v /= 2;
    }
    c->store = store;
}

static void check_widths(const char *name, struct backend_config *c) {
    enum { MADE_UP = 12 };
    char what[160];
    snprintf(what, sizeof what, "%s", name);
    lay_out(c, as_it_is, 0);
    check_part(what, c, as_it_is, 0, NULL);
    for (int n = 64; n <= 128; n += 8 * EVERY(4)) {
        snprintf(what, sizeof what, "%s with rows of %d", name, n);
        lay_out(c, in_proportion, n);
        check_part(what, c, in_proportion, n, NULL);
    }
    for (int n = 0; n < MADE_UP; n += EVERY(4)) {
        snprintf(what, sizeof what, "%s with made-up widths %d", name, n);
        lay_out(c, made_up, n);
        check_part(what, c, made_up, n, NULL);
    }
}

static void check_rank(const char *folder) {
    struct lists shared;
    char name[128];
    snprintf(name, sizeof name, "%s, rank 0 of 2", folder);
    open_lists(&shared, folder, "cpu", NULL, 2);
    n_embd = shared.model->n_embd;
    lay_out(&shared.plan.part[0].config, as_it_is, 0);
    check_part(name, &shared.plan.part[0].config, as_it_is, 0, NULL);
    close_lists(&shared);
}

/* With an adapter, where there is one for the folder. */
static void check_adapted(const char *folder) {
    struct lists o;
    char file[128], path[512], name[160];
    if (strncmp(folder, "hf/", 3)) return;
    snprintf(file, sizeof file, "golden/adapter/%.60s", folder + 3);
    if (access(test_path(path, sizeof path, file), F_OK)) return;
    open_lists_with(&o, folder, "cpu", NULL, 0, path);
    n_embd = o.model->n_embd;
    snprintf(name, sizeof name, "%s with an adapter", folder);
    check_widths(name, &o.plan.part[0].config);
    close_lists(&o);
}

/* On the processor alone, as one rank of two (but an encoder); with experts, on it and beside it. */
static void check_folder(const char *folder) {
    static const char *const places[][2] = {{"cpu", NULL}, {"cpu", "ref"}, {"ref", "cpu"}};
    char name[128];
    if (strncmp(folder, "embed/", 6) != 0) check_rank(folder);
    check_adapted(folder);
    for (int k = 0; k < 3; k++) {
        struct lists o;
        open_lists(&o, folder, places[0][0], NULL, 0);
        bool experts = plan_has_experts(o.model, o.model->n_layer);
        n_embd = o.model->n_embd;
        for (int i = 0; arch_at(i); i++) seen_arch[i] |= arch_at(i) == o.model->arch;
        if (k && !experts) {
            close_lists(&o);
            return;
        }
        if (k) {
            close_lists(&o);
            open_lists(&o, folder, places[k][0], places[k][1], 0);
            assert_int_equal(o.plan.n_part, 2);
        }
        for (int i = 0; i < o.plan.n_part; i++) {
            snprintf(name, sizeof name, "%s on %s%s%s", folder, places[k][0], k ? ", experts on " : "",
                     k ? places[k][1] : "");
            if (o.plan.part[i].type != &backend_cpu) continue;
            more_heads(&o.plan.part[i].config, &o.arena);
            check_widths(name, &o.plan.part[i].config);
        }
        close_lists(&o);
    }
}

static void nobody_touches_what_another_writes(void **state) {
    (void)state;
    char name[80];
    const char *folders[HF_FOLDERS_MAX];
    const int n = hf_folders(folders);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "hf/%.60s", folders[i]);
        check_folder(name);
    }
    static const char *const encoders[] = {
        "bert-cls",        "modern-bert", "nomic-bert",     "jina-bert-v2",      "jina-bert-v3",
        "gemma-embedding", "t5",          "nomic-bert-moe", "jina-bert-v2-code", "eurobert"};
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        snprintf(name, sizeof name, "embed/%s", encoders[i]);
        check_folder(name);
    }
    for (int i = 0; arch_at(i); i++)
        if (!seen_arch[i]) fail_msg("no folder here is of architecture %s", arch_at(i)->name);
    for (int i = 0; i < OP_KIND_COUNT; i++)
        if (!seen_kind[i] && i != OP_MERGE) /* of towers */
            fail_msg("no list here has operation %d", i);
    assert_true(n_unguarded > 0);
}

/* Barriers of the lists of a folder, prompt and decode. */
static void count(const char *folder, int out[ROW_CLASS_COUNT]) {
    struct lists o;
    struct backend *b;
    open_lists(&o, folder, "cpu", NULL, 0);
    assert_ok(backend_cpu.open(&b, &o.plan.part[0].config));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        assert_ok(backend_cpu.compile(b, (enum row_class)cls));
        const struct cpu_list *l = &((struct cpu *)b)->list[cls];
        out[cls] = 0;
        for (int i = 0; i < l->n_op; i++) out[cls] += l->op[i].barrier;
    }
    backend_cpu.close(b);
    close_lists(&o);
}

/* None more than before each operation whose rows others wait for: as many as these lists had when every two operations that work row by
 * row went without. */
static void no_barrier_more_than_needed(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        int prompt, decode;
    } all[] = {{"forward/llama-gqa.gguf", 20, 15},
               {"forward/qwen3.gguf", 28, 23},
               {"hf/gemma2", 42, 34},
               {"hf/gemma3", 68, 61},
               {"hf/gemma4", 60, 54},
               {"hf/olmo2", 21, 21},
               {"hf/qwen3_moe", 38, 35},
               {"hf/gemma4-moe", 50, 47},
               {"hf/glm4", 32, 26}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int got[ROW_CLASS_COUNT];
        count(all[i].folder, got);
        if (got[ROW_PROMPT] != all[i].prompt || got[ROW_DECODE] != all[i].decode)
            fail_msg("%s: %d barriers for prompts and %d for decode, not %d and %d", all[i].folder,
                     got[ROW_PROMPT], got[ROW_DECODE], all[i].prompt, all[i].decode);
    }
}

/* Each barrier of a Llama is there for something: without it a clash is seen. */
static void clashes_are_seen(void **state) {
    (void)state;
    struct lists o;
    struct backend *b;
    char first[512] = "";
    open_lists(&o, "hf/llama", "cpu", NULL, 0);
    struct backend_config *c = &o.plan.part[0].config;
    struct map m = {.what = "llama", .n_word = c->activation_bytes / sizeof(float), .clash = first};
    assert_non_null(m.word = calloc(m.n_word, sizeof *m.word));
    assert_ok(backend_cpu.open(&b, c));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct cpu_list *l = &((struct cpu *)b)->list[cls];
        assert_ok(backend_cpu.compile(b, (enum row_class)cls));
        for (int i = 0; i < l->list->n_buf; i++) m.width[i] = l->list->buf[i].width;
        for (int i = 0; i + 1 < l->n_op; i++) {
            if (!l->op[i].barrier) continue;
            l->op[i].barrier = false;
            *first = 0;
            walk_list(&m, l, c->store, 4, 2);
            if (!*first)
                fail_msg("class %d: nothing is seen without the barrier behind %s", cls, l->op[i].op->name);
            l->op[i].barrier = true;
        }
        *first = 0;
        walk_list(&m, l, c->store, 4, 2);
        assert_string_equal(first, "");
    }
    backend_cpu.close(b);
    free(m.word);
    close_lists(&o);
}

int main(void) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_touches_what_another_writes),
        cmocka_unit_test(clashes_are_seen),
        cmocka_unit_test(no_barrier_more_than_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* From the op list to what the team walks: one kernel entry per op, neighbours folded together, units of work,
 * and where a barrier is needed. Folding is off with no_fuse.
 *
 *   norm + matmul            decode: each thread norms its own copy of a few rows; no barrier between them
 *   matmul + add, + glu      the outputs of a unit go on while they are in cache
 *   rope + rope + kv_put + attend   decode: one thread does a kv head from end to end */
#include "cpu/cpu_list.h"
#include "seam/weight.h"
#include <string.h>

/* May op i + 1 be done inside matmul i? Its input is the matmul's output and dies with it, and what it writes is
 * not what the matmul still reads (source). */
static enum cpu_epilogue epilogue_of(const struct op_list *l, int i, struct view source) {
    struct view out = op_uses(&l->op[i]).write[0];
    if (i + 1 >= l->n_op || !list_hands_over(l, i)) return CPU_EPI_STORE;
    const struct op *post = &l->op[i + 1];
    if (l->op[i].kind == OP_MATMUL && post->kind == OP_ADD &&
        (view_same(post->add.a, out) != view_same(post->add.b, out)) &&
        !list_overlaps(l, source, post->add.out))
        return CPU_EPI_ADD;
    if (l->op[i].kind == OP_MATMUL && post->kind == OP_GLU && post->glu.up.buf < 0 &&
        view_same(post->glu.gate, out) && !list_overlaps(l, source, post->glu.out))
        return CPU_EPI_MAP;
    if (list_is_gated(l, i) && !list_overlaps(l, source, post->glu.out)) return CPU_EPI_GLU;
    return CPU_EPI_STORE;
}

/* At most rows, and no unit crosses the end of a run; of several members with runs, these have the same ones. */
static int within_runs(const struct weight_group *w, int rows) {
    for (int m = 0; m < w->n_member; m++) {
        const int run = weight_run(&w->member[m]);
        while (run < w->member[m].n && run % rows) rows--;
    }
    return rows;
}
int cpu_decode_unit_rows(int n_thread, const struct weight_group *w) {
    int rows = CPU_UNIT_ROWS;
    while (rows > 16 && w->n / rows < 16 * n_thread) rows /= 2;
    return within_runs(w, rows);
}

/* One route for all members, since they share the copy of x. */
static enum cpu_route prompt_route(const struct cpu *c, const struct weight_group *w, bool exact) {
    bool plain = c->config.strict_fp32 || exact, int8 = true, int16 = true;
    for (int m = 0; m < w->n_member; m++) {
        if (w->member[m].type == QUANT_F32) plain = true; /* fewer bits would not be float32 */
        if (!c->k->gemm_int8[w->member[m].type]) int8 = false;
        if (!cpu_int16(c->k, &w->member[m])) int16 = false;
    }
    if (plain) return CPU_ROUTE_F32;
    return c->isa == CPU_ISA_AMX ? CPU_ROUTE_BF16
           : int16               ? CPU_ROUTE_INT16
           : int8                ? CPU_ROUTE_INT8
                                 : CPU_ROUTE_F32;
}

static void compile_matmul(struct cpu *c, const struct op_list *l, struct cpu_op *o, int i, bool norm) {
    const struct weight_group *w = l->op[i].matmul.w;
    bool decode = l->cls == ROW_DECODE, fuse = !c->config.no_fuse;
    o->fn = decode ? cpu_op_matmul_decode : cpu_op_matmul_prompt;
    o->route = prompt_route(c, w, l->op[i].matmul.exact);
    o->unit_rows = decode ? cpu_decode_unit_rows(c->n_thread, w) : within_runs(w, CPU_PANEL_ROWS);
    if (norm) o->norm = &l->op[i - 1];
    /* prompt rows are copied to panels before the first output is written, so nothing is read any more then */
    struct view source = norm ? o->norm->norm.x : l->op[i].matmul.x;
    o->epilogue = fuse && i + 1 < l->n_op ? epilogue_of(l, i, source) : CPU_EPI_STORE;
    if (o->epilogue != CPU_EPI_STORE) o->post = &l->op[i + 1];
    for (int m = 0; m < w->n_member; m++) {
        if (!cpu_reads_floats(c->k, &w->member[m])) o->need_x8 = decode;
        if (cpu_reads_twice(c->k, &w->member[m])) o->twice = true;
        if (o->epilogue != CPU_EPI_GLU || m == 0)
            o->n_unit += (w->member[m].n + o->unit_rows - 1) / o->unit_rows;
    }
}

static void compile_experts(struct cpu *c, const struct op_list *l, struct cpu_op *o, int i) {
    const struct op_experts *e = &l->op[i].experts;
    o->fn = cpu_op_experts;
    o->route = cpu_experts_form(&c->config, c->k, l->cls, e->w);
    o->twice = o->route == CPU_ROUTE_INT8 && cpu_experts_twice(c->k, e->w);
    o->unit_rows = l->cls == ROW_DECODE ? cpu_decode_unit_rows(c->n_thread, e->w) : CPU_UNIT_ROWS;
    if (!c->config.no_fuse) o->epilogue = epilogue_of(l, i, e->x);
    if (o->epilogue != CPU_EPI_STORE && list_overlaps(l, e->choice, l->op[i + 1].glu.out))
        o->epilogue = CPU_EPI_STORE;
    if (o->epilogue != CPU_EPI_STORE) o->post = &l->op[i + 1];
    for (int m = 0; m < (o->epilogue == CPU_EPI_GLU ? 1 : e->w->n_member); m++)
        o->n_unit += (e->w->member[m].n + o->unit_rows - 1) / o->unit_rows;
}

static int rope_table(struct cpu *c, const struct rope *r) {
    for (int i = 0; i < c->n_rope; i++) {
        const struct rope *k = c->rope[i];
        if (k->n_rot == r->n_rot && k->mscale == r->mscale && k->axis == r->axis && k->every == r->every &&
            (k->inv_freq == r->inv_freq ||
             !memcmp(k->inv_freq, r->inv_freq, sizeof(float) * (size_t)(r->n_rot / 2))))
            return i;
    }
    if (c->n_rope == CPU_ROPES) return -1;
    c->rope[c->n_rope] = r;
    return c->n_rope++;
}

/* rope q, rope k, kv_put and attend in a row, of one store: the index of attend is i + 3. A head's result is written while other threads
 * still rotate and put theirs. */
static bool attention_folds(const struct cpu *c, const struct op_list *l, int i) {
    if (c->config.no_fuse || l->cls != ROW_DECODE || i + 3 >= l->n_op) return false;
    const struct op *q = &l->op[i], *k = q + 1, *put = q + 2, *at = q + 3;
    return list_is_rotated(l, i) && at->kind == OP_ATTEND && at->attend.store >= 0 &&
           view_same(q->rope.x, at->attend.q) && put->kv_put.store == at->attend.store &&
           c->config.store[at->attend.store].n_kv_head >= c->n_thread &&
           !c->config.store[at->attend.store].v_in_k && /* whose units are blocks of query heads */
           q->rope.rope->n_rot == k->rope.rope->n_rot && !list_overlaps(l, at->attend.out, put->kv_put.k) &&
           !list_overlaps(l, at->attend.out, put->kv_put.v);
}

/* Ops that work row by row of the step, each thread on the same share of them. */
static bool row_wise(const struct op_list *l, const struct cpu_op *o) {
    if (op_rows_kind(l, o->op) != BUF_ROWS_ALL) return false;
    return o->fn == cpu_op_embed || o->fn == cpu_op_norm || o->fn == cpu_op_rope || o->fn == cpu_op_kv_put ||
           o->fn == cpu_op_glu || o->fn == cpu_op_add || o->fn == cpu_op_route || o->fn == cpu_op_position ||
           o->fn == cpu_op_columns || o->fn == cpu_op_input || o->fn == cpu_op_balance;
}

/* A run is ops without a barrier between them: one thread may be at its last op while another is at its first. That is right where all of
 * them work row by row and no thread's rows share memory with another's. Rows of one buffer do not; but the plan puts a buffer over one
 * whose life is over, and of two that overlap without being in step a row lies over other rows. */
static bool joins_run(const struct op_list *l, const struct cpu_op *begin, const struct cpu_op *o) {
    if (!row_wise(l, o)) return false;
    for (const struct cpu_op *of = begin; of < o; of++)
        if (!row_wise(l, of) || !list_rows_apart(l, of->op, o->op)) return false;
    return true;
}
static void place_barriers(struct cpu_list *cl) {
    const struct cpu_op *begin = cl->op;
    for (int i = 0; i < cl->n_op; i++) {
        cl->op[i].barrier = i + 1 == cl->n_op || !joins_run(cl->list, begin, &cl->op[i + 1]);
        if (cl->op[i].barrier) begin = &cl->op[i + 1];
    }
}

static enum infer_status compile_small(struct cpu *c, const struct op_list *l, struct cpu_op *o,
                                       const struct op *op) {
    static cpu_fn *const plain[OP_KIND_COUNT] = {
        [OP_EMBED] = cpu_op_embed,       [OP_NORM] = cpu_op_norm,       [OP_ROPE] = cpu_op_rope,
        [OP_KV_PUT] = cpu_op_kv_put,     [OP_GLU] = cpu_op_glu,         [OP_ADD] = cpu_op_add,
        [OP_ROWS] = cpu_op_rows,         [OP_MERGE] = cpu_op_merge,     [OP_INPUT] = cpu_op_input,
        [OP_SELECT] = cpu_op_select,     [OP_CONV] = cpu_op_conv,       [OP_DELTA] = cpu_op_delta,
        [OP_SSM] = cpu_op_ssm,           [OP_ROUTE] = cpu_op_route,     [OP_MIX] = cpu_op_mix,
        [OP_POSITION] = cpu_op_position, [OP_HEADS] = cpu_op_heads,     [OP_COLUMNS] = cpu_op_columns,
        [OP_REMOTE] = cpu_op_remote,     [OP_REDUCE] = cpu_op_reduce,   [OP_GATHER] = cpu_op_gather,
        [OP_LOWRANK] = cpu_op_lowrank,   [OP_INDEX] = cpu_op_index,     [OP_COMPRESS] = cpu_op_compress,
        [OP_BALANCE] = cpu_op_balance,   [OP_STREAMS] = cpu_op_streams, [OP_NGRAM] = cpu_op_ngram};
    o->fn = plain[op->kind];
    if (op->kind == OP_ROPE && (o->cs = rope_table(c, op->rope.rope)) < 0)
        return err_set(INFER_E_UNSUPPORTED, "more than %d different rope tables", CPU_ROPES);
    if (op->kind == OP_HEADS) {
        const struct weight *w = &op->heads.w->member[0];
        o->unit_rows = CPU_UNIT_ROWS;
        o->n_unit = w->n_stack * ((w->n + CPU_UNIT_ROWS - 1) / CPU_UNIT_ROWS);
    }
    if (op->kind == OP_ATTEND && op->attend.store < 0) {
        o->fn = cpu_op_attend_rows;
        o->n_unit = cpu_attend_rows_shape(&op->attend, &o->unit_rows);
        o->per_row = true;
    } else if (op->kind == OP_ATTEND) {
        const struct kv_store *st = &c->config.store[op->attend.store];
        o->fn = l->cls == ROW_DECODE ? cpu_op_attend_decode : cpu_op_attend_prompt;
        o->n_unit = st->n_kv_head;
        o->unit_rows = 1;
        if (l->cls == ROW_PROMPT) {
            int heads, parts;
            cpu_attend_shape(c, &op->attend, &o->unit_rows, &heads, &parts);
            o->n_unit *= parts;
        }
        o->per_row = true;
    }
    return INFER_OK;
}

enum infer_status cpu_compile_list(struct cpu *c, enum row_class cls) {
    struct cpu_list *cl = &c->list[cls];
    const struct op_list *l = c->config.list[cls];
    int n = 0;
    cl->list = l;
    for (int i = 0; i < l->n_op; i++, n++) {
        const struct op *op = &l->op[i];
        struct cpu_op *o = &cl->op[n];
        memset(o, 0, sizeof *o);
        o->index = n;
        bool norm = !c->config.no_fuse && cls == ROW_DECODE && op->kind == OP_NORM && i + 1 < l->n_op &&
                    op[1].kind == OP_MATMUL && view_same(op->norm.out, op[1].matmul.x) &&
                    list_hands_over(l, i) && !list_overlaps(l, op->norm.x, op[1].matmul.out);
        if (norm) op = &l->op[++i];
        if (attention_folds(c, l, i)) {
            o->rope_q = op, o->rope_k = op + 1, o->put = op + 2;
            o->cs = rope_table(c, op->rope.rope);
            if (o->cs < 0 || o->cs != rope_table(c, op[1].rope.rope))
                return err_set(INFER_E_UNSUPPORTED, "more than %d different rope tables", CPU_ROPES);
            op = &l->op[i += 3];
            o->fn = cpu_op_attend_decode;
            o->n_unit = c->config.store[op->attend.store].n_kv_head;
        } else if (op->kind == OP_MATMUL) {
            compile_matmul(c, l, o, i, norm);
            if (o->post) i++;
        } else if (op->kind == OP_EXPERTS) {
            compile_experts(c, l, o, i);
            if (o->post) i++;
        } else {
            TRY(compile_small(c, l, o, op));
        }
        o->op = op;
    }
    cl->n_op = n;
    place_barriers(cl);
    if (cls == ROW_DECODE) cpu_repack_open(c, cl);
    cl->ready = true;
    return INFER_OK;
}

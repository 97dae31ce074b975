/* The CPU backend: memory, the team, and the entry points of backend.h. */
#include "cpu/cpu_list.h"
#include "base/host.h"
#include "seam/comm.h"
#include "seam/profile.h"
#include "seam/tap.h"
#include "seam/weight.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* ---- sizes: one place says how much of everything ---- */

struct need { /* bytes */
    size_t kv, output, norm, x8, panel, cs, best, select, own_norm, own_x8, own_out, scratch, part, weights,
        acc, low, index;
    int cs_width, cs_rows, out_rows;
};

static int most(int a, int b) { return a > b ? a : b; }

static size_t attend_scratch(int heads, int hk,
                             int hv) { /* floats: the larger of attend_row and attend_block */
    size_t h = (size_t)most(hk, hv),
           row = (size_t)KV_PAGE * (size_t)(hk + hv + heads) + (size_t)heads * (size_t)(hk + 3) + 64;
    size_t block = KV_PAGE * h + (size_t)(hk + hv + KV_PAGE + 5) * CPU_ATTEND_LANES + 64;
    return row > block ? row : block;
}

/* Bytes of K or V of one page of a store, 0 where no operation uses it; of one page of all stores of a group. */
static size_t page_bytes(const struct backend_config *c, int store, bool value) {
    if (!config_uses_store(c, store)) return 0;
    const struct kv_store *s = &c->store[store];
    return (size_t)s->n_kv_head * (size_t)kv_page_rows(s) * (value ? kv_v_bytes(s) : kv_k_bytes(s));
}
static size_t group_page_bytes(const struct backend_config *c, int group) {
    size_t n = 0;
    for (int i = 0; i < c->n_store; i++)
        if (c->store[i].group == group) n += page_bytes(c, i, false) + page_bytes(c, i, true);
    return n;
}

static size_t state_bytes(const struct backend_config *c, int store) { /* all slots */
    if (!config_uses_state(c, store)) return 0;
    return (size_t)c->n_state_slot * (size_t)c->state[store].n_elem * sizeof(float);
}

static struct need need_of(const struct backend_config *c, enum cpu_isa isa, int n_thread) {
    struct need n = {0};
    const struct op_list *decode = c->list[ROW_DECODE], *prompt = c->list[ROW_PROMPT];
    int k = 1, heads = 1, hk = 1, hv = 1, rows = most(decode->max_rows, decode->max_out);
    for (int i = 0; i < c->n_group; i++) k = most(k, c->group[i]->k);
    for (int i = 0; i < c->n_store; i++) {
        hk = most(hk, c->store[i].head_dim_k), hv = most(hv, c->store[i].head_dim_v);
    }
    for (int i = 0; i < c->n_kv_group; i++) n.kv += (size_t)c->kv_group[i].n_page * group_page_bytes(c, i);
    for (int i = 0; i < c->n_state; i++) n.kv += state_bytes(c, i);
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        const struct op_list *l = c->list[cls];
        for (int i = 0; i < l->n_op; i++) {
            const struct op *op = &l->op[i];
            if (op->kind == OP_ROPE) n.cs_width = most(n.cs_width, op->rope.rope->n_rot);
            if (op->kind == OP_LOWRANK && cpu_lowrank_floats(l, &op->lowrank) * sizeof(float) > n.low)
                n.low = cpu_lowrank_floats(l, &op->lowrank) * sizeof(float);
            if (op->kind == OP_INDEX) {
                heads = most(heads, op->index.n_head);
                const size_t bytes = cpu_index_floats(c, &op->index, n_thread) * sizeof(float);
                if (bytes > n.index) n.index = bytes;
            }
            if (op->kind != OP_ATTEND) continue;
            const struct op_attend *at = &op->attend;
            heads = most(heads, at->n_head);
            if (at->store < 0)
                hk = most(hk, at->q.width / at->n_head), hv = most(hv, at->out.width / at->n_head);
        }
        n.cs_rows = most(n.cs_rows, l->max_rows);
        n.out_rows = most(n.out_rows, l->max_out);
        n.output += 2 * (size_t)l->max_out * (sizeof(int32_t) + sizeof(struct infer_top));
    }
    n.output += CPU_RING * (size_t)c->n_logits * (size_t)c->n_vocab * sizeof(float);
    n.select = cpu_select_bytes(cpu_select_vocab(c), n_thread);
    n.norm = (size_t)rows * cpu_norm_floats(k) * sizeof(float);
    n.x8 = 2 * (size_t)rows * cpu_x8_bytes(k);
    n.panel = cpu_x_panel_bytes(most(prompt->max_rows, prompt->max_out), k);
    n.cs_width = (n.cs_width + 15) & ~15;
    n.cs = CPU_ROPES * (size_t)n.cs_rows * (size_t)n.cs_width * sizeof(float);
    n.best = (size_t)n_thread * (size_t)n.out_rows * sizeof(float);
    n.own_norm = CPU_OWN_ROWS * cpu_norm_floats(k) * sizeof(float);
    n.own_x8 = 2 * CPU_OWN_ROWS * cpu_x8_bytes(k);
    n.own_out = 4 * (size_t)rows * CPU_UNIT_ROWS * sizeof(float);
    n.scratch = attend_scratch(heads, hk, hv) * sizeof(float);
    if (isa == CPU_ISA_AMX && cpu_amx_attend_floats(hk, hv) * sizeof(float) > n.scratch)
        n.scratch = cpu_amx_attend_floats(hk, hv) * sizeof(float);
    n.part = cpu_attend_part_floats(heads, hv) * sizeof(float);
    n.weights = (size_t)CPU_PANEL_ROWS * CPU_PANEL_STRIDE * sizeof(float);
    n.acc = 2 * (size_t)CPU_PANEL_TOKENS * CPU_PANEL_ROWS * sizeof(float);
    return n;
}

static const struct cpu_kernels *kernels_of(enum cpu_isa isa) {
    return isa == CPU_ISA_AVX2      ? &cpu_kernels_avx2
           : isa == CPU_ISA_AVXVNNI ? &cpu_kernels_avxvnni
                                    : &cpu_kernels_avx512;
}
static size_t own_pairs_bytes(const struct cpu_experts_need *e) { /* and room for five alignments */
    return e->own_x + (2 * e->pairs + 2 * (size_t)e->experts + 1) * sizeof(int32_t) + 5 * 64;
}

static enum infer_status cpu_probe(void) {
    enum cpu_isa isa;
    return cpu_isa_pick(NULL, &isa);
}

static enum infer_status cpu_sizes(const struct backend_config *c, struct backend_sizes *out) {
    enum cpu_isa isa;
    TRY(cpu_isa_pick(c->cpu.isa, &isa));
    TRY(weights_known(c, "cpu"));
    int n_thread = host_threads_pick(c->cpu.threads);
    size_t ops = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct op_list *l = c->list[cls];
        for (int i = 0; i < l->n_buf; i++)
            l->buf[i].row_bytes = (((size_t)l->buf[i].width * sizeof(float) + 63) / 64 | 1) * 64;
        ops += (size_t)l->n_op;
    }
    struct need n = need_of(c, isa, n_thread);
    struct cpu_experts_need e = cpu_experts_need(c, kernels_of(isa));
    size_t own = own_pairs_bytes(&e) + n.own_norm + n.own_x8 + n.own_out + n.scratch + n.part + n.weights +
                 n.acc + sizeof(struct cpu_work);
    *out = (struct backend_sizes){
        .weight_bytes = cpu_repack_bytes(c, n_thread),
        .kv_bytes = n.kv,
        .workspace_bytes = e.x + n.low + n.index + n.norm + n.x8 + n.panel + n.cs + CPU_PART_ROWS * n.part +
                           2 * n.best + 2 * n.select + own * (size_t)n_thread +
                           ops * (sizeof(struct cpu_op) + sizeof(struct cpu_range) * (size_t)n_thread) +
                           sizeof(struct cpu) + last_tokens_bytes(c->n_slot, n.cs_rows) +
                           (size_t)n_thread * sizeof(struct topology_set) + (64 << 10),
        .output_bytes = n.output,
    };
    return INFER_OK;
}

/* ---- open, close ---- */

static void *take(struct cpu *c, size_t n, bool *ok) {
    void *p = arena_alloc(&c->arena, n ? n : 1);
    if (!p) *ok = false;
    return p;
}

static void take_pools(struct cpu *c, bool *ok) {
    const struct backend_config *g = &c->config;
    c->k_pool = take(c, (size_t)g->n_store * sizeof *c->k_pool, ok);
    c->v_pool = take(c, (size_t)g->n_store * sizeof *c->v_pool, ok);
    c->page_stride = take(c, (size_t)g->n_kv_group * sizeof *c->page_stride, ok);
    for (int i = 0; *ok && i < g->n_kv_group; i++) {
        c->page_stride[i] = group_page_bytes(g, i);
        uint8_t *at = take(c, (size_t)g->kv_group[i].n_page * c->page_stride[i], ok);
        for (int k = 0; *ok && k < g->n_store; k++) {
            if (g->store[k].group != i) continue;
            c->k_pool[k] = at;
            c->v_pool[k] = at += page_bytes(g, k, false);
            at += page_bytes(g, k, true);
        }
    }
}

static void take_states(struct cpu *c, bool *ok) {
    c->state = take(c, (size_t)c->config.n_state * sizeof *c->state, ok);
    for (int i = 0; *ok && i < c->config.n_state; i++) c->state[i] = take(c, state_bytes(&c->config, i), ok);
}

static void take_pairs(struct cpu *c, struct cpu_work *w, const struct cpu_experts_need *e, bool *ok) {
    w->pairs.order = take(c, e->pairs * sizeof *w->pairs.order, ok);
    w->pairs.place = take(c, e->pairs * sizeof *w->pairs.place, ok);
    w->pairs.first = take(c, ((size_t)e->experts + 1) * sizeof *w->pairs.first, ok);
    w->pairs.hit = take(c, (size_t)e->experts * sizeof *w->pairs.hit, ok);
    w->pair_x = take(c, e->own_x, ok);
}

static enum infer_status take_memory(struct cpu *c) {
    const struct backend_config *g = &c->config;
    struct need n = need_of(g, c->isa, c->n_thread);
    struct cpu_experts_need e = cpu_experts_need(g, c->k);
    bool ok = true;
    c->activations = take(c, g->activation_bytes, &ok);
    take_pools(c, &ok);
    take_states(c, &ok);
    c->norm = take(c, n.norm, &ok);
    c->x8 = take(c, n.x8, &ok);
    c->panel = take(c, n.panel, &ok);
    c->pair_x = take(c, e.x, &ok);
    c->low = take(c, n.low, &ok);
    c->index = take(c, n.index, &ok);
    c->cs = take(c, n.cs, &ok);
    c->cs_width = n.cs_width, c->cs_rows = n.cs_rows, c->best_rows = n.out_rows;
    c->best_value = take(c, n.best, &ok);
    c->best_index = take(c, n.best, &ok);
    for (int i = 0; i < 2; i++) {
        void *memory = take(c, n.select, &ok);
        if (ok) cpu_select_open(&c->select[i], memory, cpu_select_vocab(g), c->n_thread);
    }
    void *last = take(c, last_tokens_bytes(g->n_slot, n.cs_rows), &ok);
    c->part = take(c, CPU_PART_ROWS * n.part, &ok);
    c->work = take(c, (size_t)c->n_thread * sizeof *c->work, &ok);
    for (int i = 0; ok && i < c->n_thread; i++) {
        struct cpu_work *w = &c->work[i];
        w->norm = take(c, n.own_norm, &ok);
        w->x8 = take(c, n.own_x8, &ok);
        w->out = take(c, n.own_out, &ok);
        w->scratch = take(c, n.scratch, &ok);
        w->part = take(c, n.part, &ok);
        w->weights = take(c, n.weights, &ok);
        w->acc = take(c, n.acc, &ok);
        take_pairs(c, w, &e, &ok);
    }
    int ops = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        ops = most(ops, g->list[cls]->n_op);
        c->list[cls].op = take(c, (size_t)g->list[cls]->n_op * sizeof *c->list[cls].op, &ok);
    }
    c->range = take(c, (size_t)ops * (size_t)c->n_thread * sizeof *c->range, &ok);
    for (int i = 0; i < CPU_RING; i++) { /* two steps in flight, each of both classes */
        c->ring[i].token = take(c, (size_t)n.out_rows * sizeof(int32_t), &ok);
        c->ring[i].top = take(c, (size_t)n.out_rows * sizeof(struct infer_top), &ok);
        c->ring[i].logits = take(c, (size_t)g->n_logits * (size_t)g->n_vocab * sizeof(float), &ok);
    }
    if (!ok)
        return err_set(INFER_E_MEMORY, "out of memory: %zu bytes taken for the CPU backend", c->arena.total);
    last_tokens_open(&c->last, last, g->n_slot);
    return INFER_OK;
}

static void cpu_close(struct backend *b) {
    struct cpu *c = (struct cpu *)b;
    if (!c) return;
    cpu_repack_close(c);
    arena_free(&c->arena);
    mem_free(c);
}

/* ---- NUMA nodes: each thread stays on one, so that what it touches first (its part of the copied weights, its own
 * memory, its heads' pages) is there ---- */

/* Not where OpenMP's environment (OMP_PROC_BIND) places the team already. */
static enum infer_status place_threads(struct cpu *c) {
    static atomic_uint placements;
    struct topology t;
    struct topology_cpu place[TOPOLOGY_CPUS];
    if (c->n_thread < 2 || omp_get_proc_bind() != omp_proc_bind_false) return INFER_OK;
    topology_read(&t);
    if (!t.here || t.n_node < 2) return INFER_OK;
    c->node = arena_alloc(&c->arena, (size_t)c->n_thread * sizeof *c->node);
    if (!c->node) return err_set(INFER_E_MEMORY, "out of memory for the nodes of %d threads", c->n_thread);
    topology_place(&t, c->n_thread, place);
    for (int i = 0; i < c->n_thread; i++) topology_node(&t, place[i].node, &c->node[i]);
    c->placement = atomic_fetch_add(&placements, 1) + 1;
    return INFER_OK;
}

/* The threads that OpenMP made stay bound. Thread 0 is the caller's, whose mask is put back after the step: true, and
 * old is that mask. */
static bool bind_thread(const struct cpu *c, int thread, struct topology_set *old) {
    static _Thread_local unsigned placement;
    if (thread && placement == c->placement) return false;
    if (!thread) return topology_bind(&c->node[0], old);
    topology_bind(&c->node[thread], NULL); /* refused: it computes as well from anywhere */
    placement = c->placement;
    return false;
}

static void processor_name(char *out, size_t n) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, n, "x86-64");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        value[strcspn(value, "\n")] = 0;
        text_escape(out, n, value + 2, strlen(value + 2));
        break;
    }
    if (f) fclose(f);
}

static enum infer_status cpu_open(struct backend **out, const struct backend_config *config) {
    struct cpu *c;
    enum cpu_isa isa;
    *out = NULL;
    TRY(cpu_isa_pick(config->cpu.isa, &isa));
    TRY(mem_new(&c, sizeof *c, "the CPU backend"));
    c->base.type = &backend_cpu;
    c->config = *config;
    c->isa = isa;
    c->k = kernels_of(isa);
    c->n_thread = host_threads_pick(config->cpu.threads);
    c->team = (struct cpu_team){.n = c->n_thread, .room = cpu_room};
    enum infer_status s = take_memory(c);
    if (s == INFER_OK) s = place_threads(c);
    if (s != INFER_OK) {
        cpu_close(&c->base);
        return s;
    }
    processor_name(c->description, sizeof c->description);
#pragma omp parallel num_threads(c->n_thread) /* makes the threads now, not in the first step */
    (void)omp_get_thread_num();
    *out = &c->base;
    return INFER_OK;
}

static enum infer_status cpu_upload(struct backend *b) {
    (void)b; /* the map is read in place, and copied by the steps that read it (cpu_repack.c) */
    return INFER_OK;
}

static enum infer_status cpu_compile(struct backend *b, enum row_class cls) {
    return cpu_compile_list((struct cpu *)b, cls);
}

/* ---- steps ---- */

void cpu_fault(struct cpu_step *s, const struct op *op, enum infer_status status) {
    int none = INFER_OK;
    if (atomic_compare_exchange_strong(&s->fault, &none, (int)status))
        s->where = (struct cpu_fault){op, -1, -1};
}

void cpu_guard(struct cpu_step *s, const struct op *op, int t, const float *x, int n) {
    int none = INFER_OK, i = 0;
    if (s->cpu->k->finite(x, n)) return;
    while (i < n && isfinite(x[i])) i++;
    if (atomic_compare_exchange_strong(&s->fault, &none, INFER_E_NAN))
        s->where = (struct cpu_fault){op, op_row_pos(s->list->list, op, s->s, t), s->guard ? i : -1};
}

bool cpu_in_middle(const struct cpu_step *s, const struct cpu_op *op) {
    return s->goes_on && s->cpu->paused.team && op == &s->list->op[s->first];
}

static bool overdue(const struct cpu_step *s) { return s->due && cpu_now() >= s->due; }

/* A thread that finds none left leaves none to the others, so units are left over only where all threads saw that time is up. */
int cpu_unit_next(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread, int *victim) {
    struct cpu *c = s->cpu;
    const int laid = cpu_in_middle(s, op) ? c->paused.team : n_thread;
    cpu_late();
    if (op->barrier && s->due && atomic_load_explicit(&s->given, memory_order_relaxed) && overdue(s))
        return -1;
    for (; *victim < laid; ++*victim) {
        struct cpu_range *r = &c->range[op->index * c->n_thread + (thread + *victim) % laid];
        int u = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (u >= r->end) continue;
        if (s->due) atomic_store_explicit(&s->given, true, memory_order_relaxed);
        return u;
    }
    return -1;
}

/* This thread's units of every op, and its share of the rotations of this step. */
static void prologue(struct cpu_step *s, int thread, int n_thread) {
    struct cpu *c = s->cpu;
    int a, b;
    for (int i = s->first; i < s->end; i++) {
        const struct cpu_op *o = &s->list->op[i];
        if (cpu_in_middle(s, o)) continue;
        struct cpu_range *r = &c->range[o->index * c->n_thread + thread];
        int units = o->n_unit;
        if (o->fn == cpu_op_attend_decode)
            units = cpu_attend_units(o, s);
        else if (o->fn == cpu_op_experts)
            units = cpu_experts_units(o, s);
        else if (o->fn == cpu_op_index)
            units = cpu_index_units(s);
        else if (o->per_row)
            units *= (s->n_row + o->unit_rows - 1) / o->unit_rows;
        cpu_share(units, thread, n_thread, &a, &b);
        atomic_store_explicit(&r->next, a, memory_order_relaxed);
        r->end = b;
    }
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int i = 0; i < c->n_rope && !s->goes_on; i++) {
        const struct rope *r = c->rope[i];
        for (int t = a; t < b; t++) {
            float *cs = c->cs + ((size_t)i * (size_t)c->cs_rows + (size_t)t) * (size_t)c->cs_width;
            for (int j = 0; j < r->n_rot / 2; j++) {
                double angle = (double)step_axis(s->s, r, t, j) * (double)r->inv_freq[j];
                cs[j] = (float)((double)r->mscale * cos(angle));
                cs[r->n_rot / 2 + j] = (float)((double)r->mscale * sin(angle));
            }
        }
    }
}

/* The NaN guard of every operation: this thread's share of the rows that op wrote. Without it norms and logits alone are looked at, where
 * they are read anyway (cpu_guard): what is not finite reaches a norm before long. */
static void check_finite(const struct cpu_op *o, struct cpu_step *s, int thread, int n_thread) {
    const struct op *op = o->post ? o->post : o->op;
    struct op_use u = op_uses(op);
    int a, b;
    if (!u.n_write) return;
    cpu_barrier(s);
    cpu_share(op_rows_count(s->list->list, op, s->n_row, s->n_out), thread, n_thread, &a, &b);
    for (int k = 0; k < u.n_write; k++)
        for (int t = a; t < b; t++) cpu_guard(s, o->op, t, cpu_row(s, u.write[k], t), u.write[k].width);
}

static const float *read_row(void *s, struct view v, int t) { return cpu_row(s, v, t); }
/* Before an operation whose input nobody writes any more, and that does not write over it. */
static void tap_input(const struct op *op, struct cpu_step *s) {
    tap_op(s->cpu->config.tap, op, op_rows_count(s->list->list, op, s->n_row, s->n_out), read_row, s);
}

static void tell(struct cpu_step *s, const struct op *op, int thread) {
    struct infer_profile *p = s->cpu->config.profile;
    if (p && thread == 0) s->told = profile_op(p, s->list->list, op, s->s, s->told);
}

/* Whether all leave here: at a barrier, behind which everybody knows. */
static bool all_leave(struct cpu_step *s, const struct cpu_op *o, int i, int thread) {
    struct cpu *c = s->cpu;
    if (!o->barrier && !s->guard) return false;
    if (thread == 0) {
        if (atomic_load_explicit(&c->cancel, memory_order_relaxed)) cpu_fault(s, o->op, INFER_E_CANCEL);
        if (atomic_load(&s->fault) != INFER_OK || overdue(s)) atomic_store(&s->stop_at, i);
    }
    cpu_barrier(s);
    return i >= atomic_load(&s->stop_at);
}

/* Thread 0 decides at which op's barrier all leave; the others read it after that barrier, so nobody leaves alone. */
static void walk(struct cpu_step *s, int thread, int n_thread) {
    struct cpu *c = s->cpu;
    bool amx = c->isa == CPU_ISA_AMX && s->list->list->cls == ROW_PROMPT;
    if (amx) cpu_amx_begin();
    prologue(s, thread, n_thread);
    cpu_barrier(s);
    tell(s, NULL, thread);
    const bool parts = profile_tells_threads(c->config.profile);
    for (int i = s->first; i < s->end; i++) {
        const struct cpu_op *o = &s->list->op[i];
        if (c->config.tap && c->config.tap->row) { /* nobody still writes what is read, or already over it */
            cpu_barrier(s);
            if (thread == 0) tap_input(o->op, s);
            cpu_barrier(s);
        }
        cpu_late();
        const int64_t begin = parts ? profile_now() : 0;
        o->fn(o, s, thread, n_thread);
        if (parts)
            profile_thread(c->config.profile, s->list->list, o->op, s->s, thread, begin, profile_now());
        if (amx && o->fn == cpu_op_remote) cpu_amx_begin(); /* another backend of this thread left its own */
        if (s->guard) check_finite(o, s, thread, n_thread);
        if (c->config.tap && c->config.tap->wrote) {
            cpu_barrier(s);
            if (thread == 0)
                tap_wrote(c->config.tap, s->list->list, o->post ? o->post : o->op, s->s, read_row, s);
            cpu_barrier(s);
        }
        const bool leave = all_leave(s, o, i, thread);
        tell(s, o->op, thread);
        if (leave) break;
    }
    if (amx) cpu_amx_end();
}

static void take_part(struct cpu_step *s, int thread, int n_thread) {
    struct topology_set old;
    bool bound = s->cpu->node && bind_thread(s->cpu, thread, &old);
    struct cpu_watch watch = {0};
    atomic_store_explicit(&s->n_team, n_thread, memory_order_relaxed); /* the same from all */
    if (n_thread > 1) watch = cpu_watch_begin();
    walk(s, thread, n_thread);
    if (n_thread > 1) atomic_fetch_add(&s->lost, cpu_watch_end(&watch));
    if (bound) topology_bind(&old, NULL);
}

/* The operations of a step that are between first and end. */
static enum infer_status run_team(struct cpu_step *s) {
    struct cpu *c = s->cpu;
    atomic_init(&s->stop_at, INT32_MAX);
    atomic_init(&s->fault, INFER_OK);
    atomic_init(&s->lost, 0);
    int64_t begin = cpu_now();
    s->told = begin;
#pragma omp parallel num_threads(c->team.n)
    take_part(s, omp_get_thread_num(), omp_get_num_threads());
    int64_t end = cpu_now();
    tell(s, NULL, 0);
    cpu_team_next(&c->team, c->n_thread, end, end - begin, atomic_load(&s->lost));
    enum infer_status st = (enum infer_status)atomic_load(&s->fault);
    if (st == INFER_E_CANCEL) atomic_store(&c->cancel, 0);
    if (st != INFER_OK && c->config.comm) c->config.comm->type->abort(c->config.comm);
    return st;
}

/* Where a step that has left goes on, into c->paused; false: it is over. */
static bool pauses(struct cpu_step *s) {
    struct cpu *c = s->cpu;
    const int at = atomic_load(&s->stop_at);
    if (atomic_load(&s->fault) != INFER_OK || at >= s->end) return false;
    const struct cpu_op *o = &s->list->op[at];
    const int team = cpu_in_middle(s, o) ? c->paused.team : atomic_load(&s->n_team);
    bool left = false;
    for (int i = 0; i < team; i++) {
        const struct cpu_range *r = &c->range[o->index * c->n_thread + i];
        left |= atomic_load(&r->next) < r->end;
    }
    left = left && atomic_load(&s->given); /* there are operations that need not look at their units */
    c->paused.at = left ? at : at + 1;
    c->paused.team = left ? team : 0;
    return c->paused.at < s->end;
}

/* The same step once more, each operation looked at, for the name of the one that wrote the first such value; keys and values are put
 * again as they were. Of several ranks the others are gone by now. */
static void find_fault(struct cpu_step *s) {
    const struct cpu_fault first = s->where;
    s->guard = true;
    s->due = 0;
    if (s->cpu->config.comm || run_team(s) != INFER_E_NAN) s->where = first;
}

/* Of a step, until it is over or due. */
static bool run_until(struct cpu *c, enum row_class cls, const struct step *step, int64_t due, bool begins) {
    struct cpu_result *r = &c->ring[c->head % CPU_RING];
    struct step named = *step;
    struct cpu_step s = {.cpu = c,
                         .list = &c->list[cls],
                         .s = &named,
                         .result = r,
                         .first = begins ? 0 : c->paused.at,
                         .end = c->list[cls].n_op,
                         .goes_on = !begins,
                         .guard = c->config.nan_guard,
                         .due = due,
                         .n_row = step->n_row,
                         .n_out = step->n_out};
    r->n_logits = 0;
    r->has_top = false;
    r->status = last_tokens_resolve(&c->last, &named);
    if (r->status == INFER_OK) { /* else wait says it */
        r->status = run_team(&s);
        if (r->status == INFER_E_NAN && begins && !s.guard) find_fault(&s);
        r->fault = s.where;
        if (due && pauses(&s)) return false;
        c->n_decode += cls == ROW_DECODE;
    }
    c->head++;
    return true;
}

static enum infer_status cpu_run(struct backend *b, enum row_class cls, const struct step *step) {
    run_until((struct cpu *)b, cls, step, 0, true);
    return INFER_OK;
}

static enum infer_status cpu_run_some(struct backend *b, enum row_class cls, const struct step *step,
                                      double seconds, bool *done) {
    struct cpu *c = (struct cpu *)b;
    const bool whole = c->config.tap || c->config.nan_guard; /* which look at what an operation has written */
    *done = run_until(c, cls, step, whole ? 0 : cpu_now() + (int64_t)(1e9 * seconds), *done);
    return INFER_OK;
}

static enum infer_status failed(enum infer_status st, const struct cpu_fault *f) {
    const struct op *op = f->op;
    if (st == INFER_E_CANCEL) return err_set(st, "cancelled");
    if (st == INFER_E_DEVICE) return err_set(st, "%s of layer %d: another rank is gone", op->name, op->layer);
    return op_not_finite(op, f->pos, f->element);
}

static enum infer_status cpu_wait(struct backend *b, struct step_result *out) {
    struct cpu *c = (struct cpu *)b;
    const struct cpu_result *r = &c->ring[c->tail++ % CPU_RING];
    *out = (struct step_result){r->token, r->n_logits ? r->logits : NULL, r->has_top ? r->top : NULL};
    if (r->status == INFER_OK) return INFER_OK;
    if (r->status == INFER_E_INPUT) return last_tokens_missing();
    return failed(r->status, &r->fault);
}

/* Rows of the caller into a view, or out of it. */
static void move_rows(struct cpu_step *s, struct view v, const float *from, float *to) {
    size_t n = (size_t)v.width;
    for (int t = 0; t < s->n_row; t++)
        memcpy(to ? to + (size_t)t * n : cpu_row(s, v, t), to ? cpu_row(s, v, t) : from + (size_t)t * n,
               n * sizeof(float));
}

/* The copies of decode weights are made over four steps, of which the first layer of a list begins one. */
static enum infer_status cpu_run_layer(struct backend *b, enum row_class cls, int layer, int n_row,
                                       const float *x, const float *choice, float *out) {
    struct cpu *c = (struct cpu *)b;
    const struct cpu_list *l = &c->list[cls];
    struct step rows = {.n_row = n_row};
    struct cpu_step s = {.cpu = c, .list = l, .s = &rows, .n_row = n_row, .guard = c->config.nan_guard};
    while (l->op[s.first].op->layer != layer) s.first++;
    for (s.end = s.first; s.end < l->n_op && l->op[s.end].op->layer == layer;) s.end++;
    c->n_decode += cls == ROW_DECODE && !s.first;
    move_rows(&s, l->op[s.first].op->experts.x, x, NULL);
    move_rows(&s, l->op[s.first].op->experts.choice, choice, NULL);
    enum infer_status st = run_team(&s);
    if (st != INFER_OK) return failed(st, &s.where);
    move_rows(&s, (struct view){REMOTE_OUT, 0, l->list->buf[REMOTE_OUT].width}, NULL, out);
    return INFER_OK;
}

/* ---- reading, and pages ---- */

static enum infer_status cpu_read(struct backend *b, enum row_class cls, struct view v, int n_row,
                                  float *out) {
    struct cpu *c = (struct cpu *)b;
    const struct buf *buf = &c->config.list[cls]->buf[v.buf];
    for (int t = 0; t < n_row; t++)
        memcpy(out + (size_t)t * (size_t)v.width,
               (const float *)(const void *)(c->activations + buf->offset + (size_t)t * buf->row_bytes) +
                   v.col,
               (size_t)v.width * sizeof(float));
    return INFER_OK;
}

static enum infer_status cpu_kv_read(struct backend *b, int store, int page, float *k, float *v) {
    struct cpu *c = (struct cpu *)b;
    const struct kv_store *s = &c->config.store[store];
    const uint8_t *kp = c->k_pool[store] + (size_t)page * c->page_stride[s->group];
    const uint8_t *vp = c->v_pool[store] + (size_t)page * c->page_stride[s->group];
    for (size_t i = 0; i < (size_t)(s->n_kv_head * kv_page_rows(s)); i++) {
        float *key = k + i * (size_t)s->head_dim_k, *value = v + i * (size_t)kv_v_dim(s);
        c->k->kv_load(s->k_type, key, kp + i * kv_k_bytes(s), s->head_dim_k);
        c->k->kv_load(s->v_type, value, vp + i * kv_v_bytes(s), kv_v_dim(s));
        if (kv_turned(s->k_type)) c->k->kv_turn(key, s->head_dim_k, kv_turn_of(s, false), 1);
        if (kv_turned(s->v_type) && !s->v_in_k) c->k->kv_turn(value, kv_v_dim(s), kv_turn_of(s, true), 1);
    }
    return INFER_OK;
}

static enum infer_status cpu_kv_write(struct backend *b, int store, int page, const float *k,
                                      const float *v) {
    struct cpu *c = (struct cpu *)b;
    const struct kv_store *s = &c->config.store[store];
    uint8_t *kp = c->k_pool[store] + (size_t)page * c->page_stride[s->group];
    uint8_t *vp = c->v_pool[store] + (size_t)page * c->page_stride[s->group];
    for (size_t i = 0; i < (size_t)(s->n_kv_head * kv_page_rows(s)); i++) {
        c->k->kv_store(s->k_type, kp + i * kv_k_bytes(s), k + i * (size_t)s->head_dim_k, s->head_dim_k,
                       kv_turn_of(s, false));
        c->k->kv_store(s->v_type, vp + i * kv_v_bytes(s), v + i * (size_t)kv_v_dim(s), kv_v_dim(s),
                       kv_turn_of(s, true));
    }
    return INFER_OK;
}

static enum infer_status cpu_kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    struct cpu *c = (struct cpu *)b;
    const struct kv_store *s = &c->config.store[store];
    size_t kb = page_bytes(&c->config, store, false), at = (size_t)page * c->page_stride[s->group];
    size_t vb = page_bytes(&c->config, store, true);
    uint8_t *k = c->k_pool[store] + at, *v = c->v_pool[store] + at, *other = bytes;
    memcpy(write ? k : other, write ? other : k, kb);
    memcpy(write ? v : other + kb, write ? other + kb : v, vb);
    return INFER_OK;
}

static enum infer_status cpu_kv_copy(struct backend *b, int group, int from, int to) {
    struct cpu *c = (struct cpu *)b;
    for (int i = 0; i < c->config.n_store; i++) {
        if (c->config.store[i].group != group || !config_uses_store(&c->config, i)) continue;
        size_t from_at = (size_t)from * c->page_stride[group], to_at = (size_t)to * c->page_stride[group];
        memcpy(c->k_pool[i] + to_at, c->k_pool[i] + from_at, page_bytes(&c->config, i, false));
        memcpy(c->v_pool[i] + to_at, c->v_pool[i] + from_at, page_bytes(&c->config, i, true));
    }
    return INFER_OK;
}

static float *state_of(const struct cpu *c, int store, int slot) {
    return c->state[store] + (size_t)slot * (size_t)c->config.state[store].n_elem;
}
static enum infer_status cpu_state_read(struct backend *b, int store, int slot, float *out) {
    struct cpu *c = (struct cpu *)b;
    memcpy(out, state_of(c, store, slot), (size_t)c->config.state[store].n_elem * sizeof *out);
    return INFER_OK;
}
static enum infer_status cpu_state_write(struct backend *b, int store, int slot, const float *x) {
    struct cpu *c = (struct cpu *)b;
    memcpy(state_of(c, store, slot), x, (size_t)c->config.state[store].n_elem * sizeof *x);
    return INFER_OK;
}
static enum infer_status cpu_state_copy(struct backend *b, int from, int to) {
    struct cpu *c = (struct cpu *)b;
    for (int i = 0; i < c->config.n_state; i++)
        if (config_uses_state(&c->config, i)) TRY(cpu_state_read(b, i, from, state_of(c, i, to)));
    return INFER_OK;
}

static void cpu_cancel(struct backend *b) { atomic_store(&((struct cpu *)b)->cancel, 1); }

static void cpu_info(const struct backend *b, struct backend_info *out) {
    const struct cpu *c = (const struct cpu *)b;
    static const char *const name[] = {"none", "avx2", "avx2, avx-vnni", "avx512-vnni",
                                       "avx512-vnni, amx-bf16"};
    *out = (struct backend_info){.device_name = c->description, .isa = name[c->isa], .n_thread = c->n_thread};
    if (c->copies)
        out->repack_from = c->config.cpu.repack_after, out->repack_to = out->repack_from + CPU_REPACK_STEPS;
}

const struct backend_type backend_cpu = {
    .name = "cpu",
    .probe = cpu_probe,
    .sizes = cpu_sizes,
    .open = cpu_open,
    .upload = cpu_upload,
    .compile = cpu_compile,
    .run = cpu_run,
    .run_some = cpu_run_some,
    .wait = cpu_wait,
    .run_layer = cpu_run_layer,
    .read = cpu_read,
    .kv_read = cpu_kv_read,
    .kv_write = cpu_kv_write,
    .kv_page = cpu_kv_page,
    .kv_copy = cpu_kv_copy,
    .state_read = cpu_state_read,
    .state_write = cpu_state_write,
    .state_copy = cpu_state_copy,
    .cancel = cpu_cancel,
    .info = cpu_info,
    .close = cpu_close,
};

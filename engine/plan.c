#include "plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum {
    DEFAULT_CTX = 8192,
    DEFAULT_BATCH = 512,
    DEFAULT_BATCH_CUDA = 2048,
    MAX_SLOTS = 1024,
    MAX_BATCH = 16384,
    MAX_PLAN_CTX = 1 << 26
};

/* ---- options ------------------------------------------------------------------------------------------------- */

static enum infer_status in_range(const char *what, int v, int min, int max) {
    if (v < min || v > max) return err_set(INFER_E_INPUT, "%s is %d, must be %d to %d", what, v, min, max);
    return INFER_OK;
}

static enum infer_status kv_type_of(const char *name, enum kv_type fallback, enum kv_type *out) {
    *out = fallback;
    if (!name) return INFER_OK;
    if (!strcmp(name, "f32"))
        *out = KV_F32;
    else if (!strcmp(name, "f16"))
        *out = KV_F16;
    else if (!strcmp(name, "q8_0"))
        *out = KV_Q8_0;
    else
        return err_set(INFER_E_INPUT, "--kv-type is '%s', must be f32, f16 or q8_0", name);
    return INFER_OK;
}

static enum infer_status read_options(struct plan *p, const struct model *m,
                                      const struct infer_engine_options *o) {
    struct backend_config *c = &p->config;
    c->n_slot = o->slots ? o->slots : 1;
    c->n_ctx = o->ctx > 0                     ? o->ctx
               : o->ctx < 0                   ? m->n_ctx_train
               : m->n_ctx_train < DEFAULT_CTX ? m->n_ctx_train
                                              : DEFAULT_CTX;
    p->n_batch = o->batch ? o->batch : !strcmp(p->backend->name, "cuda") ? DEFAULT_BATCH_CUDA : DEFAULT_BATCH;
    p->n_decode_rows = o->decode_rows ? o->decode_rows : c->n_slot;
    TRY(in_range("--slots", c->n_slot, 1, MAX_SLOTS));
    TRY(in_range("--ctx", c->n_ctx, 1, MAX_PLAN_CTX));
    TRY(in_range("--batch", p->n_batch, 1, MAX_BATCH));
    TRY(in_range("decode rows", p->n_decode_rows, 1, MAX_BATCH));
    TRY(in_range("--threads", o->threads, 0, 4096));
    if (p->n_batch > c->n_ctx * c->n_slot) p->n_batch = c->n_ctx * c->n_slot;
    p->n_prompt_out = o->all_logits || p->n_batch < c->n_slot ? p->n_batch : c->n_slot;
    TRY(kv_type_of(o->kv_type, p->backend == &backend_ref ? KV_F32 : KV_F16, &c->kv_type));
    c->n_thread = o->threads;
    c->isa = o->isa;
    c->kernels = o->kernels;
    c->sm_emulate = o->sm_emulate;
    c->no_fuse = o->no_fuse;
    c->no_graphs = o->no_graphs;
    c->blas = o->blas;
    c->strict_fp32 = o->strict_fp32;
    c->nan_guard = o->nan_guard;
    c->want_logits = true;
    c->progress = o->progress;
    c->user = o->user;
    return INFER_OK;
}

/* ---- activations --------------------------------------------------------------------------------------------- */

static enum infer_status buf_bytes(const struct op_list *l, const struct buf *b, size_t *out) {
    size_t rows = (size_t)(b->rows == BUF_ROWS_OUT ? l->max_out : l->max_rows);
    if (!size_mul(b->row_bytes, rows, out) || !size_align(*out, 256, out))
        return err_set(INFER_E_MEMORY, "buffer %s: %zu rows of %zu bytes", b->name, rows, b->row_bytes);
    return INFER_OK;
}

static bool lives_meet(const struct buf *a, const struct buf *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Gives every buffer the lowest place that no buffer alive at the same time holds. Buffers come in the order of their
 * first use; those placed before are walked for the end of whatever blocks a candidate until nothing does. */
static enum infer_status place_buffers(struct op_list *l, bool keep_all, size_t *arena_bytes) {
    for (int i = 0; i < l->n_buf; i++) {
        struct buf *b = &l->buf[i];
        size_t need = 0, end;
        TRY(buf_bytes(l, b, &need));
        b->offset = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int j = 0; j < i; j++) {
                const struct buf *o = &l->buf[j];
                size_t size = 0;
                if (!keep_all && !lives_meet(o, b)) continue;
                TRY(buf_bytes(l, o, &size));
                if (b->offset < o->offset + size && o->offset < b->offset + need) {
                    b->offset = o->offset + size;
                    moved = true;
                }
            }
        }
        if (!size_add(b->offset, need, &end))
            return err_set(INFER_E_MEMORY, "activations do not fit an address");
        if (end > *arena_bytes) *arena_bytes = end;
    }
    return INFER_OK;
}

/* ---- the limit ----------------------------------------------------------------------------------------------- */

/* The first number in a file, times unit; SIZE_MAX when there is none. */
static size_t read_number(const char *path, const char *key, size_t unit) {
    char line[256];
    size_t v = SIZE_MAX;
    unsigned long long n;
    FILE *f = fopen(path, "r");
    if (!f) return v;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%llu", &n) == 1) {
            v = (size_t)n * unit;
            break;
        }
    fclose(f);
    return v;
}

/* Host memory that can be taken: what the kernel calls available, and what the control group leaves. */
static size_t host_available(void) {
    size_t n = read_number("/proc/meminfo", "MemAvailable:", 1024);
    size_t max = read_number("/sys/fs/cgroup/memory.max", "", 1);
    size_t used = read_number("/sys/fs/cgroup/memory.current", "", 1);
    size_t cache = read_number("/sys/fs/cgroup/memory.stat", "inactive_file ", 1);
    if (max != SIZE_MAX && used != SIZE_MAX) {
        size_t busy = cache != SIZE_MAX && cache < used ? used - cache : used;
        size_t left = max > busy ? max - busy : 0;
        if (left < n) n = left;
    }
    return n;
}

/* ---- the report ---------------------------------------------------------------------------------------------- */

struct text {
    char *data;
    size_t n, cap;
};

static void print(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(struct text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->data + t->n, t->cap - t->n, format, ap);
    va_end(ap);
    if (n > 0) t->n = t->n + (size_t)n < t->cap ? t->n + (size_t)n : t->cap - 1;
}

static void print_bytes(struct text *t, const char *what, size_t bytes, const char *note) {
    print(t, "  %-22s %12.1f MiB  %s\n", what, (double)bytes / (1 << 20), note);
}

static const char *kv_name(enum kv_type t) { return t == KV_F32 ? "f32" : t == KV_F16 ? "f16" : "q8_0"; }

/* The largest context that would fit if only it changed; 0 when none does. KV grows in step with the context, the
 * rest hardly does. */
static int nearest_ctx(const struct plan *p) {
    size_t rest = p->total_bytes - p->size.kv_bytes;
    if (p->limit_bytes <= rest || p->config.n_ctx < 1) return 0;
    double per_position = (double)p->size.kv_bytes / p->config.n_ctx;
    int ctx = (int)((double)(p->limit_bytes - rest) / per_position) / 256 * 256;
    return ctx < p->config.n_ctx ? ctx : 0;
}

static enum infer_status write_report(struct plan *p, struct arena *arena, const struct model *m) {
    struct text t = {arena_alloc(arena, 4096), 0, 4096};
    if (!t.data) return err_set(INFER_E_MEMORY, "out of memory for the memory report");
    char note[160];
    print(&t, "%s on %s: %d positions, %d slot%s, %d prompt rows, %d decode rows a step\n", m->arch->name,
          p->backend->name, p->config.n_ctx, p->config.n_slot, p->config.n_slot == 1 ? "" : "s", p->n_batch,
          p->n_decode_rows);
    print_bytes(&t, "weights, mapped", p->map_bytes, "the file itself, shared with other processes");
    if (p->size.weight_bytes)
        print_bytes(&t, "weights, copied", p->size.weight_bytes, "re-tiled for the device");
    snprintf(note, sizeof note, "%s, %d pages of %d tokens in %d layers", kv_name(p->config.kv_type),
             p->kv_group[0].n_page, KV_PAGE, m->n_layer);
    print_bytes(&t, "key/value cache", p->size.kv_bytes, note);
    print_bytes(&t, "activations", p->config.activation_bytes, "");
    print_bytes(&t, "workspace", p->size.workspace_bytes, "");
    print_bytes(&t, "outputs", p->size.output_bytes, "tokens and logits");
    if (p->size.driver_bytes) print_bytes(&t, "driver", p->size.driver_bytes, "assumed until it is measured");
    print_bytes(&t, "taken", p->total_bytes, "");
    if (p->limit_bytes != SIZE_MAX)
        print_bytes(&t, "available", p->limit_bytes, p->fits ? "fits" : "DOES NOT FIT");
    if (!p->fits) {
        int ctx = nearest_ctx(p);
        if (ctx) print(&t, "  would fit: --ctx %d\n", ctx);
        if (p->config.n_slot > 1) print(&t, "  smaller: --slots %d\n", p->config.n_slot / 2);
        if (p->config.kv_type != KV_Q8_0)
            print(&t, "  smaller: --kv-type q8_0 (%.1f MiB of cache)\n",
                  (double)p->size.kv_bytes / (1 << 20) * 34 / (p->config.kv_type == KV_F16 ? 64 : 128));
        print(&t, "  smaller: --batch %d\n", p->n_batch > 64 ? 64 : p->n_batch);
    }
    p->text = t.data;
    return INFER_OK;
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

static enum infer_status plan_kv(struct plan *p, struct arena *arena, const struct model *m) {
    struct backend_config *c = &p->config;
    p->kv_group = arena_alloc(arena, (size_t)m->n_kv_group * sizeof *p->kv_group);
    if (!p->kv_group) return err_set(INFER_E_MEMORY, "out of memory for the plan");
    /* one spare position a sequence: the end of a sequence is seen one step late */
    size_t pages = ((size_t)c->n_ctx + 1 + KV_PAGE - 1) / KV_PAGE;
    if (pages * (size_t)c->n_slot > INT32_MAX)
        return err_set(INFER_E_INPUT, "%d slots of %d positions: too many pages", c->n_slot, c->n_ctx);
    for (int i = 0; i < m->n_kv_group; i++)
        p->kv_group[i] = (struct kv_group){m->window[i], (int)pages * c->n_slot, (int)pages};
    c->store = m->store;
    c->n_store = m->n_store;
    c->kv_group = p->kv_group;
    c->n_kv_group = m->n_kv_group;
    return INFER_OK;
}

static enum infer_status plan_once(struct plan *out, struct arena *arena, const struct model *m,
                                   const struct plan_options *options) {
    struct backend_config *c = &out->config;
    c->group = m->group;
    c->n_group = m->n_group;
    c->embedding = &m->embd;
    c->n_vocab = m->n_vocab;
    c->n_embd = m->n_embd;
    TRY(plan_kv(out, arena, m));
    TRY(forward_emit(&out->list[ROW_PROMPT], arena, m, ROW_PROMPT, out->n_batch, out->n_prompt_out));
    TRY(forward_emit(&out->list[ROW_DECODE], arena, m, ROW_DECODE, out->n_decode_rows, out->n_decode_rows));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) c->list[i] = &out->list[i];
    TRY(out->backend->sizes(c, &out->size));
    c->activation_bytes = 0;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(place_buffers(c->list[i], options->keep_all, &c->activation_bytes));

    size_t parts[] = {out->size.weight_bytes,    out->size.kv_bytes,     c->activation_bytes,
                      out->size.workspace_bytes, out->size.output_bytes, out->size.driver_bytes};
    out->total_bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!size_add(out->total_bytes, parts[i], &out->total_bytes)) out->total_bytes = SIZE_MAX;
    return INFER_OK;
}

enum infer_status plan_make(struct plan *out, struct arena *arena, const struct model *m,
                            const struct backend_type *backend, const struct plan_options *options) {
    *out = (struct plan){.backend = backend};
    TRY(read_options(out, m, options->engine));
    out->map_bytes = m->file->file_bytes;
    out->limit_bytes = host_available();
    TRY(plan_once(out, arena, m, options));
    out->fits = out->total_bytes <= out->limit_bytes;
    if (!out->fits && options->engine->ctx < 0) { /* --ctx max: the most that fits */
        int ctx = nearest_ctx(out);
        if (ctx > 0) {
            out->config.n_ctx = ctx;
            TRY(plan_once(out, arena, m, options));
            out->fits = out->total_bytes <= out->limit_bytes;
        }
    }
    return write_report(out, arena, m);
}

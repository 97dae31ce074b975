/* The engine behind infer.h: a model placed on a device with a plan. The arithmetic is in the backends, the order of operations in
 * forward.c. */
#include "engine_impl.h"
#include "engine_options.h"
#include "join/join.h"
#include "plan/several.h"
#include "plan/device.h"

#include <stdio.h>

/* ---- model --------------------------------------------------------------------------------------------------- */

const char *infer_error(void) { return err_message(); }

static enum infer_status open_model(struct infer_model **out, const char *path,
                                    const struct infer_model_options *options, const struct model *beside) {
    struct tensorfile_options o = {0};
    struct infer_model *im;
    *out = NULL;
    if (options)
        o = (struct tensorfile_options){.no_mmap = options->no_mmap,
                                        .vocab_only = options->vocab_only,
                                        .sparse_ok = options->sparse_ok,
                                        .task = options->task,
                                        .ignore = {options->ignore_keys, options->n_ignore_key},
                                        .rope = {options->rope_scaling, options->rope_scale,
                                                 options->rope_freq_base, options->yarn_beta_fast,
                                                 options->yarn_beta_slow, options->yarn_attn_factor,
                                                 options->yarn_orig_ctx}};
    TRY(mem_new(&im, sizeof *im, "a model"));
    enum infer_status s = model_open_beside(&im->m, path, &o, beside);
    for (int i = 0; s == INFER_OK && options && options->mlock && i < im->m->file->n_part; i++)
        s = mapfile_lock(&im->m->file->part[i]);
    if (s != INFER_OK) {
        infer_model_close(im);
        return s;
    }
    *out = im;
    return INFER_OK;
}

enum infer_status infer_model_open(struct infer_model **out, const char *path,
                                   const struct infer_model_options *options) {
    return open_model(out, path, options, NULL);
}

enum infer_status infer_model_open_drafter(struct infer_model **out, const char *path,
                                           const struct infer_model_options *options,
                                           const struct infer_model *of) {
    TRY(open_model(out, path, options, of->m));
    const bool head = (*out)->m->target != NULL;
    enum infer_status s = head && !(*out)->m->tok ? INFER_OK : infer_vocab_same(of, *out);
    if (!s) return INFER_OK;
    infer_model_close(*out);
    *out = NULL;
    return s;
}

void infer_model_close(struct infer_model *im) {
    if (!im) return;
    model_close(im->m);
    mem_free(im);
}

enum infer_status infer_model_draft(struct infer_model **out, const struct infer_model *of) {
    struct infer_model *im;
    *out = NULL;
    TRY(mem_new(&im, sizeof *im, "a model"));
    enum infer_status s = model_open_draft(&im->m, of->m);
    if (s)
        infer_model_close(im);
    else
        *out = im;
    return s;
}

/* The type that most of the file's bytes have. */
static const char *main_type(const struct tensorfile *f) {
    size_t bytes[QUANT_COUNT] = {0}, best = 0;
    for (size_t i = 0; i < f->n_tensor; i++) bytes[f->tensor[i].type] += f->tensor[i].bytes;
    for (size_t i = 1; i < QUANT_COUNT; i++)
        if (bytes[i] > bytes[best]) best = i;
    return quant_info((enum quant_type)best)->name;
}

void infer_model_info(const struct infer_model *im, struct infer_model_info *out) {
    const struct model *m = im->m;
    struct str s = {"", 0};
    bool present;
    *out = (struct infer_model_info){
        .arch = m->arch ? m->arch->name : "", .name = "", .format = m->file->format};
    if (meta_str(m->file, "general.name", &s, &present) == INFER_OK && present) {
        out->name = s.data;
        out->name_len = s.len;
    }
    if (meta_str(m->file, "tokenizer.chat_template", &s, &present) == INFER_OK && present) {
        out->chat_template = s.data;
        out->chat_template_len = s.len;
    }
    out->type_name = main_type(m->file);
    out->file_bytes = m->file->file_bytes;
    out->has_tokenizer = m->tok != NULL;
    out->n_vocab = m->tok ? tok_size(m->tok) : 0;
    if (!m->layer) return;
    out->n_layer = m->n_layer;
    out->n_draft = m->n_draft;
    out->n_deepstack = m->n_deepstack;
    out->both_ways = m->both != BOTH_NOWHERE;
    out->wants_hidden = model_drafts(m);
    out->n_given = model_drafts(m) ? model_given(m) : 0;
    out->n_tapped = m->taps.n * m->taps.n_embd;
    out->own_ids = m->target_id != NULL;
    out->encoder = m->encoder;
    out->no_head = m->no_head;
    out->n_text = m->n_text ? m->n_text : m->n_ctx_train;
    out->n_type = m->n_type;
    out->pooling = (int)m->pooling;
    out->n_vector = model_vector_width(m);
    out->n_label = m->n_label;
    out->n_embd = m->n_embd;
    out->n_head = m->layer[0].attn.n_head;
    out->n_kv_head = m->layer[0].attn.n_kv_head;
    out->head_dim = m->layer[0].attn.head_dim_k;
    out->n_ff = m->layer[0].dense.n_ff;
    out->n_vocab = m->n_vocab;
    out->n_ctx_train = m->n_ctx_train;
    out->n_param = m->n_param;
    out->n_param_token = m->n_param_token;
    out->token_bytes = m->token_bytes;
    out->prompt_bytes = m->prompt_bytes;
    out->token_flops = m->token_flops;
}

bool infer_model_number(const struct infer_model *im, const char *key, double *out) {
    const struct meta *m = tensorfile_meta(im->m->file, key);
    if (!m || m->type == META_STRING || m->type == META_ARRAY || m->type == META_BOOL) return false;
    *out = meta_elem_f64(m, 0);
    return true;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

enum infer_status infer_tokenize(const struct infer_model *im, const char *text, const uint8_t *marks,
                                 size_t n, unsigned flags, int32_t *ids, size_t cap, size_t *n_out) {
    *n_out = 0;
    if (!im->m->tok) return err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", im->m->file->path);
    return tok_encode(im->m->tok, text, marks, n, flags, ids, cap, n_out);
}

const char *infer_piece(const struct infer_model *im, int32_t id, bool special, bool first, size_t *n_out) {
    struct str s = {"", 0};
    if (im->m->tok) s = tok_piece(im->m->tok, id, special, first);
    *n_out = s.len;
    return s.data;
}

bool infer_is_stop(const struct infer_model *im, int32_t id) {
    return im->m->tok && tok_is_stop(im->m->tok, id);
}
/* Up to the last token that is not there to fill a table. */
static int32_t used_tokens(const struct tok *t) {
    int32_t n = tok_size(t);
    while (n && tok_attr(t, n - 1) == TOK_ATTR_UNUSED) n--;
    return n;
}

enum infer_status infer_vocab_same(const struct infer_model *a, const struct infer_model *b) {
    const struct tok *s = a->m->tok, *t = b->m->tok;
    const char *of = a->m->file->path, *and = b->m->file->path;
    if (!s || !t) return err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", s ? and : of);
    int32_t n = used_tokens(s), m = used_tokens(t);
    for (int32_t i = 0; i < n && i < m; i++) {
        struct str x = tok_piece(s, i, true, false), y = tok_piece(t, i, true, false);
        if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
            return err_set(
                INFER_E_INPUT, "the vocabularies differ: token %d is '%.*s' in %s and '%.*s' in %s", (int)i,
                (int)(x.len < 64 ? x.len : 64), x.data, of, (int)(y.len < 64 ? y.len : 64), y.data, and);
    }
    return n == m ? INFER_OK
                  : err_set(INFER_E_INPUT, "the vocabularies differ: %d tokens in %s and %d in %s", (int)n,
                            of, (int)m, and);
}

int32_t infer_bos(const struct infer_model *im) { return im->m->tok ? tok_bos(im->m->tok) : -1; }
int32_t infer_eos(const struct infer_model *im) { return im->m->tok ? tok_eos(im->m->tok) : -1; }

/* ---- create -------------------------------------------------------------------------------------------------- */

/* What a head reads of this model, whose rows are as it was told when it was opened. */
static enum infer_status taps_of(struct plan_options *po, const struct model *m,
                                 const struct infer_engine_options *options) {
    const struct infer_model *head = options ? options->hidden_for : NULL;
    if (!head) return INFER_OK;
    if (head->m->target != m)
        return err_set(INFER_E_INPUT, ".hidden_for is %s, which is no head for %s", head->m->file->path,
                       m->file->path);
    po->taps = &head->m->taps;
    return INFER_OK;
}

static void *take(struct infer_engine *e, size_t n, size_t size) {
    return arena_alloc(&e->arena, (n ? n : 1) * size);
}

static enum infer_status make_flight(struct infer_engine *e, struct flight *f) {
    size_t n_out = 0, n_slot = (size_t)e->plan.set.n_slot;
    const struct op_list *list = last_part(e)->list;
    bool ok = true;
    for (int c = 0; c < ROW_CLASS_COUNT; c++) {
        size_t rows = (size_t)list[c].max_rows, outs = (size_t)list[c].max_out;
        ok &= (f->id[c] = take(e, rows, 4)) && (f->pos[c] = take(e, rows, 4)) &&
              (f->slot[c] = take(e, rows, 4)) && (f->input[c] = take(e, rows, sizeof *f->input[c])) &&
              (f->axis[c][0] = take(e, rows, 4)) && (f->axis[c][1] = take(e, rows, 4)) &&
              (f->axis[c][2] = take(e, rows, 4)) && (f->until[c] = take(e, rows, 4)) &&
              (f->place[c] = take(e, rows, 4));
        ok &= (f->out_row[c] = take(e, outs, 4)) && (f->want[c] = take(e, outs, 1)) &&
              (f->draw[c] = take(e, outs, sizeof *f->draw[c]));
        n_out += outs;
    }
    ok &= (f->out_cls = take(e, n_out, 1)) && (f->out_index = take(e, n_out, 4)) &&
          (f->out_slot = take(e, n_out, 4));
    ok &= (f->token = take(e, n_out, 4)) && (f->logits = take(e, n_out, sizeof *f->logits)) &&
          (f->top = take(e, n_out, sizeof *f->top));
    ok &= !e->model->m->target_id || (f->top_ids = take(e, n_out, sizeof *f->top_ids));
    ok &= (f->length_before = take(e, n_slot, 4)) != NULL;
    return ok ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for the step's rows");
}

static void say_length(const struct plan *p, const struct model *m) {
    if (!m->first && !m->target && p->set.n_ctx > m->n_ctx_train)
        log_line(LOG_WARN,
                 "the context of %d positions is beyond the %d that the model was trained for: what it says "
                 "there is not reliable",
                 p->set.n_ctx, m->n_ctx_train);
}

/* One line before the first token when a card does not hold all layers. */
static void say_split(const struct plan *p, const struct model *m) {
    const struct backend_memory *card = &p->place.memory;
    int n = p->set.n_device_layer;
    char other[80] = "";
    if (p->part[0].experts && p->layers.there)
        snprintf(other, sizeof other, ", %.0f with %d whole layers there", p->layers.tok_s, p->layers.n);
    if (!p->part[0].experts && p->layers.there)
        snprintf(other, sizeof other, ", %.0f tok/s at most as predicted", p->layers.tok_s);
    if (!card->total_bytes || (n == m->n_layer && !p->part[0].experts)) return;
    if (p->part[0].experts)
        log_line(LOG_WARN,
                 "the experts of the first %d of %d layers stay in host memory and run on the CPU (%.1f GiB; "
                 "the card, %s, "
                 "has the rest): %.0f tok/s at most as predicted%s",
                 p->experts.n, m->n_layer, (double)p->experts.host_weights / (1 << 30), card->name,
                 p->experts.tok_s, other);
    else if (n)
        log_line(LOG_WARN,
                 "the card (%s, %.1f GiB free) holds the last %d of %d layers; the other %d run on the CPU, "
                 "which is much slower%s",
                 card->name, (double)card->free_bytes / (1 << 30), n, m->n_layer, m->n_layer - n, other);
    else
        log_line(LOG_WARN,
                 "the card (%s, %.1f GiB free) is NOT used: not one layer fits; running on the CPU, which is "
                 "much slower",
                 card->name, (double)card->free_bytes / (1 << 30));
}

/* A map of which the memory holds only a part works, at the speed of the disk. */
static void say_paging(const struct plan *p, const struct plan_part *part, const struct model *m) {
    size_t left = part->limit_bytes - part->total_bytes;
    if (p->place.memory.total_bytes || !m->file->n_part || !m->file->part[0].mapped || p->map_bytes <= left)
        return;
    log_line(
        LOG_WARN,
        "the file has %.1f GiB and %.1f GiB of memory are left for it: every token reads the rest from the "
        "disk again, which is slow; a smaller element type or .ctx leaves more",
        (double)p->map_bytes / (1 << 30), (double)left / (1 << 30));
}

static enum infer_status open_backend(struct infer_engine *e) {
    const struct plan *p = &e->plan;
    TRY(e->n_rank ? join_ranks(&e->backend, e->ranks, e->n_rank, e->model->m, e->order)
                  : join_open(&e->backend, p));
    const struct backend_type *type = e->backend->type;
    TRY(type->upload(e->backend));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) TRY(type->compile(e->backend, (enum row_class)i));
    struct backend_info info;
    type->info(e->backend, &info);
    e->grid = e->kv.grid = e->model->m->n_state ? info.grid : 0;
    e->queues = info.async;
    return INFER_OK;
}

/* Puts the driver's share as it is now into the report. */
static enum infer_status measure(struct infer_engine *e) {
    struct plan_part *part = &e->plan.part[e->plan.n_part - 1];
    struct backend_info info;
    e->backend->type->info(e->backend, &info);
    if (!info.driver_bytes) return INFER_OK;
    part->total_bytes += info.driver_bytes - part->size.driver_bytes;
    part->size.driver_bytes = info.driver_bytes;
    part->measured = true;
    return plan_write(&e->plan, &e->arena, engine_plan_model(e));
}

/* On the device that was picked, or on the CPU where that one cannot compute the model. */
static enum infer_status plan_anywhere(struct plan *p, struct arena *arena, const struct model *m,
                                       struct plan_options *po) {
    enum infer_status s = plan_make(p, arena, m, po);
    return s == INFER_E_UNSUPPORTED && device_leave_card(&po->wish, &po->place) ? plan_make(p, arena, m, po)
                                                                                : s;
}

/* Room for copies of states, of which a part that is never written takes none. */
static enum infer_status take_host_states(struct infer_engine *e, const struct backend_config *c) {
    size_t n = 0;
    for (int i = 0; i < c->n_state; i++) n += (size_t)c->state[i].n_elem;
    e->host_state = take(e, n * (size_t)e->plan.n_state_copy, sizeof *e->host_state);
    return e->host_state ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for copies of states");
}

static enum infer_status profile_parts(struct infer_engine *e) {
    for (int i = 0; i < e->plan.n_part; i++) {
        const struct plan_part *part = &e->plan.part[i];
        const bool links = part->type != &backend_ref && part->type != &backend_cpu;
        for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
            TRY(profile_list(e->profile, &part->list[cls], &part->config, links));
    }
    return INFER_OK;
}

static enum infer_status prepare(struct infer_engine *e, const struct infer_engine_options *options) {
    const struct model *m = e->model->m;
    struct plan_options po;
    TRY(engine_options_read(&po, options));
    if (options && (options->tap || options->watch)) {
        e->tap = (struct tap){options->tap, options->tap_user, options->watch, options->watch_user};
        po.tap = &e->tap;
    }
    if (options) e->before_step = options->before_step, e->before_user = options->before_user;
    e->profile = po.profile = options ? options->profile : NULL;
    TRY(engine_adapters_read(&e->adapters, &e->arena, e->model, options));
    TRY(taps_of(&po, m, options));
    TRY(engine_place(&po, options ? options->group : NULL));
    TRY(engine_group_take(e, options));
    TRY(engine_ranks_pick(m, &po));
    TRY(engine_stages_place(&e->arena, m, &po, e->group));
    TRY(engine_ranks_model(e, &po));
    TRY(engine_ranks_adapters(e));
    po.adapters = engine_adapters_of(e, 0);
    TRY(plan_anywhere(&e->plan, &e->arena, engine_plan_model(e), &po));
    TRY(engine_ranks_plan(e, &po));
    const struct plan_part *part = last_part(e);
    if (po.tap && e->plan.place.memory.total_bytes && (po.tap->row || e->plan.n_part > 1))
        return err_set(
            INFER_E_UNSUPPORTED,
            "what operations read is not looked at on a card, nor what they write where the host has a part; .device cpu does");
    if (po.profile) TRY(profile_parts(e));
    for (int cls = 0; po.tap && cls < (po.tap->wrote ? ROW_CLASS_COUNT : 1); cls++)
        tap_list(po.tap, &part->list[cls]);
    if (!e->plan.fits)
        return err_set(INFER_E_MEMORY, "does not fit: %.1f GiB wanted, %.1f GiB available%s%s",
                       (double)part->total_bytes / (1 << 30), (double)part->limit_bytes / (1 << 30),
                       e->plan.n_nearest ? "; would fit: " : "", e->plan.n_nearest ? e->plan.nearest[0] : "");
    say_length(&e->plan, m);
    say_split(&e->plan, m);
    say_paging(&e->plan, part, m);
    const struct backend_config *c = &part->config;
    TRY(kv_init(&e->kv, &e->arena, c->n_slot, c->n_ctx, c->kv_group, c->n_kv_group, e->plan.n_state_copy,
                e->plan.n_state_mark));
    if (e->plan.set.state_host && c->n_state) TRY(take_host_states(e, &e->whole));
    e->last = take(e, (size_t)c->n_slot, sizeof *e->last);
    e->after = take(e, (size_t)c->n_slot, sizeof *e->after);
    e->last_out = take(e, (size_t)c->n_slot, sizeof *e->last_out);
    if (!e->last || !e->last_out || !e->after)
        return err_set(INFER_E_MEMORY, "out of memory for page tables");
    for (int i = 0; i < c->n_slot; i++) e->after[i] = AFTER_NOTHING;
    for (int i = 0; i < PLAN_FLIGHTS; i++) TRY(make_flight(e, &e->flight[i]));
    TRY(engine_hidden_open(e));
    TRY(engine_adapters_open(e, options));
    TRY(engine_group_order(e, options));
    TRY(open_backend(e));
    TRY(engine_kept_open(e, options));
    return measure(e);
}

enum infer_status infer_engine_create(struct infer_engine **out, const struct infer_model *m,
                                      const struct infer_engine_options *options) {
    struct infer_engine *e;
    *out = NULL;
    if (!m->m->layer)
        return err_set(INFER_E_INPUT, "%s was opened for its vocabulary only", m->m->file->path);
    TRY(mem_new(&e, sizeof *e, "an engine"));
    e->model = m;
    enum infer_status s = prepare(e, options);
    if (s != INFER_OK) {
        infer_engine_free(e);
        return s;
    }
    *out = e;
    return INFER_OK;
}

void infer_engine_free(struct infer_engine *e) {
    if (!e) return;
    engine_kept_close(e);
    if (e->backend) e->backend->type->close(e->backend);
    engine_ranks_free(e);
    arena_free(&e->arena);
    mem_free(e);
}

/* Positions of a store that attention reads at most; 0: as many as its group has. */
static int most_read(const struct model *m, int store) {
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        const int top = l->index.by.n_top;
        if (top && !l->entry.every && l->attn.store == store) return choice_room(&l->index.by);
        if (top && l->entry.every && l->entry.store == store) return top * l->entry.every;
    }
    return 0;
}
/* What is read of a position, of the last so many or of as many. */
static void add_read(struct infer_engine_info *out, int window, uint64_t row_bytes) {
    int g = 0;
    while (g < out->n_kv && out->kv[g].window != window) g++;
    if (g == INFER_KV_GROUPS) g = 0;
    if (g == out->n_kv) out->kv[out->n_kv++].window = window;
    out->kv[g].row_bytes += row_bytes;
}

static void plan_kv(const struct plan *p, const struct model *m, struct infer_engine_info *out) {
    const struct backend_config *c = &p->part[p->n_part - 1].config;
    out->n_kv = c->n_kv_group;
    for (int g = 0; g < c->n_kv_group; g++) out->kv[g].window = c->kv_group[g].window;
    for (int i = 0; i < c->n_state; i++) out->state_bytes += sizeof(float) * (uint64_t)c->state[i].n_elem;
    for (int i = 0; i < c->n_store; i++) { /* also those that another part of the plan has */
        const int most = most_read(m, i), window = c->kv_group[c->store[i].group].window;
        add_read(out, most && (!window || most < window) ? most : window,
                 kv_page_bytes(&c->store[i]) / KV_PAGE);
    }
}

double infer_kv_read_bytes(const struct infer_engine_info *info, double n) {
    double bytes = (double)info->state_bytes;
    for (int i = 0; i < info->n_kv; i++) {
        double seen = info->kv[i].window && info->kv[i].window < n ? info->kv[i].window : n;
        bytes += seen * (double)info->kv[i].row_bytes;
    }
    return bytes;
}

/* What the plan knows, without the device's own words. */
/* The stages before the last one. */
static void add_stages(struct infer_engine_info *out, const struct plan *p) {
    for (int i = 0; i + 1 < p->n_part; i++) {
        const struct plan_part *part = &p->part[i];
        out->device_layers += part->range.end - part->range.first;
        out->weight_bytes += part->size.weight_bytes;
        out->kv_bytes += part->size.kv_bytes;
        out->activation_bytes += part->config.activation_bytes;
        out->workspace_bytes += part->size.workspace_bytes;
        out->device_bytes += part->total_bytes;
    }
}

static struct infer_engine_info planned(const struct plan *p, const struct model *m) {
    const struct plan_part *part = &p->part[p->n_part - 1];
    struct infer_engine_info out = {
        .device = part->type->name,
        .n_ctx = p->set.n_ctx,
        .n_slot = p->set.n_slot,
        .kv_tokens = plan_kv_tokens(p),
        .n_batch = p->set.n_batch,
        .n_decode_rows = p->set.n_decode_rows,
        .n_logits = part->config.n_logits,
        .device_layers = part->range.end - part->range.first,
        .host_experts = part->range.n_remote,
        .kv_type = kv_type_name(p->set.kv_type),
        .weight_bytes = part->size.weight_bytes,
        .kv_bytes = part->size.kv_bytes,
        .activation_bytes = part->config.activation_bytes,
        .workspace_bytes = part->size.workspace_bytes,
        .output_bytes = part->size.output_bytes,
        .device_bytes = part->total_bytes,
    };
    plan_kv(p, m, &out);
    if (p->set.n_stage) add_stages(&out, p);
    return out;
}

void infer_engine_info(const struct infer_engine *e, struct infer_engine_info *out) {
    struct backend_info info;
    e->backend->type->info(e->backend, &info);
    *out = planned(&e->plan, e->model->m);
    out->device_name = info.device_name;
    out->isa = info.isa;
    out->hidden = e->hidden != NULL;
    out->n_adapter = e->adapters.n;
    out->async = info.async;
    out->grid = e->grid;
    out->n_thread = info.n_thread;
    out->repack_from = info.repack_from, out->repack_to = info.repack_to;
    out->arena_bytes = info.arena_bytes;
    out->driver_bytes = info.driver_bytes;
}

const char *infer_plan_text(const struct infer_engine *e) { return e->plan.text; }

static struct infer_share share_told(const struct plan_share *s, bool taken) {
    return (struct infer_share){s->there,      s->there && taken, s->n,    s->device_bytes,
                                s->host_bytes, s->host_weights,   s->tok_s};
}

static struct infer_reached reached_told(const struct plan *p) {
    const struct plan_part *part = &p->part[p->n_part - 1];
    bool experts;
    const struct op_list *l = &part->list[ROW_DECODE];
    const enum quant_type type = plan_type_of(l, &experts);
    const struct plan_reached r = plan_reached_by(strcmp(part->type->name, "cuda") == 0, experts, type);
    return (struct infer_reached){plan_kernels(p, part), r.share, r.n, r.as ? r.as->model : NULL,
                                  r.as ? r.as->on : NULL};
}

static enum infer_status fill_report(struct infer_plan_report *r, const struct plan *p,
                                     const struct model *m) {
    const struct plan_part *part = &p->part[p->n_part - 1];
    const bool experts = p->part[0].experts;
    r->experts = share_told(&p->experts, experts);
    r->layers = share_told(&p->layers, !experts);
    r->size = planned(p, m);
    r->map_bytes = p->map_bytes;
    r->driver_bytes = part->size.driver_bytes;
    r->pinned_bytes = part->size.pinned_bytes;
    r->limit_bytes = part->limit_bytes == SIZE_MAX ? UINT64_MAX : part->limit_bytes;
    r->host_bytes = p->n_part > 1 && !p->set.n_stage ? p->part[0].total_bytes : 0;
    r->fits = p->fits;
    r->reached = reached_told(p);
    r->n_nearest = p->n_nearest;
    static_assert(sizeof r->nearest == sizeof p->nearest, "the same lines");
    memcpy(r->nearest, p->nearest, sizeof r->nearest);
    r->text = mem_strdup(p->text);
    return r->text ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for the memory report");
}

static struct infer_card card_told(const struct card *c) {
    struct infer_card out = {.sm = c->sm,
                             .n_sm = c->n_sm,
                             .memory_bytes = c->memory_bytes,
                             .read_gb_s = c->read_gb_s,
                             .f16_tflops = c->f16_tflops,
                             .int8_tops = c->int8_tops,
                             .tf32_tflops = c->tf32_tflops,
                             .source = c->source};
    memcpy(out.name, c->name, sizeof out.name);
    return out;
}

/* Cards that are not here: no engine's plan, but a comparison of ways. */
static enum infer_status plan_cards(struct infer_plan_report *r, const struct model *m,
                                    const struct plan_options *po, const struct card *card, int n) {
    struct plan_several s;
    char text[8192];
    TRY(plan_several(&s, m, po, card, n));
    plan_several_write(&s, m, card, text, sizeof text);
    for (int k = 0; k < WAYS; k++) {
        const struct plan_way *w = &s.way[k];
        struct infer_way *to = &r->way[r->n_way++];
        *to = (struct infer_way){plan_way_name((enum plan_way_kind)k),
                                 w->there,
                                 w->there && w->fits,
                                 k == s.taken,
                                 0,
                                 0,
                                 (uint64_t)w->token_bytes,
                                 w->exchanges,
                                 w->between_s * 1e6,
                                 w->tok_s};
        for (int i = 0; i < w->n_card; i++)
            if (w->card[i].bytes > to->bytes)
                to->bytes = w->card[i].bytes, to->limit_bytes = w->card[i].limit;
    }
    r->fits = s.taken >= 0;
    r->size = (struct infer_engine_info){.device = "cuda",
                                         .n_ctx = s.set.n_ctx,
                                         .n_slot = s.set.n_slot,
                                         .n_batch = s.set.n_batch,
                                         .n_decode_rows = s.set.n_decode_rows,
                                         .kv_type = kv_type_name(s.set.kv_type),
                                         .device_layers = m->n_layer};
    if (s.taken >= 0)
        r->size.device_bytes = r->way[s.taken].bytes, r->limit_bytes = r->way[s.taken].limit_bytes;
    r->text = mem_strdup(text);
    return r->text ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for the memory report");
}

enum infer_status infer_plan(const struct infer_model *m, const struct infer_engine_options *options,
                             const char *as, struct infer_plan_report *out) {
    struct arena arena = {0};
    struct plan plan;
    struct plan_options po;
    struct adapters whole, adapters = {0};
    struct card card[RANKS_MAX];
    int n_card;
    *out = (struct infer_plan_report){0};
    TRY(engine_options_read(&po, options));
    TRY(taps_of(&po, m->m, options));
    if (as) {
        TRY(cards_find(as, card, RANKS_MAX, &n_card));
        if (n_card > 1) return plan_cards(out, m->m, &po, card, n_card);
        out->card = card_told(card);
        device_pick_card(&po.wish, card, plan_has_experts(m->m, m->m->n_layer), &po.place);
    } else {
        TRY(device_pick(&po.wish, &po.place));
        TRY(engine_ranks_pick(m->m, &po));
        TRY(engine_stages_place(&arena, m->m, &po, NULL));
    }
    struct model *share;
    TRY(engine_ranks_share(&share, m->m, &po));
    const struct model *of = share ? share : m->m;
    enum infer_status s = engine_adapters_read(&whole, &arena, m, options);
    if (s == INFER_OK && share)
        s = engine_adapters_share(&adapters, &arena, &whole, share);
    else
        adapters = whole;
    po.adapters = whole.n ? &adapters : NULL;
    if (s == INFER_OK) s = as ? plan_make(&plan, &arena, of, &po) : plan_anywhere(&plan, &arena, of, &po);
    if (s == INFER_OK && as && po.wish.n_layer < 0 && plan.part[plan.n_part - 1].type != po.place.device) {
        po.place.host = NULL; /* nothing fits: the report is about the card */
        s = plan_make(&plan, &arena, of, &po);
    }
    if (s == INFER_OK) s = fill_report(out, &plan, of);
    if (s == INFER_OK && share) s = engine_ranks_read(m->m, &po, out);
    engine_adapters_unshare(&adapters);
    arena_free(&arena);
    model_close(share);
    return s;
}

void infer_plan_free(struct infer_plan_report *r) {
    mem_free(r->text);
    r->text = NULL;
}

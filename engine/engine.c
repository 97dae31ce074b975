/* The engine behind infer.h: a model placed on a device with a plan. Assembles steps, keeps sequences, hands results
 * back in the order they were asked for. The arithmetic is in the backends, the order of operations in forward.c. */
#include "plan/card.h"
#include "plan/device.h"
#include "engine_options.h"
#include "infer.h"
#include "cache/kv.h"
#include "base/mem.h"
#include "model/model.h"
#include "plan/plan.h"
#include "cache/snapshot.h"
#include "join/layers.h"

#include <stdatomic.h>
#include <stdio.h>

enum { FLIGHTS = 2 };
static_assert((int)INFER_LAST == STEP_LAST && (int)INFER_WANT_TOKEN == WANT_TOKEN &&
                  (int)INFER_WANT_LOGITS == WANT_LOGITS,
              "rows of infer.h go into a step as they are");

/* One step between submit and wait. */
struct flight {
    struct step step[ROW_CLASS_COUNT];
    int32_t *id[ROW_CLASS_COUNT], *pos[ROW_CLASS_COUNT], *slot[ROW_CLASS_COUNT]; /* [max_rows] */
    int32_t *out_row[ROW_CLASS_COUNT];                                           /* [max_out] */
    uint8_t *want[ROW_CLASS_COUNT];
    uint8_t *out_cls;   /* out_cls[n_out]: class that computes output i, in the order of the rows given */
    int32_t *out_index; /* out_index[n_out]: its index inside that class */
    int32_t *out_slot;
    int n_out;
    int32_t *length_before; /* length_before[n_slot]; -1: not in this step */
    int32_t *token;         /* results */
    const float **logits;
};

struct infer_engine {
    const struct infer_model *model;
    struct arena arena;
    struct plan plan;
    struct backend *backend;
    struct kv kv;
    const int32_t **pages; /* pages[n_kv_group], all the same table */
    int32_t *last;         /* last[n_slot]: the token a sequence just sampled, -1: none, or not read yet */
    int32_t *last_out;     /* last_out[n_slot]: scratch of collect */
    struct flight flight[FLIGHTS];
    unsigned n_submit, n_wait;
    uint64_t fingerprint; /* of the model, once a snapshot needed it */
    bool poisoned;
    char poison[256];
};

struct infer_model {
    struct model *m;
};

/* ---- model --------------------------------------------------------------------------------------------------- */

const char *infer_error(void) { return err_message(); }

enum infer_status infer_model_open(struct infer_model **out, const char *path,
                                   const struct infer_model_options *options) {
    struct tensorfile_options o = {0};
    struct infer_model *im;
    *out = NULL;
    if (options)
        o = (struct tensorfile_options){.no_mmap = options->no_mmap,
                                        .vocab_only = options->vocab_only,
                                        .ignore = {options->ignore_keys, options->n_ignore_key}};
    TRY(mem_new(&im, sizeof *im, "a model"));
    enum infer_status s = model_open(&im->m, path, &o);
    for (int i = 0; s == INFER_OK && options && options->mlock && i < im->m->file->n_part; i++)
        s = mapfile_lock(&im->m->file->part[i]);
    if (s != INFER_OK) {
        infer_model_close(im);
        return s;
    }
    *out = im;
    return INFER_OK;
}

void infer_model_close(struct infer_model *im) {
    if (!im) return;
    model_close(im->m);
    mem_free(im);
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
    out->n_embd = m->n_embd;
    out->n_head = m->layer[0].n_head;
    out->n_kv_head = m->layer[0].n_kv_head;
    out->head_dim = m->layer[0].head_dim_k;
    out->n_ff = m->layer[0].n_ff;
    out->n_vocab = m->n_vocab;
    out->n_ctx_train = m->n_ctx_train;
    out->n_param = m->n_param;
    out->token_bytes = m->token_bytes;
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
int32_t infer_bos(const struct infer_model *im) { return im->m->tok ? tok_bos(im->m->tok) : -1; }
int32_t infer_eos(const struct infer_model *im) { return im->m->tok ? tok_eos(im->m->tok) : -1; }

/* ---- create -------------------------------------------------------------------------------------------------- */

static void *take(struct infer_engine *e, size_t n, size_t size) {
    return arena_alloc(&e->arena, (n ? n : 1) * size);
}

/* The part of the plan that has the outputs. */
static struct plan_part *last_part(struct infer_engine *e) { return &e->plan.part[e->plan.n_part - 1]; }

static enum infer_status make_flight(struct infer_engine *e, struct flight *f) {
    size_t n_out = 0, n_slot = (size_t)e->plan.set.n_slot;
    const struct op_list *list = last_part(e)->list;
    bool ok = true;
    for (int c = 0; c < ROW_CLASS_COUNT; c++) {
        size_t rows = (size_t)list[c].max_rows, outs = (size_t)list[c].max_out;
        ok &= (f->id[c] = take(e, rows, 4)) && (f->pos[c] = take(e, rows, 4)) &&
              (f->slot[c] = take(e, rows, 4));
        ok &= (f->out_row[c] = take(e, outs, 4)) && (f->want[c] = take(e, outs, 1));
        n_out += outs;
    }
    ok &= (f->out_cls = take(e, n_out, 1)) && (f->out_index = take(e, n_out, 4)) &&
          (f->out_slot = take(e, n_out, 4));
    ok &= (f->token = take(e, n_out, 4)) && (f->logits = take(e, n_out, sizeof *f->logits));
    ok &= (f->length_before = take(e, n_slot, 4)) != NULL;
    return ok ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for the step's rows");
}

static void say_length(const struct plan *p, const struct model *m) {
    if (p->set.n_ctx > m->n_ctx_train)
        log_line(LOG_WARN,
                 "the context of %d positions is beyond the %d that the model was trained for: what it says "
                 "there is not reliable",
                 p->set.n_ctx, m->n_ctx_train);
}

/* One line before the first token when a card does not hold all layers. */
static void say_split(const struct plan *p, const struct model *m) {
    const struct backend_memory *card = &p->place.memory;
    int n = p->set.n_device_layer;
    if (!card->total_bytes || n == m->n_layer) return;
    if (n)
        log_line(LOG_WARN,
                 "the card (%s, %.1f GiB free) holds the last %d of %d layers; the other %d run on the CPU, "
                 "which is much slower",
                 card->name, (double)card->free_bytes / (1 << 30), n, m->n_layer, m->n_layer - n);
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
        "disk again, which is slow; a smaller type (infer quantize) or --ctx leaves more",
        (double)p->map_bytes / (1 << 30), (double)left / (1 << 30));
}

static enum infer_status open_backend(struct infer_engine *e) {
    const struct plan *p = &e->plan;
    if (p->n_part > 1)
        TRY(split_open(&e->backend, p));
    else
        TRY(p->part[0].type->open(&e->backend, &p->part[0].config));
    const struct backend_type *type = e->backend->type;
    TRY(type->upload(e->backend));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) TRY(type->compile(e->backend, (enum row_class)i));
    return INFER_OK;
}

/* Puts the driver's share as it is now into the report. */
static enum infer_status measure(struct infer_engine *e) {
    struct plan_part *part = last_part(e);
    struct backend_info info;
    e->backend->type->info(e->backend, &info);
    if (!info.driver_bytes) return INFER_OK;
    part->total_bytes += info.driver_bytes - part->size.driver_bytes;
    part->size.driver_bytes = info.driver_bytes;
    part->measured = true;
    return plan_write(&e->plan, &e->arena, e->model->m);
}

static enum infer_status prepare(struct infer_engine *e, const struct infer_engine_options *options) {
    const struct model *m = e->model->m;
    struct plan_options po;
    TRY(engine_options_read(&po, options));
    TRY(device_pick(&po.wish, &po.place));
    TRY(plan_make(&e->plan, &e->arena, m, &po));
    const struct plan_part *part = last_part(e);
    if (!e->plan.fits)
        return err_set(INFER_E_MEMORY, "does not fit: %.1f GiB wanted, %.1f GiB available%s%s",
                       (double)part->total_bytes / (1 << 30), (double)part->limit_bytes / (1 << 30),
                       e->plan.n_nearest ? "; would fit: " : "", e->plan.n_nearest ? e->plan.nearest[0] : "");
    say_length(&e->plan, m);
    say_split(&e->plan, m);
    say_paging(&e->plan, part, m);
    const struct backend_config *c = &part->config;
    TRY(kv_init(&e->kv, &e->arena, c->n_slot, c->n_ctx, c->kv_group[0].n_page));
    e->pages = take(e, (size_t)c->n_kv_group, sizeof *e->pages);
    e->last = take(e, (size_t)c->n_slot, sizeof *e->last);
    e->last_out = take(e, (size_t)c->n_slot, sizeof *e->last_out);
    if (!e->pages || !e->last || !e->last_out)
        return err_set(INFER_E_MEMORY, "out of memory for page tables");
    for (int i = 0; i < c->n_kv_group; i++) e->pages[i] = e->kv.table;
    for (int i = 0; i < FLIGHTS; i++) TRY(make_flight(e, &e->flight[i]));
    TRY(open_backend(e));
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
    if (e->backend) e->backend->type->close(e->backend);
    arena_free(&e->arena);
    mem_free(e);
}

/* What the plan knows, without the device's own words. */
static struct infer_engine_info planned(const struct plan *p) {
    const struct plan_part *part = &p->part[p->n_part - 1];
    return (struct infer_engine_info){
        .device = part->type->name,
        .n_ctx = p->set.n_ctx,
        .n_slot = p->set.n_slot,
        .n_batch = p->set.n_batch,
        .n_decode_rows = p->set.n_decode_rows,
        .device_layers = part->range.end - part->range.first,
        .kv_type = plan_kv_name(p->set.kv_type),
        .weight_bytes = part->size.weight_bytes,
        .kv_bytes = part->size.kv_bytes,
        .activation_bytes = part->config.activation_bytes,
        .workspace_bytes = part->size.workspace_bytes,
        .output_bytes = part->size.output_bytes,
        .device_bytes = part->total_bytes,
    };
}

void infer_engine_info(const struct infer_engine *e, struct infer_engine_info *out) {
    struct backend_info info;
    e->backend->type->info(e->backend, &info);
    *out = planned(&e->plan);
    out->device_name = info.device_name;
    out->isa = info.isa;
    out->n_thread = info.n_thread;
    out->arena_bytes = info.arena_bytes;
    out->driver_bytes = info.driver_bytes;
}

const char *infer_plan_text(const struct infer_engine *e) { return e->plan.text; }

static enum infer_status fill_report(struct infer_plan_report *r, const struct plan *p) {
    const struct plan_part *part = &p->part[p->n_part - 1];
    r->size = planned(p);
    r->map_bytes = p->map_bytes;
    r->driver_bytes = part->size.driver_bytes;
    r->pinned_bytes = part->size.pinned_bytes;
    r->limit_bytes = part->limit_bytes == SIZE_MAX ? UINT64_MAX : part->limit_bytes;
    r->host_bytes = p->n_part > 1 ? p->part[0].total_bytes : 0;
    r->fits = p->fits;
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

enum infer_status infer_plan(const struct infer_model *m, const struct infer_engine_options *options,
                             const char *as, struct infer_plan_report *out) {
    struct arena arena = {0};
    struct plan plan;
    struct plan_options po;
    struct card card;
    *out = (struct infer_plan_report){0};
    TRY(engine_options_read(&po, options));
    if (as) {
        TRY(card_find(as, &card));
        out->card = card_told(&card);
        device_pick_card(&po.wish, &card, &po.place);
    } else {
        TRY(device_pick(&po.wish, &po.place));
    }
    enum infer_status s = plan_make(&plan, &arena, m->m, &po);
    if (s == INFER_OK) s = fill_report(out, &plan);
    arena_free(&arena);
    return s;
}

void infer_plan_free(struct infer_plan_report *r) {
    mem_free(r->text);
    r->text = NULL;
}

/* ---- sequences ----------------------------------------------------------------------------------------------- */

static bool seq_is_open(const struct infer_engine *e, int seq) {
    return seq >= 0 && seq < e->kv.n_slot && e->kv.seq[seq].open;
}

enum infer_status infer_seq_open(struct infer_engine *e, int *seq) {
    TRY(kv_open(&e->kv, seq));
    e->last[*seq] = -1;
    return INFER_OK;
}

void infer_seq_close(struct infer_engine *e, int seq) {
    if (!seq_is_open(e, seq)) infer_bug("sequence %d is not open", seq);
    kv_close(&e->kv, seq);
}

enum infer_status infer_seq_rewind(struct infer_engine *e, int seq, int n) {
    int from, to;
    if (!seq_is_open(e, seq) || n < 0 || n > e->kv.seq[seq].length)
        return err_set(INFER_E_INPUT, "cannot rewind sequence %d to %d", seq, n);
    TRY(kv_rewind(&e->kv, seq, n, &from, &to));
    e->last[seq] = -1;
    return from >= 0 ? e->backend->type->kv_copy(e->backend, from, to) : INFER_OK;
}

enum infer_status infer_seq_prefix(struct infer_engine *e, int seq, const int32_t *ids, int n,
                                   int *n_shared) {
    if (!seq_is_open(e, seq) || e->kv.seq[seq].length)
        return err_set(INFER_E_INPUT, "sequence %d is not open and empty", seq);
    *n_shared = kv_match(&e->kv, seq, ids, n < e->kv.n_ctx ? n : e->kv.n_ctx);
    return INFER_OK;
}

int infer_seq_length(const struct infer_engine *e, int seq) {
    return seq_is_open(e, seq) ? e->kv.seq[seq].length : -1;
}

const int32_t *infer_seq_ids(const struct infer_engine *e, int seq) {
    return seq_is_open(e, seq) ? e->kv.seq[seq].ids : NULL;
}

/* What a snapshot of seq is taken from. */
static enum infer_status snapshot_place(struct infer_engine *e, int seq, struct snapshot_place *out) {
    if (!seq_is_open(e, seq)) return err_set(INFER_E_INPUT, "sequence %d is not open", seq);
    if (e->n_submit != e->n_wait) return err_set(INFER_E_INPUT, "a step is in flight");
    if (e->poisoned) return err_set(INFER_E_DEVICE, "the engine failed before: %s", e->poison);
    *out = (struct snapshot_place){e->backend, &last_part(e)->config, e->model->m->file, &e->kv,
                                   &e->fingerprint};
    return INFER_OK;
}

enum infer_status infer_seq_save(struct infer_engine *e, int seq, const char *path) {
    struct snapshot_place p;
    TRY(snapshot_place(e, seq, &p));
    return snapshot_save(&p, seq, path);
}

enum infer_status infer_seq_load(struct infer_engine *e, int seq, const char *path) {
    struct snapshot_place p;
    TRY(snapshot_place(e, seq, &p));
    if (e->kv.seq[seq].length) return err_set(INFER_E_INPUT, "sequence %d is not empty", seq);
    e->last[seq] = -1;
    return snapshot_load(&p, seq, path);
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* Whether a queued step will sample a token for this sequence. */
static bool samples_in_flight(const struct infer_engine *e, int seq) {
    for (unsigned k = e->n_wait; k != e->n_submit; k++) {
        const struct flight *f = &e->flight[k % FLIGHTS];
        for (int i = 0; i < f->n_out; i++)
            if (f->out_slot[i] == seq && f->want[f->out_cls[i]][f->out_index[i]] & INFER_WANT_TOKEN)
                return true;
    }
    return false;
}

/* Checks row i and counts it into rows and outs of its class; length: where its sequence stands. */
static enum infer_status check_row(const struct infer_engine *e, const struct infer_row *r, int i, int length,
                                   int *rows, int *outs) {
    if (r->id != INFER_LAST && (r->id < 0 || r->id >= e->model->m->n_vocab))
        return err_set(INFER_E_INPUT, "row %d: token %d is outside of the vocabulary of %d", i, r->id,
                       e->model->m->n_vocab);
    if (r->id == INFER_LAST && e->last[r->seq] < 0 && !samples_in_flight(e, r->seq))
        return err_set(INFER_E_INPUT, "row %d: sequence %d has sampled no token", i, r->seq);
    if (r->pos != length)
        return err_set(INFER_E_INPUT, "row %d: position %d does not continue sequence %d, which holds %d", i,
                       r->pos, r->seq, length);
    const struct op_list *l = &e->plan.part[e->plan.n_part - 1].list[r->decode ? ROW_DECODE : ROW_PROMPT];
    if (++*rows > l->max_rows)
        return err_set(INFER_E_INPUT, "row %d: more than %d %s rows in a step", i, l->max_rows,
                       r->decode ? "decode" : "prompt");
    if (r->want && ++*outs > l->max_out)
        return err_set(INFER_E_INPUT, "row %d: more than %d outputs of %s rows", i, l->max_out,
                       r->decode ? "decode" : "prompt");
    return INFER_OK;
}

/* Puts the checked rows into the flight's arrays, by class. */
static void fill_flight(struct infer_engine *e, struct flight *f, const struct infer_row *rows, int n) {
    int n_row[ROW_CLASS_COUNT] = {0}, n_out[ROW_CLASS_COUNT] = {0};
    f->n_out = 0;
    for (int i = 0; i < n; i++) {
        int c = rows[i].decode ? ROW_DECODE : ROW_PROMPT, t = n_row[c]++;
        f->id[c][t] = e->kv.seq[rows[i].seq].ids[rows[i].pos];
        f->pos[c][t] = rows[i].pos;
        f->slot[c][t] = rows[i].seq;
        if (!rows[i].want) continue;
        f->out_cls[f->n_out] = (uint8_t)c;
        f->out_index[f->n_out] = n_out[c];
        f->out_slot[f->n_out++] = rows[i].seq;
        f->out_row[c][n_out[c]] = t;
        f->want[c][n_out[c]++] = rows[i].want;
    }
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        f->step[c] = (struct step){n_row[c],      n_out[c],   f->id[c], f->pos[c],    f->slot[c],
                                   f->out_row[c], f->want[c], e->pages, e->kv.version};
}

/* Takes pages for the rows and moves the lengths on; on a full cache every sequence is as before. */
static enum infer_status place_rows(struct infer_engine *e, struct flight *f, const struct infer_row *rows,
                                    int n) {
    for (int i = 0; i < e->kv.n_slot; i++) f->length_before[i] = -1;
    for (int i = 0; i < n; i++) {
        int seq = rows[i].seq;
        if (f->length_before[seq] < 0) f->length_before[seq] = e->kv.seq[seq].length;
        int32_t id = rows[i].id == INFER_LAST ? e->last[seq] : rows[i].id;
        TRY(kv_reserve(&e->kv, seq, rows[i].pos + 1));
        kv_append(&e->kv, seq, &id, 1);
        e->last[seq] = -1;
    }
    return INFER_OK;
}

/* Lengths back to those before the step; the pages were private to it or are whole, so nothing is copied. */
static void restore_lengths(struct infer_engine *e, const struct flight *f) {
    int from, to;
    for (int i = 0; i < e->kv.n_slot; i++)
        if (f->length_before[i] >= 0 && e->kv.seq[i].open && e->kv.seq[i].length > f->length_before[i])
            (void)kv_rewind(&e->kv, i, f->length_before[i], &from, &to);
}

static enum infer_status check_rows(struct infer_engine *e, const struct infer_row *rows, int n) {
    int n_row[2] = {0}, n_out[2] = {0};
    if (e->poisoned) return err_set(INFER_E_DEVICE, "the engine failed before: %s", e->poison);
    if (e->n_submit - e->n_wait >= FLIGHTS)
        return err_set(INFER_E_INPUT, "%d steps are in flight already", FLIGHTS);
    if (n < 1) return err_set(INFER_E_INPUT, "a step of %d rows", n);
    struct flight *f = &e->flight[e->n_submit % FLIGHTS];
    for (int i = 0; i < e->kv.n_slot; i++)
        f->length_before[i] = e->kv.seq[i].length; /* as scratch: where each stands */
    for (int i = 0; i < n; i++) {
        if (!seq_is_open(e, rows[i].seq))
            return err_set(INFER_E_INPUT, "row %d: sequence %d is not open", i, rows[i].seq);
        TRY(check_row(e, &rows[i], i, f->length_before[rows[i].seq]++, &n_row[rows[i].decode],
                      &n_out[rows[i].decode]));
    }
    return INFER_OK;
}

/* The decode list, then the prompt list. */
static enum infer_status run_flight(struct infer_engine *e, struct flight *f) {
    static const enum row_class order[] = {ROW_DECODE, ROW_PROMPT};
    for (int i = 0; i < ROW_CLASS_COUNT; i++) {
        if (!f->step[order[i]].n_row) continue;
        TRY(e->backend->type->run(e->backend, order[i], &f->step[order[i]]));
    }
    return INFER_OK;
}

static void poison(struct infer_engine *e, enum infer_status s) {
    if (s != INFER_E_DEVICE && s != INFER_E_NAN) return;
    e->poisoned = true;
    snprintf(e->poison, sizeof e->poison, "%s", err_message());
}

enum infer_status infer_submit(struct infer_engine *e, const struct infer_row *rows, int n) {
    TRY(check_rows(e, rows, n));
    struct flight *f = &e->flight[e->n_submit % FLIGHTS];
    mem_forbid(true);
    enum infer_status s = place_rows(e, f, rows, n);
    if (s == INFER_OK) {
        fill_flight(e, f, rows, n);
        s = run_flight(e, f);
    }
    mem_forbid(false);
    if (s == INFER_OK) {
        e->n_submit++;
    } else {
        restore_lengths(e, f);
        poison(e, s);
    }
    return s;
}

/* A sequence's newest token is the id of the row that was queued as INFER_LAST behind this step, or of the next one. */
static void learn_tokens(struct infer_engine *e, const struct flight *f) {
    for (int i = 0; i < f->n_out; i++) {
        int slot = f->out_slot[i];
        if (f->token[i] < 0 || e->last_out[slot] != i || !seq_is_open(e, slot)) continue;
        if (e->kv.seq[slot].n_known < e->kv.seq[slot].length)
            kv_learn(&e->kv, slot, f->token[i]);
        else
            e->last[slot] = f->token[i];
    }
}

/* Collects the results of every class of a flight; the first fault counts, but every run is waited for. */
static enum infer_status collect(struct infer_engine *e, struct flight *f) {
    static const enum row_class order[] = {ROW_DECODE, ROW_PROMPT};
    struct step_result r[ROW_CLASS_COUNT] = {{0}};
    enum infer_status first = INFER_OK;
    for (int i = 0; i < ROW_CLASS_COUNT; i++) {
        if (!f->step[order[i]].n_row) continue;
        enum infer_status s = e->backend->type->wait(e->backend, &r[order[i]]);
        if (first == INFER_OK) first = s;
    }
    if (first != INFER_OK) return first;
    for (int i = 0; i < f->n_out; i++) {
        const struct step_result *from = &r[f->out_cls[i]];
        int j = f->out_index[i];
        bool want_logits = f->want[f->out_cls[i]][j] & INFER_WANT_LOGITS;
        f->token[i] = from->token[j];
        f->logits[i] = want_logits ? from->logits + (size_t)j * (size_t)e->model->m->n_vocab : NULL;
        if (f->token[i] >= 0) e->last_out[f->out_slot[i]] = i;
    }
    learn_tokens(e, f);
    return INFER_OK;
}

enum infer_status infer_wait(struct infer_engine *e, struct infer_output *out) {
    if (e->n_submit == e->n_wait) return err_set(INFER_E_INPUT, "no step is in flight");
    struct flight *f = &e->flight[e->n_wait++ % FLIGHTS];
    mem_forbid(true);
    enum infer_status s = collect(e, f);
    mem_forbid(false);
    *out = (struct infer_output){f->n_out, f->token, f->logits};
    if (s != INFER_OK) {
        restore_lengths(e, f);
        poison(e, s);
        out->n = 0;
    }
    return s;
}

enum infer_status infer_step(struct infer_engine *e, const struct infer_row *rows, int n,
                             struct infer_output *out) {
    TRY(infer_submit(e, rows, n));
    return infer_wait(e, out);
}

void infer_set_last(struct infer_engine *e, int seq, int32_t id) {
    if (seq_is_open(e, seq) && id >= 0 && id < e->model->m->n_vocab) e->last[seq] = id;
}

void infer_cancel(struct infer_engine *e) { e->backend->type->cancel(e->backend); }

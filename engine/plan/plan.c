#include "plan/plan.h"
#include "base/host.h"
#include "cache/kv.h"
#include "seam/tap.h"
#include "seam/op_list.h"

enum {
    DEFAULT_CTX = 8192,
    DEFAULT_BATCH = 512,
    DEFAULT_BATCH_CARD = 2048,
    MAX_BATCH = 16384,
    MAX_PLAN_CTX = 1 << 26,
    MAX_KV_TOKENS = 1 << 30,
    STATE_COPIES =
        2, /* of a slot: where its prompt ended, and a prefix of that; and of prefixes that slots share */
    LOGITS_ROWS = 8 /* of a step, unless all may be asked for */
};

/* ---- options ------------------------------------------------------------------------------------------------- */

static enum infer_status in_range(const char *what, int v, int min, int max) {
    if (v < min || v > max) return err_set(INFER_E_INPUT, "%s is %d, must be %d to %d", what, v, min, max);
    return INFER_OK;
}

static enum infer_status layers_of(const struct model *m, const struct plan_options *options, int *out) {
    const struct placement *place = &options->place;
    int n = options->wish.n_layer;
    *out = m->n_layer;
    if (n < 0 || n >= m->n_layer || (!place->host && !place->memory.total_bytes)) return INFER_OK;
    if (!place->host)
        return err_set(INFER_E_INPUT,
                       ".device cuda computes nothing on the CPU, so all %d layers are on the card; "
                       ".gpu_layers %d goes with .device auto",
                       m->n_layer, n);
    if (n && m->whole)
        return err_set(
            INFER_E_UNSUPPORTED,
            ".gpu_layers %d: layers of this model read what others keep, so all %d are on the card, "
            "or 0",
            n, m->n_layer);
    *out = n;
    return INFER_OK;
}

static enum infer_status experts_of(struct plan_settings *s, const struct model *m,
                                    const struct plan_options *options) {
    const struct placement *place = &options->place;
    int n = options->wish.n_cpu_experts;
    s->n_device_experts = m->n_layer;
    if (n <= 0 || (!place->host && !place->memory.total_bytes)) return INFER_OK;
    if (!plan_has_experts(m, m->n_layer))
        return err_set(INFER_E_INPUT, ".cpu_experts %d: this model has no experts", n);
    if (!place->host)
        return err_set(INFER_E_INPUT,
                       ".device cuda computes nothing on the CPU; .cpu_experts %d goes with .device auto", n);
    if (n && plan_adapts_experts(options))
        return err_set(INFER_E_UNSUPPORTED,
                       ".cpu_experts %d: experts on the CPU beside a card have no adapters yet", n);
    if (s->n_device_layer < m->n_layer)
        return err_set(INFER_E_INPUT,
                       ".cpu_experts %d goes with all %d layers on the card, not with .gpu_layers %d", n,
                       m->n_layer, s->n_device_layer);
    s->n_device_experts = n < m->n_layer ? m->n_layer - n : 0;
    return INFER_OK;
}

static enum infer_status stages_of(struct plan_settings *s, const struct model *m,
                                   const struct plan_options *o) {
    double share[PLAN_STAGES], all = 0;
    const int n = model_drafts(m) ? 0 : o->stages; /* what drafts is small */
    if (n > 1 && o->place.memory.total_bytes && !o->stage)
        return err_set(INFER_E_UNSUPPORTED, ".stages %d: several cards are wanted, here is one", n);
    if (n < 2 || n > PLAN_STAGES || !o->stage) return plan_stages(s, m, n, NULL);
    for (int i = 0; i < n; i++) {
        const struct placement *at = &o->stage[i];
        share[i] = (double)at->memory.free_bytes / (at->n_share > 1 ? at->n_share : 1);
        all += share[i];
    }
    for (int i = 0; i < n; i++) share[i] /= all;
    return plan_stages(s, m, n, share);
}

/* Kernels that only some devices have: what was asked for and is not there is refused. */
static enum infer_status kernels_of(const struct plan_options *o) {
    const char *device = o->place.device->name;
    if (o->cuda.block_scaled && o->cuda.blas)
        return err_set(INFER_E_INPUT,
                       ".block_scaled %s and .blas are two kinds of products for the same rows: ask for one",
                       o->cuda.block_scaled);
    if (o->cuda.block_scaled && strcmp(device, "cuda") != 0)
        return err_set(INFER_E_UNSUPPORTED, ".block_scaled %s needs a card of sm_%d; this is the %s backend",
                       o->cuda.block_scaled, strcmp(o->cuda.block_scaled, "fp8") ? 120 : 90, device);
    if (o->cuda.blas && strcmp(device, "cuda") != 0)
        return err_set(INFER_E_UNSUPPORTED, ".blas needs a card; this is the %s backend", device);
    return INFER_OK;
}

/* Where adapters are not added to products yet. */
static enum infer_status adapters_on(const struct plan_options *o) {
    if (!o->adapters) return INFER_OK;
    const bool card = strcmp(o->place.device->name, "cuda") == 0;
    if (o->ranks > 1 && card)
        return err_set(
            INFER_E_UNSUPPORTED,
            "ranks on cards have no adapters yet; without .ranks, or with .device cpu, there are some");
    if (o->adapters->n_room && card)
        return err_set(
            INFER_E_UNSUPPORTED,
            ".adapter_room %d: a card has no adapters yet that come while an engine runs; .device cpu "
            "has",
            o->adapters->n_room);
    return INFER_OK;
}

/* Where a head cannot be handed what it reads. */
static enum infer_status taps_on(const struct plan_options *o) {
    if (!o->taps) return INFER_OK;
    if (strcmp(o->place.device->name, "cuda") == 0)
        return err_set(INFER_E_UNSUPPORTED,
                       "what a head that drafts reads of the layers is not handed out on a "
                       "card yet; .device cpu does");
    if (o->stages > 1)
        return err_set(INFER_E_UNSUPPORTED,
                       "a head that drafts reads layers of several stages; without .stages "
                       "it can");
    return INFER_OK;
}

static enum infer_status ctx_of(const struct model *m, int asked, int *out) {
    int most = m->n_ctx_train;
    *out = asked > 0 ? asked : asked < 0 || most < DEFAULT_CTX ? most : DEFAULT_CTX;
    if (m->position && *out > most)
        return err_set(INFER_E_INPUT, ".ctx %d: the model has learned positions, and %d of them", *out, most);
    if (m->n_ctx_most && *out > m->n_ctx_most)
        return err_set(INFER_E_UNSUPPORTED,
                       ".ctx %d: with dynamic scaling of rope a text beyond %d positions is computed as it "
                       "comes in, in no one "
                       "way; give .ctx %d, or a file with 'yarn' or 'linear' scaling",
                       *out, m->n_ctx_most, m->n_ctx_most);
    return in_range(".ctx", *out, 1, MAX_PLAN_CTX);
}

/* Of models whose texts are computed each in one step, by one device. */
static enum infer_status encoder_of(struct plan_settings *s, const struct model *m,
                                    const struct plan_options *o) {
    if (!m->encoder) return INFER_OK;
    if (o->place.memory.total_bytes)
        return err_set(INFER_E_UNSUPPORTED, "%s: encoders are computed on the CPU, not on a card",
                       m->file->path);
    if (o->stages > 1 || o->ranks > 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: an encoder is computed whole: neither .stages nor .ranks",
                       m->file->path);
    if (o->batch && o->batch < s->n_ctx)
        return err_set(INFER_E_INPUT,
                       ".batch %d: a text of an encoder is one step, and .ctx lets it have %d tokens",
                       o->batch, s->n_ctx);
    if (s->n_batch < s->n_ctx) s->n_batch = s->n_ctx;
    return INFER_OK;
}

/* A card has kernels for one type in all layers. */
static enum infer_status kv_type_of_card(const struct plan_settings *s, const struct plan_options *o) {
    if (strcmp(o->place.device->name, "cuda") != 0) return INFER_OK;
    if (s->kv)
        return err_set(INFER_E_UNSUPPORTED,
                       ".kv_type %.40s: types that differ between layers, or between keys and values, are of "
                       "the CPU alone; a card keeps all in one",
                       o->kv_type);
    return INFER_OK;
}

static enum infer_status read_options(struct plan_settings *s, struct arena *arena, const struct model *m,
                                      const struct plan_options *o) {
    s->n_slot = o->slots > 0 ? o->slots : 1;
    TRY(ctx_of(m, o->ctx, &s->n_ctx));
    s->n_batch = o->batch ? o->batch : o->place.memory.total_bytes ? DEFAULT_BATCH_CARD : DEFAULT_BATCH;
    TRY(encoder_of(s, m, o));
    s->slot_rows = !o->decode_rows;
    s->n_decode_rows = o->decode_rows ? o->decode_rows : s->n_slot;
    s->n_kv_token = o->kv_tokens > 0 ? o->kv_tokens : 0;
    if (o->kv_tokens > 0) TRY(in_range(".kv_tokens", o->kv_tokens, KV_PAGE, MAX_KV_TOKENS));
    TRY(in_range(".batch", s->n_batch, 1, MAX_BATCH));
    TRY(in_range("decode rows", s->n_decode_rows, 1, MAX_BATCH));
    s->n_state_copy = o->state_snapshots;
    s->state_host = o->state_host;
    TRY(kernels_of(o));
    TRY(adapters_on(o));
    TRY(taps_on(o));
    TRY(layers_of(m, o, &s->n_device_layer));
    TRY(experts_of(s, m, o));
    TRY(stages_of(s, m, o));
    TRY(kv_types_read(&s->kv_type, &s->kv, arena, m, o->kv_type,
                      o->place.device == &backend_ref ? KV_F32 : KV_F16));
    return kv_type_of_card(s, o);
}

static void fill_config(struct backend_config *c, const struct model *m, const struct plan *p,
                        const struct plan_options *o) {
    *c = (struct backend_config){
        .group = m->group,
        .n_group = m->n_group,
        .embedding = &m->embd,
        .n_vocab = m->n_vocab,
        .n_embd = m->n_embd,
        .store = p->store,
        .n_store = m->n_store,
        .kv_group = p->kv_group,
        .n_kv_group = m->n_kv_group,
        .kv_type = p->set.kv_type,
        .state = m->state,
        .n_state = m->n_state,
        .n_state_slot =
            m->n_state ? p->set.n_slot + (p->set.state_host ? 0 : p->n_state_copy) + p->n_state_mark : 0,
        .n_slot = p->set.n_slot,
        .n_ctx = p->set.n_ctx,
        .n_input = o->inputs ? p->set.n_batch : 0,
        .card = o->place.card,
        .rank = m->share.rank,
        .n_rank = m->share.n,
        .cpu = o->cpu,
        .cuda = o->cuda,
#define INFER_FOR_BACKENDS(type, field) .field = o->field,
#include "infer_options.def"
        .tap = o->tap,
        .profile = m->share.rank ? NULL : o->profile,
        .progress = o->progress,
        .user = o->user};
    c->no_fuse |= o->tap && o->tap->row;
}

/* ---- activations --------------------------------------------------------------------------------------------- */

static enum infer_status buf_bytes(const struct op_list *l, const struct buf *b, size_t *out) {
    size_t rows = buf_max_rows(l, b);
    if (!size_mul(b->row_bytes, rows, out) || !size_align(*out, 256, out))
        return err_set(INFER_E_MEMORY, "buffer %s: %zu rows of %zu bytes", b->name, rows, b->row_bytes);
    return INFER_OK;
}

/* Buffers come in the order of their first use; those placed before are walked for the end of whatever blocks a candidate
 * until nothing does. */
enum infer_status plan_place_buffers(struct op_list *l, bool keep_all, size_t *arena_bytes) {
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
                if (!keep_all && !buf_lives_meet(o, b)) continue;
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

/* What there is of the card's memory: its free part, at most the fraction or the limit of the options, less the reserve; of ranks
 * that share it a part. */
static size_t card_available(const struct backend_memory *m, const struct plan_options *o) {
    double fraction = o->vram_fraction > 0 ? o->vram_fraction : 0.9;
    size_t most = o->vram_limit ? (size_t)o->vram_limit : (size_t)((double)m->total_bytes * fraction);
    size_t left = m->free_bytes > o->vram_reserve ? m->free_bytes - (size_t)o->vram_reserve : 0;
    return (left < most ? left : most) / (size_t)(o->place.n_share > 1 ? o->place.n_share : 1);
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

/* Pages of the groups that keep all positions; those with a window need no more than they. INT32_MAX: no bound. */
static int most_pages(const struct plan_settings *s, const struct model *m) {
    for (int i = 0; i < m->n_kv_group; i++)
        if (!m->window[i] && s->n_kv_token) return (s->n_kv_token + KV_PAGE - 1) / KV_PAGE;
    return INT32_MAX;
}

int plan_kv_tokens(const struct plan *p) {
    const struct backend_config *c = &p->part[p->n_part - 1].config;
    const int most = INT32_MAX / KV_PAGE;
    for (int i = 0; i < c->n_kv_group; i++)
        if (!c->kv_group[i].window)
            return (c->kv_group[i].n_page < most ? c->kv_group[i].n_page : most) * KV_PAGE;
    int64_t all = (int64_t)p->set.n_slot * p->set.n_ctx;
    return all < INT32_MAX ? (int)all : INT32_MAX;
}

static enum infer_status plan_kv(struct plan *p, struct arena *arena, const struct model *m) {
    p->kv_group = arena_alloc(arena, (size_t)m->n_kv_group * sizeof *p->kv_group);
    p->store = arena_alloc(arena, ((size_t)m->n_store + 1) * sizeof *p->store);
    if (!p->kv_group || !p->store) return err_set(INFER_E_MEMORY, "out of memory for the plan");
    const struct plan_settings *s = &p->set;
    for (int i = 0; i < m->n_store; i++) {
        p->store[i] = m->store[i];
        p->store[i].k_type = s->kv ? s->kv[i].k : s->kv_type;
        p->store[i].v_type = s->kv ? s->kv[i].v : s->kv_type;
    }
    if (m->n_state) {
        p->n_state_copy = s->n_state_copy ? s->n_state_copy : STATE_COPIES * s->n_slot + STATE_COPIES;
        p->n_state_mark = s->n_decode_rows > s->n_slot ? s->n_slot : 0;
    }
    const int n_row = PLAN_FLIGHTS * (s->n_batch + s->n_decode_rows), most = most_pages(s, m);
    for (int i = 0; i < m->n_kv_group; i++) {
        int pages = kv_pages_wanted(m->window[i], s->n_ctx, s->n_slot, n_row);
        if (pages == INT32_MAX)
            return err_set(INFER_E_INPUT, "%d slots of %d positions: too many pages", s->n_slot, s->n_ctx);
        if (pages > most) pages = most;
        p->kv_group[i] = (struct kv_group){m->window[i], pages, kv_pages_wanted(0, s->n_ctx, 1, 0)};
    }
    return INFER_OK;
}

/* Sizes of a part whose lists are there. */
static enum infer_status size_part(struct plan *p, struct plan_part *part,
                                   const struct plan_options *options) {
    struct backend_config *c = &part->config;
    for (int i = 0; i < ROW_CLASS_COUNT; i++) c->list[i] = &part->list[i];
    TRY(part->type->sizes(c, &part->size));
    c->copy_bytes = part->size.weight_bytes;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(plan_place_buffers(c->list[i], options->keep_all, &c->activation_bytes));
    if (!size_align(c->activation_bytes, 4096, &c->activation_bytes)) c->activation_bytes = SIZE_MAX;

    size_t bytes[] = {part->size.weight_bytes,    part->size.kv_bytes,     c->activation_bytes,
                      part->size.workspace_bytes, part->size.output_bytes, part->size.driver_bytes};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        if (!size_add(part->total_bytes, bytes[i], &part->total_bytes)) part->total_bytes = SIZE_MAX;
    bool card = part->type == options->place.device && options->place.memory.total_bytes;
    part->limit_bytes = card ? card_available(&options->place.memory, options) : host_memory_available();
    if (!card && part->limit_bytes != SIZE_MAX)
        part->limit_bytes /=
            (size_t)(options->ranks > 1 ? options->ranks : 1) * (size_t)(p->set.n_stage ? p->set.n_stage : 1);
    p->fits &= part->total_bytes <= part->limit_bytes && part->size.pinned_bytes <= host_memory_available();
    return INFER_OK;
}

bool plan_has_experts(const struct model *m, int n) {
    for (int i = 0; i < n; i++)
        if (m->layer[i].moe.n_expert) return true;
    return false;
}

bool plan_adapts_experts(const struct plan_options *o) {
    for (int i = 0; o->adapters && i < o->adapters->n; i++) {
        const struct adapter *a = o->adapters->adapter[i];
        for (int k = 0; a && k < a->n_part; k++)
            if (a->part[k].low.n_stack > 1) return true;
    }
    return false;
}

/* The experts of layers first .. end - 1 on the host. */
static enum infer_status plan_experts(struct plan *p, struct arena *arena, const struct model *m,
                                      const struct plan_options *options, int first, int end) {
    struct plan_part *part = &p->part[p->n_part++];
    int rows[] = {[ROW_PROMPT] = p->set.n_batch, [ROW_DECODE] = p->set.n_decode_rows};
    *part = (struct plan_part){.type = options->place.host,
                               .experts = true,
                               .range = {.first = first, .end = end, .n_ctx = p->set.n_ctx}};
    fill_config(&part->config, m, p, options);
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(forward_emit_experts(&part->list[i], arena, m, first, end, (enum row_class)i, rows[i]));
    return size_part(p, part, options);
}

/* Layers first .. end - 1 on a backend; the experts of those before n_remote are not there. */
static enum infer_status plan_part(struct plan *p, struct arena *arena, const struct model *m,
                                   const struct plan_options *options, const struct backend_type *type,
                                   struct layer_range range) {
    struct plan_part *part = &p->part[p->n_part++];
    struct backend_config *c = &part->config;
    *part = (struct plan_part){.type = type, .range = range};
    fill_config(c, m, p, options);
    part->range.hidden = options->hidden || model_drafts(m) || m->encoder;
    part->range.adapters = options->adapters;
    part->range.taps = options->taps;
    if (range.first || model_drafts(m)) { /* rows of the part before, or of whoever drafts */
        c->embedding = NULL;
        c->n_input = p->set.n_batch > p->set.n_decode_rows ? p->set.n_batch : p->set.n_decode_rows;
    }
    bool outputs = range.end == m->n_layer && !m->encoder;
    int rows[] = {[ROW_PROMPT] = p->set.n_batch, [ROW_DECODE] = p->set.n_decode_rows};
    int outs[] = {[ROW_PROMPT] = p->n_prompt_out, [ROW_DECODE] = p->set.n_decode_rows};
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(forward_emit(&part->list[i], arena, m, &part->range, (enum row_class)i, rows[i],
                         outputs ? outs[i] : 0));
    int most = !outputs ? 0 : outs[0] > outs[1] ? outs[0] : outs[1];
    c->n_logits = options->all_logits || most < LOGITS_ROWS ? most : LOGITS_ROWS;
    return size_part(p, part, options);
}

enum infer_status plan_lay_out(struct plan *p, struct arena *arena, const struct model *m,
                               const struct plan_options *options, const struct plan_settings *set) {
    const struct placement *place = &options->place;
    *p = (struct plan){.set = *set, .place = *place, .map_bytes = m->file->file_bytes, .fits = true};
    struct plan_settings *s = &p->set;
    if (s->slot_rows) s->n_decode_rows = s->n_slot;
    if (s->n_batch > (int64_t)s->n_ctx * s->n_slot) s->n_batch = s->n_ctx * s->n_slot;
    p->n_prompt_out = options->all_logits || s->n_batch < s->n_slot ? s->n_batch : s->n_slot;
    TRY(plan_kv(p, arena, m));
    for (int i = 0; i < s->n_stage; i++) {
        const struct layer_range stage = {
            .first = i ? s->stage_end[i - 1] : 0, .end = s->stage_end[i], .n_ctx = s->n_ctx};
        struct plan_options own = *options;
        if (options->stage) own.place = options->stage[i];
        TRY(plan_part(p, arena, m, &own, place->device, stage));
    }
    if (s->n_stage) return INFER_OK;
    int cut = m->n_layer - s->n_device_layer, away = m->n_layer - s->n_device_experts;
    if (cut > 0)
        TRY(plan_part(p, arena, m, options, place->host,
                      (struct layer_range){.end = cut, .n_ctx = s->n_ctx}));
    if (!plan_has_experts(m, away) || away < cut) away = cut;
    if (away > cut) TRY(plan_experts(p, arena, m, options, cut, away));
    if (cut == m->n_layer) return INFER_OK;
    return plan_part(
        p, arena, m, options, place->device,
        (struct layer_range){
            .first = cut, .end = m->n_layer, .n_ctx = s->n_ctx, .n_remote = away > cut ? away : 0});
}

enum infer_status plan_make(struct plan *out, struct arena *arena, const struct model *m,
                            const struct plan_options *options) {
    struct plan_settings set = {0};
    struct plan found = {0};
    TRY(read_options(&set, arena, m, options));
    TRY(plan_search(&found, m, options, &set));
    TRY(plan_lay_out(out, arena, m, options, &set));
    out->rates = found.rates, out->experts = found.experts, out->layers = found.layers;
    const bool named = options->place.memory.total_bytes && out->n_part > 1;
    if (named && !out->experts.there && !out->layers.there) {
        plan_rates_find(options, &out->rates);
        *(out->part[0].experts ? &out->experts : &out->layers) = plan_share_of(out, &out->rates);
    }
    if (!out->fits) TRY(plan_nearest(out, m, options));
    return plan_write(out, arena, m);
}

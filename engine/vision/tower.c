/* Towers opened, and pictures through them. */
#include "vision/tower_impl.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- open ---------------------------------------------------------------------------------------------------- */

/* A vector for each patch of a picture of one size. */
static enum infer_status check_table(const struct tower *t) {
    const int n = t->image_size / t->patch;
    if (t->places != TABLE_SQUARE || n * n == t->n_table) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: v.position_embd.weight has %d rows, pictures of %d pixels a side %d patches",
                   t->file->path, t->n_table, t->image_size, n * n);
}

/* Rows of a picture: what the caller says, else the file, else the family. */
static enum infer_status bound_tokens(struct tower *t) {
    const struct tower_family *f = t->family;
    const struct tower_options *o = &t->options;
    const int area = tower_side(t) * tower_side(t);
    t->min_tokens = t->min_pixels ? (t->min_pixels + area - 1) / area : f->min_tokens;
    t->max_tokens = t->max_pixels ? t->max_pixels / area : f->max_tokens;
    if (!t->edge) t->edge = f->edge;
    if (f->rule == FIT_EDGE) {
        const int side = (t->edge + tower_side(t) - 1) / tower_side(t);
        t->max_tokens = side * side;
    }
    if (f->rule == FIT_FIXED) {
        if (!t->image_size || t->image_size % tower_side(t))
            return err_set(INFER_E_INPUT, "%s: pictures of %d pixels a side, rows of %d", t->file->path,
                           t->image_size, tower_side(t));
        t->min_tokens = t->max_tokens = t->image_size / tower_side(t) * (t->image_size / tower_side(t));
        if (o->max_tokens && o->max_tokens < t->max_tokens)
            return err_set(INFER_E_INPUT,
                           "%s: pictures of this tower have %d rows; at most %d were asked for",
                           t->file->path, t->max_tokens, o->max_tokens);
    } else {
        if (tower_rule_tiles(f->rule)) TRY(tower_bound_tiles(t));
        if (o->max_tokens) t->max_tokens = o->max_tokens;
        if (o->min_tokens) t->min_tokens = o->min_tokens;
    }
    if (t->max_tokens < 1 || t->max_tokens > 1 << 16)
        return err_set(INFER_E_INPUT, "%s: pictures of at most %d rows", t->file->path, t->max_tokens);
    if (t->min_tokens > t->max_tokens) t->min_tokens = t->max_tokens;
    return INFER_OK;
}

static enum infer_status check_text_model(const struct tower *t) {
    const struct tower_options *o = &t->options;
    if (!o->n_embd || (o->n_embd == t->n_out && o->n_deepstack == t->n_deepstack)) return INFER_OK;
    if (o->n_embd != t->n_out)
        return err_set(INFER_E_INPUT, "%s: wrong mmproj: its rows have %d numbers, the model's embeddings %d",
                       t->file->path, t->n_out, o->n_embd);
    return err_set(INFER_E_INPUT,
                   "%s: wrong mmproj: its rows have %d parts for later layers, the model takes %d",
                   t->file->path, t->n_deepstack, o->n_deepstack);
}

static enum infer_status take_arrays(struct tower *t) {
    const size_t n = (size_t)t->max_rows;
    t->pixels = arena_alloc(&t->arena, n * (size_t)t->in_width * sizeof *t->pixels);
    t->input = arena_alloc(&t->arena, n * sizeof *t->input);
    t->id = arena_alloc(&t->arena, n * sizeof *t->id);
    t->slot = arena_alloc(&t->arena, n * sizeof *t->slot);
    t->out_row = arena_alloc(&t->arena, n * sizeof *t->out_row);
    t->want = arena_alloc(&t->arena, n);
    for (int i = 0; i < 3; i++) t->place[i] = arena_alloc(&t->arena, n * sizeof *t->place[i]);
    if (t->pixels && t->input && t->id && t->slot && t->out_row && t->want && t->place[0] && t->place[1] &&
        t->place[2])
        return INFER_OK;
    return err_set(INFER_E_MEMORY, "%s: out of memory for pictures of %d rows", t->file->path, t->max_tokens);
}

static enum infer_status open_backend(struct tower *t) {
    const struct backend_type *type = t->options.backend ? t->options.backend : &backend_cpu;
    struct backend_config *c = &t->config;
    *c = (struct backend_config){.group = t->group,
                                 .n_group = t->n_group,
                                 .n_vocab = 1,
                                 .n_input = t->max_rows,
                                 .card = t->options.card,
                                 .cuda = t->options.cuda,
                                 .n_embd = t->n_embd,
                                 .n_slot = t->window || (t->late && !t->n_query) ? t->max_out : 1,
                                 .n_ctx = 1,
                                 .cpu = t->options.cpu,
                                 .strict_fp32 = t->options.strict_fp32,
                                 .list = {&t->list[0], &t->list[1]}};
    TRY(t->options.plan == TOWER_PLAN_CARD ? cuda_sizes(c, &t->sizes) : type->sizes(c, &t->sizes));
    c->copy_bytes = t->sizes.weight_bytes;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(plan_place_buffers(c->list[i], false, &c->activation_bytes));
    if (t->options.plan) return INFER_OK;
    TRY(type->open(&t->backend, c));
    TRY(type->upload(t->backend));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) TRY(type->compile(t->backend, (enum row_class)i));
    return INFER_OK;
}

/* The blocks behind the middle, or what queries see, as a tower of its own with the same weights. */
static enum infer_status open_late(struct tower *t) {
    struct tower *late;
    TRY(mem_new(&late, sizeof *late, "a tower"));
    *late = *t;
    late->arena = (struct arena){0};
    t->late = late;
    t->last = late->first = t->n_query ? t->n_layer : t->middle_at + 1;
    late->max_rows = t->n_query ? t->n_query + t->max_rows : 4 * t->max_out;
    late->in_width = t->n_embd + (t->n_query ? t->n_out : 0);
    if (t->n_query)
        late->max_out = t->n_query;
    else
        t->max_out *= 4;
    late->group = arena_alloc(&late->arena, ((size_t)t->n_group + 1) * sizeof *late->group);
    if (!late->group) return err_set(INFER_E_MEMORY, "%s: out of memory for blocks", t->file->path);
    for (int i = 0; i < t->n_group; i++) { /* those in the structure itself are copies now */
        const char *g = (const char *)t->group[i], *from = (const char *)t;
        const bool own = g >= from && g < from + sizeof *t;
        late->group[i] = own ? (const struct weight_group *)((const char *)late + (g - from)) : t->group[i];
    }
    TRY(take_arrays(late));
    TRY(tower_emit(late));
    return open_backend(late);
}

static enum infer_status open_file(struct tower *t, const char *path) {
    const struct tensorfile_options o = {
        .no_mmap = t->options.no_mmap, .tower = true, .ignore = t->options.ignore};
    TRY(tensorfile_open(&t->file, path, &o));
    TRY(tower_read_keys(t));
    TRY(tower_bind(t));
    TRY(check_text_model(t));
    TRY(check_table(t));
    TRY(bound_tokens(t));
    if (!t->max_out) t->max_out = t->max_tokens;
    t->max_rows = t->max_out * t->merge * t->merge + t->family->class_row;
    t->in_width = t->patch_embd.w.k + (t->places != TABLE_NONE ? t->n_embd : 0);
    t->last = t->n_layer;
    if (t->middle_at >= 0 || t->n_query) TRY(open_late(t));
    TRY(take_arrays(t));
    tower_levels(t);
    TRY(tower_emit(t));
    return open_backend(t);
}

enum infer_status tower_open(struct tower **out, const char *path, const struct tower_options *options) {
    struct tower *t;
    *out = NULL;
    TRY(mem_new(&t, sizeof *t, "a tower"));
    if (options) t->options = *options;
    enum infer_status s = open_file(t, path);
    if (s)
        tower_close(t);
    else
        *out = t;
    return s;
}

void tower_close(struct tower *t) {
    if (!t) return;
    if (t->backend) t->backend->type->close(t->backend);
    if (t->late) {
        if (t->late->backend) t->late->backend->type->close(t->late->backend);
        arena_free(&t->late->arena);
        mem_free(t->late);
    }
    image_free(&t->picture);
    image_free(&t->over);
    arena_free(&t->arena);
    tensorfile_close(t->file);
    mem_free(t);
}

static size_t taken_by(const struct tower *t) {
    return t->config.activation_bytes + t->sizes.weight_bytes + t->sizes.workspace_bytes +
           t->sizes.output_bytes;
}

void tower_info(const struct tower *t, struct tower_info *out) {
    const struct tower_family *f = t->family;
    const size_t taken = taken_by(t) + (t->late ? taken_by(t->late) + t->late->arena.total : 0);
    const bool card =
        t->backend ? strcmp(t->backend->type->name, "cuda") == 0 : t->options.plan == TOWER_PLAN_CARD;
    *out = (struct tower_info){
        .projector = f->projector,
        .path = t->file->path,
        .n_embd = t->n_out,
        .n_deepstack = t->n_deepstack,
        .min_tokens = t->min_tokens,
        .max_tokens = t->max_tokens,
        .three_positions = f->three_positions,
        .both_ways = f->both_ways,
        .placeholder = f->placeholder,
        .before = f->before ? f->before : "",
        .after = f->after ? f->after : "",
        .weight_bytes = t->weight_bytes,
        .memory_bytes = t->arena.total + taken + t->file->made_bytes,
        .device_bytes = card ? taken : 0,
    };
}

enum infer_status tower_probe(const char *path, char projector[64], bool *there) {
    struct tensorfile *f;
    const struct tensorfile_options o = {.tower = true, .vocab_only = true};
    struct str type;
    bool has = false, key;
    *there = false;
    projector[0] = 0;
    TRY(tensorfile_open(&f, path, &o));
    enum infer_status s = meta_bool(f, "clip.has_vision_encoder", &has, &key);
    if (!s && has) s = meta_str(f, "clip.vision.projector_type", &type, &key);
    if (!s && has && !key) s = meta_str(f, "clip.projector_type", &type, &key);
    if (!s && has && key) {
        snprintf(projector, 64, "%.*s", (int)(type.len < 63 ? type.len : 63), type.data);
        *there = tower_family_find(type.data, type.len) != NULL;
    }
    tensorfile_close(f);
    return s;
}

/* ---- a picture ------------------------------------------------------------------------------------------------- */

/* Another size, or a copy. */
static enum infer_status sized(const struct tower *t, const struct image *p, int width, int height,
                               struct image *out) {
    const size_t n = (size_t)p->width * (size_t)p->height * 3;
    if (p->width != width || p->height != height)
        return image_resize(p, width, height, t->family->filter, out);
    *out = (struct image){width, height, NULL};
    TRY(mem_new(&out->rgb, n, "a picture"));
    memcpy(out->rgb, p->rgb, n);
    return INFER_OK;
}

/* Black pixels on the right and below. */
static enum infer_status padded(const struct image *p, int width, int height, struct image *out) {
    const size_t line = (size_t)p->width * 3, bytes = (size_t)width * (size_t)height * 3;
    *out = (struct image){width, height, NULL};
    TRY(mem_new(&out->rgb, bytes, "a picture"));
    memset(out->rgb, 0, bytes);
    for (int y = 0; y < p->height; y++)
        memcpy(out->rgb + (size_t)y * (size_t)width * 3, p->rgb + (size_t)y * line, line);
    return INFER_OK;
}

enum infer_status tower_begin(struct tower *t, const struct image *image, const struct tower_fit *f) {
    struct image mid = {0};
    if (image->width != f->width || image->height != f->height)
        return err_set(INFER_E_INPUT, "a picture of %d x %d, looked at as one of %d x %d", image->width,
                       image->height, f->width, f->height);
    image_free(&t->picture);
    image_free(&t->over);
    t->fit = *f;
    t->piece = t->n_row = 0;
    t->going = false;
    if (t->late) t->late->n_row = 0, t->late->going = false;
    if (f->mid_width) TRY(sized(t, image, f->mid_width, f->mid_height, &mid));
    const enum infer_status s =
        f->padded ? padded(&mid, f->to_width, f->to_height, &t->picture)
                  : sized(t, f->mid_width ? &mid : image, f->to_width, f->to_height, &t->picture);
    image_free(&mid);
    if (s || !f->over_width) return s;
    return sized(t, f->mid_width && !f->padded ? &t->picture : image, f->over_width, f->over_height,
                 &t->over);
}

/* The t->n_row rows of t->input to n_out of out, for about so long. */
static enum infer_status run(struct tower *t, double seconds, int n_out, float *out, bool *done) {
    const struct backend_type *type = t->backend->type;
    struct step_result result;
    for (int i = 0; i < n_out; i++) t->out_row[i] = i;
    const struct step s = {.n_row = t->n_row,
                           .n_out = n_out,
                           .id = t->id,
                           .pos = t->place[0],
                           .slot = t->slot,
                           .out_row = t->out_row,
                           .want = t->want,
                           .input = t->input,
                           .axis = {t->place[0], t->place[1], t->place[2]}};
    *done = !t->going;
    if (!type->run_some) TRY(type->run(t->backend, ROW_PROMPT, &s));
    if (type->run_some) TRY(type->run_some(t->backend, ROW_PROMPT, &s, seconds, done));
    t->going = !*done;
    if (t->going) return INFER_OK;
    TRY(type->wait(t->backend, &result));
    return type->read(t->backend, ROW_PROMPT, t->rows, n_out, out);
}

/* Behind the middle, or before the queries, if the tower has such: rows of the first list are input of the second. */
static enum infer_status step_late(struct tower *t, double seconds, const struct tower_piece *p, float *out,
                                   bool *done) {
    struct tower *late = t->late;
    if (!late->n_row) {
        const int n = t->n_query ? t->n_row : t->n_row / 4;
        TRY(run(t, seconds, n, late->pixels + (size_t)t->n_query * (size_t)late->in_width, done));
        if (!*done) return INFER_OK;
        if (t->n_query) tower_put_seen(t, p);
        late->n_row = t->n_query + n;
        for (int i = 0; i < late->n_row; i++)
            late->input[i] = late->pixels + (size_t)i * (size_t)late->in_width;
    }
    TRY(run(late, seconds, p->n_row, out, done));
    if (*done) late->n_row = 0;
    return INFER_OK;
}

enum infer_status tower_step(struct tower *t, double seconds, float *rows, bool *done) {
    const size_t width = (size_t)t->n_out * (1 + (size_t)t->n_deepstack);
    struct tower_piece p;
    *done = false;
    if (!t->picture.rgb) return err_set(INFER_E_INPUT, "no picture was begun");
    tower_piece(t, &t->fit, t->piece, &p);
    if (!t->n_row) t->n_row = tower_put_rows(t, &p);
    float *out = rows + (size_t)p.first_row * width;
    TRY(t->late ? step_late(t, seconds, &p, out, done) : run(t, seconds, p.n_row, out, done));
    if (!*done) return INFER_OK;
    t->n_row = 0;
    *done = ++t->piece == t->fit.n_piece;
    if (*done) image_free(&t->picture), image_free(&t->over);
    return INFER_OK;
}

enum infer_status tower_encode(struct tower *t, const struct image *image, const struct tower_fit *f,
                               float *rows) {
    bool done = false;
    TRY(tower_begin(t, image, f));
    while (!done) TRY(tower_step(t, 3600, rows, &done));
    return INFER_OK;
}

void tower_cancel(struct tower *t) {
    t->backend->type->cancel(t->backend);
    if (t->late) t->late->backend->type->cancel(t->late->backend);
}

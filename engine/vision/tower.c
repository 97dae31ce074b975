/* Towers opened, and pictures through them. */
#include "vision/tower_impl.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- open ---------------------------------------------------------------------------------------------------- */

/* A piece has what its square gives; a picture, tiles of edge x edge and the whole of it. */
static enum infer_status bound_tiles(struct tower *t) {
    const int side = tower_side(t),
              tiles = (t->edge + t->image_size - 1) / (t->image_size ? t->image_size : 1);
    if (!t->image_size || t->image_size % side)
        return err_set(INFER_E_INPUT, "%s: tiles of %d pixels a side, rows of %d", t->file->path,
                       t->image_size, side);
    t->max_out = t->image_size / side * (t->image_size / side);
    t->min_tokens = t->max_out, t->max_tokens = (tiles * tiles + 1) * t->max_out;
    if (t->options.max_tokens && t->options.max_tokens < t->max_out)
        return err_set(INFER_E_INPUT, "%s: tiles of this tower have %d rows; at most %d were asked for",
                       t->file->path, t->max_out, t->options.max_tokens);
    return INFER_OK;
}

/* A vector for each patch of a picture of one size. */
static enum infer_status check_table(const struct tower *t) {
    const int n = t->image_size / t->patch;
    if (t->family->table != TABLE_SQUARE || n * n == t->n_table) return INFER_OK;
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
        if (f->rule == FIT_TILES) TRY(bound_tiles(t));
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
    t->out_row = arena_alloc(&t->arena, n * sizeof *t->out_row);
    t->want = arena_alloc(&t->arena, n);
    for (int i = 0; i < 3; i++) t->place[i] = arena_alloc(&t->arena, n * sizeof *t->place[i]);
    if (t->pixels && t->input && t->id && t->out_row && t->want && t->place[0] && t->place[1] && t->place[2])
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
                                 .n_slot = 1,
                                 .n_ctx = 1,
                                 .cpu = t->options.cpu,
                                 .strict_fp32 = t->options.strict_fp32,
                                 .list = {&t->list[0], &t->list[1]}};
    TRY(type->sizes(c, &t->sizes));
    c->copy_bytes = t->sizes.weight_bytes;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        TRY(plan_place_buffers(c->list[i], false, &c->activation_bytes));
    TRY(type->open(&t->backend, c));
    TRY(type->upload(t->backend));
    for (int i = 0; i < ROW_CLASS_COUNT; i++) TRY(type->compile(t->backend, (enum row_class)i));
    return INFER_OK;
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
    t->max_rows = t->max_out * t->merge * t->merge;
    t->in_width = t->patch_embd.w.k + (t->family->table != TABLE_NONE ? t->n_embd : 0);
    TRY(take_arrays(t));
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
    image_free(&t->picture);
    arena_free(&t->arena);
    tensorfile_close(t->file);
    mem_free(t);
}

void tower_info(const struct tower *t, struct tower_info *out) {
    const struct tower_family *f = t->family;
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
        .memory_bytes = t->arena.total + t->config.activation_bytes + t->sizes.weight_bytes +
                        t->sizes.workspace_bytes + t->sizes.output_bytes + t->file->made_bytes,
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

enum infer_status tower_begin(struct tower *t, const struct image *image, const struct tower_fit *f) {
    const size_t n = (size_t)image->width * (size_t)image->height * 3;
    if (image->width != f->width || image->height != f->height)
        return err_set(INFER_E_INPUT, "a picture of %d x %d, looked at as one of %d x %d", image->width,
                       image->height, f->width, f->height);
    image_free(&t->picture);
    t->fit = *f;
    t->piece = 0;
    if (f->mid_width) { /* in two steps */
        struct image mid;
        TRY(image_resize(image, f->mid_width, f->mid_height, t->family->filter, &mid));
        const enum infer_status s =
            image_resize(&mid, f->to_width, f->to_height, t->family->filter, &t->picture);
        image_free(&mid);
        return s;
    }
    t->picture = (struct image){image->width, image->height, NULL};
    TRY(mem_new(&t->picture.rgb, n, "a picture"));
    memcpy(t->picture.rgb, image->rgb, n);
    return INFER_OK;
}

enum infer_status tower_step(struct tower *t, float *rows, bool *done) {
    const struct backend_type *type = t->backend->type;
    const size_t width = (size_t)t->n_out * (1 + (size_t)t->n_deepstack);
    struct step_result result;
    int n_row, n_out = t->fit.n_token / t->fit.n_piece;
    *done = false;
    if (!t->picture.rgb) return err_set(INFER_E_INPUT, "no picture was begun");
    TRY(tower_put_rows(t, &n_row));
    for (int i = 0; i < n_out; i++) t->out_row[i] = i;
    const struct step s = {.n_row = n_row,
                           .n_out = n_out,
                           .id = t->id,
                           .pos = t->place[0],
                           .slot = t->id,
                           .out_row = t->out_row,
                           .want = t->want,
                           .input = t->input,
                           .axis = {t->place[0], t->place[1], t->place[2]}};
    TRY(type->run(t->backend, ROW_PROMPT, &s));
    TRY(type->wait(t->backend, &result));
    TRY(type->read(t->backend, ROW_PROMPT, t->rows, n_out, rows + (size_t)t->piece * (size_t)n_out * width));
    *done = ++t->piece == t->fit.n_piece;
    if (*done) image_free(&t->picture);
    return INFER_OK;
}

enum infer_status tower_encode(struct tower *t, const struct image *image, const struct tower_fit *f,
                               float *rows) {
    bool done = false;
    TRY(tower_begin(t, image, f));
    while (!done) TRY(tower_step(t, rows, &done));
    return INFER_OK;
}

void tower_cancel(struct tower *t) { t->backend->type->cancel(t->backend); }

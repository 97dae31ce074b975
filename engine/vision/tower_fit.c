/* What size a picture gets, and where its rows stand. sources: HF's image_processing_* and processing_* of each family. */
#include "vision/tower_impl.h"

#include <math.h>
#include <stdio.h>

enum { ASPECT_MAX = 200 };

static int most(int a, int b) { return a > b ? a : b; }

/* Sides are multiples of side, near those of the picture, within the bounds of pixels; halves go to even, as in Python. source: HF
 * image_processing_qwen2_vl */
void tower_near_size(int side, int least, int low, int high, const struct tower_fit *f, int *to_width,
                     int *to_height) {
    const double w = f->width, h = f->height, min = (double)low * side * side,
                 max = (double)high * side * side;
    double to_h = fmax(least, nearbyint(h / side) * side), to_w = fmax(least, nearbyint(w / side) * side);
    if (to_h * to_w > max) {
        const double beta = sqrt(h * w / max);
        to_h = fmax(side, floor(h / beta / side) * side);
        to_w = fmax(side, floor(w / beta / side) * side);
    } else if (to_h * to_w < min) {
        const double beta = sqrt(min / (h * w));
        to_h = ceil(h * beta / side) * side;
        to_w = ceil(w * beta / side) * side;
    }
    /* a strip whose short side cannot become shorter: the long one does, where the processor takes more than it may */
    if (to_h * to_w > max && to_h >= to_w) to_h = high / (int)(to_w / side) * side;
    if (to_h * to_w > max) to_w = high / (int)(to_h / side) * side;
    *to_width = (int)to_w, *to_height = (int)to_h;
}

static enum infer_status fit_smart(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t);
    struct tower_fit g = *f;
    if (t->family->grow && (f->width < side || f->height < side)) { /* source: HF image_processing_glm4v */
        const double scale = fmax((double)side / f->height, (double)side / f->width);
        g.width = (int)(f->width * scale), g.height = (int)(f->height * scale);
    }
    const double w = g.width, h = g.height;
    if (fmax(w, h) / fmin(w, h) > ASPECT_MAX)
        return err_set(INFER_E_INPUT,
                       "a picture of %d x %d: sides of this model's pictures differ by %d times at most",
                       f->width, f->height, ASPECT_MAX);
    tower_near_size(side, 0, t->min_tokens, t->max_tokens, &g, &f->to_width, &f->to_height);
    return INFER_OK;
}

/* The largest sides of the picture's shape that give no more rows than max_tokens. source: HF image_processing_gemma4 */
static enum infer_status fit_budget(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t), longest = t->max_tokens * side;
    const double pixels = (double)t->max_tokens * side * side,
                 factor = sqrt(pixels / ((double)f->height * f->width));
    int h = (int)floor(factor * f->height / side) * side, w = (int)floor(factor * f->width / side) * side;
    if (!h && !w) h = w = side;
    if (!h) {
        h = side, w = f->width / f->height > longest / side ? longest : f->width / f->height * side;
    } else if (!w) {
        w = side, h = f->height / f->width > longest / side ? longest : f->height / f->width * side;
    }
    f->to_width = w, f->to_height = h;
    return INFER_OK;
}

/* No side longer than edge, then up to multiples of side. source: HF image_processing_pixtral */
static enum infer_status fit_edge(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t);
    for (int edge = t->edge;; edge -= side) { /* fewer pixels until there are few enough rows */
        const double ratio = fmax((double)f->height / edge, (double)f->width / edge);
        int h = f->height, w = f->width;
        if (ratio > 1) h = (int)floor(h / ratio), w = (int)floor(w / ratio);
        h = (most(h, 1) - 1) / side + 1, w = (most(w, 1) - 1) / side + 1;
        f->to_width = w * side, f->to_height = h * side;
        if ((int64_t)w * h <= t->max_tokens || edge <= side) return INFER_OK;
    }
}

static enum infer_status fit_fixed(const struct tower *t, struct tower_fit *f) {
    f->to_width = f->to_height = t->image_size;
    return INFER_OK;
}

void tower_piece(const struct tower *t, const struct tower_fit *f, int piece, struct tower_piece *out) {
    const int n = tower_rows_of(t, f->grid_x * f->grid_y), side = tower_side(t),
              over_x = f->over_width / side, over_y = f->over_height / side;
    const bool first = f->over_width && t->family->over_first,
               over = f->over_width && piece == (first ? 0 : f->tiles_x * f->tiles_y);
    const int tile = piece - first;
    *out = (struct tower_piece){
        .over = over,
        .tile = tile,
        .grid_x = over ? over_x : f->grid_x,
        .grid_y = over ? over_y : f->grid_y,
        .first_row = over && first ? 0 : (first ? tower_rows_of(t, over_x * over_y) : 0) + tile * n};
    out->n_row = tower_rows_of(t, out->grid_x * out->grid_y);
    if (over || !f->tiles_x) return;
    out->x = tile % f->tiles_x * (f->to_width / f->tiles_x);
    out->y = tile / f->tiles_x * (f->to_height / f->tiles_y);
}

enum infer_status tower_fit(const struct tower *t, int width, int height, struct tower_fit *out) {
    static enum infer_status (*const rule[])(const struct tower *,
                                             struct tower_fit *) = {[FIT_SMART] = fit_smart,
                                                                    [FIT_BUDGET] = fit_budget,
                                                                    [FIT_EDGE] = fit_edge,
                                                                    [FIT_FIXED] = fit_fixed,
                                                                    [FIT_TILES] = tower_fit_tiles,
                                                                    [FIT_GRID] = tower_fit_grid,
                                                                    [FIT_NEAR_GRID] = tower_fit_near_grid,
                                                                    [FIT_CANVAS] = tower_fit_canvas,
                                                                    [FIT_SLICES] = tower_fit_slices};
    const struct tower_family *family = t->family;
    *out = (struct tower_fit){.width = width, .height = height, .n_piece = 1};
    if (width < 1 || height < 1 || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX)
        return err_set(INFER_E_INPUT, "a picture of %d x %d", width, height);
    TRY(rule[family->rule](t, out));
    out->grid_x = out->to_width / (out->tiles_x ? out->tiles_x : 1) / tower_side(t);
    out->grid_y = out->to_height / (out->tiles_y ? out->tiles_y : 1) / tower_side(t);
    out->n_piece = out->tiles_x ? out->tiles_x * out->tiles_y + (out->over_width > 0) : 1;
    struct tower_piece last;
    tower_piece(t, out, out->n_piece - 1, &last);
    out->n_token = last.first_row + last.n_row;
    if (out->n_token < 1 || out->n_token > t->max_tokens)
        return err_set(INFER_E_INPUT, "a picture of %d x %d has %d rows, more than %d", width, height,
                       out->n_token, t->max_tokens);
    if (family->table == TABLE_TWO && most(out->grid_x, out->grid_y) * t->merge > t->n_table)
        return err_set(INFER_E_INPUT,
                       "a picture of %d x %d: more than the %d lines or columns that this tower knows", width,
                       height, t->n_table / t->merge);
    out->n_part = (tower_rule_tiles(family->rule) ? out->n_piece
                   : family->row_end              ? out->grid_y
                                                  : 1) +
                  (family->end != NULL);
    return INFER_OK;
}

void tower_part(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out) {
    const struct tower_family *family = t->family;
    if (tower_rule_tiles(family->rule)) {
        tower_part_of_tiles(t, f, part, out);
        return;
    }
    const int lines = family->row_end ? f->grid_y : 1, n = f->n_token / lines;
    const char *text = part == lines ? family->end : part ? family->row_end : family->start;
    *out = (struct tower_part){.first_row = part * n, .n_row = part < lines ? n : 0};
    snprintf(out->text, sizeof out->text, "%s", text ? text : "");
}

void tower_positions(const struct tower *t, const struct tower_fit *f, int part, int pos, int32_t (*axis)[3],
                     int *next) {
    struct tower_part p;
    tower_part(t, f, part, &p);
    const bool three = t->family->three_positions;
    for (int i = 0; i < p.n_row; i++) {
        const int line = (p.first_row + i) / f->grid_x, column = (p.first_row + i) % f->grid_x;
        axis[i][0] = three ? pos : pos + i;
        axis[i][1] = three ? pos + line : pos + i;
        axis[i][2] = three ? pos + column : pos + i;
    }
    *next = pos + (!three ? p.n_row : p.n_row ? most(f->grid_x, f->grid_y) : 0);
}

/* What size a picture gets, and where its rows stand. sources: HF's image_processing_* and processing_* of each family. */
#include "vision/tower_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASPECT_MAX = 200 };

static int most(int a, int b) { return a > b ? a : b; }

/* Sides are multiples of side, near those of the picture, within the bounds of pixels; halves go to even, as in Python. source: HF
 * image_processing_qwen2_vl */
static enum infer_status fit_smart(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t);
    const double w = f->width, h = f->height, low = (double)t->min_tokens * side * side,
                 high = (double)t->max_tokens * side * side;
    if (fmax(w, h) / fmin(w, h) > ASPECT_MAX)
        return err_set(INFER_E_INPUT,
                       "a picture of %d x %d: sides of this model's pictures differ by %d times at most",
                       f->width, f->height, ASPECT_MAX);
    double to_h = nearbyint(h / side) * side, to_w = nearbyint(w / side) * side;
    if (to_h * to_w > high) {
        const double beta = sqrt(h * w / high);
        to_h = fmax(side, floor(h / beta / side) * side);
        to_w = fmax(side, floor(w / beta / side) * side);
    } else if (to_h * to_w < low) {
        const double beta = sqrt(low / (h * w));
        to_h = ceil(h * beta / side) * side;
        to_w = ceil(w * beta / side) * side;
    }
    /* a strip whose short side cannot become shorter: the long one does, where the processor takes more than it may */
    if (to_h * to_w > high && to_h >= to_w) to_h = t->max_tokens / (int)(to_w / side) * side;
    if (to_h * to_w > high) to_w = t->max_tokens / (int)(to_h / side) * side;
    f->to_width = (int)to_w, f->to_height = (int)to_h;
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

static int whole(double x, int side) { return (int)ceil(x / side) * side; }

/* The longer side becomes edge, then both multiples of a tile, by the aspect of what the first step gave. source: HF
 * image_processing_idefics3 */
static void tiles_of(const struct tower *t, int edge, struct tower_fit *f) {
    const bool wide = f->width >= f->height;
    const double aspect = (double)f->width / f->height;
    int *longer = wide ? &f->mid_width : &f->mid_height, *shorter = wide ? &f->mid_height : &f->mid_width;
    *longer = edge;
    *shorter = (int)(wide ? edge / aspect : edge * aspect);
    *shorter = most(*shorter + *shorter % 2, 1);
    const double mid = (double)f->mid_width / f->mid_height;
    const int to = whole(edge, t->image_size),
              other = whole((int)(wide ? to / mid : to * mid), t->image_size);
    f->to_width = wide ? to : most(other, t->image_size),
    f->to_height = wide ? most(other, t->image_size) : to;
    f->tiles_x = f->to_width / t->image_size, f->tiles_y = f->to_height / t->image_size;
}
static enum infer_status fit_tiles(const struct tower *t, struct tower_fit *f) {
    for (int edge = t->edge;; edge -= t->image_size) { /* fewer pixels until there are few enough rows */
        tiles_of(t, edge, f);
        f->overview = f->tiles_x * f->tiles_y > 1;
        f->n_piece = f->tiles_x * f->tiles_y + f->overview;
        if (f->n_piece * t->max_out <= t->max_tokens || edge <= t->image_size) return INFER_OK;
    }
}

/* In front of a piece: where it stands; behind the last: that it ends. source: HF processing_idefics3 */
static void part_of_tiles(const struct tower_fit *f, int part, struct tower_part *out) {
    static const char around[] = "<fake_token_around_image>";
    const int n = f->n_token / f->n_piece, line = f->tiles_x ? part / f->tiles_x : 0;
    const bool over = part == f->n_piece - 1 && (f->overview || f->n_piece == 1);
    *out = (struct tower_part){.first_row = part * n, .n_row = part < f->n_piece ? n : 0};
    if (part == f->n_piece)
        snprintf(out->text, sizeof out->text, "%s", around);
    else if (over)
        snprintf(out->text, sizeof out->text, "%s%s<global-img>", f->overview ? "\n\n" : "", around);
    else
        snprintf(out->text, sizeof out->text, "%s%s<row_%d_col_%d>",
                 part && part % f->tiles_x == 0 ? "\n" : "", around, line + 1, part % f->tiles_x + 1);
}

enum infer_status tower_fit(const struct tower *t, int width, int height, struct tower_fit *out) {
    static enum infer_status (*const rule[])(const struct tower *,
                                             struct tower_fit *) = {[FIT_SMART] = fit_smart,
                                                                    [FIT_BUDGET] = fit_budget,
                                                                    [FIT_EDGE] = fit_edge,
                                                                    [FIT_FIXED] = fit_fixed,
                                                                    [FIT_TILES] = fit_tiles};
    const struct tower_family *family = t->family;
    *out = (struct tower_fit){.width = width, .height = height, .n_piece = 1};
    if (width < 1 || height < 1 || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX)
        return err_set(INFER_E_INPUT, "a picture of %d x %d", width, height);
    TRY(rule[family->rule](t, out));
    const bool tiles = family->rule == FIT_TILES;
    out->grid_x = (tiles ? t->image_size : out->to_width) / tower_side(t);
    out->grid_y = (tiles ? t->image_size : out->to_height) / tower_side(t);
    out->n_token = out->grid_x * out->grid_y * out->n_piece;
    if (out->n_token < 1 || out->n_token > t->max_tokens)
        return err_set(INFER_E_INPUT, "a picture of %d x %d has %d rows, more than %d", width, height,
                       out->n_token, t->max_tokens);
    if (family->table == TABLE_TWO && most(out->grid_x, out->grid_y) * t->merge > t->n_table)
        return err_set(INFER_E_INPUT,
                       "a picture of %d x %d: more than the %d lines or columns that this tower knows", width,
                       height, t->n_table / t->merge);
    if (tiles) out->n_part = out->n_piece + 1;
    if (tiles) return INFER_OK;
    out->n_part = (family->row_end ? out->grid_y : 1) + (family->end != NULL);
    return INFER_OK;
}

void tower_part(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out) {
    const struct tower_family *family = t->family;
    if (family->rule == FIT_TILES) {
        part_of_tiles(f, part, out);
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

/* Pictures in tiles: what size they get, and what text stands around them. sources: HF's image_processing_* and processing_* of each
 * family. */
#include "vision/tower_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int most(int a, int b) { return a > b ? a : b; }
static int whole(double x, int side) { return (int)ceil(x / side) * side; }

/* Rows of a picture: tiles of edge x edge and the whole of it, or as many tiles as there may be. */
enum infer_status tower_bound_tiles(struct tower *t) {
    const bool near = t->family->rule == FIT_NEAR_GRID;
    const int side = tower_side(t), asked = t->options.max_tokens;
    t->tile = near ? t->edge : t->image_size;
    if (!t->tile || t->tile % side)
        return err_set(INFER_E_INPUT, "%s: tiles of %d pixels a side, rows of %d", t->file->path, t->tile,
                       side);
    const int a_side = (t->edge + t->tile - 1) / t->tile,
              tiles = t->family->rule == FIT_TILES ? a_side * a_side : t->max_tiles;
    const int squares = t->tile / side * (t->tile / side);
    t->tile_out = tower_rows_of(t, squares);
    t->max_whole = near ? t->max_tokens : t->tile_out;
    t->min_whole = near ? t->min_tokens : t->tile_out;
    if (near && asked && t->max_whole > asked) t->max_whole = asked;
    if (t->min_whole > t->max_whole) t->min_whole = t->max_whole;
    if (t->family->rule == FIT_SLICES && !t->n_query) /* of another shape than a tile's they may have more */
        t->max_whole = asked && asked < 2 * t->tile_out ? most(asked, t->tile_out) : 2 * t->tile_out;
    t->max_out = most(t->tile_out, t->max_whole);
    t->min_tokens = t->min_whole,
    t->max_tokens = tiles * (t->family->rule == FIT_SLICES ? t->max_out : t->tile_out) + t->max_whole;
    if (t->n_query) t->max_out = 2 * squares; /* what they see */
    if (asked && asked < most(t->tile_out, t->min_whole))
        return err_set(INFER_E_INPUT, "%s: tiles of this tower have %d rows; at most %d were asked for",
                       t->file->path, t->tile_out, asked);
    return INFER_OK;
}

static void small_whole(const struct tower *t, struct tower_fit *f) {
    if (f->tiles_x * f->tiles_y > 1) f->over_width = f->over_height = t->tile;
}

/* ---- the longer side becomes edge -------------------------------------------------------------------------------- */

/* Then both become multiples of a tile, by the aspect of what the first step gave. source: HF image_processing_idefics3 */
static void tiles_of(const struct tower *t, int edge, struct tower_fit *f) {
    const bool wide = f->width >= f->height;
    const double aspect = (double)f->width / f->height;
    int *longer = wide ? &f->mid_width : &f->mid_height, *shorter = wide ? &f->mid_height : &f->mid_width;
    *longer = edge;
    *shorter = (int)(wide ? edge / aspect : edge * aspect);
    *shorter = most(*shorter + *shorter % 2, 1);
    const double mid = (double)f->mid_width / f->mid_height;
    const int to = whole(edge, t->tile), other = whole((int)(wide ? to / mid : to * mid), t->tile);
    f->to_width = wide ? to : most(other, t->tile), f->to_height = wide ? most(other, t->tile) : to;
    f->tiles_x = f->to_width / t->tile, f->tiles_y = f->to_height / t->tile;
}
enum infer_status tower_fit_tiles(const struct tower *t, struct tower_fit *f) {
    for (int edge = t->edge;; edge -= t->tile) { /* fewer pixels until there are few enough rows */
        tiles_of(t, edge, f);
        const int n = f->tiles_x * f->tiles_y;
        small_whole(t, f);
        if ((n + (n > 1)) * t->tile_out <= t->max_tokens || edge <= t->tile) return INFER_OK;
        f->over_width = f->over_height = 0;
    }
}

/* ---- the grid that is nearest in shape ----------------------------------------------------------------------------- */

/* Of low .. high tiles; of several that are as near the last, more tiles, for which the picture is large enough. source: HF
 * image_processing_got_ocr2 (of InternVL), image_processing_lfm2_vl */
static void nearest_grid(const struct tower *t, int low, int high, struct tower_fit *f) {
    const double aspect = (double)f->width / f->height, area = (double)f->width * f->height;
    double best = INFINITY;
    f->tiles_x = f->tiles_y = 1;
    for (int n = low; n <= high; n++)
        for (int x = 1; x <= n; x++) {
            if (n % x) continue;
            const double far = fabs(aspect - (double)x / (n / x)), half = 0.5 * t->tile * t->tile * n;
            if (far < best || (far == best && area > half)) f->tiles_x = x, f->tiles_y = n / x;
            if (far < best) best = far;
        }
    f->to_width = f->tiles_x * t->tile, f->to_height = f->tiles_y * t->tile;
}

enum infer_status tower_fit_grid(const struct tower *t, struct tower_fit *f) {
    int high = t->max_tokens / t->tile_out; /* with the whole beside several */
    if (high > 1) high--;
    nearest_grid(t, t->min_tiles < high ? t->min_tiles : high, t->max_tiles < high ? t->max_tiles : high, f);
    small_whole(t, f);
    return INFER_OK;
}

/* A picture of more than twice the rows that one may have is tiles, and the whole beside them; another is one, near its own size. source:
 * HF image_processing_lfm2_vl */
enum infer_status tower_fit_near_grid(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t), high = (t->max_tokens - t->max_whole) / t->tile_out;
    const double w = fmax(t->patch, nearbyint((double)f->width / side) * side),
                 h = fmax(t->patch, nearbyint((double)f->height / side) * side);
    int width, height;
    tower_near_size(side, side, t->min_whole, t->max_whole, f, &width, &height);
    if (w * h > 2.0 * t->max_whole * side * side && t->max_tiles > 1 && high >= t->min_tiles) {
        nearest_grid(t, t->min_tiles, t->max_tiles < high ? t->max_tiles : high, f);
        f->over_width = width, f->over_height = height;
    } else {
        f->to_width = width, f->to_height = height;
    }
    return INFER_OK;
}

/* ---- a canvas of tiles ---------------------------------------------------------------------------------------------- */

/* Of all grids the one into which the picture fits largest without being made larger, else with the least of that; then the smallest.
 * Compared as float32, as there. */
static void best_canvas(const struct tower *t, int high, struct tower_fit *f) {
    float best = 0;
    f->tiles_x = f->tiles_y = 0;
    for (int n = high; n; n--)
        for (int y = 1; y <= n; y++) {
            const int x = n / y, area = f->tiles_x * f->tiles_y;
            if (n % y) continue;
            const float w = (float)(x * t->tile) / (float)f->width,
                        h = (float)(y * t->tile) / (float)f->height, scale = h > w ? w : h;
            const bool better = scale >= 1 ? best < 1 || scale < best : scale > best;
            if (!area || better || (scale == best && n < area)) best = scale, f->tiles_x = x, f->tiles_y = y;
        }
}

/* Resized without changing its shape, larger only to a tile's side, then black pixels to whole tiles. source: HF image_processing_llama4 */
enum infer_status tower_fit_canvas(const struct tower *t, struct tower_fit *f) {
    int high = t->max_tokens / t->tile_out; /* with the whole beside several */
    if (high > 1) high--;
    best_canvas(t, t->max_tiles < high ? t->max_tiles : high, f);
    f->to_width = f->tiles_x * t->tile, f->to_height = f->tiles_y * t->tile;
    const int w = most(f->width, t->tile) < f->to_width ? most(f->width, t->tile) : f->to_width,
              h = most(f->height, t->tile) < f->to_height ? most(f->height, t->tile) : f->to_height;
    const double by_w = (double)w / f->width, by_h = (double)h / f->height;
    const int other_h = (int)floor(f->height * by_w), other_w = (int)floor(f->width * by_h);
    f->mid_width = by_w < by_h ? w : most(other_w < w ? other_w : w, 1);
    f->mid_height = by_w < by_h ? most(other_h < h ? other_h : h, 1) : h;
    f->padded = true;
    small_whole(t, f);
    return INFER_OK;
}

/* ---- slices near a square ------------------------------------------------------------------------------------------- */

static int divisible(double length, int side) {
    const int n = (int)nearbyint(length / side) * side;
    return most(n, side);
}

/* Of a picture of that shape, one with a tile's area: multiples of a row's sides, halves to even. */
static void square_size(const struct tower *t, double width, double height, int *to_width, int *to_height) {
    const double aspect = width / height;
    const int h = (int)(t->tile / sqrt(aspect)), w = (int)(h * aspect);
    *to_width = divisible(w, tower_side(t)), *to_height = divisible(h, tower_side(t));
}

/* The grid that is nearest in shape, by the difference of logarithms, of one slice fewer to one more than the picture's area asks for,
 * at most `most_slices`; false: no slices. */
static bool slice_grid(const struct tower *t, int most_slices, struct tower_fit *f) {
    const double log_ratio = log((double)f->width / f->height),
                 ratio = (double)f->width * f->height / ((double)t->tile * t->tile);
    const int n = ratio > most_slices ? most_slices : (int)ceil(ratio);
    double best = INFINITY;
    f->tiles_x = f->tiles_y = 0;
    for (int k = n - 1; n > 1 && k <= n + 1; k++)
        for (int y = 1; k > 1 && k <= most_slices && y <= k; y++) {
            if (k % y) continue;
            const double far = fabs(log_ratio - log((double)(k / y) / y));
            if (far < best || (far == best && y > f->tiles_y)) f->tiles_x = k / y, f->tiles_y = y;
            if (far < best) best = far;
        }
    return f->tiles_x > 0;
}

/* The whole with a tile's area, and of a larger picture slices of such an area each. source: HF image_processing_minicpmv4_6 */
enum infer_status tower_fit_slices(const struct tower *t, struct tower_fit *f) {
    const int side = tower_side(t);
    int width, height;
    square_size(t, f->width, f->height, &width, &height);
    f->to_width = width, f->to_height = height;
    const int whole_rows = width / side * (height / side);
    if (whole_rows > t->max_out)
        return err_set(INFER_E_INPUT, "a picture of %d x %d: its sides differ too much for this model",
                       f->width, f->height);
    for (int k = t->max_tiles; k > 1 && slice_grid(t, k, f);
         k--) { /* fewer until there are few enough rows */
        int w, h;
        square_size(t, (double)divisible(f->width, f->tiles_x) / f->tiles_x,
                    (double)divisible(f->height, f->tiles_y) / f->tiles_y, &w, &h);
        const int rows = w / side * (h / side);
        if (rows > t->max_out ||
            tower_rows_of(t, rows) * f->tiles_x * f->tiles_y + tower_rows_of(t, whole_rows) > t->max_tokens)
            continue;
        f->to_width = w * f->tiles_x, f->to_height = h * f->tiles_y;
        f->over_width = width, f->over_height = height;
        return INFER_OK;
    }
    f->tiles_x = f->tiles_y = 0;
    return INFER_OK;
}

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static void put(struct tower_part *out, const char *text) {
    const size_t n = strlen(out->text);
    snprintf(out->text + n, sizeof out->text - n, "%s", text ? text : "");
}

/* In front of a piece: where it stands; behind the last: that it ends. */
void tower_part_of_tiles(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out) {
    const struct tower_family *family = t->family;
    struct tower_piece p;
    *out = (struct tower_part){.first_row = f->n_token};
    if (part == f->n_piece) {
        put(out, f->n_piece == 1 && family->end_alone ? family->end_alone : family->end);
        return;
    }
    tower_piece(t, f, part, &p);
    out->first_row = p.first_row, out->n_row = p.n_row;
    if (!part) put(out, family->start);
    if (f->n_piece == 1) {
        put(out, family->alone);
        return;
    }
    if (part && !p.over && !p.tile)
        put(out, family->over); /* behind the whole */
    else if (part)
        put(out, !p.over && p.tile % f->tiles_x ? family->tile_next : family->tile_line);
    if (p.over && part) put(out, family->over);
    if (p.over || !family->tile) return;
    const size_t n = strlen(out->text);
    snprintf(out->text + n, sizeof out->text - n, "%s%d_col_%d%s", family->tile, p.tile / f->tiles_x + 1,
             p.tile % f->tiles_x + 1, family->tile_end);
}

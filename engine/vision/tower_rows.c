/* Pixels to the rows that a tower's list begins with: a patch, channel by channel, and behind it the learned vector of its place. */
#include "vision/tower_impl.h"

#include <math.h>
#include <string.h>

/* ---- learned vectors of places ----------------------------------------------------------------------------------- */

/* out += w * table[row] */
static void add_row(const struct tower *t, int row, float w, float *out) {
    const float *x = t->table + (size_t)row * (size_t)t->n_embd;
    for (int i = 0; i < t->n_embd; i++) out[i] += w * x[i];
}

/* Where line y of n falls in a square table, its corners on the picture's: two rows and the share of the second. */
static void corner(int y, int n, int side, int *at, int *beside, float *share) {
    const float p = n > 1 ? (float)(y * (side - 1)) / (float)(n - 1) : 0;
    *at = (int)floorf(p);
    if (*at > side - 1) *at = side - 1;
    *beside = *at + 1 < side ? *at + 1 : *at;
    *share = p - (float)*at;
}

static void place_corners(const struct tower *t, int y, int x, int h, int w, float *out) {
    const int side = (int)sqrt(t->n_table + 0.5);
    int y0, y1, x0, x1;
    float dy, dx;
    corner(y, h, side, &y0, &y1, &dy);
    corner(x, w, side, &x0, &x1, &dx);
    add_row(t, y0 * side + x0, (1 - dy) * (1 - dx), out);
    add_row(t, y0 * side + x1, (1 - dy) * dx, out);
    add_row(t, y1 * side + x0, dy * (1 - dx), out);
    add_row(t, y1 * side + x1, dy * dx, out);
}

/* Of line y and column x of h x w patches. */
static void put_place(const struct tower *t, int y, int x, int h, int w, float *out) {
    memset(out, 0, (size_t)t->n_embd * sizeof *out);
    switch (t->family->table) {
    case TABLE_SQUARE:
        add_row(t, y * w + x, 1, out);
        return;
    case TABLE_CORNERS:
        place_corners(t, y, x, h, w, out);
        return;
    case TABLE_TWO:
        add_row(t, x, 1, out);
        add_row(t, t->n_table + y, 1, out);
        return;
    case TABLE_NONE:
        return;
    }
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */

/* The patch of line y and column x: out[3][patch][patch]. */
static void put_patch(const struct tower *t, const struct image *p, int y, int x, float *out) {
    const int n = t->patch;
    const float shift = t->family->shift;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < n; i++) {
            const unsigned char *in =
                p->rgb + ((size_t)(y * n + i) * (size_t)p->width + (size_t)(x * n)) * 3 + c;
            for (int k = 0; k < n; k++)
                *out++ = ((float)in[3 * k] / 255 - t->mean[c]) / t->std[c] * (1 + shift) - shift;
        }
}

/* A tile, or all of them small. */
static enum infer_status piece_of(const struct tower *t, struct image *out) {
    const struct image *p = &t->picture;
    const struct tower_fit *f = &t->fit;
    const int side = t->image_size, line = t->piece / f->tiles_x, column = t->piece % f->tiles_x;
    if (f->overview && t->piece == f->n_piece - 1) return image_resize(p, side, side, t->family->filter, out);
    *out = (struct image){side, side, NULL};
    TRY(mem_new(&out->rgb, (size_t)side * (size_t)side * 3, "a picture"));
    for (int y = 0; y < side; y++)
        memcpy(out->rgb + (size_t)y * (size_t)side * 3,
               p->rgb + ((size_t)(line * side + y) * (size_t)p->width + (size_t)(column * side)) * 3,
               (size_t)side * 3);
    return INFER_OK;
}

static enum infer_status resized(const struct tower *t, struct image *out) {
    const struct image *p = &t->picture;
    const struct tower_fit *f = &t->fit;
    if (f->tiles_x) return piece_of(t, out);
    if (p->width != f->to_width || p->height != f->to_height)
        return image_resize(p, f->to_width, f->to_height, t->family->filter, out);
    const size_t n = (size_t)p->width * (size_t)p->height * 3;
    *out = (struct image){p->width, p->height, NULL};
    TRY(mem_new(&out->rgb, n, "a picture"));
    memcpy(out->rgb, p->rgb, n);
    return INFER_OK;
}

enum infer_status tower_put_rows(struct tower *t, int *n_row) {
    const int m = t->merge, h = t->fit.grid_y * m, w = t->fit.grid_x * m, n_pixel = 3 * t->patch * t->patch;
    struct image p;
    TRY(resized(t, &p));
    for (int r = 0; r < h * w; r++) { /* the patches of a row lie together */
        const int block = r / (m * m), in = r % (m * m), y = block / t->fit.grid_x * m + in / m,
                  x = block % t->fit.grid_x * m + in % m;
        float *out = t->pixels + (size_t)r * (size_t)t->in_width;
        put_patch(t, &p, y, x, out);
        if (t->family->table != TABLE_NONE) put_place(t, y, x, h, w, out + n_pixel);
        t->input[r] = out;
        t->place[1][r] = y, t->place[2][r] = x;
    }
    image_free(&p);
    *n_row = h * w;
    return INFER_OK;
}

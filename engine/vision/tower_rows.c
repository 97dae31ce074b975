/* Pixels to the rows that a tower's list begins with: a patch, channel by channel, and behind it the learned vector of its place. */
#include "base/waves.h"
#include "vision/tower_impl.h"
#include "base/host.h"

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

/* What a square table gives line y of n: of its lines each a weight, 0 or more, 1 in all. A triangle as wide as a line, at least as one of
 * the table. source: HF modeling_siglip2 (bilinear, antialiased) */
static float smooth_weight(int y, int n, int side, int line) {
    const float scale = (float)side / (float)n, wide = scale > 1 ? scale : 1,
                centre = ((float)y + 0.5f) * scale - 0.5f;
    const float w = 1 - fabsf((float)line - centre) / wide;
    return w > 0 ? w : 0;
}
static float smooth_sum(int y, int n, int side) {
    float sum = 0;
    for (int i = 0; i < side; i++) sum += smooth_weight(y, n, side, i);
    return sum;
}
static void place_smooth(const struct tower *t, int y, int x, int h, int w, float *out) {
    const int side = (int)sqrt(t->n_table + 0.5);
    const float all = smooth_sum(y, h, side) * smooth_sum(x, w, side);
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            const float share = smooth_weight(y, h, side, i) * smooth_weight(x, w, side, k) / all;
            if (share > 0) add_row(t, i * side + k, share, out);
        }
}

/* Of line y of n: the four lines of the table around it, the outermost again beyond it, and their weights. source: HF modeling_glm4v
 * (torch's grid_sample: the cubic of Keys 1981 with a = -0.75) */
static void cubic(int y, int n, int side, int *at, float *weight) {
    const float a = -0.75f, p = ((float)y + 0.5f) / (float)n * (float)side - 0.5f;
    const int first = (int)floorf(p) - 1;
    for (int i = 0; i < 4; i++) {
        const int line = first + i;
        const float d = fabsf(p - (float)line);
        at[i] = line < 0 ? 0 : line > side - 1 ? side - 1 : line;
        weight[i] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}
static void place_cubic(const struct tower *t, int y, int x, int h, int w, float *out) {
    const int side = (int)sqrt(t->n_table + 0.5);
    int line[4], column[4];
    float wy[4], wx[4];
    cubic(y, h, side, line, wy);
    cubic(x, w, side, column, wx);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) add_row(t, line[i] * side + column[k], wy[i] * wx[k], out);
}

/* The line of a square table for line y of n: how many of its ends, in float32 as there, are not behind y / n. source: HF vision_utils
 * (get_vision_nearest_position_ids) */
static int nearest(int y, int n, int side) {
    const float p = (float)y / (float)n;
    const double step = 1.0 / side;
    int line = 0;
    while (line < side - 1 && (float)(step + line * step) <= p) line++;
    return line;
}

/* Of line y and column x of h x w patches. */
static void put_place(const struct tower *t, int y, int x, int h, int w, float *out) {
    memset(out, 0, (size_t)t->n_embd * sizeof *out);
    switch (t->places) {
    case TABLE_SQUARE:
        add_row(t, y * w + x, 1, out);
        return;
    case TABLE_CORNERS:
        place_corners(t, y, x, h, w, out);
        return;
    case TABLE_SMOOTH:
        place_smooth(t, y, x, h, w, out);
        return;
    case TABLE_CUBIC:
        place_cubic(t, y, x, h, w, out);
        return;
    case TABLE_NEAREST: {
        const int side = (int)sqrt(t->n_table + 0.5);
        add_row(t, nearest(y, h, side) * side + nearest(x, w, side), 1, out);
        return;
    }
    case TABLE_TWO:
        add_row(t, x, 1, out);
        add_row(t, t->n_table + y, 1, out);
        return;
    case TABLE_NONE:
        return;
    }
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */

/* To the nearest of bfloat16, halves to even. */
static float bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* A colour of a pixel as the first product sees it. */
static float colour(const struct tower *t, int c, unsigned char value) {
    const float shift = t->family->shift;
    if (t->family->bf16_pixels) /* source: HF image_processing_llama4 */
        return bf16(bf16(bf16((float)value * (1 / 255.0f)) - bf16(t->mean[c])) / bf16(t->std[c]));
    return ((float)value / 255 - t->mean[c]) / t->std[c] * (1 + shift) - shift;
}

/* The patch of which the first pixel is y, x: out[3][patch][patch]. */
static void put_patch(const struct tower *t, const struct image *p, int y, int x, float *out) {
    const int n = t->patch;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < n; i++) {
            const unsigned char *in = p->rgb + ((size_t)(y + i) * (size_t)p->width + (size_t)x) * 3 + c;
            for (int k = 0; k < n; k++) *out++ = t->level[c][in[3 * k]];
        }
}

void tower_levels(struct tower *t) {
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++) t->level[c][i] = colour(t, c, (unsigned char)i);
}

/* Of a row's line and column: windows count line by line. */
static int32_t window_of(const struct tower *t, const struct tower_piece *piece, int y, int x) {
    const int n = t->window;
    return n ? y / n * ((piece->grid_x + n - 1) / n) + x / n : 0;
}

/* A row of no pixels, behind all patches: its learned vector without what a patch of zeros gives. */
static void put_class(struct tower *t, int r) {
    const float *bias = t->patch_embd.w.member[0].bias;
    float *out = t->pixels + (size_t)r * (size_t)t->in_width, *place = out + t->patch_embd.w.k;
    memset(out, 0, (size_t)t->patch_embd.w.k * sizeof *out);
    for (int i = 0; i < t->n_embd; i++) place[i] = t->class_embd[i] - (bias ? bias[i] : 0);
    t->input[r] = out;
    t->slot[r] = t->place[1][r] = t->place[2][r] = 0;
}

/* Line and column of patch i of a row: line by line, or where four of them become one before, by fours. */
static void place_in(const struct tower *t, int i, int *y, int *x) {
    *y = i / t->merge, *x = i % t->merge;
    if (!t->late || t->n_query) return;
    *y = (i >> 3 & 1) * 2 + (i >> 1 & 1), *x = (i >> 2 & 1) * 2 + (i & 1);
}

/* Patch r of a piece; place: with the vector of its place. The patches of a row lie together. */
static void put_row(struct tower *t, const struct tower_piece *piece, int r, bool place) {
    const int m = t->merge, block = r / (m * m), first = t->family->class_row; /* whose place is 0 */
    int y, x;
    place_in(t, r % (m * m), &y, &x);
    y += block / piece->grid_x * m, x += block % piece->grid_x * m;
    float *out = t->pixels + (size_t)r * (size_t)t->in_width;
    put_patch(t, piece->over ? &t->over : &t->picture, piece->y + y * t->patch, piece->x + x * t->patch, out);
    if (place) put_place(t, y, x, piece->grid_y * m, piece->grid_x * m, out + 3 * t->patch * t->patch);
    t->input[r] = out;
    t->place[1][r] = y + first, t->place[2][r] = x + first;
    t->slot[r] = t->late && !t->n_query ? r / 4 : window_of(t, piece, y / m, x / m);
}

int tower_put_rows(struct tower *t, const struct tower_piece *piece) {
    const int n = piece->grid_y * piece->grid_x * t->merge * t->merge;
    const bool known = t->placed_y == piece->grid_y && t->placed_x == piece->grid_x,
               place = t->places != TABLE_NONE && !known;
    /* where a card computes, the host's processors wait for this */
    const int threads = strcmp(t->backend->type->name, "cuda") == 0 ? host_copy_threads() : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int r = 0; r < n; r++) put_row(t, piece, r, place);
    t->placed_y = piece->grid_y, t->placed_x = piece->grid_x;
    if (t->family->class_row) put_class(t, n);
    return n + t->family->class_row;
}

/* ---- what queries see ---------------------------------------------------------------------------------------------- */

/* Half of the numbers tell the column, half the line. source: OpenBMB's resampler (get_2d_sincos_pos_embed) */
void tower_put_seen(struct tower *t, const struct tower_piece *piece) {
    struct tower *late = t->late;
    const size_t width = (size_t)late->in_width, embd = (size_t)t->n_embd, half = (size_t)t->n_out / 2;
    float *x = late->pixels + (size_t)t->n_query * width, *place = x + embd;
    for (int r = t->n_row - 1; r > 0; r--) /* from where the first list has put them, side by side */
        memmove(x + (size_t)r * width, x + (size_t)r * embd, embd * sizeof *x);
    for (int r = 0; r < t->n_row; r++) {
        const int line = r / piece->grid_x, column = r % piece->grid_x;
        float *out = place + (size_t)r * width;
        const float *above = place + (size_t)column * width,
                    *left = place + (size_t)line * (size_t)piece->grid_x * width + half;
        if (!line) put_waves(column, (int)half, out);
        if (line) memcpy(out, above, half * sizeof *out);
        if (!column) put_waves(line, (int)half, out + half);
        if (column) memcpy(out + half, left, half * sizeof *out);
    }
    for (int r = 0; r < t->n_query; r++) {
        float *out = late->pixels + (size_t)r * width;
        memset(out, 0, embd * sizeof *out);
        memcpy(out + embd, t->query + (size_t)r * 2 * half, 2 * half * sizeof *out);
    }
}

#include "vision/image_resize.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "base/mem.h"

/* Whole numbers: the bits are those of any other compilation. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif
enum { BITS = 22, HALF = 1 << (BITS - 1) };

/* ---- filters: weight at distance x from the centre, in pixels of the coarser side ---- */

static double box(double x) { return x > -0.5 && x <= 0.5 ? 1 : 0; }
static double bilinear(double x) { return fabs(x) < 1 ? 1 - fabs(x) : 0; }
static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}
static double sinc(double x) {
    if (x == 0) return 1;
    x *= M_PI;
    return sin(x) / x;
}
static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

static const struct {
    double (*weight)(double x);
    double reach;
} FILTERS[] = {[IMAGE_BOX] = {box, 0.5},
               [IMAGE_BILINEAR] = {bilinear, 1},
               [IMAGE_BICUBIC] = {bicubic, 2},
               [IMAGE_LANCZOS] = {lanczos, 3}};

/* What one side's pixels are made of: out[i] is the sum of in[first[i] + t] * k[i][t], t < n[i], in units of 2^-BITS. */
struct taps {
    int stride; /* room of a row of k */
    int *first, *n;
    int32_t *k;
};

static void weights(struct taps *s, double *w, int n_in, int n_out, enum image_filter filter) {
    const double scale = (double)n_in / n_out, grown = scale > 1 ? scale : 1;
    const double reach = FILTERS[filter].reach * grown, shrink = 1 / grown;
    for (int i = 0; i < n_out; i++) {
        const double centre = (i + 0.5) * scale;
        int from = (int)(centre - reach + 0.5), to = (int)(centre + reach + 0.5);
        from = from < 0 ? 0 : from;
        to = to > n_in ? n_in : to;
        double sum = 0;
        for (int t = 0; t < to - from; t++) {
            w[t] = FILTERS[filter].weight((t + from - centre + 0.5) * shrink);
            sum += w[t];
        }
        int32_t *k = s->k + (size_t)i * s->stride;
        for (int t = 0; t < to - from; t++) {
            const double exact = (sum != 0 ? w[t] / sum : w[t]) * (1 << BITS);
            k[t] = (int32_t)(exact < 0 ? exact - 0.5 : exact + 0.5);
        }
        s->first[i] = from;
        s->n[i] = to - from;
    }
}

static enum infer_status taps_make(struct taps *s, struct arena *a, int n_in, int n_out,
                                   enum image_filter filter) {
    const double scale = (double)n_in / n_out;
    s->stride = (int)ceil(FILTERS[filter].reach * (scale > 1 ? scale : 1)) * 2 + 1;
    s->first = arena_alloc(a, (size_t)n_out * sizeof *s->first);
    s->n = arena_alloc(a, (size_t)n_out * sizeof *s->n);
    s->k = arena_alloc(a, (size_t)n_out * (size_t)s->stride * sizeof *s->k);
    double *w = arena_alloc(a, (size_t)s->stride * sizeof *w);
    if (!s->first || !s->n || !s->k || !w) return err_set(INFER_E_MEMORY, "no memory to scale a picture");
    weights(s, w, n_in, n_out, filter);
    return INFER_OK;
}

static inline uint8_t byte_of(int32_t sum) {
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* ---- columns: ROWS rows at a time, whose pixels of one column lie side by side ---- */

enum { ROWS = 16, STRIP = ROWS * 3 };

static void lay_strip(uint8_t (*strip)[STRIP], const uint8_t *const *row, int width) {
    for (int x = 0; x < width; x++)
        for (int r = 0; r < ROWS; r++) memcpy(strip[x] + 3 * r, row[r] + 3 * x, 3);
}

CLONES static void columns(uint8_t *const *out, const uint8_t (*strip)[STRIP], int n_out,
                           const struct taps *s) {
    for (int x = 0; x < n_out; x++) {
        const int32_t *k = s->k + (size_t)x * s->stride;
        const uint8_t(*from)[STRIP] = strip + s->first[x];
        int32_t sum[STRIP];
        uint8_t byte[STRIP];
        for (int i = 0; i < STRIP; i++) sum[i] = HALF;
        for (int t = 0; t < s->n[x]; t++)
            for (int i = 0; i < STRIP; i++) sum[i] += from[t][i] * k[t];
        for (int i = 0; i < STRIP; i++) byte[i] = byte_of(sum[i]);
        for (int r = 0; r < ROWS; r++) memcpy(out[r] + 3 * x, byte + 3 * r, 3);
    }
}

static enum infer_status across(const struct image *in, struct image *out, enum image_filter filter,
                                struct arena *a) {
    struct taps s;
    TRY(taps_make(&s, a, in->width, out->width, filter));
    uint8_t(*strip)[STRIP] = arena_alloc(a, (size_t)in->width * sizeof *strip);
    if (!strip) return err_set(INFER_E_MEMORY, "no memory to scale a picture");
    for (int y = 0; y < in->height; y += ROWS) {
        const uint8_t *from[ROWS];
        uint8_t *to[ROWS];
        for (int r = 0; r < ROWS; r++) { /* behind the last row comes the last again */
            const size_t at = (size_t)(y + r < in->height ? y + r : in->height - 1);
            from[r] = in->rgb + at * (size_t)in->width * 3;
            to[r] = out->rgb + at * (size_t)out->width * 3;
        }
        lay_strip(strip, from, in->width);
        columns(to, (const uint8_t(*)[STRIP])strip, out->width, &s);
    }
    return INFER_OK;
}

/* ---- rows ---- */

/* out[n]: the sum of n_row rows that are n bytes apart, weighted by k */
CLONES static void row_sum(uint8_t *out, const uint8_t *in, size_t n, const int32_t *k, int n_row) {
    for (size_t i = 0; i < n; i += STRIP) {
        int32_t sum[STRIP];
        const size_t width = n - i < STRIP ? n - i : STRIP;
        for (size_t c = 0; c < STRIP; c++) sum[c] = HALF;
        for (int t = 0; t < n_row; t++) {
            const uint8_t *row = in + (size_t)t * n + i;
            if (width == STRIP)
                for (size_t c = 0; c < STRIP; c++) sum[c] += row[c] * k[t];
            else
                for (size_t c = 0; c < width; c++) sum[c] += row[c] * k[t];
        }
        for (size_t c = 0; c < width; c++) out[i + c] = byte_of(sum[c]);
    }
}

static enum infer_status down(const struct image *in, struct image *out, enum image_filter filter,
                              struct arena *a) {
    struct taps s;
    TRY(taps_make(&s, a, in->height, out->height, filter));
    const size_t n = (size_t)in->width * 3;
    for (int y = 0; y < out->height; y++)
        row_sum(out->rgb + (size_t)y * n, in->rgb + (size_t)s.first[y] * n, n, s.k + (size_t)y * s.stride,
                s.n[y]);
    return INFER_OK;
}

/* ---- nearest: where a centre falls, added up as Pillow adds ---- */

static enum infer_status nearest(const struct image *in, struct image *out, struct arena *a) {
    int *column = arena_alloc(a, (size_t)out->width * sizeof *column);
    if (!column) return err_set(INFER_E_MEMORY, "no memory to scale a picture");
    const double dx = (double)in->width / out->width, dy = (double)in->height / out->height;
    double at = dx * 0.5;
    for (int x = 0; x < out->width; x++, at += dx) column[x] = (int)at < in->width ? (int)at : in->width - 1;
    at = dy * 0.5;
    for (int y = 0; y < out->height; y++, at += dy) {
        const int row = (int)at < in->height ? (int)at : in->height - 1;
        const uint8_t *from = in->rgb + (size_t)row * (size_t)in->width * 3;
        uint8_t *to = out->rgb + (size_t)y * (size_t)out->width * 3;
        for (int x = 0; x < out->width; x++) memcpy(to + 3 * x, from + 3 * column[x], 3);
    }
    return INFER_OK;
}

static enum infer_status image_new(struct image *i, int width, int height) {
    *i = (struct image){.width = width, .height = height};
    return mem_new(&i->rgb, (size_t)width * (size_t)height * 3, "a picture");
}

static enum infer_status scale(const struct image *in, struct image *out, enum image_filter filter,
                               struct arena *a) {
    if (in->width == out->width && in->height == out->height) {
        memcpy(out->rgb, in->rgb, (size_t)in->width * (size_t)in->height * 3);
        return INFER_OK;
    }
    if (filter == IMAGE_NEAREST) return nearest(in, out, a);
    if (in->height == out->height) return across(in, out, filter, a);
    if (in->width == out->width) return down(in, out, filter, a);
    /* which of the two passes is the first changes bits: the rule of Pillow 13, whose predecessors began with the columns always */
    const int fewer_rows = in->height - out->height, fewer_columns = in->width - out->width;
    const bool rows_first = fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
    struct image between;
    TRY(rows_first ? image_new(&between, in->width, out->height)
                   : image_new(&between, out->width, in->height));
    enum infer_status e = rows_first ? down(in, &between, filter, a) : across(in, &between, filter, a);
    if (!e) e = rows_first ? across(&between, out, filter, a) : down(&between, out, filter, a);
    image_free(&between);
    return e;
}

enum infer_status image_resize(const struct image *in, int width, int height, enum image_filter filter,
                               struct image *out) {
    *out = (struct image){0};
    const int sides[] = {in->width, in->height, width, height};
    for (int i = 0; i < 4; i++)
        if (sides[i] < 1 || sides[i] > IMAGE_SIDE_MAX)
            return err_set(INFER_E_INPUT, "a picture of %dx%d cannot be scaled to %dx%d: sides are 1 to %d",
                           in->width, in->height, width, height, IMAGE_SIDE_MAX);
    struct arena a = {0};
    enum infer_status e = image_new(out, width, height);
    if (!e) e = scale(in, out, filter, &a);
    arena_free(&a);
    if (e) image_free(out);
    return e;
}

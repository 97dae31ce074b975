#include <stdio.h>
#include <string.h>
#include <png.h>
#include "base/mem.h"
#include "vision/image_decode_impl.h"
#include "vision/image_resize.h"

struct reader {
    png_structp png;
    png_infop info;
    struct bytes left;
    char why[128];
    bool no_memory;
    size_t budget; /* that the library may still take: it believes the length that a chunk says */
    uint8_t *rgba; /* where there is alpha */
    png_bytep *row;
};

static void fail(png_structp png, png_const_charp why) {
    struct reader *r = png_get_error_ptr(png);
    if (!*r->why) snprintf(r->why, sizeof r->why, "%s", why);
    png_longjmp(png, 1);
}
static void no_message(png_structp png, png_const_charp why) {
    (void)png;
    (void)why;
}
static png_voidp take(png_structp png, png_alloc_size_t n) {
    struct reader *r = png_get_mem_ptr(png);
    if (n > r->budget) return NULL;
    r->budget -= n;
    void *p = mem_piece(n);
    r->no_memory |= !p;
    return p;
}
static void give(png_structp png, png_voidp p) {
    (void)png;
    mem_free(p);
}
static void read_bytes(png_structp png, png_bytep to, size_t n) {
    struct reader *r = png_get_io_ptr(png);
    if (n > r->left.n) png_error(png, "it ends early");
    memcpy(to, r->left.at, n);
    r->left.at += n;
    r->left.n -= n;
}

static void out_of_memory(struct reader *r) {
    r->no_memory = true;
    png_error(r->png, "no memory");
}

static void read_all(struct reader *r, struct image *out) {
    png_structp png = r->png;
    png_set_read_fn(png, r, read_bytes);
    png_set_user_limits(png, IMAGE_SIDE_MAX, IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(png, 8 << 20);
    png_set_chunk_cache_max(png, 64);
    png_read_info(png, r->info);
    if ((int)png_get_image_width(png, r->info) != out->width ||
        (int)png_get_image_height(png, r->info) != out->height)
        png_error(png, "it says two sizes");
    png_set_strip_16(png);
    png_set_expand(png); /* palettes, 1 to 4 bits, transparent colours */
    png_set_gray_to_rgb(png);
    (void)png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    const size_t width = (size_t)out->width, height = (size_t)out->height;
    const bool alpha = png_get_channels(png, r->info) == 4;
    uint8_t *to = out->rgb;
    if (alpha && !(to = r->rgba = mem_piece(width * height * 4))) out_of_memory(r);
    if (!(r->row = mem_piece(height * sizeof *r->row))) out_of_memory(r);
    for (size_t y = 0; y < height; y++) r->row[y] = to + y * width * (alpha ? 4 : 3);
    png_read_image(png, r->row);
    if (alpha) pixels_on_white(out->rgb, r->rgba, width * height);
}

enum infer_status decode_png(struct image *out, struct bytes b) {
    struct reader *r;
    TRY(mem_new(&r, sizeof *r, "a PNG decoder"));
    r->left = b;
    r->budget = (size_t)out->width * (size_t)out->height * 8 + (16 << 20);
    enum infer_status e = INFER_OK;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, fail, no_message, r, take, give);
    if (r->png) r->info = png_create_info_struct(r->png);
    if (!r->info) {
        e = err_set(INFER_E_MEMORY, "no memory to decode a PNG");
    } else if (setjmp(png_jmpbuf(r->png))) {
        e = r->no_memory ? err_set(INFER_E_MEMORY, "no memory to decode a PNG") : broken(IMAGE_PNG, r->why);
    } else {
        read_all(r, out);
    }
    png_destroy_read_struct(&r->png, &r->info, NULL);
    mem_free(r->rgba);
    mem_free(r->row);
    mem_free(r);
    return e;
}

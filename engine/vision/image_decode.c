#include "vision/image_decode.h"
#include <string.h>
#include "base/mem.h"
#include "vision/image_decode_impl.h"
#include "vision/image_resize.h"

const struct image_limits IMAGE_LIMITS = {20000000, 64000000};

static const struct {
    const char *name;
    const char *magic; /* the first bytes, ? any */
    size_t n_magic;
    enum infer_status (*head)(struct image_head *out, struct bytes b);
    enum infer_status (*decode)(struct image *out, struct bytes b);
} KINDS[] = {
    [IMAGE_JPEG] = {"JPEG", "\xff\xd8\xff", 3, head_jpeg, decode_jpeg},
    [IMAGE_PNG] = {"PNG", "\x89PNG\r\n\x1a\n", 8, head_png, decode_png},
    [IMAGE_WEBP] = {"WebP", "RIFF????WEBP", 12, head_webp, decode_webp},
    [IMAGE_GIF] = {"GIF", "GIF8?a", 6, head_gif, decode_gif},
    [IMAGE_BMP] = {"BMP", "BM", 2, head_bmp, decode_bmp},
};
enum { N_KIND = sizeof KINDS / sizeof *KINDS };
/* Files that people take for pictures, and what to do with them. */
static const struct {
    const char *magic;
    size_t n_magic;
    const char *name;
} FOREIGN[] = {
    {"????ftypheic", 12, "HEIC picture"},
    {"????ftypmif1", 12, "HEIF picture"},
    {"????ftypavif", 12, "AVIF picture"},
    {"????ftyp", 8, "video"},
    {"II*\0", 4, "TIFF picture"},
    {"MM\0*", 4, "TIFF picture"},
    {"\0\0\1\0", 4, "icon"},
    {"%PDF-", 5, "PDF"},
    {"<svg", 4, "SVG drawing"},
    {"<?xml", 5, "SVG drawing"},
    {"\xff\x0a", 2, "JPEG XL picture"},
    {"8BPS", 4, "Photoshop picture"},
};

const char *image_kind_name(enum image_kind kind) { return KINDS[kind].name; }

enum infer_status broken(enum image_kind kind, const char *reason) {
    return err_set(INFER_E_INPUT, "the %s is broken: %s", KINDS[kind].name, reason);
}

static bool begins(struct bytes b, const char *magic, size_t n) {
    if (b.n < n) return false;
    for (size_t i = 0; i < n; i++)
        if (magic[i] != '?' && (uint8_t)magic[i] != b.at[i]) return false;
    return true;
}

static enum infer_status kind_of(enum image_kind *out, struct bytes b) {
    for (int i = 0; i < N_KIND; i++)
        if (begins(b, KINDS[i].magic, KINDS[i].n_magic)) {
            *out = (enum image_kind)i;
            return INFER_OK;
        }
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++)
        if (begins(b, FOREIGN[i].magic, FOREIGN[i].n_magic))
            return err_set(INFER_E_UNSUPPORTED, "this is a %s, which is not read here: make it a JPEG or PNG",
                           FOREIGN[i].name);
    return err_set(INFER_E_INPUT, b.n ? "this is no JPEG, PNG, WebP, GIF or BMP" : "the picture is empty");
}

/* The head as stored, within the limits. */
static enum infer_status stored_head(struct image_head *out, struct bytes b,
                                     const struct image_limits *limits) {
    if (b.n > limits->bytes)
        return err_set(INFER_E_INPUT, "the picture has %zu bytes, at most %zu are taken", b.n, limits->bytes);
    *out = (struct image_head){.turn = 1};
    TRY(kind_of(&out->kind, b));
    TRY(KINDS[out->kind].head(out, b));
    if (out->width < 1 || out->height < 1) return broken(out->kind, "it has no pixels");
    const uint64_t pixels = (uint64_t)out->width * (uint64_t)out->height;
    if (pixels > limits->pixels || out->width > IMAGE_SIDE_MAX || out->height > IMAGE_SIDE_MAX)
        return err_set(INFER_E_INPUT, "the picture is %d x %d, at most %llu pixels and sides of %d are taken",
                       out->width, out->height, (unsigned long long)limits->pixels, (int)IMAGE_SIDE_MAX);
    return INFER_OK;
}

enum infer_status image_head(struct image_head *out, const void *bytes, size_t n,
                             const struct image_limits *limits) {
    TRY(stored_head(out, (struct bytes){bytes, n}, limits));
    if (out->turn >= 5) {
        const int width = out->width;
        out->width = out->height;
        out->height = width;
    }
    return INFER_OK;
}

void pixels_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n) {
    for (size_t i = 0; i < n; i++, rgb += 3, rgba += 4)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)((rgba[c] * rgba[3] + 255 * (255 - rgba[3]) + 127) / 255);
}

/* ---- turns: where a pixel of the upright picture lies in the stored one (Exif 2.32, tag 0x0112) ---- */

static void upright(uint8_t *to, const struct image *from, int turn) {
    const int w = from->width, h = from->height;
    const bool sides = turn >= 5; /* rows become columns */
    const bool mirror_x = turn == 2 || turn == 3 || turn == 7 || turn == 8;
    const bool mirror_y = turn == 3 || turn == 4 || turn == 6 || turn == 7;
    const int to_w = sides ? h : w, to_h = sides ? w : h;
    for (int y = 0; y < to_h; y++)
        for (int x = 0; x < to_w; x++, to += 3) {
            const int sx = sides ? y : x, sy = sides ? x : y;
            const size_t at =
                (size_t)(mirror_y ? h - 1 - sy : sy) * (size_t)w + (size_t)(mirror_x ? w - 1 - sx : sx);
            memcpy(to, from->rgb + at * 3, 3);
        }
}

static enum infer_status turn_upright(struct image *i, int turn) {
    struct image to = turn >= 5 ? (struct image){.width = i->height, .height = i->width}
                                : (struct image){.width = i->width, .height = i->height};
    TRY(mem_new(&to.rgb, (size_t)i->width * (size_t)i->height * 3, "a picture"));
    upright(to.rgb, i, turn);
    image_free(i);
    *i = to;
    return INFER_OK;
}

enum infer_status image_decode(struct image *out, const void *bytes, size_t n,
                               const struct image_limits *limits) {
    const struct bytes b = {bytes, n};
    struct image_head head;
    *out = (struct image){0};
    TRY(stored_head(&head, b, limits));
    *out = (struct image){.width = head.width, .height = head.height};
    enum infer_status e = mem_new(&out->rgb, (size_t)head.width * (size_t)head.height * 3, "a picture");
    if (!e) e = KINDS[head.kind].decode(out, b);
    if (!e && head.turn != 1) e = turn_upright(out, head.turn);
    if (e) image_free(out);
    return e;
}

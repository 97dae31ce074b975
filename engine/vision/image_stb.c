/* GIF and BMP by stb_image, which reads zeros behind the end of a file: whether all is there is checked before. Of its GIF part only what
 * reads a first frame is called. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "vision/image_decode_impl.h"
#include "vision/image_resize.h"

#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_MAX_DIMENSIONS    IMAGE_SIDE_MAX
#define STBI_MALLOC(n)         mem_alloc(n) /* zeros: stb reads some of it before it writes it */
#define STBI_REALLOC(p, n)     mem_realloc(p, n)
#define STBI_FREE(p)           mem_free(p)
#define STBI_ASSERT(condition) ((void)0)
#define STB_IMAGE_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

static enum infer_status decode(struct image *out, struct bytes b, enum image_kind kind, bool alpha) {
    int width, height, channels;
    uint8_t *from = stbi_load_from_memory(b.at, (int)b.n, &width, &height, &channels, alpha ? 4 : 3);
    if (!from) {
        const char *why = stbi_failure_reason();
        return why && strcmp(why, "outofmem") == 0
                   ? err_set(INFER_E_MEMORY, "no memory to decode a %s", image_kind_name(kind))
                   : broken(kind, why ? why : "it cannot be decoded");
    }
    enum infer_status e = INFER_OK;
    if (width != out->width || height != out->height)
        e = broken(kind, "it says two sizes");
    else if (alpha)
        pixels_on_white(out->rgb, from, (size_t)width * (size_t)height);
    else
        memcpy(out->rgb, from, (size_t)width * (size_t)height * 3);
    stbi_image_free(from);
    return e;
}

/* Behind a list of blocks, each with its length before it, of which one of length 0 is the last; 0: the file ends in it. */
static size_t behind_blocks(struct bytes b, size_t at) {
    while (at < b.n) {
        const size_t n = b.at[at];
        if (n == 0) return at + 1;
        at += n + 1;
    }
    return 0;
}

/* (GIF89a specification, 1990: a table, extensions, and the first image with all its blocks) */
static bool first_image_whole(struct bytes b) {
    size_t at = 13 + (b.at[10] & 0x80 ? (size_t)3 << ((b.at[10] & 7) + 1) : 0);
    while (at < b.n && b.at[at] == 0x21)
        if (b.n - at < 3 || !(at = behind_blocks(b, at + 2))) return false;
    if (at >= b.n || b.at[at] != 0x2c || b.n - at < 11) return false;
    const uint8_t flags = b.at[at + 9];
    at += 10 + (flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0) + 1;
    return at < b.n && behind_blocks(b, at);
}

enum infer_status decode_gif(struct image *out, struct bytes b) {
    if (!first_image_whole(b)) return broken(IMAGE_GIF, "it ends before its first picture does");
    return decode(out, b, IMAGE_GIF, true);
}

enum infer_status decode_bmp(struct image *out, struct bytes b) {
    const bool old = le32(b.at + 14) == 12;
    if (b.n < (old ? 26 : 54)) return broken(IMAGE_BMP, "it ends in its header");
    const uint64_t bits = le16(b.at + (old ? 24 : 28)), packing = old ? 0 : le32(b.at + 30);
    if (packing != 0 && packing != 3)
        return err_set(INFER_E_UNSUPPORTED,
                       "this BMP is packed, which is not read here: make it a JPEG or PNG");
    const uint64_t stride = ((uint64_t)out->width * bits + 31) / 32 * 4;
    if (le32(b.at + 10) + stride * (uint64_t)out->height > b.n) return broken(IMAGE_BMP, "it ends early");
    return decode(out, b, IMAGE_BMP, packing == 3); /* the fourth byte is alpha where a mask says so */
    ;
}

/* Bytes of a file to pixels: JPEG, PNG, WebP (the first frame of a moving one), GIF (its first frame) and BMP, upright as Exif says, on
 * white where they are transparent. What the header says is checked before anything is sized by it; docs/images.md has the libraries. */
#pragma once
#include <stdint.h>
#include "base/status.h"
#include "vision/image.h"

struct image_limits {
    size_t bytes;    /* of a file */
    uint64_t pixels; /* of a picture */
};
/* 20 MB, 64 million pixels */
extern const struct image_limits IMAGE_LIMITS;

enum image_kind { IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP, IMAGE_GIF, IMAGE_BMP };

/* What a file says of its picture before any of it is decoded. */
struct image_head {
    enum image_kind kind;
    int width, height; /* upright */
    int turn; /* 1 to 8, as Exif counts them: how the stored picture lies; from 5 on width and height change places */
};
/* errors: INFER_E_INPUT (too large, cut, broken, no picture), INFER_E_UNSUPPORTED (a known file that is not read here) */
enum infer_status image_head(struct image_head *out, const void *bytes, size_t n,
                             const struct image_limits *limits);
const char *image_kind_name(enum image_kind kind);

/* errors: as image_head, INFER_E_MEMORY; one line says what is wrong with the picture, and *out is empty. Takes at most 16 bytes of memory a
 * pixel and 16 MiB. */
enum infer_status image_decode(struct image *out, const void *bytes, size_t n,
                               const struct image_limits *limits);

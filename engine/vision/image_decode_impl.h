/* Between image_decode.c and the files of the kinds. */
#pragma once
#include "vision/image_decode.h"

struct bytes {
    const uint8_t *at;
    size_t n;
};

/* The turn of TIFF data (Exif without its six letters in front), 1 where it says none. */
int exif_turn(struct bytes tiff);

/* The head as stored: width and height before the turn. errors: INFER_E_INPUT */
enum infer_status head_jpeg(struct image_head *out, struct bytes b);
enum infer_status head_png(struct image_head *out, struct bytes b);
enum infer_status head_webp(struct image_head *out, struct bytes b);
enum infer_status head_gif(struct image_head *out, struct bytes b);
enum infer_status head_bmp(struct image_head *out, struct bytes b);

/* Pixels as stored into out->rgb, which has room for the width and height that the head says. */
enum infer_status decode_jpeg(struct image *out, struct bytes b);
enum infer_status decode_png(struct image *out, struct bytes b);
enum infer_status decode_webp(struct image *out, struct bytes b);
enum infer_status decode_gif(struct image *out, struct bytes b);
enum infer_status decode_bmp(struct image *out, struct bytes b);

/* n pixels with alpha on white */
void pixels_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n);

/* "the PNG is broken: REASON" */
enum infer_status broken(enum image_kind kind, const char *reason);

static inline uint32_t le16(const uint8_t *p) { return (uint32_t)(p[0] | p[1] << 8); }
static inline uint32_t be16(const uint8_t *p) { return (uint32_t)(p[0] << 8 | p[1]); }
static inline uint32_t le32(const uint8_t *p) { return le16(p) | le16(p + 2) << 16; }
static inline uint32_t be32(const uint8_t *p) { return be16(p) << 16 | be16(p + 2); }

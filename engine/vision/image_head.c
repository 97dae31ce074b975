/* Sizes and turns as headers say them: nothing is decoded. */
#include <string.h>
#include "vision/image_decode_impl.h"

int exif_turn(struct bytes t) {
    if (t.n < 14 || (memcmp(t.at, "II*\0", 4) != 0 && memcmp(t.at, "MM\0*", 4) != 0)) return 1;
    const bool little = *t.at == 'I';
    const size_t at = little ? le32(t.at + 4) : be32(t.at + 4);
    if (at > t.n - 2) return 1;
    const size_t n = little ? le16(t.at + at) : be16(t.at + at);
    for (size_t i = 0; i < n && at + 2 + (i + 1) * 12 <= t.n; i++) {
        const uint8_t *entry = t.at + at + 2 + i * 12;
        if ((little ? le16(entry) : be16(entry)) != 0x0112) continue;
        const uint32_t turn = little ? le16(entry + 8) : be16(entry + 8);
        return turn >= 1 && turn <= 8 ? (int)turn : 1;
    }
    return 1;
}

static void exif_of_app1(struct image_head *out, struct bytes b) {
    if (b.n > 6 && memcmp(b.at, "Exif\0", 5) == 0) out->turn = exif_turn((struct bytes){b.at + 6, b.n - 6});
}

/* Markers up to the first scan (ITU-T T.81, annex B): the frame header, and Exif in APP1. */
enum infer_status head_jpeg(struct image_head *out, struct bytes b) {
    bool framed = false;
    for (size_t at = 2;;) {
        while (at < b.n && b.at[at] != 0xff)
            at++; /* (bytes between segments are passed over, as decoders do) */
        while (at < b.n && b.at[at] == 0xff) at++;
        if (at >= b.n) return broken(IMAGE_JPEG, "it ends in its header");
        const uint8_t marker = b.at[at++];
        if (marker == 0 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;
        if (marker == 0xda || marker == 0xd9)
            return framed ? INFER_OK : broken(IMAGE_JPEG, "it has no frame before its first scan");
        if (b.n - at < 2 || be16(b.at + at) < 2 || be16(b.at + at) > b.n - at)
            return broken(IMAGE_JPEG, "it ends in its header");
        const struct bytes segment = {b.at + at + 2, be16(b.at + at) - 2};
        if (marker == 0xe1 && out->turn == 1) exif_of_app1(out, segment);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
            if (segment.n < 6) return broken(IMAGE_JPEG, "its frame header is short");
            out->height = (int)be16(segment.at + 1);
            out->width = (int)be16(segment.at + 3);
            framed = true;
        }
        at += 2 + segment.n;
    }
}

/* Chunks: length, name, data, checksum (W3C PNG, third edition). */
enum infer_status head_png(struct image_head *out, struct bytes b) {
    if (b.n < 33 || memcmp(b.at + 12, "IHDR", 4) != 0) return broken(IMAGE_PNG, "it ends in its header");
    const uint32_t width = be32(b.at + 16), height = be32(b.at + 20);
    if (width > INT32_MAX || height > INT32_MAX) return broken(IMAGE_PNG, "its size is none");
    out->width = (int)width;
    out->height = (int)height;
    for (size_t at = 8; b.n - at >= 12;) {
        const size_t n = be32(b.at + at);
        if (n > b.n - at - 12) break;
        if (memcmp(b.at + at + 4, "eXIf", 4) == 0) out->turn = exif_turn((struct bytes){b.at + at + 8, n});
        at += n + 12;
    }
    return INFER_OK;
}

enum infer_status head_gif(struct image_head *out, struct bytes b) {
    if (b.n < 13) return broken(IMAGE_GIF, "it ends in its header");
    out->width = (int)le16(b.at + 6);
    out->height = (int)le16(b.at + 8);
    return INFER_OK;
}

enum infer_status head_bmp(struct image_head *out, struct bytes b) {
    if (b.n < 26) return broken(IMAGE_BMP, "it ends in its header");
    const uint32_t header = le32(b.at + 14);
    if (header == 12) {
        out->width = (int)le16(b.at + 18);
        out->height = (int)le16(b.at + 20);
        return INFER_OK;
    }
    const int32_t width = (int32_t)le32(b.at + 18), height = (int32_t)le32(b.at + 22);
    if (width < 0 || height == INT32_MIN) return broken(IMAGE_BMP, "its size is none");
    out->width = width;
    out->height = height < 0 ? -height : height; /* negative: the top row is the first */
    return INFER_OK;
}

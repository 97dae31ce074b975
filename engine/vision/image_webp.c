#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>
#include "base/mem.h"
#include "vision/image_decode_impl.h"

enum infer_status head_webp(struct image_head *out, struct bytes b) {
    WebPBitstreamFeatures f;
    const VP8StatusCode status = WebPGetFeatures(b.at, b.n, &f);
    if (status == VP8_STATUS_NOT_ENOUGH_DATA) return broken(IMAGE_WEBP, "it ends in its header");
    if (status) return broken(IMAGE_WEBP, "its header cannot be read");
    out->width = f.width;
    out->height = f.height;
    const WebPData data = {b.at, b.n};
    WebPDemuxer *d = WebPDemux(&data);
    WebPChunkIterator chunk;
    if (d && WebPDemuxGetChunk(d, "EXIF", 1, &chunk)) {
        struct bytes exif = {chunk.chunk.bytes, chunk.chunk.size};
        if (exif.n > 6 && memcmp(exif.at, "Exif\0", 5) == 0) exif = (struct bytes){exif.at + 6, exif.n - 6};
        out->turn = exif_turn(exif);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    WebPDemuxDelete(d);
    return INFER_OK;
}

static enum infer_status why(VP8StatusCode status) {
    switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return err_set(INFER_E_MEMORY, "no memory to decode a WebP");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return broken(IMAGE_WEBP, "it ends early");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return broken(IMAGE_WEBP, "it has what the format does not have");
    default:
        return broken(IMAGE_WEBP, "its data cannot be decoded");
    }
}

/* The first frame onto rgba[height][width][4]. */
static enum infer_status first_frame(uint8_t *rgba, const struct image *out, const WebPIterator *f) {
    if (f->x_offset < 0 || f->y_offset < 0 || f->width > out->width - f->x_offset ||
        f->height > out->height - f->y_offset)
        return broken(IMAGE_WEBP, "its first frame is larger than the picture");
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return broken(IMAGE_WEBP, "the library is another one");
    const size_t stride = (size_t)out->width * 4;
    const size_t from = (size_t)f->y_offset * stride + (size_t)f->x_offset * 4;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rgba + from;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * (size_t)out->height - from;
    const VP8StatusCode status = WebPDecode(f->fragment.bytes, f->fragment.size, &config);
    WebPFreeDecBuffer(&config.output);
    return status ? why(status) : INFER_OK;
}

enum infer_status decode_webp(struct image *out, struct bytes b) {
    const WebPData data = {b.at, b.n};
    WebPDemuxState state;
    WebPDemuxer *d = WebPDemuxPartial(&data, &state);
    WebPIterator frame;
    if (!d || state == WEBP_DEMUX_PARSE_ERROR) {
        WebPDemuxDelete(d);
        return broken(IMAGE_WEBP, "its chunks cannot be read");
    }
    enum infer_status e;
    uint8_t *rgba = NULL;
    if ((int)WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH) != out->width ||
        (int)WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT) != out->height) {
        e = broken(IMAGE_WEBP, "it says two sizes");
    } else if (!WebPDemuxGetFrame(d, 1, &frame)) {
        e = broken(IMAGE_WEBP, "it ends early");
    } else {
        e = mem_new(&rgba, (size_t)out->width * (size_t)out->height * 4, "a WebP picture");
        if (!e) e = frame.complete ? first_frame(rgba, out, &frame) : broken(IMAGE_WEBP, "it ends early");
        WebPDemuxReleaseIterator(&frame);
    }
    if (!e) pixels_on_white(out->rgb, rgba, (size_t)out->width * (size_t)out->height);
    mem_free(rgba);
    WebPDemuxDelete(d);
    return e;
}

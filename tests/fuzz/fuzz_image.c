/* Any bytes as a picture: what the header says holds for the pixels, and they can be scaled. */
#include "base/mem.h"
#include "vision/image_decode.h"
#include "vision/image_resize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct image_limits limits = {1 << 20, 1 << 18};
    struct image_head head;
    struct image p, scaled;
    const enum infer_status said = image_head(&head, data, size, &limits);
    if (image_decode(&p, data, size, &limits)) {
        if (err_message()[0] == 0 || p.rgb) __builtin_trap();
        return 0;
    }
    if (said || head.width != p.width || head.height != p.height) __builtin_trap();
    const enum image_filter filter = (enum image_filter)(data[size - 1] % (IMAGE_LANCZOS + 1));
    if (!image_resize(&p, 1 + data[size / 2] % 64, 1 + data[size / 3] % 64, filter, &scaled))
        image_free(&scaled);
    image_free(&p);
    return 0;
}

/* Pictures scaled as Pillow 13 scales them, bit for bit: what most processors of Hugging Face are written with. */
#pragma once
#include "base/status.h"
#include "vision/image.h"

enum image_filter {
    IMAGE_NEAREST,
    IMAGE_BOX,
    IMAGE_BILINEAR, /* with antialiasing, as the next two: a filter grows with what is made smaller */
    IMAGE_BICUBIC,  /* a = -0.5 */
    IMAGE_LANCZOS,  /* 3 lobes */
};

enum { IMAGE_SIDE_MAX = 65535 }; /* greatest width and height */

/* out: a new picture of width x height, whatever the aspect. One thread; the same bits on every machine. errors: INFER_E_INPUT (a side
 * that is not 1 to IMAGE_SIDE_MAX), INFER_E_MEMORY; out is empty then */
enum infer_status image_resize(const struct image *in, int width, int height, enum image_filter filter,
                               struct image *out);

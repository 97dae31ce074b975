/* A picture in memory. */
#pragma once
#include "base/mem.h"

struct image {
    int width, height;
    unsigned char *rgb; /* rgb[height][width][3], top row first; of mem_alloc */
};
static inline void image_free(struct image *p) {
    mem_free(p->rgb);
    *p = (struct image){0};
}

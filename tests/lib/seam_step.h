/* A step as a backend takes it, of token ids. */
#pragma once
#include "seam/backend.h"

static inline struct step seam_step(int n_row, int n_out, const int32_t *id, const int32_t *pos,
                                    const int32_t *slot, const int32_t *out_row, const uint8_t *want,
                                    const int32_t *const *pages) {
    struct step s = {.n_row = n_row, .n_out = n_out, .id = id, .pos = pos, .slot = slot};
    s.out_row = out_row, s.want = want, s.pages = pages, s.pages_version = 1;
    return s;
}

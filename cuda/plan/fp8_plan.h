/* Which engines multiply decode rows, too, by FP8 weights as FP8 (--matmul-precision fp8): those whose steps may have many rows. So a row's
 * bits depend on the engine, but not on how many rows a step has. */
#pragma once
#include <stdbool.h>
#include <string.h>
#include "seam/backend.h"

enum { FP8_DECODE_ROWS = 128 /* the most of a step's, from which on an engine's decode rows go that way */ };
static inline bool fp8_decode(const struct op_list *decode) {
    return decode && decode->max_rows >= FP8_DECODE_ROWS;
}
/* Of a backend's lists. */
static inline bool fp8_decode_of(const struct backend_config *c) {
    return c->cuda.block_scaled && !strcmp(c->cuda.block_scaled, "fp8") && !c->no_fuse &&
           fp8_decode(c->list[ROW_DECODE]);
}

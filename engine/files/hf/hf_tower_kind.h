/* The kinds of towers that folders have. Private to hf_tower*.c. */
#pragma once
#include "files/hf/hf_tower.h"

/* What becomes of a tensor: nothing; gone; both kernels of two frames; pixels channel by channel; w + 1; rows of q and k (neighbours
 * turn together in GGUF, halves here); the tables of columns and lines apart; q, k and v apart; a square turned. */
enum tower_op {
    TOWER_SAME,
    TOWER_SKIP,
    TOWER_FRAMES,
    TOWER_PIXELS,
    TOWER_PLUS_ONE,
    TOWER_QUERY,
    TOWER_TWO_TABLES,
    TOWER_SPLIT,
    TOWER_TURNED
};
struct tower_name {
    const char *hf, *gguf;
    enum tower_op op;
};
/* What the processor's `size` bounds: nothing that is read; pixels; those of
 * two frames; the longest edge, by the processor alone or by image_size, too; rows;
 * rows of what is no tiles, and what tiles are, by the processor or config.json; of slices the area
 * and how many. */
enum tower_bounds {
    BOUND_NONE,
    BOUND_PIXELS,
    BOUND_FRAMES,
    BOUND_EDGE,
    BOUND_EDGE_OR_SIZE,
    BOUND_ROWS,
    BOUND_TILES,
    BOUND_SLICES
};
struct tower_kind {
    const char *models; /* "a|b": model_type */
    const char *projector, *act;
    float eps, mean[3], std[3]; /* where config.json and the processor's say nothing */
    int merge, n_ff, n_layer;   /* 0: it says them */
    const char *width; /* what vision_config calls the width of a patch; NULL: hidden_size or mm_embed_dim */
    enum tower_bounds bounds;
    bool any_size;   /* pictures of any size, also where a size stands in GGUF */
    bool scaled;     /* GGUF calls patches a side of a row projector.scale_factor */
    bool neighbours; /* GGUF has rows of q and k so that neighbours turn together */
    const struct tower_name *whole, *layer;
};
const struct tower_kind *tower_kind_find(const char *model_type);

/* The kinds of towers that folders have. Private to hf_tower*.c. */
#pragma once
#include "files/hf/hf_tower.h"

/* What becomes of a tensor: nothing; gone; both kernels of two frames; pixels channel by channel; w + 1; rows of q and k (neighbours
 * turn together in GGUF, halves here); the tables of columns and lines apart. */
enum tower_op {
    TOWER_SAME,
    TOWER_SKIP,
    TOWER_FRAMES,
    TOWER_PIXELS,
    TOWER_PLUS_ONE,
    TOWER_QUERY,
    TOWER_TWO_TABLES
};
struct tower_name {
    const char *hf, *gguf;
    enum tower_op op;
};
struct tower_kind {
    const char *models; /* "a|b": model_type */
    const char *projector, *act;
    float eps, mean[3], std[3]; /* where config.json and the processor's say nothing */
    int merge, n_ff, n_layer;   /* 0: it says them */
    bool neighbours;            /* GGUF has rows of q and k so that neighbours turn together */
    const struct tower_name *whole, *layer;
};
const struct tower_kind *tower_kind_find(const char *model_type);

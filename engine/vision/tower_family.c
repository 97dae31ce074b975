/* The families of towers, by the projector's name in GGUF. sources: HF's modeling_*, processing_* and image_processing_* of each; llama.cpp's
 * clip for names of keys and tensors. */
#include "vision/tower_impl.h"

#include <string.h>

/* What both of Gemma 4 have: sizes, marks, the way into the text. */
#define GEMMA4                                                                                               \
    .table = TABLE_TWO, .rule = FIT_BUDGET, .filter = IMAGE_BICUBIC, .min_tokens = 1, .max_tokens = 280,     \
    .both_ways = true, .placeholder = "<|image|>", .start = "<|image>", .end = "<image|>",                   \
    .merger = tower_merger_gemma4, .tensor = {{.name = "mm.input_projection", .columns = COLUMNS_EMBD}}
static const struct tower_family families[] = {
    {.projector = "gemma4uv", .norm = NORM_LAYER, .no_blocks = true, .merge = 1, GEMMA4},
    {.projector = "gemma4v",
     .norm = NORM_RMS,
     .turn = TURN_HALVES,
     .theta = 100,
     .attn_scale = 1,
     .v_norm = true,
     .merge = 3,
     .shift = 1,
     GEMMA4},
    {.projector = "qwen3vl_merger",
     .norm = NORM_LAYER,
     .table = TABLE_CORNERS,
     .turn = TURN_PAIRS,
     .theta = 10000,
     .merge = 2,
     .rule = FIT_SMART,
     .filter = IMAGE_BICUBIC,
     .min_tokens = 64,
     .max_tokens = 16384,
     .three_positions = true,
     .placeholder = "<|image_pad|>",
     .before = "<|vision_start|>",
     .after = "<|vision_end|>",
     .merger = tower_merger_qwen,
     .tensor = {{.name = "mm.0", .columns = COLUMNS_MERGED}, {.name = "mm.2", .columns = COLUMNS_BEFORE}}},
    {.projector = "pixtral",
     .norm = NORM_RMS,
     .turn = TURN_NEIGHBOURS,
     .theta = 10000,
     .block_eps = 1e-5f,
     .rule = FIT_EDGE,
     .filter = IMAGE_BICUBIC,
     .min_tokens = 1,
     .max_tokens = 4096,
     .edge = 1540,
     .placeholder = "[IMG]",
     .row_end = "[IMG_BREAK]",
     .end = "[IMG_END]",
     .merger = tower_merger_pixtral,
     .tensor = {{.name = "mm.1", .columns = COLUMNS_EMBD},
                {.name = "mm.2", .columns = COLUMNS_BEFORE},
                {.name = "mm.patch_merger", .columns = COLUMNS_MERGED, .may = true}},
     .soft_norm = "mm.input_norm"},
    {.projector = "idefics3",
     .norm = NORM_LAYER,
     .table = TABLE_SQUARE,
     .rule = FIT_TILES,
     .filter = IMAGE_LANCZOS,
     .edge = 2048,
     .placeholder = "<image>",
     .merger = tower_merger_idefics3,
     .tensor = {{.name = "mm.model.fc", .columns = COLUMNS_MERGED}}},
    {.projector = "gemma3",
     .norm = NORM_LAYER,
     .table = TABLE_SQUARE,
     .merge = 4,
     .rule = FIT_FIXED,
     .filter = IMAGE_BILINEAR,
     .both_ways = true,
     .placeholder = "<start_of_image>",
     .start = "\n\n<start_of_image>",
     .end = "<end_of_image>\n\n",
     .merger = tower_merger_gemma3,
     .tensor = {{.name = "mm.input_projection", .columns = COLUMNS_EMBD, .transposed = true}},
     .soft_norm = "mm.soft_emb_norm"},
};

const struct tower_family *tower_family_find(const char *projector, size_t n) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i].projector) == n && memcmp(families[i].projector, projector, n) == 0)
            return &families[i];
    return NULL;
}

/* Sizes of the CUDA backend in plain C: where every weight, page and scratch buffer lies. Needs no device. */
#pragma once
#include "seam/backend.h"
#include "cuda/plan/lowrank_plan.h"
#include "cuda/plan/unit_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_REGION_MAX = WEIGHT_GROUP_MAX,
    CUDA_SPLIT = 256,      /* keys of one attention split at least, */
    CUDA_SPLIT_WIDE = 128, /* and where heads are above 128 (attend_decode_instances.h) */
    CUDA_SPLIT_SHIFT = 5,  /* log2 of the most splits */
    CUDA_ROPE_MAX = 8,
    CUDA_ROW_WORDS = 7,     /* of a row in a step */
    CUDA_FLIGHT = 4,        /* steps that may be queued */
    CUDA_PANEL_ROWS = 4096, /* weight rows that --blas on dequantises at a time */
    SELECT_PART = 5120,     /* logits of a block of select: a multiple of 256 */
    SELECT_PARTS_MAX = 64,  /* parts of a vocabulary */
    CUDA_DRAW_BYTES = 48    /* of a dev_draw */
};

/* Rows of one layout that lie together: physical rows 0 .. rows (a multiple of 32), k columns in u units. */
struct cuda_region {
    enum layout layout;
    int rows, u;
    size_t offset, bytes; /* in the weight arena */
};
/* Row i of a member is physical row base + i / inter * stride + i % inter of its region; of matrix e of a stack, e * step rows further. */
struct cuda_member {
    int region, base, inter, stride, step;
    int n, k, col; /* col: first column of its output in the group's output */
    float factor;  /* of sums */
    float folded;  /* another one, which is in the weights; 0: none */
};
struct cuda_group {
    int n_region, n_member, n, k;
    int n_stack; /* matrices of each member */
    bool apart;  /* experts, routers and per-head matrices: never read by the matmul links */
    bool paired; /* gate and up, interleaved so that one tile holds both */
    /* some member has a bias; a factor (links: one matrix without a bias, else plain kernels) */
    bool bias, scaled;
    size_t bias_offset; /* float[n] in the constants arena; of stacks [member][n_stack][its n] */
    struct cuda_region region[CUDA_REGION_MAX];
    struct cuda_member member[WEIGHT_GROUP_MAX];
};

/* Where the input of a fused matmul lies, by what made it. */
enum act_slot { ACT_NORMED, ACT_ATTENDED, ACT_GATED, ACT_SLOTS };
/* That of the matmul that is operation i; NORMED where it is none of the others. */
enum act_slot act_slot_of(const struct op_list *l, int i);

struct cuda_plan {
    struct cuda_group *group; /* group[n_group]; embedding is group[n_group] when it is not tied */
    int n_group, embedding;   /* index of the group that holds the embedding, its member 0 */
    size_t weight_bytes;
    /* KV: offset of store s: K pool at kv_k[s], V pool at kv_v[s] */
    size_t *kv_k, *kv_v;
    size_t *state; /* of slot 0 of each state store, behind the pages */
    size_t kv_bytes;
    size_t page_table[KV_GROUPS]; /* first entry of group's table in the page table array */
    size_t n_page_entry;
    int max_rows, max_decode, max_split, max_out; /* decode rows rounded up to 8 */
    int rope_row;                                 /* most n_rot */
    int select_parts;                             /* blocks of a row of select */
    int max_k, max_head_out;                      /* widest matmul input; most n_head * head_dim_v */
    /* workspace, offsets into one allocation */
    size_t step, pages, slot_last, rope, rec[ACT_SLOTS], half[ACT_SLOTS], packet[ACT_SLOTS], square, part,
        item, cand, counter, wide_count, constant, stage, scale, packets, found, cut, best, sums, arrived,
        post, post_square; /* LINK_POST: products, which are zero in between, and sums of their squares */
    size_t stage_bytes, constant_bytes, half_row_bytes, handoff_bytes, post_bytes, workspace_bytes;
    size_t tiles[ACT_SLOTS]; /* activation tiles of prompt rows (unit_operands.cuh) */
    int tile_cols[ACT_SLOTS];
    size_t batch_pairs, batch_items, batch_count; /* of decode rows, see experts_batch.h */
    size_t mx, mx_scale;                          /* activations of block-scaled kernels and their scales */
    /* rows and their choices in the order of experts, and what blocks take of them (experts.h) */
    size_t pairs, pair_tiles;
    size_t prompt_room;         /* what .room of link_type asks for */
    size_t panel, panel_out;    /* --blas on: dequantised rows, and products of gate and up */
    size_t blas_space, mx_rows; /* cuBLASLt's own; rows of a tile of mx */
    /* results of a step: tokens, candidates, and on the host the rows of logits that were wanted */
    size_t top_offset, logits_offset, result_bytes, host_result_bytes;
    /* pinned memory of the host, CUDA_FLIGHT of each: steps, page tables and results, steps and results of the fused
     * program, which the device reads and writes itself; then the rows that are given. Staging of the upload is
     * the same memory, before any step. */
    size_t step_bytes, blob_bytes, page_bytes, pinned_bytes; /* blob: a step, rounded up */
    size_t step_draw;                                        /* draws in a step */
    size_t edit_bytes; /* edits and mask of one output; so many outputs of a step may have them: */
    int n_edited;
    size_t pin_blob, pin_pages, pin_result, pin_decode_blob, pin_decode_result, pin_input, pin_edit;
    size_t input, input_row; /* rows that are given, in the workspace, too; bytes of one */
    /* adapters: matrices in the weight arena; parts of each operation, what lies between its two products, and tables of the last step of
     * each class in the workspace; tables in pinned memory */
    struct lowrank_plan lowrank;
    size_t low_parts, low, low_table[ROW_CLASS_COUNT], pin_low, low_table_bytes;
};

/* Tiles of 64 pairs that experts' pairs fill at most. */
enum { CUDA_PAIR_TILE = 64 };
static inline size_t cuda_pair_tiles(size_t pairs, int n_expert) {
    const size_t each = pairs < (size_t)n_expert ? pairs : (size_t)n_expert;
    return pairs / CUDA_PAIR_TILE + each;
}

/* Fills a plan; arrays come from mem.h. errors: INFER_E_MEMORY, INFER_E_UNSUPPORTED. */
enum infer_status cuda_plan_make(struct cuda_plan *p, const struct backend_config *c);
void cuda_plan_free(struct cuda_plan *p);

#ifdef __cplusplus
}
#endif

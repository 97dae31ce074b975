/* Inside the vision room: a tower's sizes (tower_keys.c), weights (tower_bind.c), operations (tower_emit.c, tower_merge.c), sizes of
 * pictures (tower_fit.c), pixels to rows (tower_rows.c). */
#pragma once
#include "files/tensorfile.h"
#include "seam/op_list.h"
#include "vision/image_resize.h"
#include "vision/tower.h"

/* ---- families ---------------------------------------------------------------------------------------------- */

/* A learned vector of each place: none; by line and column of a square; the square resized, its corners on the picture's; one of the
 * column and one of the line. */
enum tower_table { TABLE_NONE, TABLE_SQUARE, TABLE_CORNERS, TABLE_TWO };
/* How q and k turn by line and column: not; halves of all pairs (i, i + d/2), frequencies anew for each; neighbours, frequencies in
 * turns; each half of a head for itself, column first. */
enum tower_turn { TURN_NONE, TURN_PAIRS, TURN_NEIGHBOURS, TURN_HALVES };
/* What size a picture gets. */
enum tower_rule { FIT_SMART, FIT_BUDGET, FIT_EDGE, FIT_FIXED, FIT_TILES };

/* A product of the projector: its columns are those of a patch, of a row's patches, or what the one before in the table gives. */
enum tower_columns { COLUMNS_EMBD, COLUMNS_MERGED, COLUMNS_BEFORE };
struct tower_tensor {
    const char *name; /* without .weight */
    enum tower_columns columns;
    bool may;        /* be absent */
    bool transposed; /* in the file */
};

struct tower_emitter;
struct tower_family {
    const char *projector; /* in GGUF */
    enum norm_kind norm;
    enum tower_table table;
    enum tower_turn turn;
    float theta;
    float attn_scale; /* 0: 1 / sqrt(head_dim) */
    float block_eps;  /* of the blocks' norms; 0: the file's */
    bool v_norm;      /* values are normalised without weights */
    bool no_blocks;
    int merge;   /* patches a side of a row; 0: the file says */
    float shift; /* of pixels, which are then times 1 + shift: 1 makes 0 .. 1 to -1 .. 1 */
    enum tower_rule rule;
    enum image_filter filter;
    int min_tokens, max_tokens, edge; /* edge: the longest, of FIT_EDGE */
    bool three_positions, both_ways;
    const char *placeholder, *before, *after;
    /* Text before the rows of a picture, behind each line of them but the last, behind the last; NULL: none. */
    const char *start, *row_end, *end;
    /* Patches x [T] to rows of the text model, into rows [T_out]. */
    void (*merger)(struct tower_emitter *e, struct view x, struct view rows);
    /* Of the projector, in the order of struct tower.more; the last one that must be there gives rows. */
    struct tower_tensor tensor[5];
    const char *soft_norm; /* norm in front of the projector; NULL: none */
};
const struct tower_family *tower_family_find(const char *projector, size_t n);

/* ---- a tower ----------------------------------------------------------------------------------------------- */

struct tower_norm {
    const float *w, *bias; /* w NULL: none */
    int n;
};
/* A product, of several members with the same input; where inputs and outputs are bounded, low .. high each. */
struct tower_linear {
    struct weight_group w;
    bool bounded;
    float in[2], out[2];
};
struct tower_layer {
    struct tower_norm ln1, ln2, attn_post, ffn_post, q_norm, k_norm, ls1, ls2;
    struct tower_linear qkv[3], out, up[2], down; /* qkv, up: one of several members, or each its own */
    int n_qkv, n_up;
    bool gated;
};

enum { TOWER_MORE = 12, TOWER_DEEPSTACK = 8, TOWER_GROUPS = 8 };
struct tower {
    struct tensorfile *file;
    const struct tower_family *family;
    struct tower_options options;
    struct arena arena;
    /* of the file */
    int n_embd, n_ff, n_layer, n_head, head_dim, n_out, image_size, patch, merge;
    int min_pixels, max_pixels, edge; /* 0: the family's */
    bool neox;                        /* pairs (i, i + d/2) where the family has neighbours */
    float eps, out_eps, mean[3], std[3];
    enum act_kind act;
    struct act_numbers act_k;
    int min_tokens, max_tokens;
    /* weights */
    struct tower_linear patch_embd;
    struct tower_norm pre_ln, post_ln, patch_norm[3], soft_norm;
    const float *table; /* [n_table][n_embd], or of lines and columns [2][n_table][n_embd] */
    int n_table;
    struct tower_layer *layer;
    struct tower_linear more[TOWER_MORE];
    const float *std_bias, *std_scale; /* bias: added behind the scale */
    const int32_t *unfold;             /* columns of merged patches, number by number */
    struct {
        int layer;
        struct tower_norm norm;
        struct tower_linear fc1, fc2;
    } deepstack[TOWER_DEEPSTACK];
    int n_deepstack;
    const struct weight_group **group;
    int n_group;
    struct rope rope[2];
    /* the backend */
    struct op_list list[ROW_CLASS_COUNT];
    struct backend_config config;
    struct backend_sizes sizes;
    struct backend *backend;
    struct view rows;                /* what the list ends with */
    int in_width, max_rows, max_out; /* of a piece: patches, rows */
    size_t weight_bytes;
    /* a picture on its way */
    struct image picture;
    struct tower_fit fit;
    int piece;
    float *pixels;       /* [max_rows][in_width] */
    const float **input; /* [max_rows] */
    int32_t *id, *place[3], *out_row;
    uint8_t *want; /* [max_rows]: nothing */
};

static inline int tower_side(const struct tower *t) { return t->patch * t->merge; } /* pixels of a row */

enum infer_status tower_read_keys(struct tower *t);
enum infer_status tower_bind(struct tower *t);
/* t->list and t->rows. errors: INFER_E_MEMORY */
enum infer_status tower_emit(struct tower *t);
/* The rows of t->piece of the picture into t->pixels, with their places. errors: INFER_E_MEMORY */
enum infer_status tower_put_rows(struct tower *t, int *n_row);

/* ---- the list while it is written --------------------------------------------------------------------------- */

struct tower_emitter {
    struct tower *t;
    struct op_list *list;
    int op_cap, buf_cap, layer;
};
struct view tower_buffer(struct tower_emitter *e, const char *name, int width, enum buf_rows rows);
void tower_op(struct tower_emitter *e, const char *name, struct op op);
void tower_normed(struct tower_emitter *e, const char *name, enum norm_kind kind, struct view x,
                  struct view out, int dim, float eps, const struct tower_norm *w);
void tower_mapped(struct tower_emitter *e, const char *name, struct view x, struct view out,
                  enum act_kind act, struct act_numbers k);
/* Of the rows that x has; into out, or where that has no buffer into one of its own. */
struct view tower_product(struct tower_emitter *e, const char *name, struct view x,
                          const struct tower_linear *w, struct view out);
/* n rows to one, of patches that lie together. */
struct view tower_merged(struct tower_emitter *e, const char *name, struct view x, int n, bool mean);
static const struct view tower_nowhere = {-1, 0, 0};

/* tower_merge.c */
void tower_merger_qwen(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_gemma4(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_pixtral(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_idefics3(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_gemma3(struct tower_emitter *e, struct view x, struct view rows);
void tower_deepstack(struct tower_emitter *e, int layer, struct view x, struct view rows);

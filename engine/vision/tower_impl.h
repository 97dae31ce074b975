/* Inside the vision room: a tower's sizes (tower_keys.c), weights (tower_bind.c), operations (tower_emit.c, tower_merge.c), sizes of
 * pictures (tower_fit.c), pixels to rows (tower_rows.c). */
#pragma once
#include "files/tensorfile.h"
#include "seam/op_list.h"
#include "vision/image_resize.h"
#include "vision/tower.h"

/* ---- families ---------------------------------------------------------------------------------------------- */

/* A learned vector of each place: none; by line and column of a square; the square resized, its corners on the picture's; one of the
 * column and one of the line; the square resized as pictures are, smoothed where it becomes smaller;
 * the square resized with a cubic; the square's nearest. */
enum tower_table {
    TABLE_NONE,
    TABLE_SQUARE,
    TABLE_CORNERS,
    TABLE_TWO,
    TABLE_SMOOTH,
    TABLE_CUBIC,
    TABLE_NEAREST
};
/* How q and k turn by line and column: not; halves of all pairs (i, i + d/2), frequencies anew for each; neighbours, frequencies in
 * turns; each half of a head for itself, column first; neighbours, column first, frequencies anew for each. */
enum tower_turn { TURN_NONE, TURN_PAIRS, TURN_NEIGHBOURS, TURN_HALVES, TURN_COLUMNS };
/* What size a picture gets. */
enum tower_rule {
    FIT_SMART,
    FIT_BUDGET,
    FIT_EDGE,
    FIT_FIXED,
    FIT_TILES,
    FIT_GRID,
    FIT_NEAR_GRID,
    FIT_CANVAS,
    FIT_SLICES
};
/* Whose pictures may be tiles: one picture may have more rows than a step. */
static inline bool tower_rule_tiles(enum tower_rule r) { return r >= FIT_TILES; }

/* A product of the projector: its columns are those of a patch, of a row's patches, what the one before in the table gives, or its; of four
 * patches. */
enum tower_columns { COLUMNS_EMBD, COLUMNS_MERGED, COLUMNS_BEFORE, COLUMNS_LIKE, COLUMNS_FOUR };
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
    bool table_may;   /* be absent: then there is none */
    bool v_norm;      /* values are normalised without weights */
    bool no_blocks;
    bool windows; /* blocks see squares of a picture, each so many-th all of it (the file says) */
    int merge;    /* patches a side of a row; 0: the file says */
    float shift;  /* of pixels, which are then times 1 + shift: 1 makes 0 .. 1 to -1 .. 1 */
    enum tower_rule rule;
    enum image_filter filter;
    int min_tokens, max_tokens, edge; /* edge: the longest, of FIT_EDGE */
    bool three_positions, both_ways;
    const char *placeholder, *before, *after;
    /* Text before the rows of a picture, behind each line of them but the last, behind the last; NULL: none. */
    const char *start, *row_end, *end;
    /* Of pieces: in front of a tile "TILE line _col_ column END" (from 1), between tiles of a line, behind a line of them; in front of the
     * whole beside tiles and of one that has none. */
    const char *tile, *tile_end, *tile_next, *tile_line, *over, *alone;
    bool over_first;          /* the whole stands in front of the tiles, `over` behind it */
    const char *end_alone;    /* in place of end where there are no tiles; NULL: end */
    int min_tiles, max_tiles; /* where the file says none */
    /* Blocks see a row more, a learned one, which rotations leave; its place is the table's first or last. */
    bool class_row, class_last;
    bool bf16_pixels;  /* pixels are rounded to bfloat16 on their way */
    bool norm_by_bias; /* a norm without bias is RMS */
    bool erf;          /* GELU is that with erf */
    bool ff_told;      /* by tensors how wide the feed-forward part is, not by the key */
    bool middle;  /* behind one of the blocks four patches become one (not where a row is four patches) */
    bool queries; /* rows are learned queries that see all patches, so many of each piece */
    bool grow;    /* a side shorter than a row's first becomes one, the other with it */
    /* Patches x [T] to rows of the text model, into rows [T_out]. */
    void (*merger)(struct tower_emitter *e, struct view x, struct view rows);
    /* Of the projector, in the order of struct tower.more; the last one that must be there gives rows. */
    struct tower_tensor tensor[7], soft_norm; /* soft_norm: in front of the projector; without name: none */
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

enum { TOWER_MORE = 12, TOWER_DEEPSTACK = 8, TOWER_GROUPS = 8, TOWER_QUERY_HEAD = 128 };
struct tower {
    struct tensorfile *file;
    const struct tower_family *family;
    struct tower_options options;
    struct arena arena;
    /* of the file */
    int n_embd, n_ff, n_layer, n_head, head_dim, n_out, image_size, patch, merge;
    int min_pixels, max_pixels, edge; /* 0: the family's */
    int min_tiles, max_tiles;
    int window, whole_every; /* rows a side of a window, 0: none; which blocks see the whole picture */
    int middle_at;           /* the block behind which four patches become one; -1: none */
    bool neox;               /* pairs (i, i + d/2) where the family has neighbours */
    float eps, out_eps, mean[3], std[3];
    enum act_kind act;
    struct act_numbers act_k;
    int min_tokens, max_tokens;
    /* weights */
    struct tower_linear patch_embd;
    struct tower_norm embd_norm, pre_ln, post_ln, patch_norm[3], soft_norm;
    enum tower_table places; /* the family's, or none */
    const float *table;      /* [n_table][n_embd], or of lines and columns [2][n_table][n_embd] */
    const float *class_embd; /* [n_embd], with its place; NULL: none */
    int n_table;
    struct tower_layer *layer, middle;
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
    int n_query;                  /* rows of a piece, whatever its size; 0: by its size */
    const float *query;           /* [n_query][n_out], as heads ask */
    struct tower_norm query_norm; /* of what these get */
    /* Blocks first .. last - 1 are in this list; those behind the middle, or what queries see, in another tower's: late, NULL: none. */
    int first, last;
    struct tower *late;
    /* the backend */
    struct op_list list[ROW_CLASS_COUNT];
    struct backend_config config;
    struct backend_sizes sizes;
    struct backend *backend;
    struct view rows;                /* what the list ends with */
    int in_width, max_rows, max_out; /* of a piece: patches, rows */
    int tile, tile_out;              /* pixels a side of a tile, and its rows */
    int min_whole, max_whole;        /* rows of a picture that is no tiles, and of the whole beside tiles */
    size_t weight_bytes;
    /* a picture on its way */
    struct image picture, over; /* resized; over: beside tiles the whole, small */
    struct tower_fit fit;
    int piece, n_row;       /* its patches, 0: not yet put */
    bool going;             /* the list has run in part */
    float level[3][256];    /* of a channel's bytes, as a patch has them */
    int placed_y, placed_x; /* the grid whose learned vectors stand behind the pixels; 0: none */
    float *pixels;          /* [max_rows][in_width] */
    const float **input;    /* [max_rows] */
    int32_t *id, *slot, *place[3], *out_row; /* slot: of windows */
    uint8_t *want;                           /* [max_rows]: nothing */
};

static inline int tower_side(const struct tower *t) { return t->patch * t->merge; } /* pixels of a row */

/* Rows of a piece of so many patches' squares. */
static inline int tower_rows_of(const struct tower *t, int squares) {
    return t->n_query ? t->n_query : squares;
}

/* One of a picture's pieces: tiles line by line, then the whole; where it begins in pixels, and its rows. */
struct tower_piece {
    bool over;
    int tile, x, y, grid_x, grid_y, first_row, n_row;
};
void tower_piece(const struct tower *t, const struct tower_fit *f, int piece, struct tower_piece *out);

enum infer_status tower_read_keys(struct tower *t);
enum infer_status tower_bind(struct tower *t);
/* tower_tiles.c: rules of pictures in tiles, text around these; bounds of rows, t->tile_out and t->max_out. */
enum infer_status tower_bound_tiles(struct tower *t);
enum infer_status tower_fit_tiles(const struct tower *t, struct tower_fit *f);
enum infer_status tower_fit_grid(const struct tower *t, struct tower_fit *f);
enum infer_status tower_fit_canvas(const struct tower *t, struct tower_fit *f);
enum infer_status tower_fit_slices(const struct tower *t, struct tower_fit *f);
enum infer_status tower_fit_near_grid(const struct tower *t, struct tower_fit *f);
/* Near the picture's own size, of low .. high rows; neither side less than least before. */
void tower_near_size(int side, int least, int low, int high, const struct tower_fit *f, int *to_width,
                     int *to_height);
void tower_part_of_tiles(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out);
/* t->list and t->rows. errors: INFER_E_MEMORY */
enum infer_status tower_emit(struct tower *t);
/* What queries see of a piece: behind each patch's numbers where it stands, in front of all the queries. */
void tower_put_seen(struct tower *t, const struct tower_piece *piece);
/* t->level, of the family's shift, mean and std. */
void tower_levels(struct tower *t);
/* The patches of a piece of the picture into t->pixels, with their places; how many. */
int tower_put_rows(struct tower *t, const struct tower_piece *piece);

/* ---- the list while it is written --------------------------------------------------------------------------- */

struct tower_emitter {
    struct tower *t;
    struct op_list *list;
    int op_cap, buf_cap, layer;
    bool within; /* attention is within slots, not over all rows */
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
void tower_merger_norm(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_glm4v(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_llama4(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_minicpm(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_queries(struct tower_emitter *e, struct view x, struct view rows);
void tower_merger_gemma3(struct tower_emitter *e, struct view x, struct view rows);
void tower_deepstack(struct tower_emitter *e, int layer, struct view x, struct view rows);

/* Adapters on a card (OP_LOWRANK), in plain C: where their matrices lie, as halves, and which rows of a step have which. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix lies as halves of 2^up times it, where up brings its largest number to 2^14 .. 2^15: numbers of 11 bits (halves, bfloat16 down to
 * 2^-22 of the largest) stay exact, others are rounded to 2^-11 of themselves, below 2^-28 of the largest to 2^-39 of that. */
struct lowrank_matrix {
    const float *a, *b;   /* as in struct lowrank_part, which is known by its b; a NULL: a vector */
    int k, r, n, n_stack; /* A lies [n_stack][r][pitch], B [n_stack][r][n] */
    size_t a_at, b_at;    /* in the weight arena */
};
/* Columns of A in memory: 16 bytes a lane. */
static inline int lowrank_pitch(int k) { return (k + 7) & ~7; }

/* A part as kernels read it. first: blocks of so many ranks that the parts before have. */
enum { LOWRANK_FEW = 4, LOWRANK_MORE = 32 }; /* ranks of a block: rows one by one, rows on tensor cores */
struct lowrank_dev_part {
    uint64_t a, b; /* in the weight arena; vector: a is not read */
    int adapter, col, n, k, r, at, n_stack;
    int first_few, first_more;
    float down_a, down_b; /* sums are times it */
    int vector, pad;
};

/* Which rows of a step have which adapter, as it is sent: rows that have any, sorted by the first one that they have, in tiles of one such
 * adapter each; a set for all rows and one for outputs. */
enum { LOWRANK_SETS = 2 /* of rows, of outputs */ };
struct lowrank_table {
    int n_slot, n_adapter, tile, most_rows[LOWRANK_SETS], most_tiles[LOWRANK_SETS];
    /* offsets of int n_tile[LOWRANK_SETS] (0), int tile[][4] {first, rows, adapter, whether some row has others, too}, int order[][2]
     * {row, slot}, float scale[n_slot][n_adapter]; what a step writes of order first is scratch */
    size_t tiles[LOWRANK_SETS], order[LOWRANK_SETS], scale, bytes;
};
/* Tiles that n rows can have at most. */
static inline int lowrank_most_tiles(int n, int n_adapter, int tile) {
    return n / tile + (n < n_adapter ? n : n_adapter);
}
void lowrank_table_of(struct lowrank_table *t, int most_rows, int most_out, int n_slot, int n_adapter,
                      int tile);
/* The table of a step into blob[bytes]; owner[rows or outputs of the largest step]: scratch. */
void lowrank_table_fill(const struct lowrank_table *t, const struct step *s, uint8_t *blob, int32_t *owner);

enum { LOWRANK_TILE_DECODE = 8, LOWRANK_TILE_PROMPT = 16 };
struct lowrank_plan {
    int n_adapter;                 /* 0: no list has any; nothing below then */
    struct lowrank_matrix *matrix; /* matrix[n_matrix], each once, by the address of b */
    int n_matrix;
    size_t bytes;                       /* of the matrices */
    size_t n_part;                      /* parts of all operations, of both lists: */
    size_t first_part[ROW_CLASS_COUNT]; /* in the order of each */
    size_t n_low;                       /* numbers between the two products of one operation */
    struct lowrank_table table[ROW_CLASS_COUNT];
};
/* Offsets of matrices from *at on, which goes on. errors: INFER_E_MEMORY */
enum infer_status lowrank_plan_make(struct lowrank_plan *p, const struct backend_config *c, size_t *at);
void lowrank_plan_free(struct lowrank_plan *p);
/* The matrix of a part; never NULL. */
const struct lowrank_matrix *lowrank_find(const struct lowrank_plan *p, const struct lowrank_part *part);
/* The exponent by which n numbers are brought up. */
int lowrank_up(const float *x, size_t n);
/* The parts of an operation as kernels read them, but for .down_a and .down_b; blocks of ranks of all: *few, *more. */
void lowrank_dev_parts(const struct lowrank_plan *p, const struct lowrank *w, struct lowrank_dev_part *out,
                       int *few, int *more);

#ifdef __cplusplus
}
#endif

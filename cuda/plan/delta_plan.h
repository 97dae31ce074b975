/* Sizes of the kernels of the delta rule and of Mamba-2, and of what those of prompt rows keep between each other. Plain C. */
#pragma once
#include <stddef.h>

enum {
    DELTA_DIM = 128,
    DELTA_TAPS = 4,
    CHUNK_ROWS = 64
}; /* rows and columns of a state; width of the convolution */
/* Runs of chunks and chunks that a step of n rows of n_slot sequences has at most: a chunk ends at a multiple of CHUNK_ROWS, or with the
 * sequence's rows. */
static inline int delta_runs(int n, int n_slot) { return n < n_slot ? n : n_slot; }
static inline int delta_chunks(int n, int n_slot) {
    const int most = n / CHUNK_ROWS + 2 * delta_runs(n, n_slot);
    return n < most ? n : most;
}
/* Of one chunk and value head: the inverse of its triangle and the products of queries and keys, halves [64][64] each; factors of its
 * rows [4][64]: beta, e^G, e^(last G - G), and in [3][0] e^(last G). */
enum { DELTA_PAIR_BYTES = 2 * CHUNK_ROWS * CHUNK_ROWS * 2, DELTA_FACTOR_BYTES = 4 * CHUNK_ROWS * 4 };
/* Mamba-2's: products alone; steps, e^G, e^(last G - G), e^(last G). */
enum {
    SSM_PAIR_BYTES = CHUNK_ROWS * CHUNK_ROWS * 2,
    SSM_COLS = 64,
    SSM_CLUSTER = 8,
    SSM_NORM_DIM = 8192
}; /* columns, heads of a normed group (at most) of decode rows */
/* Where things lie in a step's memory: counts, runs, chunks, then pairs and factors of chunks and heads. */
struct delta_room {
    size_t chunk, pair, factor, bytes;
};
static inline struct delta_room chunk_room_of(int n, int n_slot, int n_head, size_t pair_bytes) {
    const size_t heads = (size_t)delta_chunks(n, n_slot) * (size_t)n_head;
    struct delta_room r;
    r.chunk = 16 + (size_t)delta_runs(n, n_slot) * 16;
    r.pair = (r.chunk + (size_t)delta_chunks(n, n_slot) * 8 + 255) / 256 * 256;
    r.factor = r.pair + heads * pair_bytes;
    r.bytes = r.factor + heads * DELTA_FACTOR_BYTES;
    return r;
}
static inline struct delta_room delta_room_of(int n, int n_slot, int n_value) {
    return chunk_room_of(n, n_slot, n_value, DELTA_PAIR_BYTES);
}

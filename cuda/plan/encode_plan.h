/* What attention without a store (an image's encoder) keeps of q, k and v: halves in tiles of a head's 128 rows, columns in chunks of eight,
 * [chunk][row][8], so that a row of a chunk is 16 bytes and 8 rows are what tensor cores read at once. Plain C. */
#pragma once
#include <stddef.h>

enum { ENCODE_ROWS = 128, ENCODE_DIM = 128 /* of a head, at most */ };
/* Columns of a head in its tiles, zeros behind the last: a multiple of 16 that kernels have. */
static inline int encode_columns(int dim) { return dim <= 64 ? 64 : dim <= 80 ? 80 : dim <= 96 ? 96 : 128; }
static inline size_t encode_tile_bytes(int dim) {
    return (size_t)ENCODE_ROWS * (size_t)encode_columns(dim) * 2;
}
/* Where keys and values lie behind the queries; tiles of a head. */
struct encode_room {
    size_t tiles, k, v, bytes;
};
static inline struct encode_room encode_room_of(int max_rows, int n_head, int n_kv_head, int dim) {
    struct encode_room r;
    r.tiles = ((size_t)max_rows + ENCODE_ROWS - 1) / ENCODE_ROWS;
    r.k = r.tiles * (size_t)n_head * encode_tile_bytes(dim);
    r.v = r.k + r.tiles * (size_t)n_kv_head * encode_tile_bytes(dim);
    r.bytes = r.v + r.tiles * (size_t)n_kv_head * encode_tile_bytes(dim);
    return r;
}

/* Inside of shard.c and shard_state.c: what is cut, and how. */
#pragma once
#include "model/shard.h"

struct shard {
    struct model *m;
    const struct model *of;
    int rank, n;
    enum experts_by by;
};
struct span {
    int first, n;
};

/* The share of `total` things that stay together by `unit`s. */
static inline struct span shard_span(int total, int unit, int rank, int n) {
    const int64_t units = (total + unit - 1) / unit;
    int64_t a = (units * rank + n - 1) / n * unit, b = (units * (rank + 1) + n - 1) / n * unit;
    if (b > total) b = total;
    return (struct span){(int)a, (int)(b - a)};
}
static inline bool divides(int total, int unit, int n) { return unit && (total + unit - 1) / unit >= n; }
static inline struct span scaled(struct span s, int by) { return (struct span){s.first * by, s.n * by}; }

/* The fewest things of `width` columns each that fill blocks of the matrix that reads them; 0: it cannot be cut. */
int shard_unit(const struct weight_group *reads, int width);
enum infer_status shard_columns(struct shard *s, struct weight_group *g, struct span span);
/* Rows of each member. */
enum infer_status shard_members(struct shard *s, struct weight_group *g, const struct span *span);
/* Of weights for all heads, or for one that counts for all. */
void shard_norm(struct norm_weights *w, struct span heads, int dim);

/* shard_state.c: heads and channels of a layer with a state. */
enum infer_status shard_mixer(struct shard *s, struct layer *l);

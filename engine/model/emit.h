/* Inside the model room: the list while it is written, for forward.c and blk_*.c. */
#pragma once
#include "model/forward.h"

/* Its arrays are as long as the longest list, so emitting cannot fail but for adapters. */
struct emitter {
    struct op_list *list;
    const struct model *m;
    const struct layer_range *range;
    int op_cap, buf_cap, layer;
    bool long_context;
    struct view chosen; /* positions that attention looks at, where it is not all */
    struct view inputs; /* of all layers their own; set where the model has some */
    /* what a head's layer reads in the place of the normalised x; set where the model is one */
    struct view beside;
    struct view predicted, part; /* of several streams what a layer predicts of all, and one of them */
    struct arena *arena;
    enum infer_status status; /* of memory for adapters */
};

struct view emit_buffer(struct emitter *e, const char *name, int width, enum buf_rows rows, bool float32);
/* With what adapters add to it. */
void emit_op(struct emitter *e, const char *name, struct op op);
/* x += what adapters add behind the layer. */
void emit_vectors(struct emitter *e, struct view x);
/* Groups of dim elements of x; an absent norm (w NULL) is none. */
void emit_norm(struct emitter *e, const char *name, struct view x, struct view out, int dim,
               const struct norm_weights *w);
/* The same without weights. */
void emit_unit_norm(struct emitter *e, const char *name, struct view x, struct view out, int dim);
/* The norm of x in a buffer of its own; x itself where there is none. */
struct view emit_normed(struct emitter *e, const char *name, struct view x, const struct norm_weights *w);
/* Into a buffer of its own; x in the order of the columns where they have one. */
struct view emit_matmul(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                        enum buf_rows rows);
/* The same, in float32 on every backend where the weights are of a float type. */
struct view emit_exact(struct emitter *e, const char *name, struct view x, const struct weight_group *w);
/* Where ranks add up: the sum over ranks of x; a product that may be a part of such a sum; the logits, of which this rank has columns. */
void emit_reduce(struct emitter *e, const char *name, struct view x);
struct view emit_part(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                      bool partial);
/* Attention and the other mixer of a layer are parts of one sum, that both make. */
static inline bool emit_sums_both(const struct layer *l) {
    return l->mixer.kind == MIX_BOTH && l->attn.partial && l->mixer.partial;
}
struct view emit_gathered(struct emitter *e, struct view h);
void emit_add(struct emitter *e, const char *name, struct view x, struct view y); /* x += y */
/* head_dim: from a head's first rotated number to the next head's. */
void emit_rope(struct emitter *e, const char *name, struct view x, int n_head, int head_dim,
               const struct layer *l);
void emit_map(struct emitter *e, const char *name, struct view x, struct view out, enum act_kind act,
              struct act_numbers k);

/* Mixers: what a layer makes of its normalised input h. */
struct view emit_delta(struct emitter *e, const struct layer *l, struct view h); /* blk_delta.c */
struct view emit_conv(struct emitter *e, const struct layer *l, struct view h);  /* blk_mamba.c */
struct view emit_ssm(struct emitter *e, const struct layer *l, struct view h);
/* The positions that attention of this layer and those behind looks at, of x and the normalised latent of its queries (blk_index.c). */
void emit_index(struct emitter *e, const struct layer *l, struct view h, struct view low);
/* The choice itself, by queries and a weight for each of their heads, or without; sets e->chosen. */
void emit_choice(struct emitter *e, const struct layer *l, struct view q, struct view w);
/* blk_entries.c: attention to a window and to entries of runs of positions. */
struct view emit_entries(struct emitter *e, const struct layer *l, struct view h);
void emit_index_runs(struct emitter *e, const struct layer *l, struct view h); /* of x alone */
/* Of forward.c: attention and the dense part, for blocks that are put together otherwise. */
struct view emit_attention(struct emitter *e, const struct layer *l, struct view h);
struct view emit_dense(struct emitter *e, const struct layer *l, struct view h);
struct view emit_feed_forward(struct emitter *e, const struct layer *l, struct view x, struct view h);
/* blk_streams.c: x [n_stream][n_embd] from its first n_embd numbers; a layer; the mean of all, in the first ones. sparse: gates. */
void emit_streams_begin(struct emitter *e, struct view x);
void emit_streams_layer(struct emitter *e, const struct layer *l, struct view x);
struct view emit_streams_end(struct emitter *e, struct view x);
void emit_sparse(struct emitter *e, const struct layer *l, struct view gate);
/* blk_hyper.c: streams that are mixed, all of them the first in the beginning; a layer; what they come to. */
void emit_hyper_begin(struct emitter *e, struct view x);
void emit_hyper_layer(struct emitter *e, const struct layer *l, struct view x);
struct view emit_hyper_end(struct emitter *e, struct view x);
/* blk_gates.c: streams that are read by gates, all of them the first in the beginning (emit_hyper_begin). */
void emit_gates_layer(struct emitter *e, const struct layer *l, struct view x);
struct view emit_gates_end(struct emitter *e, struct view x);
struct view emit_mixer(struct emitter *e, const struct layer *l, struct view h); /* forward.c */
/* blk_draft.c: x of a model that drafts; and, where a head reads x in front of layer il, a copy of it among taps. */
void emit_draft_input(struct emitter *e, struct view x);
void emit_taps(struct emitter *e, int il, struct view x, struct view taps);

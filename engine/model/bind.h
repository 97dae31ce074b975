/* Inside the model room: tensors to slots, for bind.c and bind_*.c. */
#pragma once
#include "model/model_impl.h"

struct binder {
    struct model *m;
    uint8_t *used; /* used[n_tensor] */
    int max_group;
};

/* Several residual streams (bind_streams.c): of the model and of a layer; nothing where there is one. */
enum infer_status bind_streams(struct binder *b);
enum infer_status bind_streams_of(struct binder *b, int il);
/* A row of n times the number. */
enum infer_status bind_row(struct binder *b, struct weight_group *g, int n, float factor);
/* Streams that are read by gates (bind_gates.c): what a layer keeps for its choice of positions and for runs of tokens, behind its groups;
 * what ends the streams, and the table. */
enum infer_status bind_gates_of(struct binder *b, int il);
enum infer_status bind_gates_head(struct binder *b);
/* What a symbolic size is in a layer; l NULL: outside of the layers. */
int bind_dim(const struct model *m, const struct layer *l, enum dim d);
/* bind_entries.c: what attention to entries keeps, its output, streams that are mixed, experts of ids; and what ends them. */
enum infer_status bind_entries(struct binder *b, int il);
/* The rotation `of` at the first positions of runs of so many: one for all layers that have the same, since a card keeps a table of each. */
enum infer_status bind_rope_runs(struct model *m, const struct rope *of, int every, const struct rope **out);
enum infer_status bind_hyper_head(struct binder *b);
/* The slot's name in the file, of layer il. */
const char *bind_name(const struct model *m, char name[80], enum slot slot, int il);
/* Finds the tensor of a slot in layer il (-1: outside) and checks its shape; *out NULL when it may be absent. */
enum infer_status bind_slot(struct binder *b, enum slot slot, int il, const struct tensor **out);
/* A vector, or a matrix without products, as floats: the map itself when it is F32, else a decoded copy. */
enum infer_status bind_vector(struct binder *b, enum slot slot, int il, const float **out);
struct weight bind_weight(const struct tensor *t);
/* The factor of a whole matrix, in GGUF the tensor X.scale beside X.weight: one element. */
enum infer_status bind_factor(struct binder *b, const struct tensor *matrix, float *factor);
/* A slot's matrix with its factor and its bias; *there: false when it may be absent and is. */
enum infer_status bind_matrix(struct binder *b, enum slot matrix, enum slot bias, int il, struct weight *out,
                              bool *there);
/* used: how many matrices of a stack a token reads. */
void bind_member(struct model *m, struct weight_group *g, const struct weight *w, int used);
/* The group's number, unless it is empty: after its members, which stay as they are where it is split by orders of columns.
 * errors: INFER_E_MEMORY */
enum infer_status bind_number(struct binder *b, struct weight_group *g);

/* Matrices that read the same input: each a tensor of its own, or all of them in this order rows of a fused one. */
struct group_slots {
    enum slot fused, fused_bias, matrix[WEIGHT_GROUP_MAX], bias[WEIGHT_GROUP_MAX];
};

/* Without any of its slots in the architecture the group stays empty. */
enum infer_status bind_group(struct binder *b, struct weight_group *g, int il, const struct group_slots *s);

/* loops.c: what layers that are computed more than once cost, `before` the numbers in front of them; after all is bound, these layers themselves,
 * each time with the store and the norm that it has then. */
void bind_loop_bytes(struct model *m, const struct model *before);
enum infer_status bind_loops(struct binder *b);
/* The matrices of a latent's keys and values, apart or, in files before 2025, of each head together (bind_latent.c). */
enum infer_status bind_latent(struct binder *b, int il);
/* What is not one tensor a matrix: gates among queries; of a layer with a state, all but its norm and the matrices of its input and
 * output; its stores (bind_mixer.c). */
enum infer_status bind_mixer(struct binder *b, int il);
/* What slots hold; nothing where the architecture or the file has none. */
enum infer_status bind_norm(struct binder *b, enum slot w, enum slot bias, int il, struct norm_weights *out);

/* The norm in front of a part or of the head: what slots hold, or ones where the architecture's have no weights. */
enum infer_status bind_front_norm(struct binder *b, enum slot w, enum slot bias, int il,
                                  struct norm_weights *out);
/* Of encoders what is around the layers (bind_encoder.c). */
enum infer_status bind_encoder(struct binder *b);

/* bind_draft.c: the embedding; what a layer that drafts reads; the last norm and the head; the slot that a model has its table or head from, its own of
 * a layer that drafts, where the file has it, else the one that all share, with its layer in *il; whether another model of the file has
 * a tensor: of layers that draft, or of those that do not. */
enum infer_status bind_embedding(struct binder *b);
enum infer_status bind_draft_input(struct binder *b);
enum infer_status bind_output(struct binder *b);
enum slot bind_end(const struct model *m, enum slot own, enum slot shared, int *il);
bool bind_is_others(const struct model *m, const char *name);

/* An adapter bound to a model: what `lowrank` operations add behind products, and vectors behind layers. Immutable after adapter_open. */
#pragma once
#include "files/adapterfile.h"
#include "model/model.h"

struct adapter_part {
    int group;               /* id of the group of weights whose product it is added to; -1: a vector */
    int layer;               /* behind which that is added */
    struct lowrank_part low; /* but for .adapter and .at */
};

struct adapter {
    const char *path;
    struct adapter_part *part;
    int n_part;
    uint64_t hash; /* of what is added, where; never 0 */
    size_t bytes;  /* of its matrices, in float32 */
    struct arena arena;
};

/* Reads a file or a folder (adapterfile.h) for m; of vectors those behind layers first_layer .. last_layer. errors: those of adapterfile_open; INFER_E_INPUT (a tensor that m has not, shapes that do not
 * fit it), INFER_E_UNSUPPORTED (a matrix that is not multiplied as it is: embeddings, the latent's heads; rank above LOWRANK_MAX) */
enum infer_status adapter_open(struct adapter **out, const struct model *m, const char *path, int first_layer,
                               int last_layer);
void adapter_close(struct adapter *a);
/* What one rank adds: `share` is its share (model_shard) of the model that a is bound to. Views into a, which outlives it. errors:
 * INFER_E_UNSUPPORTED (experts of which ranks have whole ones), INFER_E_MEMORY */
enum infer_status adapter_share(struct adapter **out, const struct adapter *a, const struct model *share);
/* Rows of q and k that rotate are in halves in folders and neighbours in GGUF: the row of one kind that row r of the tensor of this name of
 * the other kind is. */
int adapter_row(const struct model *m, bool from_folder, bool to_folder, const char *name, int r);

/* Those that an engine has, in the order of their scales (step.adapter). */
struct adapters {
    const struct adapter **adapter; /* adapter[n]; NULL: nothing stands there */
    int n;
    /* the last n_room of them may come and go, each with `rank` in sum on any matrix; never vectors */
    int n_room, rank;
    bool shared; /* shares of a rank (adapter_share), which are this list's own */
};
/* What they add to the product of a group, or (group NULL) behind a layer, with room for what may come; `low` is what operations have. */
struct adapter_site {
    struct lowrank low;
    struct lowrank_part *part; /* part[n_most]: low.part */
    int n_most, group, layer;
};
/* *out NULL: nothing, and there is no room. errors: INFER_E_MEMORY */
enum infer_status adapters_at(const struct adapters *a, struct arena *arena, const struct weight_group *group,
                              int layer, struct adapter_site **out);
/* Whether a fits a room of this rank on each matrix. errors: INFER_E_INPUT (rank, vectors) */
enum infer_status adapter_fits(const struct adapter *a, int rank);
/* After a place of the room has changed, of every site. */
void adapters_fill(const struct adapters *a, struct adapter_site *site);

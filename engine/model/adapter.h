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
/* Rows of q and k that rotate are in halves in folders and neighbours in GGUF: the row of one kind that row r of the tensor of this name of
 * the other kind is. */
int adapter_row(const struct model *m, bool from_folder, bool to_folder, const char *name, int r);

/* Those that an engine has, in the order of their scales (step.adapter). */
struct adapters {
    const struct adapter *const *adapter; /* adapter[n] */
    int n;
};
/* What they add to the product of a group, or (group -1) behind a layer; .n_part 0: nothing. errors: INFER_E_MEMORY */
enum infer_status adapters_of(const struct adapters *a, struct arena *arena, int group, int layer,
                              struct lowrank *out);

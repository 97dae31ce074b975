/* Which element types the stores of a model have: what `.kv_type` says, and what was measured of a model and lies beside it. */
#pragma once
#include "base/mem.h"
#include "model/model.h"
#include "seam/store.h"

struct kv_types {
    enum kv_type k, v;
};
/* text, of items with a comma between, of which a later one wins:
 *
 *     TYPE, TYPE/TYPE       all layers: keys and values alike, or apart; what has keys alone as keys
 *     full:.. window:..     keys and values of layers without an attention window, and with one
 *     N:.. N-M:..           keys and values of these layers
 *     index:TYPE            what positions are chosen by; index.N:.. index.N-M:.. of these layers
 *     entries:TYPE          entries of runs of positions; entries.N:.. as well
 *     auto, auto:KL         alone: what kv_tuned_read gives
 *
 * NULL, and layers that no item names: otherwise. Where all stores come to one type, *all is it and *out NULL; else *all is KV_TYPES and
 * out[n_store] in the arena. Values that lie in keys have their type. Of layers that draft only a text of one type is heard.
 * errors: INFER_E_INPUT (no such type or layer), those of kv_tuned_read */
enum infer_status kv_types_read(enum kv_type *all, const struct kv_types **out, struct arena *arena,
                                const struct model *m, const char *text, enum kv_type otherwise);

/* A measured assignment, as a text of kv_types_read. */
struct kv_choice {
    double kl;      /* mean divergence of the logits from those with f16 */
    uint64_t bytes; /* of keys and values at the depth where that was measured */
    const char *kv_type;
};
/* All that is kept of a measurement. */
struct kv_tuned {
    double kl; /* the bound that was asked for */
    int depth, counted;
    const char *text; /* name of the text */
    const struct kv_choice *choice;
    int n_choice;
};
enum { KV_TUNED_PATH = 4200 };
/* Beside the model: its path and ".kv.json". */
const char *kv_tuned_path(char out[KV_TUNED_PATH], const struct model *m);
/* path NULL: beside the model. errors: those of outfile_write */
enum infer_status kv_tuned_write(const struct model *m, const char *path, const struct kv_tuned *t);
/* The choice with the fewest bytes of those with a divergence of at most kl (below 0: what was asked for when it was measured), out of the
 * file beside the model; in the arena. errors: INFER_E_IO (no such file: the message says how to make it), INFER_E_INPUT (broken, of another
 * model, none so near), INFER_E_MEMORY */
enum infer_status kv_tuned_read(const char **out, struct arena *arena, const struct model *m, double kl);

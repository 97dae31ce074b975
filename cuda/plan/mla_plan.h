/* MLA (attention by a latent) on tensor cores: which sizes, and into how many parts a decode row's keys are cut. Plain C. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LATENT_K = 576, /* numbers of a key, */
    LATENT_V = 512, /* of which so many are the value */
    LATENT_SPLIT = 128,
    LATENT_TURN = 64 /* numbers that are turned together where the cache has few bits (kv_turn_of) */
};
/* Whether the kernels take these, in blocks with so much shared memory. */
bool mla_has(const struct kv_store *s, const struct op_attend *o, size_t shared_bytes);
/* Pairs of a row and a head that a block of decode rows takes. */
int mla_pairs(int n_head);
/* Parts for an engine of so many decode rows at most: of them alone, so that a row's bits do not depend on its neighbours. */
int mla_splits(int max_rows, int n_head);
/* Bytes of the parts that a decode list needs. NULL: no list. */
size_t mla_part_bytes(const struct op_list *l, const struct kv_store *store);

#ifdef __cplusplus
}
#endif

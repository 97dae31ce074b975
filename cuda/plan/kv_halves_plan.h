/* Where prompt rows find keys and values as halves of a cache that has them in another type: one store's pools, which every layer's
 * attention fills again. They lie in the workspace, at kv_k[n_store] of struct cuda_plan. Plain C. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* v: where values begin, behind the keys; bytes 0: the cache is of halves, or no kernel reads them. */
struct kv_halves_plan {
    size_t v, bytes;
};
/* That of the largest pools of the stores that the lists name. */
struct kv_halves_plan kv_halves_plan_of(const struct backend_config *c);

#ifdef __cplusplus
}
#endif

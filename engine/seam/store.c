#include "seam/store.h"
#include <stdio.h>

const char *kv_type_name(enum kv_type type) {
    static const char *const name[KV_TYPES + 1] = {"f32", "f16", "q8_0", "f8", "q5_0", "q4_0", "mixed"};
    return name[type];
}

/* FNV-1a over the types. source: Fowler, Noll, Vo */
const char *kv_types_name(char out[KV_TYPES_NAME], const struct kv_store *store, int n) {
    uint32_t h = 2166136261;
    bool same = true;
    for (int i = 0; i < n; i++) {
        h = (h ^ (uint32_t)(store[i].k_type * KV_TYPES + store[i].v_type)) * 16777619;
        same = same && store[i].k_type == store[0].k_type && store[i].v_type == store[0].k_type;
    }
    if (same)
        snprintf(out, KV_TYPES_NAME, "%s", kv_type_name(n ? store[0].k_type : KV_F16));
    else
        snprintf(out, KV_TYPES_NAME, "mixed-%08x", (unsigned)h);
    return out;
}

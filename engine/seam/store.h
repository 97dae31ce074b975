/* What a layer keeps of a sequence from step to step: keys and values, in pages, and recurrent states, in slots. Read by C and C++. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KV_PAGE = 64, /* tokens of a page */
    /* a kernel may read what lies with a visible position in one aligned tile of so many positions; nothing else */
    KV_TILE = 128,
    KV_GROUPS = 8 /* of a model, at most */
};
/* From KV_F8 on: rows are turned and coded as kv_low.h says. */
enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_F8, KV_Q5_0, KV_Q4_0, KV_TYPES };
static inline bool kv_turned(enum kv_type type) { return type >= KV_F8; }

/* What one layer keeps. Order inside a pool, K and V apart: K[page][n_kv_head][KV_PAGE][head_dim_k], V the
 * same with head_dim_v. Q8_0: rows of head_dim in blocks of 32. Layers of a group share page ids.
 * v_in_k (MLA): the value of a position is the first head_dim_v numbers of its key, and is kept nowhere else: V has no numbers. With
 * head_dim_v 0 keys alone are kept, those that `index` reads. every > 1: what stands for whole runs of so many positions alone is kept, put
 * and read at the last one of a run: a page of KV_PAGE positions has kv_page_rows rows of a head. */
struct kv_store {
    int group, n_kv_head, head_dim_k, head_dim_v;
    bool v_in_k;
    enum kv_type k_type, v_type; /* as a plan has chosen them; v_in_k: the same */
    int every;                   /* 0: 1 */
};
struct kv_group {
    int window;    /* 0: full attention; else a row sees the last window positions, itself included */
    int n_page;    /* pages in the pool of each layer of the group */
    int max_pages; /* entries of one sequence's page table */
};

/* What one layer keeps of the positions before, in sum: n_elem float32 a slot, pool[n_state_slot][n_elem]. Slot i < n_slot is what sequence
 * i goes on from, read by its first row in a step and written by its last; before position 0 it counts as zeros, whatever it holds. The
 * slots behind are copies of it, which no operation touches. */
struct state_store {
    int n_elem;
};

/* bytes of one row of head_dim keys or values */
static inline size_t kv_row_bytes(enum kv_type type, int head_dim) {
    size_t n = (size_t)head_dim;
    switch (type) {
    case KV_F32:
        return n * 4;
    case KV_F16:
        return n * 2;
    case KV_F8:
        return n ? n + 2 : 0;
    case KV_Q5_0:
        return (n + 31) / 32 * QUANT_Q5_0_BYTES;
    case KV_Q4_0:
        return (n + 31) / 32 * QUANT_Q4_0_BYTES;
    default:
        return (n + 31) / 32 * QUANT_Q8_0_BYTES;
    }
}
const char *kv_type_name(enum kv_type type); /* KV_TYPES: mixed */
enum { KV_TYPES_NAME = 24 };
/* The type of n stores, "f16", or where they differ "mixed-" and a number of all; in out. */
const char *kv_types_name(char out[KV_TYPES_NAME], const struct kv_store *store, int n);

/* numbers of a key or of a value that are turned together: 64, or the largest power of two that divides the row, and the values inside of it */
static inline int kv_turn_of(const struct kv_store *s, bool value) {
    const int n = s->v_in_k ? s->head_dim_k | s->head_dim_v
                  : value   ? s->head_dim_v
                            : s->head_dim_k,
              low = n & -n;
    return low < 64 ? low : 64;
}
/* numbers of one row of V, apart from K */
static inline int kv_v_dim(const struct kv_store *s) { return s->v_in_k ? 0 : s->head_dim_v; }
/* s in the types of another one. */
static inline struct kv_store kv_store_typed(const struct kv_store *s, const struct kv_store *types) {
    struct kv_store out = *s;
    out.k_type = types->k_type, out.v_type = types->v_type;
    return out;
}
/* bytes of one row of K, and of V apart from it */
static inline size_t kv_k_bytes(const struct kv_store *s) { return kv_row_bytes(s->k_type, s->head_dim_k); }
static inline size_t kv_v_bytes(const struct kv_store *s) { return kv_row_bytes(s->v_type, kv_v_dim(s)); }
/* rows of a head in a page, in the place of KV_PAGE; whether something of a position is kept; its row */
static inline int kv_every(const struct kv_store *s) { return s->every > 1 ? s->every : 1; }
static inline int kv_page_rows(const struct kv_store *s) { return (KV_PAGE + kv_every(s) - 1) / kv_every(s); }
static inline bool kv_keeps(const struct kv_store *s, int pos) { return (pos + 1) % kv_every(s) == 0; }
static inline int kv_page_row(const struct kv_store *s, int pos) { return pos % KV_PAGE / kv_every(s); }
/* bytes of one page of a store: K, then V */
static inline size_t kv_page_bytes(const struct kv_store *s) {
    return (size_t)s->n_kv_head * (size_t)kv_page_rows(s) * (kv_k_bytes(s) + kv_v_bytes(s));
}

#ifdef __cplusplus
}
#endif

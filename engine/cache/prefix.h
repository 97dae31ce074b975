/* A number for what stands at the beginning of a sequence: pages and states are found by it. Keyed, so that nobody makes two prefixes
 * of one number on purpose; 128 bits, so that it does not happen by chance. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct prefix_key {
    uint64_t a, b; /* both 0: the empty prefix */
};
struct prefix_secret {
    uint64_t k0, k1;
};
/* Another one each time. */
struct prefix_secret prefix_secret(void);
/* How the last tokens of a prefix were computed, a part of its number. */
enum prefix_kind {
    PREFIX_PROMPT, /* as prompt rows, and cut where that changes no bit */
    PREFIX_OTHER,  /* some as answer, or cut elsewhere: the last bits may differ from those of a prompt */
    PREFIX_SALT    /* no tokens: what keeps prefixes of different users apart */
};
/* The prefix before, followed by ids[n] computed so. */
struct prefix_key prefix_extend(const struct prefix_secret *s, struct prefix_key before, const int32_t *ids,
                                int n, enum prefix_kind kind);
static inline bool prefix_same(struct prefix_key x, struct prefix_key y) { return x.a == y.a && x.b == y.b; }

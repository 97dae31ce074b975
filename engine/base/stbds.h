/* Maps from byte strings to numbers, on stb_ds, with memory from an arena.
 *
 * stb_ds is compiled once, in stbds.c. It does not look at failed allocations, so each growing call runs
 * under a jump that leads out of it; what it held then lies in the arena and goes with it. Keys are hashed
 * with a seed drawn at random for each process: a file cannot be made so that its names collide. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"

struct strmap; /* lives in the arena it was made with; lookups from several threads are safe */

/* A new empty map in arena a. errors: INFER_E_MEMORY. */
enum infer_status strmap_new(struct strmap **out, struct arena *a);
/* key[len] -> value, unless the key is there: then *old is its value and nothing changes. The key is not
 * copied and must live as long as the map. old: -1 when the key is new. value is not negative.
 * errors: INFER_E_MEMORY; the map must not be used after it (its arena is still valid). */
enum infer_status strmap_put(struct strmap *m, const char *key, size_t len, int64_t value, int64_t *old);
/* Value of key[len], -1 when absent. */
int64_t strmap_get(const struct strmap *m, const char *key, size_t len);
size_t strmap_count(const struct strmap *m);

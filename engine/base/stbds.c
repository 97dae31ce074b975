#include "base/stbds.h"

#include <setjmp.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- the allocator of stb_ds: an arena that the running call names; a failure jumps out of stb_ds ---- */

static _Thread_local struct arena *scope_arena;
static _Thread_local jmp_buf scope_failed;

enum { SCOPE_HEADER = 64 }; /* the size of a block, before it; keeps the block's alignment */

static void *scope_realloc(void *p, size_t n) {
    size_t total;
    char *block = size_add(n, SCOPE_HEADER, &total) ? arena_alloc(scope_arena, total) : NULL;
    if (!block) longjmp(scope_failed, 1);
    memcpy(block, &n, sizeof n);
    if (p) {
        size_t old;
        memcpy(&old, (char *)p - SCOPE_HEADER, sizeof old);
        memcpy(block + SCOPE_HEADER, p, old < n ? old : n);
    }
    return block + SCOPE_HEADER;
}

#define STBDS_REALLOC(c, p, n) scope_realloc(p, n)
#define STBDS_FREE(c, p)       ((void)(p)) /* the arena frees it */
#define STB_DS_IMPLEMENTATION
#include <stb/stb_ds.h>

/* ---- maps ---- */

/* stb_ds hashes strings of C with a weak function; here its SipHash of the bytes is the key. Two strings with
 * one hash are told apart by comparing, and the second goes to the next free number. */
struct strmap_slot {
    uint64_t key; /* hash of text[len] */
    const char *text;
    size_t len;
    int64_t value;
};

struct strmap {
    struct arena *arena;
    uint64_t seed;
    struct strmap_slot *slot; /* an stb_ds hash map */
};

static uint64_t random_seed(void) {
    static uint64_t seed; /* written by any thread; a race gives two maps different seeds, which is fine */
    uint64_t s = __atomic_load_n(&seed, __ATOMIC_RELAXED);
    if (s) return s;
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) != sizeof s)
        s = (uint64_t)(uintptr_t)&s ^ (uint64_t)time(NULL) << 20;
    s |= 1;
    __atomic_store_n(&seed, s, __ATOMIC_RELAXED);
    return s;
}

/* 64-bit hash of key[len]. stb_ds has fast weak paths for 4 and 8 bytes: those lengths get a tail. */
static uint64_t hash(const struct strmap *m, const char *key, size_t len) {
    if (len == 4 || len == 8) {
        char padded[9] = {0};
        memcpy(padded, key, len);
        return stbds_hash_bytes(padded, len + 1, m->seed);
    }
    return stbds_hash_bytes((void *)key, len, m->seed);
}

enum infer_status strmap_new(struct strmap **out, struct arena *a) {
    struct strmap *m = arena_alloc(a, sizeof *m);
    if (!m) return err_set(INFER_E_MEMORY, "out of memory: an index of names");
    *m = (struct strmap){.arena = a, .seed = random_seed()};
    *out = m;
    return INFER_OK;
}

/* The slot of key, or NULL; *h becomes the number under which it is or would be stored. */
static struct strmap_slot *find(const struct strmap *m, const char *key, size_t len, uint64_t *h) {
    *h = hash(m, key, len);
    if (!m->slot) return NULL;
    for (;; ++*h) {
        struct strmap_slot *slot = m->slot; /* a copy: the macro assigns to its argument */
        ptrdiff_t i;
        (void)stbds_hmgeti_ts(slot, *h, i);
        if (i < 0) return NULL;
        if (slot[i].len == len && memcmp(slot[i].text, key, len) == 0) return &slot[i];
    }
}

enum infer_status strmap_put(struct strmap *m, const char *key, size_t len, int64_t value, int64_t *old) {
    uint64_t h;
    const struct strmap_slot *slot = find(m, key, len, &h);
    *old = slot ? slot->value : -1;
    if (slot) return INFER_OK;
    scope_arena = m->arena;
    if (setjmp(scope_failed)) return err_set(INFER_E_MEMORY, "out of memory: an index of names");
    struct strmap_slot s = {h, key, len, value};
    stbds_hmputs(m->slot, s);
    return INFER_OK;
}

int64_t strmap_get(const struct strmap *m, const char *key, size_t len) {
    uint64_t h;
    const struct strmap_slot *slot = find(m, key, len, &h);
    return slot ? slot->value : -1;
}

size_t strmap_count(const struct strmap *m) { return (size_t)stbds_hmlen(m->slot); }

/* Memory: checked size arithmetic, the only door to malloc, arenas, and two hooks for tests.
 *
 * Every allocation of the library goes through mem_alloc or mem_piece, so tests can fail the k-th one (mem_fail_at) and
 * can prove that a step allocates nothing (mem_count before and after, mem_forbid while it runs). Arenas hold
 * what lives and dies together; views into them are never freed one by one. */
#pragma once
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checked arithmetic: false (and *out unchanged) when the result does not fit. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
/* Rounds n up to a multiple of align (a power of two). */
static inline bool size_align(size_t n, size_t align, size_t *out) {
    size_t padded;
    if (!size_add(n, align - 1, &padded)) return false;
    *out = padded & ~(align - 1);
    return true;
}

/* 64-byte aligned memory, zeroed; NULL when it cannot be had (n == 0 gives a valid pointer). what names it in
 * messages. */
void *mem_alloc(size_t n);
/* The same for many small pieces: not cleared, aligned to 16 bytes, 16 bytes beside it. */
void *mem_piece(size_t n);
/* Grows or shrinks, contents kept, new bytes not zeroed; NULL leaves the old block valid. */
void *mem_realloc(void *p, size_t n);
void mem_free(void *p);
/* For a library that takes failed allocations for something else, or aborts: mem_trapped is mem_piece, but while this thread has a
 * trap a failed one jumps to it. What the library held is then freed by mem_trap_drop; mem_trap_end leaves it to its owner, who
 * frees with either function. Not nested:
 *     if (setjmp(trap->jump)) { mem_trap_drop(trap); out of memory } else { mem_trap_begin(trap); call; mem_trap_end(trap); } */
struct mem_trap {
    jmp_buf jump;
    struct mem_link *first;
};
void *mem_trapped(size_t n);
void mem_trapped_free(void *p);
void mem_trap_begin(struct mem_trap *t);
void mem_trap_end(struct mem_trap *t);
void mem_trap_drop(struct mem_trap *t);
/* mem_alloc with a status: INFER_E_MEMORY naming what and the bytes. */
enum infer_status mem_new(void *out_pointer, size_t n, const char *what);
char *mem_strdup(const char *s);

/* Test hooks. mem_count: allocations so far. mem_fail_at(k): the k-th allocation from now fails (0: none).
 * mem_forbid(true): an allocation by this thread is a bug until mem_forbid(false). */
uint64_t mem_count(void);
/* Allocations that failed so far: tells a library's "cannot parse" from its "no memory". */
uint64_t mem_failed(void);
void mem_fail_at(uint64_t k);
void mem_forbid(bool on);

/* An arena: a list of chunks; all of it is freed at once. */
struct arena {
    struct arena_chunk *chunk; /* newest first */
    size_t used, total;        /* bytes handed out; bytes taken from the system */
};
/* n bytes, 64-byte aligned when n >= 64, else 16; zeroed; NULL when out of memory. */
void *arena_alloc(struct arena *a, size_t n);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_free(struct arena *a);

#ifdef __cplusplus
}
#endif

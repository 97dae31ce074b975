#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Under AddressSanitizer the bytes that round a block up to 64 are out of bounds too. */
#ifdef __has_feature
#define MEM_FEATURE(x) __has_feature(x)
#else
#define MEM_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || MEM_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
enum { PAGES_OF_THEIR_OWN = false }; /* a map of its own would go unwatched */
#else
enum { PAGES_OF_THEIR_OWN = true };
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* A block is [header][n bytes], and the header ends with a mark. 64 bytes of header keep the payload aligned to as much; a
 * small piece has the mark alone. */
struct mark {
    size_t n, header;
};
enum { MEM_HEADER = 64, ARENA_CHUNK = 64 << 10, HUGE_PAGE = 2 << 20 };

static atomic_uint_fast64_t n_alloc;
static atomic_uint_fast64_t fail_at; /* value of n_alloc whose allocation fails; 0: none */
static atomic_uint_fast64_t n_failed;
static _Thread_local bool forbidden;

/* total bytes, a multiple of HUGE_PAGE, from the kernel: zeros, and no page is there before it is touched; NULL. */
static char *map_block(size_t total) {
    size_t n;
    if (!size_add(total, HUGE_PAGE, &n)) return NULL;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)p % HUGE_PAGE;
    if (before) munmap(p, before);
    if (before < HUGE_PAGE) munmap(p + before + total, HUGE_PAGE - before);
    (void)madvise(p + before, total, MADV_HUGEPAGE);
    return p + before;
}

static struct mark *mark_of(void *p) { return (struct mark *)p - 1; }

/* Counts an allocation of n bytes; true: it is the one that shall fail. */
static bool count_one(size_t n) {
    if (forbidden) infer_bug("%zu bytes allocated where nothing may be", n);
    return atomic_fetch_add(&n_alloc, 1) + 1 == atomic_load(&fail_at);
}

static void *alloc_block(size_t n, bool zero) {
    bool fails = count_one(n);
    size_t total, align = n < HUGE_PAGE ? 64 : HUGE_PAGE;
    bool fits = size_add(n, MEM_HEADER, &total) && size_align(total, align, &total);
    bool map = PAGES_OF_THEIR_OWN && align == HUGE_PAGE;
    char *block = !fits || fails ? NULL : map ? map_block(total) : aligned_alloc(align, total);
    if (!block) {
        atomic_fetch_add(&n_failed, 1);
        return NULL;
    }
    *mark_of(block + MEM_HEADER) = (struct mark){n, MEM_HEADER};
    if (zero && !map) memset(block + MEM_HEADER, 0, n);
    ASAN_POISON_MEMORY_REGION(block + MEM_HEADER + n, total - MEM_HEADER - n);
    return block + MEM_HEADER;
}

void *mem_alloc(size_t n) { return alloc_block(n, true); }

void *mem_piece(size_t n) {
    size_t total;
    bool fails = count_one(n) || !size_add(n, sizeof(struct mark), &total);
    struct mark *m = fails ? NULL : malloc(total);
    if (!m) {
        atomic_fetch_add(&n_failed, 1);
        return NULL;
    }
    *m = (struct mark){n, sizeof *m};
    return m + 1;
}

/* ---- pieces that are known until their trap ends: [link][mark][n bytes] ---- */

struct mem_link {
    struct mem_link *next, **at; /* at: what points here; NULL: in no list */
};
static _Thread_local struct mem_trap *trap;

void *mem_trapped(size_t n) {
    size_t total, header = sizeof(struct mem_link) + sizeof(struct mark);
    bool fails = count_one(n) || !size_add(n, header, &total);
    struct mem_link *l = fails ? NULL : malloc(total);
    if (!l) {
        atomic_fetch_add(&n_failed, 1);
        if (trap) longjmp(trap->jump, 1);
        return NULL;
    }
    *l = (struct mem_link){0};
    if (trap) {
        *l = (struct mem_link){trap->first, &trap->first};
        if (l->next) l->next->at = &l->next;
        trap->first = l;
    }
    *(struct mark *)(l + 1) = (struct mark){n, header};
    return (char *)l + header;
}

static void unlink_piece(struct mem_link *l) {
    if (l->at) *l->at = l->next;
    if (l->next) l->next->at = l->at;
    *l = (struct mem_link){0};
}

void mem_trapped_free(void *p) {
    if (p) unlink_piece((struct mem_link *)mark_of(p) - 1);
    mem_free(p);
}

void mem_trap_begin(struct mem_trap *t) {
    t->first = NULL;
    trap = t;
}

void mem_trap_end(struct mem_trap *t) {
    trap = NULL;
    while (t->first) unlink_piece(t->first);
}

void mem_trap_drop(struct mem_trap *t) {
    trap = NULL;
    while (t->first) {
        struct mem_link *l = t->first;
        unlink_piece(l);
        free(l);
    }
}

void *mem_realloc(void *p, size_t n) {
    void *q = alloc_block(n, false);
    if (!q || !p) return q;
    size_t old = mark_of(p)->n;
    memcpy(q, p, old < n ? old : n);
    mem_free(p);
    return q;
}

void mem_free(void *p) {
    if (!p) return;
    struct mark m = *mark_of(p);
    char *block = (char *)p - m.header;
    size_t n = m.n;
    if (PAGES_OF_THEIR_OWN && n >= HUGE_PAGE && m.header == MEM_HEADER)
        munmap(block, (n + MEM_HEADER + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    else
        free(block);
}

enum infer_status mem_new(void *out_pointer, size_t n, const char *what) {
    void *p = mem_alloc(n);
    memcpy(out_pointer, &p, sizeof p);
    if (!p) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for %s", n, what);
    return INFER_OK;
}

char *mem_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = mem_alloc(n);
    if (copy) memcpy(copy, s, n);
    return copy;
}

uint64_t mem_failed(void) { return atomic_load(&n_failed); }
uint64_t mem_count(void) { return atomic_load(&n_alloc); }
void mem_fail_at(uint64_t k) { atomic_store(&fail_at, k ? atomic_load(&n_alloc) + k : 0); }
void mem_forbid(bool on) { forbidden = on; }

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    _Alignas(64) char data[];
};

/* A new chunk of at least n bytes in front. */
static struct arena_chunk *chunk_new(struct arena *a, size_t n) {
    size_t size = n > ARENA_CHUNK ? n : ARENA_CHUNK, total;
    if (!size_add(size, sizeof(struct arena_chunk), &total)) return NULL;
    struct arena_chunk *c = mem_alloc(total);
    if (!c) return NULL;
    c->size = size;
    c->used = 0;
    c->next = a->chunk;
    a->chunk = c;
    a->total += total;
    return c;
}

void *arena_alloc(struct arena *a, size_t n) {
    size_t align = n >= 64 ? 64 : 16, start = 0, end = 0;
    struct arena_chunk *c = a->chunk;
    if (c) start = (c->used + align - 1) & ~(align - 1);
    if (!c || !size_add(start, n, &end) || end > c->size) {
        c = chunk_new(a, n);
        if (!c) return NULL;
        start = 0;
        end = n;
    }
    c->used = end;
    a->used += n;
    return c->data + start;
}

char *arena_strndup(struct arena *a, const char *s, size_t n) {
    char *copy = n == SIZE_MAX ? NULL : arena_alloc(a, n + 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void arena_free(struct arena *a) {
    struct arena_chunk *c = a->chunk;
    while (c) {
        struct arena_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
    *a = (struct arena){0};
}

#include "cache/kv.h"

enum infer_status kv_init(struct kv *kv, struct arena *arena, int n_slot, int n_ctx, int n_page) {
    *kv = (struct kv){.n_slot = n_slot, .n_ctx = n_ctx, .n_page = n_page};
    kv->max_pages = (n_ctx + 1 + KV_PAGE - 1) / KV_PAGE;
    kv->n_bucket = 2 * n_page + 1;
    kv->seq = arena_alloc(arena, (size_t)n_slot * sizeof *kv->seq);
    kv->table = arena_alloc(arena, (size_t)n_slot * (size_t)kv->max_pages * sizeof *kv->table);
    kv->page = arena_alloc(arena, (size_t)n_page * sizeof *kv->page);
    kv->bucket = arena_alloc(arena, (size_t)kv->n_bucket * sizeof *kv->bucket);
    if (!kv->seq || !kv->table || !kv->page || !kv->bucket)
        return err_set(INFER_E_MEMORY, "out of memory for %d page tables", n_slot);
    for (int i = 0; i < n_slot; i++) {
        kv->seq[i].ids = arena_alloc(arena, ((size_t)n_ctx + 1) * sizeof(int32_t));
        kv->seq[i].page = kv->table + (size_t)i * (size_t)kv->max_pages;
        if (!kv->seq[i].ids) return err_set(INFER_E_MEMORY, "out of memory for %d sequences", n_slot);
    }
    for (int i = 0; i < kv->n_bucket; i++) kv->bucket[i] = -1;
    for (int i = 0; i < n_page; i++)
        kv->page[i] = (struct kv_page){.prev = i - 1, .next = i + 1 < n_page ? i + 1 : -1, .chain = -1};
    kv->free_head = 0;
    kv->free_tail = n_page - 1;
    kv->n_free = n_page;
    return INFER_OK;
}

/* ---- the list of free pages ---------------------------------------------------------------------------------- */

static void free_unlink(struct kv *kv, int i) {
    struct kv_page *p = &kv->page[i];
    if (p->prev >= 0)
        kv->page[p->prev].next = p->next;
    else
        kv->free_head = p->next;
    if (p->next >= 0)
        kv->page[p->next].prev = p->prev;
    else
        kv->free_tail = p->prev;
    kv->n_free--;
}

static void free_append(struct kv *kv, int i) {
    kv->page[i].prev = kv->free_tail;
    kv->page[i].next = -1;
    if (kv->free_tail >= 0)
        kv->page[kv->free_tail].next = i;
    else
        kv->free_head = i;
    kv->free_tail = i;
    kv->n_free++;
}

/* ---- the table of known pages -------------------------------------------------------------------------------- */

static int *bucket_of(struct kv *kv, uint64_t parent, const int32_t *ids) {
    uint64_t h = parent * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < KV_PAGE; i++) h = (h ^ (uint32_t)ids[i]) * UINT64_C(0x100000001b3);
    return &kv->bucket[(h ^ h >> 29) % (uint64_t)kv->n_bucket];
}

static int find_known(struct kv *kv, uint64_t parent, const int32_t *ids) {
    for (int i = *bucket_of(kv, parent, ids); i >= 0; i = kv->page[i].chain)
        if (kv->page[i].parent == parent && !memcmp(kv->page[i].ids, ids, sizeof kv->page[i].ids)) return i;
    return -1;
}

static void forget(struct kv *kv, int i) {
    struct kv_page *p = &kv->page[i];
    if (!p->known) return;
    int *at = bucket_of(kv, p->parent, p->ids);
    while (*at != i) at = &kv->page[*at].chain;
    *at = p->chain;
    p->chain = -1;
    p->known = false;
}

/* Enters the pages of a sequence that are full and whose ids are all known. */
static void enter_known(struct kv *kv, struct kv_seq *s) {
    int n_full = (s->n_known < s->length ? s->n_known : s->length) / KV_PAGE;
    uint64_t parent = 0;
    for (int i = 0; i < n_full; i++) {
        struct kv_page *p = &kv->page[s->page[i]];
        const int32_t *ids = s->ids + i * KV_PAGE;
        if (!p->known) {
            if (find_known(kv, parent, ids) >= 0)
                return; /* another sequence computed the same prefix first */
            memcpy(p->ids, ids, sizeof p->ids);
            p->parent = parent;
            p->uid = ++kv->last_uid;
            int *at = bucket_of(kv, parent, ids);
            p->chain = *at;
            *at = s->page[i];
            p->known = true;
        }
        parent = p->uid;
    }
}

/* ---- sequences ----------------------------------------------------------------------------------------------- */

static int take_page(struct kv *kv) {
    int i = kv->free_head;
    if (i < 0) return -1;
    free_unlink(kv, i);
    forget(kv, i);
    kv->page[i].n_ref = 1;
    return i;
}

static void release_page(struct kv *kv, int i) {
    if (--kv->page[i].n_ref == 0) free_append(kv, i);
}

enum infer_status kv_open(struct kv *kv, int *slot) {
    for (int i = 0; i < kv->n_slot; i++) {
        struct kv_seq *s = &kv->seq[i];
        if (s->open) continue;
        s->open = true;
        s->length = s->n_known = s->n_page = 0;
        *slot = i;
        return INFER_OK;
    }
    return err_set(INFER_E_FULL, "all %d slots are in use (--slots)", kv->n_slot);
}

void kv_close(struct kv *kv, int slot) {
    struct kv_seq *s = &kv->seq[slot];
    /* the last page first: a prefix is worth keeping longer than what followed it */
    for (int i = s->n_page - 1; i >= 0; i--) release_page(kv, s->page[i]);
    s->open = false;
    s->length = s->n_known = s->n_page = 0;
    kv->version++;
}

enum infer_status kv_reserve(struct kv *kv, int slot, int length) {
    struct kv_seq *s = &kv->seq[slot];
    if (length > kv->n_ctx)
        return err_set(INFER_E_FULL, "context full: %d positions wanted, the context holds %d (--ctx)",
                       length, kv->n_ctx);
    int n = (length + KV_PAGE - 1) / KV_PAGE;
    if (n - s->n_page > kv->n_free)
        return err_set(INFER_E_FULL, "key/value cache full: %d pages wanted, %d free", n - s->n_page,
                       kv->n_free);
    while (s->n_page < n) {
        s->page[s->n_page++] = take_page(kv);
        kv->version++;
    }
    return INFER_OK;
}

void kv_append(struct kv *kv, int slot, const int32_t *ids, int n) {
    struct kv_seq *s = &kv->seq[slot];
    for (int i = 0; i < n; i++) {
        if (s->n_known == s->length && ids[i] >= 0) s->n_known++;
        s->ids[s->length++] = ids[i];
    }
    enter_known(kv, s);
}

void kv_learn(struct kv *kv, int slot, int32_t id) {
    struct kv_seq *s = &kv->seq[slot];
    if (s->n_known >= s->length) return;
    s->ids[s->n_known++] = id;
    enter_known(kv, s);
}

enum infer_status kv_rewind(struct kv *kv, int slot, int length, int *copy_from, int *copy_to) {
    struct kv_seq *s = &kv->seq[slot];
    int n = (length + KV_PAGE - 1) / KV_PAGE;
    *copy_from = *copy_to = -1;
    if (length % KV_PAGE && length < s->length) { /* the last kept page will be written again */
        int last = s->page[n - 1];
        if (kv->page[last].n_ref > 1) {
            int fresh = take_page(kv);
            if (fresh < 0)
                return err_set(INFER_E_FULL, "key/value cache full: no page to copy a shared one to");
            kv->page[last].n_ref--;
            s->page[n - 1] = fresh;
            *copy_from = last;
            *copy_to = fresh;
        } else {
            forget(kv, last);
        }
    }
    while (s->n_page > n) release_page(kv, s->page[--s->n_page]);
    if (length < s->length) s->length = length;
    if (s->n_known > s->length) s->n_known = s->length;
    kv->version++;
    return INFER_OK;
}

int kv_match(struct kv *kv, int slot, const int32_t *ids, int n) {
    struct kv_seq *s = &kv->seq[slot];
    uint64_t parent = 0;
    for (int i = 0; (i + 1) * KV_PAGE < n && s->n_page < kv->max_pages; i++) {
        int p = find_known(kv, parent, ids + i * KV_PAGE);
        if (p < 0) break;
        if (kv->page[p].n_ref++ == 0) free_unlink(kv, p);
        s->page[s->n_page++] = p;
        parent = kv->page[p].uid;
    }
    s->length = s->n_known = s->n_page * KV_PAGE;
    memcpy(s->ids, ids, (size_t)s->length * sizeof *ids);
    kv->version++;
    return s->length;
}

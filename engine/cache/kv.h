/* Pages of the key/value cache: which page of the pool holds which positions of which sequence.
 *
 * Bookkeeping only: the bytes live in the backend. A page is KV_PAGE tokens and has the same id in every layer. Full
 * pages are shared by equal prefixes: a page is known by (its parent's content, its 64 ids), counted, and kept after
 * its last sequence closed until the pool needs it. Nothing allocates after kv_init. */
#pragma once
#include "seam/backend.h"
#include "base/mem.h"

struct kv_page {
    int n_ref;            /* sequences that hold it */
    int prev, next;       /* list of pages with n_ref 0, oldest use first; -1 ends */
    int chain;            /* next page in the bucket; -1 ends */
    bool known;           /* ids, parent and uid are valid and it is in the table */
    uint64_t uid, parent; /* content number of this page and of the page before it (0: none) */
    int32_t ids[KV_PAGE];
};

struct kv_seq {
    bool open;
    int length;    /* positions held */
    int n_known;   /* ids[0 .. n_known) are known; the rest was sampled on the device and not read yet */
    int n_page;    /* entries of its page table in use */
    int32_t *ids;  /* ids[n_ctx + 1] */
    int32_t *page; /* page[max_pages] */
};

struct kv {
    int n_slot, n_ctx, n_page, max_pages;
    struct kv_seq *seq;   /* seq[n_slot] */
    int32_t *table;       /* table[n_slot][max_pages]: what struct step points at */
    uint64_t version;     /* changes with every page table */
    struct kv_page *page; /* page[n_page] */
    int free_head, free_tail, n_free;
    int *bucket; /* bucket[n_bucket] */
    int n_bucket;
    uint64_t last_uid;
};

enum infer_status kv_init(struct kv *kv, struct arena *arena, int n_slot, int n_ctx, int n_page);
/* errors: INFER_E_FULL: all slots are taken */
enum infer_status kv_open(struct kv *kv, int *slot);
void kv_close(struct kv *kv, int slot);
/* Pages for positions up to length; errors: INFER_E_FULL with both numbers. The length itself does not change. */
enum infer_status kv_reserve(struct kv *kv, int slot, int length);
/* Sets the new length after a step; ids[n] are the new tokens (-1: not known yet). */
void kv_append(struct kv *kv, int slot, const int32_t *ids, int n);
/* Fills in the first unknown id. */
void kv_learn(struct kv *kv, int slot, int32_t id);
/* Sets the length back. *copy_from, *copy_to: pages that the backend must copy (a shared page that will be written);
 * -1: none. errors: INFER_E_FULL when a copy needs a page and none is free. */
enum infer_status kv_rewind(struct kv *kv, int slot, int length, int *copy_from, int *copy_to);
/* Adopts known pages of a prefix of ids[n], at most n - 1 tokens; the sequence must be empty. Returns the new length. */
int kv_match(struct kv *kv, int slot, const int32_t *ids, int n);

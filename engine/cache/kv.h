/* What a sequence keeps: which page of which pool holds which of its positions, and which slot which of its states.
 *
 * Bookkeeping only: the bytes live in the backend. A page is KV_PAGE tokens and has the same id in every layer of a group; each group
 * has its own pool and its own page tables. Full pages are shared by equal prefixes: a page is known by a salt, the tokens up to its
 * end and how they were computed; it is counted, and kept after its last sequence closed until the pool needs it. A group with a window frees the pages behind it as a
 * sequence goes on. What a sequence may adopt or go back to is what every group and every state store still has: the least of them.
 * Nothing allocates after kv_init. */
#pragma once
#include "base/mem.h"
#include "cache/prefix.h"
#include "cache/state.h"
#include "seam/store.h"

struct kv_page {
    int n_ref;      /* sequences that hold it */
    int prev, next; /* list of pages with n_ref 0, oldest use first; -1 ends */
    int chain;      /* next page in the bucket; -1 ends */
    bool known;     /* key is valid and it is in the table of known pages */
    struct prefix_key key;
    int later;   /* next page in the list of those to be kept, kv_unkept; -1 ends */
    bool listed; /* it is in it */
};
/* What a known page is of. */
struct kv_origin {
    struct prefix_key before;
    int32_t ids[KV_PAGE];
};

/* The pages of one group. */
struct kv_pool {
    int window, n_page;
    int32_t *table;       /* table[n_slot][max_pages]; -1: no page */
    struct kv_page *page; /* page[n_page] */
    int free_head, free_tail, n_free;
    int *bucket; /* bucket[n_bucket] */
    int n_bucket;
    int run;                  /* of matches */
    struct kv_origin *origin; /* origin[n_page]; NULL: kv_keep_pages was not called */
    int later_head, later_tail;
};

struct kv_seq {
    bool open;
    int length;   /* positions held */
    int n_known;  /* ids[0 .. n_known) are known; the rest was sampled on the device and not read yet */
    int32_t *ids; /* ids[n_ctx + 1] */
    int n_state; /* models with states: where its state stands; positions up to length are computed again first */
    int mark;     /* where a copy of its own stands; -1: none */
    uint8_t *how; /* how[n_ctx + 1]: how each position was computed, enum kv_how bits */
    /* shift[n_ctx + 1]: by how much rotations have a smaller position; KV_GIVEN: what its id does not say */
    int32_t *shift;
    struct prefix_key root; /* of the salt under which its prefixes are known */
    bool alone;             /* no other process may know them */
    int n_key;              /* full pages whose ids are known */
    struct prefix_key *key; /* key[max_pages]: of the prefix up to the end of each of them */
    struct kv_span {
        int first, end; /* entries of its page table in use: first .. end - 1 */
    } * span;           /* span[n_group] */
};

/* How a position was computed: as a decode row; as the first row of a run, so that its bits may depend on it. */
enum kv_how { KV_DECODED = 1, KV_BEGINS = 2 };

enum { KV_GIVEN = INT32_MIN };

struct kv {
    int n_slot, n_ctx, max_pages, n_group;
    struct kv_seq *seq;     /* seq[n_slot] */
    struct kv_pool *pool;   /* pool[n_group] */
    const int32_t **tables; /* tables[n_group]: what struct step points at */
    uint64_t version;       /* changes with every page table */
    struct state state;
    struct prefix_secret secret, names; /* names: of rows that are no tokens (kv_embed_id) */
    int grid; /* cuts of prompt rows at multiples of it change no bit; 0: no cut does */
    struct {
        struct prefix_key *key; /* key[max_pages], kind[max_pages]: of the pages that were looked for last */
        uint8_t *kind;          /* enum prefix_kind */
    } match;
};

/* Among whose prefixes one is looked for. */
struct kv_find {
    uint64_t salt;    /* 0: of those without one */
    bool exact;       /* only pages of which all is PREFIX_PROMPT */
    uint64_t adapter; /* what is added to products, and how much of it; 0: nothing */
    bool alone;       /* in this process: nothing of it is kept */
};

/* What the backend must copy before the next step. */
struct kv_moves {
    int n_page;
    struct {
        int group, from, to; /* pages */
    } page[KV_GROUPS];
    int state_from, state_to; /* slots of the state stores; -1: none */
};

enum { KV_BACK = 256 }; /* positions that a window group keeps for rewinds, beside what queued steps read */

/* Pages that a group needs so that no sequence within n_ctx ever waits for one: max_pages of them a slot, or what its window sees.
 * n_row: rows that may be queued at once, of all sequences. */
int kv_pages_wanted(int window, int n_ctx, int n_slot, int n_row);

/* n_keep: copies of states, 0: no layer has a state; n_mark: sequences that have one of their own behind those, all or none.
 * errors: INFER_E_MEMORY */
enum infer_status kv_init(struct kv *kv, struct arena *arena, int n_slot, int n_ctx,
                          const struct kv_group *group, int n_group, int n_keep, int n_mark);
/* errors: INFER_E_FULL: all slots are taken */
enum infer_status kv_open(struct kv *kv, int *slot);
void kv_close(struct kv *kv, int slot);
/* Pages that any sequence may still take: free ones, of groups that keep all positions. */
int kv_free(const struct kv *kv);
/* Whether there are pages for positions up to length beside those of calls before, whose sum per group is in wanted[n_group]; adds to
 * it. from as in kv_reserve. Pages that rows from there on do not see are freed, nothing else changes. errors: INFER_E_FULL names the
 * sequence and both numbers */
enum infer_status kv_room(struct kv *kv, int slot, int length, int from, int *wanted);
/* Pages for positions up to length. from: the first position that a queued step or this one computes, or that will be computed again
 * if one of them fails; pages that rows from there on do not see are freed. The length itself does not change. errors: INFER_E_FULL
 * with both numbers */
enum infer_status kv_reserve(struct kv *kv, int slot, int length, int from);
/* Frees what rows from position from on do not see: the first one that a queued step computes, or the next. */
void kv_settle(struct kv *kv, int slot, int from);
/* Sets the new length after a step; ids[n] are the new tokens (-1: not known yet), how[n] enum kv_how bits (NULL: 0). */
void kv_append(struct kv *kv, int slot, const int32_t *ids, const uint8_t *how, int n);
/* What stands in the place of an id for a row embed[n] that is no token: below -1, by its content. */
int32_t kv_embed_id(const struct kv *kv, const float *embed, int n);
/* The state stands where the sequence ends: its rows are queued. */
void kv_state_runs(struct kv *kv, int slot);
/* The slot for a copy of the state before rows that may be taken back; -1: there is none, or it is there. */
int kv_mark(struct kv *kv, int slot);
/* What the slot holds is no state of the sequence any more: the best copy takes its place; the sequence is empty where windows have let go
 * of what rows from there on see. */
void kv_state_lost(struct kv *kv, int slot, struct kv_moves *moves);
/* Fills in the first unknown id. */
void kv_learn(struct kv *kv, int slot, int32_t id);
/* Sets the length back to length, or to 0 where a window group no longer has the pages that the next position sees. A state goes back to
 * the best copy up to there (n_state), at worst to the beginning; where its tokens are not all known, or windows have let go of what
 * their rows saw, the length is that of a copy.
 * What lies beyond and was not computed is found by nobody.
 * errors: INFER_E_FULL when a copy of a shared page needs a page and none is free; nothing has changed then */
enum kv_beyond {
    KV_COMPUTED,
    KV_LOST,   /* their step failed */
    KV_NOT_RUN /* their step was not run: the state is as it was at length */
};
enum infer_status kv_rewind(struct kv *kv, int slot, int length, enum kv_beyond beyond,
                            struct kv_moves *moves);
/* Adopts the longest prefix of ids[n], whole pages and at most n - 1 tokens, of which every group knows the pages that the next
 * position sees, and every state store a copy; the sequence must be empty, and is known under find's salt from here on; find NULL: under
 * the one that it has, exact or not. Returns the new length. */
int kv_match(struct kv *kv, int slot, const int32_t *ids, int n, const struct kv_find *find,
             struct kv_moves *moves);
/* The length that kv_match would return; *n_free: pages of those that kv_free counts now. */
int kv_probe(struct kv *kv, const int32_t *ids, int n, const struct kv_find *find, int *n_free);
/* The slot where a copy of the state is to be kept of a sequence whose queued steps end here; -1: none. lasting: not the first to go. */
int kv_keep_state(struct kv *kv, int slot, bool lasting);
/* Rows that are no tokens are named under these from now on; false: other sequences than slot have some under others. */
bool kv_take_names(struct kv *kv, int slot, struct prefix_secret names);
/* Makes an open, empty sequence one of ids[n], computed as how[n] says (NULL: nobody knows), with shift[n] (NULL: all 0), pages from first[group]
 * on, and a state, to be filled by the caller. errors: INFER_E_FULL */
enum infer_status kv_load(struct kv *kv, int slot, const int32_t *ids, const uint8_t *how,
                          const int32_t *shift, int n, const int32_t *first);
/* The first page of a group that rows from position pos on read. */
int kv_first_page(const struct kv *kv, int group, int pos);

/* ---- pages and states that are kept elsewhere, too (kv_kept.c) ---- */

/* From now on pages that become known are listed, with what they are of, and prefixes and rows that are no tokens are known under this secret. Before the first
 * sequence. errors: INFER_E_MEMORY */
enum infer_status kv_keep_pages(struct kv *kv, struct arena *arena, struct prefix_secret secret);
/* A page entered into a pool's table. */
void kv_list_page(struct kv_pool *pool, int page, struct prefix_key before, const int32_t *ids);
/* The page that was listed first and is still known, taken off the list; false: there is none. */
bool kv_unkept(struct kv *kv, int *group, int *page);
/* The slot of a copy of a state at the end of a page that is worth to be kept and was not handed out yet; -1: none. */
int kv_unkept_state(struct kv *kv, struct prefix_key *key);
/* How many pages a sequence that holds whole pages can have of ids[n], at most n - 1 of them, with those that has() knows elsewhere: as
 * kv_match; their keys and kinds are in kv->match. part: a group, or KV_STATE. limit: at most so many pages. */
enum { KV_STATE = -1 };
int kv_kept_probe(struct kv *kv, int slot, const int32_t *ids, int n, bool exact, int limit,
                  bool (*has)(void *user, struct prefix_key key, int part), void *user);
/* Takes pages for the sequence up to page `end`, to be filled by the caller from the first of each group that is not there on:
 * from[n_group]. The length stays. errors: INFER_E_FULL */
enum infer_status kv_kept_begin(struct kv *kv, int slot, int end, int *from);
/* Pages that rows from position pos on do not see are let go of, and none before those is taken for it. */
void kv_let_go(struct kv *kv, int slot, int pos);
/* From the first id on that stands for a row without a token nothing says where rotations are. */
void kv_shifts_unknown(struct kv_seq *s);
/* They are filled, and so is the state. */
void kv_kept_end(struct kv *kv, int slot, const int32_t *ids, int end, const uint8_t *kind);

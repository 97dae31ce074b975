/* Recurrent state: which slot of the backend's state stores holds what.
 *
 * Bookkeeping only: the numbers lie in the backend. Slot i < n_slot is what sequence i goes on from; it cannot be undone. The n_keep
 * slots behind those hold copies of it at lengths that were reached, known by the tokens before: what a prefix or a rewind starts
 * from. Where a copy is wanted and none is free, the one unused for longest goes. */
#pragma once
#include "base/mem.h"
#include "cache/prefix.h"

struct state_copy {
    bool valid, kept; /* kept: elsewhere, too, or not to be */
    struct prefix_key key;
    int length, seq; /* positions; of which sequence it was made */
    uint64_t used;   /* when, in uses of any copy */
};
struct state {
    int n_slot, n_keep;      /* n_keep 0: no layer has a state */
    int n_mark;              /* behind the copies: one of each sequence's own, or 0 */
    struct state_copy *copy; /* copy[n_keep] */
    uint64_t clock;
};

/* errors: INFER_E_MEMORY */
enum infer_status state_init(struct state *s, struct arena *arena, int n_slot, int n_keep);
/* The slot of the copy behind the prefix key, -1: none. */
int state_find(const struct state *s, struct prefix_key key);
/* The slot to copy sequence seq's state to, at length; -1: it is there already. One that is not lasting goes first, unless it is used. */
int state_keep(struct state *s, int seq, int length, struct prefix_key key, bool lasting);
/* A copy was used. */
void state_use(struct state *s, int slot);
/* What sequence seq left beyond length was not computed. */
void state_forget(struct state *s, int seq, int length);

#include "cache/state.h"

enum infer_status state_init(struct state *s, struct arena *arena, int n_slot, int n_keep) {
    *s = (struct state){.n_slot = n_slot, .n_keep = n_keep, .clock = 1};
    s->copy = arena_alloc(arena, ((size_t)n_keep + 1) * sizeof *s->copy);
    if (!s->copy) return err_set(INFER_E_MEMORY, "out of memory for %d copies of states", n_keep);
    return INFER_OK;
}

int state_find(const struct state *s, struct prefix_key key) {
    for (int i = 0; i < s->n_keep; i++)
        if (s->copy[i].valid && prefix_same(s->copy[i].key, key)) return s->n_slot + i;
    return -1;
}

void state_use(struct state *s, int slot) {
    if (slot < s->n_slot + s->n_keep) s->copy[slot - s->n_slot].used = ++s->clock;
}

int state_keep(struct state *s, int seq, int length, struct prefix_key key, bool lasting) {
    int to = 0, there = state_find(s, key);
    if (!s->n_keep) return -1;
    if (there >= 0) {
        if (lasting) state_use(s, there);
        return -1;
    }
    for (int i = 1; i < s->n_keep; i++) /* an unused one was used at 0 */
        if (s->copy[i].used < s->copy[to].used) to = i;
    s->copy[to] = (struct state_copy){true, false, key, length, seq, lasting ? ++s->clock : 1};
    return s->n_slot + to;
}

void state_forget(struct state *s, int seq, int length) {
    for (int i = 0; i < s->n_keep; i++)
        if (s->copy[i].valid && s->copy[i].seq == seq && s->copy[i].length > length)
            s->copy[i] = (struct state_copy){0};
}

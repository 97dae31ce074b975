/* Pages and states that are kept outside of the pools, too: which are still to be, and what a sequence can take over from there. */
#include "cache/kv.h"

#include <string.h>

enum infer_status kv_keep_pages(struct kv *kv, struct arena *arena, struct prefix_secret secret) {
    kv->secret = kv->names = secret;
    for (int g = 0; g < kv->n_group; g++) {
        struct kv_pool *pool = &kv->pool[g];
        pool->origin = arena_alloc(arena, (size_t)pool->n_page * sizeof *pool->origin);
        if (!pool->origin) return err_set(INFER_E_MEMORY, "out of memory for %d pages' tokens", pool->n_page);
    }
    return INFER_OK;
}

void kv_list_page(struct kv_pool *pool, int page, struct prefix_key before, const int32_t *ids) {
    struct kv_page *p = &pool->page[page];
    pool->origin[page].before = before;
    memcpy(pool->origin[page].ids, ids, sizeof pool->origin[page].ids);
    if (p->listed) return;
    p->listed = true;
    p->later = -1;
    if (pool->later_head < 0)
        pool->later_head = page;
    else
        pool->page[pool->later_tail].later = page;
    pool->later_tail = page;
}

static int take_listed(struct kv_pool *pool) {
    while (pool->later_head >= 0) {
        const int i = pool->later_head;
        pool->later_head = pool->page[i].later;
        pool->page[i].listed = false;
        if (pool->page[i].known) return i;
    }
    return -1;
}

bool kv_unkept(struct kv *kv, int *group, int *page) {
    for (int windows = 1; windows >= 0; windows--) /* whose pages are taken again the soonest */
        for (*group = 0; *group < kv->n_group; ++*group)
            if ((kv->pool[*group].window != 0) == windows && (*page = take_listed(&kv->pool[*group])) >= 0)
                return true;
    return false;
}

int kv_unkept_state(struct kv *kv, struct prefix_key *key) {
    struct state *s = &kv->state;
    for (int i = 0; i < s->n_keep; i++) {
        struct state_copy *c = &s->copy[i];
        if (!c->valid || c->kept || c->used <= 1) continue; /* or one that goes first */
        c->kept = true;
        *key = c->key;
        return s->n_slot + i;
    }
    return -1;
}

/* The key of page i as some group knows it elsewhere. */
static void find_key(struct kv *kv, struct prefix_key before, const int32_t *ids, int i, bool exact,
                     bool (*has)(void *user, struct prefix_key key, int part), void *user) {
    for (enum prefix_kind kind = PREFIX_PROMPT; kind <= (exact ? PREFIX_PROMPT : PREFIX_OTHER); kind++) {
        struct prefix_key key = prefix_extend(&kv->secret, before, ids + i * KV_PAGE, KV_PAGE, kind);
        bool known = false;
        for (int g = 0; g < kv->n_group && !known; g++) known = has(user, key, g);
        if (kind != PREFIX_PROMPT && !known) return;
        kv->match.key[i] = key;
        kv->match.kind[i] = (uint8_t)kind;
        if (known) return;
    }
}

int kv_kept_probe(struct kv *kv, int slot, const int32_t *ids, int n, bool exact, int limit,
                  bool (*has)(void *user, struct prefix_key key, int part), void *user) {
    const struct kv_seq *s = &kv->seq[slot];
    const int here = s->length / KV_PAGE;
    int from[KV_GROUPS], best = here; /* from: pages from there on are here, or there */
    for (int g = 0; g < kv->n_group; g++) from[g] = here ? s->span[g].first : 0;
    for (int i = 0; i < here; i++) kv->match.key[i] = s->key[i];
    for (int i = here; (i + 1) * KV_PAGE < n && i < kv->max_pages && i < limit; i++) {
        bool all = true;
        find_key(kv, i ? kv->match.key[i - 1] : s->root, ids, i, exact, has, user);
        for (int g = 0; g < kv->n_group; g++) {
            if (!has(user, kv->match.key[i], g)) {
                if (!kv->pool[g].window) return best;
                from[g] = i + 1;
            }
            if (from[g] > kv_first_page(kv, g, (i + 1) * KV_PAGE)) all = false;
        }
        if (all && kv->state.n_keep)
            all = state_find(&kv->state, kv->match.key[i]) >= 0 || has(user, kv->match.key[i], KV_STATE);
        if (all) best = i + 1;
    }
    return best;
}

enum infer_status kv_kept_begin(struct kv *kv, int slot, int end, int *from) {
    struct kv_seq *s = &kv->seq[slot];
    const int length = end * KV_PAGE;
    for (int g = 0; g < kv->n_group; g++) {
        const int first = kv_first_page(kv, g, length);
        from[g] = first > s->span[g].end ? first : s->span[g].end;
    }
    for (int g = 0; g < kv->n_group; g++)
        if (end - from[g] > kv->pool[g].n_free)
            return err_set(INFER_E_FULL, "key/value cache full: %d pages wanted, %d are free", end - from[g],
                           kv->pool[g].n_free);
    kv_let_go(kv, slot, length);
    return kv_reserve(kv, slot, length, s->length);
}

void kv_kept_end(struct kv *kv, int slot, const int32_t *ids, int end, const uint8_t *kind) {
    struct kv_seq *s = &kv->seq[slot];
    for (int i = s->length / KV_PAGE; i < end; i++) {
        uint8_t how[KV_PAGE];
        memset(how, kind[i] == PREFIX_PROMPT ? 0 : KV_DECODED, sizeof how);
        kv_append(kv, slot, ids + i * KV_PAGE, how, KV_PAGE);
    }
    kv_shifts_unknown(s);
    kv_state_runs(kv, slot);
}

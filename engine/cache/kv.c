#include "cache/kv.h"

static int pages_of(int length) { return (length + KV_PAGE - 1) / KV_PAGE; }

/* ---- sizes --------------------------------------------------------------------------------------------------- */

/* Kernels read keys in tiles of up to KV_TILE positions, so a page is kept as long as a row sees something of its tile. */
static int first_page(int window, int pos) {
    int at = window ? pos - window + 1 : 0;
    return at > 0 ? at / KV_TILE * (KV_TILE / KV_PAGE) : 0;
}
int kv_first_page(const struct kv *kv, int group, int pos) { return first_page(kv->pool[group].window, pos); }

int kv_pages_wanted(int window, int n_ctx, int n_slot, int n_row) {
    /* one spare position a sequence: the end of a sequence is seen one step late */
    int64_t all = (int64_t)pages_of(n_ctx + 1) * n_slot;
    int64_t kept =
        ((int64_t)window + KV_BACK + KV_TILE) / KV_PAGE + 2; /* of a slot, before its queued rows */
    int64_t few = kept * n_slot + pages_of(n_row);
    int64_t n = window && few < all ? few : all;
    return n < INT32_MAX ? (int)n : INT32_MAX;
}

static enum infer_status pool_init(struct kv *kv, struct kv_pool *p, struct arena *arena,
                                   const struct kv_group *group) {
    size_t n_table = (size_t)kv->n_slot * (size_t)kv->max_pages;
    *p = (struct kv_pool){.window = group->window, .n_page = group->n_page};
    p->n_bucket = 2 * p->n_page + 1;
    p->table = arena_alloc(arena, n_table * sizeof *p->table);
    p->page = arena_alloc(arena, (size_t)p->n_page * sizeof *p->page);
    p->bucket = arena_alloc(arena, (size_t)p->n_bucket * sizeof *p->bucket);
    if (!p->table || !p->page || !p->bucket)
        return err_set(INFER_E_MEMORY, "out of memory for %d page tables", kv->n_slot);
    for (size_t i = 0; i < n_table; i++) p->table[i] = -1;
    for (int i = 0; i < p->n_bucket; i++) p->bucket[i] = -1;
    for (int i = 0; i < p->n_page; i++)
        p->page[i] = (struct kv_page){.prev = i - 1, .next = i + 1 < p->n_page ? i + 1 : -1, .chain = -1};
    p->later_head = p->later_tail = -1;
    p->free_tail = p->n_page - 1;
    p->n_free = p->n_page;
    return INFER_OK;
}

enum infer_status kv_init(struct kv *kv, struct arena *arena, int n_slot, int n_ctx,
                          const struct kv_group *group, int n_group, int n_keep, int n_mark) {
    size_t slots = (size_t)n_slot, groups = (size_t)n_group + 1;
    *kv = (struct kv){.n_slot = n_slot, .n_ctx = n_ctx, .n_group = n_group, .secret = prefix_secret()};
    kv->names = kv->secret;
    kv->max_pages = pages_of(n_ctx + 1);
    kv->seq = arena_alloc(arena, slots * sizeof *kv->seq);
    kv->pool = arena_alloc(arena, groups * sizeof *kv->pool);
    kv->tables = arena_alloc(arena, groups * sizeof *kv->tables);
    struct kv_span *span = arena_alloc(arena, slots * groups * sizeof *span);
    kv->match.key = arena_alloc(arena, (size_t)kv->max_pages * sizeof *kv->match.key);
    kv->match.kind = arena_alloc(arena, (size_t)kv->max_pages);
    if (!kv->seq || !kv->pool || !kv->tables || !span || !kv->match.key || !kv->match.kind)
        return err_set(INFER_E_MEMORY, "out of memory for %d sequences", n_slot);
    for (int i = 0; i < n_group; i++) {
        TRY(pool_init(kv, &kv->pool[i], arena, &group[i]));
        kv->tables[i] = kv->pool[i].table;
    }
    for (int i = 0; i < n_slot; i++) {
        struct kv_seq *s = &kv->seq[i];
        s->ids = arena_alloc(arena, ((size_t)n_ctx + 1) * sizeof *s->ids);
        s->key = arena_alloc(arena, (size_t)kv->max_pages * sizeof *s->key);
        s->how = arena_alloc(arena, (size_t)n_ctx + 1);
        s->shift = arena_alloc(arena, ((size_t)n_ctx + 1) * sizeof *s->shift);
        s->mark = -1;
        s->span = span + (size_t)i * (size_t)n_group;
        if (!s->ids || !s->key || !s->how)
            return err_set(INFER_E_MEMORY, "out of memory for %d sequences", n_slot);
    }
    TRY(state_init(&kv->state, arena, n_slot, n_keep));
    kv->state.n_mark = n_keep ? n_mark : 0;
    return INFER_OK;
}

static int32_t *table_of(const struct kv *kv, int group, int slot) {
    return kv->pool[group].table + (size_t)slot * (size_t)kv->max_pages;
}

/* ---- the list of free pages ---------------------------------------------------------------------------------- */

static void free_unlink(struct kv_pool *pool, int i) {
    struct kv_page *p = &pool->page[i];
    if (p->prev >= 0)
        pool->page[p->prev].next = p->next;
    else
        pool->free_head = p->next;
    if (p->next >= 0)
        pool->page[p->next].prev = p->prev;
    else
        pool->free_tail = p->prev;
    pool->n_free--;
}

static void free_append(struct kv_pool *pool, int i) {
    pool->page[i].prev = pool->free_tail;
    pool->page[i].next = -1;
    if (pool->free_tail >= 0)
        pool->page[pool->free_tail].next = i;
    else
        pool->free_head = i;
    pool->free_tail = i;
    pool->n_free++;
}

/* ---- the table of known pages -------------------------------------------------------------------------------- */

static int *bucket_of(struct kv_pool *pool, struct prefix_key key) {
    return &pool->bucket[key.a % (uint64_t)pool->n_bucket];
}

static int find_known(struct kv_pool *pool, struct prefix_key key) {
    for (int i = *bucket_of(pool, key); i >= 0; i = pool->page[i].chain)
        if (prefix_same(pool->page[i].key, key)) return i;
    return -1;
}

static void forget(struct kv_pool *pool, int i) {
    struct kv_page *p = &pool->page[i];
    if (!p->known) return;
    int *at = bucket_of(pool, p->key);
    while (*at != i) at = &pool->page[*at].chain;
    *at = p->chain;
    p->chain = -1;
    p->known = false;
}

/* false: it is not entered. */
static bool enter(struct kv_pool *pool, int i, struct prefix_key key) {
    struct kv_page *p = &pool->page[i];
    int there = find_known(pool, key);
    if (p->known || (there >= 0 && pool->page[there].n_ref))
        return false;                    /* another sequence has the same prefix */
    if (there >= 0) forget(pool, there); /* this one is here for longer */
    int *at = bucket_of(pool, key);
    p->key = key;
    p->chain = *at;
    *at = i;
    return p->known = true;
}

static enum prefix_kind kind_of(const struct kv *kv, const struct kv_seq *s, int from, int end) {
    for (int i = from; i < end; i++)
        if (s->how[i] & KV_DECODED || (kv->grid && s->how[i] & KV_BEGINS && i % kv->grid))
            return PREFIX_OTHER;
    return PREFIX_PROMPT;
}
/* The prefix of s's first length tokens, all known; those up to the end of each page before are in s->key. */
static struct prefix_key key_at(const struct kv *kv, const struct kv_seq *s, int length) {
    const int full = length / KV_PAGE, from = full * KV_PAGE;
    struct prefix_key key = full ? s->key[full - 1] : s->root;
    return length > from
               ? prefix_extend(&kv->secret, key, s->ids + from, length - from, kind_of(kv, s, from, length))
               : key;
}
/* The same of the end of page i. */
static struct prefix_key page_key(const struct kv *kv, const struct kv_seq *s, int i) {
    const int from = i * KV_PAGE;
    return prefix_extend(&kv->secret, i ? s->key[i - 1] : s->root, s->ids + from, KV_PAGE,
                         kind_of(kv, s, from, from + KV_PAGE));
}

/* Enters the pages of a sequence that are full and whose ids are all known. */
static void enter_known(struct kv *kv, int slot) {
    struct kv_seq *s = &kv->seq[slot];
    int n_full = (s->n_known < s->length ? s->n_known : s->length) / KV_PAGE;
    for (; s->n_key < n_full; s->n_key++) {
        int i = s->n_key;
        s->key[i] = page_key(kv, s, i);
        for (int g = 0; g < kv->n_group; g++) {
            const int page = i >= s->span[g].first && i < s->span[g].end ? table_of(kv, g, slot)[i] : -1;
            if (page >= 0 && enter(&kv->pool[g], page, s->key[i]) && kv->pool[g].origin && !s->alone)
                kv_list_page(&kv->pool[g], page, i ? s->key[i - 1] : s->root, s->ids + i * KV_PAGE);
        }
    }
}

/* ---- pages of a sequence ------------------------------------------------------------------------------------- */

static int take_page(struct kv_pool *pool) {
    int i = pool->free_head;
    if (i < 0) return -1;
    free_unlink(pool, i);
    forget(pool, i);
    pool->page[i].n_ref = 1;
    return i;
}

static void hold_page(struct kv_pool *pool, int i) {
    if (pool->page[i].n_ref++ == 0) free_unlink(pool, i);
}

static void release_page(struct kv *kv, int group, int slot, int i) {
    int32_t *at = &table_of(kv, group, slot)[i];
    struct kv_pool *pool = &kv->pool[group];
    if (--pool->page[*at].n_ref == 0) free_append(pool, *at);
    *at = -1;
}

/* Keeps pages first .. end - 1 of those that a sequence has in a group. The last page goes first: a prefix is worth keeping longer
 * than what followed it. */
static void keep_pages(struct kv *kv, int group, int slot, int first, int end) {
    struct kv_span *span = &kv->seq[slot].span[group];
    if (first <= span->first && end >= span->end) return;
    while (span->end > end && span->end > span->first) release_page(kv, group, slot, --span->end);
    while (span->first < first && span->first < span->end) release_page(kv, group, slot, span->first++);
    kv->version++;
}

/* The sequence as before its first token. */
static void clear(struct kv *kv, int slot) {
    struct kv_seq *s = &kv->seq[slot];
    for (int g = 0; g < kv->n_group; g++) {
        keep_pages(kv, g, slot, 0, 0);
        s->span[g] = (struct kv_span){0};
    }
    s->length = s->n_known = s->n_key = s->n_state = 0;
    s->mark = -1;
    kv->version++;
}

enum infer_status kv_open(struct kv *kv, int *slot) {
    for (int i = 0; i < kv->n_slot; i++) {
        if (kv->seq[i].open) continue;
        kv->seq[i].open = true;
        kv->seq[i].root = (struct prefix_key){0};
        kv->seq[i].alone = false;
        *slot = i;
        return INFER_OK;
    }
    return err_set(INFER_E_FULL, "all %d slots are in use (.slots)", kv->n_slot);
}

void kv_close(struct kv *kv, int slot) {
    clear(kv, slot);
    kv->seq[slot].open = false;
}

void kv_settle(struct kv *kv, int slot, int from) {
    for (int g = 0; g < kv->n_group; g++)
        if (kv->pool[g].window)
            keep_pages(kv, g, slot, first_page(kv->pool[g].window, from - KV_BACK),
                       kv->seq[slot].span[g].end);
}

void kv_let_go(struct kv *kv, int slot, int pos) {
    for (int g = 0; g < kv->n_group; g++) {
        struct kv_span *span = &kv->seq[slot].span[g];
        const int first = first_page(kv->pool[g].window, pos);
        keep_pages(kv, g, slot, first, span->end);
        if (span->end < first) *span = (struct kv_span){first, first};
    }
}

int kv_free(const struct kv *kv) {
    int n = kv->n_slot * kv->max_pages;
    for (int g = 0; g < kv->n_group; g++)
        if (!kv->pool[g].window && kv->pool[g].n_free < n) n = kv->pool[g].n_free;
    return n;
}

static int more_pages(const struct kv *kv, int slot, int group, int length) {
    const int more = pages_of(length) - kv->seq[slot].span[group].end;
    return more > 0 ? more : 0;
}

enum infer_status kv_room(struct kv *kv, int slot, int length, int from, int *wanted) {
    if (length > kv->n_ctx)
        return err_set(INFER_E_FULL, "context full: %d positions wanted, the context holds %d (.ctx)", length,
                       kv->n_ctx);
    bool more = false;
    for (int g = 0; g < kv->n_group; g++) more |= more_pages(kv, slot, g, length) > 0;
    if (!more) return INFER_OK;
    kv_settle(kv, slot, from);
    for (int g = 0; g < kv->n_group; g++) {
        const int n = more_pages(kv, slot, g, length);
        if (n > kv->pool[g].n_free - wanted[g])
            return err_set(INFER_E_FULL,
                           "key/value cache full: sequence %d wants %d more pages of %d positions, %d are "
                           "free (.kv_tokens)",
                           slot, n, KV_PAGE, kv->pool[g].n_free - wanted[g]);
        wanted[g] += n;
    }
    return INFER_OK;
}

enum infer_status kv_reserve(struct kv *kv, int slot, int length, int from) {
    int wanted[KV_GROUPS] = {0};
    TRY(kv_room(kv, slot, length, from, wanted));
    for (int g = 0; g < kv->n_group; g++)
        for (int n = more_pages(kv, slot, g, length); n > 0; n--) {
            table_of(kv, g, slot)[kv->seq[slot].span[g].end++] = take_page(&kv->pool[g]);
            kv->version++;
        }
    return INFER_OK;
}

void kv_append(struct kv *kv, int slot, const int32_t *ids, const uint8_t *how, int n) {
    struct kv_seq *s = &kv->seq[slot];
    for (int i = 0; i < n; i++) {
        s->how[s->length] = how ? how[i] : 0;
        s->shift[s->length] = 0;
        if (s->n_known == s->length && ids[i] != -1) s->n_known++;
        s->ids[s->length++] = ids[i];
    }
    enter_known(kv, slot);
}

void kv_learn(struct kv *kv, int slot, int32_t id) {
    struct kv_seq *s = &kv->seq[slot];
    if (s->n_known >= s->length) return;
    s->ids[s->n_known++] = id;
    enter_known(kv, slot);
}

/* ---- going back ---------------------------------------------------------------------------------------------- */

/* Whether every group has the pages that position length sees. */
static bool pages_reach(const struct kv *kv, const struct kv_seq *s, int length) {
    for (int g = 0; g < kv->n_group; g++)
        if (s->span[g].first > first_page(kv->pool[g].window, length)) return false;
    return true;
}

/* Whether rows from .. end - 1 can be computed again by their ids. */
static bool ids_say_all(const struct kv_seq *s, int from, int end) {
    for (int i = from; i < end; i++)
        if (s->shift[i] == KV_GIVEN) return false;
    return true;
}
void kv_shifts_unknown(struct kv_seq *s) {
    int i = 0;
    while (i < s->length && s->ids[i] >= -1) s->shift[i++] = 0;
    while (i < s->length) s->shift[i++] = KV_GIVEN;
}

/* The best state up to length: the slot of a copy, or -1: the slot's own (own: it is one), or the beginning; *at: where it stands. Rows
 * from there on have the pages that they see. */
static int best_state(const struct kv *kv, int slot, int length, bool own, int *at) {
    const struct state *st = &kv->state;
    const struct kv_seq *s = &kv->seq[slot];
    int best = -1;
    *at = own && s->n_state <= length && pages_reach(kv, s, s->n_state) ? s->n_state : 0;
    if (st->n_mark && s->mark > *at && s->mark <= length && pages_reach(kv, s, s->mark)) {
        *at = s->mark;
        best = st->n_slot + st->n_keep + slot;
    }
    for (int i = 0; i < st->n_keep; i++) {
        int n = st->copy[i].length;
        if (!st->copy[i].valid || n > length || n <= *at || n > s->n_known || !pages_reach(kv, s, n))
            continue;
        if (!prefix_same(st->copy[i].key, key_at(kv, s, n))) continue;
        *at = n;
        best = st->n_slot + i;
    }
    return best;
}

/* The greatest length up to the one wanted that all have; *state: the slot of a copy of the state, -1: none; *at: where it stands. */
static int reachable(const struct kv *kv, int slot, int length, bool own, int *state, int *at) {
    const struct kv_seq *s = &kv->seq[slot];
    *state = -1;
    *at = length;
    if (!kv->state.n_keep) return length == s->length || pages_reach(kv, s, length) ? length : 0;
    if (own && length == s->length) {
        *at = s->n_state;
        return length;
    }
    *state = best_state(kv, slot, length, own, at);
    return length <= s->n_known && pages_reach(kv, s, *at) && ids_say_all(s, *at, length) ? length : *at;
}

void kv_state_runs(struct kv *kv, int slot) { kv->seq[slot].n_state = kv->seq[slot].length; }

int kv_mark(struct kv *kv, int slot) {
    struct kv_seq *s = &kv->seq[slot];
    if (!kv->state.n_mark || s->mark == s->n_state || s->n_state > s->n_known) return -1;
    s->mark = s->n_state;
    return kv->state.n_slot + kv->state.n_keep + slot;
}

void kv_state_lost(struct kv *kv, int slot, struct kv_moves *moves) {
    struct kv_seq *s = &kv->seq[slot];
    *moves = (struct kv_moves){.state_to = slot};
    moves->state_from = best_state(kv, slot, s->length, false, &s->n_state);
    if (!pages_reach(kv, s, s->n_state) || !ids_say_all(s, s->n_state, s->length)) clear(kv, slot);
}

/* The last page that stays will be written again: a shared one has to be copied. errors: INFER_E_FULL, nothing has changed then */
static enum infer_status own_page(struct kv *kv, int slot, int page, struct kv_moves *m) {
    for (int g = 0; g < kv->n_group; g++)
        if (!kv->pool[g].n_free && kv->pool[g].page[table_of(kv, g, slot)[page]].n_ref > 1)
            return err_set(INFER_E_FULL, "key/value cache full: no page to copy a shared one to");
    for (int g = 0; g < kv->n_group; g++) {
        struct kv_pool *pool = &kv->pool[g];
        int32_t *at = &table_of(kv, g, slot)[page];
        if (pool->page[*at].n_ref == 1) {
            forget(pool, *at);
            continue;
        }
        m->page[m->n_page].group = g;
        m->page[m->n_page].from = *at;
        pool->page[*at].n_ref--;
        m->page[m->n_page++].to = *at = take_page(pool);
    }
    return INFER_OK;
}

/* Nobody may find the pages from position length on. */
static void forget_beyond(struct kv *kv, int slot, int length) {
    for (int g = 0; g < kv->n_group; g++) {
        const struct kv_span *span = &kv->seq[slot].span[g];
        int i = length / KV_PAGE;
        for (i = i > span->first ? i : span->first; i < span->end; i++)
            forget(&kv->pool[g], table_of(kv, g, slot)[i]);
    }
}

enum infer_status kv_rewind(struct kv *kv, int slot, int length, enum kv_beyond beyond,
                            struct kv_moves *moves) {
    struct kv_seq *s = &kv->seq[slot];
    *moves = (struct kv_moves){.state_from = -1, .state_to = slot};
    if (length > s->length) length = s->length;
    if (beyond != KV_COMPUTED) forget_beyond(kv, slot, length);
    if (beyond == KV_LOST) state_forget(&kv->state, slot, length);
    int at = s->n_state;
    if (beyond != KV_NOT_RUN)
        length = reachable(kv, slot, length, beyond == KV_COMPUTED, &moves->state_from, &at);
    if (!length) clear(kv, slot);
    if (length == s->length) return INFER_OK;
    int n = pages_of(length);
    if (length % KV_PAGE) TRY(own_page(kv, slot, n - 1, moves));
    for (int g = 0; g < kv->n_group; g++) keep_pages(kv, g, slot, 0, n);
    if (moves->state_from >= 0) state_use(&kv->state, moves->state_from);
    s->length = length;
    s->n_state = at < length ? at : length;
    if (s->mark > length) s->mark = -1;
    if (s->n_known > length) s->n_known = length;
    if (s->n_key > length / KV_PAGE) s->n_key = length / KV_PAGE;
    kv->version++;
    return INFER_OK;
}

/* ---- prefixes ------------------------------------------------------------------------------------------------ */

static struct prefix_key root_of(const struct kv *kv, const struct kv_find *find) {
    const int32_t words[] = {(int32_t)(find->salt & UINT32_MAX), (int32_t)(find->salt >> 32),
                             (int32_t)(find->adapter & UINT32_MAX), (int32_t)(find->adapter >> 32)};
    if (!find->salt && !find->adapter) return (struct prefix_key){0};
    return prefix_extend(&kv->secret, (struct prefix_key){0}, words, find->adapter ? 4 : 2, PREFIX_SALT);
}

int32_t kv_embed_id(const struct kv *kv, const float *embed, int n) {
    struct prefix_key key = {0};
    int32_t words[64];
    for (int at = 0; at < n; at += 64) {
        const int m = n - at < 64 ? n - at : 64;
        memcpy(words, embed + at, (size_t)m * sizeof *words);
        key = prefix_extend(&kv->names, key, words, m, PREFIX_PROMPT);
    }
    return -2 - (int32_t)(key.a & 0x3fffffff);
}

/* The key of page i of ids as some group knows it, behind that of the page before. */
static void find_key(struct kv *kv, struct prefix_key before, const int32_t *ids, int i, bool exact) {
    for (enum prefix_kind kind = PREFIX_PROMPT; kind <= (exact ? PREFIX_PROMPT : PREFIX_OTHER); kind++) {
        struct prefix_key key = prefix_extend(&kv->secret, before, ids + i * KV_PAGE, KV_PAGE, kind);
        bool known = false;
        for (int g = 0; g < kv->n_group; g++) known |= find_known(&kv->pool[g], key) >= 0;
        if (kind != PREFIX_PROMPT && !known) return;
        kv->match.key[i] = key;
        kv->match.kind[i] = (uint8_t)kind;
        if (known) return;
    }
}

/* How many pages of ids to adopt; their keys are in kv->match. A group knows them when the last ones that it knows in a row reach
 * back to the first that the next position sees. */
static int match_pages(struct kv *kv, struct prefix_key root, bool exact, const int32_t *ids, int n) {
    int best = 0;
    for (int g = 0; g < kv->n_group; g++) kv->pool[g].run = 0;
    for (int i = 0; (i + 1) * KV_PAGE < n && i < kv->max_pages; i++) {
        bool all = true;
        find_key(kv, i ? kv->match.key[i - 1] : root, ids, i, exact);
        const struct prefix_key key = kv->match.key[i];
        for (int g = 0; g < kv->n_group; g++) {
            struct kv_pool *pool = &kv->pool[g];
            pool->run = find_known(pool, key) < 0 ? 0 : pool->run + 1;
            if (!pool->window && pool->run <= i) return best;
            if (pool->run < i + 1 - first_page(pool->window, (i + 1) * KV_PAGE)) all = false;
        }
        if (all && (!kv->state.n_keep || state_find(&kv->state, key) >= 0)) best = i + 1;
    }
    return best;
}

int kv_probe(struct kv *kv, const int32_t *ids, int n, const struct kv_find *find, int *n_free) {
    const int pages = match_pages(kv, root_of(kv, find), find->exact, ids, n);
    *n_free = 0;
    for (int g = 0; g < kv->n_group; g++) {
        int free = 0;
        for (int i = 0; i < pages && !kv->pool[g].window; i++)
            free += !kv->pool[g].page[find_known(&kv->pool[g], kv->match.key[i])].n_ref;
        if (free > *n_free) *n_free = free;
    }
    return pages * KV_PAGE;
}

int kv_match(struct kv *kv, int slot, const int32_t *ids, int n, const struct kv_find *find,
             struct kv_moves *moves) {
    struct kv_seq *s = &kv->seq[slot];
    if (find) s->root = root_of(kv, find), s->alone = find->alone;
    int pages = match_pages(kv, s->root, find && find->exact, ids, n);
    *moves = (struct kv_moves){.state_from = -1, .state_to = slot};
    if (!pages) return 0;
    s->length = s->n_known = s->n_state = pages * KV_PAGE;
    s->n_key = pages;
    for (int i = 0; i < pages; i++) {
        s->key[i] = kv->match.key[i];
        memset(s->how + i * KV_PAGE, kv->match.kind[i] == PREFIX_PROMPT ? 0 : KV_DECODED, KV_PAGE);
    }
    for (int g = 0; g < kv->n_group; g++) {
        struct kv_pool *pool = &kv->pool[g];
        s->span[g] = (struct kv_span){first_page(pool->window, s->length), pages};
        for (int i = s->span[g].first; i < pages; i++) {
            int p = find_known(pool, s->key[i]);
            hold_page(pool, p);
            table_of(kv, g, slot)[i] = p;
        }
    }
    moves->state_from = state_find(&kv->state, s->key[pages - 1]);
    if (moves->state_from >= 0) state_use(&kv->state, moves->state_from);
    memmove(s->ids, ids, (size_t)s->length * sizeof *ids);
    kv_shifts_unknown(s);
    kv->version++;
    return s->length;
}

int kv_keep_state(struct kv *kv, int slot, bool lasting) {
    struct kv_seq *s = &kv->seq[slot];
    if (!kv->state.n_keep || !s->length || s->n_known < s->length || s->n_state < s->length) return -1;
    const int to = state_keep(&kv->state, slot, s->length, key_at(kv, s, s->length), lasting);
    if (to >= 0) kv->state.copy[to - kv->state.n_slot].kept = s->alone || s->length % KV_PAGE;
    return to;
}

bool kv_take_names(struct kv *kv, int slot, struct prefix_secret names) {
    const bool same = kv->names.k0 == names.k0 && kv->names.k1 == names.k1;
    for (int i = 0; i < kv->n_slot && !same; i++)
        for (int k = 0; i != slot && k < kv->seq[i].length; k++)
            if (kv->seq[i].open && kv->seq[i].ids[k] < -1) return false;
    kv->names = names;
    return true;
}

enum infer_status kv_load(struct kv *kv, int slot, const int32_t *ids, const uint8_t *how,
                          const int32_t *shift, int n, const int32_t *first) {
    struct kv_seq *s = &kv->seq[slot];
    for (int g = 0; g < kv->n_group; g++) s->span[g] = (struct kv_span){first[g], first[g]};
    enum infer_status st = kv_reserve(kv, slot, n, 0);
    static const uint8_t unknown = KV_DECODED; /* at worst */
    for (int i = 0; st == INFER_OK && i < n; i++) kv_append(kv, slot, ids + i, how ? how + i : &unknown, 1);
    if (st == INFER_OK) {
        if (shift) memcpy(s->shift, shift, (size_t)n * sizeof *shift);
        kv_state_runs(kv, slot);
    } else {
        clear(kv, slot);
    }
    return st;
}

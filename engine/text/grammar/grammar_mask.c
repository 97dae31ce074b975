#include "text/grammar/grammar_mask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- stacks ---- */

static uint32_t mix(uint32_t a, uint32_t b) {
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

/* The number of a stack; 0 and m->full when there is no room. */
static uint32_t stack_id(struct matcher *m, uint32_t node, uint32_t parent) {
    const uint32_t mask = 2 * MATCH_STACKS - 1;
    for (uint32_t h = mix(node, parent);; h++) {
        uint32_t at = m->stack_index[h & mask];
        if (at && (m->stack[at].node != node || m->stack[at].parent != parent)) continue;
        if (at) return at;
        if (m->n_stack == MATCH_STACKS) {
            m->full = true;
            return 0;
        }
        m->stack[m->n_stack] = (struct gstack){node, parent};
        m->stack_index[h & mask] = m->n_stack;
        return m->n_stack++;
    }
}

/* ---- states ---- */

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The state of found[n]; 0 and m->full when there is no room. */
static uint32_t state_id(struct matcher *m, uint32_t *found, uint32_t n, bool complete) {
    const uint32_t mask = 2 * MATCH_STATES - 1;
    uint32_t h = complete;
    if (n == 0 && !complete) return 0;
    if (n) qsort(found, n, sizeof *found, ascending);
    for (uint32_t i = 0; i < n; i++) h = mix(h, found[i]);
    for (;; h++) {
        uint32_t at = m->state_index[h & mask];
        if (at == 0) break;
        const struct gstate *s = &m->state[at];
        if (s->n == n && s->complete == complete &&
            (n == 0 || memcmp(m->set + s->first, found, n * sizeof *found) == 0))
            return at;
    }
    if (m->n_state == MATCH_STATES || n > MATCH_SET - m->n_set) {
        m->full = true;
        return 0;
    }
    m->state[m->n_state] = (struct gstate){.first = m->n_set, .n = n, .mask = -1, .complete = complete};
    if (n) memcpy(m->set + m->n_set, found, n * sizeof *found);
    m->n_set += n;
    m->state_index[h & mask] = m->n_state;
    return m->n_state++;
}

/* ---- closure: what can be reached without a byte ---- */

static void visit(struct matcher *m, uint32_t id, uint32_t *n_work) {
    if (id == 0 || m->stamp[id] == m->round) return;
    m->stamp[id] = m->round;
    m->work[(*n_work)++] = id; /* each stack once: there is room */
}

/* The place does nothing but end its rule: a call that returns there need not come back. */
static bool ends_only(const struct infer_grammar *g, uint32_t node) {
    for (int hops = 0; hops < 8; hops++) {
        const struct gnode *n = &g->node[node];
        if (n->end) return n->edge == 0;
        const struct gedge *e = &g->edge[n->edge];
        if (n->edge == 0 || e->next || e->kind != GX_EMPTY) return false;
        node = e->to;
    }
    return false;
}

static void expand(struct matcher *m, uint32_t id, uint32_t *n_work, uint32_t *n_found) {
    const struct infer_grammar *g = m->g;
    uint32_t node = m->stack[id].node, parent = m->stack[id].parent;
    bool reads = false;
    for (uint32_t x = g->node[node].edge; x; x = g->edge[x].next) {
        const struct gedge *e = &g->edge[x];
        if (e->kind == GX_BYTE) {
            reads = true;
        } else if (e->kind == GX_EMPTY) {
            visit(m, stack_id(m, e->to, parent), n_work);
        } else {
            uint32_t below = ends_only(g, e->to) ? parent : stack_id(m, e->to, parent);
            if (m->full) return;
            visit(m, stack_id(m, g->rule[e->rule].start, below), n_work);
        }
    }
    if (!reads) return;
    if (*n_found == MATCH_WIDTH)
        m->full = true;
    else
        m->found[(*n_found)++] = id;
}

/* The state of the stacks work[n_work] (already stamped) and all they reach. */
static uint32_t closure(struct matcher *m, uint32_t n_work) {
    uint32_t n_found = 0;
    bool complete = false;
    for (uint32_t i = 0; i < n_work && !m->full; i++) {
        uint32_t id = m->work[i];
        expand(m, id, &n_work, &n_found);
        if (!m->g->node[m->stack[id].node].end) continue;
        if (m->stack[id].parent)
            visit(m, m->stack[id].parent, &n_work);
        else
            complete = true;
    }
    return m->full ? 0 : state_id(m, m->found, n_found, complete);
}

static uint32_t start_state(struct matcher *m) {
    uint32_t n_work = 0;
    m->round++;
    visit(m, stack_id(m, m->g->start, 0), &n_work);
    return closure(m, n_work);
}

/* The state behind a byte; 0 and m->full when a pool ran out. */
static uint32_t behind(struct matcher *m, uint32_t state, uint8_t byte) {
    const struct infer_grammar *g = m->g;
    uint32_t n_work = 0;
    m->round++;
    for (uint32_t i = 0; i < m->state[state].n; i++) {
        uint32_t id = m->set[m->state[state].first + i];
        for (uint32_t x = g->node[m->stack[id].node].edge; x; x = g->edge[x].next) {
            const struct gedge *e = &g->edge[x];
            if (e->kind == GX_BYTE && byte >= e->lo && byte <= e->hi)
                visit(m, stack_id(m, e->to, m->stack[id].parent), &n_work);
        }
    }
    return closure(m, n_work);
}

/* Fills the row of a state: bytes between two borders of its edges lead to the same place. False, and nothing is kept, when
 * a pool ran out. */
static bool fill_row(struct matcher *m, uint32_t state) {
    const struct infer_grammar *g = m->g;
    struct gstate *s = &m->state[state];
    uint16_t *row = m->next + (size_t)state * 256;
    bool border[257] = {[0] = true};
    if (s->row) return true;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t x = g->node[m->stack[m->set[s->first + i]].node].edge; x; x = g->edge[x].next)
            if (g->edge[x].kind == GX_BYTE) border[g->edge[x].lo] = border[g->edge[x].hi + 1] = true;
    for (unsigned b = 0; b < 256; b++) {
        row[b] = border[b] ? (uint16_t)behind(m, state, (uint8_t)b) : row[b - 1];
        if (m->full) return false;
    }
    s->low = s->high = s->alive = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (row[b]) s->alive |= 1ull << (b & 63);
        if (b < 128 && row[b] == state) *(b < 64 ? &s->low : &s->high) |= 1ull << (b & 63);
    }
    s->row = true;
    return true;
}

uint32_t matcher_step(struct matcher *m, uint32_t state, uint8_t byte) {
    return fill_row(m, state) ? m->next[(size_t)state * 256 + byte] : 0;
}

/* ---- room ---- */

static void clear_states(struct matcher *m) {
    m->n_state = 1;
    m->n_set = 0;
    m->n_mask = 0;
    memset(m->state_index, 0, 2 * MATCH_STATES * sizeof *m->state_index);
    memset(m->next, 0, 256 * sizeof *m->next); /* the dead state stays dead */
    m->state[0] = (struct gstate){.mask = -1, .row = true, .ready = true};
}

static void clear_stacks(struct matcher *m) {
    m->n_stack = 1;
    m->round = 0;
    memset(m->stack_index, 0, 2 * MATCH_STACKS * sizeof *m->stack_index);
    memset(m->stamp, 0, MATCH_STACKS * sizeof *m->stamp);
}

/* Forgets all but the stacks of state keep; returns its new number. A stack has a greater number than what is below it, so
 * they can move down in their order. */
static uint32_t forget(struct matcher *m, uint32_t keep) {
    const struct gstate old = m->state[keep];
    uint32_t *to = m->work; /* new number of each stack that stays */
    memset(to, 0, MATCH_STACKS * sizeof *to);
    for (uint32_t i = 0; i < old.n; i++)
        for (uint32_t id = m->set[old.first + i]; id && !to[id]; id = m->stack[id].parent) to[id] = 1;
    memcpy(m->found, m->set + old.first, old.n * sizeof *m->found);
    uint32_t n = m->n_stack;
    clear_stacks(m);
    for (uint32_t id = 1; id < n; id++)
        if (to[id])
            to[id] = stack_id(m, m->stack[id].node, m->stack[id].parent ? to[m->stack[id].parent] : 0);
    for (uint32_t i = 0; i < old.n; i++) m->found[i] = to[m->found[i]];
    clear_states(m);
    m->full = false;
    return state_id(m, m->found, old.n, old.complete);
}

/* ---- masks ---- */

static void set_token(const struct infer_grammar_vocab *v, uint64_t *mask, int32_t token, bool on) {
    for (; token >= 0; token = v->same[token]) {
        if (on)
            mask[token >> 6] |= 1ull << (token & 63);
        else
            mask[token >> 6] &= ~(1ull << (token & 63));
    }
}

/* All continuations of k bytes 80..BF from a state lead to home. */
static bool tails_home(struct matcher *m, uint32_t state, unsigned lo, unsigned hi, int k, uint32_t home) {
    uint32_t same = 0;
    for (unsigned b = lo; b <= hi; b++) {
        uint32_t to = matcher_step(m, state, (uint8_t)b);
        if (m->full || to == 0) return false;
        if (k == 1 && to != home) return false;
        if (k > 1 && to != same && !tails_home(m, to, 0x80, 0xbf, k - 1, home)) return false;
        same = to;
    }
    return true;
}

/* Every character beyond ASCII leads from s to home. */
static bool wide_leads(struct matcher *m, uint32_t s, uint32_t home) {
    static const struct {
        uint8_t lead_lo, lead_hi, lo, hi, more;
    } form[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2}, {0xe1, 0xec, 0x80, 0xbf, 2},
                {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
                {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};
    for (int i = 0; i < 8; i++) {
        uint32_t same = 0;
        for (unsigned b = form[i].lead_lo; b <= form[i].lead_hi; b++) {
            uint32_t to = matcher_step(m, s, (uint8_t)b);
            if (m->full || to == 0) return false;
            if (to != same && !tails_home(m, to, form[i].lo, form[i].hi, form[i].more, home)) return false;
            same = to;
        }
    }
    return true;
}

/* What is to be known about a state for a walk; false when a pool ran out. */
static bool make_ready(struct matcher *m, uint32_t state) {
    struct gstate *s = &m->state[state];
    if (s->ready) return true;
    if (!fill_row(m, state)) return false;
    const uint16_t *row = m->next + (size_t)state * 256;
    uint16_t to = row[' '];
    bool same = true, wide_dead = true;
    for (unsigned b = 0; b < 128; b++) same &= row[b] == to || !grammar_plain((uint8_t)b);
    for (unsigned b = 128; b < 256; b++) wide_dead &= row[b] == 0;
    s->no_plain = same && to == 0 && wide_dead;
    s->plain = same && to && wide_leads(m, state, to) ? to : 0;
    bool most = __builtin_popcountll(s->low) + __builtin_popcountll(s->high) >= 32;
    s->wide = s->plain == state || (most && wide_leads(m, state, state));
    s->ready = !m->full;
    return s->ready;
}

static void set_ranks(uint64_t *rank, uint32_t lo, uint32_t hi) {
    for (; lo < hi && lo & 63; lo++) rank[lo >> 6] |= 1ull << (lo & 63);
    for (; lo + 64 <= hi; lo += 64) rank[lo >> 6] = UINT64_MAX;
    for (; lo < hi; lo++) rank[lo >> 6] |= 1ull << (lo & 63);
}

/* All that lies below a place leaves the state as it is. */
static bool all_stays(const struct gstate *s, const struct trie_node *t) {
    return !(t->low & ~s->low) && !(t->high & ~s->high) && (!t->wide || (s->wide && t->whole));
}

/* Sets the ranks of one trie that may come; false when a pool ran out. */
static bool walk_trie(struct matcher *m, uint32_t state, uint32_t root) {
    const struct infer_grammar_vocab *v = m->v;
    const struct trie_node *t = &v->node[root];
    uint32_t depth = 0;
    if (all_stays(&m->state[state], t)) {
        set_ranks(m->rank, t->lo, t->hi);
        return true;
    }
    m->path[0].kid = t->first;
    m->path[0].end = t->first + t->n_kid;
    m->path[0].state = (uint16_t)state;
    for (;;) {
        const uint16_t *next = m->next + (size_t)m->path[depth].state * 256;
        uint32_t kid = m->path[depth].kid, end = m->path[depth].end;
        while (kid < end && next[v->byte[kid]] == 0) kid++;
        if (kid == end) {
            if (depth-- == 0) return true;
            continue;
        }
        m->path[depth].kid = kid + 1;
        t = &v->node[kid];
        if (t->ends) m->rank[t->lo >> 6] |= 1ull << (t->lo & 63);
        if (t->n_kid == 0) continue;
        uint16_t to = next[v->byte[kid]];
        if (!make_ready(m, to)) return false;
        if (!(t->kids & m->state[to].alive)) continue;
        if (all_stays(&m->state[to], t)) {
            set_ranks(m->rank, t->lo, t->hi);
            continue;
        }
        depth++;
        m->path[depth].kid = t->first;
        m->path[depth].end = t->first + t->n_kid;
        m->path[depth].state = to;
    }
}

/* The tokens of the ranks that are set: from none upwards or from all downwards, whatever is less. */
static void from_ranks(const struct matcher *m, uint64_t *mask) {
    const struct infer_grammar_vocab *v = m->v;
    uint32_t n = 0, words = (v->n_rank + 63) / 64;
    for (uint32_t w = 0; w < words; w++) n += (uint32_t)__builtin_popcountll(m->rank[w]);
    bool most = n > v->n_rank / 2;
    if (most)
        memcpy(mask, v->all, (size_t)v->n_word * 8);
    else
        memset(mask, 0, (size_t)v->n_word * 8);
    for (uint32_t w = 0; w < words; w++)
        for (uint64_t bits = most ? ~m->rank[w] : m->rank[w]; bits; bits &= bits - 1) {
            uint32_t at = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (at < v->n_rank) set_token(v, mask, v->token[at], !most);
        }
}

/* Sets the plain ranks where every plain character counts alike, as in a text of a limited length. done: it was such a place.
 * False when a pool ran out. */
static bool plain_by_length(struct matcher *m, uint32_t state, bool *done) {
    const struct infer_grammar_vocab *v = m->v;
    const struct trie_node *root = &v->node[TRIE_PLAIN];
    *done = false;
    for (int n = 0;; n++) {
        if (!make_ready(m, state)) return false;
        const struct gstate *s = &m->state[state];
        bool all = n == v->most_char || s->plain == state;
        if (!all && !s->no_plain && !s->plain) return true;
        if (all) set_ranks(m->rank, root->lo, root->hi);
        for (uint32_t r = root->lo; r < root->hi && !all && s->no_plain; r++)
            m->rank[r >> 6] |= (uint64_t)(v->n_char[r] <= n) << (r & 63);
        if ((*done = all || s->no_plain)) return true;
        state = s->plain;
    }
}

/* The mask of the ranks that are set in a state. */
static void show_mask(const struct matcher *m, uint32_t state, uint64_t *mask) {
    from_ranks(m, mask);
    if (m->state[state].complete)
        for (int32_t w = 0; w < m->v->n_word; w++) mask[w] |= m->v->ends[w];
}

/* Fills a mask for a state; false when a pool ran out. */
static bool walk(struct matcher *m, uint32_t state, uint64_t *mask) {
    const struct infer_grammar_vocab *v = m->v;
    memset(m->rank, 0, ((size_t)v->n_rank + 63) / 64 * 8);
    bool done;
    if (!plain_by_length(m, state, &done) || (!done && !walk_trie(m, state, TRIE_PLAIN))) return false;
    if (!walk_trie(m, state, TRIE_OTHER)) return false;
    show_mask(m, state, mask);
    return true;
}

bool matcher_cut(const struct matcher *m) { return m->cut; }

static const uint64_t *mask_of(struct matcher *m) {
    const struct infer_grammar_vocab *v = m->v;
    if (m->ended || m->now == 0) {
        memset(m->mask, 0, (size_t)v->n_word * 8);
        if (m->n_mask == 0) m->n_mask = 1; /* the first one is for this */
        return m->mask;
    }
    if (m->state[m->now].mask >= 0) return m->mask + (size_t)m->state[m->now].mask * v->n_word;
    if (m->n_mask == MATCH_MASKS) {
        for (uint32_t i = 0; i < m->n_state; i++) m->state[i].mask = -1;
        m->n_mask = 0;
    }
    if (m->n_mask == 0) m->n_mask = 1;
    uint64_t *mask = m->mask + (size_t)m->n_mask * v->n_word;
    if (!walk(m, m->now, mask)) {
        m->now = forget(m, m->now);
        m->n_mask = 1;
        mask = m->mask + v->n_word;
        if (!walk(m, m->now, mask)) { /* what was not reached stays forbidden */
            m->now = forget(m, m->now);
            m->n_mask = 1;
            m->cut = true;
            show_mask(m, m->now, mask);
        }
    }
    m->state[m->now].mask = m->n_mask++;
    return mask;
}

const uint64_t *matcher_mask(struct matcher *m) {
    const uint64_t *mask = mask_of(m);
    if (!m->names || m->names->lost || m->ended || !m->now) return mask;
    mask = matcher_once(m, mask);
    if (m->full) m->now = forget(m, m->now);
    return mask;
}

void matcher_apply(struct matcher *m, float *logits) {
    const uint64_t *mask = matcher_mask(m);
    for (int32_t w = 0; w < m->v->n_word; w++) {
        if (mask[w] == UINT64_MAX) continue;
        int32_t end = w * 64 + 64 < m->v->n_vocab ? w * 64 + 64 : m->v->n_vocab;
        for (int32_t i = w * 64; i < end; i++)
            if (!(mask[w] >> (i & 63) & 1)) logits[i] = -INFINITY;
    }
}

/* ---- going on ---- */

/* No name comes twice by this text. */
static bool names_once(struct matcher *m, const char *text, size_t n) {
    names_keep(m->names, m->mark);
    const bool fits = names_go(m->names, text, n, true);
    names_back(m->names, m->mark);
    return fits;
}

bool matcher_accept_bytes(struct matcher *m, const char *text, size_t n) {
    uint32_t state = m->now;
    if (m->ended || n == 0) return n == 0;
    if (m->names && !names_once(m, text, n)) return false;
    for (size_t i = 0; i < n && state; i++) {
        uint32_t to = matcher_step(m, state, (uint8_t)text[i]);
        if (m->full) { /* room is made by forgetting, the start of the bytes too: undo walks them again from there */
            m->now = forget(m, m->now);
            state = m->now;
            for (size_t k = 0; k <= i && state; k++) {
                state = matcher_step(m, state, (uint8_t)text[k]);
                if (m->full) state = 0;
            }
            m->full = false;
            to = state;
        }
        state = to;
    }
    if (state) m->now = state;
    if (state && m->names) names_go(m->names, text, n, false);
    return state != 0;
}

bool matcher_accept(struct matcher *m, int32_t id) {
    const struct infer_grammar_vocab *v = m->v;
    if (id < 0 || id >= v->n_vocab || m->ended) return false;
    if (v->ends[id >> 6] >> (id & 63) & 1) {
        m->ended = matcher_complete(m);
        return m->ended;
    }
    if (!(v->all[id >> 6] >> (id & 63) & 1)) return false;
    return matcher_accept_bytes(m, v->text[id], v->text_len[id]);
}

bool matcher_complete(const struct matcher *m) { return m->now != 0 && m->state[m->now].complete; }

/* ---- life ---- */

static enum infer_status take_pools(struct matcher *m) {
    enum infer_status st = mem_new(&m->stack, MATCH_STACKS * sizeof *m->stack, "stacks of a grammar");
    if (!st) st = mem_new(&m->stack_index, 2 * MATCH_STACKS * sizeof *m->stack_index, "stacks of a grammar");
    if (!st) st = mem_new(&m->stamp, MATCH_STACKS * sizeof *m->stamp, "stacks of a grammar");
    if (!st) st = mem_new(&m->state, MATCH_STATES * sizeof *m->state, "states of a grammar");
    if (!st) st = mem_new(&m->state_index, 2 * MATCH_STATES * sizeof *m->state_index, "states of a grammar");
    if (!st) st = mem_new(&m->set, MATCH_SET * sizeof *m->set, "states of a grammar");
    if (!st) st = mem_new(&m->next, MATCH_STATES * 256 * sizeof *m->next, "states of a grammar");
    if (!st) st = mem_new(&m->work, MATCH_STACKS * sizeof *m->work, "stacks of a grammar");
    if (!st) st = mem_new(&m->found, MATCH_STACKS * sizeof *m->found, "stacks of a grammar");
    if (!st && m->v)
        st = mem_new(&m->mask, (size_t)MATCH_MASKS * m->v->n_word * 8 + 8, "token masks of a grammar");
    if (!st && m->g->names_once) st = mem_new(&m->names, sizeof *m->names, "names under a grammar");
    if (!st && m->names) st = mem_new(&m->mark, sizeof *m->mark, "names under a grammar");
    if (!st && m->names && m->v)
        st = mem_new(&m->once, (size_t)m->v->n_word * 8 + 8, "token masks of a grammar");
    if (!st && m->v) st = mem_new(&m->rank, (size_t)m->v->n_word * 8 + 8, "token masks of a grammar");
    return st;
}

enum infer_status matcher_open(struct matcher **out, const struct infer_grammar *g,
                               const struct infer_grammar_vocab *v) {
    struct matcher *m;
    *out = NULL;
    TRY(mem_new(&m, sizeof *m, "a grammar's matcher"));
    m->g = g;
    m->v = v;
    enum infer_status st = take_pools(m);
    if (!st) {
        clear_stacks(m);
        clear_states(m);
        m->now = start_state(m);
        if (m->full) st = err_set(INFER_E_INPUT, "the grammar can begin in more than %d ways", MATCH_WIDTH);
    }
    if (st) {
        matcher_close(m);
        return st;
    }
    *out = m;
    return INFER_OK;
}

void matcher_close(struct matcher *m) {
    if (!m) return;
    void *pools[] = {m->stack, m->stack_index, m->stamp, m->state, m->state_index, m->set,  m->next,
                     m->work,  m->found,       m->mask,  m->rank,  m->names,       m->mark, m->once};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) mem_free(pools[i]);
    mem_free(m);
}

void matcher_reset(struct matcher *m) {
    if (m->names) m->names->place = NAMES_VALUE, m->names->escape = m->names->lost = false;
    if (m->names) m->names->depth = 0, m->names->n_name = m->names->n_text = 0;
    m->ended = m->cut = false;
    m->now = start_state(m);
    if (!m->full) return;
    clear_stacks(m);
    clear_states(m);
    m->full = false;
    m->now = start_state(m);
}

/* No name twice in an object: what the automaton allows, less the tokens that repeat a name. */
#include "text/grammar/grammar_mask.h"

#include <string.h>

/* Some name that begins with begun[n], which is where the state is, can still become one that the object has not. Only bytes that lead to
 * such a name lead nowhere else, so what is followed is the names that there are. */
static bool can_differ(struct matcher *m, uint32_t state, char *begun, size_t n) {
    uint64_t next[4];
    bool whole;
    if (!names_next(m->names, begun, n, next, &whole) || n == NAMES_LONG) return true;
    for (unsigned b = 0; b < 256; b++) {
        const uint32_t to = matcher_step(m, state, (uint8_t)b);
        if (m->full) return true;
        if (!to || (b == '"' && whole)) continue;
        if (b == '"' || !(next[b >> 6] >> (b & 63) & 1)) return true;
    }
    for (unsigned b = 0; b < 256; b++) {
        const uint32_t to = next[b >> 6] >> (b & 63) & 1 ? matcher_step(m, state, (uint8_t)b) : 0;
        begun[n] = (char)b;
        if (m->full || (to && can_differ(m, to, begun, n + 1))) return true;
    }
    return false;
}

/* The text of a token leaves every object with names that differ, and can go on so. */
static bool fits(struct matcher *m, const char *text, size_t n) {
    struct names *s = m->names;
    char begun[NAMES_LONG + 1];
    if (!names_go(s, text, n, true)) return false;
    if (s->lost || (s->place != NAMES_IN && s->place != NAMES_BEFORE) || !names_some(s)) return true;
    const size_t length = s->place == NAMES_IN ? s->n_text - s->begin : 0;
    if (length >= NAMES_LONG) return true;
    memcpy(begun, s->text + s->n_text - length, length);
    uint32_t state = m->now;
    for (size_t i = 0; i < n && state; i++) state = matcher_step(m, state, (uint8_t)text[i]);
    if (s->place == NAMES_BEFORE && state) state = matcher_step(m, state, '"');
    return m->full || !state || can_differ(m, state, begun, length);
}

static void look(struct matcher *m, int32_t token) {
    const struct infer_grammar_vocab *v = m->v;
    if (!(m->once[token >> 6] >> (token & 63) & 1) || v->ends[token >> 6] >> (token & 63) & 1) return;
    const bool ok = fits(m, v->text[token], v->text_len[token]);
    names_back(m->names, m->mark);
    if (ok) return;
    for (int32_t t = token; t >= 0; t = v->same[t]) m->once[t >> 6] &= ~(1ull << (t & 63));
}
/* The tokens of a trie that begin with one of these bytes. */
static void look_behind(struct matcher *m, uint32_t root, const uint64_t first[4]) {
    const struct infer_grammar_vocab *v = m->v;
    const struct trie_node *t = &v->node[root];
    for (uint32_t kid = t->first; kid < t->first + t->n_kid; kid++)
        if (first[v->byte[kid] >> 6] >> (v->byte[kid] & 63) & 1)
            for (uint32_t r = v->node[kid].lo; r < v->node[kid].hi; r++) look(m, v->token[r]);
}

/* A token repeats a name, or must do so later, only if it goes on towards one that is there, or has a comma before the name. */
const uint64_t *matcher_once(struct matcher *m, const uint64_t *mask) {
    const struct infer_grammar_vocab *v = m->v;
    const struct names *s = m->names;
    uint64_t first[4] = {0};
    bool whole = false;
    int n = 0;
    memcpy(m->once, mask, (size_t)v->n_word * 8);
    names_keep(s, m->mark);
    for (uint32_t i = s->place == NAMES_IN_TEXT ? v->n_comma_plain : 0; i < v->n_comma; i++)
        look(m, v->token[v->comma[i]]);
    if (s->place == NAMES_IN) n = names_next(s, s->text + s->begin, s->n_text - s->begin, first, &whole);
    if (s->place == NAMES_BEFORE) {
        n = names_some(s), whole = true;
        first[0] = 1ull << ' ' | 1ull << '\n' | 1ull << '\t';
    }
    if (whole) first['"' >> 6] |= 1ull << ('"' & 63);
    for (uint32_t root = 0; n && root < TRIE_COUNT; root++) look_behind(m, root, first);
    return m->once;
}

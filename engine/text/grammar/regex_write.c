/* The parts of a regular expression -> GBNF. ^ and $ say where the text begins and ends: they may stand where that is so on every way
 * that leads there. */
#include "text/grammar/regex_int.h"

#include <string.h>
#include <utf8proc.h>

/* Whether a part is at the text's edge, and whether what may stand around the match is to be written there. */
enum edge { INSIDE, AT_EDGE, OPEN };
struct writer {
    struct regex *R;
    struct stext *t;
};

static enum infer_status empty(const struct regex *R, const struct rnode *n) {
    return err_set(INFER_E_INPUT, "%s, character %d: a class that no character is in", R->way->what, n->at);
}

static bool in(const struct rset *s, int32_t cp) {
    for (size_t i = 0; i < s->n; i++)
        if (cp >= s->r[i].lo && cp <= s->r[i].hi) return true;
    return false;
}

/* Ranges of s that lie in one of free[n]. */
static bool put_ranges(struct stext *t, const struct rset *s, const struct grange *free, int n) {
    bool any = false;
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < n; k++) {
            const int32_t lo = s->r[i].lo > free[k].lo ? s->r[i].lo : free[k].lo,
                          hi = s->r[i].hi < free[k].hi ? s->r[i].hi : free[k].hi;
            if (lo > hi) continue;
            stext_put(t, any ? "" : "[");
            any = true;
            stext_char(t, lo);
            if (hi == lo) continue;
            stext_put(t, "-");
            stext_char(t, hi);
        }
    if (any) stext_put(t, "] ");
    return any;
}

/* One character of a set inside of a JSON string. */
static bool put_json(struct stext *t, const struct rset *s) {
    static const char escaped[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    static const struct grange free[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0x10ffff}};
    stext_put(t, "( ");
    bool any = put_ranges(t, s, free, 4);
    for (int i = 0; i < 7; i++) {
        if (!in(s, escaped[i])) continue;
        stext_put(t, "%s\"\\\\%s%c\" ", any ? "| " : "", i < 2 ? "\\" : "", letter[i]);
        any = true;
    }
    stext_put(t, ") ");
    return any;
}

static enum infer_status put_set(struct writer *W, const struct rnode *n) {
    static const struct grange all[] = {{0, 0xd7ff}, {0xe000, 0x10ffff}};
    const bool any = W->R->way->json ? put_json(W->t, &n->set) : put_ranges(W->t, &n->set, all, 2);
    return any ? INFER_OK : empty(W->R, n);
}

/* The one character of a part, or -1. */
static int32_t one(const struct rnode *n) {
    return n && n->kind == RX_SET && n->set.n == 1 && n->set.r[0].lo == n->set.r[0].hi ? n->set.r[0].lo : -1;
}

static enum infer_status put_sequence(struct writer *W, const struct rnode *n, enum edge left,
                                      enum edge right);

static enum infer_status put_alternatives(struct writer *W, const struct rnode *n, enum edge left,
                                          enum edge right) {
    stext_put(W->t, "( ");
    for (const struct rnode *k = n->first; k; k = k->next) {
        if (k != n->first) stext_put(W->t, "| ");
        TRY(put_sequence(W, k, left, right));
    }
    stext_put(W->t, ") ");
    return INFER_OK;
}

static enum infer_status put_plain(struct writer *W, const struct rnode *n) {
    switch (n->kind) {
    case RX_SET:
        return put_set(W, n);
    case RX_REPEAT:
        TRY(put_plain(W, n->first));
        if (n->max < 0 && n->min < 2)
            stext_put(W->t, n->min ? "+ " : "* ");
        else if (n->min == 0 && n->max == 1)
            stext_put(W->t, "? ");
        else if (n->max < 0)
            stext_put(W->t, "{%d,} ", n->min);
        else
            stext_put(W->t, "{%d,%d} ", n->min, n->max);
        return INFER_OK;
    case RX_ALT:
        return put_alternatives(W, n, INSIDE, INSIDE);
    default: /* flags alone */
        stext_put(W->t, "\"\" ");
        return INFER_OK;
    }
}

static enum infer_status put_part(struct writer *W, const struct rnode *n, enum edge left, enum edge right) {
    const char *around = W->R->way->around;
    if (n->anchors && n->kind == RX_ALT) return put_alternatives(W, n, left, right);
    if (n->anchors)
        return err_set(INFER_E_UNSUPPORTED, "%s, character %d: %s inside is not supported", W->R->way->what,
                       n->at, n->kind == RX_BEGIN ? "^" : "$");
    if (left == OPEN) stext_put(W->t, "%s", around);
    TRY(put_plain(W, n));
    if (right == OPEN) stext_put(W->t, "%s", around);
    return INFER_OK;
}

/* From first up to end: single characters become one literal. */
static enum infer_status put_run(struct writer *W, const struct rnode **first, const struct rnode *end) {
    char text[256];
    size_t n = 0;
    for (; *first != end && n + 4 < sizeof text && one(*first) >= 0; *first = (*first)->next)
        n += (size_t)utf8proc_encode_char(one(*first), (utf8proc_uint8_t *)text + n);
    stext_literal(W->t, text, n);
    return INFER_OK;
}

static enum infer_status put_sequence(struct writer *W, const struct rnode *n, enum edge left,
                                      enum edge right) {
    const char *around = W->R->way->around;
    const struct rnode *a = n->first, *end = NULL;
    for (; a && a->kind == RX_BEGIN && left != INSIDE; a = a->next) left = AT_EDGE;
    for (const struct rnode *k = a; k && right != INSIDE;
         k = k->next) /* end: the first $ of those at the end */
        end = k->kind != RX_END ? NULL : end ? end : k;
    if (end) right = AT_EDGE;
    if (a == end) { /* no text of its own */
        stext_put(W->t, "%s", left == OPEN || right == OPEN ? around : "\"\" ");
        return INFER_OK;
    }
    const bool inner = !W->R->way->json && left != OPEN && right != OPEN;
    for (const struct rnode *k = a; k != end;) {
        const bool last = k->next == end;
        if (inner && one(k) >= 0 && !last && one(k->next) >= 0) {
            TRY(put_run(W, &k, end));
            continue;
        }
        TRY(put_part(W, k, k == a ? left : INSIDE, last ? right : INSIDE));
        k = k->next;
    }
    return INFER_OK;
}

enum infer_status regex_to_gbnf(struct stext *t, const char *pattern, size_t n, const struct regex_way *way) {
    struct regex R = {.way = way, .begin = pattern, .p = pattern, .end = pattern + n};
    struct writer W = {&R, t};
    struct rnode *root;
    const enum edge edge = way->around ? OPEN : AT_EDGE;
    enum infer_status st = regex_parse(&R, &root);
    if (!st) st = put_alternatives(&W, root, edge, edge);
    arena_free(&R.arena);
    return st;
}

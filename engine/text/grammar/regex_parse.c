/* A regular expression -> its parts: the syntax that Rust's regex, Python's re and ECMA-262 have in common, without what no grammar can keep. */
#include "text/grammar/regex_int.h"

#include <string.h>

static int place(const struct regex *R) {
    int n = 1;
    for (const char *c = R->begin; c < R->p - 1; c++) n += ((unsigned char)*c & 0xc0) != 0x80;
    return n;
}

enum infer_status regex_bad(const struct regex *R, const char *what) {
    return err_set(INFER_E_INPUT, "%s, character %d: %s", R->way->what, place(R), what);
}
enum infer_status regex_no(const struct regex *R, const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "%s, character %d: %s is not supported", R->way->what, place(R),
                   what);
}

static enum infer_status new_node(struct regex *R, enum rnode_kind kind, struct rnode **out) {
    *out = arena_alloc(&R->arena, sizeof **out);
    if (!*out) return err_set(INFER_E_MEMORY, "out of memory: a regular expression");
    **out = (struct rnode){.kind = kind, .at = place(R), .anchors = kind == RX_BEGIN || kind == RX_END};
    return INFER_OK;
}

static void add_kid(struct rnode *parent, struct rnode *kid) {
    if (parent->last)
        parent->last->next = kid;
    else
        parent->first = kid;
    parent->last = kid;
    parent->anchors |= kid->anchors;
}

static bool is(const struct regex *R, char c) { return R->p < R->end && *R->p == c; }

static enum infer_status parse_alternatives(struct regex *R, struct rnode **out);

/* Flags behind (? up to : or ): i s x u a, off behind a minus. */
static enum infer_status flags(struct regex *R) {
    for (bool on = true; R->p < R->end && *R->p != ':' && *R->p != ')';) {
        switch (*R->p++) {
        case '-':
            on = false;
            break;
        case 'i':
            R->fold = on;
            break;
        case 's':
            R->dotall = on;
            break;
        case 'x':
            R->verbose = on;
            break;
        case 'u':
            R->unicode = on;
            break;
        case 'a':
            R->unicode = !on;
            break;
        case 'm':
            R->lines = on;
            break;
        default:
            return regex_no(R, "this flag");
        }
    }
    return R->p < R->end ? INFER_OK : regex_bad(R, "a group has no end");
}

/* Behind "(?"; *done: it was flags or a comment alone, and has its ). */
static enum infer_status group_head(struct regex *R, bool *done) {
    const char c = R->p < R->end ? *R->p : 0, d = R->end - R->p > 1 ? R->p[1] : 0;
    *done = false;
    if (c == '#') {
        const char *end = memchr(R->p, ')', (size_t)(R->end - R->p));
        if (!end) return regex_bad(R, "a comment has no end");
        R->p = end + 1;
        *done = true;
        return INFER_OK;
    }
    if (c == '=' || c == '!') return regex_no(R, "a group that looks ahead");
    if (c == '<' && (d == '=' || d == '!')) return regex_no(R, "a group that looks behind");
    if (c == '>' || c == '(' || c == '|') return regex_no(R, "an atomic or conditional group");
    if (c == 'P' && d == '=') return regex_no(R, "a back reference");
    if (c == '<' || (c == 'P' && d == '<')) { /* a name, which nothing asks for */
        const char *end = memchr(R->p, '>', (size_t)(R->end - R->p));
        if (!end) return regex_bad(R, "a group's name has no end");
        R->p = end + 1;
        return INFER_OK;
    }
    TRY(flags(R));
    *done = *R->p++ == ')';
    return INFER_OK;
}

static enum infer_status parse_group(struct regex *R, struct rnode **out) {
    const struct regex before = *R;
    bool done = false;
    if (is(R, '?')) {
        R->p++;
        TRY(group_head(R, &done));
    }
    if (done) return new_node(R, RX_SEQ, out); /* flags hold to the end of the group around it */
    if (R->depth >= GRAMMAR_MAX_DEPTH / 2) return regex_bad(R, "groups nested too deep");
    R->depth++;
    TRY(parse_alternatives(R, out));
    if (!is(R, ')')) return regex_bad(R, "a group has no end");
    R->p++;
    R->depth = before.depth;
    R->fold = before.fold, R->dotall = before.dotall, R->verbose = before.verbose;
    R->unicode = before.unicode, R->lines = before.lines;
    return INFER_OK;
}

static enum infer_status dot(struct regex *R, struct rset *set) {
    if (!R->dotall) TRY(regex_set_add(R, set, '\n', '\n'));
    if (!R->dotall && R->way->ecma) {
        TRY(regex_set_add(R, set, '\r', '\r'));
        TRY(regex_set_add(R, set, 0x2028, 0x2029));
    }
    return regex_set_negate(R, set);
}

static enum infer_status parse_atom(struct regex *R, struct rnode **out) {
    int32_t cp = 0;
    TRY(regex_char(R, &cp));
    if (cp == '(') return parse_group(R, out);
    if (cp < 0x80 && strchr("*+?", cp)) return regex_bad(R, "a repetition of nothing");
    const char c = cp == '\\' && R->p < R->end ? *R->p : 0;
    const bool begin = cp == '^' || c == 'A', end = cp == '$' || c == 'z' || c == 'Z';
    if (begin || end) {
        if (R->lines && !c) return regex_no(R, "^ or $ at each line (flag m)");
        R->p += c != 0;
        return new_node(R, begin ? RX_BEGIN : RX_END, out);
    }
    TRY(new_node(R, RX_SET, out));
    struct rset *set = &(*out)->set;
    if (cp == '[') return regex_class(R, set);
    if (cp == '.') return dot(R, set);
    if (cp == '\\')
        TRY(regex_escape(R, set));
    else
        TRY(regex_set_add(R, set, cp, cp));
    if (R->fold) TRY(regex_set_fold(R, set));
    regex_set_tidy(set);
    return INFER_OK;
}

/* {n} {n,} {,m} {n,m} at R->p. *counts: it is one, and was read; anything else is a brace as it stands. */
static enum infer_status counts(struct regex *R, int *min, int *max, bool *counts) {
    const char *p = R->p + 1;
    int64_t v[2] = {0, 0};
    bool given[2] = {false, false};
    int k = 0;
    *counts = false;
    for (; p < R->end && *p != '}'; p++) {
        if (*p == ',' && k == 0) {
            k = 1;
        } else if (*p >= '0' && *p <= '9') {
            if (v[k] <= GRAMMAR_MAX_REPEAT) v[k] = v[k] * 10 + (*p - '0');
            given[k] = true;
        } else {
            return INFER_OK;
        }
    }
    if (p == R->end || (!given[0] && !given[1])) return INFER_OK;
    R->p = p + 1;
    if (v[0] > GRAMMAR_MAX_REPEAT || v[1] > GRAMMAR_MAX_REPEAT)
        return regex_bad(R, "more than 20000 repetitions");
    *min = (int)v[0];
    *max = k == 0 ? *min : given[1] ? (int)v[1] : -1;
    if (*max >= 0 && *max < *min) return regex_bad(R, "a repetition's bounds are the wrong way round");
    *counts = true;
    return INFER_OK;
}

static void skip_blank(struct regex *R) {
    while (R->verbose && R->p < R->end && (*R->p == '#' || (*R->p && strchr(" \t\n\r\f\v", *R->p)))) {
        if (*R->p == '#')
            while (R->p < R->end && *R->p != '\n') R->p++;
        else
            R->p++;
    }
}

/* * + ? {} behind an atom, lazy or greedy: the same texts */
static enum infer_status parse_repeat(struct regex *R, struct rnode **node) {
    int min = 0, max = -1;
    bool there = true;
    skip_blank(R);
    if (is(R, '{'))
        TRY(counts(R, &min, &max, &there));
    else if (is(R, '*') || is(R, '+') || is(R, '?'))
        min = *R->p == '+', max = *R->p == '?' ? 1 : -1, R->p++;
    else
        there = false;
    if (!there) return INFER_OK;
    if ((*node)->anchors) return regex_no(R, "a repetition of ^ or $");
    struct rnode *r;
    TRY(new_node(R, RX_REPEAT, &r));
    r->min = min;
    r->max = max;
    add_kid(r, *node);
    *node = r;
    if (is(R, '+')) {
        R->p++;
        return regex_no(R, "a possessive repetition");
    }
    R->p += is(R, '?');
    skip_blank(R);
    bool again = is(R, '*') || is(R, '+') || is(R, '?');
    const char *p = R->p;
    if (is(R, '{')) TRY(counts(R, &min, &max, &again));
    R->p = p + again;
    return again ? regex_bad(R, "a repetition of a repetition") : INFER_OK;
}

static enum infer_status parse_sequence(struct regex *R, struct rnode **out) {
    TRY(new_node(R, RX_SEQ, out));
    for (;;) {
        struct rnode *kid;
        skip_blank(R);
        if (R->p == R->end || *R->p == ')' || *R->p == '|') return INFER_OK;
        TRY(parse_atom(R, &kid));
        TRY(parse_repeat(R, &kid));
        add_kid(*out, kid);
    }
}

static enum infer_status parse_alternatives(struct regex *R, struct rnode **out) {
    TRY(new_node(R, RX_ALT, out));
    for (;;) {
        struct rnode *kid;
        TRY(parse_sequence(R, &kid));
        add_kid(*out, kid);
        if (!is(R, '|')) return INFER_OK;
        R->p++;
    }
}

enum infer_status regex_parse(struct regex *R, struct rnode **out) {
    const char *f = R->way->flags ? R->way->flags : "";
    for (; *f; f++) {
        R->fold |= *f == 'i';
        R->dotall |= *f == 's';
        R->verbose |= *f == 'x';
        R->unicode |= *f == 'u';
        R->lines |= *f == 'm';
    }
    TRY(parse_alternatives(R, out));
    if (R->p == R->end) return INFER_OK;
    R->p++;
    return regex_bad(R, "a ) without (");
}

/* GBNF text -> expressions. */
#include "text/grammar/grammar_int.h"

#include <string.h>
#include <utf8proc.h>

struct parser {
    struct infer_grammar *g;
    const char *p, *end;
    int line, depth;
};

static enum infer_status fail(const struct parser *P, const char *what) {
    return err_set(INFER_E_INPUT, "grammar line %d: %s", P->line, what);
}

static enum infer_status take(struct parser *P, void *out, size_t n) {
    void *p = arena_alloc(&P->g->arena, n);
    memcpy(out, &p, sizeof p);
    return p ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: %zu bytes for a grammar", n);
}

/* ---- blanks, names, characters ---- */

/* Skips blanks and comments, and line ends where they may be. */
static void skip(struct parser *P, bool lines) {
    while (P->p < P->end) {
        char c = *P->p;
        if (c == '#') {
            while (P->p < P->end && *P->p != '\n' && *P->p != '\r') P->p++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            P->line += c == '\n';
            P->p++;
        } else {
            break;
        }
    }
}

static bool is(const struct parser *P, char c) { return P->p < P->end && *P->p == c; }

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static size_t word_length(const struct parser *P) {
    size_t n = 0;
    while (P->p + n < P->end && word_char(P->p[n])) n++;
    return n;
}

static enum infer_status hex(struct parser *P, int digits, int32_t *cp) {
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, P->p++) {
        char c = P->p < P->end ? *P->p : 0, l = c | 0x20;
        int d = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
        if (d < 0) return fail(P, "an escape needs more hexadecimal digits");
        v = v << 4 | (uint32_t)d;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) return fail(P, "an escape is no code point");
    *cp = (int32_t)v;
    return INFER_OK;
}

/* One code point of a literal or class, escapes resolved. */
static enum infer_status character(struct parser *P, int32_t *cp) {
    if (P->p >= P->end) return fail(P, "the text ends inside a literal or a class");
    if (*P->p != '\\') {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)P->p, P->end - P->p, &c);
        if (n <= 0) return fail(P, "a literal or class is not valid UTF-8");
        P->line += c == '\n';
        P->p += n;
        *cp = c;
        return INFER_OK;
    }
    char c = P->p + 1 < P->end ? P->p[1] : 0;
    P->p += 2;
    switch (c) {
    case 'n':
        *cp = '\n';
        return INFER_OK;
    case 'r':
        *cp = '\r';
        return INFER_OK;
    case 't':
        *cp = '\t';
        return INFER_OK;
    case 'x':
        return hex(P, 2, cp);
    case 'u':
        return hex(P, 4, cp);
    case 'U':
        return hex(P, 8, cp);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-':
        *cp = c;
        return INFER_OK;
    default:
        return fail(P, "unknown escape in a literal or class");
    }
}

/* ---- rules by name ---- */

static uint32_t hash(const char *s, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h ^ h >> 15;
}

static enum infer_status find_rule(struct parser *P, const char *name, size_t n, int *out) {
    struct infer_grammar *g = P->g;
    uint32_t h = hash(name, n);
    for (;; h++) {
        uint32_t at = g->index[h & (g->n_index - 1)];
        if (at == 0) break;
        if (g->rule[at - 1].n_name == n && memcmp(g->rule[at - 1].name, name, n) == 0) {
            *out = (int)at - 1;
            return INFER_OK;
        }
    }
    if (g->n_rule == GRAMMAR_MAX_RULES)
        return err_set(INFER_E_INPUT, "grammar line %d: more than %d rules", P->line, GRAMMAR_MAX_RULES);
    g->rule[g->n_rule] = (struct grule){.name = name, .n_name = n, .line = P->line};
    *out = g->n_rule++;
    g->index[h & (g->n_index - 1)] = (uint32_t)g->n_rule;
    return INFER_OK;
}

/* ---- expressions ---- */

static enum infer_status new_expr(struct parser *P, enum gexpr_kind kind, struct gexpr **out) {
    TRY(take(P, out, sizeof **out));
    (*out)->kind = kind;
    return INFER_OK;
}

static void add_kid(struct gexpr *parent, struct gexpr *kid) {
    if (parent->last)
        parent->last->next = kid;
    else
        parent->first = kid;
    parent->last = kid;
}

static enum infer_status parse_literal(struct parser *P, struct gexpr **out) {
    P->p++;
    size_t room = 0;
    for (const char *c = P->p; c < P->end && *c != '"'; c++)
        room += 1, c += *c == '\\'; /* an escape writes at most 4 bytes */
    char *text;
    TRY(new_expr(P, GE_TEXT, out));
    TRY(take(P, &text, 4 * room + 4));
    while (!is(P, '"')) {
        int32_t cp;
        TRY(character(P, &cp));
        (*out)->n += (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)text + (*out)->n);
    }
    P->p++;
    (*out)->text = text;
    return INFER_OK;
}

static enum infer_status parse_class(struct parser *P, struct gexpr **out) {
    P->p++;
    TRY(new_expr(P, GE_CLASS, out));
    (*out)->negated = is(P, '^');
    P->p += (*out)->negated;
    size_t cap = 0;
    while (!is(P, ']')) {
        struct grange r;
        TRY(character(P, &r.lo));
        r.hi = r.lo;
        if (is(P, '-') && P->p + 1 < P->end && P->p[1] != ']') {
            P->p++;
            TRY(character(P, &r.hi));
        }
        if (r.hi < r.lo) return fail(P, "a range of a class runs backwards");
        if ((*out)->n == cap) {
            struct grange *more;
            cap = cap ? 2 * cap : 4;
            TRY(take(P, &more, cap * sizeof *more));
            if ((*out)->n) memcpy(more, (*out)->range, (*out)->n * sizeof *more);
            (*out)->range = more;
        }
        (*out)->range[(*out)->n++] = r;
    }
    P->p++;
    return INFER_OK;
}

static enum infer_status parse_alternatives(struct parser *P, bool nested, struct gexpr **out);

static enum infer_status parse_primary(struct parser *P, bool nested, struct gexpr **out) {
    if (is(P, '"')) return parse_literal(P, out);
    if (is(P, '[')) return parse_class(P, out);
    if (is(P, '.')) {
        P->p++;
        TRY(new_expr(P, GE_CLASS, out));
        (*out)->negated = true;
        return INFER_OK;
    }
    if (is(P, '(')) {
        P->p++;
        if (P->depth >= GRAMMAR_MAX_DEPTH) return fail(P, "nested deeper than 128");
        P->depth++;
        skip(P, true);
        TRY(parse_alternatives(P, true, out));
        P->depth--;
        if (!is(P, ')')) return fail(P, "expected ')'");
        P->p++;
        return INFER_OK;
    }
    (void)nested;
    size_t n = word_length(P);
    TRY(new_expr(P, GE_RULE, out));
    TRY(find_rule(P, P->p, n, &(*out)->rule));
    P->p += n;
    return INFER_OK;
}

static enum infer_status parse_count(struct parser *P, int *out) {
    int64_t v = 0;
    if (P->p >= P->end || *P->p < '0' || *P->p > '9') return fail(P, "expected a number of repetitions");
    for (; P->p < P->end && *P->p >= '0' && *P->p <= '9'; P->p++)
        if (v <= GRAMMAR_MAX_REPEAT) v = v * 10 + (*P->p - '0');
    if (v > GRAMMAR_MAX_REPEAT) return fail(P, "more than 20000 repetitions");
    *out = (int)v;
    skip(P, true);
    return INFER_OK;
}

/* Puts r around e. A repetition of a repetition becomes one where no count lies between those it allows, or (((x+)+)+)+ and
 * the like would double their places with each level. */
static struct gexpr *repeat(struct gexpr *r, struct gexpr *e) {
    struct gexpr *in = e;
    while ((in->kind == GE_SEQ || in->kind == GE_ALT) && in->first && !in->first->next) in = in->first;
    if (in->kind == GE_REPEAT && in->min <= 1 && (in->max == 1 || in->max < 0)) {
        r->min *= in->min;
        if (in->max < 0 && r->max > 0) r->max = -1;
        e = in->first;
        e->next = NULL;
    }
    add_kid(r, e);
    return r;
}

/* * + ? {n} {n,} {n,m} behind an element */
static enum infer_status parse_repeat(struct parser *P, bool nested, struct gexpr **expr) {
    while (P->p < P->end && (*P->p == '*' || *P->p == '+' || *P->p == '?' || *P->p == '{')) {
        struct gexpr *r;
        char c = *P->p++;
        TRY(new_expr(P, GE_REPEAT, &r));
        r->min = c == '+';
        r->max = c == '?' ? 1 : -1;
        if (c == '{') {
            skip(P, true);
            if (!is(P, ',')) TRY(parse_count(P, &r->min));
            r->max = r->min;
            if (is(P, ',')) {
                P->p++;
                skip(P, true);
                r->max = -1;
                if (!is(P, '}')) TRY(parse_count(P, &r->max));
            }
            if (!is(P, '}')) return fail(P, "expected '}'");
            P->p++;
            if (r->max >= 0 && r->max < r->min)
                return fail(P, "a repetition's bounds are the wrong way round");
        }
        if (++P->depth > GRAMMAR_MAX_DEPTH) return fail(P, "too many repetitions of repetitions");
        *expr = repeat(r, *expr);
        skip(P, nested);
    }
    return INFER_OK;
}

static enum infer_status parse_sequence(struct parser *P, bool nested, struct gexpr **out) {
    TRY(new_expr(P, GE_SEQ, out));
    while (P->p < P->end) {
        char c = *P->p;
        if (c != '"' && c != '[' && c != '(' && c != '.' && !word_char(c)) break;
        struct gexpr *e;
        int depth = P->depth;
        TRY(parse_primary(P, nested, &e));
        skip(P, nested);
        TRY(parse_repeat(P, nested, &e));
        P->depth = depth;
        add_kid(*out, e);
    }
    return INFER_OK;
}

/* At a line end on the top level: does the next line go on with "|"? */
static bool goes_on(const struct parser *P) {
    struct parser ahead = *P;
    skip(&ahead, true);
    return is(&ahead, '|');
}

static enum infer_status parse_alternatives(struct parser *P, bool nested, struct gexpr **out) {
    TRY(new_expr(P, GE_ALT, out));
    for (;;) {
        struct gexpr *e;
        TRY(parse_sequence(P, nested, &e));
        add_kid(*out, e);
        if (!is(P, '|') && goes_on(P)) skip(P, true);
        if (!is(P, '|')) return INFER_OK;
        P->p++;
        skip(P, true);
    }
}

/* & a b !c, the whole of a rule */
static enum infer_status parse_meet(struct parser *P, struct gexpr **out) {
    P->p++;
    TRY(new_expr(P, GE_MEET, out));
    for (skip(P, false); P->p < P->end && *P->p != '\n' && *P->p != '\r'; skip(P, false)) {
        struct gexpr *e;
        TRY(new_expr(P, GE_RULE, &e));
        e->negated = is(P, '!');
        P->p += e->negated;
        const size_t n = word_length(P);
        if (!n) return fail(P, "expected the name of a rule behind &");
        TRY(find_rule(P, P->p, n, &e->rule));
        P->p += n;
        add_kid(*out, e);
        (*out)->n++;
    }
    return (*out)->n ? INFER_OK : fail(P, "expected the name of a rule behind &");
}

static enum infer_status parse_rule(struct parser *P) {
    size_t n = word_length(P);
    int rule;
    if (n == 0) return fail(P, "expected the name of a rule");
    TRY(find_rule(P, P->p, n, &rule));
    P->p += n;
    skip(P, false);
    if (P->end - P->p < 3 || memcmp(P->p, "::=", 3) != 0) return fail(P, "expected '::='");
    P->p += 3;
    skip(P, true);
    if (P->g->rule[rule].body)
        return err_set(INFER_E_INPUT, "grammar line %d: rule '%.*s' is defined twice", P->line,
                       (int)(n > 80 ? 80 : n), P->g->rule[rule].name);
    struct gexpr *body;
    TRY(is(P, '&') ? parse_meet(P, &body) : parse_alternatives(P, false, &body));
    P->g->rule[rule].body = body;
    if (P->p < P->end && *P->p != '\n' && *P->p != '\r') return fail(P, "expected the end of the rule");
    skip(P, true);
    return INFER_OK;
}

enum infer_status gbnf_parse(struct infer_grammar *g, const char *text, size_t n) {
    struct parser P = {g, text, text + n, 1, 0};
    if (n > GRAMMAR_MAX_TEXT)
        return err_set(INFER_E_INPUT, "grammar: %zu bytes, at most %d are read", n, GRAMMAR_MAX_TEXT);
    /* a rule takes at least one byte of text, so this is room for all */
    size_t rules = n + 2 < GRAMMAR_MAX_RULES + 1 ? n + 2 : GRAMMAR_MAX_RULES + 1;
    for (g->n_index = 16; g->n_index < 2 * rules; g->n_index *= 2) {
    }
    TRY(take(&P, &g->rule, rules * sizeof *g->rule));
    TRY(take(&P, &g->index, g->n_index * sizeof *g->index));
    char *copy = arena_strndup(&g->arena, text, n); /* names point into it */
    if (!copy) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for a grammar", n);
    P.p = copy;
    P.end = copy + n;
    int root;
    TRY(find_rule(&P, "root", 4, &root));
    skip(&P, true);
    while (P.p < P.end) TRY(parse_rule(&P));
    for (int i = 0; i < g->n_rule; i++)
        if (!g->rule[i].body)
            return err_set(INFER_E_INPUT, "grammar line %d: rule '%.*s' is not defined", g->rule[i].line,
                           (int)(g->rule[i].n_name > 80 ? 80 : g->rule[i].n_name), g->rule[i].name);
    return INFER_OK;
}

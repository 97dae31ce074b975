/* Regular expressions of JSON Schema's "pattern" as GBNF for the inside of a JSON string: what JSON must escape is written
 * escaped. A pattern without ^ or $ matches anywhere, as the standard says. */
#include "text/schema/schema_int.h"

#include <string.h>
#include <utf8proc.h>

struct regex {
    struct stext *t;
    const char *p, *end;
    int depth;
};

static enum infer_status bad(const char *what) { return err_set(INFER_E_INPUT, "pattern: %s", what); }
static enum infer_status no(const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "pattern: %s is not supported", what);
}

enum { MAX_RANGES = 256 };
struct ranges {
    struct grange r[MAX_RANGES];
    int n;
    bool negated;
};

static enum infer_status add(struct ranges *s, int32_t lo, int32_t hi) {
    if (s->n == MAX_RANGES) return no("a class of more than 256 ranges");
    s->r[s->n++] = (struct grange){lo, hi};
    return INFER_OK;
}

/* \d \w \s: their ranges, false for any other letter. */
static bool shorthand(struct ranges *s, char c) {
    static const struct grange digits[] = {{'0', '9'}},
                               word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               space[] = {{'\t', '\r'}, {' ', ' '}};
    const struct grange *r = c == 'd' ? digits : c == 'w' ? word : c == 's' ? space : NULL;
    int n = c == 'd' ? 1 : c == 'w' ? 4 : 2;
    for (int i = 0; r && i < n; i++)
        if (add(s, r[i].lo, r[i].hi)) return false;
    return r != NULL;
}

static bool in(const struct ranges *s, int32_t cp) {
    for (int i = 0; i < s->n; i++)
        if (cp >= s->r[i].lo && cp <= s->r[i].hi) return !s->negated;
    return s->negated;
}

/* One character of the set, as it stands inside a JSON string. */
static void put_set(struct stext *t, const struct ranges *s) {
    static const char escaped[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    stext_put(t, "( ");
    if (s->negated) {
        stext_put(t, "[^\"\\\\\\x00-\\x1F\\x7F");
        for (int i = 0; i < s->n; i++) {
            stext_char(t, s->r[i].lo);
            stext_put(t, "-");
            stext_char(t, s->r[i].hi);
        }
        stext_put(t, "] ");
    } else { /* the set without what must be escaped */
        static const struct grange free[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0x10ffff}};
        stext_put(t, "[");
        for (int i = 0; i < s->n; i++)
            for (int k = 0; k < 4; k++) {
                int32_t lo = s->r[i].lo > free[k].lo ? s->r[i].lo : free[k].lo,
                        hi = s->r[i].hi < free[k].hi ? s->r[i].hi : free[k].hi;
                if (lo > hi) continue;
                stext_char(t, lo);
                stext_put(t, "-");
                stext_char(t, hi);
            }
        stext_put(t, "] ");
    }
    for (int i = 0; i < 7; i++)
        if (in(s, escaped[i]))
            stext_put(t, "| \"\\\\%s%c\" ", letter[i] == '"' || letter[i] == '\\' ? "\\" : "", letter[i]);
    stext_put(t, ") ");
}

static enum infer_status next_char(struct regex *R, int32_t *cp) {
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)R->p, R->end - R->p, &c);
    if (n <= 0) return bad("it ends too early, or is not UTF-8");
    R->p += n;
    *cp = c;
    return INFER_OK;
}

static enum infer_status hex(struct regex *R, int digits, int32_t *cp) {
    *cp = 0;
    for (int i = 0; i < digits; i++, R->p++) {
        char c = R->p < R->end ? *R->p : 0, l = c | 0x20;
        int d = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
        if (d < 0) return bad("an escape needs more hexadecimal digits");
        *cp = *cp << 4 | d;
    }
    return *cp >= 0xd800 && *cp < 0xe000 ? no("half a surrogate pair") : INFER_OK;
}

/* Behind a backslash: a character, or *set for a class like \d. */
static enum infer_status escape(struct regex *R, int32_t *cp, struct ranges *set, bool *is_set) {
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    *is_set = false;
    TRY(next_char(R, cp));
    if (*cp == 'x') return hex(R, 2, cp);
    if (*cp == 'u') return hex(R, 4, cp);
    const char *hit = *cp && *cp < 0x80 ? strchr(from, *cp) : NULL;
    if (hit) {
        *cp = to[hit - from];
        return INFER_OK;
    }
    bool upper = *cp == 'D' || *cp == 'W' || *cp == 'S';
    if (*cp < 0x80 && shorthand(set, (char)(*cp | (upper ? 0x20 : 0)))) {
        set->negated = upper;
        *is_set = true;
        return INFER_OK;
    }
    bool letter = (*cp >= 'a' && *cp <= 'z') || (*cp >= 'A' && *cp <= 'Z') || (*cp >= '1' && *cp <= '9');
    return letter ? no("an escape like \\b, \\p or a back reference") : INFER_OK;
}

static enum infer_status parse_class(struct regex *R) {
    struct ranges s = {.n = 0};
    R->p++;
    if (R->p < R->end && *R->p == '^') {
        s.negated = true;
        R->p++;
    }
    while (R->p < R->end && *R->p != ']') {
        int32_t lo = 0, hi;
        struct ranges set = {.n = 0};
        bool is_set = false;
        TRY(next_char(R, &lo));
        if (lo == '\\') TRY(escape(R, &lo, &set, &is_set));
        if (is_set) {
            if (set.negated) return no("\\D, \\W or \\S in a class");
            for (int i = 0; i < set.n; i++) TRY(add(&s, set.r[i].lo, set.r[i].hi));
            continue;
        }
        hi = lo;
        if (R->end - R->p > 1 && R->p[0] == '-' && R->p[1] != ']') {
            R->p++;
            TRY(next_char(R, &hi));
            if (hi == '\\') TRY(escape(R, &hi, &set, &is_set));
            if (is_set || hi < lo) return bad("a range of a class runs backwards");
        }
        TRY(add(&s, lo, hi));
    }
    if (R->p == R->end) return bad("a class has no end");
    R->p++;
    if (s.n == 0 && !s.negated) return bad("an empty class");
    put_set(R->t, &s);
    return INFER_OK;
}

static enum infer_status parse_alternatives(struct regex *R);

static enum infer_status parse_group(struct regex *R) {
    R->p++;
    if (R->end - R->p >= 2 && R->p[0] == '?') {
        if (R->p[1] != ':') return no("a group that looks ahead, behind or has a name");
        R->p += 2;
    }
    if (R->depth >= GRAMMAR_MAX_DEPTH / 2) return bad("groups nested too deep");
    R->depth++;
    stext_put(R->t, "( ");
    TRY(parse_alternatives(R));
    stext_put(R->t, ") ");
    R->depth--;
    if (R->p == R->end || *R->p != ')') return bad("a group has no end");
    R->p++;
    return INFER_OK;
}

static enum infer_status parse_atom(struct regex *R) {
    struct ranges s = {.n = 0};
    bool is_set = false;
    int32_t cp = 0;
    if (*R->p == '(') return parse_group(R);
    if (*R->p == '[') return parse_class(R);
    if (strchr("*+?{", *R->p) && *R->p) return bad("a repetition of nothing");
    if (*R->p == '^' || *R->p == '$') return no("^ or $ inside");
    TRY(next_char(R, &cp));
    if (cp == '.') { /* all but the ends of lines */
        s.negated = is_set = true;
        TRY(add(&s, '\n', '\n'));
        TRY(add(&s, '\r', '\r'));
        TRY(add(&s, 0x2028, 0x2029));
    } else if (cp == '\\') {
        TRY(escape(R, &cp, &s, &is_set));
    }
    if (!is_set) TRY(add(&s, cp, cp));
    put_set(R->t, &s);
    return INFER_OK;
}

static enum infer_status parse_repeat(struct regex *R) {
    if (R->p == R->end) return INFER_OK;
    if (*R->p == '{') {
        const char *close = memchr(R->p, '}', (size_t)(R->end - R->p));
        if (!close) return bad("{ without }");
        for (const char *c = R->p + 1; c < close; c++)
            if (*c != ',' && (*c < '0' || *c > '9')) return bad("{} holds something else than numbers");
        if (R->p[1] == ',' || R->p[1] == '}') return bad("{} begins without a number");
        stext_add(R->t, R->p, (size_t)(close - R->p) + 1);
        R->p = close + 1;
    } else if (*R->p == '*' || *R->p == '+' || *R->p == '?') {
        stext_add(R->t, R->p++, 1);
    } else {
        return INFER_OK;
    }
    stext_put(R->t, " ");
    if (R->p < R->end && (*R->p == '?' || *R->p == '+')) {
        if (*R->p == '+') return no("a possessive repetition");
        R->p++; /* lazy or greedy: the same texts */
    }
    return R->p < R->end && *R->p && strchr("*+{", *R->p) ? bad("a repetition of a repetition") : INFER_OK;
}

static enum infer_status parse_alternatives(struct regex *R) {
    while (R->p < R->end && *R->p != ')') {
        bool last = R->depth == 0 && R->end - R->p == 1 && *R->p == '$';
        if (last) break;
        if (*R->p == '|') {
            stext_put(R->t, "| ");
            R->p++;
            continue;
        }
        TRY(parse_atom(R));
        TRY(parse_repeat(R));
    }
    return INFER_OK;
}

/* "|" outside of all groups: then ^ and $ belong to one alternative alone. */
static bool splits(const char *p, const char *end) {
    int depth = 0;
    for (bool set = false; p < end; p++) {
        if (*p == '\\')
            p++;
        else if (set)
            set = *p != ']';
        else if (*p == '[')
            set = true;
        else if (*p == '(')
            depth++;
        else if (*p == ')')
            depth--;
        else if (*p == '|' && depth == 0)
            return true;
    }
    return false;
}

enum infer_status schema_pattern(struct stext *t, const char *pattern, size_t n) {
    struct regex R = {t, pattern, pattern + n, 0};
    bool from_start = n > 0 && pattern[0] == '^';
    bool to_end = n > 0 && pattern[n - 1] == '$' && !(n > 1 && pattern[n - 2] == '\\');
    if ((from_start || to_end) && splits(pattern, pattern + n))
        return no("| beside ^ or $ (put the alternatives in a group)");
    R.p += from_start;
    stext_put(t, "%s( ", from_start ? "" : t->name ? "plain* " : "char* ");
    TRY(parse_alternatives(&R));
    stext_put(t, ") %s", to_end ? "" : t->name ? "plain* " : "char* ");
    if (R.p < R.end && !(*R.p == '$' && R.end - R.p == 1)) return bad("a ) without (");
    return INFER_OK;
}

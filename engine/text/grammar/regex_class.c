/* Characters of a pattern: escapes and classes in brackets. */
#include "text/grammar/regex_int.h"

#include <string.h>
#include <utf8proc.h>

enum infer_status regex_char(struct regex *R, int32_t *cp) {
    utf8proc_int32_t c;
    if (R->p >= R->end) return regex_bad(R, "it ends too early");
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)R->p, R->end - R->p, &c);
    if (n <= 0) return regex_bad(R, "it is not UTF-8");
    R->p += n;
    *cp = c;
    return INFER_OK;
}

/* digits hexadecimal ones, or (braces) as many as {} holds */
static enum infer_status hex(struct regex *R, int digits, int32_t *cp) {
    const bool braces = R->p < R->end && *R->p == '{';
    uint32_t v = 0;
    int n = 0;
    R->p += braces;
    for (; R->p < R->end && n < (braces ? 8 : digits); n++, R->p++) {
        char c = *R->p, l = c | 0x20;
        int d = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
        if (d < 0) break;
        v = v << 4 | (uint32_t)d;
    }
    if (braces ? n == 0 || R->p == R->end || *R->p++ != '}' : n < digits)
        return regex_bad(R, "an escape needs more hexadecimal digits");
    if (v >= 0xd800 && v < 0xe000) return regex_no(R, "half a surrogate pair");
    if (v > 0x10ffff) return regex_bad(R, "an escape is no code point");
    *cp = (int32_t)v;
    return INFER_OK;
}

/* \p{L} \pL \P{..} */
static enum infer_status property(struct regex *R, bool negated, struct rset *set) {
    const char *name = R->p, *end;
    if (R->p < R->end && *R->p == '{') {
        name++;
        end = memchr(name, '}', (size_t)(R->end - name));
        if (!end) return regex_bad(R, "\\p{ without }");
        R->p = end + 1;
    } else {
        if (R->p >= R->end) return regex_bad(R, "\\p without a name");
        end = ++R->p;
    }
    if (name < end && *name == '^') negated = !negated, name++;
    const char *is = memchr(name, '=', (size_t)(end - name)); /* General_Category=Lu */
    if (is) name = is + 1;
    bool known;
    TRY(regex_set_named(R, set, name, (size_t)(end - name), &known));
    if (!known) return regex_no(R, "\\p of anything but a general category");
    return negated ? regex_set_negate(R, set) : INFER_OK;
}

enum infer_status regex_escape(struct regex *R, struct rset *set) {
    static const char from[] = "nrtfvae0", to[] = "\n\r\t\f\v\a\033";
    int32_t cp = 0;
    TRY(regex_char(R, &cp));
    const char low = (char)(cp < 0x80 ? cp | 0x20 : 0);
    if (cp == 'x')
        TRY(hex(R, 2, &cp));
    else if (cp == 'u')
        TRY(hex(R, 4, &cp));
    else if (cp == 'U')
        TRY(hex(R, 8, &cp));
    else if (cp == 'p' || cp == 'P')
        return property(R, cp == 'P', set);
    else if (cp < 0x80 && (low == 'd' || low == 'w' || low == 's') && cp != '\'') {
        TRY(regex_set_letter(R, set, low, R->unicode));
        return cp & 0x20 ? INFER_OK : regex_set_negate(R, set);
    } else if (cp && cp < 0x80 && strchr(from, cp))
        cp = to[strchr(from, cp) - from];
    else if (cp == 'b' || cp == 'B')
        return regex_no(R, "\\b, a word's border,");
    else if (cp >= '1' && cp <= '9')
        return regex_no(R, "a back reference");
    else if ((low >= 'a' && low <= 'z'))
        return regex_no(R, "an escape of this letter");
    return regex_set_add(R, set, cp, cp);
}

/* [:alpha:], when it is one. */
static enum infer_status posix(struct regex *R, struct rset *set, bool *is) {
    const char *p = R->p + 1, *end = p;
    *is = false;
    if (R->end - R->p < 4 || R->p[0] != ':') return INFER_OK;
    const bool negated = *p == '^';
    p += negated;
    for (end = p; end < R->end && *end >= 'a' && *end <= 'z';) end++;
    if (R->end - end < 2 || end[0] != ':' || end[1] != ']') return INFER_OK;
    TRY(regex_set_named(R, set, p, (size_t)(end - p), is));
    if (!*is) return regex_bad(R, "no such class as [:..:]");
    R->p = end + 2;
    return negated ? regex_set_negate(R, set) : INFER_OK;
}

/* One member of a class: a character, or a set of several. */
static enum infer_status member(struct regex *R, struct rset *one) {
    int32_t cp = 0;
    bool is = false;
    *one = (struct rset){0};
    TRY(regex_char(R, &cp));
    if (cp == '\\' && R->p < R->end && *R->p == 'b') { /* in a class: backspace */
        R->p++;
        return regex_set_add(R, one, '\b', '\b');
    }
    if (cp == '\\') return regex_escape(R, one);
    if (cp == '[') TRY(posix(R, one, &is));
    if (cp == '&' && R->p < R->end && *R->p == '&') return regex_no(R, "&& in a class");
    return is ? INFER_OK : regex_set_add(R, one, cp, cp);
}

static bool single(const struct rset *s) { return s->n == 1 && s->r[0].lo == s->r[0].hi; }

enum infer_status regex_class(struct regex *R, struct rset *set) {
    const bool negated = R->p < R->end && *R->p == '^';
    R->p += negated;
    /* a ] that comes first is one of the class, but not for ECMA-262 */
    for (bool first = !R->way->ecma; R->p < R->end && (*R->p != ']' || first); first = false) {
        struct rset one, end;
        TRY(member(R, &one));
        if (R->end - R->p > 1 && R->p[0] == '-' && R->p[1] != ']' && single(&one)) {
            R->p++;
            TRY(member(R, &end));
            if (!single(&end)) return regex_bad(R, "a range of a class ends with several characters");
            if (end.r[0].lo < one.r[0].lo) return regex_bad(R, "a range of a class runs backwards");
            one.r[0].hi = end.r[0].lo;
        }
        TRY(regex_set_join(R, set, &one));
    }
    if (R->p >= R->end) return regex_bad(R, "a class has no end");
    R->p++;
    if (R->fold) TRY(regex_set_fold(R, set));
    regex_set_tidy(set);
    return negated ? regex_set_negate(R, set) : INFER_OK;
}

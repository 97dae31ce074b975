/* Template text -> tokens. Whitespace control follows Jinja's rules with trim_blocks and lstrip_blocks on: a
 * newline behind a block or comment goes, blanks before one go when the line holds nothing else before it;
 * "-" inside a tag strips all white space on that side, "+" keeps it. */
#include "text/jinja/jinja_int.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct lexer {
    struct jinja *J;
    const char *s; /* s[n], newlines normalised */
    size_t n, at;
    int line;
    struct jtoken *t;
    size_t n_t, cap;
    bool line_start; /* the last match ended with a newline, or nothing was read yet */
};

static enum infer_status push(struct lexer *L, enum jt_kind kind, int op, struct jv value) {
    TRY(jinja_step(L->J, 1));
    if (L->n_t == L->cap) {
        size_t cap = L->cap ? 2 * L->cap : 256;
        struct jtoken *t;
        TRY(jinja_new(L->J, &t, cap * sizeof *t));
        if (L->n_t) memcpy(t, L->t, L->n_t * sizeof *t);
        L->t = t;
        L->cap = cap;
    }
    L->t[L->n_t++] = (struct jtoken){kind, L->line, op, value};
    return INFER_OK;
}

static enum infer_status fail(struct lexer *L, const char *what) {
    L->J->line = L->line;
    return jinja_fail(L->J, "%s", what);
}

static void advance(struct lexer *L, size_t to) {
    for (; L->at < to; L->at++) L->line += L->s[L->at] == '\n';
}

static bool looking_at(const struct lexer *L, size_t at, const char *lit) {
    size_t n = strlen(lit);
    return L->n - at >= n && memcmp(L->s + at, lit, n) == 0;
}

static size_t skip_space(const struct lexer *L, size_t at) {
    while (at < L->n) {
        int32_t cp;
        int len = utf8_get(L->s + at, &cp);
        if (!js_is_space(cp)) break;
        at += (size_t)len;
    }
    return at;
}

/* End of s[from, to) without white space at its end. */
static size_t strip_right(const struct lexer *L, size_t from, size_t to) {
    while (to > from) {
        size_t p = to - 1;
        while (p > from && (L->s[p] & 0xc0) == 0x80) p--;
        int32_t cp;
        utf8_get(L->s + p, &cp);
        if (!js_is_space(cp)) break;
        to = p;
    }
    return to;
}

/* Text [from, to) before a tag whose sign is sign; strips what the tag asks for. */
static enum infer_status data(struct lexer *L, size_t from, size_t to, char sign, bool variable) {
    size_t end = to;
    if (sign == '-') {
        end = strip_right(L, from, to);
    } else if (sign != '+' && !variable) {
        size_t line = to;
        while (line > from && L->s[line - 1] != '\n') line--;
        if ((line > from || L->line_start) && strip_right(L, line, to) == line) end = line;
    }
    if (end > from) {
        struct jv v;
        TRY(jv_string(L->J, &v, L->s + from, end - from));
        TRY(push(L, JT_DATA, 0, v));
    }
    return INFER_OK;
}

/* Matches the end of a tag at `at` (close is "%}", "}}" or "#}"): its length with what it swallows, 0 if not
 * there. */
static size_t tag_end(const struct lexer *L, size_t at, const char *close, bool trim) {
    if (at < L->n && L->s[at] == '-' && looking_at(L, at + 1, close)) return skip_space(L, at + 3) - at;
    if (trim && at < L->n && L->s[at] == '+' && looking_at(L, at + 1, close)) return 3;
    if (!looking_at(L, at, close)) return 0;
    return 2 + (trim && at + 2 < L->n && L->s[at + 2] == '\n');
}

static void tag_done(struct lexer *L, size_t end) {
    L->line_start = L->s[end - 1] == '\n';
    advance(L, end);
}

static enum infer_status comment(struct lexer *L) {
    for (size_t i = L->at; i < L->n; i++) {
        size_t len = tag_end(L, i, "#}", true);
        if (len == 0) continue;
        tag_done(L, i + len);
        return INFER_OK;
    }
    return fail(L, "Missing end of comment tag");
}

/* At "{%" : when it opens a raw block, the place behind its end, else 0. */
static size_t raw_begin(const struct lexer *L, size_t at) {
    at += 2;
    if (at < L->n && (L->s[at] == '-' || L->s[at] == '+')) at++;
    at = skip_space(L, at);
    if (!looking_at(L, at, "raw")) return 0;
    at = skip_space(L, at + 3);
    if (looking_at(L, at, "-%}")) return skip_space(L, at + 3);
    return looking_at(L, at, "%}") ? at + 2 : 0;
}

static enum infer_status raw(struct lexer *L) {
    size_t from = L->at;
    L->line_start = from > 0 && L->s[from - 1] == '\n';
    for (size_t i = from; i < L->n; i++) {
        if (!looking_at(L, i, "{%")) continue;
        size_t at = i + 2;
        char sign = 0;
        if (at < L->n && (L->s[at] == '-' || L->s[at] == '+')) sign = L->s[at++];
        at = skip_space(L, at);
        if (!looking_at(L, at, "endraw")) continue;
        at = skip_space(L, at + 6);
        size_t len = tag_end(L, at, "%}", true);
        if (len == 0) continue;
        TRY(data(L, from, i, sign, false));
        tag_done(L, at + len);
        return INFER_OK;
    }
    return fail(L, "Missing end of raw directive");
}

/* ---- inside a tag ---- */

static bool name_start(int32_t cp) {
    if (cp < 0x80) return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || cp == '_';
    utf8proc_category_t c = utf8proc_category(cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || c == UTF8PROC_CATEGORY_NL;
}

static bool name_part(int32_t cp) {
    if (cp < 0x80) return name_start(cp) || (cp >= '0' && cp <= '9');
    utf8proc_category_t c = utf8proc_category(cp);
    return name_start(cp) || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
           c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_PC;
}

static enum infer_status lex_name(struct lexer *L) {
    size_t end = L->at;
    int32_t cp;
    while (end < L->n) {
        int len = utf8_get(L->s + end, &cp);
        if (!name_part(cp)) break;
        end += (size_t)len;
    }
    struct jv key;
    TRY(jv_string(L->J, &key, L->s + L->at, end - L->at));
    const struct jv *old = jv_dict_get(L->J->names, key);
    if (!old) TRY(jv_dict_set(L->J, L->J->names, key, key));
    TRY(push(L, JT_NAME, 0, old ? *old : key));
    advance(L, end);
    return INFER_OK;
}

/* One escape behind a backslash at s[at]; writes the code point and returns the place behind it, 0 when
 * broken. */
static size_t lex_escape(const struct lexer *L, size_t at, size_t end, int32_t *cp) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    char c = L->s[at];
    const char *hit = c ? strchr(letters, c) : NULL;
    if (hit) {
        *cp = values[hit - letters];
        return at + 1;
    }
    if (c >= '0' && c <= '7') {
        *cp = 0;
        size_t stop = at + 3 < end ? at + 3 : end;
        for (; at < stop && L->s[at] >= '0' && L->s[at] <= '7'; at++) *cp = *cp * 8 + (L->s[at] - '0');
        return at;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) { /* Python keeps an unknown escape as it stands */
        *cp = '\\';
        return at;
    }
    if (end - at - 1 < digits) return 0;
    uint32_t v = 0;
    for (size_t i = 1; i <= digits; i++) {
        char d = L->s[at + i];
        int x = d >= '0' && d <= '9'   ? d - '0'
                : d >= 'a' && d <= 'f' ? d - 'a' + 10
                : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                       : -1;
        if (x < 0 || v > 0x10ffff) return 0;
        v = v << 4 | (uint32_t)x;
    }
    if (v > 0x10ffff) return 0;
    *cp = v >= 0xd800 && v < 0xe000 ? 0xfffd : (int32_t)v; /* half a surrogate pair has no UTF-8 */
    return at + 1 + digits;
}

static enum infer_status lex_string(struct lexer *L) {
    char quote = L->s[L->at];
    size_t end = L->at + 1;
    bool escapes = false;
    for (; end < L->n && L->s[end] != quote; end++) {
        if (L->s[end] != '\\') continue;
        escapes = true;
        end++;
    }
    if (end >= L->n) return fail(L, "a string has no end");
    struct jv v;
    if (!escapes) {
        TRY(jv_string(L->J, &v, L->s + L->at + 1, end - L->at - 1));
    } else {
        struct jbuf b = {.J = L->J};
        for (size_t i = L->at + 1; i < end;) {
            if (L->s[i] != '\\') {
                TRY(jbuf_add(&b, L->s + i, NULL, 1));
                i++;
                continue;
            }
            int32_t cp;
            i++;
            i = lex_escape(L, i, end, &cp);
            if (i == 0) return fail(L, "a string holds a broken escape");
            char u[4];
            TRY(jbuf_add(&b, u, NULL, (size_t)utf8_put(u, cp)));
        }
        TRY(jbuf_value(&b, false, &v));
    }
    TRY(push(L, JT_STRING, 0, v));
    advance(L, end + 1);
    return INFER_OK;
}

static size_t digits_end(const struct lexer *L, size_t at) {
    while (at < L->n) {
        char c = L->s[at];
        if (c == '_' && at + 1 < L->n && L->s[at + 1] >= '0' && L->s[at + 1] <= '9') c = L->s[++at];
        if (c < '0' || c > '9') break;
        at++;
    }
    return at;
}

static bool digit_at(const struct lexer *L, size_t at) {
    return at < L->n && L->s[at] >= '0' && L->s[at] <= '9';
}

static enum infer_status lex_number(struct lexer *L) {
    char text[128];
    size_t end = digits_end(L, L->at);
    bool real = false;
    int base = 10;
    char second = L->at + 1 < L->n ? L->s[L->at + 1] | 0x20 : 0;
    if (L->s[L->at] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
        base = second == 'x' ? 16 : second == 'o' ? 8 : 2;
        for (end = L->at + 2; end < L->n && (L->s[end] == '_' || name_part((unsigned char)L->s[end]));
             end++) {
        }
    } else {
        if (end < L->n && L->s[end] == '.' && digit_at(L, end + 1)) {
            end = digits_end(L, end + 1);
            real = true;
        }
        if (end < L->n && (L->s[end] | 0x20) == 'e') {
            size_t e = end + 1;
            if (e < L->n && (L->s[e] == '+' || L->s[e] == '-')) e++;
            if (digit_at(L, e)) {
                end = digits_end(L, e);
                real = true;
            }
        }
    }
    size_t n = 0;
    for (size_t i = L->at; i < end; i++)
        if (L->s[i] != '_' && n < sizeof text - 1) text[n++] = L->s[i];
    text[n] = 0;
    struct jstr s = {.p = text, .n = n};
    struct jv v = {.kind = real ? JV_FLOAT : JV_INT};
    if (n == sizeof text - 1 || !(real ? js_to_float(&s, &v.f) : js_to_int(&s, base, &v.i)))
        return fail(L, "a number is malformed or too large");
    TRY(push(L, real ? JT_FLOAT : JT_INT, 0, v));
    advance(L, end);
    return INFER_OK;
}

static enum infer_status lex_op(struct lexer *L, char *closers, int *depth) {
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = L->s[L->at];
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (!looking_at(L, L->at, two[i])) continue;
        TRY(push(L, JT_OP, OP2(two[i][0], two[i][1]), jv_none()));
        L->at += 2;
        return INFER_OK;
    }
    if (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c)) return fail(L, "unexpected character in a tag");
    if (c == '(' || c == '[' || c == '{') {
        if (*depth >= 4 * JINJA_MAX_DEPTH) return fail(L, "brackets nested too deep");
        closers[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (*depth == 0 || closers[--*depth] != c) return fail(L, "a closing bracket matches none");
    }
    TRY(push(L, JT_OP, c, jv_none()));
    L->at++;
    return INFER_OK;
}

static enum infer_status lex_tag(struct lexer *L, bool variable) {
    char closers[4 * JINJA_MAX_DEPTH];
    int depth = 0;
    TRY(push(L, variable ? JT_PRINT_BEGIN : JT_BLOCK_BEGIN, 0, jv_none()));
    for (;;) {
        advance(L, skip_space(L, L->at));
        if (L->at >= L->n) return fail(L, "a tag has no end");
        size_t len = depth ? 0 : tag_end(L, L->at, variable ? "}}" : "%}", !variable);
        if (len) {
            TRY(push(L, variable ? JT_PRINT_END : JT_BLOCK_END, 0, jv_none()));
            tag_done(L, L->at + len);
            return INFER_OK;
        }
        int32_t cp;
        utf8_get(L->s + L->at, &cp);
        if (cp >= '0' && cp <= '9')
            TRY(lex_number(L));
        else if (cp == '"' || cp == '\'')
            TRY(lex_string(L));
        else if (name_start(cp))
            TRY(lex_name(L));
        else
            TRY(lex_op(L, closers, &depth));
    }
}

static enum infer_status lex_root(struct lexer *L) {
    while (L->at < L->n) {
        size_t from = L->at, i = from;
        while (i < L->n && !(L->s[i] == '{' && i + 1 < L->n && strchr("{%#", L->s[i + 1]) && L->s[i + 1]))
            i++;
        if (i == L->n) {
            struct jv v;
            TRY(jv_string(L->J, &v, L->s + from, i - from));
            TRY(push(L, JT_DATA, 0, v));
            break;
        }
        char kind = L->s[i + 1], sign = i + 2 < L->n ? L->s[i + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        TRY(data(L, from, i, sign, kind == '{'));
        size_t raw_at = kind == '%' ? raw_begin(L, i) : 0;
        advance(L, raw_at ? raw_at : i + 2 + (sign != 0));
        if (raw_at)
            TRY(raw(L));
        else if (kind == '#')
            TRY(comment(L));
        else
            TRY(lex_tag(L, kind == '{'));
    }
    return INFER_OK;
}

enum infer_status jinja_lex(struct jinja *J, const char *src, size_t n, struct jtoken **out, size_t *n_out) {
    char *text;
    TRY(jinja_new(J, &text, n + 1));
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        if (src[i] == '\r') {
            text[o++] = '\n';
            i += i + 1 < n && src[i + 1] == '\n';
        } else {
            text[o++] = src[i];
        }
    }
    if (o > 0 && text[o - 1] == '\n') o--; /* one newline at the end of the file is not text */
    struct lexer L = {.J = J, .s = text, .n = o, .line = 1, .line_start = true};
    TRY(lex_root(&L));
    TRY(push(&L, JT_END, 0, jv_none()));
    *out = L.t;
    *n_out = L.n_t;
    return INFER_OK;
}

/* Methods of text: case and character classes. */
#include "text/jinja/jinja_int.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name)                                                                                         \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

/* ---- case ---- */

enum case_kind { UPPER, LOWER, TITLE, FOLD };

/* Letters whose upper case is more than one (Unicode SpecialCasing.txt, the unconditional Latin and Armenian
 * ones). */
static const struct {
    int32_t cp;
    const char *upper;
} special_upper[] = {
    {0xdf, "SS"},        {0x149, "\u02bcN"},  {0x1f0, "J\u030c"},  {0x587, "\u0535\u0552"},
    {0x1e96, "H\u0331"}, {0x1e97, "T\u0308"}, {0x1e98, "W\u030a"}, {0x1e99, "Y\u030a"},
    {0x1e9a, "A\u02be"}, {0xfb00, "FF"},      {0xfb01, "FI"},      {0xfb02, "FL"},
    {0xfb03, "FFI"},     {0xfb04, "FFL"},     {0xfb05, "ST"},      {0xfb06, "ST"},
};

static bool is_cased(int32_t cp) {
    if (cp < 0x80) return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static enum infer_status put_case(struct jbuf *b, const struct jstr *s, size_t at, size_t len, int32_t cp,
                                  enum case_kind kind) {
    bool mark = s->m && s->m[at];
    char text[4];
    if (kind == UPPER || kind == TITLE) {
        for (size_t i = 0; cp > 0x7f && i < sizeof special_upper / sizeof *special_upper; i++)
            if (special_upper[i].cp == cp && (kind == UPPER || cp == 0xdf))
                return kind == UPPER
                           ? jbuf_one(b, special_upper[i].upper, strlen(special_upper[i].upper), mark)
                           : jbuf_one(b, "Ss", 2, mark);
    }
    if (kind == FOLD && cp == 0xdf) return jbuf_one(b, "ss", 2, mark);
    if (kind == LOWER && cp == 0x130) return jbuf_one(b, "i\u0307", 3, mark);
    int32_t to = kind == UPPER   ? utf8proc_toupper(cp)
                 : kind == TITLE ? utf8proc_totitle(cp)
                                 : utf8proc_tolower(cp);
    if (kind == LOWER && cp == 0x3a3) { /* a sigma that ends a word */
        int32_t next = 0, before = 0;
        if (at + len < s->n) utf8_get(s->p + at + len, &next);
        size_t p = at;
        while (p > 0 && (s->p[--p] & 0xc0) == 0x80) {
        }
        if (at > 0) utf8_get(s->p + p, &before);
        if (is_cased(before) && !is_cased(next)) to = 0x3c2;
    }
    return jbuf_one(b, text, (size_t)utf8_put(text, to), mark);
}

/* kind for the first code point of s[from, n), rest for the others. */
static enum infer_status add_case(struct jbuf *b, const struct jstr *s, enum case_kind kind,
                                  enum case_kind rest) {
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(s->p + i, &cp);
        TRY(put_case(b, s, i, len, cp, i ? rest : kind));
        i += len;
    }
    return INFER_OK;
}

static enum infer_status to_case(struct jinja *J, const struct jstr *s, enum case_kind kind,
                                 enum case_kind rest, struct jv *out) {
    struct jbuf b = {.J = J};
    TRY(jinja_step(J, s->n >> 2));
    TRY(add_case(&b, s, kind, rest));
    return jbuf_value(&b, s->safe, out);
}

enum infer_status js_upper(struct jinja *J, const struct jstr *s, struct jv *out) {
    return to_case(J, s, UPPER, UPPER, out);
}
enum infer_status js_lower(struct jinja *J, const struct jstr *s, struct jv *out) {
    return to_case(J, s, LOWER, LOWER, out);
}
enum infer_status js_capitalize(struct jinja *J, const struct jstr *s, struct jv *out) {
    return to_case(J, s, TITLE, LOWER, out);
}

METHOD(m_upper) {
    TRY(jargs_bind(J, a, "upper", "", NULL));
    return js_upper(J, self.s, out);
}
METHOD(m_lower) {
    TRY(jargs_bind(J, a, "lower", "", NULL));
    return js_lower(J, self.s, out);
}
METHOD(m_capitalize) {
    TRY(jargs_bind(J, a, "capitalize", "", NULL));
    return js_capitalize(J, self.s, out);
}
METHOD(m_casefold) {
    TRY(jargs_bind(J, a, "casefold", "", NULL));
    return to_case(J, self.s, FOLD, FOLD, out);
}

/* Walks s and gives each code point the case that each asks for. */
METHOD(m_title) {
    struct jbuf b = {.J = J};
    bool inside = false;
    TRY(jargs_bind(J, a, "title", "", NULL));
    for (size_t i = 0; i < self.s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(self.s->p + i, &cp);
        TRY(put_case(&b, self.s, i, len, cp, inside ? LOWER : TITLE));
        inside = is_cased(cp);
        i += len;
    }
    return jbuf_value(&b, self.s->safe, out);
}

METHOD(m_swapcase) {
    struct jbuf b = {.J = J};
    TRY(jargs_bind(J, a, "swapcase", "", NULL));
    for (size_t i = 0; i < self.s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(self.s->p + i, &cp);
        TRY(put_case(&b, self.s, i, len, cp, utf8proc_category(cp) == UTF8PROC_CATEGORY_LU ? LOWER : UPPER));
        i += len;
    }
    return jbuf_value(&b, self.s->safe, out);
}

/* ---- classes ---- */

static bool is_alpha(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
static bool is_decimal(int32_t cp) { return utf8proc_category(cp) == UTF8PROC_CATEGORY_ND; }
static bool is_digit(int32_t cp) {
    return is_decimal(cp) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089);
}
static bool is_numeric(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}
bool js_is_alnum(int32_t cp) { return is_alpha(cp) || is_numeric(cp); }
static bool is_ascii(int32_t cp) { return cp < 0x80; }

static bool all(const struct jstr *s, bool (*is)(int32_t)) {
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        i += (size_t)utf8_get(s->p + i, &cp);
        if (!is(cp)) return false;
    }
    return s->n > 0;
}

static bool all_case(const struct jstr *s, utf8proc_category_t wrong) {
    bool any = false;
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        i += (size_t)utf8_get(s->p + i, &cp);
        utf8proc_category_t c = utf8proc_category(cp);
        if (c == wrong || c == UTF8PROC_CATEGORY_LT) return false;
        any |= is_cased(cp);
    }
    return any;
}
bool js_is_lower(const struct jstr *s) { return all_case(s, UTF8PROC_CATEGORY_LU); }
bool js_is_upper(const struct jstr *s) { return all_case(s, UTF8PROC_CATEGORY_LL); }

#define CLASS(name, test)                                                                                    \
    METHOD(name) {                                                                                           \
        TRY(jargs_bind(J, a, #name, "", NULL));                                                              \
        *out = jv_bool(test);                                                                                \
        return INFER_OK;                                                                                     \
    }
CLASS(m_isalpha, all(self.s, is_alpha))
CLASS(m_isdigit, all(self.s, is_digit))
CLASS(m_isdecimal, all(self.s, is_decimal))
CLASS(m_isnumeric, all(self.s, is_numeric))
CLASS(m_isalnum, all(self.s, js_is_alnum))
CLASS(m_isspace, all(self.s, js_is_space))
CLASS(m_isascii, self.s->n == 0 || all(self.s, is_ascii))
CLASS(m_islower, js_is_lower(self.s))
CLASS(m_isupper, js_is_upper(self.s))

METHOD(m_istitle) {
    TRY(jargs_bind(J, a, "istitle", "", NULL));
    bool inside = false, any = false, ok = true;
    for (size_t i = 0; i < self.s->n && ok;) {
        int32_t cp;
        i += (size_t)utf8_get(self.s->p + i, &cp);
        bool cased = is_cased(cp), upper = cased && utf8proc_category(cp) != UTF8PROC_CATEGORY_LL;
        if (cased) ok = upper != inside;
        any |= cased;
        inside = cased;
    }
    *out = jv_bool(ok && any);
    return INFER_OK;
}

const struct jbuiltin *jinja_case_method(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"capitalize", m_capitalize}, {"casefold", m_casefold}, {"isalnum", m_isalnum},
        {"isalpha", m_isalpha},       {"isascii", m_isascii},   {"isdecimal", m_isdecimal},
        {"isdigit", m_isdigit},       {"islower", m_islower},   {"isnumeric", m_isnumeric},
        {"isspace", m_isspace},       {"istitle", m_istitle},   {"isupper", m_isupper},
        {"lower", m_lower},           {"swapcase", m_swapcase}, {"title", m_title},
        {"upper", m_upper},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name, n);
}

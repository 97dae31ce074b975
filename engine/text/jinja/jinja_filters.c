/* Filters on text and numbers, and the tests behind "is". */
#define _GNU_SOURCE /* memmem, memrchr */
#include "text/jinja/jinja_int.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                         \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, size_t count, const char *name, size_t n) {
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) return &table[i];
    return NULL;
}

/* ---- numbers in text ---- */

/* s without white space around it and without the underscores between digits, ended by 0; false when too
 * long. */
static bool number_text(const struct jstr *s, char *out, size_t room) {
    size_t from = 0, to = s->n, n = 0;
    while (from < to && js_is_space((unsigned char)s->p[from])) from++;
    while (to > from && js_is_space((unsigned char)s->p[to - 1])) to--;
    for (size_t i = from; i < to; i++) {
        char c = s->p[i];
        if (c == '_' && i > from && i + 1 < to && s->p[i - 1] != '_' && s->p[i + 1] != '_') continue;
        if (c == 0 || n + 1 >= room) return false;
        out[n++] = c;
    }
    out[n] = 0;
    return n > 0;
}

bool js_to_int(const struct jstr *s, int base, int64_t *out) {
    char text[128], *end;
    if (base < 2 || base > 36 || !number_text(s, text, sizeof text)) return false;
    char *digits = text + (text[0] == '-' || text[0] == '+');
    char letter = digits[0] == '0' ? digits[1] | 0x20 : 0;
    if ((letter == 'x' && base == 16) || (letter == 'o' && base == 8) || (letter == 'b' && base == 2))
        memmove(digits, digits + 2, strlen(digits + 2) + 1);
    char c = *digits | 0x20;
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))) return false;
    errno = 0;
    long long v = strtoll(text, &end, base);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool js_to_float(const struct jstr *s, double *out) {
    char text[400], *end;
    if (!number_text(s, text, sizeof text) || strpbrk(text, "xXpP(")) return false;
    *out = strtod(text, &end);
    return *end == 0;
}

/* ---- text ---- */

FILTER(f_string) {
    TRY(jargs_bind(J, a, "string", "", NULL));
    out->kind = JV_STRING;
    return jv_text(J, self, &out->s);
}

FILTER(f_safe) {
    const struct jstr *s;
    struct jstr *copy;
    TRY(jargs_bind(J, a, "safe", "", NULL));
    TRY(jv_text(J, self, &s));
    TRY(jinja_new(J, &copy, sizeof *copy));
    *copy = *s;
    copy->safe = true;
    copy->home = NULL;
    *out = (struct jv){.kind = JV_STRING, .s = copy};
    return INFER_OK;
}

static enum infer_status escape(struct jinja *J, struct jv self, bool force, struct jv *out) {
    const struct jstr *s;
    struct jbuf b = {.J = J};
    TRY(jv_text(J, self, &s));
    TRY(s->safe && !force ? jbuf_str(&b, s) : js_escape_html(&b, s));
    return jbuf_value(&b, true, out);
}
FILTER(f_escape) {
    TRY(jargs_bind(J, a, "escape", "", NULL));
    return escape(J, self, false, out);
}
FILTER(f_forceescape) {
    TRY(jargs_bind(J, a, "forceescape", "", NULL));
    return escape(J, self, true, out);
}

#define TEXT_FILTER(name, call)                                                                              \
    FILTER(f_##name) {                                                                                       \
        const struct jstr *s;                                                                                \
        TRY(jargs_bind(J, a, #name, "", NULL));                                                              \
        TRY(jv_text(J, self, &s));                                                                           \
        return call(J, s, out);                                                                              \
    }
TEXT_FILTER(upper, js_upper)
TEXT_FILTER(lower, js_lower)
TEXT_FILTER(capitalize, js_capitalize)

FILTER(f_trim) {
    struct jv v[1];
    const struct jstr *s;
    TRY(jargs_bind(J, a, "trim", "?chars", v));
    TRY(jv_text(J, self, &s));
    return js_strip(J, s, v[0], 3, out);
}

/* Each word begins large: words start behind white space, - ( { [ <. */
FILTER(f_title) {
    const struct jstr *s;
    struct jbuf b = {.J = J};
    TRY(jargs_bind(J, a, "title", "", NULL));
    TRY(jv_text(J, self, &s));
    bool start = true;
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(s->p + i, &cp);
        struct jstr one = {.p = s->p + i, .m = s->m ? s->m + i : NULL, .n = len};
        struct jv v;
        TRY(start ? js_upper(J, &one, &v) : js_lower(J, &one, &v));
        TRY(jbuf_str(&b, v.s));
        start = js_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", cp));
        i += len;
    }
    return jbuf_value(&b, s->safe, out);
}

FILTER(f_replace) {
    struct jv v[3];
    const struct jstr *s, *old, *new_;
    TRY(jargs_bind(J, a, "replace", "old new ?count", v));
    TRY(jv_text(J, self, &s));
    TRY(jv_text(J, v[0], &old));
    TRY(jv_text(J, v[1], &new_));
    bool limited = jv_is_int(v[2]);
    return js_replace(J, s, old, new_, limited ? jv_integer(v[2]) : -1, out);
}

FILTER(f_format) {
    const struct jstr *s;
    struct jv args;
    TRY(jv_text(J, self, &s));
    if (a->n_pos && a->n_kw)
        return jinja_fail(J, "can't handle positional and keyword arguments at the same time");
    if (a->n_kw) {
        TRY(jv_dict(J, &args));
        for (size_t i = 0; i < a->n_kw; i++)
            TRY(jv_dict_set(J, args.d, (struct jv){.kind = JV_STRING, .s = a->kw_name[i]}, a->kw[i]));
    } else {
        TRY(jv_list(J, &args, JV_TUPLE, a->n_pos));
        for (size_t i = 0; i < a->n_pos; i++) TRY(jv_push(J, args.l, a->pos[i]));
    }
    return js_percent(J, s, args, out);
}

FILTER(f_center) {
    struct jv width = a->n_pos || a->n_kw ? jv_none() : jv_int(80);
    struct jargs eighty = {.pos = &width, .n_pos = 1};
    const struct jstr *s;
    TRY(jv_text(J, self, &s));
    const struct jbuiltin *center = jinja_str_method("center", 6);
    return center->call(J, (struct jv){.kind = JV_STRING, .s = s}, width.kind == JV_INT ? &eighty : a, out);
}

/* Puts width blanks (or a text) before each line but the first and the empty ones. */
FILTER(f_indent) {
    struct jv v[3];
    const struct jstr *s, *prefix;
    struct jbuf b = {.J = J}, blanks = {.J = J};
    TRY(jargs_bind(J, a, "indent", "?width ?first ?blank", v));
    TRY(jv_text(J, self, &s));
    if (v[0].kind == JV_STRING)
        prefix = v[0].s;
    else {
        int64_t n = v[0].kind == JV_MISSING ? 4 : jv_is_int(v[0]) ? jv_integer(v[0]) : -1;
        struct jv t;
        if (v[0].kind != JV_MISSING && !jv_is_int(v[0]))
            return jinja_fail(J, "indent: width is a number or a text");
        if (n > JINJA_MAX_STRING) return jinja_fail(J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
        TRY(jbuf_fill(&blanks, ' ', n < 0 ? 0 : (size_t)n));
        TRY(jbuf_value(&blanks, false, &t));
        prefix = t.s;
    }
    bool first = jv_truth(v[1]), blank = jv_truth(v[2]);
    if (first) TRY(jbuf_str(&b, prefix));
    for (size_t from = 0; from <= s->n;) {
        const char *nl = from < s->n ? memchr(s->p + from, '\n', s->n - from) : NULL;
        size_t end = nl ? (size_t)(nl - s->p) : s->n;
        TRY(jinja_step(J, 1));
        if (from > 0 && (end > from || blank)) TRY(jbuf_str(&b, prefix));
        TRY(jbuf_sub(&b, s, from, end - from));
        if (nl) TRY(jbuf_sub(&b, s, end, 1));
        from = end + 1;
    }
    return jbuf_value(&b, s->safe, out);
}

FILTER(f_truncate) {
    struct jv v[4];
    const struct jstr *s, *end;
    TRY(jargs_bind(J, a, "truncate", "?length ?killwords ?end ?leeway", v));
    int64_t length = jv_is_int(v[0]) ? jv_integer(v[0]) : 255,
            leeway = jv_is_int(v[3]) ? jv_integer(v[3]) : 5;
    struct jv dots = v[2];
    if (dots.kind == JV_MISSING) TRY(jv_lit(J, &dots, "..."));
    TRY(jv_text(J, dots, &end));
    int64_t n, keep = length - (int64_t)js_chars(end);
    if (keep < 0) return jinja_fail(J, "truncate: the length is less than its end text");
    TRY(jv_length(J, self, &n));
    *out = self; /* whatever has a length */
    if (n <= length + leeway) return INFER_OK;
    TRY(jv_text(J, self, &s));
    size_t to = js_offset(s, (size_t)keep);
    if (!jv_truth(v[1])) { /* back to the last blank */
        const char *blank = memrchr(s->p, ' ', to);
        if (blank) to = (size_t)(blank - s->p);
    }
    struct jbuf b = {.J = J};
    TRY(jbuf_sub(&b, s, 0, to));
    TRY(jbuf_str(&b, end));
    return jbuf_value(&b, s->safe, out);
}

FILTER(f_wordcount) {
    const struct jstr *s;
    int64_t n = 0;
    bool inside = false;
    TRY(jargs_bind(J, a, "wordcount", "", NULL));
    TRY(jv_text(J, self, &s));
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        i += (size_t)utf8_get(s->p + i, &cp);
        bool word = js_is_alnum(cp) || cp == '_';
        n += word && !inside;
        inside = word;
    }
    *out = jv_int(n);
    return INFER_OK;
}

static enum infer_status quote_url(struct jbuf *b, const struct jstr *s, bool slash) {
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        char hex[4];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                     (c && strchr("_.-~", c)) || (slash && c == '/');
        if (plain)
            TRY(jbuf_sub(b, s, i, 1));
        else if (c == ' ' && !slash)
            TRY(jbuf_one(b, "+", 1, s->m && s->m[i]));
        else {
            snprintf(hex, sizeof hex, "%%%02X", c);
            TRY(jbuf_one(b, hex, 3, s->m && s->m[i]));
        }
    }
    return INFER_OK;
}

FILTER(f_urlencode) {
    struct jbuf b = {.J = J};
    const struct jstr *s;
    TRY(jargs_bind(J, a, "urlencode", "", NULL));
    if (self.kind != JV_DICT) {
        TRY(jv_text(J, self, &s));
        TRY(quote_url(&b, s, true));
        return jbuf_value(&b, false, out);
    }
    for (size_t i = 0; i < self.d->n; i++) {
        if (i) TRY(jbuf_lit(&b, "&"));
        TRY(jv_text(J, self.d->e[i].key, &s));
        TRY(quote_url(&b, s, false));
        TRY(jbuf_lit(&b, "="));
        TRY(jv_text(J, self.d->e[i].value, &s));
        TRY(quote_url(&b, s, false));
    }
    return jbuf_value(&b, false, out);
}

FILTER(f_tojson) {
    struct jv v[4];
    struct jbuf b = {.J = J};
    const char *seps[2] = {", ", ": "};
    const struct jstr *indent = NULL;
    TRY(jargs_bind(J, a, "tojson", "?ensure_ascii ?indent ?separators ?sort_keys", v));
    if (jv_is_int(v[1])) {
        struct jbuf blanks = {.J = J};
        struct jv t;
        int64_t n = jv_integer(v[1]);
        if (n > 1024) return jinja_fail(J, "tojson: an indent of %" PRId64 " is too much", n);
        TRY(jbuf_fill(&blanks, ' ', n < 0 ? 0 : (size_t)n));
        TRY(jbuf_value(&blanks, false, &t));
        indent = t.s;
    } else if (v[1].kind == JV_STRING) {
        indent = v[1].s;
    }
    if (indent) seps[0] = ",";
    for (int i = 0; i < 2 && v[2].kind != JV_MISSING && v[2].kind != JV_NONE; i++) {
        bool pair = (v[2].kind == JV_TUPLE || v[2].kind == JV_LIST) && v[2].l->n == 2 &&
                    v[2].l->v[i].kind == JV_STRING;
        if (!pair) return jinja_fail(J, "tojson: separators are two texts");
        char *copy;
        TRY(jinja_new(J, &copy, v[2].l->v[i].s->n + 1));
        memcpy(copy, v[2].l->v[i].s->p, v[2].l->v[i].s->n);
        seps[i] = copy;
    }
    TRY(jbuf_json(&b, self, seps[0], seps[1], indent, jv_truth(v[0]), jv_truth(v[3]), 0));
    return jbuf_value(&b, false, out);
}

FILTER(f_from_json) {
    TRY(jargs_bind(J, a, "from_json", "", NULL));
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (self.kind != JV_STRING)
        return jinja_fail(J, "from_json: the JSON object must be str, not %s", jv_type(self));
    return js_from_json(J, self.s, out);
}

/* ' name="value"' of each entry that has a value */
FILTER(f_xmlattr) {
    struct jv v[1];
    struct jbuf b = {.J = J};
    const struct jstr *key, *value;
    TRY(jargs_bind(J, a, "xmlattr", "?autospace", v));
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (self.kind != JV_DICT) return jinja_fail(J, "'%s' object has no attribute 'items'", jv_type(self));
    for (size_t i = 0; i < self.d->n; i++) {
        const struct jentry *e = &self.d->e[i];
        if (e->value.kind == JV_NONE || e->value.kind == JV_UNDEFINED) continue;
        TRY(jv_text(J, e->key, &key));
        TRY(jv_text(J, e->value, &value));
        for (size_t c = 0; c < key->n; c++)
            if (js_is_space((unsigned char)key->p[c]) || memchr("/>=", key->p[c], 3))
                return jinja_fail(J, "Invalid character in attribute name: '%.*s'",
                                  (int)(key->n > 60 ? 60 : key->n), key->p);
        if (b.n || v[0].kind == JV_MISSING || jv_truth(v[0])) TRY(jbuf_lit(&b, " "));
        TRY(js_escape_html(&b, key));
        TRY(jbuf_lit(&b, "=\""));
        TRY(value->safe ? jbuf_str(&b, value) : js_escape_html(&b, value));
        TRY(jbuf_lit(&b, "\""));
    }
    return jbuf_value(&b, false, out);
}

FILTER(f_bool) {
    TRY(jargs_bind(J, a, "bool", "", NULL));
    *out = jv_bool(jv_truth(self));
    return INFER_OK;
}

FILTER(f_pprint) {
    struct jbuf b = {.J = J};
    (void)a;
    TRY(jbuf_repr(&b, self));
    return jbuf_value(&b, false, out);
}

/* ---- numbers ---- */

FILTER(f_abs) {
    TRY(jargs_bind(J, a, "abs", "", NULL));
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (!jv_is_number(self)) return jinja_fail(J, "bad operand type for abs(): '%s'", jv_type(self));
    if (self.kind == JV_FLOAT)
        *out = jv_float(fabs(self.f));
    else if (jv_integer(self) < 0)
        return jv_negate(J, self, out);
    else
        *out = jv_int(jv_integer(self));
    return INFER_OK;
}

FILTER(f_int) {
    struct jv v[2];
    double f;
    TRY(jargs_bind(J, a, "int", "?default ?base", v));
    *out = v[0].kind == JV_MISSING ? jv_int(0) : v[0];
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (jv_is_int(self))
        *out = jv_int(jv_integer(self));
    else if (self.kind == JV_STRING) {
        int64_t i;
        if (js_to_int(self.s, jv_is_int(v[1]) && v[1].i > 0 && v[1].i < 37 ? (int)v[1].i : 10, &i))
            *out = jv_int(i);
        else if (js_to_float(self.s, &f) && fabs(f) < 9e18)
            *out = jv_int((int64_t)f);
    } else if (self.kind == JV_FLOAT && fabs(self.f) < 9e18)
        *out = jv_int((int64_t)self.f);
    return INFER_OK;
}

FILTER(f_float) {
    struct jv v[1];
    double f;
    TRY(jargs_bind(J, a, "float", "?default", v));
    *out = v[0].kind == JV_MISSING ? jv_float(0) : v[0];
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (jv_is_number(self))
        *out = jv_float(jv_number(self));
    else if (self.kind == JV_STRING && js_to_float(self.s, &f))
        *out = jv_float(f);
    return INFER_OK;
}

FILTER(f_round) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "round", "?precision ?method", v));
    if (!jv_is_number(self)) return jinja_fail(J, "type %s doesn't define __round__ method", jv_type(self));
    int64_t places = jv_is_int(v[0]) ? jv_integer(v[0]) : 0;
    if (places > 300 || places < -300) return jinja_fail(J, "round: %" PRId64 " places", places);
    bool up = v[1].kind == JV_STRING && js_is(v[1].s, "ceil"),
         down = v[1].kind == JV_STRING && js_is(v[1].s, "floor");
    double x = jv_number(self), scale = pow(10, (double)places);
    if (up || down) {
        *out = jv_float((up ? ceil(x * scale) : floor(x * scale)) / scale);
    } else if (jv_is_int(self) && places >= 0) {
        *out = jv_int(jv_integer(self));
    } else if (places >= 0) { /* as Python: through the correctly rounded decimal text */
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)places, x);
        *out = jv_float(strtod(text, NULL));
    } else {
        *out = jv_float(rint(x * scale) / scale);
        if (jv_is_int(self)) *out = jv_int((int64_t)out->f);
    }
    return INFER_OK;
}

FILTER(f_filesizeformat) {
    static const char *const units[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                            {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    struct jv v[1];
    char text[64];
    double x, base, unit;
    TRY(jargs_bind(J, a, "filesizeformat", "?binary", v));
    if (jv_is_number(self))
        x = jv_number(self);
    else if (self.kind != JV_STRING || !js_to_float(self.s, &x))
        return jinja_fail(J, "filesizeformat needs a number");
    base = unit = jv_truth(v[0]) ? 1024 : 1000;
    int i = 0;
    if (x == 1)
        strcpy(text, "1 Byte");
    else if (x < base)
        snprintf(text, sizeof text, "%.0f Bytes", trunc(x));
    else {
        for (; i < 7 && x >= unit * base; i++) unit *= base;
        snprintf(text, sizeof text, "%.1f %s", x / unit, units[base == 1024][i]);
    }
    return jv_string_copy(J, out, text, strlen(text), false);
}

FILTER(f_default) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "default", "?default_value ?boolean", v));
    if (self.kind != JV_UNDEFINED && (!jv_truth(v[1]) || jv_truth(self)))
        *out = self;
    else if (v[0].kind != JV_MISSING)
        *out = v[0];
    else
        return jv_lit(J, out, "");
    return INFER_OK;
}

const struct jbuiltin *jinja_filter(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"abs", f_abs},
        {"bool", f_bool},
        {"capitalize", f_capitalize},
        {"center", f_center},
        {"d", f_default},
        {"default", f_default},
        {"e", f_escape},
        {"escape", f_escape},
        {"filesizeformat", f_filesizeformat},
        {"float", f_float},
        {"forceescape", f_forceescape},
        {"format", f_format},
        {"from_json", f_from_json},
        {"indent", f_indent},
        {"int", f_int},
        {"lower", f_lower},
        {"pprint", f_pprint},
        {"replace", f_replace},
        {"round", f_round},
        {"safe", f_safe},
        {"string", f_string},
        {"title", f_title},
        {"tojson", f_tojson},
        {"trim", f_trim},
        {"truncate", f_truncate},
        {"upper", f_upper},
        {"urlencode", f_urlencode},
        {"wordcount", f_wordcount},
        {"xmlattr", f_xmlattr},
    };
    const struct jbuiltin *fn = jbuiltin_find(table, sizeof table / sizeof *table, name, n);
    return fn ? fn : jinja_filter_seq(name, n);
}

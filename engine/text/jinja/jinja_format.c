/* Text formatting: the % operator and str.format, with the parts of their small languages that templates use.
 */
#include "text/jinja/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* One conversion, of either language. */
struct spec {
    struct jstr fill; /* one code point; n 0: the default */
    char align;       /* < > ^ = or 0 for the default of the type */
    char sign;        /* + or blank or 0 */
    bool alternate, zero;
    char comma;               /* , or _ between thousands, or 0 */
    int64_t width, precision; /* -1: not given */
    char type;                /* 0: none */
};

static int64_t read_int(const struct jstr *s, size_t *at) {
    int64_t v = 0;
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; (*at)++)
        if (v <= JINJA_MAX_STRING) v = v * 10 + (s->p[*at] - '0');
    return v;
}

/* Digits of a number without sign and padding, text ended by 0. */
static enum infer_status number_digits(struct jinja *J, struct spec *f, struct jv v, char out[700],
                                       bool *negative) {
    char type = f->type;
    bool real = type && strchr("fFeEgG%", type);
    if (!real && (v.kind == JV_FLOAT && type))
        return jinja_fail(J, "format '%c' needs an integer, not float", type);
    if (v.kind == JV_FLOAT || real) {
        double x = jv_number(v) * (type == '%' ? 100 : 1);
        int precision = f->precision < 0 ? 6 : f->precision > 300 ? 300 : (int)f->precision;
        *negative = signbit(x);
        if (!type && f->precision < 0)
            float_repr(out, fabs(x));
        else {
            char c[] = {'%', f->alternate ? '#' : '.', '.', '*', type == '%' ? 'f' : type ? type : 'g', 0};
            if (!f->alternate) memmove(c + 1, c + 2, 4);
            snprintf(out, 700, c, precision, fabs(x));
            if (type == '%') strcat(out, "%");
        }
        return INFER_OK;
    }
    int64_t i = jv_integer(v);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *negative = i < 0;
    const char *prefix = !f->alternate ? ""
                         : type == 'x' ? "0x"
                         : type == 'X' ? "0X"
                         : type == 'o' ? "0o"
                         : type == 'b' ? "0b"
                                       : "";
    out += sprintf(out, "%s", prefix);
    if (type == 'b') {
        int top = 63;
        while (top > 0 && !(u >> top & 1)) top--;
        for (; top >= 0; top--) *out++ = (char)('0' + (u >> top & 1));
        *out = 0;
    } else
        sprintf(out,
                type == 'x'   ? "%" PRIx64
                : type == 'X' ? "%" PRIX64
                : type == 'o' ? "%" PRIo64
                              : "%" PRIu64,
                u);
    return INFER_OK;
}

static void add_commas(char text[960], char comma) {
    size_t digits = strspn(text, "0123456789");
    for (size_t i = digits; i > 3; i -= 3) {
        memmove(text + i - 2, text + i - 3, strlen(text + i - 3) + 1);
        text[i - 3] = comma;
    }
}

static enum infer_status put_padded(struct jbuf *b, const struct spec *f, const char *sign,
                                    const struct jstr *body, char align) {
    int64_t n = (int64_t)strlen(sign) + (int64_t)js_chars(body), gap = f->width > n ? f->width - n : 0;
    if (gap > JINJA_MAX_STRING) return jinja_fail(b->J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
    TRY(jinja_step(b->J, (uint64_t)gap + 1));
    struct jstr zero = {.p = "0", .n = 1}, blank = {.p = " ", .n = 1};
    const struct jstr *fill = f->fill.n ? &f->fill : f->zero ? &zero : &blank;
    int64_t left = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
    if (align == '=') TRY(jbuf_lit(b, sign));
    for (int64_t i = 0; i < left; i++) TRY(jbuf_str(b, fill));
    if (align != '=') TRY(jbuf_lit(b, sign));
    TRY(jbuf_str(b, body));
    for (int64_t i = left; i < gap; i++) TRY(jbuf_str(b, fill));
    return INFER_OK;
}

static enum infer_status put_number(struct jbuf *b, struct spec *f, struct jv v) {
    char text[960];
    bool negative = false;
    TRY(number_digits(b->J, f, v, text, &negative));
    if (f->comma) add_commas(text, f->comma);
    char sign[2] = {negative ? '-' : f->sign, 0};
    struct jstr body = {.p = text, .n = strlen(text)};
    return put_padded(b, f, sign, &body, f->align ? f->align : f->zero ? '=' : '>');
}

static enum infer_status put_text(struct jbuf *b, const struct spec *f, const struct jstr *s, char align) {
    struct jstr body = *s;
    if (f->precision >= 0) body.n = js_offset(s, (size_t)f->precision);
    struct spec plain = *f;
    plain.zero = false;
    return put_padded(b, &plain, "", &body, f->align ? f->align : align);
}

/* ---- the % operator ---- */

static enum infer_status percent_argument(struct jinja *J, const struct jstr *f, size_t *at, struct jv args,
                                          size_t *next, struct jv *out) {
    if (*at < f->n && f->p[*at] == '(') {
        const char *close = memchr(f->p + *at, ')', f->n - *at);
        if (!close) return jinja_fail(J, "incomplete format key");
        if (args.kind != JV_DICT) return jinja_fail(J, "format requires a mapping");
        struct jv key;
        TRY(jv_sub(J, f, *at + 1, (size_t)(close - f->p) - *at - 1, &key));
        const struct jv *v = jv_dict_get(args.d, key);
        if (!v) return jinja_fail(J, "the format names a key that is not there");
        *out = *v;
        *at = (size_t)(close - f->p) + 1;
        *next = SIZE_MAX;
        return INFER_OK;
    }
    out->kind = JV_MISSING; /* taken later, behind the flags */
    return INFER_OK;
}

static enum infer_status next_argument(struct jinja *J, struct jv args, size_t *next, struct jv *out) {
    bool tuple = args.kind == JV_TUPLE;
    if (*next >= (tuple ? args.l->n : 1)) return jinja_fail(J, "not enough arguments for format string");
    *out = tuple ? args.l->v[*next] : args;
    ++*next;
    return INFER_OK;
}

static enum infer_status percent_put(struct jbuf *b, struct spec *f, struct jv v) {
    char align = f->align == '<' ? '<' : '>';
    if (f->type == 's' || f->type == 'r' || f->type == 'a') {
        struct jbuf t = {.J = b->J};
        struct jv text;
        TRY(f->type == 's' ? jbuf_display(&t, v) : jbuf_repr(&t, v));
        TRY(jbuf_value(&t, false, &text));
        return put_text(b, f, text.s, align);
    }
    if (f->type == 'c' && v.kind == JV_STRING && js_chars(v.s) == 1) return put_text(b, f, v.s, align);
    if (!jv_is_number(v))
        return jinja_fail(b->J, "%%%c format: a real number is required, not %s", f->type, jv_type(v));
    if (f->type == 'c') {
        char u[4];
        struct jstr s = {.p = u};
        int64_t cp = v.kind == JV_FLOAT ? -1 : jv_integer(v);
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            return jinja_fail(b->J, "%%c arg not in range(0x110000)");
        s.n = (size_t)utf8_put(u, (int32_t)cp);
        return put_text(b, f, &s, align);
    }
    if (f->type == 'd' || f->type == 'i' || f->type == 'u') {
        f->type = 'd';
        if (v.kind == JV_FLOAT) {
            if (!(fabs(v.f) < 9e18)) return jinja_fail(b->J, "an integer does not fit 64 bits");
            v = jv_int((int64_t)v.f);
        }
    }
    if (f->align == '<') f->zero = false;
    return put_number(b, f, v);
}

enum infer_status js_percent(struct jinja *J, const struct jstr *s, struct jv args, struct jv *out) {
    struct jbuf b = {.J = J};
    size_t next = 0;
    for (size_t i = 0; i < s->n;) {
        const char *hit = memchr(s->p + i, '%', s->n - i);
        size_t end = hit ? (size_t)(hit - s->p) : s->n;
        TRY(jbuf_sub(&b, s, i, end - i));
        i = end;
        if (!hit) break;
        struct spec f = {.precision = -1};
        struct jv v;
        size_t start = i++;
        TRY(percent_argument(J, s, &i, args, &next, &v));
        for (; i < s->n && s->p[i] && strchr("-+ 0#", s->p[i]); i++) {
            if (s->p[i] == '-')
                f.align = '<';
            else if (s->p[i] == '0')
                f.zero = true;
            else if (s->p[i] == '#')
                f.alternate = true;
            else if (f.sign != '+')
                f.sign = s->p[i];
        }
        f.width = read_int(s, &i);
        if (i < s->n && s->p[i] == '.') {
            i++;
            f.precision = read_int(s, &i);
        }
        while (i < s->n && s->p[i] && strchr("hlL", s->p[i])) i++;
        f.type = i < s->n ? s->p[i] : 0;
        if (!f.type || !strchr("srdiufFeEgGxXoca%", f.type))
            return jinja_fail(J, "unsupported format character at index %zu", start);
        i++;
        if (f.type == '%') {
            TRY(jbuf_sub(&b, s, start, 1));
            continue;
        }
        if (v.kind == JV_MISSING) TRY(next_argument(J, args, &next, &v));
        TRY(percent_put(&b, &f, v));
    }
    bool rest =
        args.kind == JV_TUPLE ? next < args.l->n : next == 0 && args.kind != JV_DICT && args.kind != JV_LIST;
    if (next != SIZE_MAX && rest)
        return jinja_fail(J, "not all arguments converted during string formatting");
    return jbuf_value(&b, s->safe, out);
}

/* ---- str.format ---- */

static enum infer_status format_field(struct jinja *J, const struct jargs *a, const struct jstr *name,
                                      size_t *next, struct jv *out) {
    size_t end = 0;
    while (end < name->n && name->p[end] != '.' && name->p[end] != '[') end++;
    struct jstr first = {.p = name->p, .n = end};
    int64_t i = 0;
    bool number = end == 0 || js_to_int(&first, 10, &i);
    if (end == 0) i = (int64_t)(*next)++;
    if (number) {
        if (i < 0 || (size_t)i >= a->n_pos)
            return jinja_fail(J, "Replacement index %" PRId64 " out of range for positional args tuple", i);
        *out = a->pos[i];
    } else {
        out->kind = JV_MISSING;
        for (size_t k = 0; k < a->n_kw; k++)
            if (js_eq(a->kw_name[k], &first)) *out = a->kw[k];
        if (out->kind == JV_MISSING)
            return jinja_fail(J, "format: no argument '%.*s'", (int)(end > 60 ? 60 : end), name->p);
    }
    while (end < name->n) { /* .name and [index] behind it */
        bool item = name->p[end] == '[';
        size_t from = end + 1;
        for (end = from;
             end < name->n && (item ? name->p[end] != ']' : name->p[end] != '.' && name->p[end] != '[');
             end++) {
        }
        struct jv key;
        TRY(jinja_step(J, 1));
        TRY(jv_string_copy(J, &key, name->p + from, end - from, false));
        if (item && js_to_int(key.s, 10, &i)) key = jv_int(i);
        if (item)
            TRY(jv_getitem(J, *out, key, out));
        else
            TRY(jv_getattr(J, *out, key.s, out));
        end += item;
    }
    return INFER_OK;
}

static enum infer_status read_spec(struct jinja *J, const struct jstr *s, struct spec *f) {
    size_t i = 0, len = 0;
    int32_t cp;
    *f = (struct spec){.precision = -1};
    if (s->n) len = (size_t)utf8_get(s->p, &cp);
    if (len && len < s->n && strchr("<>^=", s->p[len]) && s->p[len]) {
        f->fill = (struct jstr){.p = s->p, .m = s->m, .n = len};
        f->align = s->p[len];
        i = len + 1;
    } else if (s->n && s->p[0] && strchr("<>^=", s->p[0]))
        f->align = s->p[i++];
    if (i < s->n && s->p[i] && strchr("+- ", s->p[i])) f->sign = s->p[i] == '-' ? 0 : s->p[i], i++;
    if (i < s->n && s->p[i] == '#') f->alternate = true, i++;
    if (i < s->n && s->p[i] == '0') f->zero = true, i++;
    f->width = read_int(s, &i);
    if (i < s->n && (s->p[i] == ',' || s->p[i] == '_')) f->comma = s->p[i++];
    if (i < s->n && s->p[i] == '.') {
        i++;
        f->precision = read_int(s, &i);
    }
    if (i < s->n) f->type = s->p[i++];
    if (i < s->n || (f->type && !strchr("sdbcoxXeEfFgG%", f->type)))
        return jinja_fail(J, "Invalid format specifier");
    return INFER_OK;
}

static enum infer_status format_one(struct jbuf *b, const struct jstr *field, const struct jargs *a,
                                    size_t *next) {
    size_t n = 0;
    while (n < field->n && field->p[n] != ':' && field->p[n] != '!') n++;
    struct jstr name = {.p = field->p, .n = n},
                rest = {.p = field->p + n, .m = field->m ? field->m + n : NULL, .n = field->n - n};
    struct jv v;
    struct spec f;
    TRY(format_field(b->J, a, &name, next, &v));
    if (rest.n > 1 && rest.p[0] == '!') {
        struct jbuf t = {.J = b->J};
        TRY(rest.p[1] == 'r' ? jbuf_repr(&t, v) : jbuf_display(&t, v));
        TRY(jbuf_value(&t, false, &v));
        rest.p += 2, rest.n -= 2;
        if (rest.m) rest.m += 2;
    }
    if (rest.n && rest.p[0] == ':') {
        rest.p++, rest.n--;
        if (rest.m) rest.m++;
    }
    TRY(read_spec(b->J, &rest, &f));
    if (jv_is_number(v) && f.type != 's' && !(v.kind == JV_BOOL && !f.type)) return put_number(b, &f, v);
    if (f.type && f.type != 's')
        return jinja_fail(b->J, "Unknown format code '%c' for object of type '%s'", f.type, jv_type(v));
    const struct jstr *s;
    TRY(jv_text(b->J, v, &s));
    return put_text(b, &f, s, '<');
}

enum infer_status js_format(struct jinja *J, const struct jstr *s, const struct jargs *a, struct jv *out) {
    struct jbuf b = {.J = J};
    size_t next = 0;
    for (size_t i = 0; i < s->n;) {
        char c = s->p[i];
        if ((c == '{' || c == '}') && i + 1 < s->n && s->p[i + 1] == c) {
            TRY(jbuf_sub(&b, s, i, 1));
            i += 2;
        } else if (c == '{') {
            const char *close = memchr(s->p + i, '}', s->n - i);
            if (!close) return jinja_fail(J, "expected '}' before end of string");
            size_t end = (size_t)(close - s->p);
            struct jstr field = {.p = s->p + i + 1, .m = s->m ? s->m + i + 1 : NULL, .n = end - i - 1};
            TRY(format_one(&b, &field, a, &next));
            i = end + 1;
        } else if (c == '}') {
            return jinja_fail(J, "Single '}' encountered in format string");
        } else {
            TRY(jbuf_sub(&b, s, i, 1));
            i++;
        }
    }
    return jbuf_value(&b, s->safe, out);
}

/* Values as Python shows them: truth, order, str(), repr() and JSON text. */
#include "text/jinja/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool jv_is_number(struct jv v) { return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT; }
double jv_number(struct jv v) { return v.kind == JV_FLOAT ? v.f : (double)jv_integer(v); }

const char *jv_type(struct jv v) {
    switch (v.kind) {
    case JV_NONE:
        return "NoneType";
    case JV_BOOL:
        return "bool";
    case JV_INT:
        return "int";
    case JV_FLOAT:
        return "float";
    case JV_STRING:
        return v.s->safe ? "Markup" : "str";
    case JV_LIST:
        return "list";
    case JV_TUPLE:
        return "tuple";
    case JV_RANGE:
        return "range";
    case JV_VIEW:
        return v.l->type ? v.l->type : "dict_items";
    case JV_GEN:
        return "generator";
    case JV_DICT:
        return "dict";
    case JV_NAMESPACE:
        return "Namespace";
    case JV_LOOP:
        return "LoopContext";
    case JV_MACRO:
        return "Macro";
    case JV_FUNC:
        return "function";
    case JV_METHOD:
        return "builtin_function_or_method";
    case JV_CYCLER:
        return "Cycler";
    case JV_JOINER:
        return "Joiner";
    default:
        return "Undefined";
    }
}

bool jv_truth(struct jv v) {
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED:
    case JV_NONE:
        return false;
    case JV_BOOL:
        return v.b;
    case JV_INT:
        return v.i != 0;
    case JV_FLOAT:
        return v.f != 0;
    case JV_STRING:
        return v.s->n > 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        return v.l->n > 0;
    case JV_DICT:
        return v.d->n > 0;
    default:
        return true;
    }
}

static enum infer_status lists_equal(struct jinja *J, const struct jlist *a, const struct jlist *b,
                                     bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) TRY(jv_equal(J, a->v[i], b->v[i], out));
    return INFER_OK;
}

static enum infer_status dicts_equal(struct jinja *J, const struct jdict *a, const struct jdict *b,
                                     bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const struct jv *other = jv_dict_get(b, a->e[i].key);
        *out = other != NULL;
        if (other) TRY(jv_equal(J, a->e[i].value, *other, out));
    }
    return INFER_OK;
}

enum infer_status jv_equal(struct jinja *J, struct jv a, struct jv b, bool *out) {
    TRY(jinja_step(J, 1));
    *out = false;
    if (jv_is_int(a) && jv_is_int(b)) {
        *out = jv_integer(a) == jv_integer(b);
        return INFER_OK;
    }
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = jv_number(a) == jv_number(b);
        return INFER_OK;
    }
    if (a.kind != b.kind) return INFER_OK;
    TRY(jinja_enter(J));
    enum infer_status st = INFER_OK;
    switch (a.kind) {
    case JV_UNDEFINED:
    case JV_NONE:
        *out = true;
        break;
    case JV_STRING:
        st = jinja_step(J, a.s->n == b.s->n ? a.s->n >> 6 : 0);
        *out = js_eq(a.s, b.s);
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        st = lists_equal(J, a.l, b.l, out);
        break;
    case JV_DICT:
        st = dicts_equal(J, a.d, b.d, out);
        break;
    default:
        *out = a.l == b.l;
    }
    J->eval_depth--;
    return st;
}

enum infer_status jv_compare(struct jinja *J, struct jv a, struct jv b, const char *op, int *out) {
    TRY(jinja_step(J, 1));
    if (a.kind == JV_UNDEFINED) return jv_fail_undefined(J, a);
    if (b.kind == JV_UNDEFINED) return jv_fail_undefined(J, b);
    if (jv_is_int(a) && jv_is_int(b)) {
        int64_t x = jv_integer(a), y = jv_integer(b);
        *out = x < y ? -1 : x > y;
        return INFER_OK;
    }
    if (jv_is_number(a) && jv_is_number(b)) {
        double x = jv_number(a), y = jv_number(b);
        *out = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: not a number, no order */
        return INFER_OK;
    }
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        TRY(jinja_step(J, n >> 6));
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0; /* UTF-8 keeps the order of code points */
        if (c == 0) c = a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
        *out = c < 0 ? -1 : c > 0;
        return INFER_OK;
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) {
        for (size_t i = 0; i < a.l->n && i < b.l->n; i++) {
            bool same;
            TRY(jv_equal(J, a.l->v[i], b.l->v[i], &same));
            if (same) continue;
            TRY(jinja_enter(J));
            enum infer_status st = jv_compare(J, a.l->v[i], b.l->v[i], op, out);
            J->eval_depth--;
            return st;
        }
        *out = a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
        return INFER_OK;
    }
    return jinja_fail(J, "'%s' not supported between instances of '%s' and '%s'", op, jv_type(a), jv_type(b));
}

/* ---- iteration ---- */

static enum infer_status iterate_string(struct jinja *J, const struct jstr *s, struct jlist *l) {
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(s->p + i, &cp);
        struct jv c;
        TRY(jv_sub(J, s, i, len, &c));
        TRY(jv_push(J, l, c));
        i += len;
    }
    return INFER_OK;
}

enum infer_status jv_iterate(struct jinja *J, struct jv v, struct jlist **out) {
    if (v.kind == JV_GEN) {
        struct jv empty;
        TRY(jv_list(J, &empty, JV_LIST, 0));
        *out = v.l->used ? empty.l : v.l;
        if (!v.l->used) { /* hand out a copy: the generator itself is spent */
            *empty.l = *v.l;
            empty.l->used = false;
            *out = empty.l;
            v.l->used = true;
        }
        return INFER_OK;
    }
    if (jv_is_seq(v)) {
        *out = v.l;
        return INFER_OK;
    }
    struct jv list;
    TRY(jv_list(J, &list, JV_LIST, v.kind == JV_DICT ? v.d->n : 0));
    *out = list.l;
    switch (v.kind) {
    case JV_UNDEFINED:
        return INFER_OK;
    case JV_DICT:
        for (size_t i = 0; i < v.d->n; i++) TRY(jv_push(J, list.l, v.d->e[i].key));
        return INFER_OK;
    case JV_STRING:
        return iterate_string(J, v.s, list.l);
    case JV_LOOP:
        for (; v.loop->i < v.loop->items->n; v.loop->i++)
            TRY(jv_push(J, list.l, v.loop->items->v[v.loop->i]));
        return INFER_OK;
    default:
        return jinja_fail(J, "'%s' object is not iterable", jv_type(v));
    }
}

enum infer_status jv_length(struct jinja *J, struct jv v, int64_t *out) {
    switch (v.kind) {
    case JV_UNDEFINED:
        *out = 0;
        return INFER_OK;
    case JV_STRING:
        TRY(jinja_step(J, v.s->n >> 6));
        *out = (int64_t)js_chars(v.s);
        return INFER_OK;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        *out = (int64_t)v.l->n;
        return INFER_OK;
    case JV_DICT:
        *out = (int64_t)v.d->n;
        return INFER_OK;
    case JV_LOOP:
        *out = (int64_t)v.loop->items->n;
        return INFER_OK;
    default:
        return jinja_fail(J, "object of type '%s' has no len()", jv_type(v));
    }
}

enum infer_status jv_contains(struct jinja *J, struct jv item, struct jv box, bool *out) {
    *out = false;
    if (box.kind == JV_STRING) {
        if (item.kind == JV_UNDEFINED) return jv_fail_undefined(J, item);
        if (item.kind != JV_STRING)
            return jinja_fail(J, "'in <string>' requires string as left operand, not %s", jv_type(item));
        TRY(jinja_step(J, box.s->n >> 6));
        *out = js_find(box.s, item.s, 0, box.s->n) != SIZE_MAX;
        return INFER_OK;
    }
    if (box.kind == JV_DICT) {
        if (item.kind == JV_LIST || item.kind == JV_DICT)
            return jinja_fail(J, "unhashable type: '%s'", jv_type(item));
        *out = item.kind != JV_UNDEFINED && jv_dict_get(box.d, item) != NULL;
        return INFER_OK;
    }
    if (!jv_is_seq(box) && box.kind != JV_UNDEFINED && box.kind != JV_LOOP)
        return jinja_fail(J, "argument of type '%s' is not iterable", jv_type(box));
    struct jlist *l;
    TRY(jv_iterate(J, box, &l));
    for (size_t i = 0; i < l->n && !*out; i++) TRY(jv_equal(J, item, l->v[i], out));
    return INFER_OK;
}

/* ---- numbers ---- */

void float_repr(char out[40], double f) {
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    /* fewest digits that read back as f */
    char e[40], digits[20];
    for (int prec = 0; prec < 17; prec++) {
        snprintf(e, sizeof e, "%.*e", prec, f);
        if (strtod(e, NULL) == f) break;
    }
    int n = 0;
    const char *c = e;
    for (; *c != 'e'; c++)
        if (*c >= '0' && *c <= '9' && n < 18) digits[n++] = *c;
    int point = atoi(c + 1) + 1; /* digits before the decimal point */
    while (n > 1 && digits[n - 1] == '0') n--;
    char *o = out;
    if (signbit(f)) *o++ = '-';
    if (point > 16 || point < -3) { /* 1.5e-07 */
        *o++ = digits[0];
        if (n > 1) *o++ = '.';
        for (int i = 1; i < n; i++) *o++ = digits[i];
        int exp = point - 1;
        o += snprintf(o, 8, "e%c%02d", exp < 0 ? '-' : '+', exp < 0 ? -exp : exp);
    } else if (point <= 0) { /* 0.0015 */
        *o++ = '0';
        *o++ = '.';
        for (int i = point; i < 0; i++) *o++ = '0';
        for (int i = 0; i < n; i++) *o++ = digits[i];
    } else { /* 15.0, 150.5 */
        for (int i = 0; i < point || i < n; i++) {
            if (i == point) *o++ = '.';
            *o++ = i < n ? digits[i] : '0';
        }
        if (n <= point) {
            *o++ = '.';
            *o++ = '0';
        }
    }
    *o = 0;
}

/* ---- repr and str ---- */

static bool printable(int32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return false;
    default:
        return true;
    }
}

static enum infer_status repr_string(struct jbuf *b, const struct jstr *s) {
    struct jstr apostrophe = {.p = "'", .n = 1}, quote = {.p = "\"", .n = 1};
    char q =
        js_find(s, &apostrophe, 0, s->n) != SIZE_MAX && js_find(s, &quote, 0, s->n) == SIZE_MAX ? '"' : '\'';
    TRY(jbuf_fill(b, q, 1));
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(s->p + i, &cp);
        char esc[16] = "";
        if (cp == q || cp == '\\')
            snprintf(esc, sizeof esc, "\\%c", cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!printable(cp))
            snprintf(esc, sizeof esc,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
        if (esc[0])
            TRY(jbuf_one(b, esc, strlen(esc), s->m && s->m[i]));
        else
            TRY(jbuf_sub(b, s, i, len));
        i += len;
    }
    return jbuf_fill(b, q, 1);
}

static enum infer_status repr_items(struct jbuf *b, const struct jlist *l, const char *open,
                                    const char *close) {
    TRY(jbuf_lit(b, open));
    for (size_t i = 0; i < l->n; i++) {
        if (i) TRY(jbuf_lit(b, ", "));
        TRY(jbuf_repr(b, l->v[i]));
    }
    return jbuf_lit(b, close);
}

static enum infer_status repr_dict(struct jbuf *b, const struct jdict *d) {
    TRY(jbuf_lit(b, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(jbuf_lit(b, ", "));
        TRY(jbuf_repr(b, d->e[i].key));
        TRY(jbuf_lit(b, ": "));
        TRY(jbuf_repr(b, d->e[i].value));
    }
    return jbuf_lit(b, "}");
}

static enum infer_status repr_range(struct jbuf *b, const struct jlist *l) {
    char text[96];
    snprintf(text, sizeof text,
             l->step == 1 ? "range(%" PRId64 ", %" PRId64 ")"
                          : "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")",
             l->from, l->to, l->step);
    return jbuf_lit(b, text);
}

static enum infer_status repr_value(struct jbuf *b, struct jv v) {
    char text[64];
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED:
        return jbuf_lit(b, "Undefined");
    case JV_NONE:
        return jbuf_lit(b, "None");
    case JV_BOOL:
        return jbuf_lit(b, v.b ? "True" : "False");
    case JV_INT:
        snprintf(text, sizeof text, "%" PRId64, v.i);
        return jbuf_lit(b, text);
    case JV_FLOAT:
        float_repr(text, v.f);
        return jbuf_lit(b, text);
    case JV_STRING:
        if (!v.s->safe) return repr_string(b, v.s);
        TRY(jbuf_lit(b, "Markup("));
        TRY(repr_string(b, v.s));
        return jbuf_lit(b, ")");
    case JV_LIST:
        return repr_items(b, v.l, "[", "]");
    case JV_TUPLE:
        return repr_items(b, v.l, "(", v.l->n == 1 ? ",)" : ")");
    case JV_RANGE:
        return repr_range(b, v.l);
    case JV_VIEW:
        TRY(jbuf_lit(b, jv_type(v)));
        return repr_items(b, v.l, "([", "])");
    case JV_DICT:
        return repr_dict(b, v.d);
    case JV_NAMESPACE:
        TRY(jbuf_lit(b, "<Namespace "));
        TRY(repr_dict(b, v.d));
        return jbuf_lit(b, ">");
    default:
        snprintf(text, sizeof text, "<%s>", jv_type(v));
        return jbuf_lit(b, text);
    }
}

enum infer_status jbuf_repr(struct jbuf *b, struct jv v) {
    TRY(jinja_step(b->J, 1));
    TRY(jinja_enter(b->J));
    enum infer_status st = repr_value(b, v);
    b->J->eval_depth--;
    return st;
}

enum infer_status jbuf_display(struct jbuf *b, struct jv v) {
    if (v.kind == JV_STRING) return jbuf_str(b, v.s);
    if (v.kind == JV_UNDEFINED) return v.u->unsafe ? jv_fail_undefined(b->J, v) : INFER_OK;
    return jbuf_repr(b, v);
}

enum infer_status jv_text(struct jinja *J, struct jv v, const struct jstr **out) {
    if (v.kind == JV_STRING) {
        *out = v.s;
        return INFER_OK;
    }
    struct jbuf b = {.J = J};
    TRY(jbuf_display(&b, v));
    struct jv s;
    TRY(jbuf_value(&b, false, &s));
    *out = s.s;
    return INFER_OK;
}

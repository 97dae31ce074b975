/* The tests behind "is", and the global functions. */
#include "text/jinja/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CALL(name)                                                                                           \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

/* ---- tests without arguments ---- */

#define SIMPLE(name, test)                                                                                   \
    CALL(name) {                                                                                             \
        TRY(jargs_bind(J, a, #name, "", NULL));                                                              \
        *out = jv_bool(test);                                                                                \
        return INFER_OK;                                                                                     \
    }
SIMPLE(t_defined, self.kind != JV_UNDEFINED)
SIMPLE(t_undefined, self.kind == JV_UNDEFINED)
SIMPLE(t_none, self.kind == JV_NONE)
SIMPLE(t_boolean, self.kind == JV_BOOL)
SIMPLE(t_true, self.kind == JV_BOOL && self.b)
SIMPLE(t_false, self.kind == JV_BOOL && !self.b)
SIMPLE(t_integer, self.kind == JV_INT)
SIMPLE(t_float, self.kind == JV_FLOAT)
SIMPLE(t_number, jv_is_number(self))
SIMPLE(t_string, self.kind == JV_STRING)
SIMPLE(t_mapping, self.kind == JV_DICT)
SIMPLE(t_iterable, self.kind == JV_STRING || self.kind == JV_DICT || self.kind == JV_UNDEFINED ||
                       self.kind == JV_LOOP || jv_is_seq(self))
SIMPLE(t_sequence, self.kind == JV_STRING || self.kind == JV_DICT || self.kind == JV_UNDEFINED ||
                       (jv_is_seq(self) && self.kind != JV_VIEW && self.kind != JV_GEN))
SIMPLE(t_callable, self.kind == JV_UNDEFINED || self.kind == JV_FUNC || self.kind == JV_METHOD ||
                       self.kind == JV_MACRO || self.kind == JV_JOINER || self.kind == JV_LOOP)
SIMPLE(t_escaped, self.kind == JV_STRING && self.s->safe)

static enum infer_status remainder_is(struct jinja *J, struct jv self, struct jv by, int64_t want,
                                      struct jv *out) {
    struct jv r;
    TRY(jv_binary(J, OP_MOD, self, by, &r));
    if (!jv_is_number(r)) return jinja_fail(J, "a number is needed here, not %s", jv_type(self));
    *out = jv_bool(jv_number(r) == (double)want);
    return INFER_OK;
}
CALL(t_even) {
    TRY(jargs_bind(J, a, "even", "", NULL));
    return remainder_is(J, self, jv_int(2), 0, out);
}
CALL(t_odd) {
    TRY(jargs_bind(J, a, "odd", "", NULL));
    return remainder_is(J, self, jv_int(2), 1, out);
}
CALL(t_divisibleby) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "divisibleby", "num", v));
    return remainder_is(J, self, v[0], 0, out);
}

static enum infer_status case_test(struct jinja *J, struct jv self, const struct jargs *a, bool upper,
                                   struct jv *out) {
    const struct jstr *s;
    TRY(jargs_bind(J, a, upper ? "upper" : "lower", "", NULL));
    TRY(jv_text(J, self, &s));
    *out = jv_bool(upper ? js_is_upper(s) : js_is_lower(s));
    return INFER_OK;
}
CALL(t_lower) { return case_test(J, self, a, false, out); }
CALL(t_upper) { return case_test(J, self, a, true, out); }

CALL(t_filter) {
    TRY(jargs_bind(J, a, "filter", "", NULL));
    *out = jv_bool(self.kind == JV_STRING && jinja_filter(self.s->p, self.s->n));
    return INFER_OK;
}
CALL(t_test) {
    TRY(jargs_bind(J, a, "test", "", NULL));
    *out = jv_bool(self.kind == JV_STRING && jinja_test(self.s->p, self.s->n));
    return INFER_OK;
}

/* A method of text as a test: value is startingwith "x". */
static enum infer_status affix_test(struct jinja *J, struct jv self, const struct jargs *a,
                                    const char *method, struct jv *out) {
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (self.kind != JV_STRING) return jinja_fail(J, "a str is needed here, not %s", jv_type(self));
    return jinja_str_method(method, strlen(method))->call(J, self, a, out);
}
CALL(t_startingwith) { return affix_test(J, self, a, "startswith", out); }
CALL(t_endingwith) { return affix_test(J, self, a, "endswith", out); }

/* ---- comparisons ---- */

CALL(t_eq) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "eq", "other", v));
    *out = jv_bool(false);
    return jv_equal(J, self, v[0], &out->b);
}
CALL(t_ne) {
    TRY(t_eq(J, self, a, out));
    out->b = !out->b;
    return INFER_OK;
}
static enum infer_status order(struct jinja *J, struct jv self, const struct jargs *a, const char *op,
                               int low, int high, struct jv *out) {
    struct jv v[1];
    int c;
    TRY(jargs_bind(J, a, op, "other", v));
    TRY(jv_compare(J, self, v[0], op, &c));
    *out = jv_bool(c >= low && c <= high);
    return INFER_OK;
}
CALL(t_lt) { return order(J, self, a, "<", -1, -1, out); }
CALL(t_le) { return order(J, self, a, "<=", -1, 0, out); }
CALL(t_gt) { return order(J, self, a, ">", 1, 1, out); }
CALL(t_ge) { return order(J, self, a, ">=", 0, 1, out); }
CALL(t_in) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "in", "seq", v));
    *out = jv_bool(false);
    return jv_contains(J, self, v[0], &out->b);
}
CALL(t_sameas) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "sameas", "other", v));
    *out = jv_bool(false);
    if (self.kind != v[0].kind) return INFER_OK;
    if (self.kind == JV_LIST || self.kind == JV_DICT)
        out->b = self.l == v[0].l;
    else
        return jv_equal(J, self, v[0], &out->b);
    return INFER_OK;
}

const struct jbuiltin *jinja_test(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"boolean", t_boolean},
        {"callable", t_callable},
        {"defined", t_defined},
        {"divisibleby", t_divisibleby},
        {"endingwith", t_endingwith},
        {"eq", t_eq},
        {"==", t_eq},
        {"equalto", t_eq},
        {"escaped", t_escaped},
        {"even", t_even},
        {"false", t_false},
        {"filter", t_filter},
        {"float", t_float},
        {"ge", t_ge},
        {">=", t_ge},
        {"greaterthan", t_gt},
        {"gt", t_gt},
        {">", t_gt},
        {"in", t_in},
        {"integer", t_integer},
        {"iterable", t_iterable},
        {"le", t_le},
        {"<=", t_le},
        {"lessthan", t_lt},
        {"lower", t_lower},
        {"lt", t_lt},
        {"<", t_lt},
        {"mapping", t_mapping},
        {"ne", t_ne},
        {"!=", t_ne},
        {"none", t_none},
        {"number", t_number},
        {"odd", t_odd},
        {"safe", t_escaped},
        {"sameas", t_sameas},
        {"sequence", t_sequence},
        {"startingwith", t_startingwith},
        {"string", t_string},
        {"test", t_test},
        {"true", t_true},
        {"undefined", t_undefined},
        {"upper", t_upper},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name, n);
}

/* ---- global functions ---- */

CALL(g_range) {
    struct jv v[3];
    int64_t part[3] = {0, 0, 1};
    (void)self;
    TRY(jargs_bind(J, a, "range", "start ?stop ?step", v));
    for (int i = 0; i < 3; i++) {
        if (v[i].kind == JV_MISSING) continue;
        if (v[i].kind == JV_UNDEFINED) return jv_fail_undefined(J, v[i]);
        if (!jv_is_int(v[i]))
            return jinja_fail(J, "'%s' object cannot be interpreted as an integer", jv_type(v[i]));
        part[i] = jv_integer(v[i]);
    }
    int64_t from = v[1].kind == JV_MISSING ? 0 : part[0], to = v[1].kind == JV_MISSING ? part[0] : part[1],
            step = part[2];
    if (step == 0) return jinja_fail(J, "range() arg 3 must not be zero");
    double count = ceil(((double)to - (double)from) / (double)step);
    if (count > JINJA_MAX_RANGE)
        return jinja_fail(J, "range of %.0f elements, at most %d are allowed", count, JINJA_MAX_RANGE);
    TRY(jv_list(J, out, JV_RANGE, count > 0 ? (size_t)count : 0));
    for (int64_t i = 0; i < (int64_t)count; i++) TRY(jv_push(J, out->l, jv_int(from + i * step)));
    out->l->from = from;
    out->l->to = to;
    out->l->step = step;
    return INFER_OK;
}

/* dict(mapping or pairs, name=value ...) */
CALL(g_dict) {
    (void)self;
    TRY(jv_dict(J, out));
    if (a->n_pos > 1) return jinja_fail(J, "dict expected at most 1 argument, got %zu", a->n_pos);
    if (a->n_pos && a->pos[0].kind == JV_DICT) {
        for (size_t i = 0; i < a->pos[0].d->n; i++)
            TRY(jv_dict_set(J, out->d, a->pos[0].d->e[i].key, a->pos[0].d->e[i].value));
    } else if (a->n_pos) {
        struct jlist *l, *pair;
        TRY(jv_iterate(J, a->pos[0], &l));
        for (size_t i = 0; i < l->n; i++) {
            TRY(jv_iterate(J, l->v[i], &pair));
            if (pair->n != 2)
                return jinja_fail(J, "dict: element %zu has %zu values, 2 are needed", i, pair->n);
            TRY(jv_dict_set(J, out->d, pair->v[0], pair->v[1]));
        }
    }
    for (size_t i = 0; i < a->n_kw; i++)
        TRY(jv_dict_set(J, out->d, (struct jv){.kind = JV_STRING, .s = a->kw_name[i]}, a->kw[i]));
    return INFER_OK;
}

CALL(g_namespace) {
    TRY(g_dict(J, self, a, out));
    out->kind = JV_NAMESPACE;
    return INFER_OK;
}

CALL(g_cycler) {
    (void)self;
    if (a->n_pos == 0) return jinja_fail(J, "at least one item has to be provided");
    TRY(jv_list(J, out, JV_CYCLER, a->n_pos));
    for (size_t i = 0; i < a->n_pos; i++) TRY(jv_push(J, out->l, a->pos[i]));
    return INFER_OK;
}

CALL(g_joiner) {
    struct jv v[1];
    (void)self;
    TRY(jargs_bind(J, a, "joiner", "?sep", v));
    if (v[0].kind == JV_MISSING) TRY(jv_lit(J, &v[0], ", "));
    TRY(jv_list(J, out, JV_JOINER, 1));
    return jv_push(J, out->l, v[0]);
}

CALL(g_raise_exception) {
    struct jv v[1];
    const struct jstr *s;
    (void)self;
    (void)out;
    TRY(jargs_bind(J, a, "raise_exception", "message", v));
    TRY(jv_text(J, v[0], &s));
    return jinja_fail(J, "%.*s", (int)(s->n > 480 ? 480 : s->n), s->p);
}

CALL(g_strftime_now) {
    struct jv v[1];
    char format[256], text[1024];
    (void)self;
    TRY(jargs_bind(J, a, "strftime_now", "format", v));
    if (v[0].kind != JV_STRING || v[0].s->n >= sizeof format - 1)
        return jinja_fail(J, "strftime_now: the format is a text below 255 bytes");
    memcpy(format, v[0].s->p, v[0].s->n);
    format[v[0].s->n] = ' '; /* never an empty result, which strftime cannot tell from a full buffer */
    format[v[0].s->n + 1] = 0;
    size_t n = strftime(text, sizeof text, format, &J->now);
    if (n == 0) return jinja_fail(J, "strftime_now: the text is too long");
    if (!utf8_valid(text, n - 1)) return jinja_fail(J, "strftime_now: the format is cut inside a character");
    return jv_string_copy(J, out, text, n - 1, false);
}

const struct jbuiltin *jinja_global(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"cycler", g_cycler},
        {"dict", g_dict},
        {"joiner", g_joiner},
        {"namespace", g_namespace},
        {"raise_exception", g_raise_exception},
        {"range", g_range},
        {"strftime_now", g_strftime_now},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name, n);
}

/* Operators, attributes, items and slices, with Python's rules. */
#include "text/jinja/jinja_int.h"

#include <math.h>
#include <string.h>

/* ---- text ---- */

enum infer_status js_escape_html(struct jbuf *b, const struct jstr *s) {
    for (size_t i = 0; i < s->n; i++) {
        const char *e = s->p[i] == '&'    ? "&amp;"
                        : s->p[i] == '<'  ? "&lt;"
                        : s->p[i] == '>'  ? "&gt;"
                        : s->p[i] == '\'' ? "&#39;"
                        : s->p[i] == '"'  ? "&#34;"
                                          : NULL;
        if (e)
            TRY(jbuf_one(b, e, strlen(e), s->m && s->m[i]));
        else
            TRY(jbuf_sub(b, s, i, 1));
    }
    return INFER_OK;
}

/* a + b. Text that grows at its end again and again keeps its buffer, so that a loop of appends is linear. */
static enum infer_status add_strings(struct jinja *J, const struct jstr *a, const struct jstr *b,
                                     struct jv *out) {
    bool safe = a->safe || b->safe;
    if (b->n == 0 && a->safe == safe) {
        *out = (struct jv){.kind = JV_STRING, .s = a};
        return INFER_OK;
    }
    struct jbuf *home = a->home;
    if (safe && !(a->safe && b->safe)) { /* Markup escapes the other side */
        struct jbuf t = {.J = J};
        TRY(a->safe ? jbuf_str(&t, a) : js_escape_html(&t, a));
        TRY(b->safe ? jbuf_str(&t, b) : js_escape_html(&t, b));
        return jbuf_value(&t, true, out);
    }
    if (!home || a->p + a->n != home->p + home->n) {
        TRY(jinja_new(J, &home, sizeof *home));
        home->J = J;
        TRY(jbuf_str(home, a));
    }
    size_t at = home->n - a->n;
    TRY(jbuf_str(home, b));
    struct jstr *s;
    TRY(jinja_new(J, &s, sizeof *s));
    *s = (struct jstr){home->p + at, home->m ? home->m + at : NULL, home->n - at, safe, home};
    *out = (struct jv){.kind = JV_STRING, .s = s};
    return INFER_OK;
}

enum infer_status jv_concat(struct jinja *J, const struct jv *v, size_t n, struct jv *out) {
    struct jbuf b = {.J = J};
    for (size_t i = 0; i < n; i++) TRY(jbuf_display(&b, v[i])); /* without autoescape ~ never escapes */
    return jbuf_value(&b, false, out);
}

/* ---- arithmetic ---- */

static enum infer_status too_large(struct jinja *J) {
    return jinja_fail(J, "an integer does not fit 64 bits");
}

static enum infer_status int_power(struct jinja *J, int64_t a, int64_t b, struct jv *out) {
    if (b < 0) {
        if (a == 0) return jinja_fail(J, "0.0 cannot be raised to a negative power");
        *out = jv_float(pow((double)a, (double)b));
        return INFER_OK;
    }
    int64_t r = 1;
    for (; b > 0; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return too_large(J);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) return too_large(J);
    }
    *out = jv_int(r);
    return INFER_OK;
}

static enum infer_status int_op(struct jinja *J, enum jop op, int64_t a, int64_t b, struct jv *out) {
    int64_t r = 0;
    if (op == OP_POW) return int_power(J, a, b, out);
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(J, op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
    if (op == OP_DIV) {
        *out = jv_float((double)a / (double)b);
        return INFER_OK;
    }
    if (op == OP_FLOORDIV || op == OP_MOD) {
        if (b == -1) { /* INT64_MIN / -1 does not fit */
            if (op == OP_FLOORDIV && __builtin_sub_overflow(0, a, &r)) return too_large(J);
        } else {
            int64_t q = a / b, m = a % b;
            bool down = m != 0 && (m < 0) != (b < 0); /* round to minus infinity */
            r = op == OP_FLOORDIV ? q - down : down ? m + b : m;
        }
        *out = jv_int(r);
        return INFER_OK;
    }
    bool over = op == OP_ADD   ? __builtin_add_overflow(a, b, &r)
                : op == OP_SUB ? __builtin_sub_overflow(a, b, &r)
                               : __builtin_mul_overflow(a, b, &r);
    if (over) return too_large(J);
    *out = jv_int(r);
    return INFER_OK;
}

static enum infer_status float_op(struct jinja *J, enum jop op, double a, double b, struct jv *out) {
    double r = 0;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return jinja_fail(J, op == OP_DIV   ? "float division by zero"
                             : op == OP_MOD ? "float modulo"
                                            : "float floor division by zero");
    switch (op) {
    case OP_ADD:
        r = a + b;
        break;
    case OP_SUB:
        r = a - b;
        break;
    case OP_MUL:
        r = a * b;
        break;
    case OP_DIV:
        r = a / b;
        break;
    case OP_POW:
        r = pow(a, b);
        break;
    case OP_FLOORDIV:
    case OP_MOD: {
        double m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0)) m += b;
        r = op == OP_MOD ? (m == 0 ? copysign(0, b) : m) : floor((a - m) / b + 0.5);
    }
    }
    *out = jv_float(r);
    return INFER_OK;
}

static enum infer_status repeat(struct jinja *J, struct jv seq, int64_t times, struct jv *out) {
    if (times < 0) times = 0;
    if (seq.kind == JV_STRING) {
        struct jbuf b = {.J = J};
        if (seq.s->n && times > JINJA_MAX_STRING / (int64_t)seq.s->n)
            return jinja_fail(J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
        if (seq.s->n == 0) times = 0;
        for (int64_t i = 0; i < times; i++) {
            TRY(jinja_step(J, 1));
            TRY(jbuf_str(&b, seq.s));
        }
        return jbuf_value(&b, seq.s->safe, out);
    }
    if (seq.l->n == 0) times = 0;
    TRY(jv_list(J, out, seq.kind, 0));
    for (int64_t i = 0; i < times; i++)
        for (size_t k = 0; k < seq.l->n; k++) TRY(jv_push(J, out->l, seq.l->v[k]));
    return INFER_OK;
}

static enum infer_status add_lists(struct jinja *J, struct jv a, struct jv b, struct jv *out) {
    TRY(jv_list(J, out, a.kind, a.l->n + b.l->n));
    for (size_t i = 0; i < a.l->n; i++) TRY(jv_push(J, out->l, a.l->v[i]));
    for (size_t i = 0; i < b.l->n; i++) TRY(jv_push(J, out->l, b.l->v[i]));
    return INFER_OK;
}

enum infer_status jv_binary(struct jinja *J, enum jop op, struct jv a, struct jv b, struct jv *out) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (jv_is_int(a) && jv_is_int(b)) return int_op(J, op, jv_integer(a), jv_integer(b), out);
    if (jv_is_number(a) && jv_is_number(b)) return float_op(J, op, jv_number(a), jv_number(b), out);
    if (a.kind == JV_STRING && op == OP_MOD) return js_percent(J, a.s, b, out);
    if (a.kind == JV_UNDEFINED) return jv_fail_undefined(J, a);
    if (b.kind == JV_UNDEFINED) return jv_fail_undefined(J, b);
    bool seq_a = a.kind == JV_STRING || a.kind == JV_LIST || a.kind == JV_TUPLE;
    bool seq_b = b.kind == JV_STRING || b.kind == JV_LIST || b.kind == JV_TUPLE;
    if (op == OP_ADD && a.kind == b.kind && seq_a)
        return a.kind == JV_STRING ? add_strings(J, a.s, b.s, out) : add_lists(J, a, b, out);
    if (op == OP_MUL && seq_a && jv_is_int(b)) return repeat(J, a, jv_integer(b), out);
    if (op == OP_MUL && seq_b && jv_is_int(a)) return repeat(J, b, jv_integer(a), out);
    if (op == OP_ADD && seq_a)
        return jinja_fail(J, "can only concatenate %s (not \"%s\") to %s", jv_type(a), jv_type(b),
                          jv_type(a));
    return jinja_fail(J, "unsupported operand type(s) for %s: '%s' and '%s'", names[op], jv_type(a),
                      jv_type(b));
}

enum infer_status jv_negate(struct jinja *J, struct jv a, struct jv *out) {
    if (a.kind == JV_UNDEFINED) return jv_fail_undefined(J, a);
    if (!jv_is_number(a)) return jinja_fail(J, "bad operand type for unary -: '%s'", jv_type(a));
    if (a.kind == JV_FLOAT)
        *out = jv_float(-a.f);
    else
        return int_op(J, OP_SUB, 0, jv_integer(a), out);
    return INFER_OK;
}

/* ---- attributes and items ---- */

/* Methods that would change a value and that no engine of chat templates offers: known by name, refused in use. */
static bool mutates(enum jv_kind kind, const struct jstr *name) {
    static const char *const list[] = {"clear", "remove", "reverse", "sort", NULL};
    static const char *const dict[] = {"clear", "popitem", NULL};
    const char *const *c = kind == JV_LIST ? list : kind == JV_DICT ? dict : NULL;
    for (; c && *c; c++)
        if (js_is(name, *c)) return true;
    return false;
}

static enum infer_status cycler_next(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out) {
    (void)J, (void)a;
    *out = self.l->v[self.l->pos];
    self.l->pos = (self.l->pos + 1) % self.l->n;
    return INFER_OK;
}

static enum infer_status cycler_reset(struct jinja *J, struct jv self, const struct jargs *a,
                                      struct jv *out) {
    (void)J, (void)a;
    self.l->pos = 0;
    *out = jv_none();
    return INFER_OK;
}

/* A Python attribute of obj: a method, or a field of loop, cycler or macro. JV_MISSING when there is none. */
static enum infer_status attribute(struct jinja *J, struct jv obj, const struct jstr *name, struct jv *out) {
    static const struct jbuiltin cycler[] = {{"next", cycler_next}, {"reset", cycler_reset}};
    *out = (struct jv){.kind = JV_MISSING};
    if (obj.kind == JV_LOOP) return jloop_attr(J, obj.loop, name, out);
    if (obj.kind == JV_CYCLER && js_is(name, "current")) {
        *out = obj.l->v[obj.l->pos];
        return INFER_OK;
    }
    if (obj.kind == JV_MACRO && js_is(name, "name")) {
        *out = (struct jv){.kind = JV_STRING, .s = obj.macro->node->name};
        return INFER_OK;
    }
    if (obj.kind == JV_TUPLE && obj.l->type) { /* a group of groupby */
        if (js_is(name, "grouper")) *out = obj.l->v[0];
        if (js_is(name, "list")) *out = obj.l->v[1];
        if (out->kind != JV_MISSING) return INFER_OK;
    }
    if (mutates(obj.kind, name)) {
        TRY(jv_undefined(J, out, "access to attribute '%.*s' of '%s' object is unsafe.", (int)name->n,
                         name->p, jv_type(obj)));
        struct jundef *u;
        TRY(jinja_new(J, &u, sizeof *u));
        *u = (struct jundef){out->u->what, true};
        out->u = u;
        return INFER_OK;
    }
    const struct jbuiltin *fn = obj.kind == JV_STRING   ? jinja_str_method(name->p, name->n)
                                : obj.kind == JV_CYCLER ? jbuiltin_find(cycler, 2, name->p, name->n)
                                                        : jinja_method(obj.kind, name->p, name->n);
    if (!fn) return INFER_OK;
    struct jmethod *m;
    TRY(jinja_new(J, &m, sizeof *m));
    *m = (struct jmethod){obj, fn};
    *out = (struct jv){.kind = JV_METHOD, .method = m};
    return INFER_OK;
}

/* obj[key] as Python has it; JV_MISSING when it is not there. */
static enum infer_status subscript(struct jinja *J, struct jv obj, struct jv key, struct jv *out) {
    *out = (struct jv){.kind = JV_MISSING};
    if (obj.kind == JV_DICT) {
        if (key.kind == JV_LIST || key.kind == JV_DICT || key.kind == JV_UNDEFINED) return INFER_OK;
        const struct jv *v = jv_dict_get(obj.d, key);
        if (v) *out = *v;
        return INFER_OK;
    }
    bool seq = obj.kind == JV_STRING || obj.kind == JV_LIST || obj.kind == JV_TUPLE || obj.kind == JV_RANGE;
    if (!seq || !jv_is_int(key)) return INFER_OK;
    int64_t i = jv_integer(key), n;
    TRY(jv_length(J, obj, &n));
    if (i < 0) i += n;
    if (i < 0 || i >= n) return INFER_OK;
    if (obj.kind != JV_STRING) {
        *out = obj.l->v[i];
        return INFER_OK;
    }
    size_t at = js_offset(obj.s, (size_t)i);
    int32_t cp;
    return jv_sub(J, obj.s, at, (size_t)utf8_get(obj.s->p + at, &cp), out);
}

static const char *object_name(struct jv v) { return v.kind == JV_NONE ? "None" : jv_type(v); }

static enum infer_status no_attribute(struct jinja *J, struct jv obj, const struct jstr *name,
                                      struct jv *out) {
    return jv_undefined(J, out, "'%s%s' has no attribute '%.*s'", object_name(obj),
                        obj.kind == JV_NONE ? "" : " object", (int)(name->n > 120 ? 120 : name->n), name->p);
}

enum infer_status jv_getattr(struct jinja *J, struct jv obj, const struct jstr *name, struct jv *out) {
    if (obj.kind == JV_UNDEFINED) return jv_fail_undefined(J, obj);
    if (obj.kind == JV_NAMESPACE) {
        const struct jv *v = jv_dict_get(obj.d, (struct jv){.kind = JV_STRING, .s = name});
        if (v)
            *out = *v;
        else
            TRY(no_attribute(J, obj, name, out));
        return INFER_OK;
    }
    TRY(attribute(J, obj, name, out));
    if (out->kind == JV_MISSING) TRY(subscript(J, obj, (struct jv){.kind = JV_STRING, .s = name}, out));
    if (out->kind == JV_MISSING) TRY(no_attribute(J, obj, name, out));
    return INFER_OK;
}

enum infer_status jv_getitem(struct jinja *J, struct jv obj, struct jv key, struct jv *out) {
    if (obj.kind == JV_UNDEFINED) return jv_fail_undefined(J, obj);
    if (obj.kind == JV_NAMESPACE && key.kind == JV_STRING) return jv_getattr(J, obj, key.s, out);
    TRY(subscript(J, obj, key, out));
    if (out->kind == JV_MISSING && key.kind == JV_STRING) TRY(attribute(J, obj, key.s, out));
    if (out->kind != JV_MISSING) return INFER_OK;
    if (key.kind == JV_STRING) return no_attribute(J, obj, key.s, out);
    const struct jstr *s;
    TRY(jv_text(J, key, &s));
    return jv_undefined(J, out, "'%s object' has no element %.*s", object_name(obj),
                        (int)(s->n > 120 ? 120 : s->n), s->p);
}

static enum infer_status slice_part(struct jinja *J, struct jv v, int64_t missing, int64_t *out) {
    *out = missing;
    if (v.kind == JV_NONE) return INFER_OK;
    if (!jv_is_int(v)) return jinja_fail(J, "slice indices must be integers or None, not %s", jv_type(v));
    *out = jv_integer(v);
    return INFER_OK;
}

static int64_t clamp_index(int64_t i, int64_t n, int64_t low, int64_t high) {
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static enum infer_status slice_string(struct jinja *J, const struct jstr *s, int64_t from, int64_t count,
                                      int64_t step, struct jv *out) {
    size_t at = js_offset(s, (size_t)from);
    if (step == 1) {
        struct jstr rest = {.p = s->p + at, .n = s->n - at};
        return jv_sub(J, s, at, js_offset(&rest, (size_t)count), out);
    }
    size_t n = js_chars(s), *offset; /* offset[n + 1]: where each code point starts */
    TRY(jinja_step(J, n >> 3));
    TRY(jinja_new(J, &offset, (n + 1) * sizeof *offset));
    for (size_t i = 0, c = 0; i < s->n; i++)
        if ((s->p[i] & 0xc0) != 0x80) offset[c++] = i;
    offset[n] = s->n;
    struct jbuf b = {.J = J};
    for (int64_t k = 0, i = from; k < count; k++, i += step)
        TRY(jbuf_sub(&b, s, offset[i], offset[i + 1] - offset[i]));
    return jbuf_value(&b, s->safe, out);
}

/* a + b * c; numbers of ranges that Python would print with more than 64 bits wrap */
static int64_t add_product(int64_t a, int64_t b, int64_t c) {
    return (int64_t)((uint64_t)a + (uint64_t)b * (uint64_t)c);
}

enum infer_status jv_slice(struct jinja *J, struct jv obj, struct jv a, struct jv b, struct jv c,
                           struct jv *out) {
    int64_t n, from, to, step;
    if (obj.kind == JV_UNDEFINED) return jv_fail_undefined(J, obj);
    if (obj.kind != JV_STRING && obj.kind != JV_LIST && obj.kind != JV_TUPLE && obj.kind != JV_RANGE)
        return jv_undefined(J, out, "'%s object' cannot be sliced", object_name(obj));
    TRY(jv_length(J, obj, &n));
    TRY(slice_part(J, c, 1, &step));
    if (step == 0) return jinja_fail(J, "slice step cannot be zero");
    if (step < -JINJA_MAX_STRING) step = -JINJA_MAX_STRING; /* beyond every length: one element */
    if (step > JINJA_MAX_STRING) step = JINJA_MAX_STRING;
    TRY(slice_part(J, a, step > 0 ? 0 : INT64_MAX, &from));
    TRY(slice_part(J, b, step > 0 ? INT64_MAX : -n - 1, &to));
    from = step > 0 ? clamp_index(from, n, 0, n) : clamp_index(from, n, -1, n - 1);
    to = step > 0 ? clamp_index(to, n, 0, n) : clamp_index(to, n, -1, n - 1);
    int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    if (count < 0) count = 0;
    if (obj.kind == JV_STRING) return slice_string(J, obj.s, count ? from : 0, count, step, out);
    TRY(jv_list(J, out, obj.kind, (size_t)count));
    for (int64_t k = 0, i = from; k < count; k++, i += step) TRY(jv_push(J, out->l, obj.l->v[i]));
    if (obj.kind == JV_RANGE) {
        out->l->from = add_product(obj.l->from, from, obj.l->step);
        out->l->to = add_product(obj.l->from, to, obj.l->step);
        out->l->step = add_product(0, step, obj.l->step);
    }
    return INFER_OK;
}

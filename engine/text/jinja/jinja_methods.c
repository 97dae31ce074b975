/* Methods of dicts, lists and numbers. Those that change a dict or a list do it in place: every name of the value sees it,
 * as in Python. Nothing is freed before the rendering ends, so a loop that runs over the value meanwhile stays safe. */
#include "text/jinja/jinja_int.h"

#include <math.h>
#include <string.h>

#define METHOD(name)                                                                                         \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

/* ---- dicts ---- */

METHOD(m_get) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "get", "key ?default", v));
    if (v[0].kind == JV_LIST || v[0].kind == JV_DICT)
        return jinja_fail(J, "unhashable type: '%s'", jv_type(v[0]));
    const struct jv *x = v[0].kind == JV_UNDEFINED ? NULL : jv_dict_get(self.d, v[0]);
    *out = x ? *x : v[1].kind == JV_MISSING ? jv_none() : v[1];
    return INFER_OK;
}

enum infer_status jv_pairs(struct jinja *J, const struct jdict *d, enum jv_kind kind, struct jv *out) {
    TRY(jv_list(J, out, kind, d->n));
    for (size_t i = 0; i < d->n; i++) TRY(jv_push_pair(J, out->l, d->e[i].key, d->e[i].value));
    return INFER_OK;
}

METHOD(m_items) {
    TRY(jargs_bind(J, a, "items", "", NULL));
    TRY(jv_pairs(J, self.d, JV_VIEW, out));
    out->l->type = "dict_items";
    return INFER_OK;
}

METHOD(m_keys) {
    TRY(jargs_bind(J, a, "keys", "", NULL));
    TRY(jv_list(J, out, JV_VIEW, self.d->n));
    out->l->type = "dict_keys";
    for (size_t i = 0; i < self.d->n; i++) TRY(jv_push(J, out->l, self.d->e[i].key));
    return INFER_OK;
}

METHOD(m_values) {
    TRY(jargs_bind(J, a, "values", "", NULL));
    TRY(jv_list(J, out, JV_VIEW, self.d->n));
    out->l->type = "dict_values";
    for (size_t i = 0; i < self.d->n; i++) TRY(jv_push(J, out->l, self.d->e[i].value));
    return INFER_OK;
}

METHOD(m_copy) {
    TRY(jargs_bind(J, a, "copy", "", NULL));
    if (self.kind == JV_DICT) {
        TRY(jv_dict(J, out));
        for (size_t i = 0; i < self.d->n; i++)
            TRY(jv_dict_set(J, out->d, self.d->e[i].key, self.d->e[i].value));
        return INFER_OK;
    }
    TRY(jv_list(J, out, JV_LIST, self.l->n));
    for (size_t i = 0; i < self.l->n; i++) TRY(jv_push(J, out->l, self.l->v[i]));
    return INFER_OK;
}

METHOD(m_dict_pop) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "pop", "key ?default", v));
    bool hashable = v[0].kind != JV_LIST && v[0].kind != JV_DICT && v[0].kind != JV_UNDEFINED;
    const struct jv *x = hashable ? jv_dict_get(self.d, v[0]) : NULL;
    if (x) {
        *out = *x;
        return jv_dict_remove(J, self.d, v[0]);
    }
    struct jbuf b = {.J = J};
    struct jv key;
    if (v[1].kind != JV_MISSING) {
        *out = v[1];
        return INFER_OK;
    }
    TRY(jbuf_repr(&b, v[0]));
    TRY(jbuf_value(&b, false, &key));
    return jinja_fail(J, "pop: the dict has no key %.*s", (int)(key.s->n > 120 ? 120 : key.s->n), key.s->p);
}

METHOD(m_update) {
    struct jv more;
    TRY(jinja_global("dict", 4)->call(J, jv_none(), a, &more));
    for (size_t i = 0; i < more.d->n; i++) TRY(jv_dict_set(J, self.d, more.d->e[i].key, more.d->e[i].value));
    *out = jv_none();
    return INFER_OK;
}

METHOD(m_setdefault) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "setdefault", "key ?default", v));
    if (v[1].kind == JV_MISSING) v[1] = jv_none();
    bool hashable = v[0].kind != JV_LIST && v[0].kind != JV_DICT && v[0].kind != JV_UNDEFINED;
    const struct jv *x = hashable ? jv_dict_get(self.d, v[0]) : NULL;
    *out = x ? *x : v[1];
    return x ? INFER_OK : jv_dict_set(J, self.d, v[0], v[1]);
}

/* ---- lists ---- */

METHOD(m_index) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "index", "value", v));
    for (size_t i = 0; i < self.l->n; i++) {
        bool same;
        TRY(jv_equal(J, self.l->v[i], v[0], &same));
        if (!same) continue;
        *out = jv_int((int64_t)i);
        return INFER_OK;
    }
    return jinja_fail(J, "the value is not in the %s", jv_type(self));
}

METHOD(m_count) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "count", "value", v));
    *out = jv_int(0);
    for (size_t i = 0; i < self.l->n; i++) {
        bool same;
        TRY(jv_equal(J, self.l->v[i], v[0], &same));
        out->i += same;
    }
    return INFER_OK;
}

METHOD(m_append) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "append", "object", v));
    *out = jv_none();
    return jv_push(J, self.l, v[0]);
}

METHOD(m_extend) {
    struct jv v[1];
    struct jlist *more;
    TRY(jargs_bind(J, a, "extend", "iterable", v));
    TRY(jv_iterate(J, v[0], &more));
    *out = jv_none();
    for (size_t i = 0, n = more->n; i < n; i++)
        TRY(jv_push(J, self.l, more->v[i])); /* also of a list by itself */
    return INFER_OK;
}

METHOD(m_insert) {
    struct jv v[2];
    TRY(jargs_bind(J, a, "insert", "index object", v));
    if (!jv_is_int(v[0]))
        return jinja_fail(J, "'%s' object cannot be interpreted as an integer", jv_type(v[0]));
    int64_t n = (int64_t)self.l->n, i = jv_integer(v[0]);
    if (i < 0) i = i + n < 0 ? 0 : i + n;
    if (i > n) i = n;
    TRY(jinja_step(J, (uint64_t)(n - i) >> 2));
    TRY(jv_push(J, self.l, v[1]));
    memmove(self.l->v + i + 1, self.l->v + i, (size_t)(n - i) * sizeof *self.l->v);
    self.l->v[i] = v[1];
    *out = jv_none();
    return INFER_OK;
}

METHOD(m_pop) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "pop", "?index", v));
    if (v[0].kind == JV_MISSING) v[0] = jv_int(-1);
    if (!jv_is_int(v[0]))
        return jinja_fail(J, "'%s' object cannot be interpreted as an integer", jv_type(v[0]));
    int64_t n = (int64_t)self.l->n, i = jv_integer(v[0]);
    if (i < 0) i += n;
    if (n == 0) return jinja_fail(J, "pop from empty list");
    if (i < 0 || i >= n) return jinja_fail(J, "pop index out of range");
    *out = self.l->v[i];
    TRY(jinja_step(J, (uint64_t)(n - i) >> 2));
    memmove(self.l->v + i, self.l->v + i + 1, (size_t)(n - i - 1) * sizeof *self.l->v);
    self.l->n--;
    return INFER_OK;
}

/* ---- numbers ---- */

METHOD(m_is_integer) {
    TRY(jargs_bind(J, a, "is_integer", "", NULL));
    *out = jv_bool(self.kind != JV_FLOAT || (isfinite(self.f) && floor(self.f) == self.f));
    return INFER_OK;
}

bool jinja_is_method(const struct jstr *name) {
    return jinja_str_method(name->p, name->n) || jinja_method(JV_DICT, name->p, name->n) ||
           jinja_method(JV_LIST, name->p, name->n);
}

const struct jbuiltin *jinja_method(enum jv_kind kind, const char *name, size_t n) {
    static const struct jbuiltin dict[] = {
        {"get", m_get},   {"items", m_items},  {"keys", m_keys},     {"values", m_values},
        {"copy", m_copy}, {"pop", m_dict_pop}, {"update", m_update}, {"setdefault", m_setdefault}};
    static const struct jbuiltin list[] = {{"index", m_index},   {"count", m_count},   {"copy", m_copy},
                                           {"append", m_append}, {"extend", m_extend}, {"insert", m_insert},
                                           {"pop", m_pop}};
    static const struct jbuiltin number[] = {{"is_integer", m_is_integer}};
    if (kind == JV_DICT) return jbuiltin_find(dict, sizeof dict / sizeof *dict, name, n);
    if (kind == JV_LIST) return jbuiltin_find(list, sizeof list / sizeof *list, name, n);
    if (kind == JV_TUPLE || kind == JV_RANGE) return jbuiltin_find(list, 2, name, n);
    if (kind == JV_INT || kind == JV_FLOAT) return jbuiltin_find(number, 1, name, n);
    return NULL;
}

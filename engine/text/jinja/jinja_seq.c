/* Filters on sequences and dicts. Those that Python computes lazily give a one-shot sequence (JV_GEN). */
#include "text/jinja/jinja_int.h"

#include <string.h>

#define FILTER(name)                                                                                         \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

/* ---- attributes by path: "a.b.0" ---- */

static enum infer_status get_path(struct jinja *J, struct jv v, struct jv path, struct jv fallback,
                                  struct jv *out) {
    *out = v;
    if (path.kind != JV_STRING)
        return path.kind == JV_MISSING || path.kind == JV_NONE ? INFER_OK : jv_getitem(J, v, path, out);
    const struct jstr *s = path.s;
    for (size_t from = 0; from <= s->n;) {
        const char *dot = memchr(s->p + from, '.', s->n - from);
        size_t end = dot ? (size_t)(dot - s->p) : s->n;
        struct jv key;
        int64_t i;
        TRY(jinja_step(J, 1));
        TRY(jv_sub(J, s, from, end - from, &key));
        if (end > from && s->p[from] >= '0' && s->p[from] <= '9' && js_to_int(key.s, 10, &i)) key = jv_int(i);
        TRY(jv_getitem(J, *out, key, out));
        if (out->kind == JV_UNDEFINED && fallback.kind != JV_MISSING) *out = fallback;
        from = end + 1;
    }
    return INFER_OK;
}

/* What sorting and grouping compare: the attribute, lower case unless asked otherwise. */
static enum infer_status sort_key(struct jinja *J, struct jv v, struct jv path, bool case_sensitive,
                                  struct jv *out) {
    TRY(get_path(J, v, path, (struct jv){.kind = JV_MISSING}, out));
    if (out->kind == JV_STRING && !case_sensitive) return js_lower(J, out->s, out);
    return INFER_OK;
}

/* Several attributes, split by commas, make a tuple. */
static enum infer_status sort_keys(struct jinja *J, struct jv v, struct jv path, bool case_sensitive,
                                   struct jv *out) {
    const char *comma = path.kind == JV_STRING ? memchr(path.s->p, ',', path.s->n) : NULL;
    if (!comma) return sort_key(J, v, path, case_sensitive, out);
    struct jv tuple, part, key;
    TRY(jv_list(J, &tuple, JV_TUPLE, 0));
    for (size_t from = 0; from <= path.s->n;) {
        comma = memchr(path.s->p + from, ',', path.s->n - from);
        size_t end = comma ? (size_t)(comma - path.s->p) : path.s->n;
        TRY(jv_sub(J, path.s, from, end - from, &part));
        TRY(sort_key(J, v, part, case_sensitive, &key));
        TRY(jv_push(J, tuple.l, key));
        from = end + 1;
    }
    *out = tuple;
    return INFER_OK;
}

struct keyed {
    struct jv key, value;
};

/* Stable merge sort of e[n]; t[n] is scratch. */
static enum infer_status merge_sort(struct jinja *J, struct keyed *e, struct keyed *t, size_t n, bool down) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, k = mid;
            for (size_t o = lo; o < hi; o++) {
                int c = 0;
                if (i < mid && k < hi) {
                    TRY(jv_compare(J, e[k].key, e[i].key, "<", &c));
                    c = c == 2 ? 0 : down ? -c : c;
                }
                bool right = i == mid || (k < hi && c < 0);
                t[o] = right ? e[k++] : e[i++];
            }
        }
        memcpy(e, t, n * sizeof *e);
    }
    return INFER_OK;
}

static enum infer_status sort_list(struct jinja *J, const struct jlist *l, struct jv path,
                                   bool case_sensitive, bool down, struct keyed **out) {
    struct keyed *t;
    TRY(jinja_new(J, out, (l->n + 1) * sizeof **out));
    TRY(jinja_new(J, &t, (l->n + 1) * sizeof *t));
    for (size_t i = 0; i < l->n; i++) {
        (*out)[i].value = l->v[i];
        TRY(sort_keys(J, l->v[i], path, case_sensitive, &(*out)[i].key));
    }
    return merge_sort(J, *out, t, l->n, down);
}

FILTER(f_sort) {
    struct jv v[3];
    struct jlist *l;
    struct keyed *e;
    TRY(jargs_bind(J, a, "sort", "?reverse ?case_sensitive ?attribute", v));
    TRY(jv_iterate(J, self, &l));
    TRY(sort_list(J, l, v[2], jv_truth(v[1]), jv_truth(v[0]), &e));
    TRY(jv_list(J, out, JV_LIST, l->n));
    for (size_t i = 0; i < l->n; i++) TRY(jv_push(J, out->l, e[i].value));
    return INFER_OK;
}

enum infer_status jv_push_pair(struct jinja *J, struct jlist *l, struct jv a, struct jv b) {
    struct jv pair;
    TRY(jv_list(J, &pair, JV_TUPLE, 2));
    TRY(jv_push(J, pair.l, a));
    TRY(jv_push(J, pair.l, b));
    return jv_push(J, l, pair);
}

FILTER(f_dictsort) {
    struct jv v[3], pairs;
    struct keyed *e;
    TRY(jargs_bind(J, a, "dictsort", "?case_sensitive ?by ?reverse", v));
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(J, self);
    if (self.kind != JV_DICT) return jinja_fail(J, "'%s' object has no attribute 'items'", jv_type(self));
    bool by_value = v[1].kind == JV_STRING && js_is(v[1].s, "value");
    if (v[1].kind == JV_STRING && !by_value && !js_is(v[1].s, "key"))
        return jinja_fail(J, "You can only sort by either \"key\" or \"value\"");
    TRY(jv_pairs(J, self.d, JV_LIST, &pairs));
    TRY(sort_list(J, pairs.l, jv_int(by_value), jv_truth(v[0]), jv_truth(v[2]), &e));
    for (size_t i = 0; i < pairs.l->n; i++) pairs.l->v[i] = e[i].value;
    *out = pairs;
    return INFER_OK;
}

FILTER(f_items) {
    TRY(jargs_bind(J, a, "items", "", NULL));
    if (self.kind == JV_UNDEFINED) return jv_list(J, out, JV_GEN, 0);
    if (self.kind != JV_DICT) return jinja_fail(J, "Can only get item pairs from a mapping.");
    return jv_pairs(J, self.d, JV_GEN, out);
}

FILTER(f_groupby) {
    struct jv v[3];
    struct jlist *l;
    struct keyed *e;
    TRY(jargs_bind(J, a, "groupby", "attribute ?default ?case_sensitive", v));
    TRY(jv_iterate(J, self, &l));
    TRY(sort_list(J, l, v[0], jv_truth(v[2]), false, &e));
    TRY(jv_list(J, out, JV_LIST, 0));
    for (size_t i = 0; i < l->n; i++) {
        bool same = false;
        if (i) TRY(jv_equal(J, e[i - 1].key, e[i].key, &same));
        if (!same) {
            struct jv group, name;
            TRY(jv_list(J, &group, JV_LIST, 0));
            TRY(get_path(J, e[i].value, v[0], v[1], &name));
            TRY(jv_push_pair(J, out->l, name, group));
            out->l->v[out->l->n - 1].l->type = "group";
        }
        TRY(jv_push(J, out->l->v[out->l->n - 1].l->v[1].l, e[i].value));
    }
    return INFER_OK;
}

FILTER(f_unique) {
    struct jv v[2], keys;
    struct jlist *l;
    TRY(jargs_bind(J, a, "unique", "?case_sensitive ?attribute", v));
    TRY(jv_iterate(J, self, &l));
    TRY(jv_list(J, out, JV_GEN, 0));
    TRY(jv_dict(J, &keys));
    for (size_t i = 0; i < l->n; i++) {
        struct jv key;
        size_t n = keys.d->n;
        TRY(sort_key(J, l->v[i], v[1], jv_truth(v[0]), &key));
        TRY(jv_dict_set(J, keys.d, key, jv_none()));
        if (keys.d->n > n) TRY(jv_push(J, out->l, l->v[i]));
    }
    return INFER_OK;
}

static enum infer_status extreme(struct jinja *J, struct jv self, const struct jargs *a, bool max,
                                 struct jv *out) {
    struct jv v[2], best = jv_none(), key;
    struct jlist *l;
    TRY(jargs_bind(J, a, max ? "max" : "min", "?case_sensitive ?attribute", v));
    TRY(jv_iterate(J, self, &l));
    if (l->n == 0) return jv_undefined(J, out, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < l->n; i++) {
        int c = 0;
        TRY(sort_key(J, l->v[i], v[1], jv_truth(v[0]), &key));
        if (i) TRY(jv_compare(J, key, best, max ? ">" : "<", &c));
        if (i && (c == 2 || (max ? c <= 0 : c >= 0))) continue;
        best = key;
        *out = l->v[i];
    }
    return INFER_OK;
}
FILTER(f_min) { return extreme(J, self, a, false, out); }
FILTER(f_max) { return extreme(J, self, a, true, out); }

FILTER(f_sum) {
    struct jv v[2], x;
    struct jlist *l;
    TRY(jargs_bind(J, a, "sum", "?attribute ?start", v));
    TRY(jv_iterate(J, self, &l));
    *out = v[1].kind == JV_MISSING ? jv_int(0) : v[1];
    if (out->kind == JV_STRING) return jinja_fail(J, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < l->n; i++) {
        TRY(get_path(J, l->v[i], v[0], (struct jv){.kind = JV_MISSING}, &x));
        TRY(jv_binary(J, OP_ADD, *out, x, out));
    }
    return INFER_OK;
}

/* ---- choosing and mapping ---- */

static enum infer_status named(struct jinja *J, struct jv name, bool test, const struct jbuiltin **out) {
    if (name.kind != JV_STRING)
        return jinja_fail(J, "a %s is named by a text here", test ? "test" : "filter");
    *out = test ? jinja_test(name.s->p, name.s->n) : jinja_filter(name.s->p, name.s->n);
    if (*out) return INFER_OK;
    return jinja_fail(J, "no %s named '%.*s'", test ? "test" : "filter",
                      (int)(name.s->n > 60 ? 60 : name.s->n), name.s->p);
}

/* a without its first skip positional arguments. */
static struct jargs rest(const struct jargs *a, size_t skip) {
    struct jargs r = *a;
    r.pos += skip;
    r.n_pos -= skip;
    return r;
}

static enum infer_status choose(struct jinja *J, struct jv self, const struct jargs *a, bool by_attr,
                                bool want, struct jv *out) {
    struct jlist *l;
    struct jv attr = {.kind = JV_MISSING}, v, yes;
    struct jargs args = *a;
    const struct jbuiltin *test = NULL;
    if (by_attr) {
        if (a->n_pos == 0) return jinja_fail(J, "Missing parameter for attribute name");
        attr = a->pos[0];
        args = rest(&args, 1);
    }
    if (args.n_pos) {
        TRY(named(J, args.pos[0], true, &test));
        args = rest(&args, 1);
    }
    TRY(jv_list(J, out, JV_GEN, 0));
    if (!jv_truth(self) && self.kind != JV_GEN)
        return INFER_OK; /* an empty or missing value selects nothing */
    TRY(jv_iterate(J, self, &l));
    for (size_t i = 0; i < l->n; i++) {
        TRY(get_path(J, l->v[i], attr, (struct jv){.kind = JV_MISSING}, &v));
        yes = jv_bool(jv_truth(v));
        if (test) TRY(test->call(J, v, &args, &yes));
        if (jv_truth(yes) == want) TRY(jv_push(J, out->l, l->v[i]));
    }
    return INFER_OK;
}
FILTER(f_select) { return choose(J, self, a, false, true, out); }
FILTER(f_reject) { return choose(J, self, a, false, false, out); }
FILTER(f_selectattr) { return choose(J, self, a, true, true, out); }
FILTER(f_rejectattr) { return choose(J, self, a, true, false, out); }

FILTER(f_map) {
    struct jlist *l;
    struct jv v[2];
    const struct jbuiltin *fn = NULL;
    struct jargs args = *a;
    if (a->n_pos == 0) {
        TRY(jargs_bind(J, a, "map", "attribute ?default", v));
    } else {
        TRY(named(J, a->pos[0], false, &fn));
        args = rest(a, 1);
    }
    TRY(jv_list(J, out, JV_GEN, 0));
    if (!jv_truth(self) && self.kind != JV_GEN) return INFER_OK;
    TRY(jv_iterate(J, self, &l));
    for (size_t i = 0; i < l->n; i++) {
        struct jv x;
        TRY(jinja_step(J, 1));
        if (fn)
            TRY(fn->call(J, l->v[i], &args, &x));
        else
            TRY(get_path(J, l->v[i], v[0], v[1], &x));
        TRY(jv_push(J, out->l, x));
    }
    return INFER_OK;
}

/* ---- shapes ---- */

FILTER(f_list) {
    struct jlist *l;
    TRY(jargs_bind(J, a, "list", "", NULL));
    TRY(jv_iterate(J, self, &l));
    TRY(jv_list(J, out, JV_LIST, l->n));
    for (size_t i = 0; i < l->n; i++) TRY(jv_push(J, out->l, l->v[i]));
    return INFER_OK;
}

FILTER(f_first) {
    struct jlist *l;
    TRY(jargs_bind(J, a, "first", "", NULL));
    TRY(jv_iterate(J, self, &l));
    if (l->n == 0) return jv_undefined(J, out, "No first item, sequence was empty.");
    *out = l->v[0];
    return INFER_OK;
}

FILTER(f_last) {
    struct jlist *l;
    TRY(jargs_bind(J, a, "last", "", NULL));
    if (self.kind == JV_GEN) return jinja_fail(J, "'generator' object is not reversible");
    TRY(jv_iterate(J, self, &l));
    if (l->n == 0) return jv_undefined(J, out, "No last item, sequence was empty.");
    *out = l->v[l->n - 1];
    return INFER_OK;
}

FILTER(f_length) {
    int64_t n;
    TRY(jargs_bind(J, a, "length", "", NULL));
    TRY(jv_length(J, self, &n));
    *out = jv_int(n);
    return INFER_OK;
}

FILTER(f_reverse) {
    struct jlist *l;
    TRY(jargs_bind(J, a, "reverse", "", NULL));
    if (self.kind == JV_STRING) return jv_slice(J, self, jv_none(), jv_none(), jv_int(-1), out);
    TRY(jv_iterate(J, self, &l));
    TRY(jv_list(J, out, JV_GEN, l->n));
    for (size_t i = l->n; i > 0; i--) TRY(jv_push(J, out->l, l->v[i - 1]));
    return INFER_OK;
}

FILTER(f_join) {
    struct jv v[2], mapped, x;
    struct jlist *l;
    const struct jstr *sep;
    TRY(jargs_bind(J, a, "join", "?d ?attribute", v));
    TRY(jv_iterate(J, self, &l));
    if (v[0].kind == JV_MISSING) TRY(jv_lit(J, &v[0], ""));
    TRY(jv_text(J, v[0], &sep));
    if (v[1].kind != JV_MISSING && v[1].kind != JV_NONE) {
        TRY(jv_list(J, &mapped, JV_LIST, l->n));
        for (size_t i = 0; i < l->n; i++) {
            TRY(get_path(J, l->v[i], v[1], (struct jv){.kind = JV_MISSING}, &x));
            TRY(jv_push(J, mapped.l, x));
        }
        l = mapped.l;
    }
    return js_join(J, sep, l, true, out);
}

FILTER(f_batch) {
    struct jv v[2], row = jv_none();
    struct jlist *l;
    TRY(jargs_bind(J, a, "batch", "linecount ?fill_with", v));
    TRY(jv_iterate(J, self, &l));
    if (!jv_is_int(v[0]) || jv_integer(v[0]) < 1)
        return jinja_fail(J, "batch: the count is a number above 0");
    size_t width = (size_t)jv_integer(v[0]);
    TRY(jv_list(J, out, JV_GEN, 0));
    for (size_t i = 0; i < l->n; i++) {
        if (i % width == 0) {
            TRY(jv_list(J, &row, JV_LIST, 0));
            TRY(jv_push(J, out->l, row));
        }
        TRY(jv_push(J, row.l, l->v[i]));
    }
    while (row.kind == JV_LIST && row.l->n < width && v[1].kind != JV_MISSING && v[1].kind != JV_NONE)
        TRY(jv_push(J, row.l, v[1]));
    return INFER_OK;
}

FILTER(f_slice) {
    struct jv v[2], part;
    struct jlist *l;
    TRY(jargs_bind(J, a, "slice", "slices ?fill_with", v));
    TRY(jv_iterate(J, self, &l));
    if (!jv_is_int(v[0]) || jv_integer(v[0]) < 1)
        return jinja_fail(J, "slice: the count is a number above 0");
    size_t n = (size_t)jv_integer(v[0]), each = l->n / n, extra = l->n % n, at = 0;
    if (n > JINJA_MAX_RANGE) return jinja_fail(J, "slice: more than %d parts", JINJA_MAX_RANGE);
    TRY(jv_list(J, out, JV_GEN, 0));
    for (size_t i = 0; i < n; i++) {
        size_t count = each + (i < extra);
        TRY(jv_list(J, &part, JV_LIST, count));
        for (size_t k = 0; k < count; k++) TRY(jv_push(J, part.l, l->v[at++]));
        if (v[1].kind != JV_MISSING && v[1].kind != JV_NONE && i >= extra) TRY(jv_push(J, part.l, v[1]));
        TRY(jv_push(J, out->l, part));
    }
    return INFER_OK;
}

/* Tuples of the elements that stand at the same place, as many as the shortest has. */
FILTER(f_zip) {
    struct jlist *first, *l;
    TRY(jv_iterate(J, self, &first));
    TRY(jv_list(J, out, JV_GEN, 0));
    for (size_t i = 0; i < first->n; i++) {
        struct jv row;
        TRY(jv_list(J, &row, JV_TUPLE, a->n_pos + 1));
        TRY(jv_push(J, row.l, first->v[i]));
        TRY(jv_push(J, out->l, row));
    }
    for (size_t k = 0; k < a->n_pos; k++) {
        TRY(jv_iterate(J, a->pos[k], &l));
        if (l->n < out->l->n) out->l->n = l->n;
        for (size_t i = 0; i < out->l->n; i++) TRY(jv_push(J, out->l->v[i].l, l->v[i]));
    }
    return INFER_OK;
}

/* The elements of all arguments, one after the other. */
FILTER(f_chain) {
    struct jlist *l;
    TRY(jv_list(J, out, JV_GEN, 0));
    for (size_t k = 0; k <= a->n_pos; k++) {
        TRY(jv_iterate(J, k ? a->pos[k - 1] : self, &l));
        for (size_t i = 0; i < l->n; i++) TRY(jv_push(J, out->l, l->v[i]));
    }
    return INFER_OK;
}

/* Chance that can be repeated: it follows from the time of the rendering and from the steps before. */
FILTER(f_random) {
    struct jlist *l;
    TRY(jargs_bind(J, a, "random", "", NULL));
    TRY(jv_iterate(J, self, &l));
    if (l->n == 0) return jv_undefined(J, out, "No random item, sequence was empty.");
    uint64_t x = J->steps + 1;
    const int part[] = {J->now.tm_year, J->now.tm_yday, J->now.tm_hour, J->now.tm_min, J->now.tm_sec};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) x = (x ^ (uint64_t)part[i]) * 0x9e3779b97f4a7c15u;
    *out = l->v[(x >> 33) % l->n];
    return INFER_OK;
}

FILTER(f_attr) {
    struct jv v[1], m;
    TRY(jargs_bind(J, a, "attr", "name", v));
    if (v[0].kind != JV_STRING) return jinja_fail(J, "attr: the name is a text");
    TRY(jv_getattr(J, self, v[0].s, &m)); /* an attribute, never an item of a dict */
    if (m.kind == JV_METHOD || self.kind != JV_DICT)
        *out = m;
    else
        return jv_undefined(J, out, "'dict object' has no attribute '%.*s'",
                            (int)(v[0].s->n > 120 ? 120 : v[0].s->n), v[0].s->p);
    return INFER_OK;
}

const struct jbuiltin *jinja_filter_seq(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"attr", f_attr},       {"batch", f_batch},       {"chain", f_chain},
        {"count", f_length},    {"dictsort", f_dictsort}, {"first", f_first},
        {"groupby", f_groupby}, {"items", f_items},       {"join", f_join},
        {"last", f_last},       {"length", f_length},     {"list", f_list},
        {"map", f_map},         {"max", f_max},           {"min", f_min},
        {"random", f_random},   {"reject", f_reject},     {"rejectattr", f_rejectattr},
        {"reverse", f_reverse}, {"select", f_select},     {"selectattr", f_selectattr},
        {"slice", f_slice},     {"sort", f_sort},         {"sum", f_sum},
        {"unique", f_unique},   {"zip", f_zip},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name, n);
}

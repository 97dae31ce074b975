/* Methods of text, as Python's str has them. Positions and widths count code points. */
#include "text/jinja/jinja_int.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name)                                                                                         \
    static enum infer_status name(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out)

static enum infer_status text_arg(struct jinja *J, struct jv v, const struct jstr **out) {
    static const struct jstr empty = {.p = ""};
    *out = &empty;
    if (v.kind == JV_UNDEFINED) return jv_fail_undefined(J, v);
    if (v.kind != JV_STRING) return jinja_fail(J, "a str is needed here, not %s", jv_type(v));
    *out = v.s;
    return INFER_OK;
}

static enum infer_status int_arg(struct jinja *J, struct jv v, int64_t missing, int64_t *out) {
    *out = missing;
    if (v.kind == JV_MISSING) return INFER_OK;
    if (!jv_is_int(v)) return jinja_fail(J, "'%s' object cannot be interpreted as an integer", jv_type(v));
    *out = jv_integer(v);
    return INFER_OK;
}

/* ---- strip ---- */

static bool in_set(const struct jstr *set, int32_t cp) {
    if (!set) return js_is_space(cp);
    for (size_t i = 0; i < set->n;) {
        int32_t c;
        i += (size_t)utf8_get(set->p + i, &c);
        if (c == cp) return true;
    }
    return false;
}

/* sides: 1 left, 2 right, 3 both */
enum infer_status js_strip(struct jinja *J, const struct jstr *s, struct jv chars, int sides,
                           struct jv *out) {
    const struct jstr *set = NULL;
    size_t from = 0, to = s->n;
    int32_t cp;
    if (chars.kind != JV_MISSING && chars.kind != JV_NONE) TRY(text_arg(J, chars, &set));
    while ((sides & 1) && from < to) {
        size_t len = (size_t)utf8_get(s->p + from, &cp);
        if (!in_set(set, cp)) break;
        TRY(jinja_step(J, set ? 1 + (set->n >> 4) : 0));
        from += len;
    }
    while ((sides & 2) && to > from) {
        size_t p = to - 1;
        while (p > from && (s->p[p] & 0xc0) == 0x80) p--;
        utf8_get(s->p + p, &cp);
        if (!in_set(set, cp)) break;
        TRY(jinja_step(J, set ? 1 + (set->n >> 4) : 0));
        to = p;
    }
    return jv_sub(J, s, from, to - from, out);
}

static enum infer_status strip_method(struct jinja *J, struct jv self, const struct jargs *a, int sides,
                                      struct jv *out) {
    struct jv v[1];
    TRY(jargs_bind(J, a, "strip", "?chars", v));
    return js_strip(J, self.s, v[0], sides, out);
}
METHOD(m_strip) { return strip_method(J, self, a, 3, out); }
METHOD(m_lstrip) { return strip_method(J, self, a, 1, out); }
METHOD(m_rstrip) { return strip_method(J, self, a, 2, out); }

static enum infer_status remove_affix(struct jinja *J, struct jv self, const struct jargs *a, bool prefix,
                                      struct jv *out) {
    struct jv v[1];
    const struct jstr *s;
    TRY(jargs_bind(J, a, "removeprefix", "affix", v));
    TRY(text_arg(J, v[0], &s));
    size_t n = self.s->n;
    bool hit = n >= s->n && memcmp(self.s->p + (prefix ? 0 : n - s->n), s->p, s->n) == 0;
    if (!hit) return jv_sub(J, self.s, 0, n, out);
    return jv_sub(J, self.s, prefix ? s->n : 0, n - s->n, out);
}
METHOD(m_removeprefix) { return remove_affix(J, self, a, true, out); }
METHOD(m_removesuffix) { return remove_affix(J, self, a, false, out); }

/* ---- split ---- */

static enum infer_status push_sub(struct jinja *J, struct jlist *l, const struct jstr *s, size_t from,
                                  size_t to) {
    struct jv v;
    TRY(jv_sub(J, s, from, to - from, &v));
    return jv_push(J, l, v);
}

static enum infer_status split_space(struct jinja *J, const struct jstr *s, int64_t max, struct jlist *l) {
    size_t i = 0;
    TRY(jinja_step(J, s->n >> 4));
    for (;;) {
        int32_t cp = 0;
        while (i < s->n) {
            int len = utf8_get(s->p + i, &cp);
            if (!js_is_space(cp)) break;
            i += (size_t)len;
        }
        if (i == s->n) return INFER_OK;
        size_t from = i;
        if (max >= 0 && (int64_t)l->n >= max) return push_sub(J, l, s, from, s->n);
        while (i < s->n) {
            int len = utf8_get(s->p + i, &cp);
            if (js_is_space(cp)) break;
            i += (size_t)len;
        }
        TRY(push_sub(J, l, s, from, i));
    }
}

static size_t find_last(const struct jstr *s, const struct jstr *needle, size_t from, size_t to) {
    if (to < from || to - from < needle->n) return SIZE_MAX;
    for (size_t i = to - needle->n;; i--) {
        if (memcmp(s->p + i, needle->p, needle->n) == 0) return i;
        if (i == from) return SIZE_MAX;
    }
}

static void reverse(struct jlist *l) {
    for (size_t i = 0, k = l->n; i + 1 < k; i++) {
        struct jv t = l->v[i];
        l->v[i] = l->v[--k];
        l->v[k] = t;
    }
}

/* From the right, by white space: words from the end, the rest as one. */
static enum infer_status rsplit_space(struct jinja *J, const struct jstr *s, int64_t max, struct jlist *l) {
    struct jv all, rest;
    TRY(jv_list(J, &all, JV_LIST, 0));
    TRY(split_space(J, s, -1, all.l));
    if ((int64_t)all.l->n <= max || max < 0) {
        *l = *all.l;
        return INFER_OK;
    }
    size_t keep = all.l->n - (size_t)max;
    const struct jstr *first = all.l->v[0].s, *last = all.l->v[keep - 1].s;
    size_t from = (size_t)(first->p - s->p), to = (size_t)(last->p - s->p) + last->n;
    TRY(js_strip(J, s, jv_none(), 1, &rest));
    TRY(push_sub(J, l, s, max == 0 ? from : (size_t)(rest.s->p - s->p), to));
    for (size_t i = keep; i < all.l->n; i++) TRY(jv_push(J, l, all.l->v[i]));
    return INFER_OK;
}

static enum infer_status split(struct jinja *J, struct jv self, const struct jargs *a, bool right,
                               struct jv *out) {
    struct jv v[2];
    int64_t max;
    const struct jstr *sep, *s = self.s;
    TRY(jargs_bind(J, a, "split", "?sep ?maxsplit", v));
    TRY(int_arg(J, v[1], -1, &max));
    TRY(jv_list(J, out, JV_LIST, 0));
    if (v[0].kind == JV_MISSING || v[0].kind == JV_NONE)
        return right ? rsplit_space(J, s, max, out->l) : split_space(J, s, max, out->l);
    TRY(text_arg(J, v[0], &sep));
    if (sep->n == 0) return jinja_fail(J, "empty separator");
    TRY(jinja_step(J, s->n >> 4));
    if (right) {
        size_t to = s->n, hit;
        while ((max < 0 || (int64_t)out->l->n < max) && (hit = find_last(s, sep, 0, to)) != SIZE_MAX) {
            TRY(push_sub(J, out->l, s, hit + sep->n, to));
            to = hit;
        }
        TRY(push_sub(J, out->l, s, 0, to));
        reverse(out->l);
        return INFER_OK;
    }
    size_t from = 0, hit;
    while ((max < 0 || (int64_t)out->l->n < max) && (hit = js_find(s, sep, from, s->n)) != SIZE_MAX) {
        TRY(push_sub(J, out->l, s, from, hit));
        from = hit + sep->n;
    }
    return push_sub(J, out->l, s, from, s->n);
}
METHOD(m_split) { return split(J, self, a, false, out); }
METHOD(m_rsplit) { return split(J, self, a, true, out); }

static bool line_break(int32_t cp) {
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

METHOD(m_splitlines) {
    struct jv v[1];
    const struct jstr *s = self.s;
    TRY(jargs_bind(J, a, "splitlines", "?keepends", v));
    TRY(jv_list(J, out, JV_LIST, 0));
    size_t from = 0;
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t end = i;
        i += (size_t)utf8_get(s->p + i, &cp);
        if (!line_break(cp)) continue;
        if (cp == '\r' && i < s->n && s->p[i] == '\n') i++;
        TRY(push_sub(J, out->l, s, from, jv_truth(v[0]) ? i : end));
        from = i;
    }
    return from < s->n ? push_sub(J, out->l, s, from, s->n) : INFER_OK;
}

static enum infer_status partition(struct jinja *J, struct jv self, const struct jargs *a, bool right,
                                   struct jv *out) {
    struct jv v[1];
    const struct jstr *sep, *s = self.s;
    TRY(jargs_bind(J, a, "partition", "sep", v));
    TRY(text_arg(J, v[0], &sep));
    if (sep->n == 0) return jinja_fail(J, "empty separator");
    TRY(jinja_step(J, s->n >> 4));
    size_t hit = right ? find_last(s, sep, 0, s->n) : js_find(s, sep, 0, s->n);
    TRY(jv_list(J, out, JV_TUPLE, 3));
    if (hit == SIZE_MAX) {
        if (right)
            for (int i = 0; i < 2; i++) TRY(push_sub(J, out->l, s, 0, 0));
        TRY(jv_push(J, out->l, self));
        if (!right)
            for (int i = 0; i < 2; i++) TRY(push_sub(J, out->l, s, 0, 0));
        return INFER_OK;
    }
    TRY(push_sub(J, out->l, s, 0, hit));
    TRY(push_sub(J, out->l, s, hit, hit + sep->n));
    return push_sub(J, out->l, s, hit + sep->n, s->n);
}
METHOD(m_partition) { return partition(J, self, a, false, out); }
METHOD(m_rpartition) { return partition(J, self, a, true, out); }

/* ---- find ---- */

/* Code point range [start, end) as bytes; *ok false when it is empty in a way that holds not even "". */
static enum infer_status byte_range(struct jinja *J, const struct jstr *s, struct jv start, struct jv end,
                                    size_t *from, size_t *to, bool *ok) {
    int64_t n, i, k;
    struct jv none = {.kind = JV_MISSING};
    TRY(jinja_step(J, s->n >> 6));
    n = (int64_t)js_chars(s);
    TRY(int_arg(J, start.kind == JV_NONE ? none : start, 0, &i));
    TRY(int_arg(J, end.kind == JV_NONE ? none : end, n, &k));
    if (i < 0) i = i + n < 0 ? 0 : i + n;
    if (k < 0) k = k + n < 0 ? 0 : k + n;
    if (k > n) k = n;
    *ok = i <= k;
    *from = js_offset(s, i > n ? (size_t)n : (size_t)i);
    *to = js_offset(s, (size_t)k);
    return INFER_OK;
}

static enum infer_status find(struct jinja *J, struct jv self, const struct jargs *a, bool last, bool must,
                              struct jv *out) {
    struct jv v[3];
    const struct jstr *needle;
    size_t from, to, hit = SIZE_MAX;
    bool ok;
    TRY(jargs_bind(J, a, "find", "sub ?start ?end", v));
    TRY(text_arg(J, v[0], &needle));
    TRY(byte_range(J, self.s, v[1], v[2], &from, &to, &ok));
    if (ok) hit = last ? find_last(self.s, needle, from, to) : js_find(self.s, needle, from, to);
    if (hit == SIZE_MAX && must) return jinja_fail(J, "substring not found");
    struct jstr head = {.p = self.s->p, .n = hit};
    *out = jv_int(hit == SIZE_MAX ? -1 : (int64_t)js_chars(&head));
    return INFER_OK;
}
METHOD(m_find) { return find(J, self, a, false, false, out); }
METHOD(m_rfind) { return find(J, self, a, true, false, out); }
METHOD(m_index) { return find(J, self, a, false, true, out); }
METHOD(m_rindex) { return find(J, self, a, true, true, out); }

METHOD(m_count) {
    struct jv v[3];
    const struct jstr *needle;
    size_t from, to;
    bool ok;
    TRY(jargs_bind(J, a, "count", "sub ?start ?end", v));
    TRY(text_arg(J, v[0], &needle));
    TRY(byte_range(J, self.s, v[1], v[2], &from, &to, &ok));
    int64_t n = 0;
    if (ok && needle->n == 0) {
        struct jstr part = {.p = self.s->p + from, .n = to - from};
        n = (int64_t)js_chars(&part) + 1;
    }
    for (size_t hit; ok && needle->n && (hit = js_find(self.s, needle, from, to)) != SIZE_MAX; n++)
        from = hit + needle->n;
    *out = jv_int(n);
    return INFER_OK;
}

static enum infer_status affix(struct jinja *J, struct jv self, const struct jargs *a, bool start,
                               struct jv *out) {
    struct jv v[3];
    size_t from, to;
    bool ok;
    TRY(jargs_bind(J, a, start ? "startswith" : "endswith", "affix ?start ?end", v));
    TRY(byte_range(J, self.s, v[1], v[2], &from, &to, &ok));
    struct jv one[1] = {v[0]};
    struct jlist single = {.v = one, .n = 1}, *l = v[0].kind == JV_TUPLE ? v[0].l : &single;
    *out = jv_bool(false);
    for (size_t i = 0; i < l->n && !out->b; i++) {
        const struct jstr *s;
        TRY(text_arg(J, l->v[i], &s));
        out->b = ok && to - from >= s->n && memcmp(self.s->p + (start ? from : to - s->n), s->p, s->n) == 0;
    }
    return INFER_OK;
}
METHOD(m_startswith) { return affix(J, self, a, true, out); }
METHOD(m_endswith) { return affix(J, self, a, false, out); }

/* ---- replace, join ---- */

enum infer_status js_replace(struct jinja *J, const struct jstr *s, const struct jstr *old,
                             const struct jstr *new_, int64_t count, struct jv *out) {
    struct jbuf b = {.J = J};
    size_t from = 0;
    TRY(jinja_step(J, s->n >> 6));
    for (; count != 0; count--) {
        if (old->n == 0) { /* between all code points */
            TRY(jinja_step(J, 1));
            TRY(jbuf_str(&b, new_));
            if (from == s->n) break;
            int32_t cp;
            size_t len = (size_t)utf8_get(s->p + from, &cp);
            TRY(jbuf_sub(&b, s, from, len));
            from += len;
            continue;
        }
        size_t hit = js_find(s, old, from, s->n);
        if (hit == SIZE_MAX) break;
        TRY(jinja_step(J, 1));
        TRY(jbuf_sub(&b, s, from, hit - from));
        TRY(jbuf_str(&b, new_));
        from = hit + old->n;
    }
    if (from == 0 && b.n == 0) return jv_sub(J, s, 0, s->n, out);
    TRY(jbuf_sub(&b, s, from, s->n - from));
    return jbuf_value(&b, s->safe, out);
}

METHOD(m_replace) {
    struct jv v[3];
    const struct jstr *old, *new_;
    int64_t count;
    TRY(jargs_bind(J, a, "replace", "old new ?count", v));
    TRY(text_arg(J, v[0], &old));
    TRY(text_arg(J, v[1], &new_));
    TRY(int_arg(J, v[2], -1, &count));
    return js_replace(J, self.s, old, new_, count, out);
}

enum infer_status js_join(struct jinja *J, const struct jstr *sep, const struct jlist *items, bool convert,
                          struct jv *out) {
    struct jbuf b = {.J = J};
    for (size_t i = 0; i < items->n; i++) {
        const struct jstr *s;
        TRY(jinja_step(J, 1));
        if (i) TRY(jbuf_str(&b, sep));
        if (!convert && items->v[i].kind != JV_STRING)
            return jinja_fail(J, "sequence item %zu: expected str instance, %s found", i,
                              jv_type(items->v[i]));
        TRY(jv_text(J, items->v[i], &s));
        TRY(jbuf_str(&b, s));
    }
    return jbuf_value(&b, false, out);
}

METHOD(m_join) {
    struct jv v[1];
    struct jlist *l;
    TRY(jargs_bind(J, a, "join", "iterable", v));
    TRY(jv_iterate(J, v[0], &l));
    return js_join(J, self.s, l, false, out);
}

METHOD(m_format) { return js_format(J, self.s, a, out); }

/* ---- padding ---- */

static enum infer_status pad(struct jinja *J, struct jv self, const struct jargs *a, int side,
                             struct jv *out) {
    struct jv v[2];
    int64_t width;
    const struct jstr *fill = NULL;
    struct jstr blank = {.p = " ", .n = 1};
    TRY(jargs_bind(J, a, "center", "width ?fillchar", v));
    TRY(int_arg(J, v[0], 0, &width));
    if (v[1].kind != JV_MISSING)
        TRY(text_arg(J, v[1], &fill));
    else
        fill = &blank;
    if (js_chars(fill) != 1) return jinja_fail(J, "The fill character must be exactly one character long");
    int64_t n = (int64_t)js_chars(self.s), gap = width > n ? width - n : 0;
    int64_t left = side == 0 ? gap / 2 + (gap & width & 1) : side < 0 ? 0 : gap;
    if (gap > JINJA_MAX_STRING) return jinja_fail(J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
    struct jbuf b = {.J = J};
    TRY(jinja_step(J, (uint64_t)gap));
    for (int64_t i = 0; i < left; i++) TRY(jbuf_str(&b, fill));
    TRY(jbuf_str(&b, self.s));
    for (int64_t i = left; i < gap; i++) TRY(jbuf_str(&b, fill));
    return jbuf_value(&b, self.s->safe, out);
}
METHOD(m_center) { return pad(J, self, a, 0, out); }
METHOD(m_ljust) { return pad(J, self, a, -1, out); }
METHOD(m_rjust) { return pad(J, self, a, 1, out); }

METHOD(m_zfill) {
    struct jv v[1];
    int64_t width, n = (int64_t)js_chars(self.s);
    TRY(jargs_bind(J, a, "zfill", "width", v));
    TRY(int_arg(J, v[0], 0, &width));
    if (width - n > JINJA_MAX_STRING)
        return jinja_fail(J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
    size_t sign = self.s->n && (self.s->p[0] == '-' || self.s->p[0] == '+');
    struct jbuf b = {.J = J};
    TRY(jbuf_sub(&b, self.s, 0, sign));
    if (width > n) TRY(jbuf_fill(&b, '0', (size_t)(width - n)));
    TRY(jbuf_sub(&b, self.s, sign, self.s->n - sign));
    return jbuf_value(&b, self.s->safe, out);
}

METHOD(m_expandtabs) {
    struct jv v[1];
    int64_t tab, column = 0;
    TRY(jargs_bind(J, a, "expandtabs", "?tabsize", v));
    TRY(int_arg(J, v[0], 8, &tab));
    struct jbuf b = {.J = J};
    for (size_t i = 0; i < self.s->n; i++) {
        char c = self.s->p[i];
        if (c == '\t') {
            int64_t gap = tab > 0 ? tab - column % tab : 0;
            if (gap > JINJA_MAX_STRING)
                return jinja_fail(J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
            TRY(jbuf_fill(&b, ' ', (size_t)gap));
            column += gap;
            continue;
        }
        TRY(jbuf_sub(&b, self.s, i, 1));
        column = c == '\n' || c == '\r' ? 0 : column + ((c & 0xc0) != 0x80);
    }
    return jbuf_value(&b, self.s->safe, out);
}

const struct jbuiltin *jinja_str_method(const char *name, size_t n) {
    static const struct jbuiltin table[] = {
        {"center", m_center},
        {"count", m_count},
        {"endswith", m_endswith},
        {"expandtabs", m_expandtabs},
        {"find", m_find},
        {"format", m_format},
        {"index", m_index},
        {"join", m_join},
        {"ljust", m_ljust},
        {"lstrip", m_lstrip},
        {"partition", m_partition},
        {"removeprefix", m_removeprefix},
        {"removesuffix", m_removesuffix},
        {"replace", m_replace},
        {"rfind", m_rfind},
        {"rindex", m_rindex},
        {"rjust", m_rjust},
        {"rpartition", m_rpartition},
        {"rsplit", m_rsplit},
        {"rstrip", m_rstrip},
        {"split", m_split},
        {"splitlines", m_splitlines},
        {"startswith", m_startswith},
        {"strip", m_strip},
        {"zfill", m_zfill},
    };
    const struct jbuiltin *fn = jbuiltin_find(table, sizeof table / sizeof *table, name, n);
    return fn ? fn : jinja_case_method(name, n);
}

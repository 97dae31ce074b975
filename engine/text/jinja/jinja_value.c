#define _GNU_SOURCE /* memmem, memrchr */
#include "text/jinja/jinja_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* ---- errors, memory, budgets ---- */

enum infer_status jinja_fail(struct jinja *J, const char *format, ...) {
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(INFER_E_INPUT, "template line %d: %s", J->line, text);
}

enum infer_status jinja_new(struct jinja *J, void *out_pointer, size_t n) {
    if (n > JINJA_MAX_MEMORY || J->arena.total > JINJA_MAX_MEMORY - n)
        return jinja_fail(J, "the template uses more than %d MiB", JINJA_MAX_MEMORY >> 20);
    void *p = arena_alloc(&J->arena, n);
    memcpy(out_pointer, &p, sizeof p);
    if (!p) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for a chat template", n);
    return INFER_OK;
}

enum infer_status jinja_step(struct jinja *J, uint64_t n) {
    J->steps += n;
    if (J->steps > JINJA_MAX_STEPS)
        return jinja_fail(J, "the template takes more than %d steps", JINJA_MAX_STEPS);
    return INFER_OK;
}

enum infer_status jinja_enter(struct jinja *J) {
    if (J->eval_depth >= JINJA_MAX_EVAL)
        return jinja_fail(J, "values or expressions nested deeper than %d", JINJA_MAX_EVAL);
    J->eval_depth++;
    return INFER_OK;
}

void jinja_end(struct jinja *J) { arena_free(&J->arena); }

/* ---- text building ---- */

static enum infer_status jbuf_room(struct jbuf *b, size_t n) {
    if (n > JINJA_MAX_STRING || b->n > JINJA_MAX_STRING - n)
        return jinja_fail(b->J, "a text grows beyond %d MiB", JINJA_MAX_STRING >> 20);
    TRY(jinja_step(b->J, n >> 6));
    if (b->n + n <= b->cap) return INFER_OK;
    size_t cap = b->cap * 2 > b->n + n ? b->cap * 2 : b->n + n;
    if (cap < 32) cap = 32;
    char *p;
    TRY(jinja_new(b->J, &p, cap));
    if (b->n) memcpy(p, b->p, b->n);
    if (b->m) {
        uint8_t *m;
        TRY(jinja_new(b->J, &m, cap));
        memcpy(m, b->m, b->n);
        b->m = m;
    }
    b->p = p;
    b->cap = cap;
    return INFER_OK;
}

/* Room for n bytes at the end, marks there zero or (any) allocated. */
static enum infer_status jbuf_open(struct jbuf *b, size_t n, bool marked) {
    TRY(jbuf_room(b, n));
    if (marked && !b->m) TRY(jinja_new(b->J, &b->m, b->cap));
    return INFER_OK;
}

enum infer_status jbuf_add(struct jbuf *b, const char *p, const uint8_t *m, size_t n) {
    if (n == 0) return INFER_OK;
    TRY(jbuf_open(b, n, m != NULL));
    memcpy(b->p + b->n, p, n);
    if (m) {
        memcpy(b->m + b->n, m, n);
    } else if (b->m) {
        memset(b->m + b->n, 0, n);
    }
    b->n += n;
    return INFER_OK;
}

enum infer_status jbuf_one(struct jbuf *b, const char *p, size_t n, bool mark) {
    TRY(jbuf_add(b, p, NULL, n));
    if (!mark || n == 0) return INFER_OK;
    TRY(jbuf_open(b, 0, true));
    memset(b->m + b->n - n, 1, n);
    return INFER_OK;
}

enum infer_status jbuf_fill(struct jbuf *b, char c, size_t n) {
    if (n == 0) return INFER_OK;
    TRY(jbuf_room(b, n));
    memset(b->p + b->n, c, n);
    if (b->m) memset(b->m + b->n, 0, n);
    b->n += n;
    return INFER_OK;
}

enum infer_status jbuf_lit(struct jbuf *b, const char *s) { return jbuf_add(b, s, NULL, strlen(s)); }

static enum infer_status jstr_new(struct jinja *J, struct jv *out, struct jstr s) {
    struct jstr *copy;
    TRY(jinja_new(J, &copy, sizeof *copy));
    *copy = s;
    *out = (struct jv){.kind = JV_STRING, .s = copy};
    return INFER_OK;
}

enum infer_status jbuf_value(struct jbuf *b, bool safe, struct jv *out) {
    return jstr_new(b->J, out, (struct jstr){.p = b->n ? b->p : "", .m = b->m, .n = b->n, .safe = safe});
}

enum infer_status jv_string(struct jinja *J, struct jv *out, const char *p, size_t n) {
    return jstr_new(J, out, (struct jstr){.p = p, .n = n});
}

enum infer_status jv_lit(struct jinja *J, struct jv *out, const char *s) {
    return jv_string(J, out, s, strlen(s));
}

enum infer_status jv_string_copy(struct jinja *J, struct jv *out, const char *p, size_t n, bool mark) {
    struct jbuf b = {.J = J};
    TRY(jbuf_one(&b, p, n, mark && n > 0));
    return jbuf_value(&b, false, out);
}

enum infer_status jv_sub(struct jinja *J, const struct jstr *s, size_t at, size_t n, struct jv *out) {
    if (at == 0 && n == s->n) {
        *out = (struct jv){.kind = JV_STRING, .s = s};
        return INFER_OK;
    }
    return jstr_new(J, out,
                    (struct jstr){.p = s->p + at, .m = s->m ? s->m + at : NULL, .n = n, .safe = s->safe});
}

/* ---- UTF-8 ---- */

int utf8_get(const char *p, int32_t *cp) {
    const unsigned char *s = (const unsigned char *)p;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    int32_t c = s[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3f);
    *cp = c;
    return n;
}

int utf8_put(char *out, int32_t cp) { return (int)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out); }

bool utf8_valid(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)p + i, (utf8proc_ssize_t)(n - i), &cp);
        if (len <= 0) return false;
        i += (size_t)len;
    }
    return true;
}

size_t js_chars(const struct jstr *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += (s->p[i] & 0xc0) != 0x80;
    return n;
}

size_t js_offset(const struct jstr *s, size_t i) {
    size_t o = 0;
    for (; i > 0 && o < s->n; i--) {
        do o++;
        while (o < s->n && (s->p[o] & 0xc0) == 0x80);
    }
    return o;
}

bool js_is_space(int32_t cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool js_eq(const struct jstr *a, const struct jstr *b) {
    return a == b || (a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0));
}

bool js_is(const struct jstr *s, const char *lit) {
    return s->n == strlen(lit) && memcmp(s->p, lit, s->n) == 0;
}

size_t js_find(const struct jstr *s, const struct jstr *needle, size_t from, size_t to) {
    if (from > to || to - from < needle->n) return SIZE_MAX;
    if (needle->n == 0) return from;
    const char *hit = memmem(s->p + from, to - from, needle->p, needle->n);
    return hit ? (size_t)(hit - s->p) : SIZE_MAX;
}

/* ---- lists and dicts ---- */

enum infer_status jv_list(struct jinja *J, struct jv *out, enum jv_kind kind, size_t cap) {
    struct jlist *l;
    TRY(jinja_new(J, &l, sizeof *l));
    if (cap) TRY(jinja_new(J, &l->v, cap * sizeof *l->v));
    l->cap = cap;
    *out = (struct jv){.kind = kind, .l = l};
    return INFER_OK;
}

enum infer_status jv_push(struct jinja *J, struct jlist *l, struct jv v) {
    TRY(jinja_step(J, 1));
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct jv *p;
        TRY(jinja_new(J, &p, cap * sizeof *p));
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return INFER_OK;
}

enum infer_status jv_dict(struct jinja *J, struct jv *out) {
    struct jdict *d;
    TRY(jinja_new(J, &d, sizeof *d));
    *out = (struct jv){.kind = JV_DICT, .d = d};
    return INFER_OK;
}

static uint32_t hash_bytes(const void *p, size_t n, uint32_t h) {
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 16777619u; /* FNV-1a */
    return h ^ h >> 15;
}

static uint32_t key_hash(struct jv k) {
    if (k.kind == JV_STRING) return hash_bytes(k.s->p, k.s->n, 2166136261u);
    if (jv_is_number(k)) {
        double f = jv_number(k);
        if (f == 0) f = 0; /* -0.0 equals 0 */
        return hash_bytes(&f, sizeof f, 2166136261u);
    }
    return k.kind; /* none; tuples, which are rare */
}

static bool key_equal(struct jv a, struct jv b) {
    if (a.kind == JV_STRING || b.kind == JV_STRING) return a.kind == b.kind && js_eq(a.s, b.s);
    if (jv_is_int(a) && jv_is_int(b)) return jv_integer(a) == jv_integer(b);
    if (jv_is_number(a) && jv_is_number(b)) return jv_number(a) == jv_number(b);
    if (a.kind != b.kind) return false;
    if (a.kind == JV_TUPLE) {
        if (a.l->n != b.l->n) return false;
        for (size_t i = 0; i < a.l->n; i++)
            if (!key_equal(a.l->v[i], b.l->v[i])) return false;
    }
    return true;
}

static enum infer_status key_check(struct jinja *J, struct jv k, int depth) {
    if (k.kind == JV_UNDEFINED) return jv_fail_undefined(J, k);
    if (k.kind == JV_TUPLE && depth < 8) {
        for (size_t i = 0; i < k.l->n; i++) TRY(key_check(J, k.l->v[i], depth + 1));
        return INFER_OK;
    }
    if (k.kind == JV_STRING || k.kind == JV_NONE || jv_is_number(k)) return INFER_OK;
    return jinja_fail(J, "unhashable type: '%s'", jv_type(k));
}

static struct jentry *dict_entry(const struct jdict *d, struct jv key) {
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (key_equal(d->e[i].key, key)) return &d->e[i];
        return NULL;
    }
    for (size_t h = key_hash(key);; h++) {
        uint32_t at = d->index[h & (d->n_index - 1)];
        if (at == 0) return NULL;
        if (key_equal(d->e[at - 1].key, key)) return &d->e[at - 1];
    }
}

static void dict_index(struct jdict *d, size_t i) {
    size_t h = key_hash(d->e[i].key);
    while (d->index[h & (d->n_index - 1)]) h++;
    d->index[h & (d->n_index - 1)] = (uint32_t)(i + 1);
}

enum infer_status jv_dict_set(struct jinja *J, struct jdict *d, struct jv key, struct jv value) {
    TRY(jinja_step(J, 1));
    TRY(key_check(J, key, 0));
    struct jentry *old = dict_entry(d, key);
    if (old) {
        old->value = value;
        return INFER_OK;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 8;
        struct jentry *e;
        TRY(jinja_new(J, &e, cap * sizeof *e));
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
        if (cap > 8) {
            TRY(jinja_new(J, &d->index, 2 * cap * sizeof *d->index));
            d->n_index = 2 * cap;
            for (size_t i = 0; i < d->n; i++) dict_index(d, i);
        }
    }
    d->e[d->n++] = (struct jentry){key, value};
    if (d->index) dict_index(d, d->n - 1);
    return INFER_OK;
}

enum infer_status jv_dict_remove(struct jinja *J, struct jdict *d, struct jv key) {
    struct jentry *e = dict_entry(d, key);
    size_t at = (size_t)(e - d->e);
    TRY(jinja_step(J, d->n_index >> 2));
    memmove(e, e + 1, (d->n - at - 1) * sizeof *e);
    d->n--;
    if (!d->index) return INFER_OK;
    memset(d->index, 0, d->n_index * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++) dict_index(d, i);
    return INFER_OK;
}

const struct jv *jv_dict_get(const struct jdict *d, struct jv key) {
    struct jentry *e = dict_entry(d, key);
    return e ? &e->value : NULL;
}

/* ---- undefined values ---- */

enum infer_status jv_undefined(struct jinja *J, struct jv *out, const char *format, ...) {
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    struct jundef *u;
    TRY(jinja_new(J, &u, sizeof *u));
    size_t n = strlen(text);
    char *copy;
    TRY(jinja_new(J, &copy, n + 1));
    memcpy(copy, text, n);
    u->what = copy;
    *out = (struct jv){.kind = JV_UNDEFINED, .u = u};
    return INFER_OK;
}

enum infer_status jv_fail_undefined(struct jinja *J, struct jv v) { return jinja_fail(J, "%s", v.u->what); }

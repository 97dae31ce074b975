/* The tojson filter: text as Python's json.dumps writes it. */
#include "text/jinja/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct writer {
    struct jbuf *b;
    const char *item_sep, *key_sep;
    const struct jstr *indent; /* NULL: one line */
    bool ascii, sort;
};

static enum infer_status json_string(struct writer *w, const struct jstr *s) {
    TRY(jbuf_lit(w->b, "\""));
    for (size_t i = 0; i < s->n;) {
        int32_t cp;
        size_t len = (size_t)utf8_get(s->p + i, &cp);
        static const char named[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
        const char *hit = cp && cp < 0x80 ? strchr(named, cp) : NULL;
        char esc[16] = "";
        if (hit)
            snprintf(esc, sizeof esc, "\\%c", letter[hit - named]);
        else if (cp < 0x20 || (w->ascii && (cp == 0x7f ? false : cp > 0x7f))) {
            if (cp < 0x10000)
                snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp);
            else {
                unsigned v = (unsigned)cp - 0x10000;
                snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
            }
        }
        if (esc[0])
            TRY(jbuf_one(w->b, esc, strlen(esc), s->m && s->m[i]));
        else
            TRY(jbuf_sub(w->b, s, i, len));
        i += len;
    }
    return jbuf_lit(w->b, "\"");
}

static enum infer_status json_number(struct writer *w, struct jv v) {
    char text[40];
    if (v.kind == JV_BOOL) return jbuf_lit(w->b, v.b ? "true" : "false");
    if (v.kind == JV_INT)
        snprintf(text, sizeof text, "%" PRId64, v.i);
    else if (isnan(v.f) || isinf(v.f))
        strcpy(text, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else
        float_repr(text, v.f);
    return jbuf_lit(w->b, text);
}

static enum infer_status json_break(struct writer *w, int level) {
    if (!w->indent) return INFER_OK;
    TRY(jbuf_lit(w->b, "\n"));
    for (int i = 0; i < level; i++) TRY(jbuf_str(w->b, w->indent));
    return INFER_OK;
}

static enum infer_status json_value(struct writer *w, struct jv v, int level);

static enum infer_status json_key(struct writer *w, struct jv k) {
    if (k.kind == JV_STRING) return json_string(w, k.s);
    if (k.kind != JV_NONE && !jv_is_number(k))
        return jinja_fail(w->b->J, "keys must be str, int, float, bool or None, not %s", jv_type(k));
    TRY(jbuf_lit(w->b, "\""));
    TRY(k.kind == JV_NONE ? jbuf_lit(w->b, "null") : json_number(w, k));
    return jbuf_lit(w->b, "\"");
}

static enum infer_status sorted_entries(struct jinja *J, const struct jdict *d, struct jentry **out) {
    TRY(jinja_new(J, out, (d->n + 1) * sizeof **out));
    struct jentry *e = *out;
    for (size_t i = 0; i < d->n; i++) { /* insertion sort: few keys */
        size_t at = i;
        for (; at > 0; at--) {
            int c;
            TRY(jv_compare(J, d->e[i].key, e[at - 1].key, "<", &c));
            if (c >= 0) break;
            e[at] = e[at - 1];
        }
        e[at] = d->e[i];
    }
    return INFER_OK;
}

static enum infer_status json_dict(struct writer *w, const struct jdict *d, int level) {
    if (d->n == 0) return jbuf_lit(w->b, "{}");
    struct jentry *e = d->e;
    if (w->sort) TRY(sorted_entries(w->b->J, d, &e));
    TRY(jbuf_lit(w->b, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(jbuf_lit(w->b, w->item_sep));
        TRY(json_break(w, level + 1));
        TRY(json_key(w, e[i].key));
        TRY(jbuf_lit(w->b, w->key_sep));
        TRY(json_value(w, e[i].value, level + 1));
    }
    TRY(json_break(w, level));
    return jbuf_lit(w->b, "}");
}

static enum infer_status json_list(struct writer *w, const struct jlist *l, int level) {
    if (l->n == 0) return jbuf_lit(w->b, "[]");
    TRY(jbuf_lit(w->b, "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i) TRY(jbuf_lit(w->b, w->item_sep));
        TRY(json_break(w, level + 1));
        TRY(json_value(w, l->v[i], level + 1));
    }
    TRY(json_break(w, level));
    return jbuf_lit(w->b, "]");
}

static enum infer_status json_any(struct writer *w, struct jv v, int level) {
    switch (v.kind) {
    case JV_NONE:
        return jbuf_lit(w->b, "null");
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT:
        return json_number(w, v);
    case JV_STRING:
        return json_string(w, v.s);
    case JV_LIST:
    case JV_TUPLE:
        return json_list(w, v.l, level);
    case JV_DICT:
        return json_dict(w, v.d, level);
    default:
        return jinja_fail(w->b->J, "Object of type %s is not JSON serializable", jv_type(v));
    }
}

static enum infer_status json_value(struct writer *w, struct jv v, int level) {
    TRY(jinja_step(w->b->J, 1));
    TRY(jinja_enter(w->b->J));
    enum infer_status st = json_any(w, v, level);
    w->b->J->eval_depth--;
    return st;
}

enum infer_status jbuf_json(struct jbuf *b, struct jv v, const char *item_sep, const char *key_sep,
                            const struct jstr *indent, bool ascii, bool sort, int level) {
    struct writer w = {b, item_sep, key_sep, indent, ascii, sort};
    return json_value(&w, v, level);
}

/* The from_json filter: text -> value, as Python's json.loads reads it. The marks of the text stay on what is made of it. */
#include "text/jinja/jinja_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct jinja *J;
    const struct jstr *s;
    size_t at;
};

/* Where: counted in characters, as Python does. */
static enum infer_status expected(const struct reader *r, const char *what, size_t at) {
    struct jstr head = {.p = r->s->p, .n = at};
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++) {
        if (head.p[i] != '\n') continue;
        line++;
        start = i + 1;
    }
    struct jstr row = {.p = head.p + start, .n = at - start};
    return jinja_fail(r->J, "from_json: %s: line %zu column %zu (char %zu)", what, line, js_chars(&row) + 1,
                      js_chars(&head));
}

static int peek(const struct reader *r) { return r->at < r->s->n ? (unsigned char)r->s->p[r->at] : -1; }

static int skip_blanks(struct reader *r) {
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\n' || peek(r) == '\r') r->at++;
    return peek(r);
}

static bool skip_word(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if (r->s->n - r->at < n || memcmp(r->s->p + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* ---- text ---- */

static bool hex4(const struct reader *r, size_t at, int32_t *out) {
    *out = 0;
    if (r->s->n - at < 4) return false;
    for (size_t i = at; i < at + 4; i++) {
        char c = r->s->p[i], low = c | 0x20;
        if (!((c >= '0' && c <= '9') || (low >= 'a' && low <= 'f'))) return false;
        *out = *out * 16 + (c <= '9' ? c - '0' : low - 'a' + 10);
    }
    return true;
}

/* The character behind a backslash at r->at - 1. */
static enum infer_status read_escape(struct reader *r, struct jbuf *b) {
    static const char letter[] = "\"\\/bfnrt", byte[] = "\"\\/\b\f\n\r\t";
    size_t start = r->at - 1;
    bool mark = r->s->m && r->s->m[start];
    int c = peek(r);
    const char *hit = c > 0 ? strchr(letter, c) : NULL;
    if (hit) {
        r->at++;
        return jbuf_one(b, &byte[hit - letter], 1, mark);
    }
    int32_t cp, low;
    if (c != 'u') return expected(r, "Invalid \\escape", start);
    if (!hex4(r, r->at + 1, &cp)) return expected(r, "Invalid \\uXXXX escape", start + 1);
    r->at += 5;
    if (cp >= 0xd800 && cp < 0xdc00 && peek(r) == '\\' && r->at + 1 < r->s->n && r->s->p[r->at + 1] == 'u' &&
        hex4(r, r->at + 2, &low) && low >= 0xdc00 && low < 0xe000) {
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    if (cp >= 0xd800 && cp < 0xe000) return expected(r, "half a surrogate pair is no character", start);
    char text[4];
    return jbuf_one(b, text, (size_t)utf8_put(text, cp), mark);
}

/* From the opening quote to behind the closing one. Without escapes the value is a view. */
static enum infer_status read_string(struct reader *r, struct jv *out) {
    struct jbuf b = {.J = r->J};
    size_t open = r->at++, from = r->at;
    bool escaped = false;
    for (;; r->at++) {
        int c = peek(r);
        if (c < 0) return expected(r, "Unterminated string starting at", open);
        if (c < 0x20) return expected(r, "Invalid control character at", r->at);
        if (c == '"') break;
        if (c != '\\') continue;
        TRY(jbuf_sub(&b, r->s, from, r->at++ - from));
        TRY(read_escape(r, &b));
        escaped = true;
        from = r->at--;
    }
    r->at++;
    if (!escaped) return jv_sub(r->J, r->s, from, r->at - 1 - from, out);
    TRY(jbuf_sub(&b, r->s, from, r->at - 1 - from));
    return jbuf_value(&b, false, out);
}

/* ---- numbers ---- */

static bool digit(int c) { return c >= '0' && c <= '9'; }

static size_t digits(struct reader *r) {
    size_t from = r->at;
    while (digit(peek(r))) r->at++;
    return r->at - from;
}

/* An integer beyond 64 bits becomes a float. */
static enum infer_status read_number(struct reader *r, struct jv *out) {
    size_t from = r->at;
    bool whole = true;
    r->at += peek(r) == '-';
    if (peek(r) == '0')
        r->at++;
    else if (digits(r) == 0)
        return expected(r, "Expecting value", from);
    size_t end = r->at;
    if (peek(r) == '.') {
        r->at++;
        if (digits(r)) {
            end = r->at;
            whole = false;
        }
    }
    r->at = end;
    if ((peek(r) | 0x20) == 'e') {
        r->at++;
        r->at += peek(r) == '+' || peek(r) == '-';
        if (digits(r)) {
            end = r->at;
            whole = false;
        }
    }
    r->at = end;
    char *text;
    TRY(jinja_new(r->J, &text, end - from + 1)); /* ended by 0 for the C library */
    memcpy(text, r->s->p + from, end - from);
    errno = 0;
    long long i = whole ? strtoll(text, NULL, 10) : 0;
    *out = whole && errno == 0 ? jv_int(i) : jv_float(strtod(text, NULL));
    return INFER_OK;
}

/* ---- lists, dicts, any value ---- */

static enum infer_status read_value(struct reader *r, struct jv *out);

static enum infer_status read_list(struct reader *r, struct jv *out) {
    struct jv v;
    r->at++;
    TRY(jv_list(r->J, out, JV_LIST, 0));
    if (skip_blanks(r) == ']') {
        r->at++;
        return INFER_OK;
    }
    for (;;) {
        skip_blanks(r);
        TRY(read_value(r, &v));
        TRY(jv_push(r->J, out->l, v));
        int c = skip_blanks(r);
        if (c != ',' && c != ']') return expected(r, "Expecting ',' delimiter", r->at);
        r->at++;
        if (c == ']') return INFER_OK;
    }
}

static enum infer_status read_dict(struct reader *r, struct jv *out) {
    struct jv key, v;
    r->at++;
    TRY(jv_dict(r->J, out));
    if (skip_blanks(r) == '}') {
        r->at++;
        return INFER_OK;
    }
    for (;;) {
        if (skip_blanks(r) != '"')
            return expected(r, "Expecting property name enclosed in double quotes", r->at);
        TRY(read_string(r, &key));
        if (skip_blanks(r) != ':') return expected(r, "Expecting ':' delimiter", r->at);
        r->at++;
        skip_blanks(r);
        TRY(read_value(r, &v));
        TRY(jv_dict_set(r->J, out->d, key, v)); /* of a key given twice the last value stays */
        int c = skip_blanks(r);
        if (c != ',' && c != '}') return expected(r, "Expecting ',' delimiter", r->at);
        r->at++;
        if (c == '}') return INFER_OK;
    }
}

static enum infer_status read_any(struct reader *r, struct jv *out) {
    int c = peek(r);
    if (c == '"') return read_string(r, out);
    if (c == '{') return read_dict(r, out);
    if (c == '[') return read_list(r, out);
    *out = jv_none();
    if (skip_word(r, "null")) return INFER_OK;
    *out = jv_bool(true);
    if (skip_word(r, "true")) return INFER_OK;
    *out = jv_bool(false);
    if (skip_word(r, "false")) return INFER_OK;
    *out = jv_float(strtod("nan", NULL));
    if (skip_word(r, "NaN")) return INFER_OK;
    *out = jv_float(strtod("inf", NULL));
    if (skip_word(r, "Infinity")) return INFER_OK;
    out->f = -out->f;
    if (skip_word(r, "-Infinity")) return INFER_OK;
    return read_number(r, out);
}

static enum infer_status read_value(struct reader *r, struct jv *out) {
    TRY(jinja_step(r->J, 1));
    TRY(jinja_enter(r->J));
    TRY(read_any(r, out));
    r->J->eval_depth--;
    return INFER_OK;
}

enum infer_status js_from_json(struct jinja *J, const struct jstr *s, struct jv *out) {
    struct reader r = {J, s, 0};
    TRY(jinja_step(J, s->n >> 6));
    skip_blanks(&r);
    TRY(read_value(&r, out));
    if (skip_blanks(&r) >= 0) return expected(&r, "Extra data", r.at);
    return INFER_OK;
}

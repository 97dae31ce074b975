/* Words of a Lark grammar: blanks, names, strings, regular expressions, numbers. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/lark/lark_int.h"

enum infer_status lark_bad(const struct lark *K, const char *what) {
    return err_set(INFER_E_INPUT, "lark line %d: %s", K->line, what);
}
enum infer_status lark_no(const struct lark *K, const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "lark line %d: %s is not supported", K->line, what);
}

void lark_skip(struct lark *K, bool lines) {
    while (K->p < K->end) {
        const char c = *K->p;
        if (c == '#' || (c == '/' && K->end - K->p > 1 && K->p[1] == '/')) {
            while (K->p < K->end && *K->p != '\n') K->p++;
        } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
            K->line += c == '\n';
            K->p++;
        } else {
            break;
        }
    }
}

static bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t lark_word(const struct lark *K) {
    size_t n = 0, left = (size_t)(K->end - K->p);
    if (!left || !letter(*K->p) || (*K->p >= '0' && *K->p <= '9')) return 0;
    while (n < left && (letter(K->p[n]) || (K->p[n] == '-' && n + 1 < left && letter(K->p[n + 1])))) n++;
    return n;
}

bool lark_is_terminal(const char *name, size_t n) {
    while (n && *name == '_') name++, n--;
    return n && *name >= 'A' && *name <= 'Z';
}

static enum infer_status hex(struct lark *K, int digits, int32_t *cp) {
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, K->p++) {
        const char c = K->p < K->end ? *K->p : 0, l = c | 0x20;
        const int d = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
        if (d < 0) return lark_bad(K, "an escape needs more hexadecimal digits");
        v = v << 4 | (uint32_t)d;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) return lark_bad(K, "an escape is no code point");
    *cp = (int32_t)v;
    return INFER_OK;
}

static enum infer_status escape(struct lark *K, int32_t *cp) {
    static const char from[] = "nrtfvba\\\"'/", to[] = "\n\r\t\f\v\b\a\\\"'/";
    const char c = K->p < K->end ? *K->p++ : 0;
    if (c == 'x') return hex(K, 2, cp);
    if (c == 'u') return hex(K, 4, cp);
    if (c == 'U') return hex(K, 8, cp);
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit) return lark_bad(K, "unknown escape in a string");
    *cp = to[hit - from];
    return INFER_OK;
}

enum infer_status lark_string(struct lark *K, const char **text, size_t *n, bool *fold) {
    const char *close = ++K->p;
    for (; close < K->end && *close != '"' && *close != '\n'; close++) close += *close == '\\';
    if (close >= K->end || *close != '"') return lark_bad(K, "a string has no end");
    char *out =
        arena_alloc(&K->arena, (size_t)(close - K->p) + 4); /* an escape is no shorter than what it says */
    if (!out) return err_set(INFER_E_MEMORY, "out of memory: a grammar");
    *text = out;
    *n = 0;
    while (K->p < close) {
        if (*K->p != '\\') {
            out[(*n)++] = *K->p++;
            continue;
        }
        int32_t cp = 0;
        K->p++;
        TRY(escape(K, &cp));
        *n += (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out + *n);
    }
    K->p = close + 1;
    *fold = lark_is(K, 'i');
    K->p += *fold;
    return INFER_OK;
}

enum infer_status lark_regex(struct lark *K) {
    const char *from = ++K->p, *p = from;
    for (; p < K->end && *p != '/' && *p != '\n'; p++) p += *p == '\\';
    if (p >= K->end || *p != '/') return lark_bad(K, "a regular expression has no end");
    char flags[8];
    size_t n = 0;
    for (K->p = p + 1; K->p < K->end && *K->p >= 'a' && *K->p <= 'z'; K->p++) {
        if (!strchr("imsux", *K->p) || n + 1 == sizeof flags)
            return lark_no(K, "a flag of a regular expression other than i, m, s, u, x");
        flags[n++] = *K->p;
    }
    flags[n] = 0;
    const struct regex_way way = {.what = "regex", .flags = flags};
    const enum infer_status st = regex_to_gbnf(&K->rules, from, (size_t)(p - from), &way);
    return st ? err_prefix(st, "lark line %d", K->line) : INFER_OK;
}

enum infer_status lark_put_string(struct lark *K, const char *text, size_t n, bool fold) {
    if (!fold) {
        stext_literal(&K->rules, text, n);
        return INFER_OK;
    }
    const struct regex_way way = {.what = "regex", .flags = "i"};
    char *out = arena_alloc(&K->arena, 2 * n + 1);
    size_t m = 0;
    if (!out) return err_set(INFER_E_MEMORY, "out of memory: a grammar");
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x80 && !letter(text[i])) out[m++] = '\\';
        out[m++] = text[i];
    }
    const enum infer_status st = regex_to_gbnf(&K->rules, out, m, &way);
    return st ? err_prefix(st, "lark line %d", K->line) : INFER_OK;
}

enum infer_status lark_number(struct lark *K, int *out) {
    int64_t v = 0;
    if (K->p >= K->end || *K->p < '0' || *K->p > '9') return lark_bad(K, "expected a number of repetitions");
    for (; K->p < K->end && *K->p >= '0' && *K->p <= '9'; K->p++)
        if (v <= GRAMMAR_MAX_REPEAT) v = v * 10 + (*K->p - '0');
    if (v > GRAMMAR_MAX_REPEAT) return lark_bad(K, "more than 20000 repetitions");
    *out = (int)v;
    return INFER_OK;
}

/* ---- names ---- */

enum infer_status lark_note(struct lark *K, const char *s, size_t n, bool defined) {
    if (K->n_name == K->cap_name) {
        const size_t cap = K->cap_name ? 2 * K->cap_name : 64;
        struct lark_name *more = arena_alloc(&K->arena, cap * sizeof *more);
        if (!more) return err_set(INFER_E_MEMORY, "out of memory: a grammar");
        if (K->n_name) memcpy(more, K->name, K->n_name * sizeof *more);
        K->name = more;
        K->cap_name = cap;
    }
    K->name[K->n_name++] = (struct lark_name){s, n, K->line, defined};
    return INFER_OK;
}

static int by_name(const void *a, const void *b) {
    const struct lark_name *x = a, *y = b;
    const int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    if (x->defined != y->defined) return x->defined ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

enum infer_status lark_check_names(struct lark *K) {
    const struct lark_name *at = NULL; /* where the name was defined */
    if (K->n_name) qsort(K->name, K->n_name, sizeof *K->name, by_name);
    for (size_t i = 0; i < K->n_name; i++) {
        const struct lark_name *x = &K->name[i];
        const bool same = at && at->n == x->n && memcmp(at->s, x->s, x->n) == 0;
        if (same != x->defined) {
            if (x->defined) at = x;
            continue;
        }
        return err_set(INFER_E_INPUT, "lark line %d: '%.*s' is %s", x->line, (int)(x->n > 80 ? 80 : x->n),
                       x->s, same ? "defined twice" : "not defined");
    }
    return INFER_OK;
}

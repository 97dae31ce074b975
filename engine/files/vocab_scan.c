/* See vocab_scan.h. source: RFC 8259. */
#include "files/vocab_scan.h"
#include "files/json.h"

#include <emmintrin.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *json, *at, *end; /* json <= at <= end */
    char *out;                   /* room for what is left of the file, and 16 bytes more */
    unsigned seen;               /* SEEN_ bits of the string that was read last */
    struct arena *a;
    struct tok_scan *s;
};
enum { SEEN_HIGH = 1, SEEN_SPACE = 2 }; /* bytes above ASCII, spaces that stand for themselves */

static enum infer_status no_memory(void) {
    return err_set(INFER_E_MEMORY, "out of memory: reading tokenizer.json");
}

static size_t count_lines(const char *s, const char *end) {
    size_t n = 0;
    for (; s < end && (s = memchr(s, '\n', (size_t)(end - s))); s++) n++;
    return n;
}

static enum infer_status bad(const struct scan *t, const char *list, size_t i, const char *what) {
    return err_set(INFER_E_INPUT, "line %zu: model.%s[%zu] %s", count_lines(t->json, t->at) + 1, list, i,
                   what);
}

/* ---- pieces of JSON ---- */
static bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void skip_white(struct scan *t) {
    while (t->end - t->at >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)t->at);
        __m128i white = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\n'))),
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\r')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\t'))));
        int dark = ~_mm_movemask_epi8(white) & 0xffff;
        if (dark) {
            t->at += __builtin_ctz((unsigned)dark);
            return;
        }
        t->at += 16;
    }
    while (t->at < t->end && is_white(*t->at)) t->at++;
}

/* White space and c behind it: taken, true. */
static bool take(struct scan *t, char c) {
    if (t->at < t->end && is_white(*t->at)) skip_white(t);
    if (t->at == t->end || *t->at != c) return false;
    t->at++;
    return true;
}

/* Copies what stands for itself in a string. */
static void copy_plain(struct scan *t) {
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f),
                  space = _mm_set1_epi8(' ');
    while (t->end - t->at >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)t->at);
        __m128i mark = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, escape));
        __m128i stop = _mm_or_si128(mark, _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
        unsigned ends = (unsigned)_mm_movemask_epi8(stop), high = (unsigned)_mm_movemask_epi8(v),
                 spaces = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, space));
        int n = ends ? __builtin_ctz(ends) : 16;
        unsigned before = (1u << n) - 1;
        _mm_storeu_si128((__m128i *)t->out, v);
        t->seen |= (high & before ? SEEN_HIGH : 0) | (spaces & before ? SEEN_SPACE : 0);
        t->at += n;
        t->out += n;
        if (ends) return;
    }
    for (; t->at < t->end && *t->at != '"' && *t->at != '\\' && (unsigned char)*t->at >= 0x20; t->at++) {
        t->seen |= (unsigned char)*t->at >= 0x80 ? SEEN_HIGH : *t->at == ' ' ? SEEN_SPACE : 0;
        *t->out++ = *t->at;
    }
}

/* Four hex digits at p, -1. */
static int hex4(const char *p, const char *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = p[i] | 0x20, digit = p[i] >= '0' && p[i] <= '9' ? p[i] - '0'
                                     : c >= 'a' && c <= 'f'     ? c - 'a' + 10
                                                                : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void put_utf8(struct scan *t, unsigned c) {
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *t->out++ = (char)(lead[more] | c >> (6 * more));
    for (int i = more - 1; i >= 0; i--) *t->out++ = (char)(0x80 | (c >> (6 * i) & 0x3f));
}

/* The escape at the backslash t->at; what it stands for is never longer. */
static bool take_escape(struct scan *t) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *e = t->end - t->at >= 2 ? memchr(from, t->at[1], sizeof from - 1) : NULL;
    if (e) {
        *t->out++ = to[e - from];
        t->at += 2;
        return true;
    }
    if (t->end - t->at < 2 || t->at[1] != 'u') return false;
    const char *p = t->at + 2;
    int c = hex4(p, t->end), low = -1;
    if (c < 0 || (c >= 0xdc00 && c < 0xe000)) return false;
    p += 4;
    if (c >= 0xd800 && c < 0xdc00) {
        if (t->end - p >= 2 && p[0] == '\\' && p[1] == 'u') low = hex4(p + 2, t->end);
        if (low < 0xdc00 || low > 0xdfff) return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    t->at = p;
    if (c == ' ') t->seen |= SEEN_SPACE;
    put_utf8(t, (unsigned)c);
    return true;
}

static bool is_utf8(const char *s, size_t n) {
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = (unsigned char)s[i] < 0x80 ? 1 : text_utf8_len(s + i, n - i))) return false;
    return true;
}

/* A string, unescaped, at t->out, which moves behind it. */
static bool take_string(struct scan *t, struct str *s) {
    char *start = t->out;
    t->seen = 0;
    if (!take(t, '"')) return false;
    for (;;) {
        copy_plain(t);
        if (t->at == t->end) return false;
        if (*t->at == '"') break;
        if (*t->at != '\\' || !take_escape(t)) return false;
    }
    t->at++;
    *s = (struct str){start, (size_t)(t->out - start)};
    return !(t->seen & SEEN_HIGH) || is_utf8(s->data, s->len);
}

/* A value of any kind; true when its end was found. */
static bool skip_value(struct scan *t) {
    int depth = 0;
    char *out = t->out;
    struct str s;
    do {
        skip_white(t);
        if (t->at == t->end) return false;
        char c = *t->at;
        if (c == '"') {
            if (!take_string(t, &s)) return false;
            t->out = out;
        } else if (c == '[' || c == '{') {
            depth++;
            t->at++;
        } else if (c == ']' || c == '}') {
            if (depth-- == 0) return false;
            t->at++;
        } else if (c == ',' || c == ':') {
            if (depth == 0) return false;
            t->at++;
        } else {
            const char *start = t->at;
            while (t->at < t->end && !is_white(*t->at) && !memchr(",:]}[{\"", *t->at, 7)) t->at++;
            if (t->at == start) return false;
        }
    } while (depth);
    return true;
}

/* ---- entries ---- */
enum { CHUNK_FIRST = 1 << 10, CHUNK_MOST = 1 << 17 }; /* entries: 24 KB, 3 MB */

static struct tok_entry *next_entry(struct scan *t, struct tok_list *list) {
    struct tok_chunk *c = list->last;
    if (!c || c->n == c->cap) {
        int cap = !c ? CHUNK_FIRST : c->cap < CHUNK_MOST ? 2 * c->cap : c->cap;
        c = arena_alloc(t->a, sizeof *c + (size_t)cap * sizeof *c->entry);
        if (!c) return NULL;
        c->cap = cap;
        *(list->last ? &list->last->next : &list->first) = c;
        list->last = c;
    }
    list->n++;
    return &c->entry[c->n++];
}

/* 0 .. INT32_MAX; -1: something else. */
static int64_t take_id(struct scan *t) {
    int64_t v = 0;
    skip_white(t);
    const char *start = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && v <= INT32_MAX; t->at++)
        v = v * 10 + (*t->at - '0');
    bool good = t->at > start && (*start != '0' || t->at == start + 1) && t->at < t->end &&
                (is_white(*t->at) || *t->at == ',' || *t->at == '}');
    return good && v <= INT32_MAX ? v : -1;
}

static bool take_number(struct scan *t, double *v) {
    char text[64], *end;
    size_t n = 0;
    skip_white(t);
    while (n < sizeof text - 1 && t->at < t->end && memchr("0123456789+-.eE", *t->at, 15))
        text[n++] = *t->at++;
    text[n] = 0;
    if (!n || text[0] == '+' || text[0] == '.') return false;
    *v = strtod(text, &end);
    return *end == 0;
}

static enum infer_status read_id(struct scan *t, struct tok_entry *e, size_t i) {
    if (!take_string(t, &e->text) || !take(t, ':')) return bad(t, "vocab", i, "is no name with an id");
    e->id = take_id(t);
    if (e->id >= 0) return INFER_OK;
    return err_set(INFER_E_INPUT, "line %zu: model.vocab: the id of '%.*s' is no number",
                   count_lines(t->json, t->at) + 1, (int)(e->text.len < 64 ? e->text.len : 64), e->text.data);
}

static enum infer_status read_score(struct scan *t, struct tok_entry *e, size_t i) {
    bool good =
        take(t, '[') && take_string(t, &e->text) && take(t, ',') && take_number(t, &e->score) && take(t, ']');
    return good ? INFER_OK : bad(t, "vocab", i, "is no pair of text and score");
}

static enum infer_status read_merge(struct scan *t, struct tok_entry *e, size_t i) {
    struct str b;
    if (!take(t, '[')) return take_string(t, &e->text) ? INFER_OK : bad(t, "merges", i, "is no pair");
    if (!take_string(t, &e->text) || !take(t, ',')) return bad(t, "merges", i, "is no pair");
    unsigned seen = t->seen;
    *t->out++ = ' ';
    if (!take_string(t, &b) || !take(t, ']')) return bad(t, "merges", i, "is no pair");
    if ((seen | t->seen) & SEEN_SPACE)
        return err_set(INFER_E_UNSUPPORTED, "model.merges[%zu] holds a space", i);
    e->text.len += 1 + b.len;
    return INFER_OK;
}

/* The entries from the opening bracket on. */
static enum infer_status read_list(struct scan *t, struct tok_list *list, const char *name,
                                   enum tok_list_form form) {
    enum infer_status (*read)(struct scan *, struct tok_entry *, size_t) = form == TOK_LIST_IDS ? read_id
                                                                           : form == TOK_LIST_SCORES
                                                                               ? read_score
                                                                               : read_merge;
    char close = *t->at++ == '{' ? '}' : ']';
    list->form = form;
    if (take(t, close)) return INFER_OK;
    do {
        struct tok_entry *e = next_entry(t, list);
        if (!e) return no_memory();
        TRY(read(t, e, list->n - 1));
    } while (take(t, ','));
    return take(t, close) ? INFER_OK : bad(t, name, list->n, "is missing: neither a comma nor the end");
}

/* ---- where they stand ---- */
static enum infer_status read_cut(struct scan *t, struct tok_list *list, const char *name) {
    char c = t->at < t->end ? *t->at : 0;
    bool vocab = list == &t->s->vocab;
    if (list->form != TOK_LIST_NONE) return err_set(INFER_E_INPUT, "model.%s is there twice", name);
    if (c != '[' && !(vocab && c == '{')) { /* left to whoever reads the rest */
        skip_value(t);
        return INFER_OK;
    }
    struct tok_cut *cut = &t->s->cut[t->s->n_cut++];
    const char *from = t->at;
    TRY(read_list(t, list, name, !vocab ? TOK_LIST_PAIRS : c == '{' ? TOK_LIST_IDS : TOK_LIST_SCORES));
    *cut = (struct tok_cut){(size_t)(from - t->json), (size_t)(t->at - t->json)};
    return INFER_OK;
}

static bool is(struct str s, const char *name) {
    return s.len == strlen(name) && memcmp(s.data, name, s.len) == 0;
}

/* The members of an object: of the file, or of its model. */
static enum infer_status read_members(struct scan *t, bool model) {
    struct str name;
    if (!take(t, '{')) return INFER_OK;
    do {
        char *out = t->out;
        if (!take_string(t, &name) || !take(t, ':')) return INFER_OK;
        t->out = out;
        skip_white(t);
        if (model && is(name, "vocab")) {
            TRY(read_cut(t, &t->s->vocab, "vocab"));
        } else if (model && is(name, "merges")) {
            TRY(read_cut(t, &t->s->merges, "merges"));
        } else if (!model && is(name, "model") && t->at < t->end && *t->at == '{') {
            TRY(read_members(t, true));
        } else if (!skip_value(t)) {
            return INFER_OK;
        }
    } while (take(t, ','));
    take(t, '}');
    return INFER_OK;
}

enum infer_status tok_scan(struct tok_scan *s, struct arena *a, const char *json, size_t n) {
    size_t room;
    *s = (struct tok_scan){0};
    if (!size_add(n, 16, &room)) return no_memory();
    struct scan t = {.json = json, .at = json, .end = json + n, .out = arena_alloc(a, room), .a = a, .s = s};
    return t.out ? read_members(&t, false) : no_memory();
}

/* ---- the rest ---- */
enum infer_status tok_scan_rest(json_t **out, const struct tok_scan *s, const char *json, size_t n) {
    size_t lines[2], from = 0, room = n, o = 0;
    char *rest;
    for (int i = 0; i < s->n_cut; i++) {
        lines[i] = count_lines(json + s->cut[i].from, json + s->cut[i].to);
        room += 4 + lines[i] - (s->cut[i].to - s->cut[i].from);
    }
    TRY(mem_new(&rest, room, "a tokenizer"));
    for (int i = 0; i <= s->n_cut; i++) {
        size_t to = i < s->n_cut ? s->cut[i].from : n;
        memcpy(rest + o, json + from, to - from);
        o += to - from;
        if (i == s->n_cut) break;
        memcpy(rest + o, "null", 4);
        memset(rest + o + 4, '\n', lines[i]); /* what follows keeps the numbers of its lines */
        o += 4 + lines[i];
        from = s->cut[i].to;
    }
    enum infer_status st = json_read(out, NULL, rest, o, JSON_ALLOW_NUL);
    mem_free(rest);
    return st;
}

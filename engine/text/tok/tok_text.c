/* UTF-8 spans, normal forms and the streaming detokenizer. */
#include "text/tok/tok_impl.h"
#include <utf8proc.h>

size_t tok_utf8_span(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t v;
        if (i + 8 <= n) {
            memcpy(&v, s + i, 8);
            if (!(v & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        size_t len = text_utf8_len(s + i, n - i);
        if (!len) break;
        i += len;
    }
    return i;
}

/* Whether no form and no case can change s[n]: ASCII, and for form C all below U+0300. */
static bool plainly_formed(const struct tok *t, const char *s, size_t n) {
    unsigned char limit = t->form == TOK_NFC ? 0xcc : 0x80;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= limit ||
            (t->lowercase && ((unsigned char)s[i] >= 0x80 || (s[i] >= 'A' && s[i] <= 'Z'))))
            return false;
    return true;
}

/* Lower case; U+0130 is the one character whose lower case is two. */
static size_t lower(utf8proc_int32_t *cp, size_t n, size_t room) {
    size_t extra = 0;
    for (size_t i = 0; i < n; i++) extra += cp[i] == 0x130;
    if (n + extra > room) extra = 0;
    for (size_t i = n, o = n + extra; i-- > 0;) {
        if (cp[i] == 0x130 && extra) {
            cp[--o] = 0x307;
            cp[--o] = 'i';
        } else {
            cp[--o] = utf8proc_tolower(cp[i]);
        }
    }
    return n + extra;
}

/* The characters of s[n] taken apart, not yet in order; returns how many there are, of which cp[room] holds the first. */
static utf8proc_ssize_t take_apart(const char *s, size_t n, utf8proc_int32_t *cp, size_t room,
                                   utf8proc_option_t how) {
    size_t out = 0;
    int last = 0;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &c);
        if (len < 0) return len;
        i += (size_t)len;
        size_t left = room > out ? room - out : 0;
        utf8proc_ssize_t k =
            utf8proc_decompose_char(c, left ? cp + out : NULL, (utf8proc_ssize_t)left, how, &last);
        if (k < 0) return k;
        out += (size_t)k;
    }
    return (utf8proc_ssize_t)out;
}

static int mark_class(utf8proc_int32_t c) {
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Each run of marks ordered by class, those of one class left as they stand. utf8proc orders by swaps of neighbours, which
 * takes hours for a text that is nothing but marks; this counts. spare: room for n. */
static void order_run(utf8proc_int32_t *cp, size_t n, utf8proc_int32_t *spare) {
    size_t at[256] = {0}, sum = 0; /* at: how many of a class, then where the next of it goes */
    for (size_t i = 0; i < n; i++) at[mark_class(cp[i])]++;
    for (int k = 0; k < 256; k++) {
        size_t many = at[k];
        at[k] = sum;
        sum += many;
    }
    for (size_t i = 0; i < n; i++) spare[at[mark_class(cp[i])]++] = cp[i];
    memcpy(cp, spare, n * sizeof *cp);
}

static void order_marks(utf8proc_int32_t *cp, size_t n, utf8proc_int32_t *spare) {
    for (size_t i = 0, end; i < n; i = end + 1) {
        bool ordered = true;
        int k, before = 0;
        for (end = i; end < n && (k = mark_class(cp[end])); end++, before = k) ordered &= k >= before;
        if (!ordered) order_run(cp + i, end - i, spare);
    }
}

enum infer_status tok_reform(const struct tok *t, char **out, size_t *n_out, const char *s, size_t n) {
    static const int forms[] = {0, UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    *out = NULL;
    *n_out = n;
    if ((t->form == TOK_AS_IS && !t->lowercase) || plainly_formed(t, s, n)) return INFER_OK;
    const utf8proc_option_t how = (utf8proc_option_t)(UTF8PROC_STABLE | forms[t->form]);
    utf8proc_ssize_t len = take_apart(s, n, NULL, 0, how);
    size_t room = 2 * (size_t)(len > 0 ? len : 0) + 1, bytes;
    if (len < 0) return err_set(INFER_E_INPUT, "normal form: %s", utf8proc_errmsg(len));
    if (!size_mul(room, sizeof(utf8proc_int32_t), &bytes))
        return err_set(INFER_E_MEMORY, "normal form of %zu bytes", n);
    utf8proc_int32_t *cp;
    TRY(mem_new(&cp, bytes, "text in normal form")); /* reencode writes UTF-8 over the characters */
    take_apart(s, n, cp, (size_t)len, how);
    if (t->form) order_marks(cp, (size_t)len, cp + len);
    len = utf8proc_normalize_utf32(cp, len, how);
    if (len >= 0 && t->lowercase) len = (utf8proc_ssize_t)lower(cp, (size_t)len, room - 1);
    if (len >= 0) len = utf8proc_reencode(cp, len, UTF8PROC_STABLE);
    if (len < 0) {
        mem_free(cp);
        return err_set(INFER_E_INPUT, "normal form: %s", utf8proc_errmsg(len));
    }
    *out = (char *)cp;
    *n_out = (size_t)len;
    return INFER_OK;
}

/* Bytes at the end of s[n] that may be the start of a longer sequence: 0 to 3. */
static size_t cut_tail(const unsigned char *s, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned c = s[n - k];
        if ((c & 0xc0) == 0x80) continue;
        size_t want = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
        if (want <= k) return 0;
        /* the bytes so far must be able to go on: complete them with the lowest and the highest bytes */
        unsigned char low[4] = {0x80, 0x80, 0x80, 0x80}, high[4] = {0xbf, 0xbf, 0xbf, 0xbf};
        memcpy(low, s + n - k, k);
        memcpy(high, s + n - k, k);
        return text_utf8_len((char *)low, 4) || text_utf8_len((char *)high, 4) ? k : 0;
    }
    return 0;
}

size_t tok_stream_push(struct tok_stream *st, struct str piece, char *out) {
    size_t n = (size_t)st->n_held;
    memcpy(out, st->held, n);
    if (piece.len) memcpy(out + n, piece.data, piece.len);
    n += piece.len;
    size_t keep = cut_tail((unsigned char *)out, n);
    memcpy(st->held, out + n - keep, keep);
    st->n_held = (int)keep;
    return n - keep;
}

size_t tok_stream_end(struct tok_stream *st, char *out) {
    size_t n = (size_t)st->n_held;
    memcpy(out, st->held, n);
    st->n_held = 0;
    return n;
}

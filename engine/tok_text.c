/* UTF-8 spans, normal form C and the streaming detokenizer. */
#include "tok_impl.h"
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

/* Characters below U+0300 are what composition starts from: text of such alone is in normal form C. */
static bool plainly_nfc(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0xcc) return false;
    return true;
}

enum infer_status tok_nfc(char **out, size_t *n_out, const char *s, size_t n) {
    *out = NULL;
    *n_out = n;
    if (plainly_nfc(s, n)) return INFER_OK;
    const utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t len = utf8proc_decompose((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, NULL, 0, how);
    size_t bytes;
    if (len < 0) return err_set(INFER_E_INPUT, "normal form C: %s", utf8proc_errmsg(len));
    if (!size_mul((size_t)len + 1, sizeof(utf8proc_int32_t), &bytes))
        return err_set(INFER_E_MEMORY, "normal form C of %zu bytes", n);
    utf8proc_int32_t *cp;
    TRY(mem_new(&cp, bytes, "text in normal form C")); /* reencode writes UTF-8 over the characters */
    utf8proc_decompose((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, cp, len, how);
    len = utf8proc_reencode(cp, len, how);
    if (len < 0) {
        mem_free(cp);
        return err_set(INFER_E_INPUT, "normal form C: %s", utf8proc_errmsg(len));
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

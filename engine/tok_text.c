/* UTF-8 spans and the streaming detokenizer. */
#include "tok_impl.h"

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

/* WordPiece (BERT): text is cleaned, lower-cased and stripped of accents where the model says so, cut at white
 * space, punctuation and ideographs, and each word is taken apart from the left by the longest tokens that fit.
 * A token that starts a word is written with U+2581 in front, one that goes on without (files that write "##" for
 * going on are rewritten when they are read). A word that cannot be taken apart is one unknown token.
 * source: Devlin et al. 2019 and the BertNormalizer and BertPreTokenizer of Hugging Face's tokenizers. */
#include "text/tok/tok_impl.h"
#include <utf8proc.h>

enum { WORD_MAX = 100 }; /* characters; a longer word is unknown */

struct word {
    char s[3 + 4 * WORD_MAX]; /* the mark of a start, then the word */
    size_t n, chars;
};

static bool is_ideograph(utf8proc_int32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool is_punctuation(utf8proc_int32_t c) {
    if (c < 0x80)
        return c > 0x20 && c < 0x7f && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

static bool is_space(utf8proc_int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    utf8proc_category_t k = utf8proc_category(c);
    return c == 0x85 || (k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_ZP);
}

/* Dropped by the cleaning: control, format and private characters. One that is not assigned stays, and makes its word unknown. */
static bool is_dropped(utf8proc_int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return false;
    utf8proc_category_t k = utf8proc_category(c);
    return c == 0 || c == 0xfffd || k >= UTF8PROC_CATEGORY_CC;
}

/* The token that is written s[n], behind the start of a word if goes_on; -1: none. U+2581 in front of more marks a start, so one
 * that goes on is none of those, but "##" and U+2581 itself is written as U+2581 alone. */
static int32_t piece_at(const struct tok *t, const char *s, size_t n, bool goes_on) {
    if (n > t->longest || (goes_on && n > 3 && memcmp(s, TOK_SPACE, 3) == 0)) return -1;
    int32_t id = tok_map_find(t, s, n);
    return id >= 0 && t->attr[id] == TOK_ATTR_NORMAL ? id : -1;
}

static void put_word(struct tok_work *w, struct word *word) {
    const struct tok *t = w->t;
    size_t first = w->out.n, end = 0;
    if (!word->chars) return;
    bool fits = word->chars <= WORD_MAX;
    for (size_t i = 0; fits && i < word->n; i = end) {
        int32_t id = -1;
        for (end = word->n; end > i && id < 0; end -= id < 0) {
            if (end < word->n && (word->s[end] & 0xc0) == 0x80) continue; /* inside a character */
            if (i == 0 && end <= 3) break;                                /* the mark alone is no piece */
            id = piece_at(t, word->s + i, end - i, i > 0);
        }
        fits = id >= 0;
        if (fits) tok_put(&w->out, id);
    }
    if (!fits) {
        w->out.n = first;
        tok_put(&w->out, t->unk);
    }
    word->n = 3;
    word->chars = 0;
}

static void add_char(struct word *word, utf8proc_int32_t c) {
    word->chars++;
    if (word->chars <= WORD_MAX)
        word->n += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)word->s + word->n);
}

static void put_char(struct tok_work *w, struct word *word, utf8proc_int32_t c) {
    if (is_dropped(c)) return;
    if (is_space(c)) {
        put_word(w, word);
        return;
    }
    if (w->t->strip_accents && utf8proc_category(c) == UTF8PROC_CATEGORY_MN) return;
    if (w->t->lowercase) c = utf8proc_tolower(c);
    bool alone = is_punctuation(c) || is_ideograph(c);
    if (alone) put_word(w, word);
    add_char(word, c);
    if (alone) put_word(w, word);
}

enum infer_status tok_wordpiece_encode(struct tok_work *w, const char *s, size_t n) {
    struct word word = {.s = "\xe2\x96\x81", .n = 3};
    if (w->t->unk < 0) return err_set(INFER_E_INPUT, "the vocabulary has no token for unknown text");
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c, parts[32];
        size_t len = text_utf8_len(s + i, n - i);
        if (!len) { /* a broken byte is dropped like U+FFFD */
            i++;
            continue;
        }
        utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)len, &c);
        i += len;
        int last = 0;
        utf8proc_ssize_t k = 1;
        parts[0] = c;
        if (w->t->strip_accents && c >= 0x80)
            k = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
        for (utf8proc_ssize_t p = 0; p < k && p < 32; p++) put_char(w, &word, parts[p]);
    }
    put_word(w, &word);
    return INFER_OK;
}

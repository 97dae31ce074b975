/* Any bytes as text: two vocabularies of the tests encode it, with random marks, and what comes out reads back to
 * the same bytes where nothing was parsed. Bytes: [flags][how marks repeat][text]; flags & 4: [..][charsmap]. */
#include "tests/lib/tok_vocab.h"
#include "text/tok/tok.h"

static struct tok *bpe, *cut, *spm;

static struct tok *open_vocab(struct vocab_file *v) {
    struct tensorfile *f;
    struct tok *t;
    if (vf_open(v, &f) || tok_open(&t, f)) abort();
    return t;
}

static void check(const struct tok *t, const char *s, const uint8_t *marks, size_t n, unsigned flags) {
    static int32_t ids[1 << 16];
    static char text[1 << 16], part[(1 << 8) + TOK_STREAM_MAX];
    size_t k, m = 0, shown = 0;
    if (tok_encode(t, s, marks, n, flags, ids, sizeof ids / sizeof *ids, &k) != INFER_OK) abort();
    struct tok_stream st = {0};
    for (size_t i = 0; i < k; i++) {
        if (ids[i] < 0 || ids[i] >= tok_size(t)) abort();
        struct str p = tok_piece(t, ids[i], true, i == 0);
        if (m + p.len > sizeof text) abort();
        memcpy(text + m, p.data, p.len);
        m += p.len;
        shown += tok_stream_push(&st, p, part);
        if (marks && !(flags & TOK_ADD) &&
            tok_attr(t, ids[i]) == TOK_ATTR_CONTROL) { /* not one of its bytes may be marked */
            if (m <= n && memcmp(text, s, m) == 0)
                for (size_t b = m - p.len; b < m; b++)
                    if (marks[b]) abort();
        }
    }
    if (shown + (size_t)st.n_held != m) abort();
    /* SentencePiece cannot tell its own mark of a space from a space */
    if (flags || (t == spm && memmem(s, n, "\xe2\x96\x81", 3))) return;
    if (m != n || memcmp(text, s, n) != 0) abort();
}

/* Any bytes as a Unigram model's table of replacements, and as the text that it is used on. */
static void check_charsmap(const uint8_t *data, size_t size) {
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    int32_t ids[64];
    size_t n;
    vf_unigram(&v, data, size);
    if (vf_open(&v, &f)) abort();
    if (tok_open(&t, f) == INFER_OK) {
        tok_encode(t, (const char *)data, NULL, size, 0, ids, 64, &n);
        tok_close(t);
    }
    tensorfile_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t marks[1 << 12];
    if (!bpe) {
        struct vocab_file v;
        vf_bpe(&v, "gpt-2");
        bpe = open_vocab(&v);
        vf_bpe(&v, "deepseek-v3");
        cut = open_vocab(&v);
        vf_spm(&v);
        spm = open_vocab(&v);
    }
    if (size < 2 || size - 2 > sizeof marks) return 0;
    if (data[0] & 4) {
        check_charsmap(data + 2, size - 2);
        return 0;
    }
    unsigned flags = data[0] & 3, step = data[1];
    for (size_t i = 0; i < size; i++) marks[i] = step && i / step % 2;
    const char *s = (const char *)data + 2;
    check(bpe, s, step ? marks : NULL, size - 2, flags);
    check(cut, s, step ? marks : NULL, size - 2, flags);
    check(spm, s, step ? marks : NULL, size - 2, flags);
    return 0;
}

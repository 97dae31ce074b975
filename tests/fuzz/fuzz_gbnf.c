/* Any bytes as a grammar, a 0 byte, and a text to match: what compiles can be walked, byte by byte and by masks. */
#include "text/grammar/grammar.h"

#include <string.h>

static const char *const pieces[] = {"a", "b",  "ab", "0", "1",    "\"",   "{",        "}",  "[",  "]",
                                     " ", "\n", ",",  ":", "\xc3", "\xa9", "\xc3\xa9", "\\", "end"};
enum { N_PIECE = sizeof pieces / sizeof *pieces };

static const char *piece(void *user, int32_t id, size_t *n) {
    (void)user;
    *n = strlen(pieces[id]);
    return pieces[id];
}
static bool ends(void *user, int32_t id) { return (void)user, id == N_PIECE - 1; }

static void walk(const struct infer_grammar *g, const char *text, size_t n) {
    static struct infer_grammar_vocab *v;
    const struct grammar_tokens t = {N_PIECE, piece, ends, NULL};
    struct matcher *m;
    if (!v && grammar_vocab_open(&v, &t)) return;
    if (matcher_open(&m, g, v)) return;
    for (size_t i = 0; i < n && i < 64; i++) {
        int32_t id = (unsigned char)text[i] % N_PIECE;
        bool allowed = matcher_mask(m)[0] >> id & 1, accepted = matcher_accept(m, id);
        if (allowed ? !accepted : accepted && !matcher_cut(m)) __builtin_trap();
    }
    matcher_reset(m);
    matcher_accept_bytes(m, text, n);
    matcher_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct infer_grammar *g;
    enum infer_status st = infer_grammar_from_gbnf(&g, (const char *)data, n);
    if (st) return st == INFER_E_MEMORY || err_message()[0] == 0 ? __builtin_trap(), 0 : 0;
    walk(g, zero ? (const char *)zero + 1 : (const char *)data, zero ? size - n - 1 : n);
    infer_grammar_free(g);
    return 0;
}

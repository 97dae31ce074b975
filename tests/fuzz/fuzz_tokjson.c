/* Any bytes as a tokenizer.json, or as a tokenizer.model when they do not begin with a brace: it is refused with a message, or its tokenizer encodes text and reads it back. */
#include "tests/lib/tok_vocab.h"
#include "base/stbds.h"
#include "files/vocab_json.h"
#include "text/tok/tok.h"

static void encode(const struct tok *t, const char *s, size_t n) {
    int32_t ids[256];
    size_t k;
    if (tok_encode(t, s, NULL, n, TOK_SPECIAL | TOK_ADD, ids, 256, &k) != INFER_OK) return;
    for (size_t i = 0; i < k && i < 256; i++) {
        if (ids[i] < 0 || ids[i] >= tok_size(t)) abort();
        tok_piece(t, ids[i], true, i == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] =
        "Hello  w\xc3\xb6rld, it's 1234 <s>\n\n\t\xe4\xbd\xa0\xe5\xa5\xbd \xff\xf0\x9f\x91\x8d";
    struct tensorfile f = {.path = "fuzz"};
    struct strmap *index;
    struct tok *t = NULL;
    int64_t old;
    if (size == 0 || size > 4096) return 0; /* a pattern is bounded, but not fast */
    const char *s = (const char *)data;
    enum infer_status st =
        tok_vocab_meta(&f.meta, &f.n_meta, &f.arena, s, size, *s == '{' ? s : NULL, *s == '{' ? size : 0);
    if (st == INFER_OK) st = strmap_new(&index, &f.arena);
    for (size_t i = 0; st == INFER_OK && i < f.n_meta; i++)
        st = strmap_put(index, f.meta[i].key.data, f.meta[i].key.len, (int64_t)i, &old);
    f.meta_index = index;
    if (st == INFER_OK) st = tok_open(&t, &f);
    if (st == INFER_OK && t) {
        encode(t, text, sizeof text - 1);
        encode(t, (const char *)data, size < 200 ? size : 200);
        tok_close(t);
    } else if (!*err_message() && st != INFER_OK) {
        abort();
    }
    arena_free(&f.arena);
    return 0;
}

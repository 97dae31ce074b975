/* A digit (1: Lark, 3: a regular expression, 4: structural tags, else GBNF or Lark) and any bytes of that kind: refused with a message, or a
 * grammar that compiles and can be walked. */
#include "text/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const enum infer_grammar_kind kind = data[0] == '1'   ? INFER_GRAMMAR_LARK
                                         : data[0] == '3' ? INFER_GRAMMAR_REGEX
                                         : data[0] == '4' ? INFER_GRAMMAR_TAGS
                                                          : INFER_GRAMMAR_TEXT;
    struct infer_grammar *g;
    const enum infer_status st = infer_grammar_open(&g, kind, (const char *)data + 1, size - 1);
    if (st) return st == INFER_E_MEMORY || err_message()[0] == 0 ? __builtin_trap(), 0 : 0;
    struct matcher *m;
    if (matcher_open(&m, g, NULL) == INFER_OK) {
        for (size_t i = 1; i < size && matcher_accept_bytes(m, (const char *)data + i, 1); i++) {
        }
        matcher_complete(m);
        matcher_close(m);
    }
    infer_grammar_free(g);
    return 0;
}

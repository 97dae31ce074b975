/* Any bytes as a JSON Schema: refused with a message, or a grammar that compiles and whose texts begin as JSON does. */
#include "text/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct infer_grammar *g;
    enum infer_status st = infer_grammar_from_schema(&g, (const char *)data, size);
    if (st) return st == INFER_E_MEMORY || err_message()[0] == 0 ? __builtin_trap(), 0 : 0;
    struct matcher *m;
    if (matcher_open(&m, g, NULL) == INFER_OK) {
        if (matcher_accept_bytes(m, "}", 1) || matcher_complete(m))
            __builtin_trap(); /* no JSON begins or ends so */
        matcher_accept_bytes(m, "{\"a\": [1, ", 10);
        matcher_close(m);
    }
    infer_grammar_free(g);
    return 0;
}

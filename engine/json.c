#include "json.h"
#include "mem.h"

enum infer_status json_read(json_t **out, const char *path, const char *text, size_t n) {
    json_error_t e;
    uint64_t failed = mem_failed();
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (mem_failed() != failed) { /* jansson calls that an error of syntax, or leaves something out */
        json_decref(*out);
        *out = NULL;
        return err_set(INFER_E_MEMORY, "%s: out of memory: %zu bytes of JSON", path, n);
    }
    if (*out) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: JSON, line %d, column %d: %s", path, e.line, e.column, e.text);
}

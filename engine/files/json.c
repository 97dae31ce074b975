#include "files/json.h"
#include "base/mem.h"

#include <string.h>

/* Whether the digits s[n] with their sign are beyond what int64_t holds. */
static bool is_wide(const char *s, size_t n) {
    bool minus = n && *s == '-';
    s += minus;
    n -= minus;
    return n > 19 || (n == 19 && memcmp(s, minus ? "9223372036854775808" : "9223372036854775807", 19) > 0);
}

static bool in_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The text with ".0" behind each integer that is too wide: then jansson takes it for a real. */
static enum infer_status widen(char **out, size_t *n_out, const char *text, size_t n) {
    size_t room, o = 0;
    char *d;
    if (!size_add(n, n / 8 + 2, &room)) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes of JSON", n);
    TRY(mem_new(&d, room, "JSON"));
    for (size_t i = 0; i < n;) {
        size_t start = i;
        if (text[i] == '"') {
            for (i++; i < n && text[i] != '"'; i++) i += text[i] == '\\' && i + 1 < n;
            i += i < n;
        } else {
            while (i < n && in_number(text[i])) i++;
            i += i == start;
        }
        memcpy(d + o, text + start, i - start);
        o += i - start;
        size_t digits = start + (text[start] == '-');
        while (digits < i && text[digits] >= '0' && text[digits] <= '9') digits++;
        if (digits == i && is_wide(text + start, i - start)) {
            memcpy(d + o, ".0", 2);
            o += 2;
        }
    }
    *out = d;
    *n_out = o;
    return INFER_OK;
}

void json_use_mem(void) { json_set_alloc_funcs(mem_trapped, mem_trapped_free); }

/* json_loadb, NULL when memory is out. */
static json_t *load_trapped(struct mem_trap *trap, const char *text, size_t n, size_t flags,
                            json_error_t *e) {
    if (setjmp(trap->jump)) {
        mem_trap_drop(trap);
        *e = (json_error_t){0};
        return NULL;
    }
    mem_trap_begin(trap);
    json_t *j = json_loadb(text, n, flags, e);
    mem_trap_end(trap);
    return j;
}

/* jansson, where text may hold integers beyond 64 bits; *wide: it did, and columns of the error are not those of text. */
static enum infer_status load(json_t **out, const char *text, size_t n, size_t flags, json_error_t *e,
                              bool *wide) {
    char *reals = NULL;
    struct mem_trap trap;
    *out = load_trapped(&trap, text, n, flags, e);
    *wide = !*out && json_error_code(e) == json_error_numeric_overflow;
    if (!*wide) return INFER_OK;
    TRY(widen(&reals, &n, text, n));
    *out = load_trapped(&trap, reals, n, flags, e);
    mem_free(reals);
    return INFER_OK;
}

enum infer_status json_read(json_t **out, const char *what, const char *text, size_t n, size_t flags) {
    json_error_t e;
    bool wide;
    uint64_t failed = mem_failed();
    const char *colon = what ? ": " : "";
    what = what ? what : "";
    TRY(load(out, text, n, flags, &e, &wide));
    if (mem_failed() != failed) { /* jansson calls that an error of syntax, or leaves something out */
        json_decref(*out);
        *out = NULL;
        return err_set(INFER_E_MEMORY, "%s%sout of memory: %zu bytes of JSON", what, colon, n);
    }
    if (*out) return INFER_OK;
    if (wide) return err_set(INFER_E_INPUT, "%s%sJSON, line %d: %s", what, colon, e.line, e.text);
    return err_set(INFER_E_INPUT, "%s%sJSON, line %d, column %d: %s", what, colon, e.line, e.column, e.text);
}

enum infer_status json_whole(const json_t *j, uint64_t failed, const char *what) {
    if (j && mem_failed() == failed) return INFER_OK;
    return err_set(INFER_E_MEMORY, "out of memory: %s", what);
}

enum infer_status json_write(char **out, json_t *j, uint64_t failed, size_t flags, const char *what) {
    *out = j ? json_dumps(j, flags) : NULL;
    json_decref(j);
    if (*out && mem_failed() == failed) return INFER_OK;
    mem_free(*out);
    *out = NULL;
    return err_set(INFER_E_MEMORY, "out of memory: %s", what);
}

enum infer_status json_line(char **out, const json_t *j, const char *what) {
    const uint64_t failed = mem_failed();
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY, n = json_dumpb(j, NULL, 0, flags);
    TRY(mem_new(out, n + 1, what));
    if (n && json_dumpb(j, *out, n, flags) == n && mem_failed() == failed) return INFER_OK;
    mem_free(*out);
    *out = NULL;
    return err_set(INFER_E_MEMORY, "out of memory: %s", what);
}

enum infer_status json_read_python(json_t **out, const char *what, const char *text, size_t n, size_t flags) {
    static const char word[] = "Infinity", large[] = "1e308   ";
    enum { LEN = sizeof word - 1 };
    bool inside = false;
    char *copy;
    *out = NULL;
    TRY(mem_new(&copy, n + 1, "JSON"));
    if (n) memcpy(copy, text, n);
    for (size_t i = 0; i < n; i++) {
        if (inside && copy[i] == '\\')
            i++;
        else if (copy[i] == '"')
            inside = !inside;
        else if (!inside && n - i >= LEN && memcmp(copy + i, word, LEN) == 0)
            memcpy(copy + i, large, LEN);
    }
    enum infer_status s = json_read(out, what, copy, n, flags);
    mem_free(copy);
    return s;
}

double json_real_of(const json_t *v) {
    const char *text = json_string_value(v);
    return text ? strtod(text, NULL) : json_number_value(v);
}

#include "text/grammar/grammar_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void stext_add(struct stext *t, const char *s, size_t n) {
    if (t->failed) return;
    if (n > GRAMMAR_MAX_TEXT || t->n > GRAMMAR_MAX_TEXT - n) {
        t->failed = true;
        return;
    }
    if (t->n + n > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        while (cap < t->n + n) cap *= 2;
        char *p = mem_realloc(t->p, cap);
        if (!p) {
            t->failed = true;
            return;
        }
        t->p = p;
        t->cap = cap;
    }
    if (n) memcpy(t->p + t->n, s, n);
    t->n += n;
}

void stext_put(struct stext *t, const char *format, ...) {
    char text[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text) infer_bug("a piece of grammar of %d bytes", n);
    stext_add(t, text, (size_t)n);
}

void stext_char(struct stext *t, int32_t cp) {
    if (cp < 0x80 && cp > 0x20 && !strchr("\"\\[]^-", cp))
        stext_put(t, "%c", cp);
    else if (cp < 0x100)
        stext_put(t, "\\x%02X", (unsigned)cp);
    else
        stext_put(t, "\\U%08X", (unsigned)cp);
}

void stext_literal(struct stext *t, const char *s, size_t n) {
    stext_put(t, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            stext_put(t, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            stext_put(t, "\\x%02X", c);
        else
            stext_add(t, s + i, 1);
    }
    stext_put(t, "\" ");
}

static bool names(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

void stext_renamed(struct stext *t, const char *s, size_t n, const char *prefix) {
    char in = 0; /* the end of the text, class or count that we are in */
    for (size_t i = 0; i < n;) {
        size_t from = i;
        if (!in && s[i] == '#') {
            while (i < n && s[i] != '\n') i++;
            continue;
        }
        if (!in && names(s[i])) {
            stext_put(t, "%s", prefix);
            while (i < n && names(s[i])) i++;
        } else if (in && in != '}' && s[i] == '\\' && i + 1 < n) {
            i += 2;
        } else {
            if (in ? s[i] == in : s[i] == '"' || s[i] == '[' || s[i] == '{')
                in = in ? 0 : s[i] == '"' ? '"' : s[i] == '[' ? ']' : '}';
            i++;
        }
        stext_add(t, s + from, i - from);
    }
    stext_put(t, "\n");
}

enum infer_status stext_give(struct stext *t, char **out, size_t *n) {
    *out = NULL;
    *n = t->n;
    stext_add(t, "", 1);
    if (t->failed) {
        const bool room = t->n + 1 < GRAMMAR_MAX_TEXT;
        stext_free(t);
        return room ? err_set(INFER_E_MEMORY, "out of memory: the text of a grammar")
                    : err_set(INFER_E_INPUT, "a grammar of more than %d bytes of GBNF", GRAMMAR_MAX_TEXT);
    }
    *out = t->p;
    *t = (struct stext){0};
    return INFER_OK;
}

void stext_free(struct stext *t) {
    mem_free(t->p);
    *t = (struct stext){0};
}

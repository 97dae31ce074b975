/* Which texts a grammar takes: accepts <LINES >LINES
 * A line in: {"kind": "text|lark|schema|regex|tags", "grammar": "..", "texts": ["..", ..]}; a line out: "..", why it is refused, or
 * [[whole, how many bytes fit], ..]. scripts/schema-suite.py asks it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "files/json.h"
#include "text/grammar/grammar.h"

static enum infer_grammar_kind kind_of(const char *s) {
    static const char *const name[] = {"text", "lark", "schema", "regex", "tags"};
    for (int i = 0; i < 5; i++)
        if (strcmp(s, name[i]) == 0) return (enum infer_grammar_kind)i;
    return INFER_GRAMMAR_TEXT;
}

static enum infer_status try_texts(const struct infer_grammar *g, const json_t *texts) {
    struct matcher *m;
    size_t i;
    const json_t *t;
    TRY(matcher_open(&m, g, NULL));
    putchar('[');
    json_array_foreach((json_t *)texts, i, t) {
        const char *s = json_string_value(t);
        const size_t n = json_string_length(t);
        size_t at = 0;
        matcher_reset(m);
        while (at < n && matcher_accept_bytes(m, s + at, 1)) at++;
        printf("%s[%s, %zu]", i ? ", " : "", at == n && matcher_complete(m) ? "true" : "false", at);
    }
    printf("]\n");
    matcher_close(m);
    return INFER_OK;
}

static enum infer_status answer(const json_t *j) {
    struct infer_grammar *g;
    const json_t *text = json_object_get(j, "grammar");
    TRY(infer_grammar_open(&g, kind_of(json_text_of(j, "kind")), json_string_value(text),
                           json_string_length(text)));
    const enum infer_status st = try_texts(g, json_object_get(j, "texts"));
    infer_grammar_free(g);
    return st;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json_t *j = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        if (!json_is_string(json_object_get(j, "grammar"))) {
            fprintf(stderr, "accepts: a line is no object with a grammar\n");
            return 2;
        }
        if (answer(j)) {
            json_t *why = json_string(err_message());
            char *text = why ? json_dumps(why, JSON_ENCODE_ANY) : NULL;
            printf("%s\n", text ? text : "\"refused\"");
            free(text);
            json_decref(why);
        }
        json_decref(j);
    }
    free(line);
    return 0;
}

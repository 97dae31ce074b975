#define _GNU_SOURCE /* memmem */
#include "request/prompt_check.h"
#include <ctype.h>
#include <stdio.h>
#include <jansson.h>
#include <string.h>
#include "base/mem.h"

bool prompt_is_special(const struct infer_model *m, int32_t id) {
    size_t shown, hidden;
    infer_piece(m, id, true, false, &shown);
    infer_piece(m, id, false, false, &hidden);
    return shown > 0 && hidden == 0;
}

/* ---- marks: <|im_end|>, <｜User｜>, [INST], <think> ---- */

/* Length of the mark at s[n], 0: none. */
static size_t mark_at(const char *s, size_t n) {
    static const struct {
        const char *open, *close;
    } forms[] = {{"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}};
    for (int i = 0; i < 2; i++) {
        size_t a = strlen(forms[i].open), z = strlen(forms[i].close), k = a;
        if (n < a || memcmp(s, forms[i].open, a) != 0) continue;
        while (k < n && k < 48 && !strchr(" \n\"'{}<", s[k]) &&
               (k + z > n || memcmp(s + k, forms[i].close, z) != 0))
            k++;
        if (k > a && k + z <= n && memcmp(s + k, forms[i].close, z) == 0) return k + z;
    }
    static const char *const tags[] = {"<think>", "</think>", "<start_of_turn>", "<end_of_turn>"};
    for (int i = 0; i < 4; i++)
        if (n >= strlen(tags[i]) && memcmp(s, tags[i], strlen(tags[i])) == 0) return strlen(tags[i]);
    size_t k = 1;
    if (n < 6 || s[0] != '[') return 0;
    while (k < n && (isupper((unsigned char)s[k]) || s[k] == '_' || (k == 1 && s[k] == '/'))) k++;
    return k >= 5 && k < n && s[k] == ']' ? k + 1 : 0;
}

/* The one token that the mark is; -1: it is text to this vocabulary. */
static int32_t mark_token(const struct infer_model *m, const char *mark, size_t n) {
    int32_t ids[4];
    size_t count;
    if (infer_tokenize(m, mark, NULL, n, INFER_TOK_SPECIAL, ids, 4, &count)) return -1;
    return count == 1 ? ids[0] : -1;
}

int prompt_unknown_marks(const struct infer_model *m, const struct infer_prompt_template *t, char *line,
                         size_t n_line) {
    size_t used = 0;
    int more = 0;
    *line = 0;
    for (size_t i = 0, n; i < t->n; i += n ? n : 1) {
        n = mark_at(t->text + i, t->n - i);
        if (!n || mark_token(m, t->text + i, n) >= 0) continue;
        char mark[64];
        snprintf(mark, sizeof mark, "%.*s", (int)n, t->text + i);
        if (strstr(line, mark)) continue;
        if (used + n + 3 > n_line)
            more++;
        else
            used += (size_t)snprintf(line + used, n_line - used, "%s%s", used ? ", " : "", mark);
    }
    return more;
}

/* ---- the end of a turn ---- */

struct infer_turn_end infer_prompt_turn_end(const struct infer_model *m,
                                            const struct infer_prompt_template *t) {
    static const char answer[] = "infer-asks-what-follows";
    struct infer_turn_end end = {.id = -1};
    struct infer_prompt p = {0};
    json_t *messages = json_array();
    bool made = messages && !infer_prompt_add_message(messages, "user", "a", 1) &&
                !infer_prompt_add_message(messages, "assistant", answer, sizeof answer - 1);
    if (made && !infer_prompt_render(&p, m, t, messages, false)) {
        const char *at = memmem(p.text, p.n_text, answer, sizeof answer - 1);
        size_t i = at ? (size_t)(at - p.text) + sizeof answer - 1 : p.n_text;
        while (i < p.n_text && isspace((unsigned char)p.text[i])) i++;
        size_t n = mark_at(p.text + i, p.n_text - i);
        int32_t eos = infer_eos(m);
        size_t n_eos = 0;
        const char *eos_text = eos >= 0 ? infer_piece(m, eos, true, false, &n_eos) : "";
        if (!n && n_eos && p.n_text - i >= n_eos && memcmp(p.text + i, eos_text, n_eos) == 0)
            n = n_eos; /* </s> and its like */
        end.id = n ? mark_token(m, p.text + i, n) : -1;
        if (n && n < sizeof end.text && end.id < 0) memcpy(end.text, p.text + i, n);
        if (end.id >= 0 && !prompt_is_special(m, end.id) && !infer_is_stop(m, end.id))
            end.id = -1; /* </think> is no end */
    }
    infer_prompt_free(&p);
    json_decref(messages);
    return end;
}

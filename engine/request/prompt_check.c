#include "request/prompt_check.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/term.h"
#include "tools/tool.h"

/* A token that is no text: its piece is empty unless special ones are shown. */
static bool is_special(const struct session *s, int32_t id) {
    size_t shown, hidden;
    infer_piece(s->model, id, true, false, &shown);
    infer_piece(s->model, id, false, false, &hidden);
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
static int32_t mark_token(const struct session *s, const char *mark, size_t n) {
    int32_t ids[4];
    size_t count;
    if (infer_tokenize(s->model, mark, NULL, n, INFER_TOK_SPECIAL, ids, 4, &count)) return -1;
    return count == 1 ? ids[0] : -1;
}

/* Names the marks of the template that are no tokens, each once. */
static void check_marks(const struct session *s, const struct chat_template *t) {
    char line[512] = "";
    size_t used = 0;
    int more = 0;
    for (size_t i = 0, n; i < t->n; i += n ? n : 1) {
        n = mark_at(t->text + i, t->n - i);
        if (!n || mark_token(s, t->text + i, n) >= 0) continue;
        char mark[64];
        snprintf(mark, sizeof mark, "%.*s", (int)n, t->text + i);
        if (strstr(line, mark)) continue;
        if (used + n + 3 > sizeof line)
            more++;
        else
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", used ? ", " : "", mark);
    }
    if (used)
        tool_say("the template writes what the vocabulary does not declare as tokens, so the model reads it "
                 "as text: %s%s",
                 line, more ? " and more" : "");
}

/* ---- the end of a turn ---- */

struct turn_end prompt_turn_end(const struct session *s, const struct chat_template *t) {
    static const char answer[] = "infer-asks-what-follows";
    struct turn_end end = {.id = -1};
    struct prompt p = {0};
    json_t *messages = json_array();
    bool made = messages && !prompt_add_message(messages, "user", "a", 1) &&
                !prompt_add_message(messages, "assistant", answer, sizeof answer - 1);
    if (made && !prompt_render(&p, s, t, messages, false)) {
        const char *at = memmem(p.text, p.n_text, answer, sizeof answer - 1);
        size_t i = at ? (size_t)(at - p.text) + sizeof answer - 1 : p.n_text;
        while (i < p.n_text && isspace((unsigned char)p.text[i])) i++;
        size_t n = mark_at(p.text + i, p.n_text - i);
        int32_t eos = infer_eos(s->model);
        size_t n_eos = 0;
        const char *eos_text = eos >= 0 ? infer_piece(s->model, eos, true, false, &n_eos) : "";
        if (!n && n_eos && p.n_text - i >= n_eos && memcmp(p.text + i, eos_text, n_eos) == 0)
            n = n_eos; /* </s> and its like */
        end.id = n ? mark_token(s, p.text + i, n) : -1;
        if (n && n < sizeof end.text && end.id < 0) memcpy(end.text, p.text + i, n);
        if (end.id >= 0 && !is_special(s, end.id) && !infer_is_stop(s->model, end.id))
            end.id = -1; /* </think> is no end */
    }
    prompt_free(&p);
    json_decref(messages);
    return end;
}

static bool ends_answer(const struct session *s, const struct turn_end *e, int32_t id) {
    return infer_is_stop(s->model, id) || id == e->id;
}

/* ---- showing ---- */

static void show_token(const struct session *s, int32_t id) {
    size_t n;
    const char *piece = infer_piece(s->model, id, true, false, &n);
    fprintf(stderr, "%d ", id);
    term_write_safe(stderr, piece, n);
}

void prompt_show_special(const struct prompt *p, const struct session *s, const struct chat_template *t) {
    struct turn_end end = t->text ? prompt_turn_end(s, t) : (struct turn_end){.id = -1};
    int32_t bos = infer_bos(s->model);
    fprintf(stderr, "--- special tokens in it\n");
    for (int i = 0; i < p->n; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++) again = p->ids[k] == p->ids[i];
        if (again || !is_special(s, p->ids[i])) continue;
        show_token(s, p->ids[i]);
        fprintf(stderr, "%s at", p->ids[i] == bos ? " (BOS)" : "");
        for (int k = i; k < p->n; k++)
            if (p->ids[k] == p->ids[i]) fprintf(stderr, " %d", k);
        fputc('\n', stderr);
    }
    fprintf(stderr, "--- what ends an answer\n");
    for (int32_t id = 0; id < s->info.n_vocab; id++) {
        if (!ends_answer(s, &end, id)) continue;
        show_token(s, id);
        fprintf(stderr, "%s\n", id == end.id ? " (of the template)" : "");
    }
    if (*end.text) fprintf(stderr, "the text %s (of the template)\n", end.text);
    fprintf(stderr, "---\n");
}

/* ---- warnings ---- */

static bool reads(const struct chat_template *t, const char *name) {
    return memmem(t->text, t->n, name, strlen(name)) != NULL;
}

void prompt_check(const struct prompt *p, const struct session *s, const struct chat_template *t) {
    int32_t bos = infer_bos(s->model);
    if (bos >= 0 && p->n > 1 && p->ids[0] == bos && p->ids[1] == bos)
        tool_say("the prompt begins with two BOS tokens (%d)", bos);
    struct turn_end end = t->text ? prompt_turn_end(s, t) : (struct turn_end){.id = -1};
    bool some = false;
    for (int32_t id = 0; id < s->info.n_vocab && !some; id++) some = ends_answer(s, &end, id);
    if (!some) tool_say("no token of the vocabulary ends an answer: -n or --stop has to");
    if (*end.text)
        tool_say("the template ends an answer with %s, which is no token of the vocabulary: it is looked for "
                 "as text",
                 end.text);
    if (!t->text) return;
    check_marks(s, t);
    if (t->no_thinking && !reads(t, "enable_thinking"))
        tool_say("--thinking off: the template does not read enable_thinking, so it changes nothing");
}

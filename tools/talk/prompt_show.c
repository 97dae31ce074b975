#include "tools/talk/prompt_show.h"
#include <stdio.h>
#include <string.h>
#include "request/prompt_check.h"
#include "tools/term.h"
#include "tools/tool.h"

static int vocab_size(const struct infer_model *m) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    return info.n_vocab;
}

static bool ends_answer(const struct infer_model *m, const struct infer_turn_end *e, int32_t id) {
    return infer_is_stop(m, id) || id == e->id;
}

/* ---- showing ---- */

static void show_token(const struct infer_model *m, int32_t id) {
    size_t n;
    const char *piece = infer_piece(m, id, true, false, &n);
    fprintf(stderr, "%d ", id);
    term_write_safe(stderr, piece, n);
}

static void show_special(const struct infer_prompt *p, const struct infer_model *m,
                         const struct infer_prompt_template *t) {
    struct infer_turn_end end = t->text ? infer_prompt_turn_end(m, t) : (struct infer_turn_end){.id = -1};
    int32_t bos = infer_bos(m);
    fprintf(stderr, "--- special tokens in it\n");
    for (int i = 0; i < p->n; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++) again = p->ids[k] == p->ids[i];
        if (again || !prompt_is_special(m, p->ids[i])) continue;
        show_token(m, p->ids[i]);
        fprintf(stderr, "%s at", p->ids[i] == bos ? " (BOS)" : "");
        for (int k = i; k < p->n; k++)
            if (p->ids[k] == p->ids[i]) fprintf(stderr, " %d", k);
        fputc('\n', stderr);
    }
    fprintf(stderr, "--- what ends an answer\n");
    for (int32_t id = 0, n = vocab_size(m); id < n; id++) {
        if (!ends_answer(m, &end, id)) continue;
        show_token(m, id);
        fprintf(stderr, "%s\n", id == end.id ? " (of the template)" : "");
    }
    if (*end.text) fprintf(stderr, "the text %s (of the template)\n", end.text);
    fprintf(stderr, "---\n");
}

/* ---- warnings ---- */

static void check_marks(const struct infer_model *m, const struct infer_prompt_template *t) {
    char line[512];
    int more = prompt_unknown_marks(m, t, line, sizeof line);
    if (*line)
        tool_say("the template writes what the vocabulary does not declare as tokens, so the model reads it "
                 "as text: %s%s",
                 line, more ? " and more" : "");
}

static bool reads(const struct infer_prompt_template *t, const char *name) {
    return memmem(t->text, t->n, name, strlen(name)) != NULL;
}

static void warn(const struct infer_prompt *p, const struct infer_model *m,
                 const struct infer_prompt_template *t) {
    int32_t bos = infer_bos(m);
    if (bos >= 0 && p->n > 1 && p->ids[0] == bos && p->ids[1] == bos)
        tool_say("the prompt begins with two BOS tokens (%d)", bos);
    struct infer_turn_end end = t->text ? infer_prompt_turn_end(m, t) : (struct infer_turn_end){.id = -1};
    bool some = false;
    for (int32_t id = 0, n = vocab_size(m); id < n && !some; id++) some = ends_answer(m, &end, id);
    if (!some) tool_say("no token of the vocabulary ends an answer: -n or --stop has to");
    if (*end.text)
        tool_say("the template ends an answer with %s, which is no token of the vocabulary: it is looked for "
                 "as text",
                 end.text);
    if (!t->text) return;
    check_marks(m, t);
    if (t->no_thinking && !reads(t, "enable_thinking"))
        tool_say("--thinking off: the template does not read enable_thinking, so it changes nothing");
}

void prompt_show(const struct infer_prompt *p, const struct infer_model *m,
                 const struct infer_prompt_template *t) {
    fprintf(stderr, "--- prompt: %zu bytes, %d tokens\n", p->n_text, p->n);
    term_write_safe(stderr, p->text, p->n_text);
    fprintf(stderr, "\n--- ids\n");
    for (int i = 0; i < p->n; i++) fprintf(stderr, "%d%c", p->ids[i], i + 1 < p->n ? ' ' : '\n');
    fprintf(stderr, "--- pieces\n");
    for (int i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = infer_piece(m, p->ids[i], true, i == 0, &n);
        fputc('[', stderr);
        term_write_safe(stderr, piece, n);
        fputc(']', stderr);
    }
    fputc('\n', stderr);
    show_special(p, m, t);
    warn(p, m, t);
}

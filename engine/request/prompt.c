#include "infer_request.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "text/chat_template.h"
#include "files/json.h"
#include "base/mem.h"
#include "request/answer.h"
#include "request/picture.h"

void infer_prompt_free(struct infer_prompt *p) {
    for (int i = 0; i < p->n_rows; i++) infer_picture_free(p->picture[i]);
    mem_free(p->text);
    mem_free(p->ids);
    mem_free(p->rows);
    mem_free(p->picture);
    *p = (struct infer_prompt){0};
}

enum infer_status infer_prompt_add_message(json_t *messages, const char *role, const char *content,
                                           size_t n) {
    json_t *text = json_stringn(content, n);
    if (!text) {
        size_t at = text_valid_utf8(content, n);
        if (at < n)
            return err_set(INFER_E_INPUT, "the text is not UTF-8: byte 0x%02x at offset %zu",
                           (unsigned char)content[at], at);
        return err_set(INFER_E_MEMORY, "%zu bytes for a message", n);
    }
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", text);
    if (!m || json_array_append_new(messages, m) != 0)
        return err_set(INFER_E_MEMORY, "%zu bytes for a message", n);
    return INFER_OK;
}

/* ids of text[n] into p */
static enum infer_status tokenize(struct infer_prompt *p, const struct infer_model *m, const char *text,
                                  const uint8_t *marks, size_t n, unsigned flags) {
    size_t cap = n + 16, count; /* a token is at least a byte of text, or one of the few that are added */
    TRY(mem_new(&p->ids, cap * sizeof *p->ids, "token ids"));
    TRY(infer_tokenize(m, text, marks, n, flags, p->ids, cap, &count));
    if (count > cap) { /* a tokenizer that makes more of a byte: once more with room */
        mem_free(p->ids);
        TRY(mem_new(&p->ids, count * sizeof *p->ids, "token ids"));
        TRY(infer_tokenize(m, text, marks, n, flags, p->ids, count, &count));
    }
    if (count > 0x7fffffff) return err_set(INFER_E_INPUT, "the prompt has %zu tokens", count);
    p->n = (int)count;
    TRY(mem_new(&p->text, n + 1, "prompt"));
    memcpy(p->text, text, n);
    p->n_text = n;
    return INFER_OK;
}

enum infer_status infer_prompt_text(struct infer_prompt *p, const struct infer_model *m, const char *text,
                                    size_t n, bool special) {
    *p = (struct infer_prompt){0};
    enum infer_status st = tokenize(p, m, text, NULL, n, INFER_TOK_ADD | (special ? INFER_TOK_SPECIAL : 0));
    if (st) infer_prompt_free(p);
    return st;
}

/* Text of a special token for the template; "" when the vocabulary has none. */
static json_t *special_text(const struct infer_model *m, int32_t id) {
    size_t n = 0;
    const char *p = id >= 0 ? infer_piece(m, id, true, false, &n) : "";
    json_t *j = json_stringn(p, n);
    return j ? j : json_string("");
}

/* Text that no template made; all of it is marked. */
static enum infer_status add_tail(struct chat_text *text, const struct infer_prompt_template *t) {
    if (!t->n_tail) return INFER_OK;
    char *grown = mem_realloc(text->text, text->n + t->n_tail + 1);
    if (grown) text->text = grown;
    uint8_t *marks = mem_realloc(text->marks, text->n + t->n_tail + 1);
    if (marks) text->marks = marks;
    if (!grown || !marks) return err_set(INFER_E_MEMORY, "%zu bytes for a prompt", text->n + t->n_tail);
    memcpy(grown + text->n, t->tail, t->n_tail);
    for (size_t i = 0; i < t->n_tail; i++) marks[text->n + i] = i >= t->n_own;
    text->n += t->n_tail;
    grown[text->n] = 0;
    return INFER_OK;
}

/* The text that the template makes of messages, with what stands behind it. */
static enum infer_status render(struct chat_text *out, const struct infer_model *m,
                                const struct infer_prompt_template *t, json_t *messages, bool generate) {
    char now[32];
    time_t seconds = time(NULL);
    struct tm local;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%S", localtime_r(&seconds, &local));
    uint64_t failed = mem_failed();
    json_t *input = json_pack("{s:O, s:b, s:o, s:o, s:s}", "messages", messages, "add_generation_prompt",
                              generate, "bos_token", special_text(m, infer_bos(m)), "eos_token",
                              special_text(m, infer_eos(m)), "now", now);
    if (input && t->no_thinking) json_object_set_new(input, "enable_thinking", json_false());
    if (input && t->variables) json_object_update(input, (json_t *)t->variables);
    enum infer_status st = json_whole(input, failed, "the conversation for the template");
    if (!st) st = chat_render(out, t->text, t->n, input);
    json_decref(input);
    if (!st) st = add_tail(out, t);
    if (st) chat_text_free(out);
    return st;
}

/* A prompt with pictures of messages whose parts the template writes, or (flat) whose parts are one text; *found: places for pictures. */
static enum infer_status with_pictures(struct infer_prompt *p, const struct infer_model *m,
                                       const struct infer_prompt_template *t, json_t *messages, bool generate,
                                       struct infer_picture *const *order, int n, bool flat, int *found) {
    struct chat_text text = {0};
    TRY(render(&text, m, t, messages, generate));
    enum infer_status st = flat ? pictures_mark(&text, order[0]) : INFER_OK;
    if (!st) st = tokenize(p, m, text.text, text.marks, text.n, INFER_TOK_SPECIAL);
    if (!st) st = pictures_into(p, m, order, n, found);
    if (st || *found != n) infer_prompt_free(p);
    chat_text_free(&text);
    return st;
}

static enum infer_status render_pictures(struct infer_prompt *p, const struct infer_model *m,
                                         const struct infer_prompt_template *t, json_t *messages,
                                         bool generate, struct infer_picture *const *order, int n) {
    int found = 0;
    enum infer_status st = with_pictures(p, m, t, messages, generate, order, n, false, &found);
    if ((st && st != INFER_E_INPUT) || (!st && found == n)) return st;
    json_t *flat = pictures_flat(messages);
    if (!flat) return err_set(INFER_E_MEMORY, "out of memory: a conversation with pictures");
    st = with_pictures(p, m, t, flat, generate, order, n, true, &found);
    json_decref(flat);
    if (st || found == n) return st;
    return err_set(INFER_E_INPUT, "the chat template has places for %d of %d pictures", found, n);
}

enum infer_status infer_prompt_render(struct infer_prompt *p, const struct infer_model *m,
                                      const struct infer_prompt_template *t, json_t *messages,
                                      bool generate) {
    struct infer_picture **order;
    struct chat_text text = {0};
    int n;
    *p = (struct infer_prompt){0};
    TRY(pictures_of(messages, t, &order, &n));
    if (n) {
        enum infer_status st = render_pictures(p, m, t, messages, generate, order, n);
        mem_free(order);
        return st;
    }
    TRY(render(&text, m, t, messages, generate));
    enum infer_status st = tokenize(p, m, text.text, text.marks, text.n, INFER_TOK_SPECIAL);
    chat_text_free(&text);
    if (st) infer_prompt_free(p);
    return st;
}

/* One token; -1: more, or none. */
static int32_t only_id(const struct infer_model *m, const char *text) {
    int32_t id;
    size_t n;
    if (infer_tokenize(m, text, NULL, strlen(text), INFER_TOK_SPECIAL, &id, 1, &n) || n != 1) return -1;
    return id;
}

int infer_prompt_think_end(const struct infer_model *m, const struct infer_prompt *p, int32_t *ids,
                           int most) {
    const char *closing = infer_prompt_closing(p->text, p->n_text);
    char text[64];
    size_t n;
    for (int i = 0; !closing && answer_closing(i); i++) /* the one that the vocabulary has */
        if (only_id(m, answer_closing(i)) >= 0) closing = answer_closing(i);
    if (!closing) return 0;
    snprintf(text, sizeof text, "\n%s\n\n", closing);
    const enum infer_status st =
        infer_tokenize(m, text, NULL, strlen(text), INFER_TOK_SPECIAL, ids, (size_t)most, &n);
    return st || n > (size_t)most ? 0 : (int)n;
}

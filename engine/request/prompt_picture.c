/* Pictures in the text of a conversation. A template that knows pictures writes a token for each; the rows go there, and what stands around
 * them is the template's. For one that does not, the text has a mark in that place, which becomes what the model reads around a picture. */
#define _GNU_SOURCE /* memmem */
#include "request/picture.h"
#include <jansson.h>
#include <string.h>
#include "base/mem.h"

/* Two characters of a private area (U+E000, U+E001), which no template changes. */
static const char mark[] = "\xee\x80\x80\xee\x80\x81";
enum { N_MARK = sizeof mark - 1 };

static bool is_picture(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, "image") == 0;
}

/* ---- messages ---- */

enum infer_status pictures_of(const json_t *messages, const struct infer_prompt_template *t,
                              struct infer_picture ***order, int *n) {
    json_t *message, *part;
    size_t i, k;
    int most = 0;
    *order = NULL;
    *n = 0;
    json_array_foreach((json_t *)messages, i, message)
        json_array_foreach(json_object_get(message, "content"), k, part) most += is_picture(part);
    if (!most) return INFER_OK;
    TRY(mem_new(order, (size_t)most * sizeof **order, "pictures"));
    json_array_foreach((json_t *)messages, i, message)
        json_array_foreach(json_object_get(message, "content"), k, part) {
        if (!is_picture(part)) continue;
        const json_t *which = json_object_get(part, "picture");
        const json_int_t at = json_is_integer(which) ? json_integer_value(which) : -1;
        if (at < 0 || at >= t->n_picture) {
            mem_free(*order);
            return err_set(INFER_E_INPUT, "message %zu names picture %lld of %d", i, (long long)at,
                           t->n_picture);
        }
        (*order)[(*n)++] = t->picture[at];
    }
    return INFER_OK;
}

/* The parts of a message as one text. */
static json_t *flat(const json_t *content) {
    size_t i, n = 0;
    json_t *part;
    char *text, *at;
    json_array_foreach((json_t *)content, i, part) n +=
        is_picture(part) ? N_MARK : json_string_length(json_object_get(part, "text"));
    if (!(at = text = mem_piece(n + 1))) return NULL;
    json_array_foreach((json_t *)content, i, part) {
        const json_t *s = json_object_get(part, "text");
        const size_t len = is_picture(part) ? N_MARK : json_string_length(s);
        if (len) memcpy(at, is_picture(part) ? mark : json_string_value(s), len);
        at += len;
    }
    json_t *out = json_stringn(text, n);
    mem_free(text);
    return out;
}

json_t *pictures_flat(const json_t *messages) {
    json_t *out = json_array(), *message;
    size_t i;
    bool ok = out != NULL;
    json_array_foreach((json_t *)messages, i, message) {
        json_t *copy = json_copy(message), *content = json_object_get(message, "content");
        if (json_is_array(content)) ok = ok && json_object_set_new(copy, "content", flat(content)) == 0;
        ok = ok && json_array_append_new(out, copy) == 0;
    }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* ---- text ---- */

static const char *next_mark(const char *text, size_t n) { return n ? memmem(text, n, mark, N_MARK) : NULL; }

static void put(struct chat_text *to, const char *text, const uint8_t *marks, size_t n) {
    memcpy(to->text + to->n, text, n);
    if (marks)
        memcpy(to->marks + to->n, marks, n);
    else
        memset(to->marks + to->n, 0, n);
    to->n += n;
}

enum infer_status pictures_mark(struct chat_text *text, const struct infer_picture *p) {
    const size_t around = strlen(p->before) + strlen(p->placeholder) + strlen(p->after);
    size_t n = text->n + 1, from = 0;
    for (const char *at = text->text; (at = next_mark(at, text->n - (size_t)(at - text->text))); at += N_MARK)
        n += around;
    struct chat_text to = {0};
    enum infer_status e = mem_new(&to.text, n, "a prompt");
    if (!e) e = mem_new(&to.marks, n, "a prompt");
    for (const char *at; !e && (at = next_mark(text->text + from, text->n - from));
         from = (size_t)(at - text->text) + N_MARK) {
        put(&to, text->text + from, text->marks + from, (size_t)(at - text->text) - from);
        put(&to, p->before, NULL, strlen(p->before));
        put(&to, p->placeholder, NULL, strlen(p->placeholder));
        put(&to, p->after, NULL, strlen(p->after));
    }
    if (e) {
        chat_text_free(&to);
        return e;
    }
    put(&to, text->text + from, text->marks + from, text->n - from);
    to.text[to.n] = 0;
    chat_text_free(text);
    *text = to;
    return INFER_OK;
}

/* ---- ids ---- */

static enum infer_status placeholder_id(const struct infer_model *m, const char *text, int32_t *id) {
    int32_t ids[4];
    size_t n;
    TRY(infer_tokenize(m, text, NULL, strlen(text), INFER_TOK_SPECIAL, ids, 4, &n));
    *id = ids[0];
    return n == 1 ? INFER_OK
                  : err_set(INFER_E_UNSUPPORTED,
                            "the vocabulary has no token %s: these pictures are for another family of models",
                            text);
}

/* A prompt that is being put together; ids NULL: it is only counted. */
struct spliced {
    int32_t *ids;
    size_t n;
    struct infer_prompt_rows *rows;
    struct infer_picture **picture;
    int n_rows;
};

static enum infer_status put_part(struct spliced *to, const struct infer_model *m, struct infer_picture *p,
                                  const struct picture_part *part, int32_t placeholder) {
    int32_t ids[sizeof part->text];
    size_t n = 0;
    TRY(infer_tokenize(m, part->text, NULL, strlen(part->text), INFER_TOK_SPECIAL, ids, sizeof part->text,
                       &n));
    if (to->ids) {
        memcpy(to->ids + to->n, ids, n * sizeof *ids);
        for (int i = 0; i < part->n_row; i++) to->ids[to->n + n + (size_t)i] = placeholder;
    }
    to->n += n;
    if (to->ids && part->n_row) {
        to->rows[to->n_rows] = (struct infer_prompt_rows){.at = (int)to->n,
                                                          .n = part->n_row,
                                                          .stride = p->width,
                                                          .both_ways = p->both_ways,
                                                          .axis = (const int32_t(*)[3])part->axis,
                                                          .advance = part->advance};
        to->picture[to->n_rows] = p;
    }
    to->n += (size_t)part->n_row;
    to->n_rows += part->n_row > 0;
    return INFER_OK;
}

static enum infer_status splice(struct spliced *to, const struct infer_prompt *p, const struct infer_model *m,
                                struct infer_picture *const *order, int32_t placeholder) {
    int k = 0;
    to->n = 0;
    to->n_rows = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->ids[i] != placeholder) {
            if (to->ids) to->ids[to->n] = p->ids[i];
            to->n++;
            continue;
        }
        for (int j = 0; j < order[k]->n_part; j++)
            TRY(put_part(to, m, order[k], &order[k]->part[j], placeholder));
        k++;
    }
    return to->n > INT32_MAX ? err_set(INFER_E_INPUT, "the prompt has %zu tokens", to->n) : INFER_OK;
}

enum infer_status pictures_into(struct infer_prompt *p, const struct infer_model *m,
                                struct infer_picture *const *order, int n, int *found) {
    struct spliced to = {0};
    int32_t placeholder;
    *found = 0;
    TRY(placeholder_id(m, order[0]->placeholder, &placeholder));
    for (int i = 0; i < p->n; i++) *found += p->ids[i] == placeholder;
    if (*found != n) return INFER_OK;
    TRY(splice(&to, p, m, order, placeholder));
    enum infer_status e = mem_new(&to.ids, to.n * sizeof *to.ids, "token ids");
    if (!e) e = mem_new(&to.rows, (size_t)to.n_rows * sizeof *to.rows, "rows of pictures");
    if (!e) e = mem_new(&to.picture, (size_t)to.n_rows * sizeof *to.picture, "rows of pictures");
    if (!e) e = splice(&to, p, m, order, placeholder);
    if (e) {
        mem_free(to.ids);
        mem_free(to.rows);
        mem_free(to.picture);
        return e;
    }
    mem_free(p->ids);
    p->ids = to.ids;
    p->n = (int)to.n;
    p->rows = to.rows;
    p->picture = to.picture;
    p->n_rows = to.n_rows;
    for (int i = 0; i < p->n_rows; i++) atomic_fetch_add(&p->picture[i]->refs, 1);
    return INFER_OK;
}

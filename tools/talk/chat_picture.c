/* Pictures of `infer chat`: /image, and those of saved conversations. */
#include <string.h>
#include "tools/talk/talk.h"
#include "tools/tool.h"

static bool is_image(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, "image") == 0;
}

const json_t *chat_text(const json_t *message) {
    const json_t *content = json_object_get(message, "content"), *text;
    json_t *part;
    size_t i;
    json_array_foreach((json_t *)content, i, part) {
        text = json_object_get(part, "text");
        if (json_is_string(text)) return text;
    }
    return content;
}

int chat_first_picture(const struct chat *c, const json_t *message) {
    json_t *part;
    size_t i;
    json_array_foreach(json_object_get(message, "content"), i, part) if (is_image(part)) return (
        int)json_integer_value(json_object_get(part, "picture"));
    return c->n_said;
}

enum infer_status chat_say_to_model(struct chat *c, const char *text, size_t n) {
    TRY(talk_say(&c->talk, c->messages, c->n_said, text, n));
    c->n_said = c->talk.n_picture;
    return INFER_OK;
}

enum infer_status chat_image(struct chat *c, const char *path) {
    char line[PATH_MAX];
    if (!*path) return err_set(INFER_E_INPUT, "/image needs a file: /image photo.jpg");
    if (strcmp(path, "-") == 0)
        return err_set(INFER_E_INPUT,
                       "/image -: what you say comes from standard input, a picture from a file");
    TRY(talk_picture(&c->talk, c->o, path, line, sizeof line));
    if (c->terminal_in && !c->o->quiet) tool_say("%s; it goes with your next message", line);
    return INFER_OK;
}

static enum infer_status load_picture(struct chat *c, json_t *part) {
    const char *file = json_string_value(json_object_get(part, "file"));
    char line[PATH_MAX];
    if (!file) return err_set(INFER_E_INPUT, "a picture without a file");
    TRY(talk_picture(&c->talk, c->o, file, line, sizeof line));
    json_object_set_new(part, "picture", json_integer(c->talk.n_picture - 1));
    return INFER_OK;
}

enum infer_status chat_load_pictures(struct chat *c, json_t *messages) {
    json_t *m, *part;
    size_t i, k;
    talk_forget_pictures(&c->talk);
    json_array_foreach(messages, i, m)
        json_array_foreach(json_object_get(m, "content"), k, part) if (is_image(part))
            TRY(load_picture(c, part));
    c->n_said = c->talk.n_picture;
    return INFER_OK;
}

/* infer template: renders a chat template with the variables of a JSON file, byte for byte. */
#include <string.h>
#include "text/chat_template.h"
#include "infer.h"
#include "files/json.h"
#include "base/mem.h"
#include "tools/session.h"
#include "files/textfile.h"
#include "tools/tool.h"

/* Sets input[key] to the text of a special token where the input leaves it out and the vocabulary has it. */
static enum infer_status default_token(json_t *input, const char *key, const struct infer_model *m,
                                       int32_t id) {
    size_t n;
    if (id < 0 || json_object_get(input, key)) return INFER_OK;
    const char *p = infer_piece(m, id, true, false, &n);
    json_t *text = json_stringn(p, n);
    if (!text || json_object_set_new(input, key, text) != 0)
        return err_set(INFER_E_MEMORY, "no memory for %s", key);
    return INFER_OK;
}

/* The case's JSON with the file's special tokens added; *out is ours to free. */
static enum infer_status complete_input(char **json, size_t *n, const struct infer_model *m) {
    json_t *input;
    uint64_t failed = mem_failed();
    TRY(json_read(&input, "template input", *json, *n, JSON_ALLOW_NUL));
    enum infer_status st =
        json_is_object(input) ? INFER_OK : err_set(INFER_E_INPUT, "template input: a JSON object is needed");
    if (!st) st = default_token(input, "bos_token", m, infer_bos(m));
    if (!st) st = default_token(input, "eos_token", m, infer_eos(m));
    char *text = NULL;
    if (st)
        json_decref(input);
    else
        st = json_write(&text, input, failed, JSON_COMPACT, "the input of a template");
    if (st) return st;
    mem_free(*json);
    *json = text;
    *n = strlen(text);
    return INFER_OK;
}

static enum infer_status render(const struct options *o, const char *text, size_t n_text,
                                const struct infer_model *m) {
    char *json;
    size_t n;
    TRY(text_read(&json, &n, o->input, TEXT_INPUT));
    enum infer_status st = m ? complete_input(&json, &n, m) : INFER_OK;
    struct chat_text out = {0};
    if (!st) st = chat_render(&out, text, n_text, json, n);
    mem_free(json);
    if (!st) st = tool_write(out.text, out.n);
    if (!st) st = tool_flush();
    chat_text_free(&out);
    return st;
}

static enum infer_status template_file(const struct options *o) {
    char *text;
    size_t n;
    TRY(text_read(&text, &n, o->chat_template, TEXT_TEMPLATE));
    enum infer_status st = render(o, text, n, NULL);
    mem_free(text);
    return st;
}

static enum infer_status template_model(const struct options *o) {
    char path[4096];
    struct infer_model *m;
    struct infer_model_info info;
    const struct infer_model_options options = {.vocab_only = true};
    TRY(session_model_path(o, path, sizeof path));
    TRY(infer_model_open(&m, path, &options));
    infer_model_info(m, &info);
    enum infer_status st =
        info.chat_template
            ? render(o, info.chat_template, info.chat_template_len, m)
            : err_set(INFER_E_INPUT, "%s has no chat template; give one with --template", path);
    infer_model_close(m);
    return st;
}

int cmd_template(const struct options *o) {
    enum infer_status st = o->chat_template ? template_file(o) : template_model(o);
    return st ? tool_fail(o, st) : EXIT_DONE;
}

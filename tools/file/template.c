/* infer template: renders a chat template with the variables of a JSON file, byte for byte. */
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

/* The case's variables, with the file's special tokens where the case names none. */
static enum infer_status read_input(json_t **input, const char *path, const struct infer_model *m) {
    char *text;
    size_t n;
    TRY(text_read(&text, &n, path, TEXT_INPUT));
    enum infer_status st = json_read(input, "template input", text, n, JSON_ALLOW_NUL);
    mem_free(text);
    if (st || !m || !json_is_object(*input)) return st;
    uint64_t failed = mem_failed();
    st = default_token(*input, "bos_token", m, infer_bos(m));
    if (!st) st = default_token(*input, "eos_token", m, infer_eos(m));
    return st ? st : json_whole(*input, failed, "the input of a template");
}

static enum infer_status render(const struct options *o, const char *text, size_t n_text,
                                const struct infer_model *m) {
    json_t *input = NULL;
    struct chat_text out = {0};
    enum infer_status st = read_input(&input, o->input, m);
    if (!st) st = chat_render(&out, text, n_text, input);
    json_decref(input);
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

#include "tools/sight.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/tool.h"

bool sight_path(char *path, size_t n, const char *model, const struct options *o) {
    if (!o->mmproj) return infer_vision_beside(model, path, n);
    snprintf(path, n, "%s", o->mmproj);
    return strcmp(o->mmproj, "none") != 0;
}

enum infer_status sight_open(struct infer_vision **out, const struct session *s, const struct options *o,
                             bool must) {
    char path[4096];
    const bool there = sight_path(path, sizeof path, s->path, o);
    *out = NULL;
    if (!there && must)
        return err_set(
            INFER_E_INPUT, "%s reads text alone: %s", s->path,
            o->mmproj ? "--mmproj is none"
                      : "there is no .gguf with mmproj in its name beside it, and --mmproj FILE names none");
    if (!there) return INFER_OK;
    const struct infer_vision_options vo = {.max_tokens = o->image_max_tokens, .threads = o->threads};
    const enum infer_status st = infer_vision_open(out, s->model, path, &vo);
    if (!st || must || o->mmproj) return st ? err_prefix(st, "--mmproj %s", path) : INFER_OK;
    tool_say("pictures are not taken: %s", err_message()); /* nobody has asked for that file */
    return INFER_OK;
}

enum infer_status sight_picture(struct infer_picture **out, struct infer_vision *v, const char *path,
                                char *line, size_t n) {
    struct infer_picture_info info;
    char *bytes;
    size_t n_byte;
    *out = NULL;
    TRY(text_read(&bytes, &n_byte, path, TEXT_PICTURE));
    const enum infer_status st = infer_picture_open(out, v, bytes, n_byte, 0);
    mem_free(bytes);
    if (strcmp(path, "-") == 0) path = "stdin";
    if (st) return err_prefix(st, "%s", path);
    infer_picture_info(*out, &info);
    snprintf(line, n, "%s: %s of %d x %d, seen as %d x %d: %d tokens", path, info.kind, info.width,
             info.height, info.to_width, info.to_height, info.n_token);
    return INFER_OK;
}

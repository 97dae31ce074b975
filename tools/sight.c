#include "tools/sight.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/net/listed.h"
#include "tools/tool.h"

bool sight_path(char *path, size_t n, const char *model, const struct options *o) {
    if (!o->mmproj) return infer_vision_beside(model, path, n);
    snprintf(path, n, "%s", o->mmproj);
    return strcmp(o->mmproj, "none") != 0;
}

const char *sight_device(const struct options *o, bool model_on_card) {
    const char *word = o->mmproj_device ? o->mmproj_device : "auto";
    if (strcmp(word, "cpu") == 0) return NULL;
    if (strcmp(word, "auto") != 0) return word;
    if (!model_on_card) return NULL;
    return o->device && strncmp(o->device, "cuda", 4) == 0 ? o->device : "cuda";
}

static struct infer_vision_options vision_options(const struct options *o, const char *device) {
    return (struct infer_vision_options){
        .max_tokens = o->image_max_tokens, .threads = o->threads, .device = device};
}

uint64_t sight_reserve(const struct infer_model *m, const char *path, const struct options *o,
                       bool model_on_card) {
    const struct infer_vision_options vo = vision_options(o, NULL);
    struct infer_vision_info info;
    if (!sight_device(o, model_on_card)) return 0;
    return infer_vision_plan(m, path, &vo, true, &info) ? 0 : info.device_bytes;
}

/* On the card, or with auto on the CPU where that cannot be. */
static enum infer_status open_there(struct infer_vision **out, const struct session *s,
                                    const struct options *o, const char *path) {
    const bool card = s->place.device_layers && strstr(s->place.device, "cuda");
    struct infer_vision_options vo = vision_options(o, sight_device(o, card));
    const enum infer_status st = infer_vision_open(out, s->model, path, &vo);
    const bool must = o->mmproj_device && strcmp(o->mmproj_device, "auto") != 0;
    if (!st || !vo.device || must || (st != INFER_E_DEVICE && st != INFER_E_MEMORY)) return st;
    tool_say("pictures are computed on the CPU: %s", err_message());
    vo.device = NULL;
    return infer_vision_open(out, s->model, path, &vo);
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
    const enum infer_status st = open_there(out, s, o, path);
    if (!st || must || o->mmproj) return st ? err_prefix(st, "--mmproj %s", path) : INFER_OK;
    tool_say("pictures are not taken: %s", err_message()); /* nobody has asked for that file */
    return INFER_OK;
}

/* Whoever names an address wants its host asked. */
static enum infer_status fetch(char **bytes, size_t *n, const char *url, const char *urls) {
    static const struct http_limits most = {.bytes = 20 << 20, .seconds = 60};
    char host[300], list[4096];
    if (!http_host(url, host, sizeof host)) return err_set(INFER_E_INPUT, "%s: not a plain address", url);
    if (snprintf(list, sizeof list, "%s,%s", host, urls ? urls : "") >= (int)sizeof list)
        return err_set(INFER_E_INPUT, "--image-urls is longer than %zu", sizeof list);
    return err_prefix(http_fetch_listed(url, list, &most, bytes, n), "%s", url);
}

enum infer_status sight_read(char **bytes, size_t *n, const struct options *o, const char *path) {
    return http_is_url(path) ? fetch(bytes, n, path, o->image_urls) : text_read(bytes, n, path, TEXT_PICTURE);
}

enum infer_status sight_picture(struct infer_picture **out, struct infer_vision *v, const char *path,
                                const char *bytes, size_t n_byte, char *line, size_t n) {
    struct infer_picture_info info;
    const enum infer_status st = infer_picture_open(out, v, bytes, n_byte, 0);
    if (strcmp(path, "-") == 0) path = "stdin";
    if (st) return err_prefix(st, "%s", path);
    infer_picture_info(*out, &info);
    snprintf(line, n, "%s: %s of %d x %d, seen as %d x %d: %d tokens", path, info.kind, info.width,
             info.height, info.to_width, info.to_height, info.n_token);
    return INFER_OK;
}

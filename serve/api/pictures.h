/* What a message says, with pictures in it, of all APIs: chat completions' image_url, responses' input_image, messages' image, ollama's images. */
#pragma once
#include "serve/api/fields.h"

/* A text, or parts of texts and pictures in their order. */
struct content {
    struct buf text;
    json_t *parts; /* NULL: text alone, so far */
};
/* Whether a part or block of this type is a picture. */
bool content_is_picture(const char *type);
/* The picture of a part or block, behind what was said. at: its place. errors: INFER_E_INPUT after job_refuse (broken, too large, a URL that is
 * not data, no model that sees), INFER_E_MEMORY */
enum infer_status content_picture(struct job *j, const char *at, const json_t *part, struct content *c);
/* The same of a file in base64. */
enum infer_status content_base64(struct job *j, const char *at, const char *base64, size_t n, unsigned flags,
                                 struct content *c);
/* All of it, as templates take it; c is empty then. NULL: no memory */
json_t *content_take(struct content *c);
void content_free(struct content *c);
/* A part of a type that is none here, or a picture for a model that reads text alone. */
enum infer_status content_refuse(struct job *j, const char *at, const char *type);

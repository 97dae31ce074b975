/* Pictures for a model, as --mmproj, --image and --image-max-tokens say. */
#pragma once
#include "infer_request.h"
#include "tools/options.h"
#include "tools/session.h"

/* Where its tower is, into path[n]: --mmproj, or what lies beside the model; false: nowhere. */
bool sight_path(char *path, size_t n, const char *model, const struct options *o);
/* What sees for the session's model. must: it is needed; else *out is NULL where neither the option nor a file
 * beside the model names one, or where that file cannot be used, which is said.
 * errors: INFER_E_INPUT (none, where one must be), those of infer_vision_open */
enum infer_status sight_open(struct infer_vision **out, const struct session *s, const struct options *o,
                             bool must);
/* The picture of a file, "-": of stdin; line[n]: what there is to say of it, "a.jpg: JPEG of 4032 x 3024, seen as 1024 x 768: 768 tokens".
 * errors: those of infer_picture_open, INFER_E_IO; the message names the file */
enum infer_status sight_picture(struct infer_picture **out, struct infer_vision *v, const char *path,
                                char *line, size_t n);

/* Pictures for a model, as --mmproj, --image and --image-max-tokens say. */
#pragma once
#include "infer_request.h"
#include "tools/options.h"
#include "tools/session.h"

/* Where its tower is, into path[n]: --mmproj, or what lies beside the model; false: nowhere. */
bool sight_path(char *path, size_t n, const char *model, const struct options *o);
/* Where pictures are computed beside a model on a card or not: a word of an engine's .device, NULL: on the CPU. */
const char *sight_device(const struct options *o, bool model_on_card);
/* What is to be left of the card for them beside the model; 0: nothing, or nobody knows, which sight_open says. */
uint64_t sight_reserve(const struct infer_model *m, const char *path, const struct options *o,
                       bool model_on_card);
/* What sees for the session's model. must: it is needed; else *out is NULL where neither the option nor a file
 * beside the model names one, or where that file cannot be used, which is said.
 * errors: INFER_E_INPUT (none, where one must be), those of infer_vision_open */
enum infer_status sight_open(struct infer_vision **out, const struct session *s, const struct options *o,
                             bool must);
/* The bytes of a picture's file, to be freed with mem_free, "-": of stdin, or of an address whose host is the only one beside those of --image-urls from which it may come.
 * errors: INFER_E_IO, INFER_E_INPUT; the message names the file */
enum infer_status sight_read(char **bytes, size_t *n, const struct options *o, const char *path);
/* The picture that they are; line[n]: what there is to say of it, "a.jpg: JPEG of 4032 x 3024, seen as 1024 x 768: 768 tokens".
 * errors: those of infer_picture_open; the message names the file */
enum infer_status sight_picture(struct infer_picture **out, struct infer_vision *v, const char *path,
                                const char *bytes, size_t n_byte, char *line, size_t n);

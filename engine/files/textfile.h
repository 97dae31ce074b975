/* Files of text that are read whole: prompts, templates, grammars, JSON. Each kind has a limit, so that no file, pipe or
 * device can take all memory; the message names the kind and its limit. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "files/mapfile.h"
#include "base/status.h"

enum text_kind {
#define TEXT(kind, name, limit) TEXT_##kind,
#include "files/textfile.def"
#undef TEXT
};

enum { /* bytes that each may have */
#define TEXT(kind, name, limit) TEXT_MAX_##kind = (limit),
#include "files/textfile.def"
#undef TEXT
};

/* Reads all of a file, "-" is stdin; the text ends with a 0 that *n does not count. Free with mem_free.
 * errors: INFER_E_IO, INFER_E_INPUT (longer than its kind may be), INFER_E_MEMORY */
enum infer_status text_read(char **text, size_t *n, const char *path, enum text_kind kind);

/* Maps a regular file; *there (unless NULL: then it must be there) is false, and nothing is mapped, where no file has that
 * name. A file that is there and cannot be opened, for whatever reason, is INFER_E_IO. errors: as text_read. */
enum infer_status text_map(struct mapfile *out, const char *path, enum text_kind kind, bool *there);

/* The bytes of a mapped file, NULL when there is no file. */
static inline const char *text_of_map(const struct mapfile *m) {
    return m->data ? (const char *)m->data : m->path ? "" : NULL;
}

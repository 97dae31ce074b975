/* JSON that others wrote, by jansson: the one place where text becomes a tree, and where its errors come from. */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "base/status.h"

/* Gives jansson memory that can be counted and fail in tests, and out of which json_read finds its way when it does fail. For a
 * program, before anything else of jansson. */
void json_use_mem(void);

/* text[n] -> a tree, to be freed with json_decref; what names it in messages (NULL: the caller puts a name before
 * them); flags are jansson's for decoding. An integer
 * beyond 64 bits is read as the nearest real; every other integer stays exact.
 * errors: INFER_E_INPUT naming what, line and column, INFER_E_MEMORY wherever an allocation fails (after json_use_mem; jansson
 * itself leaves characters out, or aborts). */
enum infer_status json_read(json_t **out, const char *what, const char *text, size_t n, size_t flags);
/* The same of what Python writes: a number may be Infinity, which JSON has not; it is read as 1e308. */
enum infer_status json_read_python(json_t **out, const char *what, const char *text, size_t n, size_t flags);

/* o[key] where it is a text, else "". */
static inline const char *json_text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* A number, also where it is written as a text ("2.6"); 0: neither. */
double json_real_of(const json_t *v);

/* A tree that was built piece by piece is whole: not NULL, and no allocation failed since failed, mem_failed() before (jansson
 * leaves out what has no memory and goes on). errors: INFER_E_MEMORY, as "out of memory: what" */
enum infer_status json_whole(const json_t *j, uint64_t failed, const char *what);

/* The text of j, which is given up, NULL included; free with mem_free. failed as for json_whole. errors: INFER_E_MEMORY, as "out of memory: what" */
enum infer_status json_write(char **out, json_t *j, uint64_t failed, size_t flags, const char *what);
/* The text of j on one line, whatever memory jansson has; free with mem_free. errors: INFER_E_MEMORY, as "out of memory: what" */
enum infer_status json_line(char **out, const json_t *j, const char *what);

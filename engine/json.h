/* JSON that others wrote, by jansson: the one place where text becomes a tree, and where its errors come from. */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "status.h"

/* text[n] -> a tree, to be freed with json_decref; what names it in messages (NULL: the caller puts a name before
 * them); flags are jansson's for decoding. An integer
 * beyond 64 bits is read as the nearest real; every other integer stays exact.
 * errors: INFER_E_INPUT naming what, line and column, INFER_E_MEMORY wherever an allocation fails (where jansson takes
 * its memory from mem_piece, as the program's main has it: jansson itself leaves characters out and goes on). */
enum infer_status json_read(json_t **out, const char *what, const char *text, size_t n, size_t flags);

/* For code that builds or writes trees: INFER_E_MEMORY when j is NULL or an allocation failed since mem_failed() was
 * failed_before, else INFER_OK. what: as in "out of memory: what". */
enum infer_status json_whole(const void *j, uint64_t failed_before, const char *what);

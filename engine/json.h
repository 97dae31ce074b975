/* JSON of model folders, by jansson: one place for its errors. */
#pragma once
#include <jansson.h>
#include "status.h"

/* text[n] -> a tree, to be freed with json_decref; a key given twice is an error.
 * errors: INFER_E_INPUT naming path, line and column, INFER_E_MEMORY (where jansson takes its memory from mem_piece, as the
 * program's main has it). */
enum infer_status json_read(json_t **out, const char *path, const char *text, size_t n);

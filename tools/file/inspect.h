/* infer inspect: what a model file holds. */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "base/status.h"

/* Prints keys (long arrays and strings shortened, control characters escaped), tensors with type, shape and
 * bytes, and totals per type; json: the same as one object. errors: as tensorfile_open, INFER_E_MEMORY. */
enum infer_status inspect_print(FILE *out, const char *path, bool json);
/* Checks all that can be checked without running the model: the container, hyper-parameters, vocabulary,
 * shapes and that every weight is a finite number; prints one line when all is well. A file without tensors
 * is checked as a vocabulary. sparse_ok: holes are zeros. errors: as model_open and tok_open. */
enum infer_status inspect_check(FILE *out, const char *path, bool json, bool sparse_ok);
